package lake_test

import (
	"context"
	"fmt"
	"slices"
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

const patience = 10 * time.Second

// sick is a world in which something may be the matter with the stores of tables.
type sick struct {
	*world
	mu   sync.Mutex
	with map[string]illness
}

// illness is what happens to a call.
type illness func(op storetest.Op, key string) storetest.Fault

func newSick() *sick { return &sick{world: newWorld(), with: map[string]illness{}} }

func (s *sick) open(table string) (store.Store, error) {
	return storetest.NewFaulty(s.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ill := s.with[table]; ill != nil {
			return ill(op, key)
		}
		return storetest.Fault{}
	}), nil
}

// fall has something be the matter with these tables from now on; nil: nothing.
func (s *sick) fall(ill illness, tables ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, table := range tables {
		s.with[table] = ill
	}
}

// hangs is a store that answers nothing.
func hangs(storetest.Op, string) storetest.Fault { return storetest.Fault{Kind: storetest.Slow} }

// hangsOnPuts is a store that can be read.
func hangsOnPuts(op storetest.Op, _ string) storetest.Fault {
	if !op.Writes() {
		return storetest.Fault{}
	}
	return storetest.Fault{Kind: storetest.Slow}
}

// answersAfter is a store that takes its time for what is written.
func answersAfter(d time.Duration) illness {
	return func(op storetest.Op, _ string) storetest.Fault {
		if !op.Writes() {
			return storetest.Fault{}
		}
		release := make(chan struct{})
		time.AfterFunc(d, func() { close(release) })
		return storetest.Fault{Kind: storetest.Slow, Release: release}
	}
}

// refuses is a store that takes nothing.
func refuses(err error) illness {
	return func(op storetest.Op, _ string) storetest.Fault {
		if !op.Writes() {
			return storetest.Fault{}
		}
		return storetest.Fault{Kind: storetest.ErrorBefore, Err: err}
	}
}

// life is a pipeline of a table a lane that runs, with what it told.
type life struct {
	s      *sick
	o      *freshettest.Origin
	src    *freshettest.Source
	cancel context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	told []string // what OnSlow was told
}

// patient are options under which slow tables are parked; keyed tables if dir is not "".
func patient(dir string) *lake.TargetOptions {
	opts := parking()
	opts.Park.Patience = patience
	if dir != "" {
		opts.Mode, opts.Key = lake.Upsert, lake.KeyOptions{Columns: []string{"lane", "seq"}, IndexDir: dir}
	}
	return opts
}

func (s *sick) live(t *testing.T, o *freshettest.Origin, opts *lake.TargetOptions) *life {
	t.Helper()
	return s.liveOn(t, o, opts, s.open)
}

func (s *sick) liveOn(t *testing.T, o *freshettest.Origin, opts *lake.TargetOptions, open lake.Opener) *life {
	t.Helper()
	l := &life{s: s, o: o, ended: make(chan error, 1),
		src: freshettest.NewSource(o, freshettest.SourceOptions{Table: perLane})}
	opts.Park.OnSlow = func(table, why string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told = append(l.told, table+": "+why)
	}
	p := &freshet.Pipeline{Name: "test", Source: l.src, Target: lake.NewTarget(open, app, opts),
		Options: freshet.Options{Every: time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	go func() { l.ended <- p.Run(ctx) }()
	return l
}

// end ends the run, and makes sure that no cut of it is wrong.
func (l *life) end(t *testing.T) {
	t.Helper()
	l.cancel()
	must(t, <-l.ended)
	l.s.checkCuts(t, "in the end", l.o)
}

// stories are what OnSlow was told.
func (l *life) stories() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

// check makes sure that these tables hold all of the origin, each once, and are shown by the newest cut, which leaves the others
// out.
func (l *life) check(t *testing.T, when string, out []string, tables ...string) {
	t.Helper()
	rows, rejects := l.o.Want()
	for i, lane := range l.o.Lanes() {
		if !slices.Contains(tables, perLane(lane)) {
			continue
		}
		name := freshettest.Lane(i).String()
		freshettest.CheckOnce(t, when+": rows", l.s.rows(t, perLane(lane)), map[string][]int64{name: rows[name]})
		freshettest.CheckOnce(t, when+": rejects", l.s.rejects(t, perLane(lane)), map[string][]int64{name: rejects[name]})
	}
	last := l.s.lastCut(t)
	if !slices.Equal(last.LeftOut, out) || len(last.Tables) != len(tables) {
		t.Errorf("%s: the newest cut shows %v and leaves out %v, want %v and %v", when, last.Tables, last.LeftOut, tables, out)
	}
	for _, shown := range last.Tables {
		if v := l.s.snapshot(t, shown.Name).Version(); v != shown.Version {
			t.Errorf("%s: the newest cut has %s at version %d, which is at %d", when, shown.Name, shown.Version, v)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// follows waits, has more come, and then checks.
func (l *life) follows(t *testing.T, when string, wait time.Duration, out []string, tables ...string) {
	t.Helper()
	pass(wait)
	l.grow(3)
	pass(5 * time.Second)
	l.check(t, when, out, tables...)
}

// acked makes sure that the origin may forget all of the lane, and that the table or its parking table has it.
func (l *life) acked(t *testing.T, when string, lane int) {
	t.Helper()
	key := freshettest.Lane(lane)
	got, want := l.src.Acked(perLane(key))[key], lastOf(l.o, lane)
	if got != want {
		t.Errorf("%s: the origin may forget %s up to %d, want %d", when, key, got, want)
	}
}

// grow adds records to all lanes, a second apart.
func (l *life) grow(n int) {
	for range n {
		grow(l.o, 1)
		pass(time.Second)
	}
}

// inModes runs a test with tables that are appended to, and with keyed ones.
func inModes(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("append", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, "") }) })
	t.Run("upsert", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) { test(t, dir) })
	})
}

// The store of one of three tables stops answering: the others, and cuts without it, go on within its patience, and the origin
// may forget what is parked. When it answers again the table follows by itself.
func TestSlow_StoreHangs_OthersGoOnAndItFollows(t *testing.T) {
	for name, ill := range map[string]illness{"wholly": hangs, "on puts": hangsOnPuts} {
		t.Run(name, func(t *testing.T) {
			inModes(t, func(t *testing.T, dir string) {
				s, o := newSick(), mixed(31, 3, 6)
				l := s.live(t, o, patient(dir))
				l.grow(4)
				pass(5 * time.Second)
				l.check(t, "well", nil, "t0", "t1", "t2")
				s.fall(ill, "t1")
				l.grow(1)
				pass(patience + 5*time.Second)
				l.check(t, "one hangs", []string{"t1"}, "t0", "t2")
				for range 5 { // from then on nobody waits at all
					l.grow(1)
					pass(3 * time.Second)
					l.check(t, "one hangs still", []string{"t1"}, "t0", "t2")
					l.acked(t, "one hangs still", 1)
				}
				s.fall(nil, "t1")
				l.follows(t, "it answers again", 12*patience, nil, "t0", "t1", "t2")
				if told := l.stories(); len(told) != 2 || told[1] != "t1: " {
					t.Errorf("it was told %q, want why t1 is slow, and that it is not any more", told)
				}
				l.end(t)
			})
		})
	}
}

// Each commit takes minutes: the table is drained at its own pace, and does not come back before it is quick.
func TestSlow_EachPutTakesLong_ParkedUntilQuick(t *testing.T) {
	inModes(t, func(t *testing.T, dir string) {
		s, o := newSick(), mixed(32, 3, 6)
		l := s.live(t, o, patient(dir))
		l.grow(3)
		s.fall(answersAfter(2*patience), "t1")
		l.grow(1)
		pass(patience + 5*time.Second)
		for i := range 60 {
			l.grow(1)
			pass(4 * time.Second)
			if i%12 != 0 {
				continue
			}
			l.check(t, "one is slow", s.lastCut(t).LeftOut, slices.DeleteFunc([]string{"t0", "t1", "t2"},
				func(name string) bool { return slices.Contains(s.lastCut(t).LeftOut, name) })...)
		}
		if got := len(s.rows(t, "t1")); got < 20 {
			t.Errorf("got %d rows in the slow table, want that it follows", got)
		}
		if told := l.stories(); len(told) != 1 {
			t.Errorf("it was told %q, want once that t1 is slow", told)
		}
		s.fall(nil, "t1")
		l.grow(2)
		pass(5 * patience)
		l.grow(2)
		pass(5 * time.Second)
		l.check(t, "it is quick", nil, "t0", "t1", "t2")
		l.end(t)
	})
}

func TestSlow_TwoAtOnce_ThirdGoesOn(t *testing.T) {
	inModes(t, func(t *testing.T, dir string) {
		s, o := newSick(), mixed(33, 3, 6)
		l := s.live(t, o, patient(dir))
		l.grow(2)
		s.fall(hangs, "t0", "t2")
		l.grow(1)
		pass(2*patience + 5*time.Second)
		l.grow(5)
		pass(3 * time.Second)
		l.check(t, "two hang", []string{"t0", "t2"}, "t1")
		l.acked(t, "two hang", 0)
		l.acked(t, "two hang", 2)
		s.fall(nil, "t2")
		l.follows(t, "one hangs", 12*patience, []string{"t0"}, "t1", "t2")
		s.fall(nil, "t0")
		l.follows(t, "none hangs", 40*patience, nil, "t0", "t1", "t2")
		l.end(t)
	})
}

// A bucket that is full holds back its table alone.
func TestSlow_StoreIsFull_OthersGoOnAndItFollows(t *testing.T) {
	inModes(t, func(t *testing.T, dir string) {
		s, o := newSick(), mixed(34, 2, 6)
		l := s.live(t, o, patient(dir))
		l.grow(2)
		s.fall(refuses(store.ErrFull), "t0")
		l.grow(1)
		pass(patience + 5*time.Second)
		l.grow(5)
		pass(3 * time.Second)
		l.check(t, "one is full", []string{"t0"}, "t1")
		l.acked(t, "one is full", 0)
		s.fall(nil, "t0")
		l.follows(t, "there is room", 12*patience, nil, "t0", "t1")
		l.end(t)
	})
}

// One that refuses us is held back for people to look at, if that is wanted.
func TestPark_StoreRefuses_HeldBackAlone(t *testing.T) {
	inModes(t, func(t *testing.T, dir string) {
		s, o := newSick(), mixed(35, 2, 6)
		opts := patient(dir)
		var mu sync.Mutex
		var told []string
		opts.Park.OnError = func(_ context.Context, table string, err error) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("%s: %v", table, err))
			return nil
		}
		l := s.live(t, o, opts)
		l.grow(2)
		s.fall(refuses(store.ErrPermission), "t0")
		l.grow(6)
		pass(3 * time.Second)
		l.check(t, "one refuses", []string{"t0"}, "t1")
		l.acked(t, "one refuses", 0)
		l.end(t)
		if len(told) != 1 {
			t.Errorf("it was told %q, want once of t0", told)
		}
		s.fall(nil, "t0")
		l = s.live(t, o, patient(dir))
		l.grow(3)
		pass(5 * time.Second)
		l.check(t, "it takes us again", nil, "t0", "t1")
		l.end(t)
	})
}

// A process that begins while the store of its table does not answer waits, and says so.
func TestSlow_HangsFromTheFirst_Told(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSick(), mixed(37, 1, 6)
		s.fall(hangs, "t0")
		opts, told := patient(""), make(chan string, 1)
		opts.Retry = tellOnce(told)
		l := s.live(t, o, opts)
		pass(time.Minute)
		l.cancel()
		<-l.ended
		if len(told) == 0 {
			t.Error("nobody is told that it waits")
		}
	})
}

// tellOnce puts what it is told of into the channel, as far as there is room.
func tellOnce(told chan<- string) func(what string, err error) {
	return func(what string, _ error) {
		select {
		case told <- what:
		default:
		}
	}
}

// A table without others beside it is waited for, which is told.
func TestSlow_OnlyTable_WaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSick(), mixed(36, 1, 6)
		opts, told := patient(""), make(chan string, 1)
		opts.Cuts.Always, opts.Retry = true, tellOnce(told)
		l := s.live(t, o, opts)
		l.grow(2)
		s.fall(hangs, "t0")
		l.grow(1)
		pass(time.Hour)
		if s.snapshot(t, "t0_parked") != nil {
			t.Error("its changes are parked, want that it is waited for")
		}
		if len(told) == 0 {
			t.Error("nobody is told that it is waited for")
		}
		l.cancel()
		if err := <-l.ended; err == nil {
			t.Error("got no error, want that what was read is not committed")
		}
	})
}
