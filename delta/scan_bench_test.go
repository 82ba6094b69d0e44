package delta_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func BenchmarkScan_Narrow(b *testing.B) {
	var batches []arrow.RecordBatch
	for i := range 8 {
		batches = append(batches, narrowBatch(16384, i*16384))
	}
	s, err := delta.SchemaFromArrow(batches[0].Schema())
	if err != nil {
		b.Fatal(err)
	}
	snap := tableOf(b, store.NewMem(), s, nil, batches...)
	for _, c := range []struct {
		name string
		opts *delta.ScanOptions
	}{
		{"all", nil},
		{"columns", &delta.ScanOptions{Columns: []string{"order_id", "amount"}}},
		{"where", &delta.ScanOptions{Where: where(b, "quantity = 3 AND status = 'paid'")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				for rec, err := range snap.Scan(context.Background(), c.opts) {
					if err != nil {
						b.Fatal(err)
					}
					rec.Release()
				}
			}
			b.ReportMetric(8*16384*float64(b.N)/(cpuTime(b)-before).Seconds(), "rows/cpu-s")
		})
	}
}

// BenchmarkScan_Deleted reads tables of which one row in so many is deleted by a vector, beside one of which none is.
func BenchmarkScan_Deleted(b *testing.B) {
	ctx := context.Background()
	for _, each := range []int{0, 40, 20, 10, 4, 2} {
		b.Run(fmt.Sprintf("one in %d", each), func(b *testing.B) {
			first := narrowBatch(1<<17, 0)
			s, err := delta.SchemaFromArrow(first.Schema())
			if err != nil {
				b.Fatal(err)
			}
			st := store.NewMem()
			tableOf(b, st, s, nil, first)
			table, err := delta.Open(ctx, st, nil)
			if err != nil {
				b.Fatal(err)
			}
			if each > 0 {
				vectors := map[string]string{"delta.enableDeletionVectors": "true"}
				if _, err := table.SetProperties(ctx, vectors, &delta.AlterOptions{Upgrade: true}); err != nil {
					b.Fatal(err)
				}
				gone := where(b, fmt.Sprintf("(order_id * 7919) %% 104729 < %d", 104729/each))
				if _, err := table.Delete(ctx, gone, nil); err != nil {
					b.Fatal(err)
				}
			}
			snap, err := table.Snapshot(ctx)
			if err != nil {
				b.Fatal(err)
			}
			rows, before := int64(0), cpuTime(b)
			for b.Loop() {
				for rec, err := range snap.Scan(ctx, nil) {
					if err != nil {
						b.Fatal(err)
					}
					rows += rec.NumRows()
					rec.Release()
				}
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e9/float64(rows), "cpu-ns/row")
		})
	}
}
