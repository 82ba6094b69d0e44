package lake_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// lanesSaid are the changes of lanes from their beginning, those of one key in one lane.
type lanesSaid map[freshet.Lane][]itemChange

func sayLanes(r *rand.Rand, lanes []freshet.Lane, n int) lanesSaid {
	all := lanesSaid{}
	for i, l := range lanes {
		for at := range (i + 1) * n { // of different lengths, so that places in two lanes do not compare
			c := randomChange(r, 10, int64(at), false)
			c.id = c.id*int64(len(lanes)) + int64(i)
			all[l] = append(all[l], c)
		}
	}
	return all
}

// misread are the changes as a wrong step left them: some keys otherwise, some deleted, and some not.
func (all lanesSaid) misread(r *rand.Rand) lanesSaid {
	wrong := lanesSaid{}
	for l, changes := range all {
		for _, c := range changes {
			switch r.IntN(4) {
			case 0:
				c = itemChange{freshet.Delete, item{id: c.id, at: c.at}}
			case 1:
				c = whole(c.id, 5000+c.at, "wrong", c.at)
			case 2:
				c = whole(c.id+1000, c.at, "no such key", c.at)
			}
			wrong[l] = append(wrong[l], c)
		}
	}
	return wrong
}

func (all lanesSaid) first(n int) lanesSaid {
	some := lanesSaid{}
	for l, changes := range all {
		some[l] = changes[:min(n, len(changes))]
	}
	return some
}

// makes is the table that the changes make.
func (all lanesSaid) makes() map[int64]item {
	m := &keyedModel{items: map[int64]item{}, waiting: map[int64][]itemChange{}, ended: map[int64]int64{}}
	for _, changes := range all {
		for _, c := range changes {
			m.apply(c)
		}
	}
	return m.items
}

// tellLanes is a process that brings the table what it does not hold of the changes.
func tellLanes(ctx context.Context, target freshet.Target, table string, all lanesSaid) (err error) {
	defer func() { err = errors.Join(err, target.Close(context.WithoutCancel(ctx))) }()
	if err := target.Open(ctx); err != nil {
		return err
	}
	at, err := target.Resume(ctx, table, slices.Collect(maps.Keys(all)))
	if err != nil {
		return err
	}
	fresh := freshet.Progress{}
	for l := range all {
		if _, ok := at[l]; !ok {
			fresh[l] = -1
		}
	}
	if len(fresh) > 0 {
		begun, err := target.Start(ctx, table, fresh)
		if err != nil {
			return err
		}
		maps.Copy(at, begun)
	}
	if err := target.Ensure(ctx, table, itemSchema); err != nil {
		return err
	}
	for l, changes := range all {
		for int(at[l])+1 < len(changes) {
			n := min(7, len(changes)-int(at[l])-1)
			if _, err := target.Write(ctx, itemBatch(table, l, at[l], changes[at[l]+1:int(at[l])+1+n])); err != nil {
				return err
			}
			at[l] += int64(n)
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
	}
	return nil
}

// logRow is a row of a change log.
type logRow struct {
	commit           int64 // of the log
	version, ordinal int64
	id               int64
	kind, position   string
	tx               string
	row              string
}

// logRows are the rows of a change log in the order in which they came.
func (w *world) logRows(t *testing.T, log string) []logRow {
	t.Helper()
	var all []logRow
	newest := w.snapshot(t, log)
	columns := []string{"id", "n", "text", "at"}
	for v := int64(1); v <= newest.Version(); v++ {
		opts := &delta.ChangesOptions{Columns: append(columns[:4:4], "_position", "_source_tx", "_ordinal"), Method: delta.MethodVectors}
		for c, err := range newest.Table().Changes(t.Context(), v, v, opts) {
			must(t, err)
			for i := range int(c.Batch.NumRows()) {
				at := c.Batch.Column(4).ValueStr(i)
				row := logRow{commit: v, id: c.Batch.Column(0).(*array.Int64).Value(i), position: at, tx: c.Batch.Column(5).ValueStr(i),
					ordinal: c.Batch.Column(6).(*array.Int64).Value(i)}
				_, _ = fmt.Sscan(at[strings.LastIndexByte(at, '@')+1:], &row.version)
				row.row = c.Batch.Column(1).ValueStr(i) + " " + c.Batch.Column(2).ValueStr(i) + " " + c.Batch.Column(3).ValueStr(i)
				all = append(all, row)
			}
			c.Batch.Release()
		}
	}
	kinds := map[string]string{}
	scan := &delta.ScanOptions{Columns: []string{"_position", "_ordinal", "_change_type", "_commit_version"}}
	for rec, err := range newest.Scan(t.Context(), scan) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			key := rec.Column(0).ValueStr(i) + " " + rec.Column(1).ValueStr(i)
			if kinds[key] != "" {
				t.Fatalf("the log has %s twice", key)
			}
			kinds[key] = rec.Column(2).ValueStr(i)
			if !strings.HasSuffix(rec.Column(0).ValueStr(i), "@"+rec.Column(3).ValueStr(i)) {
				t.Fatalf("got the position %s at %s", rec.Column(0).ValueStr(i), rec.Column(3).ValueStr(i))
			}
		}
		rec.Release()
	}
	for i := range all {
		all[i].kind = kinds[all[i].position+" "+fmt.Sprint(all[i].ordinal)]
	}
	return all
}

// checkReplays makes sure that the log makes the table, in the order of places in the source and in that of commits.
func (w *world) checkReplays(t *testing.T, when, table, log, alive string) {
	t.Helper()
	rows := w.logRows(t, log)
	want := map[int64]string{}
	for _, text := range w.alive(t, table, alive) {
		var id int64
		_, _ = fmt.Sscan(text, &id)
		want[id] = text[strings.IndexByte(text, ' ')+1:]
	}
	place := func(a, b logRow) int {
		return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(a.ordinal, b.ordinal))
	}
	commit := func(a, b logRow) int { return cmp.Or(cmp.Compare(a.commit, b.commit), place(a, b)) }
	for order, compare := range map[string]func(a, b logRow) int{"places": place, "commits": commit} {
		slices.SortStableFunc(rows, compare)
		got := map[int64]string{}
		for _, r := range rows {
			switch r.kind {
			case "delete":
				delete(got, r.id)
			case "insert", "update_postimage":
				got[r.id] = r.row
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%s: in the order of %s the log makes\n%v, the table is\n%v", when, order, got, want)
		}
	}
}

// alive are the rows of the table of which the condition is true, as texts that begin with the key.
func (w *world) alive(t *testing.T, table, where string) (rows []string) {
	t.Helper()
	opts := &delta.ScanOptions{Columns: []string{"id", "n", "text", "at"}, Where: parsed(t, where)}
	for rec, err := range w.snapshot(t, table).Scan(t.Context(), opts) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			var cells []string
			for _, c := range rec.Columns() {
				cells = append(cells, c.ValueStr(i))
			}
			rows = append(rows, strings.Join(cells, " "))
		}
		rec.Release()
	}
	slices.Sort(rows)
	return rows
}

// drift changes rows of the table behind the pipeline's back: of those that are to be, one is lost and one is there twice.
func (w *world) drift(t *testing.T, alive string, wanted map[int64]item) {
	t.Helper()
	var ids []string
	for _, row := range w.alive(t, "t", alive) {
		var id int64
		_, _ = fmt.Sscan(row, &id)
		if _, ok := wanted[id]; ok {
			ids = append(ids, fmt.Sprint("id = ", id))
		}
	}
	_, err := w.snapshot(t, "t").Table().Delete(t.Context(), parsed(t, ids[0]), nil)
	must(t, err)
	for rec, err := range w.snapshot(t, "t").Scan(t.Context(), &delta.ScanOptions{Where: parsed(t, ids[1])}) {
		must(t, err)
		w.addRows(t, "t", rec)
		rec.Release()
	}
}

// addRows appends rows to the table as another program does.
func (w *world) addRows(t *testing.T, table string, rows arrow.RecordBatch) {
	t.Helper()
	snap := w.snapshot(t, table)
	writer, err := delta.NewWriter(w.store(table), snap.Metadata(), snap.Protocol(), nil)
	must(t, err)
	must(t, writer.Write(t.Context(), rows))
	adds, err := writer.Close(t.Context())
	must(t, err)
	tx := snap.Table().Begin(snap, nil)
	tx.Add(adds...)
	tx.Operation("WRITE", nil, nil)
	_, err = tx.Commit(t.Context())
	must(t, err)
}

// loggedResync loads the table t again by these stores, which has a change log.
func loggedResync(t *testing.T, open lake.Opener, number int64) *lake.Resync {
	t.Helper()
	r := resyncOf(t, open)
	r.Plan.Number, r.Plan.Folder = number, fmt.Sprintf("resync-%d", number)
	r.CopyName, r.LogName = "t/"+r.Plan.Folder, "t_log"
	for table, into := range map[string]*store.Store{r.LogName: &r.Log, r.CopyName: &r.Copy} {
		st, err := open(table)
		must(t, err)
		*into = st
	}
	return r
}

// fillCopy has the copy read what the lanes say now.
func (w *world) fillCopy(t *testing.T, opts *lake.TargetOptions, number int64, all lanesSaid) {
	t.Helper()
	r := loggedResync(t, w.folders, number)
	must(t, r.Prepare(t.Context()))
	must(t, tellLanes(t.Context(), lake.NewTarget(w.folders, app, opts), r.CopyName, all))
}

// resync loads the table again, but does not tell the log.
func (w *world) resync(t *testing.T, opts *lake.TargetOptions, number int64, all lanesSaid) {
	t.Helper()
	w.fillCopy(t, opts, number, all)
	_, err := loggedResync(t, w.folders, number).Swap(t.Context())
	must(t, err)
}

// tell has a process bring the table t, and its change log, what they do not hold of the changes.
func (w *world) tell(t *testing.T, all lanesSaid) {
	t.Helper()
	must(t, tellLanes(t.Context(), logged(w.folders, keyedBy(t.TempDir())), "t", all))
}

// misled is a world whose table t, with its change log, holds the first of n changes of its lane, as a wrong step left them.
func misled(t *testing.T, seed uint64, n, first int) (w *world, all lanesSaid) {
	t.Helper()
	t.Logf("seed %d", seed)
	w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
	all = sayLanes(r, oneLane(), n)
	w.tell(t, all.misread(r).first(first))
	return w, all
}

func oneLane() []freshet.Lane  { return []freshet.Lane{keyedLane} }
func twoLanes() []freshet.Lane { return []freshet.Lane{keyedLane, otherLane} }

var retoldCases = []struct {
	name  string
	lanes []freshet.Lane
	opts  func(dir string) *lake.TargetOptions
	alive string
}{
	{"one lane", oneLane(), func(dir string) *lake.TargetOptions { return keyedBy(dir) }, "TRUE"},
	{"two lanes", twoLanes(), func(dir string) *lake.TargetOptions { return keyedBy(dir) }, "TRUE"},
	{"change columns of the table's own", twoLanes(), func(dir string) *lake.TargetOptions {
		o := keyedBy(dir)
		o.ChangeColumns = lake.ChangeColumns()
		return o
	}, "TRUE"},
	{"sequence", twoLanes(), func(dir string) *lake.TargetOptions { return keyedBy(dir, "at") }, "TRUE"},
	{"soft deletes", twoLanes(), func(dir string) *lake.TargetOptions {
		o := keyedBy(dir)
		o.Key.Deletes = lake.SoftDeletes
		return o
	}, "_deleted_at IS NULL"},
	{"log of deletes", oneLane(), func(dir string) *lake.TargetOptions {
		o := keyedBy(dir)
		o.Key.Deletes = lake.LogDeletes
		return o
	}, "TRUE"},
	{"history", twoLanes(), func(dir string) *lake.TargetOptions {
		o := keyedBy(dir, "at")
		o.Mode = lake.SCD2
		return o
	}, "is_current"},
}

func TestResync_TableHadDrifted_LogReplaysToTheTable(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	for _, c := range retoldCases {
		t.Run(c.name, func(t *testing.T) {
			w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
			all := sayLanes(r, c.lanes, 30)
			group := func() *lake.Group { return logged(w.folders, c.opts(t.TempDir())) }
			must(t, tellLanes(t.Context(), group(), "t", all.misread(r).first(25)))
			w.checkReplays(t, "before", "t", "t_log", c.alive)
			w.drift(t, c.alive, all.first(25).makes())
			before := w.snapshot(t, "t_log").Version()
			w.resync(t, c.opts(t.TempDir()), 1, all.first(25))
			must(t, group().SettleResync(t.Context(), "t"))
			must(t, group().SettleResync(t.Context(), "t"))
			if v := w.snapshot(t, "t_log").Version(); v != before+1 {
				t.Fatalf("got %d commits to the log, want one", v-before)
			}
			w.checkReplays(t, "told", "t", "t_log", c.alive)
			must(t, tellLanes(t.Context(), group(), "t", all))
			w.checkReplays(t, "and gone on", "t", "t_log", c.alive)
			if c.alive == "TRUE" {
				compareItems(t, w.items(t, "t"), all.makes())
			}
		})
	}
}

// The table is loaded again twice, and nothing comes in between: what came of the second is behind what came of the first.
func TestResync_TwiceAtOnePlace_LogReplaysToTheTable(t *testing.T) {
	const seed = 22
	t.Logf("seed %d", seed)
	w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
	all := sayLanes(r, twoLanes(), 30)
	w.tell(t, all.misread(r))
	w.resync(t, keyedBy(t.TempDir()), 1, all.misread(r))
	w.resync(t, keyedBy(t.TempDir()), 2, all)
	w.tell(t, all)
	w.checkReplays(t, "told of both", "t", "t_log", "TRUE")
	n := map[string]int{}
	for _, row := range w.logRows(t, "t_log") {
		n[row.tx]++
	}
	if n["resync-1"] == 0 || n["resync-2"] == 0 {
		t.Errorf("got %v rows by transaction, want some of each resync", n)
	}
}

// Killed at every call to a store between the swap and the log: whoever comes next finishes it, before more of the source
// comes to either, and nothing is told twice.
func TestResync_CrashAtEveryStoreCall_LogIsToldOnce(t *testing.T) {
	const seed = 23
	t.Logf("seed %d", seed)
	for at := 1; ; at++ {
		w, r := newWorld(), rand.New(rand.NewPCG(seed, 3))
		all := sayLanes(r, twoLanes(), 4)
		w.tell(t, all.misread(r).first(3))
		w.fillCopy(t, keyedBy(t.TempDir()), 1, all.first(3))
		m := &mortal{w: w, at: at, after: at%2 == 0}
		open := func(table string) (store.Store, error) {
			st, err := w.folders(table)
			return storetest.NewFaulty(st, m.rule), err
		}
		_, err := loggedResync(t, open, 1).Swap(t.Context())
		if err == nil {
			err = logged(open, keyedBy(t.TempDir())).SettleResync(t.Context(), "t")
		}
		if !m.dead {
			must(t, err)
			w.checkReplays(t, "not killed", "t", "t_log", "TRUE")
			t.Logf("%d calls", at-1)
			return
		}
		_, err = loggedResync(t, w.folders, 1).Swap(t.Context())
		must(t, err)
		w.tell(t, all)
		w.checkReplays(t, fmt.Sprintf("killed at call %d", at), "t", "t_log", "TRUE")
		compareItems(t, w.items(t, "t"), all.makes())
	}
}

// A process that has not heard that the table is loaded again commits what it has read: to the very progress that the swap
// found. It has to resume its lanes first, and that tells the log.
func TestResync_ProcessThatHasNotHeard_LogIsToldFirst(t *testing.T) {
	w, all := misled(t, 24, 30, 20)
	late := logged(w.folders, keyedBy(t.TempDir()))
	must(t, late.Open(t.Context()))
	defer func() { must(t, late.Close(context.Background())) }()
	at, err := late.Resume(t.Context(), "t", oneLane())
	must(t, err)
	_, err = late.Write(t.Context(), itemBatch("t", keyedLane, at[keyedLane], all[keyedLane][20:]))
	must(t, err)
	w.resync(t, keyedBy(t.TempDir()), 1, all.first(20))
	commits, err := late.Seal(t.Context())
	must(t, err)
	for _, c := range commits {
		if _, err := c.Run(t.Context()); !errors.Is(err, freshet.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
		c.Abort()
	}
	w.tell(t, all)
	w.checkReplays(t, "gone on", "t", "t_log", "TRUE")
}

// A log that is held back is told when it goes on; and one that began later is owed nothing.
func TestResync_LogHeldBackOrNew_ToldWhenItGoesOn(t *testing.T) {
	w, all := misled(t, 25, 30, 20)
	w.resync(t, keyedBy(t.TempDir()), 1, all.first(20))
	opts := keyedBy(t.TempDir())
	opts.Park = &lake.ParkOptions{Held: map[string]bool{"t_log": true}}
	before := w.snapshot(t, "t_log").Version()
	must(t, logged(w.folders, opts).SettleResync(t.Context(), "t"))
	if v := w.snapshot(t, "t_log").Version(); v != before {
		t.Errorf("got version %d of a log that is held back, want %d", v, before)
	}
	beside := lake.Beside{Target: lake.NewTarget(w.folders, app, lake.ChangeLogOptions(keyedBy(""))),
		Name: func(string) string { return "t_log2" }}
	must(t, tellLanes(t.Context(), lake.NewGroup(w.target(keyedBy(t.TempDir())), beside), "t", all.first(24)))
	for _, row := range w.logRows(t, "t_log2") {
		if row.tx == "resync-1" {
			t.Errorf("got %+v in a log that began after the resync", row)
		}
	}
	w.tell(t, all)
	w.checkReplays(t, "the first log, gone on", "t", "t_log", "TRUE")
}

// A vacuum has taken the rows from before the swap: that is said, with what can be done.
func TestResync_RowsBeforeAreGone_GapIsLoud(t *testing.T) {
	w, all := misled(t, 26, 20, 20)
	w.resync(t, keyedBy(t.TempDir()), 1, all)
	for o, err := range w.store("t").List(t.Context(), "", "") {
		must(t, err)
		if strings.HasSuffix(o.Key, ".parquet") && !strings.HasPrefix(o.Key, "resync-1") && !strings.HasPrefix(o.Key, "_") {
			must(t, w.store("t").Delete(t.Context(), o.Key))
		}
	}
	if err := logged(w.folders, keyedBy(t.TempDir())).SettleResync(t.Context(), "t"); codeOf(err) != freshet.CodeGap {
		t.Errorf("got %v, want %s", err, freshet.CodeGap)
	}
}
