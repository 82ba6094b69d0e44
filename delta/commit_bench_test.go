package delta_test

import (
	"context"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// BenchmarkCommit_ThousandAppends appends ten rows a thousand times to a table on disk, with the checkpoints that fall
// due, and reports what one append takes at the beginning, at the end and on average.
func BenchmarkCommit_ThousandAppends(b *testing.B) {
	const commits, part = 1000, 100
	s := fields("id", delta.Long, "name", delta.String)
	rec := batchOf(b, s, `[{"id":1,"name":"a"},{"id":2,"name":"b"},{"id":3,"name":"c"},{"id":4,"name":"d"},
		{"id":5,"name":"e"},{"id":6,"name":"f"},{"id":7,"name":"g"},{"id":8,"name":"h"},{"id":9,"name":"i"},
		{"id":10,"name":"j"}]`)
	ctx := context.Background()
	var buffers delta.Buffers
	for range b.N {
		st, err := store.NewDisk(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s})
		if err != nil {
			b.Fatal(err)
		}
		snap := snapshot(b, table)
		var parts [commits / part]time.Duration
		for i := range commits {
			start := time.Now()
			tx := table.Begin(snap, nil)
			tx.Add(writeAll(b, st, s, nil, &delta.WriterOptions{Buffers: &buffers}, rec)...)
			tx.BlindAppend(true)
			r, err := tx.Commit(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := table.MaybeCheckpoint(ctx, r.Snapshot, nil); err != nil {
				b.Fatal(err)
			}
			snap = snapshot(b, table)
			parts[i/part] += time.Since(start)
		}
		var all time.Duration
		for _, d := range parts {
			all += d
		}
		b.ReportMetric(float64(parts[0].Microseconds())/part/1000, "ms/first")
		b.ReportMetric(float64(parts[len(parts)-1].Microseconds())/part/1000, "ms/last")
		b.ReportMetric(float64(all.Microseconds())/commits/1000, "ms/append")
	}
}
