package delta_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// nowhere is a store whose uploads vanish: it measures the writer alone.
type nowhere struct{ store.Store }

type vanish struct{ n int64 }

func (nowhere) Create(context.Context, string) (store.Upload, error) { return &vanish{}, nil }

func (v *vanish) Write(b []byte) (int, error) { v.n += int64(len(b)); return len(b), nil }
func (*vanish) Close() error                  { return nil }
func (*vanish) Abort() error                  { return nil }

var words = strings.Fields("alpha beta gamma delta river stream flood spring water level gauge basin canal lock weir " +
	"bank reed stone bridge mill ferry")

// narrowBatch is rows of the order events of bench/gen.py: 10 fields, 230 bytes of JSON each.
func narrowBatch(rows, start int) arrow.RecordBatch {
	us := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "order_id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "customer_id", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "sku", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "status", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "quantity", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "amount", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "created_at", Type: us, Nullable: true},
		{Name: "is_gift", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "shipping", Nullable: true, Type: arrow.StructOf(
			arrow.Field{Name: "city", Type: arrow.BinaryTypes.String, Nullable: true},
			arrow.Field{Name: "zip", Type: arrow.BinaryTypes.String, Nullable: true},
			arrow.Field{Name: "express", Type: arrow.FixedWidthTypes.Boolean, Nullable: true})},
	}, nil)
	cities := strings.Fields("Berlin Paris Madrid Zürich London Kraków Oslo Lisboa Roma Wien")
	status := strings.Fields("created paid packed shipped delivered returned cancelled")
	r := rand.New(rand.NewPCG(1, uint64(start)))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	text := func(i int, s string) { b.Field(i).(*array.StringBuilder).Append(s) }
	ship := b.Field(9).(*array.StructBuilder)
	for i := start; i < start+rows; i++ {
		x := r.Uint64() >> 2
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		text(1, fmt.Sprintf("C%08d", x%2_000_000))
		text(2, fmt.Sprintf("SKU-%06d", (x>>21)%50_000))
		text(3, status[(x>>37)%7])
		b.Field(4).(*array.Int64Builder).Append(int64(1 + (x>>40)%9))
		b.Field(5).(*array.Float64Builder).Append(float64((x>>43)%900*100+(x>>52)%100) / 100)
		b.Field(6).(*array.TimestampBuilder).Append(arrow.Timestamp((1_767_225_600_000 + int64(i)*7 + int64(x&3)) * 1000))
		b.Field(7).(*array.BooleanBuilder).Append(x&64 != 0)
		text(8, fmt.Sprintf("%s %s %d", words[(x>>8)%21], words[(x>>13)%21], (x>>17)%1000))
		ship.Append(true)
		ship.FieldBuilder(0).(*array.StringBuilder).Append(cities[(x>>29)%10])
		ship.FieldBuilder(1).(*array.StringBuilder).Append(fmt.Sprintf("%05d", (x>>33)%100_000))
		ship.FieldBuilder(2).(*array.BooleanBuilder).Append(x&128 != 0)
	}
	return b.NewRecordBatch()
}

// wideBatch is rows of 60 columns, 12 % of them null, 1.2 kB of JSON each.
func wideBatch(rows, start int) arrow.RecordBatch {
	var fields []arrow.Field
	add := func(n int, name string, t arrow.DataType) {
		for i := range n {
			fields = append(fields, arrow.Field{Name: fmt.Sprintf("%s_%02d", name, i), Type: t, Nullable: true})
		}
	}
	us := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	add(1, "id", arrow.PrimitiveTypes.Int64)
	add(1, "time", us)
	add(14, "int", arrow.PrimitiveTypes.Int64)
	add(12, "dbl", arrow.PrimitiveTypes.Float64)
	add(8, "cat", arrow.BinaryTypes.String)
	add(8, "str", arrow.BinaryTypes.String)
	add(6, "flag", arrow.FixedWidthTypes.Boolean)
	add(5, "ts", us)
	add(1, "uuid", arrow.BinaryTypes.String)
	add(1, "text", arrow.BinaryTypes.String)
	add(1, "tags", arrow.ListOf(arrow.BinaryTypes.String))
	add(1, "scores", arrow.ListOf(arrow.PrimitiveTypes.Float64))
	r := rand.New(rand.NewPCG(2, uint64(start)))
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for i := range rows {
		for c, f := range fields {
			if f.Name != "id_00" && r.IntN(128) < 15 {
				b.Field(c).AppendNull()
				continue
			}
			appendWide(r, b.Field(c), f.Name, start+i)
		}
	}
	return b.NewRecordBatch()
}

func appendWide(r *rand.Rand, b array.Builder, name string, i int) {
	switch b := b.(type) {
	case *array.Int64Builder:
		if name == "id_00" {
			b.Append(int64(i))
			return
		}
		var k int
		fmt.Sscanf(name, "int_%d", &k)
		b.Append(r.Int64N(1 << (20 + k)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp((1_767_225_600_000 + int64(i)*11 + r.Int64N(1<<20)) * 1000))
	case *array.Float64Builder:
		b.Append(float64(r.IntN(4096*10000)) / 10000)
	case *array.BooleanBuilder:
		b.Append(r.IntN(2) == 0)
	case *array.StringBuilder:
		switch name[:3] {
		case "str":
			b.Append(fmt.Sprintf("%s-%08x", words[r.IntN(16)], r.Uint32()))
		case "uui":
			b.Append(fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32()>>16, r.Uint32()>>16,
				r.Uint32()>>16, r.Uint64()>>16))
		case "tex":
			b.Append(strings.Join([]string{words[r.IntN(16)], words[r.IntN(16)], words[r.IntN(16)], words[r.IntN(16)],
				words[r.IntN(16)], words[r.IntN(16)]}, " "))
		default:
			b.Append(words[r.IntN(16)])
		}
	case *array.ListBuilder:
		b.Append(true)
		for range r.IntN(4) {
			appendWide(r, b.ValueBuilder(), name, i)
		}
	}
}

func benchmarkWriter(b *testing.B, batches []arrow.RecordBatch, jsonBytes int64, partitionBy ...string) {
	schema, err := delta.SchemaFromArrow(batches[0].Schema())
	if err != nil {
		b.Fatal(err)
	}
	var rows, size int64
	before := cpuTime(b)
	for b.Loop() {
		w, err := delta.NewWriter(nowhere{}, describe(schema, partitionBy, nil), oldest, nil)
		if err != nil {
			b.Fatal(err)
		}
		rows, size = 0, 0
		for _, rec := range batches {
			if err := w.Write(context.Background(), rec); err != nil {
				b.Fatal(err)
			}
			rows += rec.NumRows()
		}
		adds, err := w.Close(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range adds {
			size += a.Size
		}
	}
	cpu := (cpuTime(b) - before).Seconds()
	b.ReportMetric(float64(rows)*float64(b.N)/cpu, "rows/cpu-s")
	b.ReportMetric(float64(rows)*float64(b.N)*float64(jsonBytes)/1e6/cpu, "MB-JSON/cpu-s")
	b.ReportMetric(float64(size)/float64(rows), "fileB/row")
}

// cpuTime is the user and system time of the process so far.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkWriter_Narrow(b *testing.B) {
	var batches []arrow.RecordBatch
	for i := range 32 {
		batches = append(batches, narrowBatch(16384, i*16384))
	}
	b.Run("whole", func(b *testing.B) { benchmarkWriter(b, batches, 232) })
	b.Run("partitioned", func(b *testing.B) { benchmarkWriter(b, batches, 232, "status") })
}

func BenchmarkWriter_Wide(b *testing.B) {
	var batches []arrow.RecordBatch
	for i := range 16 {
		batches = append(batches, wideBatch(4096, i*4096))
	}
	benchmarkWriter(b, batches, 1213)
}
