package lake_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// logged are the rows of the log of deletes by the seq of the delete. One that is there twice is a fault.
func (w *world) logged(t *testing.T, table string) map[int64]item {
	t.Helper()
	out := map[int64]item{}
	snap := w.snapshot(t, lake.DeletedName(table))
	if snap == nil {
		return out
	}
	opts := &delta.ScanOptions{Columns: []string{"id", "n", "text", "at", "_deleted_seq", "_deleted_at"}}
	for rec, err := range snap.Scan(t.Context(), opts) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			it := item{id: rec.Column(0).(*array.Int64).Value(i), at: rec.Column(3).(*array.Int64).Value(i)}
			it.n, it.text = ptr(rec.Column(1).(*array.Int64).Value(i)), ptr(rec.Column(2).(*array.String).Value(i))
			seq := rec.Column(4).(*array.Int64).Value(i)
			if other, twice := out[seq]; twice {
				t.Fatalf("the delete %d is logged twice: %v and %v", seq, it, other)
			}
			if rec.Column(5).IsNull(i) {
				t.Errorf("the delete %d is logged without its time", seq)
			}
			out[seq] = it
		}
		rec.Release()
	}
	return out
}

func TestLogDeletes_RowsThatGo_AreKeptAside(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.LogDeletes}})
	commit(put(1, 10, 1), put(2, 20, 2))
	commit(del(1, 3), del(9, 4))
	half := put(2, 21, 5)
	half.text = nil
	commit(half, del(2, 6), put(2, 22, 7), put(3, 30, 8), del(3, 9))
	compareItems(t, w.items(t, "t"), map[int64]item{2: put(2, 22, 7).item})
	compareItems(t, w.logged(t, "t"), map[int64]item{2: put(1, 10, 1).item, 5: put(2, 21, 5).item, 8: put(3, 30, 8).item})
}

// A process dies at every call to its stores in turn, and another one goes on with batches that are cut otherwise.
func TestLogDeletes_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	const seed = 9
	t.Parallel()
	t.Logf("seed %d", seed)
	for _, sequence := range []bool{false, true} {
		t.Run(fmt.Sprint("sequence ", sequence), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			opts := lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.LogDeletes}}
			model := keyedModel{items: map[int64]item{}, ended: map[int64]int64{}, logged: map[int64]item{}}
			if sequence {
				opts, model.sequence = sequenced(lake.LogDeletes), true
			}
			var changes []itemChange
			for i := range 16 {
				c := randomChange(r, 4, r.Int64N(30)*100+int64(i), false)
				if r.IntN(3) == 0 {
					c = itemChange{kind: freshet.Delete, item: item{id: c.id, at: c.at}}
				}
				changes = append(changes, c)
				model.apply(c)
			}
			for at := 1; ; at++ {
				for _, after := range []bool{false, true} {
					w, dir := newWorld(), t.TempDir()
					m := &mortal{w: w, at: at, after: after}
					err := runChanges(t, m.open, opts, dir, changes, 4)
					if !m.dead {
						must(t, err)
						t.Logf("%d calls", at-1)
						return
					}
					if at%3 == 0 {
						must(t, os.RemoveAll(dir))
					}
					must(t, runChanges(t, w.open, opts, dir, changes, 7))
					compareItems(t, w.items(t, "t"), model.items)
					compareItems(t, w.logged(t, "t"), model.logged)
				}
			}
		})
	}
}

// What is logged does not depend on which changes a commit has together.
func TestLogDeletes_CommitsOfAnySize_LogTheSame(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 8))
		opts := lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.LogDeletes}}
		model := keyedModel{items: map[int64]item{}, ended: map[int64]int64{}, logged: map[int64]item{},
			waiting: map[int64][]itemChange{}}
		var changes []itemChange
		for i := range 80 {
			c := randomChange(r, 5, int64(i), true)
			changes = append(changes, c)
			model.apply(c)
		}
		for _, each := range []int{1, 3, 20, 80} {
			w := newWorld()
			must(t, runChanges(t, w.open, opts, t.TempDir(), changes, each))
			t.Logf("seed %d, %d changes a commit", seed, each)
			compareItems(t, w.logged(t, "t"), model.logged)
		}
	}
}
