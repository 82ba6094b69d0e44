package lake_test

import (
	"errors"
	"fmt"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// told is a saying of a history whose number n is not tracked.
func told(text string, n, at int64) itemChange {
	return itemChange{freshet.UpdatePostimage, item{1, ptr(n), ptr(text), at}}
}

// What changes columns alone that are not tracked changes the row that is there, in whatever order it comes.
func TestSCD2_SomeColumnsTracked_OthersBeginNoRow(t *testing.T) {
	for name, c := range map[string]struct {
		changes []itemChange
		want    []string
	}{
		"in place":         {[]itemChange{told("a", 1, 5), told("a", 2, 10)}, []string{"id=1 text=a n=2 valid_from=5 valid_to=(null)"}},
		"late, below":      {[]itemChange{told("a", 2, 10), told("a", 1, 5)}, []string{"id=1 text=a n=2 valid_from=5 valid_to=(null)"}},
		"tracked, then":    {[]itemChange{told("a", 1, 5), told("b", 1, 7), told("b", 3, 9)}, []string{"id=1 text=a n=1 valid_from=5 valid_to=7", "id=1 text=b n=3 valid_from=7 valid_to=(null)"}},
		"late, between":    {[]itemChange{told("a", 1, 5), told("a", 2, 10), told("b", 7, 8)}, []string{"id=1 text=a n=2 valid_from=10 valid_to=(null)", "id=1 text=a n=2 valid_from=5 valid_to=8", "id=1 text=b n=7 valid_from=8 valid_to=10"}},
		"the newest, anew": {[]itemChange{told("a", 1, 5), told("a", 4, 5)}, []string{"id=1 text=a n=4 valid_from=5 valid_to=(null)"}},
		"an old one, anew": {[]itemChange{told("a", 1, 5), told("a", 2, 9), told("a", 1, 5)}, []string{"id=1 text=a n=2 valid_from=5 valid_to=(null)"}},
	} {
		for _, by := range []string{"track", "ignore"} {
			t.Run(name+", "+by, func(t *testing.T) {
				opts := historyOptions(t.TempDir())
				if opts.Periods.Track = []string{"text"}; by == "ignore" {
					opts.Periods.Track, opts.Periods.Ignore = nil, []string{"n"}
				}
				w := newWorld()
				target := w.running(t, opts)
				must(t, target.Ensure(t.Context(), "t", itemSchema))
				_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
				must(t, err)
				for i, change := range c.changes {
					_, err := target.Write(t.Context(), itemBatch("t", keyedLane, int64(i)-1, []itemChange{change}))
					must(t, err)
					commitAll(t, target)
				}
				sameTexts(t, "history", w.texts(t, "t", "id", "text", "n", "valid_from", "valid_to"), c.want)
				if n := len(w.rejects(t, "t")); n > 0 {
					t.Errorf("got %d rejects, want none", n)
				}
			})
		}
	}
}

// What is tracked is part of the table's mode: another list must be confirmed.
func TestSCD2_OtherColumnsTracked_TableIsRefused(t *testing.T) {
	w, opts := newWorld(), historyOptions(t.TempDir())
	must(t, w.running(t, opts).Ensure(t.Context(), "t", itemSchema))
	opts.Periods.Track = []string{"text"}
	err := w.running(t, opts).Ensure(t.Context(), "t", itemSchema)
	if e := new(freshet.Error); !errors.As(err, &e) || e.Code != freshet.CodeModeChanged {
		t.Fatalf("got %v, want %s", err, freshet.CodeModeChanged)
	}
	opts.ModeBefore = "scd2 by id, ordered by at"
	must(t, w.running(t, opts).Ensure(t.Context(), "t", itemSchema))
}

// A key that is repeated without end has a list of its repeats that ends.
func TestSCD2_ManyRepeats_ListIsBounded(t *testing.T) {
	opts := historyOptions(t.TempDir())
	opts.Periods.Repeats = 3
	w := newWorld()
	target := w.running(t, opts)
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	var changes []itemChange
	for at := range int64(10) {
		changes = append(changes, told("a", 1, at))
	}
	for i, all := range [][]itemChange{changes[:6], changes[6:], {told("b", 1, 100), told("a", 1, 5)}} {
		_, err := target.Write(t.Context(), itemBatch("t", keyedLane, int64(i)*100-1, all))
		must(t, err)
		commitAll(t, target)
		_, err = lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{keyedLane: int64(i)*100 + 99}, nil)
		must(t, err)
	}
	sameTexts(t, "history", w.texts(t, "t", "text", "valid_from", "valid_to", lake.AlsoSaidColumn), []string{
		fmt.Sprintf("text=a valid_from=0 valid_to=100 %s=[7,8,9]", lake.AlsoSaidColumn),
		fmt.Sprintf("text=b valid_from=100 valid_to=(null) %s=(null)", lake.AlsoSaidColumn)})
}
