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
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

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

// TestFlatColumn_FilesOfAnyLayout_AsTheArrowLibraryWrote reads files with pages of both versions, with and without
// dictionaries, by batches that pages do not fit.
func TestFlatColumn_FilesOfAnyLayout_AsTheArrowLibraryWrote(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		rec := randomColumns(r, 1+r.IntN(3000))
		props := []arrowparquet.WriterProperty{arrowparquet.WithDataPageSize(int64(100 + r.IntN(5000))),
			arrowparquet.WithDictionaryDefault(r.IntN(3) > 0), arrowparquet.WithDictionaryPageSizeLimit(int64(200 + r.IntN(9000))),
			arrowparquet.WithBatchSize(64)}
		if r.IntN(2) == 0 {
			props = append(props, arrowparquet.WithDataPageVersion(arrowparquet.DataPageV2))
		}
		var out bytes.Buffer
		w, err := pqarrow.NewFileWriter(rec.Schema(), &out, arrowparquet.NewWriterProperties(props...),
			pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		step := int64(1 + r.IntN(1000))
		for i, f := range rec.Schema().Fields() {
			got, kind := readColumn(t, out.Bytes(), i, step, rec.NumRows())
			if !array.Equal(got, rec.Column(i)) {
				t.Fatalf("seed %d: column %s differs from what was written\n%v\n%v", seed, f.Name, got, rec.Column(i))
			}
			if kind == "delta.arrowSource" {
				t.Errorf("seed %d: column %s was left to the Arrow library", seed, f.Name)
			}
		}
	}
}

// readColumn reads a column of a file as a scan does.
func readColumn(t *testing.T, data []byte, column int, step, rows int64) (arrow.Array, string) {
	t.Helper()
	ctx, st := context.Background(), store.NewMem()
	if err := st.Put(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	f, err := openParquet(ctx, st, "f", int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	r := &fileReader{file: f, add: &Add{}}
	if r.pages, err = pqarrow.NewFileReader(f.Reader, pqarrow.ArrowReadProperties{BatchSize: step},
		memory.DefaultAllocator); err != nil {
		t.Fatal(err)
	}
	c := fileColumn{field: column, leaves: map[int]bool{}}
	addLeaves(c.leaves, &r.pages.Manifest.Fields[column])
	source, err := r.openColumn(ctx, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer source.close()
	var parts []arrow.Array
	for rows > 0 {
		n := min(step, rows)
		part, err := source.next(n)
		if err != nil {
			t.Fatal(err)
		}
		parts, rows = append(parts, part), rows-n
	}
	whole, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	return whole, strings.TrimPrefix(fmt.Sprintf("%T", source), "*")
}
