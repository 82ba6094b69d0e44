package lake

import (
	"context"
	"sync"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// tender does off the commit path what can wait: checkpoints, cleaning the log, deleting files that no commit
// took. One goroutine, begun with the first job and ended by close. What it cannot do is done another time,
// or stays behind as files that no reader sees.
type tender struct {
	retry func(what string, err error) // told of what is put off
	clean func(context.Context, *delta.Table) (*delta.CleanOptions, error)

	mu     sync.Mutex
	jobs   chan func(ctx context.Context)
	ended  chan struct{}
	cancel context.CancelFunc
	asked  map[*delta.Table]bool // a checkpoint is queued
	closed bool
}

// newTender returns a tender that asks clean how the log of a table is cleaned.
func newTender(retry func(string, error),
	clean func(context.Context, *delta.Table) (*delta.CleanOptions, error)) *tender {
	return &tender{retry: retry, clean: clean, asked: map[*delta.Table]bool{}}
}

// add queues a job, and drops it when there are too many. The lock is held.
func (t *tender) add(job func(ctx context.Context)) bool {
	if t.closed {
		return false
	}
	if t.jobs == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t.jobs, t.ended, t.cancel = make(chan func(context.Context), 64), make(chan struct{}), cancel
		go func() {
			defer close(t.ended)
			for job := range t.jobs {
				job(ctx)
			}
		}()
	}
	select {
	case t.jobs <- job:
		return true
	default:
		return false
	}
}

// checkpoint writes a checkpoint of the snapshot if one is due, and cleans the log.
func (t *tender) checkpoint(d *delta.Table, snap *delta.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked[d] {
		return
	}
	t.asked[d] = t.add(func(ctx context.Context) {
		t.mu.Lock()
		delete(t.asked, d)
		t.mu.Unlock()
		policy := &delta.CheckpointPolicy{Clean: func(ctx context.Context) (*delta.CleanOptions, error) {
			return t.clean(ctx, d)
		}}
		if _, err := d.MaybeCheckpoint(ctx, snap, policy); err != nil && ctx.Err() == nil {
			t.retry("checkpoint", err)
		}
	})
}

// pin writes a checkpoint of the snapshot, so that it can be read when the log before and after it is cleaned away.
func (t *tender) pin(d *delta.Table, snap *delta.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(func(ctx context.Context) {
		if err := d.Checkpoint(ctx, snap); err != nil && ctx.Err() == nil {
			t.retry("checkpoint", err)
		}
	})
}

// abort deletes the files of the writers.
func (t *tender) abort(writers []*delta.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range writers {
		t.add(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if err := w.Abort(ctx); err != nil && ctx.Err() == nil {
				t.retry("delete files that no commit took", err)
			}
		})
	}
}

// expire deletes the rows for which the condition is true.
func (t *tender) expire(d *delta.Table, where string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(func(ctx context.Context) {
		condition, err := expr.Parse(where)
		if err == nil {
			_, err = d.Delete(ctx, condition, nil)
		}
		if err != nil && ctx.Err() == nil {
			t.retry("delete old rows", err)
		}
	})
}

// close ends the goroutine: once the jobs are done, or at once when ctx ends.
func (t *tender) close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	jobs := t.jobs
	t.mu.Unlock()
	if jobs == nil {
		return
	}
	close(jobs)
	select {
	case <-t.ended:
	case <-ctx.Done():
	}
	t.cancel()
	<-t.ended
}
