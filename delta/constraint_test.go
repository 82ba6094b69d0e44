package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// with sets the metadata of the last field.
func with(s *delta.Schema, metadata string) *delta.Schema {
	s.Fields[len(s.Fields)-1].Metadata = json.RawMessage(metadata)
	return s
}

// made makes a table and returns it.
func made(t testing.TB, s *delta.Schema, properties map[string]string) *delta.Table {
	t.Helper()
	table, err := delta.Create(context.Background(), store.NewMem(), &delta.CreateOptions{Schema: s, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// writeJSON writes rows that have only these columns, and returns the error of Write.
func writeJSON(t testing.TB, table *delta.Table, columns *delta.Schema, rows string) (*delta.Writer, error) {
	t.Helper()
	snap := snapshot(t, table)
	w, err := delta.NewWriter(table.Store(), snap.Metadata(), snap.Protocol(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := batchOf(t, columns, rows)
	defer rec.Release()
	return w, w.Write(context.Background(), rec)
}

// land commits what the writer has written, with the marks of identity columns.
func land(t testing.TB, table *delta.Table, w *delta.Writer) {
	t.Helper()
	ctx := context.Background()
	adds, err := w.Close(ctx)
	if err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, table)
	tx := table.Begin(snap, nil)
	tx.Add(adds...)
	if marks := w.IdentityHighWater(); len(marks) > 0 {
		m, err := snap.Metadata().WithHighWater(marks)
		if err != nil {
			t.Fatal(err)
		}
		tx.SetMetadata(m)
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestWriter_CheckConstraint_RefusesFalseAndNullWithTheRow(t *testing.T) {
	s := fields("id", delta.Long, "amount", delta.Decimal{Precision: 10, Scale: 2}, "name", delta.String)
	table := made(t, s, map[string]string{"delta.constraints.positive": "amount > 0 AND name RLIKE '^[a-z]+$'"})
	if p := snapshot(t, table).Protocol(); p.MinWriterVersion != 3 {
		t.Errorf("got writer version %d, want 3", p.MinWriterVersion)
	}
	for _, c := range []struct{ rows, row, value string }{
		{`[{"id":1,"amount":"1.00","name":"a"},{"id":2,"amount":"-5.00","name":"b"}]`, "row 1", "amount = -5"},
		{`[{"id":1,"amount":null,"name":"a"}]`, "row 0", "amount = null"},
		{`[{"id":1,"amount":"1.00","name":"A"}]`, "row 0", "name = A"},
	} {
		_, err := writeJSON(t, table, s, c.rows)
		var broken *delta.ConstraintError
		if !errors.As(err, &broken) || !strings.Contains(err.Error(), c.row) || !strings.Contains(err.Error(), c.value) ||
			!strings.Contains(err.Error(), `CHECK constraint "positive"`) {
			t.Errorf("%s: got %v, want a ConstraintError of %s with %s", c.rows, err, c.row, c.value)
		}
	}
	rows := `[{"id":1,"amount":"0.01","name":"a"},{"id":2,"amount":"5.00","name":"b"}]`
	w, err := writeJSON(t, table, s, rows)
	if err != nil {
		t.Fatal(err)
	}
	land(t, table, w)
	checkRows(t, table, s, rows)
}

func TestWriter_RefusedBatch_LeavesTheWriterAsItWas(t *testing.T) {
	s := fields("id", delta.Long, "v", delta.Long)
	with(s, `{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.allowExplicitInsert":false}`)
	table := made(t, s, map[string]string{"delta.constraints.small": "id < 10"})
	ids := fields("id", delta.Long)
	w, err := writeJSON(t, table, ids, `[{"id":1},{"id":2}]`)
	if err != nil {
		t.Fatal(err)
	}
	var broken *delta.ConstraintError
	if err := w.Write(context.Background(), batchOf(t, ids, `[{"id":3},{"id":99}]`)); !errors.As(err, &broken) {
		t.Fatalf("got %v, want a ConstraintError", err)
	}
	if err := w.Write(context.Background(), batchOf(t, ids, `[{"id":4}]`)); err != nil {
		t.Fatal(err)
	}
	land(t, table, w)
	checkRows(t, table, s, `[{"id":1,"v":1},{"id":2,"v":2},{"id":4,"v":3}]`)
}

func TestNewWriter_ConstraintThatIsNotUnderstood_IsRefusedWithItsPlace(t *testing.T) {
	s := fields("id", delta.Long, "tags", &delta.Array{Element: delta.String, ContainsNull: true})
	for _, text := range []string{
		"exists(tags, t -> t = 'a')", "soundex(tags[0]) = 'x'", "id > (select 1)", "missing > 1", "id + 1",
	} {
		_, err := delta.Create(context.Background(), store.NewMem(), &delta.CreateOptions{Schema: s,
			Properties: map[string]string{"delta.constraints.c": text}})
		if !errors.Is(err, delta.ErrUnsupportedFeature) || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), "at 1:") {
			t.Errorf("%s: got %v, want an UnsupportedError with the expression and the place", text, err)
		}
	}
}

func TestWriter_Invariant_IsKept(t *testing.T) {
	s := with(fields("id", delta.Long), `{"delta.invariants":"{\"expression\":{\"expression\":\"id > 3\"}}"}`)
	table := made(t, s, nil)
	var broken *delta.ConstraintError
	if _, err := writeJSON(t, table, s, `[{"id":4},{"id":3}]`); !errors.As(err, &broken) || broken.Row != 1 {
		t.Errorf("got %v, want a ConstraintError of row 1", err)
	}
}

func TestWriter_GeneratedColumn_IsComputedAndChecked(t *testing.T) {
	s := fields("ts", delta.Timestamp, "day", delta.Date)
	with(s, `{"delta.generationExpression":"CAST(ts AS DATE)"}`)
	table := made(t, s, nil)
	if p := snapshot(t, table).Protocol(); p.MinWriterVersion != 4 {
		t.Errorf("got writer version %d, want 4", p.MinWriterVersion)
	}
	w, err := writeJSON(t, table, fields("ts", delta.Timestamp), `[{"ts":"2024-05-01T23:59:59Z"},{"ts":null}]`)
	if err != nil {
		t.Fatal(err)
	}
	land(t, table, w)
	w, err = writeJSON(t, table, s, `[{"ts":"2024-05-02T00:00:00Z","day":"2024-05-02"}]`)
	if err != nil {
		t.Fatal(err)
	}
	land(t, table, w)
	checkRows(t, table, s, `[{"ts":"2024-05-01T23:59:59Z","day":"2024-05-01"},{"ts":null,"day":null},
		{"ts":"2024-05-02T00:00:00Z","day":"2024-05-02"}]`)
	for _, day := range []string{`"2024-05-03"`, `null`} {
		_, err := writeJSON(t, table, s, `[{"ts":"2024-05-02T00:00:00Z","day":"2024-05-02"},
			{"ts":"2024-05-02T00:00:00Z","day":`+day+`}]`)
		var broken *delta.ConstraintError
		if !errors.As(err, &broken) || broken.Row != 1 || !strings.Contains(err.Error(), "wanted day = 2024-05-02") {
			t.Errorf("%s: got %v, want a ConstraintError of row 1", day, err)
		}
	}
}

func TestWriter_IdentityColumn_GoesOnFromTheTablesMark(t *testing.T) {
	s := fields("v", delta.String, "id", delta.Long)
	with(s, `{"delta.identity.start":100,"delta.identity.step":-10,"delta.identity.allowExplicitInsert":false}`)
	table := made(t, s, nil)
	if p := snapshot(t, table).Protocol(); p.MinWriterVersion != 6 {
		t.Errorf("got writer version %d, want 6", p.MinWriterVersion)
	}
	for _, rows := range []string{`[{"v":"a"},{"v":"b"}]`, `[{"v":"c"}]`} {
		w, err := writeJSON(t, table, fields("v", delta.String), rows)
		if err != nil {
			t.Fatal(err)
		}
		land(t, table, w)
	}
	checkRows(t, table, s, `[{"v":"a","id":100},{"v":"b","id":90},{"v":"c","id":80}]`)
	if text := snapshot(t, table).Metadata().SchemaString; !strings.Contains(text, `"delta.identity.highWaterMark":80`) {
		t.Errorf("got the schema %s, want the mark 80", text)
	}
	var broken *delta.ConstraintError
	if _, err := writeJSON(t, table, s, `[{"v":"d","id":7}]`); !errors.As(err, &broken) {
		t.Errorf("got %v, want a ConstraintError: the table gives out the values", err)
	}
}

func TestWriter_IdentityByDefault_TakesGivenValues(t *testing.T) {
	s := fields("v", delta.String, "id", delta.Long)
	with(s, `{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.allowExplicitInsert":true}`)
	table := made(t, s, nil)
	w, err := writeJSON(t, table, s, `[{"v":"a","id":7},{"v":"b","id":8}]`)
	if err != nil {
		t.Fatal(err)
	}
	if marks := w.IdentityHighWater(); len(marks) != 0 {
		t.Errorf("got marks %v, want none: no value was given out", marks)
	}
	land(t, table, w)
	checkRows(t, table, s, `[{"v":"a","id":7},{"v":"b","id":8}]`)
}

func TestWriter_Defaults_FillMissingColumnsOnly(t *testing.T) {
	s := fields("id", delta.Long, "status", delta.String, "n", delta.Decimal{Precision: 5, Scale: 1}, "at", delta.Timestamp)
	s.Fields[1].Metadata = json.RawMessage(`{"CURRENT_DEFAULT":"'new'"}`)
	s.Fields[2].Metadata = json.RawMessage(`{"CURRENT_DEFAULT":"1 + 0.5"}`)
	with(s, `{"CURRENT_DEFAULT":"timestamp'2024-01-01'"}`)
	table := made(t, s, nil)
	if p := snapshot(t, table).Protocol(); !p.Supports("allowColumnDefaults") || p.MinReaderVersion != 1 {
		t.Errorf("got protocol %+v, want allowColumnDefaults for writers only", p)
	}
	w, err := writeJSON(t, table, fields("id", delta.Long), `[{"id":1}]`)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(context.Background(), batchOf(t, fields("id", delta.Long, "status", delta.String),
		`[{"id":2,"status":null}]`)); err != nil {
		t.Fatal(err)
	}
	land(t, table, w)
	checkRows(t, table, s, `[{"id":1,"status":"new","n":"1.5","at":"2024-01-01T00:00:00Z"},
		{"id":2,"status":null,"n":"1.5","at":"2024-01-01T00:00:00Z"}]`)
}

func TestWriter_ConstraintOverInputOfOtherShape_IsChecked(t *testing.T) {
	s := fields("s", delta.String, "p", &delta.Struct{Fields: fields("a", delta.Long, "b", delta.Long).Fields})
	table := made(t, s, map[string]string{"delta.constraints.c": "length(s) < 3 AND p.b IS NULL"})
	snap := snapshot(t, table)
	w, err := delta.NewWriter(table.Store(), snap.Metadata(), snap.Protocol(), nil)
	if err != nil {
		t.Fatal(err)
	}
	as := arrow.NewSchema([]arrow.Field{{Name: "S", Type: arrow.BinaryTypes.LargeString, Nullable: true},
		{Name: "p", Type: arrow.StructOf(arrow.Field{Name: "A", Type: arrow.PrimitiveTypes.Int64, Nullable: true})}}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, as, strings.NewReader(`[{"S":"ab","p":{"A":1}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(context.Background(), rec); err != nil {
		t.Error(err)
	}
}
