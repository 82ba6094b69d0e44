package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// hasty is a source whose Next is told to end while it asks what is downstream, at random: as it is when a table is to be read again. Then
// it is called anew.
type hasty struct {
	*Source

	mu     sync.Mutex
	random *rand.Rand
	end    context.CancelFunc // of the Next that is under way; nil: none is
	ended  int
}

// hastyDown is what a hasty source asks.
type hastyDown struct {
	freshet.Downstream
	h *hasty
}

func (h *hasty) Open(ctx context.Context, down freshet.Downstream) error {
	return h.Source.Open(ctx, hastyDown{down, h})
}

func (h *hasty) Next(ctx context.Context) (*freshet.Batch, error) {
	for {
		hurry, end := context.WithCancel(ctx)
		h.watch(end)
		b, err := h.Source.Next(hurry)
		again := err != nil && hurry.Err() != nil && ctx.Err() == nil
		h.watch(nil)
		end()
		if !again {
			return b, err
		}
	}
}

func (h *hasty) watch(end context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
}

// hurry may end the Next that is under way.
func (h *hasty) hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil && h.random.IntN(6) == 0 {
		h.end()
		h.ended++
	}
}

// hurrying asks, and may end the Next that asks: before it has an answer, or when there is one that it does not hear.
func hurrying[T any](ctx context.Context, h *hasty, ask func() (T, error)) (T, error) {
	h.hurry()
	answer, err := ask()
	if h.hurry(); err == nil && ctx.Err() != nil {
		var none T
		return none, context.Cause(ctx)
	}
	return answer, err
}

func (d hastyDown) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	return hurrying(ctx, d.h, func() (*arrow.Schema, error) { return d.Downstream.Schema(ctx, table) })
}

func (d hastyDown) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Ensure(ctx, table, schema) })
	return err
}

func (d hastyDown) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Widen(ctx, table, schema) })
	return err
}

func (d hastyDown) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	return hurrying(ctx, d.h, func() (freshet.Progress, error) { return d.Downstream.Resume(ctx, table, lanes) })
}

func (d hastyDown) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	return hurrying(ctx, d.h, func() (freshet.Progress, error) { return d.Downstream.Start(ctx, table, starts) })
}

func (d hastyDown) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	return hurrying(ctx, d.h, func() ([]byte, error) { return d.Downstream.Bookmark(ctx, table, name, mark) })
}

func (d hastyDown) Unmark(ctx context.Context, table, prefix, last string) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Unmark(ctx, table, prefix, last) })
	return err
}

// hurryNext lands what was sent although Next is told to end wherever it asks.
func (c *capture) hurryNext(t *testing.T, want landed) {
	t.Helper()
	for range 5 {
		_, m := c.pipe(t)
		s := m.source(t, true)
		p := m.pipeline(s, lake.Append)
		h := &hasty{Source: s, random: rand.New(rand.NewPCG(c.random.Uint64(), 2))}
		p.Source = h
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "told to end", m.landed(t), want)
	}
}
