package expr_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
)

// nestedBatch has columns of types that expressions do not compute with, and nestings of those that they do.
func nestedBatch(t *testing.T) arrow.RecordBatch {
	t.Helper()
	p := arrow.PrimitiveTypes
	item := arrow.StructOf(arrow.Field{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "l", Type: arrow.ListOf(p.Int16), Nullable: true})
	var fields []arrow.Field
	for i, dt := range []arrow.DataType{
		arrow.ListOf(item), arrow.MapOf(arrow.BinaryTypes.String, item), arrow.LargeListOf(arrow.BinaryTypes.LargeString),
		arrow.FixedSizeListOf(2, p.Int64), &arrow.FixedSizeBinaryType{ByteWidth: 3}, arrow.FixedWidthTypes.Boolean,
		&arrow.Decimal128Type{Precision: 38, Scale: 2}, arrow.Null, p.Uint8, arrow.FixedWidthTypes.Time64us,
	} {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: dt, Nullable: true})
	}
	const rows = `[
	 {"c0":[{"s":"a","l":[1,2]},null,{"s":null,"l":[]}], "c1":[{"key":"k","value":{"s":"v","l":[7]}}], "c2":["x","yy"],
	  "c3":[1,2], "c4":"AQID", "c5":true, "c6":"1.25", "c8":200, "c9":"10:00:00"},
	 {},
	 {"c0":[], "c1":[], "c2":[], "c3":[3,null], "c4":"BAUG", "c5":false, "c6":"-99.99", "c8":0, "c9":"00:00:01"},
	 {"c0":[{"s":"zz","l":[3]}], "c1":[{"key":"a","value":null},{"key":"b","value":{"s":"w","l":null}}], "c2":[null,""],
	  "c3":[5,6], "c4":"AAAA", "c5":true, "c6":"0.00", "c8":7, "c9":"23:59:59"}
	]`
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestTake_RandomSpansOfEveryType_SameRows(t *testing.T) {
	r := newRand(t)
	for _, rec := range []arrow.RecordBatch{nestedBatch(t), testBatch(t)} {
		for range 200 {
			from := r.Int64N(rec.NumRows())
			in := rec.NewSlice(from, from+r.Int64N(rec.NumRows()-from)+1)
			var spans []expr.Span
			var rows []int
			for range r.IntN(100) {
				a, b := r.IntN(int(in.NumRows())+1), r.IntN(int(in.NumRows())+1)
				s := expr.Span{From: min(a, b), To: max(a, b)}
				spans = append(spans, s)
				for i := s.From; i < s.To; i++ {
					rows = append(rows, i)
				}
			}
			// Taken twice, so that results of Take are its input too.
			once := expr.TakeBatch(in, spans)
			twice := expr.TakeBatch(once, []expr.Span{{From: 0, To: len(rows) / 2}, {From: len(rows) / 2, To: len(rows)}})
			for c := range int(in.NumCols()) {
				got, want := text(twice.Column(c)), text(in.Column(c))
				for i, row := range rows {
					if got[i] != want[row] {
						t.Fatalf("%s: row %d is %s, want %s", in.Column(c).DataType(), i, got[i], want[row])
					}
				}
				if len(got) != len(rows) {
					t.Fatalf("%s: %d rows, want %d", in.Column(c).DataType(), len(got), len(rows))
				}
			}
			twice.Release()
			once.Release()
			in.Release()
		}
		rec.Release()
	}
}

func text(arr arrow.Array) []string {
	out := make([]string, arr.Len())
	for i := range out {
		out[i] = fmt.Sprint(arr.IsNull(i), arr.ValueStr(i))
	}
	return out
}

func TestTake_Dictionary_KeepsValues(t *testing.T) {
	b := array.NewDictionaryBuilder(memory.DefaultAllocator,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	defer b.Release()
	for _, s := range []string{"x", "y", "x", "z"} {
		if err := b.AppendString(s); err != nil {
			t.Fatal(err)
		}
	}
	b.AppendNull()
	arr := b.NewArray()
	defer arr.Release()
	got := expr.Take(arr, []expr.Span{{From: 3, To: 5}, {From: 1, To: 2}})
	defer got.Release()
	if want := []string{"falsez", "true(null)", "falsey"}; !slices.Equal(text(got), want) {
		t.Errorf("got %q, want %q", text(got), want)
	}
}

func TestTakeBatch_AllRows_IsTheBatch(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	got := expr.TakeBatch(rec, []expr.Span{{From: 0, To: 3}})
	defer got.Release()
	if got != rec {
		t.Error("the batch was copied")
	}
}
