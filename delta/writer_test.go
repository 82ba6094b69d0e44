package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// batchOf builds a batch from JSON rows.
func batchOf(t testing.TB, schema *delta.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema.Arrow(), strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func fields(pairs ...any) *delta.Schema {
	s := &delta.Schema{}
	for i := 0; i < len(pairs); i += 2 {
		s.Fields = append(s.Fields, delta.Field{Name: pairs[i].(string), Type: pairs[i+1].(delta.Type), Nullable: true})
	}
	return s
}

// oldest is the protocol of a table without features.
var oldest = &delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}

// describe is the metadata of a table.
func describe(s *delta.Schema, parts []string, properties map[string]string) *delta.Metadata {
	return &delta.Metadata{SchemaString: s.String(), PartitionColumns: parts, Configuration: properties}
}

// writeAll writes the batches with one writer.
func writeAll(t testing.TB, st store.Store, s *delta.Schema, parts []string, opts *delta.WriterOptions,
	batches ...arrow.RecordBatch) []delta.Add {
	t.Helper()
	return writeUnder(t, st, describe(s, parts, nil), opts, batches...)
}

// writeUnder writes the batches under the metadata.
func writeUnder(t testing.TB, st store.Store, m *delta.Metadata, opts *delta.WriterOptions,
	batches ...arrow.RecordBatch) []delta.Add {
	t.Helper()
	w, err := delta.NewWriter(st, m, oldest, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range batches {
		if err := w.Write(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	adds, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return adds
}

func TestWriter_Partitions_TwoEncodingsOfThePath(t *testing.T) {
	s := fields("p", delta.String, "q", delta.Integer, "v", delta.Long)
	rec := batchOf(t, s, `[{"p":"a:b c%é","q":1,"v":1},{"p":"","q":1,"v":2},{"p":null,"q":1,"v":3},
		{"p":"a:b c%é","q":1,"v":4},{"p":"x/y=[z]","q":null,"v":5}]`)
	st := store.NewMem()
	adds := writeAll(t, st, s, []string{"p", "q"}, nil, rec)
	var got []string
	for _, a := range adds {
		got = append(got, a.Path[:strings.LastIndex(a.Path, "/")])
		key, err := url.PathUnescape(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := st.Stat(context.Background(), key); err != nil || o.Size != a.Size {
			t.Errorf("%s: got %d bytes, want %d (%v)", key, o.Size, a.Size, err)
		}
	}
	want := []string{
		"p=__HIVE_DEFAULT_PARTITION__/q=1",
		"p=a%253Ab%20c%2525é/q=1",
		"p=x%252Fy%253D%255Bz%255D/q=__HIVE_DEFAULT_PARTITION__",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if v := adds[0].PartitionValues["p"]; v != nil {
		t.Errorf("the empty string is the partition value %q, want null", *v)
	}
	if v := adds[1].PartitionValues; *v["p"] != "a:b c%é" || *v["q"] != "1" {
		t.Errorf("got partition values %q, %q", *v["p"], *v["q"])
	}
}

func TestWriter_PartitionValuesOfEachType_AsTheProtocolSays(t *testing.T) {
	for _, c := range []struct {
		typ       delta.Type
		row, want string
	}{
		{delta.Boolean, `true`, `true`},
		{delta.Byte, `-7`, `-7`},
		{delta.Long, `9007199254740993`, `9007199254740993`},
		{delta.Float, `1.5`, `1.5`},
		{delta.Double, `1e10`, `1.0E10`},
		{delta.Double, `0.0001`, `1.0E-4`},
		{delta.Double, `3`, `3.0`},
		{delta.Decimal{Precision: 10, Scale: 2}, `"1.5"`, `1.50`},
		{delta.Date, `"2024-02-29"`, `2024-02-29`},
		{delta.Timestamp, `"2024-01-01T10:00:00.000001Z"`, `2024-01-01T10:00:00.000001Z`},
		{delta.TimestampNTZ, `"2024-01-01T10:00:00"`, `2024-01-01 10:00:00.000000`},
	} {
		s := fields("p", c.typ, "v", delta.Long)
		adds := writeAll(t, store.NewMem(), s, []string{"p"}, nil, batchOf(t, s, `[{"p":`+c.row+`,"v":1}]`))
		if got := *adds[0].PartitionValues["p"]; got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.typ, c.row, got, c.want)
		}
	}
}

func TestWriter_NullInNotNullColumn_RefusesTheBatchAndGoesOn(t *testing.T) {
	s := fields("a", delta.Long, "s", &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long}}},
		"l", &delta.Array{Element: delta.Long})
	s.Fields[0].Nullable = false
	w, err := delta.NewWriter(store.NewMem(), describe(s, nil, nil), oldest, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows, column string
		row          int
	}{
		{`[{"a":1},{"a":null}]`, "a", 1},
		{`[{"a":1,"s":{"x":null}}]`, "s.x", 0},
		{`[{"a":1},{"a":1,"l":[1,null]}]`, "l.element", 1},
	} {
		err := w.Write(context.Background(), batchOf(t, s, c.rows))
		var null *delta.NullError
		if !errors.As(err, &null) || null.Column != c.column || null.Row != c.row {
			t.Errorf("%s: got %v, want a NullError for %s in row %d", c.rows, err, c.column, c.row)
		}
	}
	if err := w.Write(context.Background(), batchOf(t, s, `[{"a":1,"s":null,"l":null}]`)); err != nil {
		t.Fatal(err)
	}
	if adds, err := w.Close(context.Background()); err != nil || len(adds) != 1 || w.Rows() != 1 {
		t.Errorf("got %d files, %d rows, %v", len(adds), w.Rows(), err)
	}
}

func TestWriter_ColumnOfAnotherType_NamesFoundAndWanted(t *testing.T) {
	s := fields("a", delta.Long, "d", delta.Decimal{Precision: 10, Scale: 2})
	w, err := delta.NewWriter(store.NewMem(), describe(s, nil, nil), oldest, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*delta.Schema{
		fields("a", delta.String), fields("d", delta.Decimal{Precision: 10, Scale: 3}), fields("b", delta.Long),
	} {
		err := w.Write(context.Background(), batchOf(t, other, `[]`))
		var mismatch *delta.SchemaMismatchError
		if !errors.As(err, &mismatch) || mismatch.Column != other.Fields[0].Name {
			t.Errorf("got %v, want a SchemaMismatchError for %s", err, other.Fields[0].Name)
		}
	}
}

func TestWriter_BatchInOtherOrderAndCase_MatchedByName(t *testing.T) {
	s := fields("a", delta.Long, "b", delta.String, "c", delta.Long)
	other := fields("B", delta.String, "A", delta.Long)
	st := store.NewMem()
	adds := writeAll(t, st, s, nil, nil, batchOf(t, other, `[{"A":1,"B":"x"}]`))
	want := `{"numRecords":1,"minValues":{"a":1,"b":"x"},"maxValues":{"a":1,"b":"x"},"nullCount":{"a":0,"b":0,"c":1}}`
	if adds[0].Stats != want {
		t.Errorf("got %s\nwant %s", adds[0].Stats, want)
	}
}

func TestWriter_MoreOpenPartitionsThanAllowed_ClosesTheLargestAndLosesNothing(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	s := fields("p", delta.Integer, "v", delta.Long)
	var rows strings.Builder
	want := make(map[string]int64)
	for i := range 5000 {
		p := r.IntN(40)
		want[fmt.Sprint(p)]++
		fmt.Fprintf(&rows, `{"p":%d,"v":%d},`, p, i)
	}
	st := store.NewMem()
	opts := &delta.WriterOptions{MaxOpenFiles: 3, MemoryBytes: 4000, RowGroupRows: 100}
	rec := batchOf(t, s, "["+strings.TrimSuffix(rows.String(), ",")+"]")
	var batches []arrow.RecordBatch
	for i := int64(0); i < 5000; i += 500 {
		batches = append(batches, rec.NewSlice(i, i+500))
	}
	got := make(map[string]int64)
	for _, a := range writeAll(t, st, s, []string{"p"}, opts, batches...) {
		got[*a.PartitionValues["p"]] += rowsOf(t, st, a)
	}
	for p, n := range want {
		if got[p] != n {
			t.Errorf("seed %d: partition %s has %d rows, want %d", seed, p, got[p], n)
		}
	}
}

func rowsOf(t *testing.T, st store.Store, a delta.Add) int64 {
	t.Helper()
	key, err := url.PathUnescape(a.Path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	f, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return f.NumRows()
}

func TestWriter_TargetSizeReached_BeginsAnotherFile(t *testing.T) {
	batches := []arrow.RecordBatch{narrowBatch(20_000, 0), narrowBatch(20_000, 20_000), narrowBatch(20_000, 40_000)}
	s, err := delta.SchemaFromArrow(batches[0].Schema())
	if err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	adds := writeAll(t, st, s, nil, &delta.WriterOptions{TargetFileBytes: 300_000}, batches...)
	rows := int64(0)
	for _, a := range adds {
		rows += rowsOf(t, st, a)
	}
	if len(adds) != 3 || rows != 60_000 {
		t.Errorf("got %d files with %d rows, want 3 with 60000", len(adds), rows)
	}
}

func TestWriter_Abort_LeavesNothing(t *testing.T) {
	s := fields("p", delta.Integer, "v", delta.Long)
	st := store.NewMem()
	w, err := delta.NewWriter(st, describe(s, []string{"p"}, nil), oldest, &delta.WriterOptions{MaxOpenFiles: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(context.Background(), batchOf(t, s, `[{"p":1,"v":1},{"p":2,"v":1}]`)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(context.Background()); err != nil {
		t.Fatal(err)
	}
	for o := range st.List(context.Background(), "", "") {
		t.Errorf("%s is still there", o.Key)
	}
	if err := w.Write(context.Background(), batchOf(t, s, `[]`)); err == nil {
		t.Error("an aborted writer takes rows")
	}
}

func TestNewWriter_WhatCannotBeWritten_IsRefused(t *testing.T) {
	for _, c := range []struct {
		schema *delta.Schema
		parts  []string
	}{
		{fields("v", delta.Variant), nil},
		{fields("v", delta.Void), nil},
		{fields("a", delta.Long), []string{"a"}},
		{fields("a", delta.Long, "b", delta.Long), []string{"c"}},
		{fields("a", delta.Long, "b", &delta.Array{Element: delta.Long}), []string{"b"}},
		{fields("a", delta.Long, "b", delta.Long), []string{"b", "B"}},
	} {
		if _, err := delta.NewWriter(store.NewMem(), describe(c.schema, c.parts, nil), oldest, nil); err == nil {
			t.Errorf("%s partitioned by %q was taken", c.schema, c.parts)
		}
	}
}

func TestWriter_Stats_SparkSemantics(t *testing.T) {
	long := strings.Repeat("a", 40)
	cjk := strings.Repeat("漢", 40)
	emoji := strings.Repeat("a", 31) + "😀x"
	for _, c := range []struct {
		typ    delta.Type
		rows   string
		lo, hi string
	}{
		{delta.String, `["` + long + `"]`, `"` + long[:32] + `"`, `"` + long[:32] + `\x7f"`},
		{delta.String, `["` + cjk + `"]`, `"` + cjk[:96] + `"`, `"` + cjk[:96] + "\U0010ffff\""},
		{delta.String, `["` + emoji + `"]`, `"` + emoji[:31] + `"`, `"` + emoji[:31] + "\U0010ffff\""},
		{delta.String, `["b",null,"a"]`, `"a"`, `"b"`},
		{delta.String, `["` + strings.Repeat("\U0010ffff", 70) + `"]`, `"` + strings.Repeat("\U0010ffff", 16) + `"`, ""},
		{delta.Timestamp, `["2023-06-15T12:30:00.000999Z"]`, `"2023-06-15T12:30:00.000Z"`, `"2023-06-15T12:30:00.000Z"`},
		{delta.Timestamp, `["1969-12-31T23:59:59.999999Z"]`, `"1969-12-31T23:59:59.999Z"`, `"1969-12-31T23:59:59.999Z"`},
		{delta.TimestampNTZ, `["2023-06-15T12:30:00"]`, `"2023-06-15T12:30:00.000"`, `"2023-06-15T12:30:00.000"`},
		{delta.Date, `["1969-12-31"]`, `"1969-12-31"`, `"1969-12-31"`},
		{delta.Decimal{Precision: 38, Scale: 18}, `["12345678901234567890.123456789012345678"]`,
			`12345678901234567890.123456789012345678`, `12345678901234567890.123456789012345678`},
		{delta.Decimal{Precision: 9, Scale: 2}, `["-0.05","0.05"]`, `-0.05`, `0.05`},
		{delta.Long, `[9007199254740993]`, `9007199254740993`, `9007199254740993`},
		{delta.Double, `[0.0]`, `-0.0`, `0.0`},
		{delta.Float, `[0.1]`, `0.1`, `0.1`},
		{delta.Double, `[1e300]`, `1e+300`, `1e+300`},
		{delta.Long, `[null]`, "", ""},
		{delta.Boolean, `[true]`, "", ""},
		{delta.Binary, `["AAA="]`, "", ""},
	} {
		s := fields("c", c.typ)
		rows := "[" + strings.Join(wrap(t, c.rows), ",") + "]"
		adds := writeAll(t, store.NewMem(), s, nil, nil, batchOf(t, s, rows))
		var got struct {
			MinValues, MaxValues map[string]json.RawMessage
		}
		if err := json.Unmarshal([]byte(adds[0].Stats), &got); err != nil {
			t.Fatalf("%s: %v", adds[0].Stats, err)
		}
		if v := string(got.MinValues["c"]); v != c.lo {
			t.Errorf("%s %s: got min %s, want %s", c.typ, c.rows, v, c.lo)
		}
		hi := strings.ReplaceAll(c.hi, `\x7f`, "\x7f")
		if v := string(got.MaxValues["c"]); v != hi {
			t.Errorf("%s %s: got max %q, want %q", c.typ, c.rows, v, hi)
		}
	}
}

// wrap makes rows of one column of a JSON array of values.
func wrap(t *testing.T, values string) (rows []string) {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(values), &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		rows = append(rows, `{"c":`+string(v)+`}`)
	}
	return rows
}

func TestWriter_StatsColumns_AsThePropertiesSay(t *testing.T) {
	nested := &delta.Struct{Fields: []delta.Field{
		{Name: "x", Type: delta.Long, Nullable: true}, {Name: "y", Type: delta.Long, Nullable: true}}}
	s := fields("a", delta.Long, "s", nested, "l", &delta.Array{Element: delta.Long, ContainsNull: true}, "b", delta.Long)
	row := `[{"a":1,"s":{"x":2,"y":3},"l":[4],"b":5},{"a":1,"s":null,"l":null,"b":5}]`
	for _, c := range []struct{ key, value, nulls string }{
		{"delta.dataSkippingNumIndexedCols", "2", `{"a":0,"s":{"x":1}}`},
		{"delta.dataSkippingNumIndexedCols", "0", `{}`},
		{"delta.dataSkippingNumIndexedCols", "-1", `{"a":0,"s":{"x":1,"y":1},"l":1,"b":0}`},
		{"delta.dataSkippingStatsColumns", "b, `s`.y", `{"s":{"y":1},"b":0}`},
		{"delta.dataSkippingStatsColumns", "s", `{"s":{"x":1,"y":1}}`},
	} {
		m := describe(s, nil, map[string]string{c.key: c.value})
		adds := writeUnder(t, store.NewMem(), m, nil, batchOf(t, s, row))
		if !strings.Contains(adds[0].Stats, `"nullCount":`+c.nulls+`}`) {
			t.Errorf("%s=%s: got %s, want nullCount %s", c.key, c.value, adds[0].Stats, c.nulls)
		}
	}
}

func TestWriter_EmptyTextInANotNullPartitionColumn_IsRefused(t *testing.T) {
	schema := fields("p", delta.String, "n", delta.Integer)
	schema.Fields[0].Nullable = false
	w, err := delta.NewWriter(store.NewMem(), describe(schema, []string{"p"}, nil), oldest, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write(context.Background(), batchOf(t, schema, `[{"p": "a", "n": 1}, {"p": "", "n": 2}]`))
	var null *delta.NullError
	if !errors.As(err, &null) || null.Column != "p" || null.Row != 1 || !null.Empty {
		t.Errorf("got %v, want a *NullError of p in row 1, as the empty text is null in a partition column", err)
	}
}
