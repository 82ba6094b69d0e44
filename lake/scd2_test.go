package lake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// historyOf is what a history must show of these changes, however they came: an independent account in 30 lines. Each row
// is "id text [from,to)", and "now" behind the current one.
func historyOf(changes []itemChange) []string {
	byKey := map[int64]map[int64]itemChange{}
	for _, c := range changes {
		if byKey[c.id] == nil {
			byKey[c.id] = map[int64]itemChange{}
		}
		byKey[c.id][c.at] = c
	}
	var out []string
	for id, all := range byKey {
		var at []int64
		for s := range all {
			at = append(at, s)
		}
		slices.Sort(at)
		for i := 0; i < len(at); {
			c, n := all[at[i]], i+1
			for n < len(at) && all[at[n]].kind != freshet.Delete && c.kind != freshet.Delete && *all[at[n]].text == *c.text {
				n++
			}
			switch {
			case c.kind == freshet.Delete:
			case n == len(at):
				out = append(out, fmt.Sprintf("%d %s [%d,) now", id, *c.text, at[i]))
			default:
				out = append(out, fmt.Sprintf("%d %s [%d,%d)", id, *c.text, at[i], at[n]))
			}
			i = n
		}
	}
	slices.Sort(out)
	return out
}

// shown are the rows of a history that hold for a time, as historyOf gives them. Rows that hold for none are of keys that
// were deleted before anything else is known of them.
func (w *world) shown(t *testing.T, table string) []string {
	t.Helper()
	var out []string
	opts := &delta.ScanOptions{Columns: []string{"id", "text", "valid_from", "valid_to", "is_current", "at"}}
	for rec, err := range w.snapshot(t, table).Scan(t.Context(), opts) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			long := func(c int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
			row := fmt.Sprintf("%d %s [%d,", long(0), rec.Column(1).ValueStr(i), long(2))
			now := rec.Column(4).(*array.Boolean).Value(i)
			switch {
			case rec.Column(3).IsNull(i):
				row += ")"
			case long(3) == long(2):
				continue
			default:
				row += fmt.Sprint(long(3)) + ")"
			}
			if now {
				row += " now"
			}
			if long(5) != long(2) {
				t.Errorf("%s: got the sequence %d, want that of its beginning", row, long(5))
			}
			out = append(out, row)
		}
		rec.Release()
	}
	slices.Sort(out)
	return out
}

func historyOptions(dir string) *lake.TargetOptions {
	return &lake.TargetOptions{Mode: lake.SCD2,
		Key: lake.KeyOptions{Columns: []string{"id"}, SequenceBy: []string{"at"}, IndexDir: dir}}
}

func is(id int64, text string, at int64) itemChange {
	return itemChange{freshet.UpdatePostimage, item{id, ptr(int64(1)), ptr(text), at}}
}

func gone(id, at int64) itemChange { return itemChange{freshet.Delete, item{id, nil, nil, at}} }

// A table that is a history to one run and none to another would be spoilt without a word.
func TestSCD2_ModeOrColumnsChanged_TableIsRefused(t *testing.T) {
	plain := &lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{Columns: []string{"id"}, SequenceBy: []string{"at"}}}
	renamed := historyOptions("")
	renamed.Periods.From = "since"
	for name, c := range map[string]struct{ first, then *lake.TargetOptions }{
		"one row a key of a history": {historyOptions(""), plain},
		"a history of plain rows":    {plain, historyOptions("")},
		"other names":                {historyOptions(""), renamed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for _, o := range []*lake.TargetOptions{c.first, c.then} {
				o.Key.IndexDir = t.TempDir()
			}
			target := w.running(t, c.first)
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{is(1, "a", 5)}))
			must(t, err)
			commitAll(t, target)
			err = w.running(t, c.then).Ensure(t.Context(), "t", itemSchema)
			var e *freshet.Error
			if !errors.As(err, &e) || e.Code != freshet.CodeSchemaMismatch || e.Fix == "" {
				t.Errorf("got %v, want %s with a remedy", err, freshet.CodeSchemaMismatch)
			}
			must(t, w.running(t, c.first).Ensure(t.Context(), "t", itemSchema))
		})
	}
}

// The example of Spark's AUTO CDC, and others, each change in a commit of its own.
func TestSCD2_Changes_History(t *testing.T) {
	for name, c := range map[string]struct {
		changes []itemChange
		want    []string
	}{
		"late splits a run": {[]itemChange{is(1, "Alice", 5), is(1, "Alice", 10), is(1, "Alice", 15), is(1, "Charlie", 20),
			is(1, "Bob", 12)}, []string{"1 Alice [15,20)", "1 Alice [5,12)", "1 Bob [12,15)", "1 Charlie [20,) now"}},
		"late before all":     {[]itemChange{is(1, "b", 5), is(1, "a", 3)}, []string{"1 a [3,5)", "1 b [5,) now"}},
		"late and the same":   {[]itemChange{is(1, "a", 5), is(1, "a", 3)}, []string{"1 a [3,) now"}},
		"deleted, again":      {[]itemChange{is(1, "a", 1), gone(1, 4), is(1, "a", 6)}, []string{"1 a [1,4)", "1 a [6,) now"}},
		"deleted before":      {[]itemChange{gone(1, 4), is(1, "a", 2)}, []string{"1 a [2,4)"}},
		"deleted twice":       {[]itemChange{is(1, "a", 1), gone(1, 4), gone(1, 9), is(1, "b", 6)}, []string{"1 a [1,4)", "1 b [6,9)"}},
		"two deletes, before": {[]itemChange{gone(1, 4), gone(1, 9), is(1, "b", 6), is(1, "a", 2)}, []string{"1 a [2,4)", "1 b [6,9)"}},
		"later wins a tie":    {[]itemChange{is(1, "a", 1), is(1, "b", 3), is(1, "c", 3)}, []string{"1 a [1,3)", "1 c [3,) now"}},
		"a tie undone":        {[]itemChange{is(1, "a", 1), is(1, "b", 3), is(1, "a", 3)}, []string{"1 a [1,) now"}},
		"deleted by a tie":    {[]itemChange{is(1, "a", 1), is(1, "b", 3), gone(1, 3)}, []string{"1 a [1,3)"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			target := w.running(t, historyOptions(t.TempDir()))
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			for i, change := range c.changes {
				_, err := target.Write(t.Context(), itemBatch("t", keyedLane, int64(i)-1, []itemChange{change}))
				must(t, err)
				commitAll(t, target)
			}
			sameTexts(t, "history", w.shown(t, "t"), c.want)
			sameTexts(t, "the independent account", historyOf(c.changes), c.want)
		})
	}
}

// lateHistory is a random history of which about a third comes late, with deletes, repeats and duplicates; one saying a
// sequence.
func lateHistory(r *rand.Rand, n int, keys int64) []itemChange {
	said := map[[2]int64]itemChange{}
	var all []itemChange
	for i := range n {
		at := int64(i) * 10
		if r.IntN(3) == 0 {
			at -= r.Int64N(200)
		}
		c := is(r.Int64N(keys), string(rune('a'+r.IntN(3))), at)
		if r.IntN(5) == 0 {
			c = gone(c.id, at)
		}
		if was, again := said[[2]int64{c.id, at}]; again {
			c = was
		}
		said[[2]int64{c.id, at}] = c
		all = append(all, c)
	}
	return all
}

func TestSCD2_RandomOrder_TableEqualsTheModel(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 31))
			changes := lateHistory(r, 40+r.IntN(200), 1+r.Int64N(20))
			k := &keyedRun{t: t, r: r, w: newWorld(), dir: t.TempDir(), last: -1}
			k.opts = *historyOptions(k.dir)
			k.opts.Key.CopyOnWrite = seed%4 == 1
			if seed%3 == 2 {
				k.opts.Properties = map[string]string{"delta.enableChangeDataFeed": "true"}
			}
			k.open()
			must(t, k.target.Ensure(t.Context(), "t", itemSchema))
			_, err := k.target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			for done := 0; done < len(changes); {
				switch r.IntN(8) {
				case 0:
					must(t, k.target.Close(context.Background()))
					k.open()
				case 1:
					must(t, k.target.Close(context.Background()))
					k.damageIndex()
					k.open()
				case 2:
					k.foreignOptimize()
				}
				n := min(len(changes)-done, 1+r.IntN(25))
				_, err := k.target.Write(t.Context(), itemBatch("t", keyedLane, int64(done)-1, changes[done:done+n]))
				must(t, err)
				done += n
				commitAll(t, k.target)
				sameTexts(t, fmt.Sprint("after ", done), k.w.shown(t, "t"), historyOf(changes[:done]))
			}
			must(t, k.target.Close(context.Background()))
			if got := k.w.rejects(t, "t"); len(got) > 0 {
				t.Errorf("got the rejects %v, want none", got)
			}
		})
	}
}

// The process is killed at every call to a store: the history is what it is without, and so are the change columns.
func TestSCD2_KilledAtEveryStoreCall_HistoryTheSame(t *testing.T) {
	const seed = 9
	t.Logf("seed %d", seed)
	changes := lateHistory(rand.New(rand.NewPCG(seed, 2)), 16, 3)
	want := historyOf(changes)
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld()
			m := &mortal{w: w, at: at, after: after}
			r := rand.New(rand.NewPCG(seed, uint64(at)))
			dying := lake.NewTarget(m.open, app, historyOptions(t.TempDir()))
			err := feedHistory(t, r, dying, changes)
			_ = dying.Close(context.Background())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			next := w.target(historyOptions(t.TempDir()))
			must(t, feedHistory(t, r, next, changes))
			must(t, next.Close(context.Background()))
			sameTexts(t, fmt.Sprintf("killed at call %d, after it: %v", at, after), w.shown(t, "t"), want)
		}
	}
}

func TestSCD2_NoSequence_TimesOfTheSource(t *testing.T) {
	w := newWorld()
	opts := historyOptions(t.TempDir())
	opts.Key.SequenceBy, opts.Periods = nil, lake.PeriodOptions{From: "since", To: "until", Current: "now"}
	target := w.running(t, opts)
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	for i, c := range []struct {
		itemChange
		at int64
	}{{is(1, "a", 0), 10}, {is(1, "b", 0), 10}, {is(1, "b", 0), 20}, {is(1, "c", 0), 15}, {gone(1, 0), 30}} {
		b := itemBatch("t", keyedLane, int64(i)-1, []itemChange{c.itemChange})
		b.Stamps = []freshet.Stamp{{Ordinal: -1, Committed: time.Unix(c.at, 0).UnixMicro()}}
		_, err := target.Write(t.Context(), b)
		must(t, err)
		if i != 1 { // two in one commit
			commitAll(t, target)
		}
	}
	commitAll(t, target)
	sameTexts(t, "history", w.texts(t, "t", "text", "since", "until", "now"), []string{
		"text=a since=1970-01-01T00:00:10Z until=1970-01-01T00:00:10.000001Z now=false",
		"text=b since=1970-01-01T00:00:10.000001Z until=1970-01-01T00:00:20.000001Z now=false",
		"text=c since=1970-01-01T00:00:20.000001Z until=1970-01-01T00:00:30Z now=false",
	})
}

func TestSCD2_PartialAndTied_KeptOrQuarantined(t *testing.T) {
	w := newWorld()
	target := w.running(t, historyOptions(t.TempDir()))
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	other := freshet.Lane{Origin: "orders", OriginID: "a", Name: "1"}
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, other: -1})
	must(t, err)
	partial := is(1, "", 7)
	partial.text, partial.n = nil, ptr(int64(2))
	lost := partial
	lost.id = 2
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{is(1, "a", 5), partial, lost,
		is(3, "x", 5), gone(4, unsent)}))
	must(t, err)
	commitAll(t, target)
	_, err = target.Write(t.Context(), itemBatch("t", other, -1, []itemChange{is(3, "y", 5), is(3, "x", 5)}))
	must(t, err)
	commitAll(t, target)
	got := w.texts(t, "t", "id", "n", "text", "valid_from", "valid_to")
	sameTexts(t, "history", got, []string{"id=1 n=1 text=a valid_from=5 valid_to=7",
		"id=1 n=2 text=a valid_from=7 valid_to=(null)", "id=3 n=1 text=x valid_from=5 valid_to=(null)"})
	rejects := w.rejects(t, "t")
	slices.SortFunc(rejects, func(a, b freshettest.Row) int {
		return cmp.Or(strings.Compare(a.Lane, b.Lane), cmp.Compare(a.Seq, b.Seq))
	})
	if text := fmt.Sprint(rejects); text != "[{orders[0] 2} {orders[0] 4}]" {
		t.Errorf("got the rejects %s, want the partial row of an unknown key and the delete without a sequence", text)
	}
}

// A part of a row waits for its key, and then takes its place in the history, above or below.
func TestSCD2_PartOfAKeyThatIsNotThere_WaitsForIt(t *testing.T) {
	for name, c := range map[string]struct {
		then itemChange
		want []string
		open int
	}{
		"below":       {whole(1, 1, "a", 3), []string{"1 a [3,5)", "1 a [5,) now"}, 0},
		"above":       {whole(1, 1, "b", 9), []string{"1 b [9,) now"}, 1},
		"another key": {whole(2, 1, "c", 3), []string{"2 c [3,) now"}, 1},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %v", name, restarts), func(t *testing.T) {
				w := newWorld()
				all := []said{{keyedLane, []itemChange{patch(1, 7, 5)}}, {keyedLane, []itemChange{c.then}}}
				opts := keyedBy(t.TempDir(), "at")
				opts.Mode = lake.SCD2
				if restarts {
					must(t, tell(t.Context(), w.target(opts), all[:1]))
				}
				must(t, tell(t.Context(), w.target(opts), all))
				if got := w.shown(t, "t"); !slices.Equal(got, c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
				if open := len(w.rejects(t, "t")); open != c.open {
					t.Errorf("got %d in quarantine, want %d", open, c.open)
				}
			})
		}
	}
}
