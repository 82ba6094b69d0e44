package parquet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// everyKind has one column of each kind, flat and nested.
func everyKind() []parquet.Column {
	nested := []parquet.Column{
		{Name: "x", Kind: parquet.Int64, Nullable: true},
		{Name: "y", Kind: parquet.List, Nullable: true, Children: []parquet.Column{
			{Name: "element", Kind: parquet.String, Nullable: true}}},
	}
	return []parquet.Column{
		{Name: "req", Kind: parquet.Int64, FieldID: 7},
		{Name: "bool", Kind: parquet.Boolean, Nullable: true},
		{Name: "i8", Kind: parquet.Int8, Nullable: true},
		{Name: "i16", Kind: parquet.Int16, Nullable: true},
		{Name: "i32", Kind: parquet.Int32, Nullable: true},
		{Name: "f32", Kind: parquet.Float, Nullable: true},
		{Name: "f64", Kind: parquet.Double, Nullable: true},
		{Name: "d9", Kind: parquet.Decimal, Precision: 9, Scale: 2, Nullable: true},
		{Name: "d18", Kind: parquet.Decimal, Precision: 18, Scale: 0, Nullable: true},
		{Name: "d38", Kind: parquet.Decimal, Precision: 38, Scale: 10, Nullable: true},
		{Name: "str", Kind: parquet.String, Nullable: true},
		{Name: "bin", Kind: parquet.Binary, Nullable: true},
		{Name: "date", Kind: parquet.Date, Nullable: true},
		{Name: "ts", Kind: parquet.Timestamp, Nullable: true},
		{Name: "ntz", Kind: parquet.TimestampNTZ, Nullable: true},
		{Name: "struct", Kind: parquet.Struct, Nullable: true, Children: nested},
		{Name: "list", Kind: parquet.List, Nullable: true, Children: []parquet.Column{
			{Name: "element", Kind: parquet.Struct, Nullable: true, Children: nested}}},
		{Name: "map", Kind: parquet.Map, Nullable: true, Children: []parquet.Column{
			{Name: "key", Kind: parquet.String}, {Name: "value", Kind: parquet.Int32, Nullable: true}}},
	}
}

func arrowType(c parquet.Column) arrow.DataType {
	switch c.Kind {
	case parquet.Boolean:
		return arrow.FixedWidthTypes.Boolean
	case parquet.Int8:
		return arrow.PrimitiveTypes.Int8
	case parquet.Int16:
		return arrow.PrimitiveTypes.Int16
	case parquet.Int32:
		return arrow.PrimitiveTypes.Int32
	case parquet.Int64:
		return arrow.PrimitiveTypes.Int64
	case parquet.Float:
		return arrow.PrimitiveTypes.Float32
	case parquet.Double:
		return arrow.PrimitiveTypes.Float64
	case parquet.Decimal:
		return &arrow.Decimal128Type{Precision: int32(c.Precision), Scale: int32(c.Scale)}
	case parquet.String:
		return arrow.BinaryTypes.String
	case parquet.Binary:
		return arrow.BinaryTypes.Binary
	case parquet.Date:
		return arrow.FixedWidthTypes.Date32
	case parquet.Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case parquet.TimestampNTZ:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case parquet.List:
		return arrow.ListOfField(arrowField(c.Children[0]))
	case parquet.Map:
		return arrow.MapOfFields(arrowField(c.Children[0]), arrowField(c.Children[1]))
	}
	var fields []arrow.Field
	for _, f := range c.Children {
		fields = append(fields, arrowField(f))
	}
	return arrow.StructOf(fields...)
}

func arrowField(c parquet.Column) arrow.Field {
	return arrow.Field{Name: c.Name, Type: arrowType(c), Nullable: c.Nullable}
}

func schemaOf(columns []parquet.Column) *arrow.Schema {
	var fields []arrow.Field
	for _, c := range columns {
		fields = append(fields, arrowField(c))
	}
	return arrow.NewSchema(fields, nil)
}

// appendRandom appends a value of any of the kinds; distinct bounds how many different ones there are.
func appendRandom(r *rand.Rand, b array.Builder, nullable bool, distinct int) {
	if nullable && r.IntN(5) == 0 {
		b.AppendNull()
		return
	}
	v := r.IntN(distinct) - distinct/2
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v%2 == 0)
	case *array.Int8Builder:
		b.Append(int8(v))
	case *array.Int16Builder:
		b.Append(int16(v))
	case *array.Int32Builder:
		b.Append(int32(v))
	case *array.Int64Builder:
		b.Append(int64(v) << 33)
	case *array.Float32Builder:
		b.Append(float32(v) / 3)
	case *array.Float64Builder:
		b.Append(float64(v) / 3)
	case *array.Decimal128Builder:
		d := decimal128.FromI64(int64(v))
		if b.Type().(*arrow.Decimal128Type).Precision > 18 {
			d = decimal128.New(int64(v), uint64(r.Int64()))
		}
		b.Append(d)
	case *array.StringBuilder:
		b.Append(fmt.Sprintf("%dü%s", v, strings.Repeat("x", (v+distinct)%9)))
	case *array.BinaryBuilder:
		b.Append([]byte{0, byte(v), 255}[:(v+distinct)%4%3])
	case *array.Date32Builder:
		b.Append(arrow.Date32(v))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(int64(v) * 1_000_003))
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(r, b.FieldBuilder(i), true, distinct)
		}
	case *array.ListBuilder:
		b.Append(true)
		for range r.IntN(4) {
			appendRandom(r, b.ValueBuilder(), true, distinct)
		}
	case *array.MapBuilder:
		b.Append(true)
		for range r.IntN(3) {
			appendRandom(r, b.KeyBuilder(), false, distinct)
			appendRandom(r, b.ItemBuilder(), true, distinct)
		}
	default:
		panic(fmt.Sprintf("%T", b))
	}
}

func randomBatch(r *rand.Rand, schema *arrow.Schema, rows, distinct int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i, f := range schema.Fields() {
		for range rows {
			appendRandom(r, b.Field(i), f.Nullable, distinct)
		}
	}
	return b.NewRecordBatch()
}

func readBack(t *testing.T, data []byte) arrow.Table {
	t.Helper()
	f, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fr, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	table, err := fr.ReadTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestWriter_EveryKindWithNulls_ArrowReadsTheSameRows(t *testing.T) {
	for _, distinct := range []int{1, 2, 300, 1 << 30} {
		for _, rows := range []int{0, 1, 9, 1500} {
			t.Run(fmt.Sprintf("%d/%d", distinct, rows), func(t *testing.T) {
				roundTrip(t, parquet.Zstd, distinct, rows)
			})
		}
	}
	for _, codec := range []parquet.Codec{parquet.Snappy, parquet.Gzip, parquet.Uncompressed} {
		t.Run(codec.String(), func(t *testing.T) { roundTrip(t, codec, 300, 500) })
	}
}

func roundTrip(t *testing.T, codec parquet.Codec, distinct, rows int) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, uint64(distinct)))
	columns := everyKind()
	schema := schemaOf(columns)
	var out bytes.Buffer
	w := parquet.NewWriter(&out, columns, &parquet.Options{Codec: codec, PageBytes: 4096, DictBytes: 8 << 10})
	var batches []arrow.RecordBatch
	for i := range 3 {
		rec := randomBatch(r, schema, rows+i, distinct)
		rec = rec.NewSlice(int64(i), rec.NumRows())
		batches = append(batches, rec)
		if err := w.Append(rec.Columns(), parquet.AllRows(int(rec.NumRows()))); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := w.FlushRowGroup(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := readBack(t, out.Bytes())
	want := array.NewTableFromRecords(schema, batches)
	if got.NumRows() != want.NumRows() {
		t.Fatalf("got %d rows, want %d", got.NumRows(), want.NumRows())
	}
	for i := range int(want.NumCols()) {
		if got.NumRows() > 0 && !array.ChunkedEqual(got.Column(i).Data(), want.Column(i).Data()) {
			t.Errorf("column %s differs:\ngot  %v\nwant %v", schema.Field(i).Name, got.Column(i), want.Column(i))
		}
	}
	crossRead(t, out.Bytes(), want.NumRows())
}

func TestWriter_RowsByIndex_OnlyThoseInThatOrder(t *testing.T) {
	columns := []parquet.Column{{Name: "a", Kind: parquet.String, Nullable: true}}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	for _, s := range []string{"a", "b", "c", "d"} {
		b.Append(s)
	}
	b.AppendNull()
	arr := b.NewArray()
	var out bytes.Buffer
	w := parquet.NewWriter(&out, columns, nil)
	if err := w.Append([]arrow.Array{arr}, []int32{3, 4, 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Append([]arrow.Array{nil}, []int32{0, 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(readBack(t, out.Bytes()).Column(0).Data().Chunk(0))
	if want := `["d" (null) "b" (null) (null)]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.Visit(len(columns), func(path []*parquet.Column, s *parquet.Stats) {
		if s.Nulls != 3 || string(s.MinBytes) != "b" || string(s.MaxBytes) != "d" {
			t.Errorf("got nulls %d, bounds %q to %q", s.Nulls, s.MinBytes, s.MaxBytes)
		}
	})
}

func TestWriter_NullInRequiredColumn_Refuses(t *testing.T) {
	w := parquet.NewWriter(io.Discard, []parquet.Column{{Name: "a", Kind: parquet.Int64}}, nil)
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.AppendNull()
	err := w.Append([]arrow.Array{b.NewArray()}, []int32{0})
	if err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("got %v, want an error that names the column", err)
	}
}

func TestWriter_DecimalBeyondItsPrecision_Refuses(t *testing.T) {
	w := parquet.NewWriter(io.Discard, []parquet.Column{{Name: "a", Kind: parquet.Decimal, Precision: 3}}, nil)
	b := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 3})
	b.Append(decimal128.FromI64(1000))
	if err := w.Append([]arrow.Array{b.NewArray()}, []int32{0}); err == nil {
		t.Error("1000 was taken as a decimal(3,0)")
	}
}

func TestWriter_FloatBounds_NoNaNAndSignedZeros(t *testing.T) {
	var out bytes.Buffer
	w := parquet.NewWriter(&out, []parquet.Column{{Name: "a", Kind: parquet.Double}}, nil)
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{0, math.NaN(), math.Copysign(0, -1)}, nil)
	if err := w.Append([]arrow.Array{b.NewArray()}, parquet.AllRows(3)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Visit(1, func(_ []*parquet.Column, s *parquet.Stats) {
		if !s.HasNaN || !math.Signbit(s.MinFloat) || math.Signbit(s.MaxFloat) {
			t.Errorf("got %+v", s)
		}
	})
	f, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	chunk, err := f.MetaData().RowGroup(0).ColumnChunk(0)
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := chunk.Statistics(); err != nil || stats.HasMinMax() {
		t.Errorf("a chunk with NaN has bounds in its footer (%v)", err)
	}
}
