package transform_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/transform"
)

const (
	benchRows    = 10_000
	payloadBytes = 240 // of one narrow order event as JSON
)

// orders has the columns of narrow order events.
func orders(b *testing.B) arrow.RecordBatch {
	b.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "order_id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "customer_id", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "status", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "quantity", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 10, Scale: 2}, Nullable: true},
		{Name: "created_at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		{Name: "is_gift", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	r := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer r.Release()
	status := []string{"created", "paid", "packed", "shipped", "delivered", "returned", "cancelled"}
	for i := range benchRows {
		r.Field(0).(*array.Int64Builder).Append(int64(i))
		r.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("C%08d", i*7919%2_000_000))
		r.Field(2).(*array.StringBuilder).Append(status[i*31%7])
		r.Field(3).(*array.Int64Builder).Append(int64(i%9 + 1))
		r.Field(4).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i * 37 % 90_000)))
		r.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(1_767_225_600_000_000 + i*7000))
		r.Field(6).(*array.BooleanBuilder).Append(i%3 == 0)
		r.Field(7).(*array.StringBuilder).Append("alpha river 123")
	}
	return r.NewRecordBatch()
}

// BenchmarkSteps_Narrow runs a filter and a derive of two columns over order events. MB/s is in bytes of the
// JSON they came from, to be held against the decoder's.
func BenchmarkSteps_Narrow(b *testing.B) {
	rec := orders(b)
	for name, cond := range map[string]string{
		"keep all":     "status <> 'none' AND quantity < 10",
		"drop 1%":      "status <> 'none' AND order_id % 100 <> 0",
		"drop quarter": "status <> 'cancelled' AND quantity < 9",
	} {
		b.Run(name, func(b *testing.B) { narrowSteps(b, rec, cond) })
	}
}

func narrowSteps(b *testing.B, rec arrow.RecordBatch, cond string) {
	filter := transform.NewFilter(must(b, cond))
	derive := transform.NewDerive([]transform.Column{
		{Name: "event_date", Expr: must(b, "CAST(created_at AS DATE)")},
		{Name: "total", Expr: must(b, "amount * quantity")},
	})
	seqs, refs := make([]int64, benchRows), make([]freshet.RecordRef, benchRows)
	b.SetBytes(benchRows * payloadBytes)
	b.ReportAllocs()
	for b.Loop() {
		rec.Retain()
		batch := &freshet.Batch{Rows: rec, Seqs: seqs, Records: refs}
		for _, s := range []freshet.Step{filter, derive} {
			if err := s.Apply(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
		}
		batch.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}
