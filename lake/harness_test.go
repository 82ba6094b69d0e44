package lake_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

const app = "test.app"

// world is a set of stores by table name, which outlive the processes that use them.
type world struct {
	mu     sync.Mutex
	stores map[string]*store.Mem
}

func newWorld() *world { return &world{stores: map[string]*store.Mem{}} }

func (w *world) store(table string) *store.Mem {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stores[table] == nil {
		w.stores[table] = store.NewMem()
	}
	return w.stores[table]
}

func (w *world) open(table string) (store.Store, error) { return w.store(table), nil }

func (w *world) target(opts *lake.TargetOptions) *lake.Target {
	return lake.NewTarget(w.open, app, opts)
}

// running returns an open target, closed at the end of the test.
func (w *world) running(t *testing.T, opts *lake.TargetOptions) *lake.Target {
	t.Helper()
	target := w.target(opts)
	must(t, target.Open(t.Context()))
	t.Cleanup(func() { must(t, target.Close(context.Background())) })
	return target
}

func (w *world) snapshot(t *testing.T, table string) *delta.Snapshot {
	t.Helper()
	d, err := delta.Open(t.Context(), w.store(table), nil)
	if errors.Is(err, delta.ErrNoTable) {
		return nil
	}
	must(t, err)
	snap, err := d.Snapshot(t.Context())
	must(t, err)
	return snap
}

// rows are the table's rows by lane and seq, those of one lane in the order of their versions.
func (w *world) rows(t *testing.T, table string) []freshettest.Row {
	t.Helper()
	snap := w.snapshot(t, table)
	if snap == nil {
		return nil
	}
	return rowsOf(t, snap)
}

func rowsOf(t *testing.T, snap *delta.Snapshot) []freshettest.Row {
	t.Helper()
	var rows []freshettest.Row
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"lane", "seq"}}) {
		must(t, err)
		lanes, seqs := rec.Column(0).(*array.String), rec.Column(1).(*array.Int64)
		for i := range lanes.Len() {
			rows = append(rows, freshettest.Row{Lane: lanes.Value(i), Seq: seqs.Value(i)})
		}
		rec.Release()
	}
	return sorted(rows)
}

// sorted puts the rows of one lane in order: files come in none, so that it tells nothing.
func sorted(rows []freshettest.Row) []freshettest.Row {
	byLane := map[string][]freshettest.Row{}
	for _, r := range rows {
		byLane[r.Lane] = append(byLane[r.Lane], r)
	}
	out := rows[:0]
	for _, rs := range byLane {
		sortRows(rs)
		out = append(out, rs...)
	}
	return out
}

func sortRows(rs []freshettest.Row) {
	for i := range rs {
		for j := i; j > 0 && rs[j].Seq < rs[j-1].Seq; j-- {
			rs[j], rs[j-1] = rs[j-1], rs[j]
		}
	}
}

// rejects are the open entries of the table's quarantine.
func (w *world) rejects(t *testing.T, table string) []freshettest.Row {
	t.Helper()
	snap := w.snapshot(t, lake.QuarantineName(table))
	if snap == nil {
		return nil
	}
	open := map[freshettest.Row]int{}
	columns := []string{"event", "origin", "lane", "seq"}
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: columns}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			text := func(c int) string { return rec.Column(c).(*array.String).Value(i) }
			l := freshet.Lane{Origin: text(1), Name: text(2)}
			row := freshettest.Row{Lane: l.String(), Seq: rec.Column(3).(*array.Int64).Value(i)}
			switch text(0) {
			case "rejected":
				open[row]++
			case "landed", "replayed", "dropped":
				open[row]--
			}
		}
		rec.Release()
	}
	var rows []freshettest.Row
	for row, n := range open {
		for range n {
			rows = append(rows, row)
		}
	}
	return sorted(rows)
}

// orphans are data files below the table that no commit has.
func (w *world) orphans(t *testing.T, table string) []string {
	t.Helper()
	live := map[string]bool{}
	for add, err := range w.snapshot(t, table).Files(t.Context(), nil) {
		must(t, err)
		live[add.Path] = true
	}
	var left []string
	for o, err := range w.store(table).List(t.Context(), "", "") {
		must(t, err)
		if !strings.HasPrefix(o.Key, "_") && path.Ext(o.Key) == ".parquet" && !live[o.Key] {
			left = append(left, o.Key)
		}
	}
	return left
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count is how many rows of the table meet a condition.
func (w *world) count(t *testing.T, table, where string) (n int64) {
	t.Helper()
	opts := &delta.ScanOptions{Columns: []string{}, Where: parsed(t, where)}
	for rec, err := range w.snapshot(t, table).Scan(t.Context(), opts) {
		must(t, err)
		n += rec.NumRows()
		rec.Release()
	}
	return n
}

func parsed(t *testing.T, text string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(text)
	must(t, err)
	return e
}
