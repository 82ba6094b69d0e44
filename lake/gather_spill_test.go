package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// spilling are the options of a mirror that keeps next to nothing in memory: each commit of several batches goes by the disk.
func spilling(dir string) *lake.TargetOptions {
	o := keyedBy(dir)
	o.MemoryBytes = 150
	return o
}

// tellSpilled is tell, but each of all is one commit of batches of a few changes each.
func tellSpilled(ctx context.Context, target *lake.Target, all []said, rng *rand.Rand) (err error) {
	defer func() { err = errors.Join(err, target.Close(context.WithoutCancel(ctx))) }()
	if err := target.Open(ctx); err != nil {
		return err
	}
	if err := target.Ensure(ctx, "t", itemSchema); err != nil {
		return err
	}
	at, err := target.Start(ctx, "t", freshet.Progress{keyedLane: -1})
	if err != nil {
		return err
	}
	next := int64(-1)
	for _, s := range all {
		after := next
		next += int64(len(s.changes))
		if at[keyedLane] > after {
			continue
		}
		for from := 0; from < len(s.changes); {
			to := min(from+1+rng.IntN(6), len(s.changes))
			for to < len(s.changes) && s.changes[to-1].kind == freshet.UpdatePreimage {
				to++
			}
			if _, err := target.Write(ctx, itemBatch("t", keyedLane, after+int64(from), s.changes[from:to])); err != nil {
				return err
			}
			from = to
		}
		commits, err := target.Seal(ctx)
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// large is a stream of commits for a mirror, and the rows that are there in the end. Some say all of their rows: then a
// commit can be taken share by share.
func large(rng *rand.Rand, commits, changes int) (all []said, live map[int64]item) {
	live = map[int64]item{}
	for range commits {
		var of []itemChange
		partial := rng.IntN(3) == 0
		for range 1 + rng.IntN(changes) {
			switch {
			case rng.IntN(4*changes) == 0:
				clear(live)
				of = append(of, emptied())
			case partial:
				of = append(of, randomMove(rng, live)...)
			default:
				of = append(of, wholeChange(rng, live)...)
			}
		}
		all = append(all, said{keyedLane, of})
	}
	return all, live
}

// wholeChange is what a table may have happen to it next, with all columns of each row.
func wholeChange(rng *rand.Rand, live map[int64]item) []itemChange {
	key, to, n := rng.Int64N(40), rng.Int64N(40), rng.Int64N(1000)
	_, is := live[key]
	_, taken := live[to]
	row := item{id: key, n: ptr(n), text: ptr(fmt.Sprint("text ", n)), at: n}
	switch {
	case is && rng.IntN(4) == 0:
		delete(live, key)
		return []itemChange{{freshet.Delete, item{id: key, at: unsent}}}
	case is && !taken && rng.IntN(3) == 0:
		delete(live, key)
		row.id = to
		live[to] = row
		return []itemChange{{freshet.UpdatePreimage, item{id: key, at: unsent}}, {freshet.UpdatePostimage, row}}
	case is && rng.IntN(4) == 0: // its old image is sent, too, as under REPLICA IDENTITY FULL
		old := live[key]
		live[key] = row
		return []itemChange{{freshet.UpdatePreimage, old}, {freshet.UpdatePostimage, row}}
	}
	live[key] = row
	return []itemChange{{freshet.UpdatePostimage, row}}
}

func TestMirror_CommitLargerThanMemory_TableIsTheSource(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 24 {
		all, live := large(rng, 6, 60)
		o := spilling(t.TempDir())
		o.ChangeFeed, o.Key.CopyOnWrite = round%2 == 0, round%3 == 0
		o.ChangeColumns = []string{"_position", "_ordinal"}
		w := newWorld()
		must(t, tellSpilled(t.Context(), w.target(o), all, rng))
		if got, want := listed(w.items(t, "t")), listed(live); got != want {
			t.Fatalf("round %d:\ngot  %s\nwant %s", round, got, want)
		}
		if n := len(w.rejects(t, "t")); n > 0 {
			t.Errorf("round %d: got %d rows in quarantine, want none", round, n)
		}
		if got, want := w.snapshot(t, "t").Version(), int64(len(all))+1; got > want {
			t.Errorf("round %d: got version %d, want at most %d: one commit each", round, got, want)
		}
	}
}

func TestMirror_CommitLargerThanMemory_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	all, live := large(rand.New(rand.NewPCG(seed, 0)), 3, 40)
	dir := t.TempDir()
	for at := 1; ; at++ {
		w := newWorld()
		m := &mortal{w: w, at: at, after: at%2 == 0}
		rng := rand.New(rand.NewPCG(seed, uint64(at)))
		err := tellSpilled(t.Context(), lake.NewTarget(m.open, app, spilling(dir)), all, rng)
		if !m.dead {
			must(t, err)
			t.Logf("%d calls", at-1)
			return
		}
		must(t, tellSpilled(t.Context(), w.target(spilling(dir)), all, rng))
		if got, want := listed(w.items(t, "t")), listed(live); got != want {
			t.Fatalf("crash at call %d:\ngot  %s\nwant %s", at, got, want)
		}
	}
}

// Rows that the table refuses, and rows without a key, are in quarantine whichever share they are in.
func TestMirror_CommitLargerThanMemory_RefusedRowsQuarantined(t *testing.T) {
	w := newWorld()
	_, err := delta.Create(t.Context(), w.store("t"), &delta.CreateOptions{Schema: &delta.Schema{Fields: []delta.Field{
		{Name: "id", Type: delta.Long, Nullable: true}, {Name: "n", Type: delta.Long, Nullable: true},
		{Name: "text", Type: delta.String, Nullable: true}, {Name: "at", Type: delta.Long, Nullable: true}}},
		Properties: map[string]string{"delta.constraints.plus": "n > 0", "delta.enableDeletionVectors": "true"}})
	must(t, err)
	var changes []itemChange
	want := map[int64]item{}
	for id := range int64(60) {
		n := int64(1)
		if id%7 == 3 {
			n = -1
		}
		c := itemChange{freshet.Insert, item{id: id, n: ptr(n), text: ptr("a"), at: id}}
		if changes = append(changes, c); n > 0 {
			want[id] = c.item
		}
	}
	changes = append(changes, itemChange{freshet.Insert, item{id: absentID, n: ptr(int64(1)), text: ptr("b"), at: 1}})
	must(t, tellSpilled(t.Context(), w.target(spilling(t.TempDir())), []said{{keyedLane, changes}},
		rand.New(rand.NewPCG(1, 2))))
	compareItems(t, w.items(t, "t"), want)
	if got := len(w.rejects(t, "t")); got != 61-len(want) {
		t.Errorf("got %d rows in quarantine, want %d", got, 61-len(want))
	}
}
