package lake_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// emptied is a TRUNCATE: a row of which nothing is sent.
func emptied() itemChange { return itemChange{freshet.Truncate, item{id: absentID, at: unsent}} }

func TestMirror_Truncate_AllRowsOfBeforeGo(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 8 {
		live := map[int64]item{}
		var all []said
		for range 10 {
			var changes []itemChange
			for range 1 + rng.IntN(10) {
				if rng.IntN(8) == 0 {
					clear(live)
					changes = append(changes, emptied())
					continue
				}
				changes = append(changes, randomMove(rng, live)...)
			}
			all = append(all, said{keyedLane, changes})
		}
		for _, feed := range []bool{false, true} {
			w := newWorld()
			o := keyedBy(t.TempDir())
			o.ChangeFeed = feed
			must(t, tell(t.Context(), w.target(o), all))
			if got, want := listed(w.items(t, "t")), listed(live); got != want {
				t.Fatalf("round %d, feed %v:\ngot  %s\nwant %s", round, feed, got, want)
			}
			if n := len(w.rejects(t, "t")); n > 0 {
				t.Errorf("round %d: got %d rows in quarantine, want none", round, n)
			}
		}
	}
}

// The last of a commit counts, also when nothing comes behind it.
func TestMirror_TruncateLast_TableIsEmpty(t *testing.T) {
	w := newWorld()
	all := []said{{keyedLane, []itemChange{whole(1, 1, "a", 1), whole(2, 2, "b", 2)}},
		{keyedLane, []itemChange{whole(3, 1, "c", 3), emptied()}}}
	must(t, tell(t.Context(), w.target(keyedBy(t.TempDir())), all))
	if got := listed(w.items(t, "t")); got != "" {
		t.Errorf("got %s, want no row", got)
	}
}

func TestMirror_TruncateWhereDeletedRowsAreKept_Quarantined(t *testing.T) {
	for _, policy := range []lake.Deletes{lake.SoftDeletes, lake.LogDeletes, lake.IgnoreDeletes} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld()
			o := keyedBy(t.TempDir())
			o.Key.Deletes = policy
			all := []said{{keyedLane, []itemChange{whole(1, 1, "a", 1), emptied(), whole(2, 2, "b", 2)}}}
			must(t, tell(t.Context(), w.target(o), all))
			got, open := fmt.Sprint(len(w.items(t, "t"))), w.rejects(t, "t")
			if got != "2" || len(open) != 1 {
				t.Errorf("got %s rows and %v in quarantine, want 2 and the TRUNCATE", got, open)
			}
		})
	}
}
