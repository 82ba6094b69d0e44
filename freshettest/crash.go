package freshettest

import (
	"context"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// Crash lets a process die at one of the calls between a pipeline and its ends: that call and every later one
// return ErrCrash. The zero value lets it live, and counts.
type Crash struct {
	At    int  // the number of the call, from 1; 0: never
	After bool // the call at which it dies is still carried out

	mu    sync.Mutex
	calls int
	dead  bool
}

// Calls is how many calls there were until the process died.
func (c *Crash) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Dead reports whether the process has died.
func (c *Crash) Dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// do carries out the call, unless the process is dead or dies before it.
func (c *Crash) do(call func() error) error {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return ErrCrash
	}
	c.calls++
	dies := c.calls == c.At
	c.dead = dies
	c.mu.Unlock()
	if dies && !c.After {
		return ErrCrash
	}
	err := call()
	if dies {
		return ErrCrash
	}
	return err
}

// gone is a context in which nothing more can be done.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Source returns the source in a process that dies as c says.
func (c *Crash) Source(s freshet.Source) freshet.Source { return &mortalSource{s, c} }

// Target returns the target in a process that dies as c says.
func (c *Crash) Target(t freshet.Target) freshet.Target { return &mortalTarget{t, c} }

type mortalSource struct {
	freshet.Source
	c *Crash
}

func (s *mortalSource) Open(ctx context.Context, down freshet.Downstream) error {
	return s.c.do(func() error { return s.Source.Open(ctx, down) })
}

func (s *mortalSource) Next(ctx context.Context) (b *freshet.Batch, err error) {
	err = s.c.do(func() error {
		b, err = s.Source.Next(ctx)
		return err
	})
	if err != nil && b != nil {
		b.Release()
		b = nil
	}
	return b, err
}

func (s *mortalSource) Rewind(ctx context.Context, table string) error {
	return s.c.do(func() error { return s.Source.Rewind(ctx, table) })
}

func (s *mortalSource) Ack(ctx context.Context, table string, p freshet.Progress) error {
	return s.c.do(func() error { return s.Source.Ack(ctx, table, p) })
}

func (s *mortalSource) Close(ctx context.Context) error {
	if s.c.Dead() {
		ctx = gone()
	}
	return s.Source.Close(ctx)
}

type mortalTarget struct {
	freshet.Target
	c *Crash
}

func (t *mortalTarget) Open(ctx context.Context) error {
	return t.c.do(func() error { return t.Target.Open(ctx) })
}

func (t *mortalTarget) Schema(ctx context.Context, table string) (s *arrow.Schema, err error) {
	err = t.c.do(func() error {
		s, err = t.Target.Schema(ctx, table)
		return err
	})
	return s, err
}

func (t *mortalTarget) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	return t.c.do(func() error { return t.Target.Ensure(ctx, table, schema) })
}

func (t *mortalTarget) Resume(ctx context.Context, table string, of []freshet.Lane) (
	p freshet.Progress, err error) {
	err = t.c.do(func() error {
		p, err = t.Target.Resume(ctx, table, of)
		return err
	})
	return p, err
}

func (t *mortalTarget) Start(ctx context.Context, table string, s freshet.Progress) (
	p freshet.Progress, err error) {
	err = t.c.do(func() error {
		p, err = t.Target.Start(ctx, table, s)
		return err
	})
	return p, err
}

func (t *mortalTarget) Since(ctx context.Context, table string) (at time.Time, known bool, err error) {
	err = t.c.do(func() error {
		at, known, err = t.Target.Since(ctx, table)
		return err
	})
	return at, known, err
}

func (t *mortalTarget) Bookmark(ctx context.Context, table, name string, mark []byte) (kept []byte, err error) {
	err = t.c.do(func() error {
		kept, err = t.Target.Bookmark(ctx, table, name, mark)
		return err
	})
	return kept, err
}

func (t *mortalTarget) Write(ctx context.Context, b *freshet.Batch) (rejected int64, err error) {
	taken := false
	err = t.c.do(func() error {
		taken = true
		rejected, err = t.Target.Write(ctx, b)
		return err
	})
	if !taken {
		b.Release()
	}
	return rejected, err
}

func (t *mortalTarget) Seal(ctx context.Context) (commits []freshet.Commit, err error) {
	err = t.c.do(func() error {
		commits, err = t.Target.Seal(ctx)
		return err
	})
	for i, c := range commits {
		commits[i] = &mortalCommit{c, t.c}
	}
	return commits, err
}

func (t *mortalTarget) Close(ctx context.Context) error {
	if t.c.Dead() {
		ctx = gone()
	}
	return t.Target.Close(ctx)
}

type mortalCommit struct {
	freshet.Commit
	c *Crash
}

func (c *mortalCommit) Run(ctx context.Context) (done freshet.Committed, err error) {
	err = c.c.do(func() error {
		done, err = c.Commit.Run(ctx)
		return err
	})
	return done, err
}

// Abort does nothing in a dead process: what it wrote stays behind.
func (c *mortalCommit) Abort() {
	if !c.c.Dead() {
		c.Commit.Abort()
	}
}
