package lake_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// A table to which nothing comes gets no versions: the cut says how far it is, and the next process goes on from there.
func TestCut_IdleTable_GetsNoVersions(t *testing.T) {
	const seed = 31
	w, o := newWorld(), freshettest.NewOrigin(2)
	o.Fill(4)
	must(t, cutting(o, seed, w.target(withCuts), 3).Run(t.Context()))
	before := w.snapshot(t, "t1").Version()
	for range 3 {
		for range 5 {
			o.Append(freshettest.Lane(0), 0, freshettest.GoodRecord)
			o.Append(freshettest.Lane(1), 0, freshettest.EmptyRecord)
		}
		must(t, cutting(o, seed, w.target(withCuts), 3).Run(t.Context()))
	}
	if got := w.snapshot(t, "t1").Version(); got != before {
		t.Errorf("the idle table is at version %d, want %d as before", got, before)
	}
	idle := freshettest.Lane(1)
	at := w.resumed(t, "t1", idle)
	if want := lastOf(o, 1); at[idle] != want {
		t.Errorf("the idle table goes on after %d, want %d: a cut says that it holds all up to there", at[idle], want)
	}
	all, err := lake.ReadProgress(t.Context(), w.store("t1"))
	must(t, err)
	must(t, lake.AddCuts(t.Context(), w.store("t1"), all, w.cutsOf))
	for _, l := range all[0].Lanes {
		if want := lastOf(o, 1); l.Lane == idle && (l.Seq != want || l.Cut == 0 || l.Txn >= want) {
			t.Errorf("got %+v, want %d by a cut, and less by the txn", l, want)
		}
	}
	o.Append(idle, 0, freshettest.GoodRecord)
	must(t, cutting(o, seed, w.target(withCuts), 3).Run(t.Context()))
	rows, _ := o.Want()
	freshettest.CheckOnce(t, "rows", w.rowsIn(t, "t0", "t1"), rows)
	w.checkCuts(t, "at the end", o)
	w.checkLastCut(t, "at the end")
}

// resumed is where a new process goes on with a lane.
func (w *world) resumed(t *testing.T, table string, l freshet.Lane) freshet.Progress {
	t.Helper()
	at, err := w.running(t, withCuts).Resume(t.Context(), table, []freshet.Lane{l})
	must(t, err)
	return at
}

// Who sets the progress of a table means it, whatever cuts said.
func TestCut_IdleTableSetBack_GoesOnFromThere(t *testing.T) {
	const seed = 32
	w, o := newWorld(), freshettest.NewOrigin(2)
	o.Fill(4)
	must(t, cutting(o, seed, w.target(withCuts), 9).Run(t.Context()))
	o.Append(freshettest.Lane(0), 0, freshettest.GoodRecord)
	o.Append(freshettest.Lane(1), 0, freshettest.EmptyRecord)
	must(t, cutting(o, seed, w.target(withCuts), 9).Run(t.Context()))
	idle := freshettest.Lane(1)
	if at := w.resumed(t, "t1", idle); at[idle] != 4 {
		t.Fatalf("got %v, want to go on after 4", at)
	}
	_, err := lake.SetProgress(t.Context(), w.store("t1"), app, freshet.Progress{idle: 1}, nil)
	must(t, err)
	if at := w.resumed(t, "t1", idle); at[idle] != 1 {
		t.Errorf("set back to 1: got %v, want to go on after 1", at)
	}
}
