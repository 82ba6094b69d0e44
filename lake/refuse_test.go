package lake_test

import (
	"slices"
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// constrained is a keyed table whose n must not be negative, and what applies changes to it, one commit a call.
func constrained(t *testing.T, opts *lake.TargetOptions) (*world, func(...itemChange)) {
	t.Helper()
	w := newWorld()
	first := w.target(opts)
	must(t, first.Open(t.Context()))
	must(t, first.Ensure(t.Context(), "t", itemSchema))
	_, err := first.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	must(t, first.Close(t.Context()))
	_, err = w.snapshot(t, "t").Table().AddConstraint(t.Context(), "whole", "n >= 0", &delta.AlterOptions{Upgrade: true})
	must(t, err)
	target := w.running(t, opts)
	after := int64(-1)
	return w, func(changes ...itemChange) {
		t.Helper()
		_, err := target.Write(t.Context(), itemBatch("t", keyedLane, after, changes))
		must(t, err)
		after += int64(len(changes))
		commitAll(t, target)
	}
}

func sends(id int64, n *int64, text *string, at int64) itemChange {
	return itemChange{freshet.UpdatePostimage, item{id, n, text, at}}
}

// Of partial rows that make a row together, the one that breaks a rule is refused, and the others count.
func TestUpsert_OneOfAChainBreaksAConstraint_OthersCount(t *testing.T) {
	for name, c := range map[string]struct {
		chain    []itemChange
		want     string
		rejected []int64
	}{
		"the oldest":       {[]itemChange{sends(1, ptr(int64(-1)), nil, 2), sends(1, nil, ptr("c"), 3)}, "id=1 n=5 text=c at=3", []int64{1}},
		"the newest":       {[]itemChange{sends(1, nil, ptr("b"), 2), sends(1, ptr(int64(-1)), nil, 3)}, "id=1 n=5 text=b at=2", []int64{2}},
		"one between":      {[]itemChange{sends(1, nil, ptr("b"), 2), sends(1, ptr(int64(-1)), nil, 3), sends(1, nil, ptr("d"), 4)}, "id=1 n=5 text=d at=4", []int64{2}},
		"made good again":  {[]itemChange{sends(1, ptr(int64(-1)), nil, 2), sends(1, ptr(int64(7)), nil, 3)}, "id=1 n=7 text=a at=3", nil},
		"all, and a whole": {[]itemChange{sends(1, ptr(int64(-1)), nil, 2), sends(1, ptr(int64(-2)), ptr("x"), 3)}, "id=1 n=5 text=a at=1", []int64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w, commit := constrained(t, &lake.TargetOptions{Mode: lake.Upsert,
				Key: lake.KeyOptions{Columns: []string{"id"}, SequenceBy: []string{"at"}, IndexDir: t.TempDir()}})
			commit(sends(1, ptr(int64(5)), ptr("a"), 1))
			commit(c.chain...)
			sameTexts(t, "table", w.texts(t, "t", "id", "n", "text", "at"), []string{c.want})
			freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{keyedLane.String(): c.rejected})
		})
	}
}

// Of what was said of a key, a history takes all but what breaks a rule.
func TestSCD2_OneSayingBreaksAConstraint_OthersCount(t *testing.T) {
	w, commit := constrained(t, historyOptions(t.TempDir()))
	commit(sends(1, ptr(int64(5)), ptr("a"), 10))
	commit(sends(1, ptr(int64(6)), ptr("b"), 20), sends(1, ptr(int64(-1)), ptr("x"), 30), sends(1, ptr(int64(7)), ptr("c"), 40),
		sends(2, ptr(int64(-1)), ptr("x"), 50), sends(1, ptr(int64(-3)), ptr("y"), 15))
	sameTexts(t, "history", w.shown(t, "t"), []string{"1 a [10,20)", "1 b [20,40)", "1 c [40,) now"})
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{keyedLane.String(): {2, 4, 5}})
	all := w.texts(t, "t_quarantine", "code")
	if slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(s, string(freshet.CodeConstraint)) }) {
		t.Errorf("got the codes %v, want %s alone", all, freshet.CodeConstraint)
	}
}
