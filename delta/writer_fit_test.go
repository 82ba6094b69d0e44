package delta_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// arrowRows are rows of an Arrow schema, given in JSON.
func arrowRows(t *testing.T, s *arrow.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, s, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func column(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

func TestSchemaFromArrow_TypesWithoutCounterpart_BecomeWiderOnes(t *testing.T) {
	utc := func(u arrow.TimeUnit) arrow.DataType { return &arrow.TimestampType{Unit: u, TimeZone: "UTC"} }
	as := arrow.NewSchema([]arrow.Field{column("u8", arrow.PrimitiveTypes.Uint8), column("u16", arrow.PrimitiveTypes.Uint16),
		column("u32", arrow.PrimitiveTypes.Uint32), column("u64", arrow.PrimitiveTypes.Uint64), column("s", utc(arrow.Second)),
		column("ns", &arrow.TimestampType{Unit: arrow.Nanosecond}),
		column("st", arrow.StructOf(column("ms", utc(arrow.Millisecond)), column("l", arrow.ListOf(arrow.PrimitiveTypes.Uint32)))),
		column("m", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Uint64))}, nil)
	s, err := delta.SchemaFromArrow(as)
	if err != nil {
		t.Fatal(err)
	}
	d := delta.Decimal{Precision: 20}
	want := fields("u8", delta.Short, "u16", delta.Integer, "u32", delta.Long, "u64", d, "s", delta.Timestamp,
		"ns", delta.TimestampNTZ, "st", &delta.Struct{Fields: fields("ms", delta.Timestamp, "l",
			&delta.Array{Element: delta.Long, ContainsNull: true}).Fields},
		"m", &delta.Map{Key: delta.String, Value: d, ValueContainsNull: true})
	if s.String() != want.String() {
		t.Errorf("got %s\nwant %s", s, want)
	}
	rec := arrowRows(t, as, `[{"u8":255,"u16":65535,"u32":4294967295,"u64":18446744073709551615,"s":"1969-12-31T23:59:59Z",
		"ns":"2024-01-01T00:00:00.000001","st":{"ms":"2024-01-01T00:00:00.001Z","l":[1,null,4294967295]},
		"m":[{"key":"a","value":18446744073709551615},{"key":"b","value":null}]},
		{"u8":null,"u16":0,"u32":null,"u64":0,"s":null,"ns":"1900-01-01","st":null,"m":null},
		{"u8":1,"u16":1,"u32":1,"u64":1,"s":"2024-01-01T00:00:00Z","ns":null,"st":{"ms":null,"l":null},"m":[]}]`)
	table, err := delta.Create(context.Background(), store.NewMem(), &delta.CreateOptions{Schema: s})
	if err != nil {
		t.Fatal(err)
	}
	part := rec.NewSlice(1, 3)
	for _, r := range []arrow.RecordBatch{rec.NewSlice(0, 1), part} {
		src := delta.SourceOf(r.Schema(), r)
		if _, err := table.Write(context.Background(), src.Rows(context.Background()), src.Schema, nil); err != nil {
			t.Fatal(err)
		}
	}
	checkRows(t, table, s, `[{"u8":255,"u16":65535,"u32":4294967295,"u64":"18446744073709551615","s":"1969-12-31T23:59:59Z",
		"ns":"2024-01-01T00:00:00.000001","st":{"ms":"2024-01-01T00:00:00.001Z","l":[1,null,4294967295]},
		"m":[{"key":"a","value":"18446744073709551615"},{"key":"b","value":null}]},
		{"u8":null,"u16":0,"u32":null,"u64":"0","s":null,"ns":"1900-01-01","st":null,"m":null},
		{"u8":1,"u16":1,"u32":1,"u64":"1","s":"2024-01-01T00:00:00Z","ns":null,"st":{"ms":null,"l":null},"m":[]}]`)
}

func TestWriter_ValueThatItsColumnCannotHold_NamesTheRow(t *testing.T) {
	ns := &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	for name, c := range map[string]struct {
		of   delta.Type
		from arrow.DataType
		rows string
		row  int
	}{
		"short":       {delta.Short, arrow.PrimitiveTypes.Uint64, `[{"v":1},{"v":null},{"v":32768}]`, 2},
		"long":        {delta.Long, arrow.PrimitiveTypes.Uint64, `[{"v":9223372036854775808}]`, 0},
		"decimal":     {delta.Decimal{Precision: 3}, arrow.PrimitiveTypes.Uint32, `[{"v":999},{"v":1000}]`, 1},
		"nanoseconds": {delta.Timestamp, ns, `[{"v":"2024-01-01T00:00:00.000001Z"},{"v":"2024-01-01T00:00:00.000000001Z"}]`, 1},
		"seconds": {delta.Timestamp, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"},
			`[{"v":9223372036854775}]`, 0},
		"in a list": {&delta.Array{Element: delta.Byte, ContainsNull: true}, arrow.ListOf(arrow.PrimitiveTypes.Uint8),
			`[{"v":[200]}]`, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := fields("v", c.of)
			w, err := delta.NewWriter(store.NewMem(), describe(s, nil, nil), oldest, nil)
			if err != nil {
				t.Fatal(err)
			}
			rec := arrowRows(t, arrow.NewSchema([]arrow.Field{column("v", c.from)}, nil), c.rows)
			var fault *delta.ValueError
			if err := w.Write(context.Background(), rec); !errors.As(err, &fault) || fault.Row != c.row {
				t.Errorf("got %v, want a *ValueError of row %d", err, c.row)
			}
			if err := w.Write(context.Background(), batchOf(t, s, `[{"v":null}]`)); err != nil {
				t.Errorf("the next batch: %v", err)
			}
		})
	}
}

func TestWriter_TruncateTimes_CutsNanoseconds(t *testing.T) {
	s := fields("v", delta.TimestampNTZ)
	table := made(t, s, nil)
	rec := arrowRows(t, arrow.NewSchema([]arrow.Field{column("v", &arrow.TimestampType{Unit: arrow.Nanosecond})}, nil),
		`[{"v":"1969-12-31T23:59:59.999999999"}]`)
	src := delta.SourceOf(rec.Schema(), rec)
	_, err := table.Write(context.Background(), src.Rows(context.Background()), src.Schema,
		&delta.WriteOptions{DMLOptions: delta.DMLOptions{TruncateTimes: true}})
	if err != nil {
		t.Fatal(err)
	}
	checkRows(t, table, s, `[{"v":"1969-12-31T23:59:59.999999"}]`)
}
