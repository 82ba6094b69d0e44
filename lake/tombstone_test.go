package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func del(id, at int64) itemChange {
	return itemChange{kind: freshet.Delete, item: item{id: id, at: at}}
}

// sequenced are options of a table whose rows are ordered by at.
func sequenced(deletes lake.Deletes) lake.TargetOptions {
	return lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"at"}, Deletes: deletes}}
}

// tombstones are the sequences at which the tombstones table says that each key was deleted last.
func (w *world) tombstones(t *testing.T, table string) map[int64]int64 {
	t.Helper()
	out := map[int64]int64{}
	snap := w.snapshot(t, lake.TombstonesName(table))
	if snap == nil {
		return out
	}
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"id", "at"}}) {
		must(t, err)
		for i, id := range rec.Column(0).(*array.Int64).Int64Values() {
			at := rec.Column(1).(*array.Int64).Value(i)
			if old, there := out[id]; !there || at > old {
				out[id] = at
			}
		}
		rec.Release()
	}
	return out
}

func TestTombstones_RowsBelow_StayOut(t *testing.T) {
	w, commit := keyedTable(t, sequenced(lake.HardDeletes))
	commit(put(1, 10, 5), put(2, 20, 5))
	commit(del(1, 9), del(2, 9), del(3, 9), del(4, 2)) // 3 and 4 were never there
	commit(put(1, 11, 8), put(2, 21, 10), put(3, 31, 8), put(4, 41, 3))
	compareItems(t, w.items(t, "t"), map[int64]item{2: put(2, 21, 10).item, 4: put(4, 41, 3).item})
	if got := w.tombstones(t, "t"); fmt.Sprint(got) != "map[1:9 2:9 3:9 4:2]" {
		t.Errorf("got the tombstones %v, want those of all four deletes", got)
	}
}

func TestTombstones_DeleteWithoutSequence_HasThatOfTheRow(t *testing.T) {
	w, commit := keyedTable(t, sequenced(lake.HardDeletes))
	commit(put(1, 10, 5))
	commit(del(1, unsent))
	commit(put(1, 11, 4))
	compareItems(t, w.items(t, "t"), map[int64]item{})
	commit(put(1, 12, 5)) // later in the same lane
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 12, 5).item})
}

func TestTombstones_OfAnotherKeyOrSequence_AreRefused(t *testing.T) {
	w, commit := keyedTable(t, sequenced(lake.HardDeletes))
	commit(put(1, 10, 5), del(2, 9))
	for name, key := range map[string]lake.KeyOptions{
		"key":      {Columns: []string{"n"}, SequenceBy: []string{"at"}},
		"sequence": {Columns: []string{"id"}, SequenceBy: []string{"n"}},
	} {
		key.IndexDir = t.TempDir()
		before := w.snapshot(t, "t").Property("freshet.mode")
		target := w.running(t, &lake.TargetOptions{Mode: lake.Upsert, ModeBefore: before, Key: key})
		_, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
		must(t, err)
		must(t, target.Ensure(t.Context(), "t", itemSchema))
		_, err = target.Write(t.Context(), itemBatch("t", keyedLane, 1, []itemChange{put(1, 11, 6)}))
		must(t, err)
		commits, err := target.Seal(t.Context())
		must(t, err)
		_, err = commits[0].Run(t.Context())
		commits[0].Abort()
		var e *freshet.Error
		if !errors.As(err, &e) || e.Code != freshet.CodeSchemaMismatch || e.Place != lake.TombstonesName("t") || e.Fix == "" {
			t.Errorf("another %s: got %v, want %s of the tombstones with a remedy", name, err, freshet.CodeSchemaMismatch)
		}
	}
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 5).item})
}

// forget deletes a table.
func (w *world) forget(t *testing.T, table string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stores, table)
}

func TestTombstones_TheirTableIsGone_StopsBeforeAKeyComesBack(t *testing.T) {
	for _, again := range []bool{false, true} {
		w, dir := newWorld(), t.TempDir()
		life := func(beside string, after int64, c itemChange) error {
			opts := sequenced(lake.HardDeletes)
			opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, dir
			opts.Key.Tombstones.Table = func(string) string { return beside }
			target := w.target(&opts)
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			_, err = target.Write(t.Context(), itemBatch("t", keyedLane, after, []itemChange{c}))
			must(t, err)
			commits, err := target.Seal(t.Context())
			must(t, err)
			if _, err = commits[0].Run(t.Context()); err != nil {
				commits[0].Abort()
			}
			return errors.Join(err, target.Close(t.Context()))
		}
		must(t, life("gone", -1, del(1, 9)))
		w.forget(t, "gone")
		if again { // by somebody
			_, err := delta.Create(t.Context(), w.store("gone"), &delta.CreateOptions{Schema: w.snapshot(t, "t").Schema()})
			must(t, err)
		}
		var e *freshet.Error
		if err := life("gone", 0, put(1, 10, 5)); !errors.As(err, &e) || e.Code != freshet.CodeBesideGone || e.Place != "gone" {
			t.Errorf("made again %v: got %v, want %s", again, err, freshet.CodeBesideGone)
		}
		must(t, life("new", 0, put(1, 10, 5))) // which accepts it
		compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 5).item})
	}
}

func TestTombstones_SoftDelete_OlderRowDoesNotBringItBack(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("index lost ", lost), func(t *testing.T) {
			w, dir := newWorld(), t.TempDir()
			opts := sequenced(lake.SoftDeletes)
			opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, dir
			life := func(after int64, changes ...itemChange) {
				target := w.target(&opts)
				must(t, target.Open(t.Context()))
				must(t, target.Ensure(t.Context(), "t", itemSchema))
				_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
				must(t, err)
				_, err = target.Write(t.Context(), itemBatch("t", keyedLane, after, changes))
				must(t, err)
				commitAll(t, target)
				must(t, target.Close(context.Background()))
				if lost {
					must(t, os.RemoveAll(dir))
				}
			}
			life(-1, put(1, 10, 5))
			life(0, del(1, 9), del(2, 9))
			life(2, put(1, 11, 8), put(2, 20, 8))
			if got := w.items(t, "t"); len(got) != 1 || *got[1].n != 10 || got[1].at != 9 {
				t.Errorf("got %v, want the deleted row of 1 at 9", got)
			}
			if where := w.count(t, "t", "_deleted_at IS NOT NULL"); where != 1 {
				t.Errorf("got %d deleted rows, want 1", where)
			}
			life(4, put(1, 12, 10), put(2, 21, 10))
			compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 12, 10).item, 2: put(2, 21, 10).item})
		})
	}
}

func TestTombstones_EqualSequenceOfTwoLanes_DeleteCounts(t *testing.T) {
	other := freshet.Lane{Origin: "orders", OriginID: "a", Name: "1"}
	for name, order := range map[string][][]itemChange{
		"together":     {{put(1, 10, 5), del(1, 5)}},
		"row first":    {{put(1, 10, 5)}, {del(1, 5)}},
		"delete first": {{del(1, 5)}, {put(1, 10, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			opts := sequenced(lake.HardDeletes)
			opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
			target := w.running(t, &opts)
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, other: -1})
			must(t, err)
			for _, changes := range order {
				for _, c := range changes {
					lane := keyedLane
					if c.kind == freshet.Delete {
						lane = other
					}
					_, err := target.Write(t.Context(), itemBatch("t", lane, -1, []itemChange{c}))
					must(t, err)
				}
				commitAll(t, target)
			}
			compareItems(t, w.items(t, "t"), map[int64]item{})
			if rejects := w.rejects(t, "t"); len(rejects) > 0 {
				t.Errorf("got rejects %v, want none", rejects)
			}
		})
	}
}

// A process dies at every call to its stores in turn, and another one goes on with batches that are cut otherwise.
func TestTombstones_CrashAtEveryStoreCall_TableEqualsTheModel(t *testing.T) {
	const seed = 5
	t.Parallel()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var changes []itemChange
	model := keyedModel{items: map[int64]item{}, ended: map[int64]int64{}, sequence: true}
	for range 30 {
		changes = append(changes, randomChange(r, 6, r.Int64N(40), false))
	}
	for i := range changes { // sequences that differ, so that lanes do not matter
		changes[i].at = changes[i].at*100 + int64(i)
		model.apply(changes[i])
	}
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w, dir := newWorld(), t.TempDir()
			m := &mortal{w: w, at: at, after: after}
			err := runChanges(t, m.open, sequenced(lake.HardDeletes), dir, changes, 7)
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			if at%3 == 0 {
				must(t, os.RemoveAll(dir))
			}
			must(t, runChanges(t, w.open, sequenced(lake.HardDeletes), dir, changes, 11))
			compareItems(t, w.items(t, "t"), model.items)
			if got := w.tombstones(t, "t"); fmt.Sprint(got) != fmt.Sprint(model.ended) {
				t.Fatalf("crash at call %d, after it: %v: got the tombstones %v, want %v", at, after, got, model.ended)
			}
		}
	}
}

// runChanges is a life of a process that takes changes from where the table stands, so many a commit.
func runChanges(t *testing.T, open lake.Opener, opts lake.TargetOptions, dir string, changes []itemChange, each int) (
	err error) {
	t.Helper()
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, dir
	target := lake.NewTarget(open, app, &opts)
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, target.Close(ctx))
	}()
	if err := target.Ensure(t.Context(), "t", itemSchema); err != nil {
		return err
	}
	have, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	if err != nil {
		return err
	}
	if _, known := have[keyedLane]; !known {
		if have, err = target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1}); err != nil {
			return err
		}
	}
	for last := have[keyedLane]; last+1 < int64(len(changes)); {
		n := min(last+1+int64(each), int64(len(changes)))
		if _, err := target.Write(t.Context(), itemBatch("t", keyedLane, last, changes[last+1:n])); err != nil {
			return err
		}
		last = n - 1
		commits, err := target.Seal(t.Context())
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(t.Context()); err != nil {
				c.Abort()
				return err
			}
		}
	}
	return nil
}

// Two processes take two lanes with the same keys. One decides that a row may come, and freezes; the other deletes the key
// at a greater sequence, which leaves no trace in the table's files; the first thaws.
func TestTombstones_DeleteLandsWhileARowIsOnItsWay_RowStaysOut(t *testing.T) {
	w := newWorld()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	opts := sequenced(lake.HardDeletes)
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	slow := lake.NewTarget(func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
			if table != "t" || op != storetest.OpPutIfAbsent || key != "_delta_log/00000000000000000002.json" {
				return storetest.Fault{}
			}
			close(frozen)
			return storetest.Fault{Kind: storetest.Slow, Release: thaw}
		}), nil
	}, app, &opts)
	result := w.overtaken(t, slow, frozen, opts, []itemChange{put(1, 10, 5)}, del(1, 9))
	close(thaw)
	must(t, <-result)
	compareItems(t, w.items(t, "t"), map[int64]item{})
}

// As above, but the key that is deleted meanwhile is another one: the row lands as it was written first.
func TestTombstones_DeleteOfAnotherKeyLandsMeanwhile_NothingIsWrittenAnew(t *testing.T) {
	w := newWorld()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var files atomic.Int64
	opts := sequenced(lake.HardDeletes)
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	slow := lake.NewTarget(func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
			switch {
			case table == "t" && path.Ext(key) == ".parquet" && !strings.HasPrefix(key, "_") && op != storetest.OpGet && op != storetest.OpReadRange &&
				op != storetest.OpDelete:
				files.Add(1)
			case table == "t" && op == storetest.OpPutIfAbsent && key == "_delta_log/00000000000000000002.json":
				close(frozen)
				return storetest.Fault{Kind: storetest.Slow, Release: thaw}
			}
			return storetest.Fault{}
		}), nil
	}, app, &opts)
	result := w.overtaken(t, slow, frozen, opts, []itemChange{put(1, 10, 5), del(3, 6)}, del(2, 9))
	wrote := files.Load()
	close(thaw)
	must(t, <-result)
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 5).item})
	if again := files.Load(); again != wrote || wrote == 0 {
		t.Errorf("got %d calls for data files before the other's commit, and %d after it, want as many", wrote, again)
	}
	must(t, write(t, slow, itemBatch("t", keyedLane, 1, []itemChange{put(2, 20, 8), put(3, 30, 5)})))
	commitAll(t, slow) // which has seen both
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 5).item})
}

// Files that lose rows are rewritten, and what is remembered of deleted keys is not read again for it.
func TestTombstones_CopyOnWrite_AreReadOnce(t *testing.T) {
	w := newWorld()
	var reads atomic.Int64
	opts := sequenced(lake.HardDeletes)
	opts.Key.Columns, opts.Key.IndexDir, opts.Key.CopyOnWrite = []string{"id"}, t.TempDir(), true
	target := lake.NewTarget(func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
			if table == lake.TombstonesName("t") && path.Ext(key) == ".parquet" && (op == storetest.OpGet || op == storetest.OpReadRange) {
				reads.Add(1)
			}
			return storetest.Fault{}
		}), nil
	}, app, &opts)
	t.Cleanup(func() { must(t, target.Close(context.Background())) })
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	for i, changes := range [][]itemChange{{put(1, 10, 1), put(2, 20, 2), put(3, 30, 3)}, {del(1, 9), put(2, 21, 9)},
		{put(1, 11, 5), put(3, 31, 9)}, {del(2, 12)}, {put(2, 22, 11), put(1, 12, 10)}} {
		after := []int64{-1, 2, 4, 6, 7}[i]
		must(t, write(t, target, itemBatch("t", keyedLane, after, changes)))
		commitAll(t, target)
	}
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 12, 10).item, 3: put(3, 31, 9).item})
	if n := reads.Load(); n > 0 {
		t.Errorf("got %d reads of tombstones, want none: all are its own", n)
	}
}

func TestTombstones_MoreThanAreKept_TheOldestGo(t *testing.T) {
	w := newWorld()
	opts := sequenced(lake.HardDeletes)
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	opts.Key.Tombstones.KeepCount = 10
	life := func(from, to int64) {
		target := w.target(&opts)
		must(t, target.Ensure(t.Context(), "t", itemSchema))
		_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
		must(t, err)
		for id := from; id < to; id++ {
			_, err := target.Write(t.Context(), itemBatch("t", keyedLane, id-1, []itemChange{del(id, id)}))
			must(t, err)
			commitAll(t, target)
		}
		must(t, target.Close(context.Background())) // which waits for the pruning
	}
	life(0, 64)
	if got := w.tombstones(t, "t"); len(got) != 10 || got[54] != 54 {
		t.Errorf("got the tombstones %v, want the ten from 54 on", got)
	}
	target := w.running(t, &opts)
	late := []itemChange{put(5, 50, 3), put(60, 600, 30)}
	_, err := target.Write(t.Context(), itemBatch("t", keyedLane, 63, late))
	must(t, err)
	commitAll(t, target)
	compareItems(t, w.items(t, "t"), map[int64]item{5: late[0].item})
}

// overtaken has a target commit changes to the table t, and another one of these options a change of otherLane once the first is
// frozen. It returns what becomes of the first.
func (w *world) overtaken(t *testing.T, slow *lake.Target, frozen <-chan struct{}, opts lake.TargetOptions, changes []itemChange,
	meanwhile itemChange) <-chan error {
	t.Helper()
	t.Cleanup(func() { must(t, slow.Close(context.Background())) })
	must(t, slow.Ensure(t.Context(), "t", itemSchema))
	_, err := slow.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, otherLane: -1})
	must(t, err)
	_, err = slow.Write(t.Context(), itemBatch("t", keyedLane, -1, changes))
	must(t, err)
	commits, err := slow.Seal(t.Context())
	must(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := commits[0].Run(t.Context())
		result <- err
	}()
	<-frozen
	opts.Key.IndexDir = t.TempDir()
	fast := w.running(t, &opts)
	_, err = fast.Resume(t.Context(), "t", []freshet.Lane{otherLane})
	must(t, err)
	_, err = fast.Write(t.Context(), itemBatch("t", otherLane, -1, []itemChange{meanwhile}))
	must(t, err)
	commitAll(t, fast)
	return result
}
