package lake_test

import (
	"slices"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// Two pipelines read the same topic, each into a table of its own, and share a quarantine. One of them crashes
// between its two commits. What the other has there is not its own.
func TestAppend_QuarantineIsShared_EachAppHasItsOwnEntries(t *testing.T) {
	lane := freshettest.Lane(0)
	q := store.NewMem()
	process := func(w *world, app string) *lake.Target {
		open := func(table string) (store.Store, error) {
			if table == "q" {
				return q, nil
			}
			return w.open(table)
		}
		a := lake.NewTarget(open, app, &lake.TargetOptions{Quarantine: func(string) string { return "q" }})
		must(t, a.Open(t.Context()))
		return a
	}
	one, two := newWorld(), newWorld()
	first := process(one, "one")
	start(t, first, freshet.Progress{lane: -1})
	commit(t, first, batch(lane, -1, 9, 5, 7))

	other := process(two, "two")
	start(t, other, freshet.Progress{lane: -1})
	gone := sealed(t, other, batch(lane, -1, 9, 2))
	broken := "_delta_log/00000000000000000002.json" // the crash
	must(t, two.store("t").Put(t.Context(), broken, []byte("{broken")))
	if _, err := gone.Run(t.Context()); err == nil {
		t.Fatal("got no error, want one from the damaged log")
	}
	must(t, two.store("t").Delete(t.Context(), broken))

	other = process(two, "two")
	start(t, other, freshet.Progress{lane: -1})
	commit(t, other, batch(lane, -1, 9, 2, 7)) // 5 is a row for it, and 7 is none any more

	entries, err := lake.OpenQuarantine(t.Context(), q, "")
	must(t, err)
	for _, filter := range []lake.Filter{{App: "one"}, {App: "two"}, {}} {
		var got []string
		for e, err := range entries.Entries(t.Context(), &filter) {
			must(t, err)
			got = append(got, e.App+" "+e.ID())
		}
		slices.Sort(got)
		var want []string
		if filter.App != "two" {
			want = append(want, "one o[0]@5", "one o[0]@7")
		}
		if filter.App != "one" {
			want = append(want, "two o[0]@2", "two o[0]@7")
		}
		if !slices.Equal(got, want) {
			t.Errorf("app %q: got %q, want %q", filter.App, got, want)
		}
	}
}
