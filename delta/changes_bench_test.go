package delta_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// BenchmarkChanges reads what an update or a delete of a quarter of a million rows changed, of the shape of bench/gen.py.
func BenchmarkChanges(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name       string
		properties map[string]string
		delete     bool // every second row; else an update of all
		method     delta.ChangeMethod
		key        []string
	}{
		{"cdc files", map[string]string{"delta.enableChangeDataFeed": "true"}, false, delta.MethodFeed, nil},
		{"vectors", map[string]string{"delta.enableDeletionVectors": "true"}, true, delta.MethodVectors, nil},
		{"row ids", map[string]string{"delta.enableRowTracking": "true"}, false, delta.MethodRowTracking, nil},
		{"diff", nil, false, delta.MethodDiff, nil},
		{"diff by key", nil, false, delta.MethodDiff, []string{"order_id"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var batches []arrow.RecordBatch
			for i := range 16 {
				batches = append(batches, narrowBatch(16384, i*16384))
			}
			s, err := delta.SchemaFromArrow(batches[0].Schema())
			if err != nil {
				b.Fatal(err)
			}
			table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: s, Properties: c.properties})
			if err != nil {
				b.Fatal(err)
			}
			source := delta.SourceOf(batches[0].Schema(), batches...)
			if _, err := table.Write(ctx, source.Rows(ctx), source.Schema, nil); err != nil {
				b.Fatal(err)
			}
			if c.delete {
				_, err = table.Delete(ctx, where(b, "order_id % 2 = 0"), nil)
			} else {
				_, err = table.Update(ctx, []delta.Assignment{{Column: "amount", Value: where(b, "amount + 1")}}, nil, nil)
			}
			if err != nil {
				b.Fatal(err)
			}
			rows, before := int64(0), cpuTime(b)
			for b.Loop() {
				for ch, err := range table.Changes(ctx, 2, 2, &delta.ChangesOptions{Method: c.method, Key: c.key}) {
					if err != nil {
						b.Fatal(err)
					}
					rows += ch.Batch.NumRows()
					ch.Batch.Release()
				}
			}
			b.ReportMetric(float64(rows)/(cpuTime(b)-before).Seconds(), "rows/cpu-s")
			b.ReportMetric(float64(rows)/float64(b.N), "rows")
		})
	}
}
