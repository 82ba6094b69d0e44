package delta_test

import (
	"context"
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
