package delta

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// randomColumns is a batch with columns of every type at the top and in structs, of which some or none are null.
func randomColumns(r *rand.Rand, rows int) arrow.RecordBatch {
	point := arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true})
	texts := arrow.StructOf(arrow.Field{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "b", Type: arrow.BinaryTypes.Binary})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "required", Type: arrow.BinaryTypes.String},
		{Name: "bin", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "i32", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "i16", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
		{Name: "i8", Type: arrow.PrimitiveTypes.Int8},
		{Name: "i64", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "f32", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
		{Name: "f64", Type: arrow.PrimitiveTypes.Float64},
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "ts", Type: arrowTimestamp, Nullable: true},
		{Name: "d", Type: &arrow.Decimal128Type{Precision: 30, Scale: 3}, Nullable: true},
		{Name: "mixed", Type: point, Nullable: true},
		{Name: "texts", Type: texts, Nullable: true},
		{Name: "deep", Nullable: true, Type: arrow.StructOf(arrow.Field{Name: "x", Type: texts, Nullable: true},
			arrow.Field{Name: "y", Type: point, Nullable: true})},
		{Name: "list", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		{Name: "numbers", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "map", Type: arrow.MapOf(arrow.BinaryTypes.String, point), Nullable: true},
		{Name: "lists", Type: arrow.ListOf(arrow.ListOf(point)), Nullable: true},
		{Name: "around", Nullable: true, Type: arrow.StructOf(
			arrow.Field{Name: "list", Type: arrow.ListOf(texts), Nullable: true},
			arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
			arrow.Field{Name: "maps", Nullable: true,
				Type: arrow.ListOf(arrow.MapOf(arrow.PrimitiveTypes.Int32, arrow.ListOf(arrow.PrimitiveTypes.Float64)))})},
	}, nil)
	nulls := []int{0, 2, 10}[r.IntN(3)] // in ten
	distinct := 1 + r.IntN(rows)
	text := func() string { return strings.Repeat("ä", r.IntN(1+r.IntN(12))) + fmt.Sprint(r.IntN(distinct)) }
	var fill func(b array.Builder, f arrow.Field)
	fill = func(b array.Builder, f arrow.Field) {
		if f.Nullable && r.IntN(10) < nulls {
			b.AppendNull()
			return
		}
		switch b := b.(type) {
		case *array.StringBuilder:
			b.Append(text())
		case *array.BinaryBuilder:
			b.Append([]byte(text()))
		case *array.Int32Builder:
			b.Append(int32(r.IntN(distinct)) - 5)
		case *array.Int16Builder:
			b.Append(int16(r.IntN(distinct)) - 5)
		case *array.Int8Builder:
			b.Append(int8(r.IntN(distinct)))
		case *array.Int64Builder:
			b.Append(int64(r.IntN(distinct)) - 5)
		case *array.Float32Builder:
			b.Append(float32(r.IntN(distinct)) / 3)
		case *array.Float64Builder:
			b.Append(float64(r.IntN(distinct)) / 3)
		case *array.BooleanBuilder:
			b.Append(r.IntN(1+distinct) > 0)
		case *array.Date32Builder:
			b.Append(arrow.Date32(r.IntN(distinct)))
		case *array.TimestampBuilder:
			b.Append(arrow.Timestamp(r.IntN(distinct)))
		case *array.Decimal128Builder:
			b.Append(decimal128.New(int64(r.IntN(3))-1, r.Uint64N(uint64(distinct))))
		case *array.StructBuilder:
			b.Append(true)
			for i, child := range f.Type.(*arrow.StructType).Fields() {
				fill(b.FieldBuilder(i), child)
			}
		case *array.ListBuilder:
			b.Append(true)
			for range r.IntN(4) {
				fill(b.ValueBuilder(), f.Type.(*arrow.ListType).ElemField())
			}
		case *array.MapBuilder:
			b.Append(true)
			for range r.IntN(4) {
				fill(b.KeyBuilder(), f.Type.(*arrow.MapType).KeyField())
				fill(b.ItemBuilder(), f.Type.(*arrow.MapType).ItemField())
			}
		}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for range rows {
		for i, f := range schema.Fields() {
			fill(b.Field(i), f)
		}
	}
	return b.NewRecordBatch()
}

// randomFile is the batch as a file with pages of either version, with and without dictionaries, of random encodings.
func randomFile(t *testing.T, r *rand.Rand, rec arrow.RecordBatch) []byte {
	t.Helper()
	props := []arrowparquet.WriterProperty{arrowparquet.WithDataPageSize(int64(100 + r.IntN(5000))),
		arrowparquet.WithDictionaryDefault(r.IntN(3) > 0), arrowparquet.WithDictionaryPageSizeLimit(int64(200 + r.IntN(9000))),
		arrowparquet.WithBatchSize(64),
		arrowparquet.WithCompression([]compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy,
			compress.Codecs.Zstd, compress.Codecs.Gzip, compress.Codecs.Brotli, compress.Codecs.Lz4Raw}[r.IntN(6)])}
	if r.IntN(2) == 0 {
		props = append(props, arrowparquet.WithDataPageVersion(arrowparquet.DataPageV2))
	}
	encodings := map[string][]arrowparquet.Encoding{
		"s,required,bin,deep.x.a,texts.b,list.list.element": {arrowparquet.Encodings.DeltaLengthByteArray,
			arrowparquet.Encodings.DeltaByteArray},
		"i32,i64,ts,numbers.list.element": {arrowparquet.Encodings.DeltaBinaryPacked, arrowparquet.Encodings.ByteStreamSplit},
		"f32,f64,d":                       {arrowparquet.Encodings.ByteStreamSplit},
		"b":                               {arrowparquet.Encodings.RLE},
	}
	for paths, of := range encodings {
		for _, path := range strings.Split(paths, ",") {
			if i := r.IntN(len(of) + 1); i < len(of) {
				props = append(props, arrowparquet.WithEncodingFor(path, of[i]), arrowparquet.WithDictionaryFor(path, false))
			}
		}
	}
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(rec.Schema(), &out, arrowparquet.NewWriterProperties(props...), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestColumnReader_RowsOfFilesOfAnyLayout_AsTheArrowLibraryWrote reads files by batches that pages do not fit: all rows of
// a column, or some of each batch, texts as they are or as places in dictionaries, with memory given up between batches
// now and then.
func TestColumnReader_RowsOfFilesOfAnyLayout_AsTheArrowLibraryWrote(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		rec := randomColumns(r, 1+r.IntN(2000))
		data := randomFile(t, r, rec)
		step := 1 + r.IntN(1000)
		for i, f := range rec.Schema().Fields() {
			spans := randomSpans(r, int(rec.NumRows()))
			got := readColumn(t, r, data, i, step, int(rec.NumRows()), spans)
			want := expr.Take(rec.Column(i), spans)
			if !array.Equal(got, want) {
				t.Fatalf("seed %d: column %s differs from what was written\n%v\n%v", seed, f.Name, got, want)
			}
		}
	}
}

// randomSpans are all rows, or some, as short runs or long ones.
func randomSpans(r *rand.Rand, rows int) (spans []expr.Span) {
	if r.IntN(3) == 0 {
		return []expr.Span{{From: 0, To: rows}}
	}
	longest := 1 + r.IntN(200)
	for at := r.IntN(longest); at < rows; at += 1 + r.IntN(longest) {
		to := min(at+1+r.IntN(longest), rows)
		spans = append(spans, expr.Span{From: at, To: to})
		at = to
	}
	return spans
}

// readColumn reads rows of a column of a file as a scan does.
func readColumn(t *testing.T, r *rand.Rand, data []byte, column, step, rows int, spans []expr.Span) arrow.Array {
	t.Helper()
	ctx, st := context.Background(), store.NewMem()
	if err := st.Put(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	f, err := openParquet(ctx, st, "f", int64(len(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := pqarrow.NewSchemaManifest(f.MetaData().Schema, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaves := map[int]bool{}
	chooseAll(&schema.Fields[column], leaves)
	room := &parquet.Room{Most: 1 << 30}
	room.Alone()
	file := &fileReader{file: f, room: room, coded: r.IntN(2) == 0}
	c, err := file.openColumn(&schema.Fields[column], leaves, f.MetaData().RowGroup(0))
	if err != nil {
		t.Fatal(err)
	}
	var parts []arrow.Array
	for at := 0; at < rows; at += step {
		n := min(step, rows-at)
		part, _, err := c.read(n, clip(spans, at, at+n))
		if err != nil {
			t.Fatalf("%s: %v", schema.Fields[column].Field.Name, err)
		}
		if part, err = expr.Dense(part); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, part)
		if r.IntN(4) == 0 {
			c.release()
		}
	}
	whole, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}
