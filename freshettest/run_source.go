package freshettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// SourceHarness is an origin whose lanes do not change any more.
type SourceHarness struct {
	// New returns a bounded source that reads all of the origin into the table "t", as a new process would.
	New func(t *testing.T) freshet.Source
	// Rows and Rejects are the seqs that must come of it, by lane as Lane.String gives it, in order.
	Rows, Rejects map[string][]int64
}

// RunSource checks every promise of freshet.Source. Each call of make may return the same origin.
func RunSource(t *testing.T, make func(t *testing.T) SourceHarness) {
	s := sourceSuite{make}
	t.Run("Bounded_ReadThrough_EachOnce", s.through)
	t.Run("Bounded_NothingNew_Ends", s.nothingNew)
	t.Run("Ack_AtEnd_IsProgressOfTable", s.acks)
	t.Run("Rewind_AtAnyCommit_EachOnce", s.rewinds)
	t.Run("Context_Ended_RunReturns", s.canceled)
	t.Run("Crash_AtEveryCall_EachOnce", s.crashes)
}

type sourceSuite struct {
	make func(t *testing.T) SourceHarness
}

func (s sourceSuite) run(t *testing.T, source freshet.Source, target freshet.Target) error {
	t.Helper()
	p := &freshet.Pipeline{Name: "test", Source: source, Target: target,
		Options: freshet.Options{MaxRows: 3, QueueBatches: 2, Every: time.Hour}}
	return p.Run(t.Context())
}

func check(t *testing.T, when string, h SourceHarness, tables *Tables) {
	t.Helper()
	CheckOnce(t, when+": rows", tables.Rows(table), h.Rows)
	CheckOnce(t, when+": rejects", tables.Rejects(table), h.Rejects)
	if t.Failed() {
		t.FailNow()
	}
}

func (s sourceSuite) through(t *testing.T) {
	h, tables := s.make(t), NewTables()
	must(t, s.run(t, h.New(t), NewTarget(tables, nil)))
	check(t, "read through", h, tables)
}

func (s sourceSuite) nothingNew(t *testing.T) {
	h, tables := s.make(t), NewTables()
	must(t, s.run(t, h.New(t), NewTarget(tables, nil)))
	version := tables.Version(table)
	must(t, s.run(t, h.New(t), NewTarget(tables, nil)))
	check(t, "read again", h, tables)
	if got := tables.Version(table); got != version {
		t.Errorf("got %d commits without anything new, want none", got-version)
	}
}

// ackWatch notes what a source is told, and compares it with what the table has.
type ackWatch struct {
	freshet.Source
	t      *testing.T
	tables *Tables
	last   freshet.Progress
}

func (w *ackWatch) Ack(ctx context.Context, table string, p freshet.Progress) error {
	have := w.tables.Progress(table)
	for l, seq := range p {
		if have[l] < seq {
			w.t.Errorf("%s was acknowledged, but the table is at %d", l.Position(seq), have[l])
		}
		w.last[l] = seq
	}
	return w.Source.Ack(ctx, table, p)
}

func (s sourceSuite) acks(t *testing.T) {
	h, tables := s.make(t), NewTables()
	w := &ackWatch{h.New(t), t, tables, freshet.Progress{}}
	must(t, s.run(t, w, NewTarget(tables, nil)))
	for l, seq := range tables.Progress(table) {
		if last, ok := w.last[l]; ok && last != seq {
			t.Errorf("last acknowledged of %s: got %d, want %d", l, last, seq)
		}
	}
}

// rewinds has commits fail at random, so that their lanes are read again.
func (s sourceSuite) rewinds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	h, tables := s.make(t), NewTables()
	target := NewTarget(tables, func(call string, n int) error {
		if call == "Run" && rng.IntN(3) == 0 || call == "Seal" && n%7 == 6 {
			return fmt.Errorf("%w: on purpose", freshet.ErrStale)
		}
		return nil
	})
	must(t, s.run(t, h.New(t), target))
	check(t, "rewound", h, tables)
}

func (s sourceSuite) canceled(t *testing.T) {
	h, tables := s.make(t), NewTables()
	ctx, cancel := context.WithCancel(t.Context())
	target := NewTarget(tables, func(call string, _ int) error {
		if call == "Write" {
			cancel()
		}
		return nil
	})
	p := &freshet.Pipeline{Name: "test", Source: h.New(t), Target: target}
	must(t, p.Run(ctx))
	must(t, s.run(t, h.New(t), NewTarget(tables, nil)))
	check(t, "canceled, and run again", h, tables)
}

func (s sourceSuite) crashes(t *testing.T) {
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			h, tables := s.make(t), NewTables()
			c := &Crash{At: at, After: after}
			err := s.run(t, c.Source(h.New(t)), c.Target(NewTarget(tables, nil)))
			if !c.Dead() {
				must(t, err)
				return
			}
			must(t, s.run(t, h.New(t), NewTarget(tables, nil)))
			check(t, fmt.Sprintf("crash at call %d, after it: %v", at, after), h, tables)
		}
	}
}
