package delta_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// BenchmarkMerge_OnePercentByVectors upserts 10,000 random keys of a table of 1 M narrow rows in 8 files: CPU time and
// bytes written a merge. Each merge finds the table as the ones before left it.
func BenchmarkMerge_OnePercentByVectors(b *testing.B) {
	ctx := context.Background()
	const rows, files, keys = 1_000_000, 8, 10_000
	batches := make([]arrow.RecordBatch, files)
	for i := range batches {
		batches[i] = narrowBatch(rows/files, i*rows/files)
	}
	schema, err := delta.SchemaFromArrow(batches[0].Schema())
	if err != nil {
		b.Fatal(err)
	}
	table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: schema,
		Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
	if err != nil {
		b.Fatal(err)
	}
	for _, batch := range batches {
		src := delta.SourceOf(batch.Schema(), batch)
		if _, err := table.Write(ctx, src.Rows(ctx), src.Schema, nil); err != nil {
			b.Fatal(err)
		}
	}
	m := &delta.Merge{On: parse(b, "t.order_id = s.order_id"), Matched: []delta.MatchedClause{{All: true}},
		NotMatched: []delta.InsertClause{{All: true}}}
	r := rand.New(rand.NewPCG(1, 2))
	var written int64
	b.ResetTimer()
	cpu := cpuTime(b)
	for range b.N {
		spans := make([]expr.Span, 0, keys)
		for _, i := range r.Perm(rows / files)[:keys/files] {
			spans = append(spans, expr.Span{From: i, To: i + 1})
		}
		source := make([]arrow.RecordBatch, files)
		for i := range source {
			source[i] = expr.TakeBatch(batches[i], spans)
		}
		result, err := table.Merge(ctx, delta.SourceOf(source[0].Schema(), source...), m, nil)
		if err != nil || result.Updated != keys {
			b.Fatalf("got %+v, %v", result, err)
		}
		written += result.BytesAdded
	}
	b.ReportMetric((cpuTime(b)-cpu).Seconds()*1000/float64(b.N), "cpu-ms/merge")
	b.ReportMetric(float64(written)/float64(b.N), "B-written/merge")
}
