package lake_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

var (
	lane0 = freshettest.Lane(0)
	lane1 = freshettest.Lane(1)
	long  = arrow.PrimitiveTypes.Int64
	text  = arrow.BinaryTypes.String
)

func wantCode(t *testing.T, err error, code freshet.Code) {
	t.Helper()
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want an error of code %s", err, code)
	}
}

func wantStale(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, freshet.ErrStale) {
		t.Fatalf("got %v, want ErrStale", err)
	}
}

// columns are names and types of the table's columns.
func (w *world) columns(t *testing.T) string {
	t.Helper()
	s := ""
	for _, f := range w.snapshot(t, "t").Schema().Fields {
		s += f.Name + " " + f.Type.String() + " "
	}
	return s
}

// foreign commits to the table as another program would.
func (w *world) foreign(t *testing.T, change func(tx *delta.Transaction, snap *delta.Snapshot)) {
	t.Helper()
	snap := w.snapshot(t, "t")
	tx := snap.Table().Begin(snap, nil)
	change(tx, snap)
	_, err := tx.Commit(t.Context())
	must(t, err)
}

func TestWrite_NewColumn_AddedWithTheRows(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	must(t, write(t, a, batch(lane0, -1, 4)))
	done := commit(t, a, wide(lane0, 4, 6, "extra", long), batch(lane0, 6, 8))
	if done.Rows != 9 || done.Files != 2 {
		t.Errorf("got %d rows in %d files, want 9 in 2", done.Rows, done.Files)
	}
	if got, want := w.columns(t), "lane string seq long extra long "; got != want {
		t.Errorf("got columns %s, want %s", got, want)
	}
	sum := 0
	for rec, err := range w.snapshot(t, "t").Scan(t.Context(), &delta.ScanOptions{Columns: []string{"extra"}}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			if c := rec.Column(0).(*array.Int64); c.IsValid(i) {
				sum += int(c.Value(i))
			}
		}
		rec.Release()
	}
	if sum != 14 {
		t.Errorf("got %d as the sum of the new column, want 14", sum)
	}
}

// Rows of one commit that have a new column of two types are no commit: the table would say one type, and a file have the other.
func TestWrite_NewColumnOfTwoTypes_Stale(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	must(t, write(t, a, wide(lane0, -1, 4, "extra", long)))
	wantStale(t, write(t, a, wide(lane0, 4, 6, "extra", text)))
}

func TestWrite_NewColumnFixedSchema_Refused(t *testing.T) {
	w := newWorld()
	a := w.running(t, &lake.TargetOptions{FixedSchema: true})
	start(t, a, freshet.Progress{lane0: -1})
	wantCode(t, write(t, a, wide(lane0, -1, 4, "extra", long)), freshet.CodeSchemaMismatch)
}

func TestCommit_BothAddTheSameColumn_BothLand(t *testing.T) {
	w := newWorld()
	a, b := w.running(t, nil), w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	start(t, b, freshet.Progress{lane1: -1})
	first := sealed(t, a, wide(lane0, -1, 4, "extra", long))
	second := sealed(t, b, wide(lane1, -1, 4, "extra", long))
	_, err := first.Run(t.Context())
	must(t, err)
	_, err = second.Run(t.Context())
	must(t, err)
	if got, want := w.columns(t), "lane string seq long extra long "; got != want {
		t.Errorf("got columns %s, want %s", got, want)
	}
}

func TestCommit_BothAddDifferentColumns_BothLand(t *testing.T) {
	w := newWorld()
	a, b := w.running(t, nil), w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	start(t, b, freshet.Progress{lane1: -1})
	first := sealed(t, a, wide(lane0, -1, 4, "x", long))
	second := sealed(t, b, wide(lane1, -1, 4, "y", text))
	_, err := first.Run(t.Context())
	must(t, err)
	_, err = second.Run(t.Context())
	must(t, err)
	if got, want := w.columns(t), "lane string seq long x long y string "; got != want {
		t.Errorf("got columns %s, want %s", got, want)
	}
}

func TestCommit_OtherTypeCameFirst_Stale(t *testing.T) {
	w := newWorld()
	a, b := w.running(t, nil), w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	start(t, b, freshet.Progress{lane1: -1})
	first := sealed(t, a, wide(lane0, -1, 4, "extra", long))
	second := sealed(t, b, wide(lane1, -1, 4, "extra", text))
	_, err := first.Run(t.Context())
	must(t, err)
	_, err = second.Run(t.Context())
	wantStale(t, err)
	second.Abort()
	b.Discard("t")
	start(t, b, freshet.Progress{lane1: -1})
	commit(t, b, wide(lane1, -1, 4, "extra", long))
}

func TestWrite_TypesNeverFit_ErrorAfterAFewAttempts(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	commit(t, a, wide(lane0, -1, 0, "extra", long))
	for range 8 {
		wantStale(t, write(t, a, wide(lane0, 0, 4, "extra", text)))
		a.Discard("t")
		start(t, a, freshet.Progress{lane0: -1})
	}
	wantCode(t, write(t, a, wide(lane0, 0, 4, "extra", text)), freshet.CodeSchemaMismatch)
}

func TestCommit_ForeignPropertyChange_Lands(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	c := sealed(t, a, batch(lane0, -1, 4))
	w.foreign(t, func(tx *delta.Transaction, snap *delta.Snapshot) {
		m := snap.Metadata().Clone()
		m.Configuration = map[string]string{"delta.logRetentionDuration": "interval 60 days"}
		tx.SetMetadata(m)
	})
	_, err := c.Run(t.Context())
	must(t, err)
	if got := w.snapshot(t, "t").Property("delta.logRetentionDuration"); got != "interval 60 days" {
		t.Errorf("got the property %q, want what the other writer set", got)
	}
}

func TestCommit_ForeignDropsColumn_StaleOrAddedAgain(t *testing.T) {
	w := newWorld()
	a := w.running(t, &lake.TargetOptions{FixedSchema: true})
	start(t, a, freshet.Progress{lane0: -1})
	c := sealed(t, a, batch(lane0, -1, 4))
	w.foreign(t, func(tx *delta.Transaction, snap *delta.Snapshot) {
		m := snap.Metadata().Clone()
		m.SchemaString = (&delta.Schema{Fields: snap.Schema().Fields[:1]}).String()
		tx.SetMetadata(m)
	})
	_, err := c.Run(t.Context())
	wantStale(t, err)
}

func TestResume_TxnRetentionSet_Refused(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	w.foreign(t, func(tx *delta.Transaction, snap *delta.Snapshot) {
		m := snap.Metadata().Clone()
		m.Configuration = map[string]string{"delta.setTransactionRetentionDuration": "interval 1 day"}
		tx.SetMetadata(m)
	})
	_, err := a.Resume(t.Context(), "t", []freshet.Lane{lane0})
	wantCode(t, err, freshet.CodeTxnRetention)
}

func TestEnsure_OtherTypes_SchemaMismatch(t *testing.T) {
	w := newWorld()
	start(t, w.running(t, nil), nil)
	a := w.running(t, nil)
	_, err := a.Schema(t.Context(), "t")
	must(t, err)
	err = a.Ensure(t.Context(), "t", arrow.NewSchema([]arrow.Field{{Name: "seq", Type: text}}, nil))
	wantCode(t, err, freshet.CodeSchemaMismatch)
}

func TestSchema_TablePartitionedOtherwise_SchemaMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		have, want []string
		fits       bool
	}{
		"not partitioned":        {nil, []string{"lane"}, false},
		"by another column":      {[]string{"lane"}, []string{"extra"}, false},
		"by one more":            {[]string{"lane", "extra"}, []string{"lane"}, false},
		"in another order":       {[]string{"lane", "extra"}, []string{"Extra", "lane"}, true},
		"the pipeline says none": {[]string{"lane"}, nil, true},
		"the same":               {[]string{"lane"}, []string{"lane"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			columns := append(freshettest.Schema().Fields(), arrow.Field{Name: "extra", Type: text, Nullable: true})
			must(t, w.running(t, &lake.TargetOptions{PartitionBy: c.have}).Ensure(t.Context(), "t",
				arrow.NewSchema(columns, nil)))
			_, err := w.running(t, &lake.TargetOptions{PartitionBy: c.want}).Schema(t.Context(), "t")
			if c.fits {
				must(t, err)
				return
			}
			wantCode(t, err, freshet.CodeSchemaMismatch)
			if e := new(freshet.Error); !errors.As(err, &e) || e.Fix == "" || !strings.Contains(e.Msg, strings.Join(c.want, ", ")) {
				t.Errorf("got %v, want what is wanted and a remedy", err)
			}
		})
	}
}

func TestEnsure_LostRaceWithOtherTypes_Nil(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	if s, err := a.Schema(t.Context(), "t"); s != nil || err != nil {
		t.Fatalf("got %v, %v, want no table", s, err)
	}
	start(t, w.running(t, nil), nil)
	must(t, a.Ensure(t.Context(), "t", arrow.NewSchema([]arrow.Field{{Name: "seq", Type: text}}, nil)))
}

// strict makes the table with a seq that is NOT NULL.
func strict(t *testing.T, a *lake.Target) {
	t.Helper()
	must(t, a.Ensure(t.Context(), "t", arrow.NewSchema([]arrow.Field{
		{Name: "lane", Type: text, Nullable: true}, {Name: "seq", Type: long}}, nil)))
	_, err := a.Start(t.Context(), "t", freshet.Progress{lane0: -1})
	must(t, err)
}

func TestWrite_NullInNotNullColumn_RowIsReject(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	strict(t, a)
	rows := array.NewRecordBuilder(memory.DefaultAllocator, freshettest.Schema())
	defer rows.Release()
	b := &freshet.Batch{Table: "t", Lane: lane0, After: -1, Last: 9}
	for seq := range int64(10) {
		rows.Field(0).(*array.StringBuilder).Append(lane0.String())
		if seq == 3 || seq == 8 {
			rows.Field(1).AppendNull()
		} else {
			rows.Field(1).(*array.Int64Builder).Append(seq)
		}
		b.Seqs = append(b.Seqs, seq)
		b.Records = append(b.Records, record(seq))
	}
	b.Rows = rows.NewRecordBatch()
	rejected, err := a.Write(t.Context(), b)
	must(t, err)
	if rejected != 2 {
		t.Errorf("got %d rows rejected, want 2", rejected)
	}
	done := commit(t, a)
	if done.Rows != 8 || done.Rejects != 2 {
		t.Errorf("got %d rows and %d rejects, want 8 and 2", done.Rows, done.Rejects)
	}
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {3, 8}})
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	e, err := q.Get(t.Context(), "o[0]@8")
	must(t, err)
	if e.Code != freshet.CodeNull || string(e.Raw) != "payload 8" || !e.Open {
		t.Errorf("got %+v, want an open entry for null with its payload", e)
	}
	wantRecord(t, e, record(8))
}

func TestCommit_Lost_FilesDeleted(t *testing.T) {
	w := newWorld()
	a, b := w.running(t, nil), w.target(nil)
	must(t, b.Open(t.Context()))
	start(t, a, freshet.Progress{lane0: -1})
	start(t, b, freshet.Progress{lane0: -1})
	c := sealed(t, b, batch(lane0, -1, 4))
	commit(t, a, batch(lane0, -1, 4))
	_, err := c.Run(t.Context())
	wantStale(t, err)
	c.Abort()
	must(t, b.Close(t.Context()))
	if left := w.orphans(t, "t"); len(left) > 0 {
		t.Errorf("got files of no commit: %v", left)
	}
}
