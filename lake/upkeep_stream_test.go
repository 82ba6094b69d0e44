package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// eager is upkeep that finds something to do all the time. done may be nil.
func eager(done func(freshet.Upkeep)) *lake.UpkeepOptions {
	return &lake.UpkeepOptions{Share: 1, SmallFiles: 2, Deleted: 0.05, Done: done}
}

// keyedStream commits random changes to a keyed table, and keeps what it should hold.
type keyedStream struct {
	t      *testing.T
	r      *rand.Rand
	target *lake.Target
	model  keyedModel
	last   int64
	trying []itemChange // of which it is not known whether they are committed
}

func newKeyedStream(t *testing.T, open lake.Opener, seed uint64, opts lake.TargetOptions) (*keyedStream, error) {
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	k := &keyedStream{t: t, r: rand.New(rand.NewPCG(seed, 3)), target: lake.NewTarget(open, app, &opts), last: -1,
		model: keyedModel{items: map[int64]item{}, waiting: map[int64][]itemChange{}, ended: map[int64]int64{}}}
	if err := k.target.Open(t.Context()); err != nil {
		return k, err
	}
	if err := k.target.Ensure(t.Context(), "t", itemSchema); err != nil {
		return k, err
	}
	_, err := k.target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	return k, err
}

// batch is a batch of changes of the 40 keys from first on.
func (k *keyedStream) batch(first int64) []itemChange {
	var batch []itemChange
	for range 1 + k.r.IntN(30) {
		c := randomChange(k.r, 40, (k.last+int64(len(batch))+1)<<20, false)
		c.id += first
		batch = append(batch, c)
	}
	return batch
}

// commit commits the changes; the model takes them when it has.
func (k *keyedStream) commit(batch []itemChange) error {
	b := itemBatch("t", keyedLane, k.last, batch)
	k.trying = batch
	if _, err := k.target.Write(k.t.Context(), b); err != nil {
		return err
	}
	commits, err := k.target.Seal(k.t.Context())
	if err != nil {
		return err
	}
	for _, c := range commits {
		if _, err := c.Run(k.t.Context()); err != nil {
			return err
		}
	}
	k.landed()
	return nil
}

func (k *keyedStream) landed() {
	k.last += int64(len(k.trying))
	for _, c := range k.trying {
		k.model.apply(c)
	}
	k.trying = nil
}

// goOn goes on with another target where the table is.
func (k *keyedStream) goOn(target *lake.Target) {
	k.t.Helper()
	k.target = target
	at, err := target.Resume(k.t.Context(), "t", []freshet.Lane{keyedLane})
	must(k.t, err)
	if at[keyedLane] != k.last {
		k.landed()
	}
	if at[keyedLane] != k.last {
		k.t.Fatalf("the table is at %d, want %d", at[keyedLane], k.last)
	}
}

// A foreign writer deletes rows of keys that the stream has left behind, and packs files, while it commits.
func TestUpkeep_BesideStreamAndForeignWriters_TableEqualsTheModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newWorld()
	var works atomic.Int64
	k, err := newKeyedStream(t, w.open, seed, lake.TargetOptions{Mode: lake.Mirror,
		Upkeep: eager(func(freshet.Upkeep) { works.Add(1) })})
	must(t, err)
	old := k.batch(1000)
	must(t, k.commit(old))
	turns := make(chan int)
	var foreign sync.WaitGroup
	foreign.Go(func() {
		d, err := delta.Open(t.Context(), w.store("t"), nil)
		for n := range turns {
			var where *expr.Expr
			switch {
			case err != nil:
			case n%8 == 0:
				_, err = d.Optimize(t.Context(), &delta.OptimizeOptions{MaxDeleted: 0.01})
			default:
				if where, err = expr.Parse(fmt.Sprintf("id = %d", 1000+n%40)); err == nil {
					_, err = d.Delete(t.Context(), where, nil)
				}
			}
		}
		if err != nil {
			t.Errorf("a foreign writer: %v", err)
		}
	})
	for n := range 60 {
		select {
		case turns <- n:
		default: // it is at it
		}
		must(t, k.commit(k.batch(0)))
	}
	close(turns)
	foreign.Wait()
	must(t, k.target.Close(context.Background()))
	got := w.items(t, "t")
	for _, items := range []map[int64]item{got, k.model.items} {
		for id := range items {
			if id >= 1000 {
				delete(items, id)
			}
		}
	}
	compareItems(t, got, k.model.items)
	if works.Load() == 0 {
		t.Error("upkeep has done nothing")
	}
}

// A run makes several hundred calls, of which every 41st is tried; FRESHET_UPKEEP_STRIDE=1 tries them all.
func TestUpkeep_CrashAtEveryStoreCall_TableEqualsTheModel(t *testing.T) {
	for at, done := 30, false; !done; at += int(number("FRESHET_UPKEEP_STRIDE", 41)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			m := &mortal{w: w, at: at, after: at%2 == 0}
			var works atomic.Int64
			k, err := newKeyedStream(t, m.open, 5, lake.TargetOptions{Mode: lake.Mirror,
				Upkeep: eager(func(freshet.Upkeep) { works.Add(1) })})
			for i := 0; err == nil && i < 12; i++ {
				if err = k.commit(k.batch(0)); err == nil {
					pass(time.Minute) // for upkeep
				}
			}
			if err != nil && !errors.Is(err, storetest.ErrCrashed) {
				t.Fatal(err)
			}
			closing, cancel := context.WithCancel(context.Background())
			cancel()
			_ = k.target.Close(closing)
			if done = !m.dead; done && works.Load() == 0 {
				t.Error("upkeep has done nothing")
			}
			if k.last < 0 {
				return // there was no table yet
			}
			k.goOn(w.running(t, &lake.TargetOptions{Mode: lake.Mirror, Upkeep: eager(nil),
				Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()}}))
			compareItems(t, w.items(t, "t"), k.model.items)
			for range 3 {
				must(t, k.commit(k.batch(0)))
				pass(15 * time.Minute) // the lease of the dead one ends
			}
			compareItems(t, w.items(t, "t"), k.model.items)
		})
	}
}

func TestUpkeep_ChangeFeed_ShowsNothingOfIt(t *testing.T) {
	for _, feed := range []string{"true", "false"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			k, err := newKeyedStream(t, w.open, 8, lake.TargetOptions{Mode: lake.Mirror, Upkeep: eager(nil),
				Properties: map[string]string{"delta.enableChangeDataFeed": feed}})
			must(t, err)
			for range 10 {
				must(t, k.commit(k.batch(0)))
				pass(time.Minute)
			}
			must(t, k.target.Close(context.Background()))
			snap := w.snapshot(t, "t")
			rewrites := 0
			for c, err := range snap.Table().Commits(t.Context(), 0, snap.Version()) {
				must(t, err)
				rewrite := false
				for _, a := range c.Actions {
					rewrite = rewrite || a.CommitInfo != nil && a.CommitInfo.Operation == "OPTIMIZE"
				}
				if !rewrite {
					continue
				}
				rewrites++
				for change, err := range snap.Table().Changes(t.Context(), c.Version, c.Version, nil) {
					must(t, err)
					t.Errorf("feed %s, version %d: got %d rows, want none", feed, c.Version, change.Batch.NumRows())
				}
			}
			if rewrites == 0 {
				t.Error("upkeep has done nothing")
			}
		})
	}
}

// A change with the sequence of the stored row, of the same lane, wins also after the row has moved to another file.
func TestUpkeep_EqualSequenceAfterRewrite_LaterRecordWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var works atomic.Int64
		k, err := newKeyedStream(t, w.open, 1, lake.TargetOptions{Mode: lake.Upsert,
			Key: lake.KeyOptions{SequenceBy: []string{"at"}}, Upkeep: eager(func(freshet.Upkeep) { works.Add(1) })})
		must(t, err)
		for n := range int64(4) {
			must(t, k.commit([]itemChange{put(n, 1, 7)}))
		}
		pass(time.Minute)
		if works.Load() == 0 {
			t.Fatal("upkeep has done nothing")
		}
		must(t, k.commit([]itemChange{put(0, 2, 7)}))
		must(t, k.target.Close(context.Background()))
		if got := *w.items(t, "t")[0].n; got != 2 {
			t.Errorf("got the row %d, want 2", got)
		}
		if got := len(w.rejects(t, "t")); got != 0 {
			t.Errorf("got %d rejects, want none", got)
		}
	})
}

func TestUpkeep_TableOfAnotherProcess_WaitsForItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var works atomic.Int64
		k, err := newKeyedStream(t, w.open, 2, lake.TargetOptions{Mode: lake.Mirror,
			Upkeep: eager(func(freshet.Upkeep) { works.Add(1) })})
		must(t, err)
		until := time.Now().Add(8 * time.Minute)
		must(t, w.store("t").Put(t.Context(), "_freshet/upkeep.json",
			fmt.Appendf(nil, `{"holder":"other","until":%q}`, until.UTC().Format(time.RFC3339Nano))))
		for range 4 {
			must(t, k.commit(k.batch(0)))
		}
		pass(7 * time.Minute)
		if works.Load() > 0 {
			t.Errorf("got %d pieces of work beside the other process, want none", works.Load())
		}
		pass(3 * time.Minute)
		if works.Load() == 0 {
			t.Error("nothing was done when the lease was over")
		}
		must(t, k.target.Close(context.Background()))
	})
}

// A pipeline that is ended and begun again, as each deployment does, has its tables looked after at once.
func TestUpkeep_ProcessThatEnded_NextNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var works atomic.Int64
		opts := lake.TargetOptions{Mode: lake.Mirror, Upkeep: eager(func(freshet.Upkeep) { works.Add(1) })}
		former := &keyedStream{}
		for turn := range 2 {
			k, err := newKeyedStream(t, w.open, uint64(turn), opts)
			must(t, err)
			if turn > 0 {
				k.model, k.last = former.model, former.last
			}
			works.Store(0)
			for range 4 {
				must(t, k.commit(k.batch(0)))
			}
			pass(2 * time.Minute)
			if works.Load() == 0 {
				t.Errorf("nothing was done by process %d within two minutes", turn+1)
			}
			must(t, k.target.Close(context.Background()))
			compareItems(t, w.items(t, "t"), k.model.items)
			former = k
		}
	})
}

// Runs that end when they have caught up, as cron begins them, have no time to look after tables but at their end.
func TestUpkeep_ShortRuns_TableStaysPacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		former := &keyedStream{}
		for turn := range 30 {
			opts := lake.TargetOptions{Mode: lake.Mirror, Upkeep: &lake.UpkeepOptions{Share: 0.001, SmallFiles: 4}}
			k, err := newKeyedStream(t, w.open, uint64(turn), opts)
			must(t, err)
			if turn > 0 {
				k.model, k.last = former.model, former.last
			}
			must(t, k.commit(k.batch(0)))
			k.target.Finish(t.Context())
			must(t, k.target.Close(context.Background()))
			former = k
		}
		compareItems(t, w.items(t, "t"), former.model.items)
		files, _ := w.partitions(t, "t")
		for _, n := range files {
			if n > 8 {
				t.Errorf("got %d files after 30 runs of one commit, want them packed", n)
			}
		}
	})
}

func TestUpkeep_FilesOlderThanAWeek_AreVacuumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		k, err := newKeyedStream(t, w.open, 2, lake.TargetOptions{Mode: lake.Mirror, Upkeep: eager(nil)})
		must(t, err)
		for range 9 {
			must(t, k.commit(k.batch(0)))
			pass(24 * time.Hour)
		}
		must(t, k.target.Close(context.Background()))
		compareItems(t, w.items(t, "t"), k.model.items)
		for _, key := range w.orphans(t, "t") {
			o, err := w.store("t").Stat(t.Context(), key)
			must(t, err)
			if age := time.Since(o.Modified); age > 9*24*time.Hour {
				t.Errorf("%s is %v old, and no version needs it", key, age)
			}
		}
	})
}

// The store does not answer in the middle of a rewrite; the target is told to close.
func TestUpkeep_Stop_EndsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		reached, release := make(chan struct{}), make(chan struct{})
		defer close(release)
		var once sync.Once
		var watching atomic.Bool
		open := func(table string) (store.Store, error) {
			return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, n int) storetest.Fault {
				if !watching.Load() || table != "t" || op != storetest.OpCreate {
					return storetest.Fault{}
				}
				once.Do(func() { close(reached) })
				return storetest.Fault{Kind: storetest.Slow, Release: release}
			}), nil
		}
		k, err := newKeyedStream(t, open, 2, lake.TargetOptions{Mode: lake.Mirror, Upkeep: eager(nil)})
		must(t, err)
		for range 4 {
			must(t, k.commit(k.batch(0)))
		}
		watching.Store(true)
		<-reached
		must(t, k.target.Close(context.Background()))
		compareItems(t, w.items(t, "t"), k.model.items)
	})
}
