package lake

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// told is a batch with all that a batch can tell of its rows.
func told() *freshet.Batch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "seq", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "tags", Type: arrow.ListOf(arrow.PrimitiveTypes.Int16), Nullable: true},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 20, Scale: 3}}}, nil)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rb.Release()
	b := &freshet.Batch{Lane: freshet.Lane{Origin: "o", OriginID: "i", Name: "3"}, After: 4, Last: 9,
		Unsent: freshet.NewMask(3)}
	for i, kind := range []freshet.Kind{freshet.Insert, freshet.UpdatePreimage, freshet.UpdatePostimage, freshet.Delete} {
		rb.Field(0).(*array.StringBuilder).Append(fmt.Sprint("row ", i))
		rb.Field(1).(*array.ListBuilder).Append(i%2 == 0)
		if err := rb.Field(2).AppendValueFromString("1.25"); err != nil {
			panic(err)
		}
		b.Kinds, b.Seqs = append(b.Kinds, kind), append(b.Seqs, int64(5+i))
		b.Places = append(b.Places, int32(i))
		b.Stamps = append(b.Stamps, freshet.Stamp{Tx: fmt.Sprint("tx", i), Ordinal: int64(i) - 1, Committed: 1e15})
		b.Records = append(b.Records, &freshet.Record{Raw: []byte("raw"), Key: []byte{}, Time: time.Unix(5, 7).UTC(),
			TimeKind: 1, Headers: []freshet.Header{{Key: "h", Value: []byte("v")}, {Key: "h"}}})
	}
	b.Unsent.Mark(2, 1)
	b.Rows = rb.NewRecordBatch()
	b.Rejects = []freshet.Reject{{Seq: 9, Row: 2, Code: freshet.CodeMalformed, Message: "bad", Step: "decode",
		Record: freshet.Record{Raw: []byte("x"), TimeKind: -1}}}
	return b
}

// text is all of a batch.
func text(b *freshet.Batch) string {
	s := fmt.Sprintf("%v %v %v %v %+v\n", b.Kinds, b.Seqs, b.Places, b.Stamps, b.Rejects)
	for _, r := range b.Records {
		s += fmt.Sprintf("%+v\n", r.Record())
	}
	if b.Rows == nil {
		return s
	}
	for row := range b.NumRows() {
		for c := range int(b.Rows.NumCols()) {
			s += fmt.Sprint(b.Unsent.Has(row, c), b.Rows.ColumnName(c), b.Rows.Column(c).DataType(),
				b.Rows.Column(c).ValueStr(row), "\n")
		}
	}
	return s
}

func TestParkedBatch_EncodedAndDecoded_IsTheSame(t *testing.T) {
	full, plain := told(), told()
	plain.Kinds, plain.Stamps, plain.Records, plain.Unsent, plain.Rejects, plain.Places = nil, nil, nil, nil, nil, nil
	for name, b := range map[string]*freshet.Batch{"all is told": full, "nothing is told": plain} {
		rows, err := encodeRows(b)
		if err != nil {
			t.Fatal(err)
		}
		got := &freshet.Batch{}
		if err := decodeRows(rows, got); err != nil {
			t.Fatal(err)
		}
		rejects, err := encodeRejects(b)
		if err != nil {
			t.Fatal(err)
		}
		if rejects != nil {
			if err := decodeRejects(rejects, got); err != nil {
				t.Fatal(err)
			}
		}
		if text(got) != text(b) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, text(got), text(b))
		}
		if (got.Kinds == nil) != (b.Kinds == nil) || (got.Unsent == nil) != (b.Unsent == nil) {
			t.Errorf("%s: what was not told is told", name)
		}
	}
}

// Tables have batches that were parked when all that may be told of rows was written, with nulls where there is nothing.
func TestParkedBatch_OfBefore_IsTheSame(t *testing.T) {
	want := told()
	want.Rejects, want.Stamps, want.Records = nil, nil, nil
	fields := append(want.Rows.Schema().Fields(), append(append([]arrow.Field{}, recordFields...), changeFields...)...)
	columns := append([]arrow.Array{}, want.Rows.Columns()...)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields[len(columns):], nil))
	for row := range want.NumRows() {
		appendRecord(rb, want.Seqs[row], nil)
		at := len(recordFields)
		rb.Field(at).(*array.Int32Builder).Append(want.Places[row])
		rb.Field(at + 1).(*array.Uint8Builder).Append(uint8(want.Kinds[row]))
		if row == 2 {
			rb.Field(at + 2).(*array.BinaryBuilder).Append([]byte{2}) // the column 1 of 3
		} else {
			rb.Field(at + 2).AppendNull()
		}
		for i := range 3 {
			rb.Field(at + 3 + i).AppendNull()
		}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), append(columns, rb.NewRecordBatch().Columns()...), 4)
	data, err := toStream(rec)
	if err != nil {
		t.Fatal(err)
	}
	got := &freshet.Batch{}
	if err := decodeRows(data, got); err != nil {
		t.Fatal(err)
	}
	if text(got) != text(want) || got.Records != nil || got.Stamps != nil {
		t.Errorf("got\n%s\nwant\n%s", text(got), text(want))
	}
}

func TestParkedBatch_BitFlipped_Refused(t *testing.T) {
	whole, err := encodeRows(told())
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		broken := bytes.Clone(whole)
		broken[at] ^= 1 << (at % 8)
		if decodeRows(broken, &freshet.Batch{}) == nil {
			t.Fatalf("byte %d is not what it was, and nobody noticed", at)
		}
	}
}

// What is parked is cut where the table could have been committed as it came: not within a seq of any lane, nor behind a batch that is
// a part of what is in several lanes.
func TestPortion_OfParkedBatches_CutWhereTheTableCouldBe(t *testing.T) {
	a, b := freshet.Lane{Name: "1"}, freshet.Lane{Name: "2"}
	one := func(l freshet.Lane, part int64) parked { return parked{lane: l, part: part, bytes: 10} }
	partial := func(p parked) parked { p.partial = true; return p }
	for _, c := range []struct {
		name  string
		all   []parked
		bytes int64
		want  int
	}{
		{"fits", []parked{one(a, 0), one(b, 0)}, 20, 2},
		{"larger than wanted", []parked{one(a, 0), one(b, 0)}, 5, 1},
		{"cut between batches", []parked{one(a, 0), one(b, 0), one(a, 0)}, 25, 2},
		{"a seq in parts", []parked{one(a, 0), one(a, 0), one(a, 1), one(a, 2), one(a, 0)}, 20, 4},
		{"a seq in parts around another lane", []parked{one(a, 0), one(b, 0), one(a, 1), one(b, 0)}, 10, 3},
		{"two lanes in parts", []parked{one(a, 0), one(b, 0), one(a, 1), one(b, 1), one(a, 0)}, 10, 4},
		{"several lanes together", []parked{partial(one(a, 0)), partial(one(b, 0)), one(a, 0), one(b, 0)}, 10, 3},
	} {
		if got := portion(c.all, c.bytes); got != c.want {
			t.Errorf("%s: got %d batches, want %d", c.name, got, c.want)
		}
	}
}

// A parking table of an older version of ours gets the columns that it lacks, and keeps what it holds.
func TestParkLog_OfAnOlderVersion_GetsItsColumns(t *testing.T) {
	st := store.NewMem()
	old := newParkLog("app", "t_parked", st, "")
	old.columns = arrow.NewSchema(parkedSchema.Fields()[:parkedOnce], nil)
	snap, err := old.need(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lane := freshet.Lane{Origin: "o", Name: "1"}
	w, err := old.writer()
	if err != nil {
		t.Fatal(err)
	}
	row, err := parkedRow("app", &freshet.Batch{Lane: lane, After: 4, Last: 9}, parked{at: time.Unix(5, 0)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Release()
	first := array.NewRecordBatch(old.columns, row.Columns()[:parkedOnce], 1)
	defer first.Release()
	if err := w.Write(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	adds, err := w.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx := snap.Table().Begin(snap, nil)
	tx.Add(adds...)
	tx.Operation("WRITE", nil, nil)
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, look := range []func(*parkLog) (*delta.Snapshot, error){
		func(l *parkLog) (*delta.Snapshot, error) { return l.look(t.Context()) },
		func(l *parkLog) (*delta.Snapshot, error) { return l.need(t.Context()) },
	} {
		now := newParkLog("app", "t_parked", st, "")
		if snap, err = look(now); err != nil {
			t.Fatal(err)
		}
		all, err := now.beyond(t.Context(), snap, freshet.Progress{lane: 4})
		if err != nil || len(all) != 1 || all[0].last != 9 {
			t.Fatalf("got %v, %v, want the batch up to 9", all, err)
		}
	}
	if have, _ := snap.Schema().Lookup("beside"); have == nil {
		t.Error("got no column beside")
	}
}

func FuzzParkedBatch(f *testing.F) {
	rows, err := encodeRows(told())
	if err != nil {
		f.Fatal(err)
	}
	rejects, err := encodeRejects(told())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rows)
	f.Add(rejects)
	f.Add([]byte("nothing of the kind"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		b := &freshet.Batch{}
		if decodeRows(data, b) == nil {
			_ = text(b)
		}
		_ = decodeRejects(data, &freshet.Batch{})
	})
}
