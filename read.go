package freshet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// read is the read goroutine. It closes the queue when there is nothing more to read: ctx has ended, a
// bounded source is at its end, or the source failed.
func (r *run) read(ctx context.Context) error {
	defer close(r.queue)
	if err := r.source.Open(ctx, downstream{r}); err != nil {
		return ended(ctx, err)
	}
	r.opened.Store(true)
	r.state("running")
	r.log.Info("running")
	defer r.state("stopping")
	rewound := 0
	for {
		awake, tables, n := r.rewinds.take(ctx)
		for _, table := range tables {
			if err := r.source.Rewind(ctx, table); err != nil {
				return ended(ctx, fmt.Errorf("rewind %s: %w", table, err))
			}
		}
		rewound += n
		start := time.Now()
		b, err := r.source.Next(awake)
		switch {
		case err == nil:
			r.observeRead(b, time.Since(start))
			if !r.enqueue(ctx, b, rewound) {
				return nil
			}
		case errors.Is(err, io.EOF):
			if r.atEnd(ctx, awake, rewound) {
				return nil
			}
		case ctx.Err() != nil:
			return nil
		case awake.Err() == nil:
			return ended(ctx, err)
		}
	}
}

// ended returns err, or nil when reading was to end and err is nothing but the echo of that.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errEnded) {
		return nil
	}
	return err
}

func (r *run) observeRead(b *Batch, took time.Duration) {
	if r.obs.Read != nil {
		r.obs.Read(b.Table, b.NumRows(), len(b.Rejects), b.Bytes, took)
	}
	if r.obs.Stage != nil {
		r.obs.Stage("read", took)
	}
}

// enqueue passes the batch on as soon as there is room, which was read after so many rewinds. It reports whether it did; ctx has
// ended if not.
func (r *run) enqueue(ctx context.Context, b *Batch, rewound int) bool {
	it := item{batch: b, size: min(max(b.MemoryBytes(), 1), r.opts.QueueBytes), rewind: rewound}
	if r.room.Acquire(ctx, it.size) != nil {
		b.Release()
		return false
	}
	select {
	case r.queue <- it:
		r.queued.Add(1)
		return true
	case <-ctx.Done():
		b.Release()
		return false
	}
}

// atEnd tells the write goroutine that the source has no more, and waits for what it makes of it. It returns
// false when there is something to rewind first: a commit was stale, and what it held is read again.
func (r *run) atEnd(ctx, awake context.Context, rewound int) bool {
	select {
	case r.queue <- item{rewind: rewound}:
		r.queued.Add(1)
	case <-ctx.Done():
		return true
	}
	select {
	case <-awake.Done():
		return ctx.Err() != nil
	case <-r.done:
		return true
	}
}

// rewinds are the tables that the source must read again, by when. The write goroutine adds, the read
// goroutine takes. The zero value is ready.
type rewinds struct {
	mu     sync.Mutex
	due    map[string]struct{}
	asked  int // additions that became due and were not taken
	timers map[*time.Timer]struct{}
	wake   context.CancelFunc // ends what take returned last
	over   bool
}

// add makes the table due after the delay.
func (w *rewinds) add(table string, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.timers == nil {
		w.timers, w.due = map[*time.Timer]struct{}{}, map[string]struct{}{}
	}
	var t *time.Timer
	t = time.AfterFunc(delay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.timers, t)
		w.due[table] = struct{}{}
		w.asked++
		if w.wake != nil {
			w.wake()
		}
	})
	w.timers[t] = struct{}{}
}

// take returns the tables that are due, how many additions that makes, and a context that ends with ctx or
// when the next table becomes due.
func (w *rewinds) take(ctx context.Context) (awake context.Context, tables []string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wake != nil {
		w.wake()
	}
	awake, w.wake = context.WithCancel(ctx)
	for table := range w.due {
		tables = append(tables, table)
	}
	clear(w.due)
	n, w.asked = w.asked, 0
	return awake, tables, n
}

// end stops the timers.
func (w *rewinds) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for t := range w.timers {
		t.Stop()
	}
	if w.wake != nil {
		w.wake()
	}
}
