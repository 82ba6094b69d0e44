package lake_test

import (
	"encoding/json"
	"slices"
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

// ruled makes the table with a constraint and an identity column.
func ruled(t *testing.T, w *world) {
	t.Helper()
	_, err := delta.Create(t.Context(), w.store("t"), &delta.CreateOptions{
		Schema: &delta.Schema{Fields: []delta.Field{
			{Name: "lane", Type: delta.String, Nullable: true}, {Name: "seq", Type: delta.Long, Nullable: true},
			{Name: "id", Type: delta.Long, Nullable: true, Metadata: json.RawMessage(
				`{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.allowExplicitInsert":false}`)}}},
		Properties: map[string]string{"delta.constraints.few": "seq % 4 <> 3"}})
	must(t, err)
}

// A record without the field of a generated column comes with null, since its decoder knows the table's columns.
func TestWrite_GeneratedColumnNullOrRight_IsComputedAndElseRejected(t *testing.T) {
	w := newWorld()
	_, err := delta.Create(t.Context(), w.store("t"), &delta.CreateOptions{
		Schema: &delta.Schema{Fields: []delta.Field{
			{Name: "lane", Type: delta.String, Nullable: true}, {Name: "seq", Type: delta.Long, Nullable: true},
			{Name: "twice", Type: delta.Long, Nullable: true,
				Metadata: json.RawMessage(`{"delta.generationExpression":"seq * 2"}`)}}}})
	must(t, err)
	a := w.running(t, nil)
	_, err = a.Start(t.Context(), "t", freshet.Progress{lane0: -1})
	must(t, err)
	fields := append(freshettest.Schema().Fields(),
		arrow.Field{Name: "Twice", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer rows.Release()
	b := &freshet.Batch{Table: "t", Lane: lane0, After: -1, Last: 3}
	for seq, twice := range []any{nil, int64(2), nil, int64(7)} {
		rows.Field(0).(*array.StringBuilder).Append(lane0.String())
		rows.Field(1).(*array.Int64Builder).Append(int64(seq))
		if n, ok := twice.(int64); ok {
			rows.Field(2).(*array.Int64Builder).Append(n)
		} else {
			rows.Field(2).AppendNull()
		}
		b.Seqs, b.Records = append(b.Seqs, int64(seq)), append(b.Records, record(int64(seq)))
	}
	b.Rows = rows.NewRecordBatch()
	_, err = a.Write(t.Context(), b)
	must(t, err)
	commit(t, a)
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {3}})
	for rec, err := range w.snapshot(t, "t").Scan(t.Context(), &delta.ScanOptions{Columns: []string{"seq", "twice"}}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			seq, twice := rec.Column(0).(*array.Int64).Value(i), rec.Column(1).(*array.Int64)
			if twice.IsNull(i) || twice.Value(i) != 2*seq {
				t.Errorf("seq %d: got %s, want %d", seq, twice.ValueStr(i), 2*seq)
			}
		}
		rec.Release()
	}
}

func TestWrite_RowBreaksConstraint_RowIsReject(t *testing.T) {
	w := newWorld()
	ruled(t, w)
	a := w.running(t, nil)
	_, err := a.Start(t.Context(), "t", freshet.Progress{lane0: -1})
	must(t, err)
	for round := range int64(2) {
		rows := array.NewRecordBuilder(memory.DefaultAllocator, freshettest.Schema())
		b := &freshet.Batch{Table: "t", Lane: lane0, After: round*10 - 1, Last: round*10 + 9}
		for seq := round * 10; seq < round*10+10; seq++ {
			rows.Field(0).(*array.StringBuilder).Append(lane0.String())
			rows.Field(1).(*array.Int64Builder).Append(seq)
			b.Seqs, b.Records = append(b.Seqs, seq), append(b.Records, record(seq))
		}
		b.Rows = rows.NewRecordBatch()
		rows.Release()
		_, err = a.Write(t.Context(), b)
		must(t, err)
		commit(t, a)
	}
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {3, 7, 11, 15, 19}})
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	e, err := q.Get(t.Context(), "o[0]@7")
	must(t, err)
	if e.Code != freshet.CodeConstraint || !strings.Contains(e.Message, `"few" (seq % 4 <> 3)`) ||
		!strings.Contains(e.Message, "seq = 7") {
		t.Errorf("got %s %q, want the constraint with its values", e.Code, e.Message)
	}
	checkIDs(t, w, 15)
}

// checkIDs makes sure that the identity column has given out the numbers from 1 to n, each once.
func checkIDs(t *testing.T, w *world, n int) {
	t.Helper()
	table, err := delta.Open(t.Context(), w.store("t"), nil)
	must(t, err)
	snap, err := table.Snapshot(t.Context())
	must(t, err)
	var ids []int64
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"id"}}) {
		must(t, err)
		ids = append(ids, rec.Column(0).(*array.Int64).Int64Values()...)
		rec.Release()
	}
	slices.Sort(ids)
	for i, id := range ids {
		if id != int64(i+1) {
			t.Fatalf("got the ids %v, want 1 to %d", ids, n)
		}
	}
	if len(ids) != n {
		t.Errorf("got %d ids, want %d", len(ids), n)
	}
}
