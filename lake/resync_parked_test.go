package lake_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// A change log was parked when its table was loaded again: what was parked up to the place of the copy comes first, then what that did
// to rows, then the rest. So the log makes the table also in the order of its commits, whatever call to a store is the last one.
func TestResync_LogWasParked_CrashAtEveryStoreCall_LogReplaysToTheTable(t *testing.T) {
	const seed = 27
	t.Logf("seed %d", seed)
	for at := range someCalls(t) {
		w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
		all := sayLanes(r, twoLanes(), 9)
		wrong := all.misread(r)
		must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t)), "t", wrong.first(2)))
		must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t, "t_log")), "t", wrong.first(4)))
		w.resync(t, keyedBy(t.TempDir()), 1, all.first(6))
		must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t, "t_log")), "t", all.first(8)))
		m := &mortal{w: w, at: at, after: at%2 == 0}
		open := func(table string) (store.Store, error) {
			st, err := w.folders(table)
			return storetest.NewFaulty(st, m.rule), err
		}
		err := tellLanes(t.Context(), logged(open, keyedParking(t)), "t", all)
		when := fmt.Sprintf("killed at call %d", at)
		if !m.dead {
			must(t, err)
			when = "not killed"
		} else if err != nil && !errors.Is(err, storetest.ErrCrashed) {
			t.Fatalf("%s: got %v", when, err)
		}
		must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t)), "t", all))
		w.checkReplays(t, when, "t", "t_log", "TRUE")
		compareItems(t, w.items(t, "t"), all.makes())
		if !m.dead {
			t.Logf("%d calls", at-1)
			return
		}
	}
}

// Who loads the table again tells the log of it at once, and leaves to the pipeline what was parked behind the place of the copy.
func TestResync_LogIsParkedMeanwhile_ToldBehindWhatWasParkedBefore(t *testing.T) {
	const seed = 28
	t.Logf("seed %d", seed)
	w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
	all := sayLanes(r, oneLane(), 20)
	must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t)), "t", all.misread(r).first(5)))
	w.fillCopy(t, keyedBy(t.TempDir()), 1, all.first(12))
	must(t, tellLanes(t.Context(), logged(w.folders, keyedParking(t, "t", "t_log")), "t", all.first(16)))
	_, err := loggedResync(t, w.folders, 1).Swap(t.Context())
	must(t, err)
	g := logged(w.folders, keyedParking(t))
	must(t, g.SettleResync(t.Context(), "t"))
	must(t, g.Close(t.Context()))
	rows, told := w.logRows(t, "t_log"), 0
	for _, row := range rows {
		if row.version > 11 {
			t.Fatalf("got %+v before the pipeline goes on, want nothing from behind the swap", row)
		}
		if row.tx == "resync-1" {
			told++
		}
	}
	if told == 0 || len(rows)-told < 12 {
		t.Errorf("got %d rows of the resync and %d others, want some, and those of all 12 changes before it", told, len(rows)-told)
	}
	w.checkReplays(t, "told", "t", "t_log", "TRUE")
}
