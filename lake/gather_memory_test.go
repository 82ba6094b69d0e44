package lake_test

import (
	"context"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// largeRecords is a bounded source of batches of rows of few bytes, each out of a record of many.
type largeRecords struct {
	batches, rows, recordBytes int
	last                       int64
}

func (s *largeRecords) Open(ctx context.Context, down freshet.Downstream) error {
	if err := down.Ensure(ctx, "t", itemSchema); err != nil {
		return err
	}
	if _, err := down.Resume(ctx, "t", []freshet.Lane{keyedLane}); err != nil {
		return err
	}
	_, err := down.Start(ctx, "t", freshet.Progress{keyedLane: -1})
	s.last = -1
	return err
}

func (s *largeRecords) Next(context.Context) (*freshet.Batch, error) {
	if s.batches == 0 {
		return nil, io.EOF
	}
	s.batches--
	changes := make([]itemChange, s.rows)
	for i := range changes {
		id := s.last + 1 + int64(i)
		changes[i] = itemChange{freshet.UpdatePostimage, item{id: id, n: ptr(id), text: ptr("a"), at: id}}
	}
	b := itemBatch("t", keyedLane, s.last, changes)
	b.Records, s.last = nil, b.Last
	for range b.NumRows() {
		r := &freshet.Record{Raw: make([]byte, s.recordBytes)}
		b.Records, b.Bytes = append(b.Records, r), b.Bytes+int64(len(r.Raw))
	}
	return b, nil
}

func (s *largeRecords) Rewind(context.Context, string) error { return io.ErrUnexpectedEOF }

func (s *largeRecords) Ack(context.Context, string, freshet.Progress) error { return nil }

func (s *largeRecords) Close(context.Context) error { return nil }

// Records are kept for the sake of quarantine, and may be much larger than their rows. What is gathered with them, of all commits under
// way, takes MaxBytes, and the queue QueueBytes; how much there is to come does not matter.
func TestPipeline_KeyedRowsOfLargeRecords_MemoryIsBoundedByMaxBytes(t *testing.T) {
	const maxBytes, queueBytes, batches, rows, recordBytes = 24 << 20, 2 << 20, 60, 200, 8 << 10
	w := newWorld()
	p := freshet.Pipeline{Name: "test", Source: &largeRecords{batches: batches, rows: rows, recordBytes: recordBytes},
		Target:  w.target(keyedBy(t.TempDir())),
		Options: freshet.Options{Every: time.Hour, MaxBytes: maxBytes, QueueBytes: queueBytes}}
	most := heldWhile(func() { must(t, p.Run(t.Context())) })
	if got := len(w.items(t, "t")); got != batches*rows {
		t.Errorf("got %d rows, want %d", got, batches*rows)
	}
	const batch = rows * recordBytes
	if want := int64(maxBytes + queueBytes + 4*batch + 12<<20); most > want {
		t.Errorf("%d MiB were held at most, want at most %d, whatever comes: %d did", most>>20, want>>20, batches*batch>>20)
	}
}

// heldWhile is how many bytes of objects there are at most while do runs, above those of before. It has memory collected often
// meanwhile, so that there is little garbage among them.
func heldWhile(do func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	now := func() int64 { metrics.Read(sample); return int64(sample[0].Value.Uint64()) }
	before, over, most := now(), make(chan struct{}), make(chan int64)
	go func() {
		seen := int64(0)
		for {
			select {
			case <-over:
				most <- seen
				return
			default:
				seen = max(seen, now())
				runtime.Gosched()
			}
		}
	}()
	do()
	close(over)
	return <-most - before
}
