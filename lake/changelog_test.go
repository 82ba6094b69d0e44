package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// texts are the rows of the table as texts, "column=value …", in order.
func (w *world) texts(t *testing.T, table string, columns ...string) []string {
	t.Helper()
	var out []string
	for rec, err := range w.snapshot(t, table).Scan(t.Context(), &delta.ScanOptions{Columns: columns}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			var cells []string
			for c, f := range rec.Schema().Fields() {
				cells = append(cells, f.Name+"="+rec.Column(c).ValueStr(i))
			}
			out = append(out, strings.Join(cells, " "))
		}
		rec.Release()
	}
	slices.Sort(out)
	return out
}

func sameTexts(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// begun is a group with a change log whose table t is made and whose lane is started.
func begun(t *testing.T, w *world, opts *lake.TargetOptions) freshet.Target {
	t.Helper()
	g := logged(w.open, opts)
	must(t, g.Open(t.Context()))
	t.Cleanup(func() { must(t, g.Close(context.Background())) })
	_, err := g.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	must(t, g.Ensure(t.Context(), "t", itemSchema))
	return g
}

func runAll(t *testing.T, target freshet.Target) []freshet.Committed {
	t.Helper()
	commits, err := target.Seal(t.Context())
	must(t, err)
	var all []freshet.Committed
	for _, c := range commits {
		done, err := c.Run(t.Context())
		must(t, err)
		all = append(all, done)
	}
	return all
}

func TestChangeLog_Changes_AsTheSourceSentThem(t *testing.T) {
	w := newWorld()
	opts := &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()},
		ChangeColumns: []string{lake.PositionColumn, lake.CommittedAtColumn, lake.SourceTxColumn}}
	g := begun(t, w, opts)
	b := itemBatch("t", keyedLane, -1, []itemChange{
		{freshet.Insert, item{1, ptr(int64(5)), ptr("a"), 1}},
		{freshet.UpdatePreimage, item{1, ptr(int64(5)), ptr("a"), 1}},
		{freshet.UpdatePostimage, item{1, ptr(int64(6)), nil, 2}},
		{freshet.Insert, item{2, ptr(int64(7)), ptr("b"), 2}},
		{freshet.Delete, item{2, nil, nil, 3}},
	})
	b.Seqs, b.Last = []int64{3, 4, 4, 4, 9}, 10
	for i := range b.Seqs {
		b.Stamps = append(b.Stamps, freshet.Stamp{Tx: fmt.Sprint("tx", b.Seqs[i]), Ordinal: -1,
			Committed: time.Unix(b.Seqs[i], 0).UnixMicro()})
	}
	_, err := g.Write(t.Context(), b)
	must(t, err)
	done := runAll(t, g)
	if len(done) != 1 || len(done[0].Beside) != 1 || done[0].Beside[0].Table != "t_log" || done[0].Beside[0].Version != 1 {
		t.Errorf("got %+v, want one commit of t and beside it one of t_log, at version 1", done)
	}
	sameTexts(t, "log", w.texts(t, "t_log", "_commit_version", "_ordinal", "_change_type", "id", "n", "text", "_position", "_source_tx",
		"_committed_at", "_unsent"), []string{
		`_commit_version=3 _ordinal=0 _change_type=insert id=1 n=5 text=a _position=orders[0]@3 _source_tx=tx3 ` +
			`_committed_at=1970-01-01T00:00:03Z _unsent=(null)`,
		`_commit_version=4 _ordinal=0 _change_type=update_preimage id=1 n=5 text=a _position=orders[0]@4 _source_tx=tx4 ` +
			`_committed_at=1970-01-01T00:00:04Z _unsent=(null)`,
		`_commit_version=4 _ordinal=1 _change_type=update_postimage id=1 n=6 text=(null) _position=orders[0]@4 _source_tx=tx4 ` +
			`_committed_at=1970-01-01T00:00:04Z _unsent=["text"]`,
		`_commit_version=4 _ordinal=2 _change_type=insert id=2 n=7 text=b _position=orders[0]@4 _source_tx=tx4 ` +
			`_committed_at=1970-01-01T00:00:04Z _unsent=(null)`,
		`_commit_version=9 _ordinal=0 _change_type=delete id=2 n=(null) text=(null) _position=orders[0]@9 _source_tx=tx9 ` +
			`_committed_at=1970-01-01T00:00:09Z _unsent=(null)`,
	})
	sameTexts(t, "table", w.texts(t, "t", "id", "n", "text", "_position", "_committed_at", "_source_tx"), []string{
		`id=1 n=6 text=a _position=orders[0]@4 _committed_at=1970-01-01T00:00:04Z _source_tx=tx4`})
}

// replayed is what the change log makes of a map.
func (w *world) replayed(t *testing.T, log string) map[int64]string {
	t.Helper()
	type entry struct {
		version, ordinal, id int64
		kind, row            string
	}
	var all []entry
	columns := []string{"_commit_version", "_ordinal", "id", "_change_type", "n", "text", "at"}
	for rec, err := range w.snapshot(t, log).Scan(t.Context(), &delta.ScanOptions{Columns: columns}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			long := func(c int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
			all = append(all, entry{long(0), long(1), long(2), rec.Column(3).ValueStr(i),
				rec.Column(4).ValueStr(i) + " " + rec.Column(5).ValueStr(i) + " " + rec.Column(6).ValueStr(i)})
		}
		rec.Release()
	}
	slices.SortFunc(all, func(a, b entry) int {
		return int(a.version-b.version)<<20 + int(a.ordinal-b.ordinal)
	})
	out := map[int64]string{}
	for i, e := range all {
		if i > 0 && e.version == all[i-1].version && e.ordinal == all[i-1].ordinal {
			t.Fatalf("the log has %+v twice", e)
		}
		switch e.kind {
		case "delete":
			delete(out, e.id)
		case "insert", "update_postimage":
			out[e.id] = e.row
		}
	}
	return out
}

// history is a random history of changes, which is the same for one seed.
func history(seed uint64, n int) []itemChange {
	r := rand.New(rand.NewPCG(seed, 8))
	changes := make([]itemChange, n)
	for i := range changes {
		changes[i] = randomChange(r, 12, int64(i), false)
	}
	return changes
}

// feedHistory writes what the target does not hold of a history, in batches of any length, until it is all committed.
func feedHistory(t *testing.T, r *rand.Rand, target freshet.Target, changes []itemChange) error {
	t.Helper()
	if err := target.Open(t.Context()); err != nil {
		return err
	}
	p, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	if err != nil {
		return err
	}
	at, known := p[keyedLane]
	if !known {
		if p, err = target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1}); err != nil {
			return err
		}
		at = p[keyedLane]
	}
	if err := target.Ensure(t.Context(), "t", itemSchema); err != nil {
		return err
	}
	for at+1 < int64(len(changes)) {
		for range 1 + r.IntN(2) {
			n := min(int64(len(changes))-at-1, 1+r.Int64N(5))
			if _, err := target.Write(t.Context(), itemBatch("t", keyedLane, at, changes[at+1:at+1+n])); err != nil {
				return err
			}
			at += n
		}
		commits, err := target.Seal(t.Context())
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(t.Context()); err != nil {
				return err
			}
		}
	}
	return nil
}

// The process is killed at every call to a store, and another one goes on with other batches: the table, its log and every
// change column are what they are without.
func TestChangeLog_KilledAtEveryStoreCall_LogReplaysToTheTable(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	changes := history(seed, 14)
	columns := []string{"id", "n", "text", "_position", "_commit_version", "_ordinal"}
	opts := func() *lake.TargetOptions {
		return &lake.TargetOptions{Mode: lake.Mirror, ChangeColumns: columns[3:],
			Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()}}
	}
	quiet := newWorld()
	g := logged(quiet.open, opts())
	must(t, feedHistory(t, rand.New(rand.NewPCG(seed, 1)), g, changes))
	must(t, g.Close(context.Background()))
	table, log := quiet.texts(t, "t", columns...), quiet.texts(t, "t_log")
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld()
			m := &mortal{w: w, at: at, after: after}
			r := rand.New(rand.NewPCG(seed, uint64(at)))
			dying := logged(m.open, opts())
			err := feedHistory(t, r, dying, changes)
			_ = dying.Close(context.Background())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			next := logged(w.open, opts())
			must(t, feedHistory(t, r, next, changes))
			must(t, next.Close(context.Background()))
			when := fmt.Sprintf("killed at call %d, after it: %v", at, after)
			sameTexts(t, when+": table", w.texts(t, "t", columns...), table)
			sameTexts(t, when+": log", w.texts(t, "t_log"), log)
			items := map[int64]string{}
			for id, it := range w.items(t, "t") {
				items[id] = fmt.Sprint(*it.n, " ", *it.text, " ", it.at)
			}
			if got := w.replayed(t, "t_log"); fmt.Sprint(got) != fmt.Sprint(items) {
				t.Fatalf("%s: the log makes %v, the table is %v", when, got, items)
			}
		}
	}
}

func TestChangeFeed_TableThatIsThere_BeginsToRecord(t *testing.T) {
	w := newWorld()
	opts := lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()}}
	target := w.target(&opts)
	must(t, feedHistory(t, rand.New(rand.NewPCG(1, 1)), target, history(1, 5)))
	must(t, target.Close(context.Background()))
	from := w.snapshot(t, "t").Version() + 2 // after the one that switches it on
	opts.ChangeFeed = true
	target = w.target(&opts)
	must(t, feedHistory(t, rand.New(rand.NewPCG(1, 1)), target, history(1, 9)))
	must(t, target.Close(context.Background()))
	snap := w.snapshot(t, "t")
	n := 0
	for ch, err := range snap.Table().Changes(t.Context(), from, snap.Version(), nil) {
		must(t, err)
		n += int(ch.Batch.NumRows())
		ch.Batch.Release()
	}
	if n == 0 || snap.Property("delta.enableChangeDataFeed") != "true" {
		t.Errorf("got %d changes in the feed (%v), want some", n, snap.Metadata().Configuration)
	}
}

func TestChangeColumns_Clash_Refused(t *testing.T) {
	w := newWorld()
	target := w.running(t, &lake.TargetOptions{ChangeColumns: []string{lake.PositionColumn}})
	schema := arrow.NewSchema([]arrow.Field{{Name: "_POSITION", Type: arrow.BinaryTypes.String}}, nil)
	err := target.Ensure(t.Context(), "t", schema)
	if codeOf(err) != freshet.CodeFilledColumn {
		t.Errorf("got %v, want %s", err, freshet.CodeFilledColumn)
	}
	must(t, w.running(t, &lake.TargetOptions{ChangeFeed: true}).Ensure(t.Context(), "u", itemSchema))
	other := w.running(t, &lake.TargetOptions{ChangeColumns: []string{lake.CommitVersionColumn}})
	if _, err := other.Schema(t.Context(), "u"); codeOf(err) != freshet.CodeFilledColumn {
		t.Errorf("of a table with a feed: got %v, want %s", err, freshet.CodeFilledColumn)
	}
}

// codeOf is the code of the first error that has one.
func codeOf(err error) freshet.Code {
	var e *freshet.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestChangeLog_IsGone_StopsBeforeRowsAreMissing(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	opts := &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: dir}}
	life := func() error {
		theirs := *opts
		theirs.Key.IndexDir = t.TempDir()
		g := logged(w.open, &theirs)
		must(t, g.Open(t.Context()))
		defer func() { must(t, g.Close(context.Background())) }()
		_, err := g.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
		return err
	}
	g := begun(t, w, opts)
	w.forget(t, "t_log")
	must(t, life()) // nothing was in it
	_, err := g.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{put(1, 10, 1)}))
	must(t, err)
	runAll(t, g)
	must(t, life())
	w.forget(t, "t_log")
	for range 2 {
		if err := life(); codeOf(err) != freshet.CodeBesideGone {
			t.Errorf("got %v, want %s", err, freshet.CodeBesideGone)
		}
	}
}

// A table has columns of changes from another time: they are no columns of its source, which the log would be blamed for.
func TestChangeLog_TableHasChangeColumnsFromBefore_LogIsMadeBesideIt(t *testing.T) {
	w := newWorld()
	opts := &lake.TargetOptions{Mode: lake.Mirror, ChangeColumns: []string{lake.PositionColumn},
		Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()}}
	must(t, w.running(t, opts).Ensure(t.Context(), "t", itemSchema))
	opts.ChangeColumns = nil
	g := logged(w.open, opts)
	must(t, g.Open(t.Context()))
	defer func() { must(t, g.Close(context.Background())) }()
	schema, err := g.Schema(t.Context(), "t")
	must(t, err)
	must(t, g.Ensure(t.Context(), "t", schema))
}
