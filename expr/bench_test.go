package expr_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
)

func TestEval_OneBoundManyGoroutines_SameResults(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	for _, src := range caseExpressions(t) {
		e, err := expr.Parse(src)
		if err != nil {
			continue
		}
		b, err := e.Bind(rec.Schema())
		if err != nil {
			continue
		}
		want := evaluate(t, src, rec)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				arr, err := b.Eval(expr.WithClock(context.Background(), testClock), rec)
				if got := show(arr, err); got != want {
					t.Errorf("%s: got %s, want %s", src, got, want)
				}
			})
		}
		group.Wait()
	}
}

// BenchmarkEval reports nanoseconds a row.
func BenchmarkEval(b *testing.B) {
	const rows = 10_000
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "ts", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "j", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	r := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range int64(rows) {
		r.Field(0).(*array.Int64Builder).Append(i * 7919 % 1000)
		r.Field(1).(*array.Float64Builder).Append(float64(i) / 7)
		r.Field(2).(*array.TimestampBuilder).Append(arrow.Timestamp(1_714_559_415_000_000 + i*1_000_003))
		r.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("https://host-%d.example/path/%d", i%50, i))
		r.Field(4).(*array.StringBuilder).Append(fmt.Sprintf(`{"user":{"id":%d,"name":"u%d"},"tags":["a","b"]}`, i, i))
	}
	rec := r.NewRecordBatch()
	for _, src := range []string{
		"n > 500", "n + 1", "n * 2 - n % 7", "f / 3", "n > 10 AND f < 900.0 OR s = ''", "n IN (1, 5, 900)",
		"CAST(ts AS date)", "date_trunc('hour', ts)", "strftime(ts, '%Y-%m')", "CAST(n AS string)",
		"CASE WHEN n > 500 THEN 'high' ELSE 'low' END", "coalesce(n, 0)", "lower(s)", "s LIKE '%host-7.%'",
		"s NOT LIKE 'http:%'", "substr(s, 9, 6)", "regexp_extract(s, '://([^/]+)', 1)",
		"json_extract_string(j, '$.user.name')", "CAST(substr(s, 28) AS int)",
	} {
		e, err := expr.Parse(src)
		if err != nil {
			b.Fatal(err)
		}
		bound, err := e.Bind(schema)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(src, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				arr, _ := bound.Eval(context.Background(), rec)
				arr.Release()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}
