package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// tardy is a store whose commits to the log land when they are let, also those whose caller has given up.
type tardy struct {
	store.Store
	mu  sync.Mutex
	let chan struct{} // nil: at once
	on  sync.WaitGroup
}

// hold has commits wait until the function it returns is called, and then land.
func (s *tardy) hold() (land func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.let = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.let != nil {
			close(s.let)
			s.let = nil
		}
	}
}

func (s *tardy) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	s.mu.Lock()
	let := s.let
	s.mu.Unlock()
	if let == nil || !strings.HasPrefix(key, "_delta_log/") {
		return s.Store.PutIfAbsent(ctx, key, data)
	}
	result := make(chan error, 1)
	s.on.Go(func() {
		<-let
		result <- s.Store.PutIfAbsent(context.WithoutCancel(ctx), key, data)
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrAmbiguous, ctx.Err())
	}
}

// What was given up lands after all: before the table is asked again, while it takes up what was parked, or long after. Nothing
// is there twice, and nothing is missing.
func TestSlow_CommitLandsLate_EachOnce(t *testing.T) {
	for name, after := range map[string]time.Duration{"before it is parked": patience + 5*time.Millisecond,
		"while it is parked": patience + 3*time.Second, "after another try": 3 * patience, "after many": 40 * patience} {
		t.Run(name, func(t *testing.T) {
			inModes(t, func(t *testing.T, dir string) { landsLate(t, dir, after) })
		})
	}
}

func landsLate(t *testing.T, dir string, after time.Duration) {
	t.Helper()
	s, o := newSick(), mixed(41, 2, 6)
	late := &tardy{Store: s.store("t1")}
	l := s.liveOn(t, o, patient(dir), func(table string) (store.Store, error) {
		if table == "t1" {
			return late, nil
		}
		return s.open(table)
	})
	l.grow(3)
	pass(5 * time.Second)
	land := late.hold()
	grow(o, 1)
	pass(after)
	land()
	l.follows(t, "landed", 30*patience, nil, "t0", "t1")
	l.end(t)
	late.on.Wait()
}

// The process dies at each of its calls while one of its tables hangs, and while that follows again.
func TestSlow_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	for at := 1; ; at++ {
		died := false
		synctest.Test(t, func(t *testing.T) { died = crashSlow(t, at) })
		if !died {
			t.Logf("%d calls", at-1)
			return
		}
	}
}

// crashSlow reports whether the process has died.
func crashSlow(t *testing.T, at int) bool {
	t.Helper()
	s, o := newSick(), mixed(42, 2, 2)
	l := s.live(t, o, patient(""))
	l.grow(1)
	pass(3 * time.Second)
	l.end(t)
	m := &mortal{w: s.world, at: at, after: at%2 == 0}
	l = s.liveOn(t, o, patient(""), func(table string) (store.Store, error) {
		healthy, err := m.open(table)
		if err != nil {
			return nil, err
		}
		return storetest.NewFaulty(healthy, func(op storetest.Op, key string, _ int) storetest.Fault {
			s.mu.Lock()
			defer s.mu.Unlock()
			if ill := s.with[table]; ill != nil {
				return ill(op, key)
			}
			return storetest.Fault{}
		}), nil
	})
	l.grow(1)
	s.fall(hangsOnPuts, "t1")
	l.grow(2)
	pass(patience + 2*time.Second)
	l.grow(1)
	s.fall(nil, "t1")
	pass(12 * patience)
	l.grow(1)
	pass(2 * time.Second)
	l.cancel()
	err := <-l.ended
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	switch {
	case !dead:
		must(t, err)
	case err != nil && !errors.Is(err, storetest.ErrCrashed):
		t.Logf("call %d: %v", at, err)
	}
	l = s.live(t, o, patient(""))
	l.grow(1)
	pass(3 * time.Second)
	l.check(t, fmt.Sprintf("crash at call %d", at), nil, "t0", "t1")
	l.end(t)
	return dead
}

// Whatever is the matter with whichever table, at any time: in the end each holds everything once, and no cut is wrong.
func TestSlow_AtRandom_EachOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	inModes(t, func(t *testing.T, dir string) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s, o := newSick(), mixed(seed, 3, 4)
		opts := patient(dir)
		opts.Park.TailBytes = int64(1 + rng.IntN(4000))
		l := s.live(t, o, opts)
		l.grow(2)
		tables := []string{"t0", "t1", "t2"}
		ills := []illness{hangs, hangsOnPuts, answersAfter(2 * patience), answersAfter(time.Second), refuses(store.ErrFull),
			refuses(store.ErrUnavailable), nil, nil}
		for range 15 {
			s.fall(ills[rng.IntN(len(ills))], tables[rng.IntN(len(tables))])
			for range rng.IntN(4) {
				grow(o, 1)
				pass(time.Duration(rng.Int64N(int64(patience))))
			}
		}
		s.fall(nil, tables...)
		pass(2 * drainLongest * patience)
		l.grow(5)
		pass(time.Minute)
		l.grow(5)
		pass(time.Minute)
		l.check(t, fmt.Sprintf("seed %d", seed), nil, tables...)
		l.end(t)
	})
}

// drainLongest is how many times the patience a call may go unanswered before it is given up.
const drainLongest = 60

// Where the parking table does not answer either, all wait, and nothing is lost.
func TestSlow_ParkingTableHangsToo_AllWaitAndFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSick(), mixed(43, 2, 6)
		l := s.live(t, o, patient(""))
		l.grow(2)
		gate := make(chan struct{})
		stuck := func(storetest.Op, string) storetest.Fault {
			return storetest.Fault{Kind: storetest.Slow, Release: gate}
		}
		s.fall(stuck, "t1", "t1_parked")
		l.grow(2)
		pass(10 * patience)
		if got := l.src.Acked("t1")[lane1]; got >= lastOf(o, 1) {
			t.Errorf("the origin may forget up to %d, want nothing that is nowhere", got)
		}
		s.fall(nil, "t1", "t1_parked")
		close(gate)
		l.follows(t, "both answer", 12*patience, nil, "t0", "t1")
		l.end(t)
	})
}

// Targets that follow one another in a process hand on what they know of slow tables: so people can hold one back, and let it
// go on, while its store does not answer.
func TestSlow_NextTarget_NeedNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSick(), mixed(44, 2, 6)
		slow := &lake.SlowTables{}
		next := func(held ...string) *life {
			opts := patient("")
			opts.Park.Slow = slow
			for _, table := range held {
				opts.Park.Held[table] = true
			}
			return s.live(t, o, opts)
		}
		l := next()
		l.grow(2)
		s.fall(hangs, "t1")
		l.grow(1)
		pass(patience + 5*time.Second)
		l.end(t)
		for _, held := range [][]string{{"t1"}, nil} {
			l = next(held...)
			l.grow(3)
			pass(3 * time.Second)
			l.check(t, fmt.Sprintf("held back: %v", held), []string{"t1"}, "t0")
			l.acked(t, "hangs", 1)
			if all := slow.Pauses("me"); len(all) != 1 || all["t1"].Why == "" || all["t1"].Since.IsZero() {
				t.Errorf("got %v, want since when and why t1 is slow", all)
			}
			l.end(t)
		}
		s.fall(nil, "t1")
		l = next()
		l.grow(3)
		pass(5 * time.Second)
		l.grow(2)
		pass(5 * time.Second)
		l.check(t, "it answers", nil, "t0", "t1")
		if all := slow.Pauses("me"); len(all) != 0 {
			t.Errorf("got %v, want none that is slow", all)
		}
		l.end(t)
	})
}

// Of a table and its change log, one that is slow does not hold back the other.
func TestSlow_ChangeLogHangs_TableGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSick(), mixed(45, 2, 6)
		opts := patient("")
		main := lake.NewTarget(s.open, app, opts)
		log := lake.NewTarget(s.open, app, patient(""))
		target := lake.NewGroup(main, lake.Beside{Target: log, Name: func(table string) string { return table + "_log" }})
		src := freshettest.NewSource(o, freshettest.SourceOptions{})
		p := &freshet.Pipeline{Name: "test", Source: src, Target: target, Options: freshet.Options{Every: time.Second}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		pass(3 * time.Second)
		s.fall(hangs, "t_log")
		for range 3 {
			grow(o, 1)
			pass(patience)
		}
		rows, _ := o.Want()
		freshettest.CheckOnce(t, "while its log hangs", s.rows(t, "t"), rows)
		s.fall(nil, "t_log")
		pass(12 * patience)
		grow(o, 2)
		pass(5 * time.Second)
		s.checkAll(t, "it answers", o)
		rows, _ = o.Want()
		freshettest.CheckOnce(t, "the log's rows", s.rows(t, "t_log"), rows)
		cancel()
		must(t, <-ended)
	})
}

// The store of a table is lost between its commit and the cut: the others wait for its patience, and cuts leave it out.
func TestSlow_LostBeforeTheCut_NextOneLeavesItOut(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"hangs":          {Kind: storetest.Slow},
		"cannot be used": {Kind: storetest.ErrorBefore, Err: store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, o := newSick(), mixed(46, 3, 6)
				lost := false // calls come under the lock of s
				s.fall(func(_ storetest.Op, key string) storetest.Fault {
					if lost = lost || strings.HasPrefix(key, "_freshet/cuts/"); lost {
						return fault
					}
					return storetest.Fault{}
				}, "t1")
				l := s.live(t, o, patient(""))
				l.grow(1)
				l.follows(t, "one is lost", 2*patience, []string{"t1"}, "t0", "t2")
				l.acked(t, "one is lost", 1)
				s.fall(nil, "t1")
				l.follows(t, "it is back", 12*patience, nil, "t0", "t1", "t2")
				l.end(t)
			})
		})
	}
}
