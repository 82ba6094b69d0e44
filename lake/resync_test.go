package lake_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// below is a folder of a store, as a store.
type below struct {
	in     store.Store
	folder string // with a slash behind it
}

func (b below) Get(ctx context.Context, key string) ([]byte, error) {
	return b.in.Get(ctx, b.folder+key)
}
func (b below) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	return b.in.ReadRange(ctx, b.folder+key, offset, length)
}
func (b below) Stat(ctx context.Context, key string) (store.Object, error) {
	o, err := b.in.Stat(ctx, b.folder+key)
	o.Key = key
	return o, err
}
func (b below) Put(ctx context.Context, key string, data []byte) error {
	return b.in.Put(ctx, b.folder+key, data)
}
func (b below) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return b.in.PutIfAbsent(ctx, b.folder+key, data)
}
func (b below) Create(ctx context.Context, key string) (store.Upload, error) {
	return b.in.Create(ctx, b.folder+key)
}
func (b below) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	if after != "" {
		after = b.folder + after
	}
	return func(yield func(store.Object, error) bool) {
		for o, err := range b.in.List(ctx, b.folder+prefix, after) {
			o.Key = strings.TrimPrefix(o.Key, b.folder)
			if !yield(o, err) {
				return
			}
		}
	}
}
func (b below) Delete(ctx context.Context, key string) error { return b.in.Delete(ctx, b.folder+key) }
func (b below) URL() string                                  { return b.in.URL() + "/" + b.folder }

// folders opens tables of the world, also those that lie in a folder of another.
func (w *world) folders(table string) (store.Store, error) {
	if outer, folder, is := strings.Cut(table, "/"); is {
		return below{w.store(outer), folder + "/"}, nil
	}
	return w.store(table), nil
}

var resyncSaid = []said{
	{keyedLane, []itemChange{whole(1, 1, "a", 1), whole(2, 2, "b", 2), patch(9, 1, 2)}},
	{otherLane, []itemChange{whole(3, 3, "c", 3), {freshet.Delete, item{id: 2, at: 9}}}},
}

var resyncItems = map[int64]item{1: whole(1, 1, "a", 1).item, 3: whole(3, 3, "c", 3).item}

const copyName = "t/resync-1"

// resyncOf loads the table t again by these stores.
func resyncOf(t *testing.T, open lake.Opener) *lake.Resync {
	t.Helper()
	r := &lake.Resync{App: app, Name: "t", CopyName: copyName, Plan: lake.ResyncPlan{Folder: "resync-1", Number: 1}}
	for table, into := range map[string]*store.Store{"t": &r.Main, copyName: &r.Copy, "t_quarantine": &r.Quarantine,
		copyName + "_quarantine": &r.CopyQuarantine} {
		st, err := open(table)
		must(t, err)
		*into = st
	}
	return r
}

// fill has the copy read all that was said.
func fill(t *testing.T, open lake.Opener, all []said) error {
	t.Helper()
	return tellTable(t.Context(), lake.NewTarget(open, app, keyedBy(t.TempDir())), copyName, all)
}

// load is all of a resync.
func load(t *testing.T, open lake.Opener, all []said) error {
	t.Helper()
	r := resyncOf(t, open)
	if err := r.Prepare(t.Context()); err != nil {
		return err
	}
	swapped, err := r.Swapped(t.Context())
	if err != nil {
		return err
	}
	if !swapped {
		if err := fill(t, open, all); err != nil {
			return err
		}
		if _, err := r.Swap(t.Context()); err != nil {
			return err
		}
	}
	if err := r.Settle(t.Context()); err != nil {
		return err
	}
	return r.Drop(t.Context(), t.TempDir())
}

// wrong is a table that has lost a row, and whose quarantine has an entry too many.
func wrong(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	must(t, tell(t.Context(), w.target(keyedBy(t.TempDir())), []said{
		{keyedLane, []itemChange{patch(1, 1, 1), whole(2, 2, "b", 2), patch(9, 1, 2)}}, resyncSaid[1]}))
	return w
}

func checkLoaded(t *testing.T, when string, w *world) {
	t.Helper()
	compareItems(t, w.items(t, "t"), resyncItems)
	if open := w.rejects(t, "t"); len(open) != 1 || open[0].Seq != 2 {
		t.Errorf("%s: got %v in quarantine, want the record that was not taken again", when, open)
	}
	for o, err := range w.store("t").List(t.Context(), "resync-1", "") {
		must(t, err)
		if strings.Contains(o.Key, "_delta_log") || strings.HasPrefix(o.Key, "resync-1_") {
			t.Errorf("%s: got %s, want nothing left but the table's files", when, o.Key)
		}
	}
}

// The call at which it dies is carried out or not, by turns.
func TestResync_CrashAtEveryStoreCall_WholeTableOrOldOne(t *testing.T) {
	for at := 1; ; at++ {
		w := wrong(t)
		m := &mortal{w: w, at: at, after: at%2 == 0}
		err := load(t, func(table string) (store.Store, error) {
			st, err := w.folders(table)
			return storetest.NewFaulty(st, m.rule), err
		}, resyncSaid)
		if !m.dead {
			must(t, err)
			checkLoaded(t, "no crash", w)
			t.Logf("%d calls", at-1)
			return
		}
		if rows := len(w.items(t, "t")); rows != 1 && rows != 2 {
			t.Errorf("crash at call %d: got %d rows, want those of before or of after", at, rows)
		}
		must(t, load(t, w.folders, resyncSaid))
		checkLoaded(t, "after the crash", w)
		if t.Failed() {
			t.Fatalf("crash at call %d", at)
		}
	}
}

func TestResync_AnotherCopyCommits_CaughtUpOrStale(t *testing.T) {
	w := wrong(t)
	r := resyncOf(t, w.folders)
	must(t, r.Prepare(t.Context()))
	must(t, fill(t, w.folders, resyncSaid))
	late := w.running(t, keyedBy(t.TempDir()))
	_, err := late.Resume(t.Context(), "t", []freshet.Lane{keyedLane, otherLane})
	must(t, err)
	put := func(lane freshet.Lane, after int64, c itemChange) freshet.Commit {
		_, err := late.Write(t.Context(), itemBatch("t", lane, after, []itemChange{c}))
		must(t, err)
		return sealed(t, late)
	}
	_, err = put(keyedLane, 2, whole(4, 4, "d", 4)).Run(t.Context())
	must(t, err)
	if _, err := r.Swap(t.Context()); !errors.Is(err, lake.ErrBehind) {
		t.Fatalf("got %v, want ErrBehind", err)
	}
	stale := put(otherLane, 1, whole(5, 5, "e", 5))
	more := append(resyncSaid[:2:2], said{keyedLane, []itemChange{whole(4, 4, "d", 4)}},
		said{otherLane, []itemChange{whole(5, 6, "of the copy", 5)}})
	must(t, fill(t, w.folders, more))
	_, err = r.Swap(t.Context())
	must(t, err)
	if _, err := stale.Run(t.Context()); !errors.Is(err, freshet.ErrStale) {
		t.Errorf("what was read before the swap: got %v, want ErrStale", err)
	}
	stale.Abort()
	if it := w.items(t, "t")[5]; it.String() != "5: 6 of the copy at 5" {
		t.Errorf("got %v, want the copy's row", it)
	}
}

func TestResync_OthersWriteTheTable_Refused(t *testing.T) {
	w := wrong(t)
	other := lake.NewTarget(w.open, "other", keyedBy(t.TempDir()))
	must(t, other.Open(t.Context()))
	lane := freshet.Lane{Origin: "x", OriginID: "x", Name: "0"}
	_, err := other.Start(t.Context(), "t", freshet.Progress{lane: -1})
	must(t, err)
	must(t, other.Close(context.Background()))
	var e *freshet.Error
	if _, err := lake.NewResyncPlan(t.Context(), w.store("t"), app, lake.ResyncPlan{}); !errors.As(err, &e) {
		t.Errorf("got %v, want an error that names the other", err)
	}
}
