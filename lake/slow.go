package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// A table whose store hangs, or is slow, must not hold back the others. What is done with it on their way, a commit, a
// look, the files that a Seal closes, is ended after ParkOptions.Patience. From then on the table is slow: nothing on the way
// of the others asks its store, and what is known of it is what this process has seen last.
//
//	commit of seqs (10, 20] ── ended ──▶ it may land yet            the table is at 10, or at 20
//	lanes are read again from 10 on ──▶ parking table               which holds all from 10 on
//	drainer asks the table: 10, or 20 ──▶ takes up what is behind that, on exactly that progress
//
// So it does not matter whether what was ended lands: if it comes first, the drainer's commit finds another progress and looks
// again; if it comes later, it finds one itself and lands nothing.

// SlowTables are those tables of a process that are slow. Targets that follow one another in the process share them, so that a
// new one need not ask a store that does not answer. The zero value holds none. It is safe for concurrent use.
type SlowTables struct {
	mu sync.Mutex
	of map[string]slowTable
}

// slowTable is what is known of a slow table.
type slowTable struct {
	since time.Time
	why   string
	snap  *delta.Snapshot // the newest that this process has seen
}

// Pauses tell since when and why each slow table is, by name, in the name of by.
func (s *SlowTables) Pauses(by string) map[string]Pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Pause{}
	for name, t := range s.of {
		out[name] = Pause{By: by, Since: t.since.UTC().Truncate(time.Second), Why: t.why, Park: true}
	}
	return out
}

func (s *SlowTables) get(name string) (slowTable, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, is := s.of[name]
	return t, is
}

// put has the table be slow, if it is not already, which it reports.
func (s *SlowTables) put(name string, t slowTable) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, was := s.of[name]; was {
		return false
	}
	if s.of == nil {
		s.of = map[string]slowTable{}
	}
	s.of[name] = t
	return true
}

// saw notes a newer snapshot of the table, if it is slow.
func (s *SlowTables) saw(name string, snap *delta.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, is := s.of[name]; is && snap.Version() >= t.snap.Version() {
		t.snap = snap
		s.of[name] = t
	}
}

// drop has the table be slow no more, and reports whether it was.
func (s *SlowTables) drop(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.of[name]
	delete(s.of, name)
	return was
}

// errSlow is why something was ended that a table was to do.
var errSlow = errors.New("it takes longer than the other tables wait")

// perRow is how much longer is waited for a commit for each of its rows: large ones take their time in any store.
const perRow = 100 * time.Microsecond

// patience is how long the other tables wait for something that concerns so many rows; 0: as long as it takes, since there are
// no others, or nothing may be parked.
func (t *table) patience(rows int64) time.Duration {
	if t.park == nil || t.park.o.Patience <= 0 || t.a.first().met.Load() < 2 {
		return 0
	}
	return t.park.o.Patience + time.Duration(rows)*perRow
}

// silence is for how long nobody is told that something takes its time.
const silence = 30 * time.Second

// telling has people told when something is not done after so long, and again when it is: a store that does not answer may be
// waited for, but not in silence.
func (a *Target) telling(what string, after time.Duration) (done func()) {
	var mu sync.Mutex
	var told, over bool
	timer := time.AfterFunc(after, func() {
		mu.Lock()
		defer mu.Unlock()
		if told = !over; told {
			a.opts.Retry(what, fmt.Errorf("it takes longer than %s", after))
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; told {
			a.opts.Recovered(what)
		}
	}
}

// first is the target that was made first of those that belong together.
func (a *Target) first() *Target {
	if a.lead != nil {
		return a.lead
	}
	return a
}

// unhurried does something that concerns so many rows, and has the other tables wait for it. A commit that depends on lanes beside its
// own must not land late: what is parked meanwhile would leave out, or have, other changes than it.
func (t *table) unhurried(ctx context.Context, rows int64, doing string, do func(ctx context.Context) error) error {
	defer t.a.telling(t.name+": "+doing, silence+time.Duration(rows)*perRow)()
	return do(ctx)
}

// within does something that concerns so many rows, and ends it when the other tables have waited long enough. Errors: then
// ErrStale, and the table is slow; store.ErrUnavailable where nothing is known of it.
func (t *table) within(ctx context.Context, rows int64, doing string, do func(ctx context.Context) error) error {
	d := t.patience(rows)
	if d == 0 {
		return t.unhurried(ctx, rows, doing, do)
	}
	defer t.a.telling(t.name+": "+doing, silence+time.Duration(rows)*perRow)()
	hurried, cancel := context.WithTimeoutCause(ctx, d, errSlow)
	defer cancel()
	err := do(hurried)
	if err == nil || ctx.Err() != nil || hurried.Err() == nil {
		return err
	}
	return t.slowed(doing, d, err)
}

// slowed has the table be slow, after what it was doing has been ended with err.
func (t *table) slowed(doing string, after time.Duration, err error) error {
	why := fmt.Sprintf("it took longer than %s to %s", after.Round(time.Millisecond), doing)
	if store.Retryable(err) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		why += ": " + err.Error()
	}
	t.mu.Lock()
	snap := t.snap
	t.mu.Unlock()
	if snap == nil {
		return fmt.Errorf("%w: %s: %s", store.ErrUnavailable, t.name, why)
	}
	if t.park.slow.put(t.name, slowTable{time.Now(), why, snap}) && t.park.o.OnSlow != nil {
		t.park.o.OnSlow(t.name, why)
	}
	return fmt.Errorf("%w: %s", freshet.ErrStale, why)
}

// isSlow reports whether the table is, and the newest snapshot that was seen of it.
func (p *park) isSlow() (*delta.Snapshot, bool) {
	if p == nil {
		return nil, false
	}
	t, is := p.slow.get(p.t.name)
	return t.snap, is
}

// recovered has the table be slow no more.
func (p *park) recovered() {
	if p.slow.drop(p.t.name) && p.o.OnSlow != nil {
		p.o.OnSlow(p.t.name, "")
	}
}

// stood is where a slow table stood in these lanes when it was seen last. Errors: store.ErrUnavailable for lanes that it did not
// know then: it cannot be asked, and nothing is guessed.
func (t *table) stood(snap *delta.Snapshot, lanes []freshet.Lane) (freshet.Progress, error) {
	f := t.a.form()
	p := f.progress(snap, lanes)
	for _, l := range lanes {
		if err := f.checkIdentity(t.name, snap, l); err != nil {
			return nil, err
		}
		seq, known := p[l]
		if !known {
			return nil, fmt.Errorf("%w: where %s stands in %s cannot be told while that is slow", store.ErrUnavailable, l, t.name)
		}
		p[l] = t.folds(l, seq)
	}
	return p, nil
}

// standing is where the table stands in these lanes: what ask says, or, if it is slow or is found to be, where it stood.
func (t *table) standing(ctx context.Context, lanes []freshet.Lane, ask func(ctx context.Context) (freshet.Progress, error)) (
	p freshet.Progress, err error) {
	if _, slow := t.park.isSlow(); !slow {
		err = t.within(ctx, 0, "read where it stands", func(ctx context.Context) (err error) {
			p, err = ask(ctx)
			return err
		})
	}
	if snap, slow := t.park.isSlow(); slow {
		return t.stood(snap, lanes)
	}
	return p, err
}

// unlessSlow has something be done with the table, of which nothing is needed while it is slow.
func (t *table) unlessSlow(ctx context.Context, doing string, do func(ctx context.Context) error) error {
	if _, slow := t.park.isSlow(); slow {
		return nil
	}
	err := t.within(ctx, 0, doing, do)
	if _, slow := t.park.isSlow(); slow {
		return nil
	}
	return err
}

// hurry is the context for files of the table, which outlive the call that begins them. calm ends the wait, with the error of
// what was done: when that was ended, the table is slow.
func (t *table) hurry(ctx context.Context) (files context.Context, calm func(err error) error) {
	done := t.a.telling(t.name+": write its files", silence)
	d := t.patience(0)
	if d == 0 {
		return ctx, func(err error) error {
			done()
			return err
		}
	}
	if t.files == nil {
		t.files, t.endFiles = context.WithCancelCause(ctx)
	}
	files, end := t.files, t.endFiles
	timer := time.AfterFunc(d, func() { end(errSlow) })
	return files, func(err error) error {
		done()
		timer.Stop()
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.Is(context.Cause(files), errSlow), store.Retryable(err) && t.failsFor() > d:
			return t.slowed("write its files", d, err)
		}
		return err
	}
}

// failsFor is for how long the files of the table have failed, since its last commit.
func (t *table) failsFor() time.Duration {
	now := time.Now().UnixNano()
	t.fails.CompareAndSwap(0, now)
	return time.Duration(now - t.fails.Load())
}

// lanesOf are the lanes of a progress.
func lanesOf(p freshet.Progress) []freshet.Lane { return slices.Collect(maps.Keys(p)) }
