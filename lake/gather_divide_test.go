package lake_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// spilledMode is a way to apply changes whose commits may be larger than memory.
type spilledMode struct {
	mode     lake.Mode
	deletes  lake.Deletes
	sequence bool
}

var spilledModes = []spilledMode{
	{lake.Mirror, lake.SoftDeletes, false}, {lake.Mirror, lake.LogDeletes, false}, {lake.Mirror, lake.IgnoreDeletes, false},
	{lake.Upsert, lake.HardDeletes, false}, {lake.Upsert, lake.SoftDeletes, false}, {lake.Upsert, lake.LogDeletes, false},
	{lake.Upsert, lake.IgnoreDeletes, false},
	{lake.Upsert, lake.HardDeletes, true}, {lake.Upsert, lake.SoftDeletes, true}, {lake.Upsert, lake.LogDeletes, true},
	{lake.Upsert, lake.IgnoreDeletes, true},
	{lake.SCD2, lake.HardDeletes, true}, {lake.SCD2, lake.IgnoreDeletes, true},
}

func (m spilledMode) String() string {
	name := fmt.Sprint(m.mode, " ", m.deletes)
	if m.sequence {
		name += " sequence"
	}
	return name
}

// options keep so many bytes in memory; 0: as many as by default.
func (m spilledMode) options(dir string, memory int64) *lake.TargetOptions {
	o := &lake.TargetOptions{Mode: m.mode, MemoryBytes: memory}
	o.Key = lake.KeyOptions{Columns: []string{"id"}, IndexDir: dir, Deletes: m.deletes}
	if m.sequence {
		o.Key.SequenceBy = []string{"at"}
	}
	return o
}

// changes are commits for a table of the mode: rows that come late and with equal sequences, moves of keys, deletes with and
// without a sequence.
func (m spilledMode) changes(rng *rand.Rand, commits, changes int) (all []said) {
	if !m.sequence {
		all, _ = large(rng, commits, changes)
		return all
	}
	for commit := range int64(commits) {
		var of []itemChange
		for range 1 + rng.IntN(changes) {
			at, n := 10*commit+rng.Int64N(16), rng.Int64N(3)
			row := item{id: rng.Int64N(30), n: ptr(n), text: ptr(fmt.Sprint("text ", n)), at: at}
			old := item{id: rng.Int64N(30), n: ptr(n), text: ptr("old"), at: at - rng.Int64N(4)}
			switch rng.IntN(10) {
			case 0:
				of = append(of, itemChange{freshet.Delete, item{id: row.id, at: at}})
			case 1:
				of = append(of, itemChange{freshet.Delete, item{id: row.id, at: unsent}})
			case 2: // the row comes under another key
				of = append(of, itemChange{freshet.UpdatePreimage, old}, itemChange{freshet.UpdatePostimage, row})
			case 3: // nobody knows when that was
				of = append(of, itemChange{freshet.UpdatePreimage, item{id: old.id, at: unsent}}, itemChange{freshet.UpdatePostimage, row})
			case 4:
				old.id = row.id
				of = append(of, itemChange{freshet.UpdatePreimage, old}, itemChange{freshet.UpdatePostimage, row})
			case 5:
				row.at = unsent
				of = append(of, itemChange{freshet.UpdatePreimage, old}, itemChange{freshet.UpdatePostimage, row})
			default:
				of = append(of, itemChange{freshet.UpdatePostimage, row})
			}
		}
		all = append(all, said{keyedLane, of})
	}
	return all
}

var deletedAt = regexp.MustCompile(`_deleted_at=[^(]\S*`)

// holds are all rows that a table of the mode has, with what lies beside it, as text.
func (m spilledMode) holds(t *testing.T, w *world) []string {
	t.Helper()
	columns := []string{"id", "n", "text", "at"}
	switch {
	case m.mode == lake.SCD2:
		columns = append(columns, "valid_from", "valid_to", "is_current", lake.LastSaidColumn, lake.AlsoSaidColumn)
	case m.deletes == lake.SoftDeletes:
		columns = append(columns, lake.DeletedAtColumn)
	}
	var all []string
	for _, row := range w.texts(t, "t", columns...) {
		all = append(all, deletedAt.ReplaceAllString(row, "deleted"))
	}
	if m.deletes == lake.LogDeletes && w.snapshot(t, lake.DeletedName("t")) != nil {
		for _, row := range w.texts(t, lake.DeletedName("t"), append(columns, "_deleted_seq", "_deleted_row")...) {
			all = append(all, "logged "+row)
		}
	}
	if m.sequence && m.mode == lake.Upsert && m.deletes != lake.IgnoreDeletes {
		all = append(all, fmt.Sprint("tombstones ", w.tombstones(t, "t")))
	}
	return append(all, fmt.Sprint("rejects ", w.rejects(t, "t")))
}

// Share by share or all at once makes no difference, however rows are ordered and whatever becomes of deletes.
func TestKeyed_CommitLargerThanMemory_AsIfInMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, mode := range spilledModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for round := range uint64(6) {
				all := mode.changes(rand.New(rand.NewPCG(seed, round)), 5, 50)
				var shown [2][]string
				for n, memory := range []int64{0, 150} {
					w := newWorld()
					must(t, tellSpilled(t.Context(), w.target(mode.options(t.TempDir(), memory)), all, rand.New(rand.NewPCG(seed, 7))))
					shown[n] = mode.holds(t, w)
				}
				sameTexts(t, fmt.Sprint("round ", round), shown[1], shown[0])
			}
		})
	}
}

// A process dies at every call to its stores in turn, and another one goes on.
func TestKeyed_CommitLargerThanMemory_CrashAtEveryStoreCall_AsWithout(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, mode := range []spilledMode{{lake.Mirror, lake.LogDeletes, false}, {lake.Upsert, lake.HardDeletes, true},
		{lake.Upsert, lake.LogDeletes, true}, {lake.SCD2, lake.HardDeletes, true}} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			all := mode.changes(rand.New(rand.NewPCG(seed, 0)), 2, 30)
			for i, s := range all { // what a process before wrote has no places for the next one, which tell equal sequences apart
				for k := range s.changes {
					if s.changes[k].at != unsent {
						s.changes[k].at = 2*s.changes[k].at + int64(i)
					}
				}
			}
			whole := newWorld()
			must(t, tellSpilled(t.Context(), whole.target(mode.options(t.TempDir(), 0)), all, rand.New(rand.NewPCG(seed, 1))))
			want := mode.holds(t, whole)
			for at := 1; ; at++ {
				w, dir := newWorld(), t.TempDir()
				m := &mortal{w: w, at: at, after: at%2 == 0}
				rng := rand.New(rand.NewPCG(seed, uint64(at)))
				err := tellSpilled(t.Context(), lake.NewTarget(m.open, app, mode.options(dir, 150)), all, rng)
				if !m.dead {
					must(t, err)
					t.Logf("%d calls", at-1)
					return
				}
				must(t, tellSpilled(t.Context(), w.target(mode.options(dir, 150)), all, rng))
				sameTexts(t, fmt.Sprint("crash at call ", at), mode.holds(t, w), want)
			}
		})
	}
}

// heldMost is how many bytes of objects were reachable at most when it was looked, above those of before.
type heldMost struct{ before, most int64 }

// look collects, so that garbage does not count, and takes note of what is left.
func (h *heldMost) look() {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if h.before == 0 {
		h.before = int64(stats.HeapAlloc)
	}
	h.most = max(h.most, int64(stats.HeapAlloc)-h.before)
}

// Of a commit that is larger than memory only a part is held, however rows are ordered and whatever becomes of deletes.
func TestKeyed_CommitLargerThanMemory_MemoryBounded(t *testing.T) {
	const keys, each, memory, long = 16_000, 1_000, 1 << 20, 2_500
	padding := strings.Repeat("x", long) // files that are open hold next to nothing of it
	for _, mode := range []spilledMode{{lake.Mirror, lake.LogDeletes, false}, {lake.Mirror, lake.IgnoreDeletes, false},
		{lake.Upsert, lake.HardDeletes, true}, {lake.SCD2, lake.HardDeletes, true}} {
		t.Run(mode.String(), func(t *testing.T) {
			root, held := t.TempDir(), &heldMost{}
			var looking sync.Mutex
			open := func(table string) (store.Store, error) { // each call is an occasion to look
				disk, err := store.NewDisk(root + "/" + table)
				return storetest.NewFaulty(disk, func(storetest.Op, string, int) storetest.Fault {
					looking.Lock()
					defer looking.Unlock()
					held.look()
					return storetest.Fault{}
				}), err
			}
			target := lake.NewTarget(open, app, mode.options(t.TempDir(), memory))
			must(t, target.Open(t.Context()))
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			last := int64(-1)
			for commit, kind := range []freshet.Kind{freshet.Insert, freshet.Delete} {
				for first := int64(0); first < keys; first += each {
					var changes []itemChange
					for id := first; id < first+each; id++ {
						row := item{id: id * 7919 % keys, n: ptr(id), text: ptr(fmt.Sprint(id, padding)), at: int64(commit)}
						changes = append(changes, itemChange{kind, row})
					}
					_, err := target.Write(t.Context(), itemBatch("t", keyedLane, last, changes))
					must(t, err)
					looking.Lock()
					held.look()
					looking.Unlock()
					last += each
				}
				commitAll(t, target)
			}
			t.Logf("%d MiB", held.most>>20)
			if rows := int64(keys * long); held.most > rows { // all at once they take three times as much
				t.Errorf("held %d bytes at once, want no more than the rows are, %d", held.most, rows)
			}
			must(t, target.Close(context.Background()))
		})
	}
}
