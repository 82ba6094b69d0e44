package lake_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// mortal is a process over a world: all its stores die together at one of their calls.
type mortal struct {
	w     *world
	at    int // the number of the call, over all stores, from 1
	after bool

	mu    sync.Mutex
	calls int
	dead  bool
}

func (m *mortal) open(table string) (store.Store, error) {
	return storetest.NewFaulty(m.w.store(table), m.rule), nil
}

func (m *mortal) rule(storetest.Op, string, int) storetest.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	switch {
	case m.dead:
		return storetest.Fault{Kind: storetest.CrashBefore}
	case m.calls != m.at:
		return storetest.Fault{}
	}
	m.dead = true
	if m.after {
		return storetest.Fault{Kind: storetest.CrashAfter}
	}
	return storetest.Fault{Kind: storetest.CrashBefore}
}

// someCalls are numbers of calls at which to die, without end: the first of them closely, later ones more loosely, and others
// in each run.
func someCalls(t *testing.T) iter.Seq[int] {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("calls by seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	return func(yield func(int) bool) {
		for at := 1; yield(at); at += 1 + rng.IntN(1+at/15) {
		}
	}
}

// mixed is an origin with rows, rejects and tombstones.
func mixed(seed uint64, lanes, records int) *freshettest.Origin {
	rng := rand.New(rand.NewPCG(seed, 2))
	o := freshettest.NewOrigin(lanes)
	for _, l := range o.Lanes() {
		for range records {
			o.Append(l, int64(max(0, rng.IntN(5)-3)), freshettest.RecordKind(max(0, rng.IntN(6)-3)))
		}
	}
	return o
}

func pipe(o *freshettest.Origin, seed uint64, target freshet.Target, maxRows int64) *freshet.Pipeline {
	src := freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Bounded: true})
	return &freshet.Pipeline{Name: "test", Source: src, Target: target,
		Options: freshet.Options{MaxRows: maxRows, QueueBatches: 2, Every: time.Hour}}
}

func (w *world) checkAll(t *testing.T, when string, o *freshettest.Origin) {
	t.Helper()
	rows, rejects := o.Want()
	freshettest.CheckOnce(t, when+": rows", w.rows(t, "t"), rows)
	freshettest.CheckOnce(t, when+": rejects", w.rejects(t, "t"), rejects)
	if t.Failed() {
		t.FailNow()
	}
}

// The process that goes on cuts its batches in another way, so that what was in the window between the two
// commits is spread over other commits.
func TestAppend_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w, o := newWorld(), mixed(seed, 2, 9)
			m := &mortal{w: w, at: at, after: after}
			err := pipe(o, seed, lake.NewTarget(m.open, app, nil), 3).Run(t.Context())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			must(t, pipe(o, seed+1, w.target(nil), 5).Run(t.Context()))
			w.checkAll(t, fmt.Sprintf("crash at call %d, after it: %v", at, after), o)
		}
	}
}

func TestAppend_StoreFailsAtRandom_EachOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	retries := 0
	for run := range uint64(8) { // one run may meet nothing that has to be tried again
		retries += failAtRandom(t, seed+run)
	}
	if retries == 0 {
		t.Error("nothing was tried again, in 8 runs")
	}
}

// failAtRandom runs a pipeline on stores that fail, and returns how often something was tried again.
func failAtRandom(t *testing.T, seed uint64) (retries int) {
	t.Helper()
	w, o := newWorld(), mixed(seed, 2, 60)
	open := func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), storetest.Seeded(seed, 0.05)), nil
	}
	var mu sync.Mutex
	trouble := map[string]bool{}
	retry := func(what string, _ error) {
		mu.Lock()
		defer mu.Unlock()
		retries++
		trouble[what] = true
	}
	recovered := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		delete(trouble, what)
	}
	p := pipe(o, seed, lake.NewTarget(open, app, &lake.TargetOptions{Retry: retry, Recovered: recovered}), 10)
	p.Options.Observer = freshet.Observer{Retry: retry, Recovered: recovered}
	must(t, p.Run(t.Context()))
	w.checkAll(t, fmt.Sprintf("a store that fails, seed %d", seed), o)
	if len(trouble) > 0 {
		t.Errorf("seed %d: at the end there is still %v, want nothing", seed, trouble)
	}
	return retries
}

// Copies start, die and start again at random, all with the same app and lanes.
func TestAppend_CopiesDieAtRandom_EachOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w, o := newWorld(), mixed(seed, 3, 60)
	fight(t, seed, func(m *mortal, from uint64) *freshet.Pipeline {
		m.w = w
		return pipe(o, from, lake.NewTarget(m.open, app, nil), 8)
	})
	must(t, pipe(o, seed, w.target(nil), 8).Run(t.Context()))
	w.checkAll(t, "after all copies", o)
}

// fight runs copies of a pipeline that start, die and start again.
func fight(t *testing.T, seed uint64, copyOf func(m *mortal, from uint64) *freshet.Pipeline) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	var running sync.WaitGroup
	for range 3 {
		lives := make([]*mortal, 4)
		for i := range lives {
			lives[i] = &mortal{at: 10 + rng.IntN(150), after: rng.IntN(2) == 0}
		}
		from := rng.Uint64()
		running.Go(func() {
			for _, m := range lives {
				if err := copyOf(m, from).Run(t.Context()); err != nil && !errors.Is(err, storetest.ErrCrashed) {
					t.Errorf("a copy failed: %v", err)
				}
			}
		})
	}
	running.Wait()
}

// One process commits its rejects and freezes; another takes over with other batches; the first thaws.
func TestAppend_FrozenBetweenQuarantineAndTable_EachOnce(t *testing.T) {
	w := newWorld()
	lane := freshettest.Lane(0)
	frozen := make(chan struct{})
	thaw := make(chan struct{})
	first := lake.NewTarget(func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, n int) storetest.Fault {
			if table != "t" || op != storetest.OpPutIfAbsent || key != "_delta_log/00000000000000000002.json" {
				return storetest.Fault{}
			}
			close(frozen)
			return storetest.Fault{Kind: storetest.Slow, Release: thaw}
		}), nil
	}, app, nil)
	must(t, first.Open(t.Context()))
	defer func() { must(t, first.Close(context.Background())) }()
	start(t, first, freshet.Progress{lane: -1})
	c := sealed(t, first, batch(lane, -1, 9, 2, 5, 8))
	result := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context())
		result <- err
	}()
	<-frozen
	second := w.running(t, nil)
	start(t, second, freshet.Progress{lane: -1})
	commit(t, second, batch(lane, -1, 3, 1, 2))
	commit(t, second, batch(lane, 3, 12, 8))
	close(thaw)
	if err := <-result; !errors.Is(err, freshet.ErrStale) {
		t.Fatalf("the frozen copy: got %v, want ErrStale", err)
	}
	c.Abort()
	want := map[string][]int64{lane.String(): {0, 3, 4, 5, 6, 7, 9, 10, 11, 12}}
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"), want)
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane.String(): {1, 2, 8}})
}

// A commit of a process that is gone lands after its successor has asked how far a lane is, which leaves something out because that
// lane is still to show it.
func TestCommit_LaneBesideMovedByAnother_Stale(t *testing.T) {
	w := newWorld()
	stream, history := freshettest.Lane(0), freshettest.Lane(1)
	starts := freshet.Progress{stream: -1, history: -1}
	gone, next := w.running(t, nil), w.running(t, nil)
	start(t, gone, starts)
	commit(t, gone, batch(stream, -1, 2))
	start(t, next, starts)
	late := sealed(t, gone, batch(history, -1, 4))
	if _, err := late.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaves := batch(stream, 2, 5)
	leaves.Beside = []freshet.Place{{Lane: history, Seq: -1}}
	c := sealed(t, next, leaves)
	if _, err := c.Run(t.Context()); !errors.Is(err, freshet.ErrStale) {
		t.Fatalf("got %v, want ErrStale", err)
	}
	c.Abort()
	start(t, next, starts)
	for _, b := range []*freshet.Batch{batch(stream, 2, 6), batch(history, 4, 7), batch(stream, 6, 9)} {
		if b.Lane == stream {
			b.Beside = []freshet.Place{{Lane: history, Seq: 4}}
		}
		commit(t, next, b)
	}
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"),
		map[string][]int64{stream.String(): {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, history.String(): {0, 1, 2, 3, 4, 5, 6, 7}})
}
