package lake_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
)

// moved is an update of the key from one to another that leaves the text out.
func moved(from, to, n, at int64) []itemChange {
	return []itemChange{{freshet.UpdatePreimage, item{id: from, at: unsent}},
		{freshet.UpdatePostimage, item{id: to, n: ptr(n), at: at}}}
}

func TestMirror_KeyMovesWithoutAColumn_RowKeepsIt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 12 {
		live := map[int64]item{}
		var all []said
		for range 12 {
			var changes []itemChange
			for range 1 + rng.IntN(12) {
				changes = append(changes, randomMove(rng, live)...)
			}
			all = append(all, said{keyedLane, changes})
		}
		w := newWorld()
		must(t, tell(t.Context(), w.target(keyedBy(t.TempDir())), all))
		if got, want := listed(w.items(t, "t")), listed(live); got != want {
			t.Fatalf("round %d:\ngot  %s\nwant %s", round, got, want)
		}
		if n := len(w.rejects(t, "t")); n > 0 {
			t.Errorf("round %d: got %d rows in quarantine, want none", round, n)
		}
	}
}

// randomMove is what a table of few keys may have happen to it next, of rows that it has or can have.
func randomMove(rng *rand.Rand, live map[int64]item) []itemChange {
	key, n := rng.Int64N(6), rng.Int64N(1000)
	have, is := live[key]
	to := rng.Int64N(6)
	_, taken := live[to]
	switch {
	case !is:
		live[key] = item{id: key, n: ptr(n), text: ptr(fmt.Sprint("text ", n)), at: n}
		return []itemChange{{freshet.Insert, live[key]}}
	case rng.IntN(5) == 0:
		delete(live, key)
		return []itemChange{{freshet.Delete, item{id: key, at: unsent}}}
	case rng.IntN(3) == 0 || taken && to != key:
		live[key] = item{id: key, n: ptr(n), text: have.text, at: n}
		return []itemChange{patch(key, n, n)}
	}
	delete(live, key)
	live[to] = item{id: to, n: ptr(n), text: have.text, at: n}
	return moved(key, to, n, n)
}

func listed(items map[int64]item) string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(items)) {
		all = append(all, items[id].String())
	}
	return strings.Join(all, "; ")
}

func TestMirror_KeyMovesOfARowThatIsNotThere_Waits(t *testing.T) {
	w := newWorld()
	must(t, tell(t.Context(), w.target(keyedBy(t.TempDir())), []said{{keyedLane, moved(1, 2, 7, 7)}}))
	if got, open := listed(w.items(t, "t")), len(w.rejects(t, "t")); got != "" || open != 1 {
		t.Errorf("got %q and %d in quarantine, want nothing and 1", got, open)
	}
}
