package lake_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// lanedChange is a change of one of two lanes.
type lanedChange struct {
	itemChange
	lane int
}

// stream is a kind of stream of changes.
type stream struct {
	partial   bool // some changes do not send all columns
	late      bool // sequences go back
	unordered bool // some deletes are sent without a sequence
}

func (s stream) changes(r *rand.Rand, n int) []lanedChange {
	all := make([]lanedChange, n)
	for i := range all {
		at := int64(i)
		if s.late {
			at = r.Int64N(int64(n))
		}
		c := randomChange(r, 3, at*1000+int64(i), s.partial) // no two are equal: of two lanes nothing would tell
		if r.IntN(5) == 0 {
			c = itemChange{kind: freshet.Delete, item: item{id: c.id, at: c.at}}
			if s.unordered && r.IntN(3) == 0 {
				c.at = unsent
			}
		}
		all[i] = lanedChange{c, r.IntN(2)}
	}
	return all
}

// outcome is all that is left of changes which were committed in parts of these sizes, each in turn.
func outcome(t *testing.T, opts lake.TargetOptions, changes []lanedChange, sizes func() int) string {
	t.Helper()
	w := newWorld()
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	target := w.target(&opts)
	must(t, target.Open(t.Context()))
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	lanes := []freshet.Lane{keyedLane, otherLane}
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, otherLane: -1})
	must(t, err)
	last := []int64{-1, -1}
	for len(changes) > 0 {
		part := changes[:min(sizes(), len(changes))]
		changes = changes[len(part):]
		for _, c := range part {
			_, err := target.Write(t.Context(), itemBatch("t", lanes[c.lane], last[c.lane], []itemChange{c.itemChange}))
			must(t, err)
			last[c.lane]++
		}
		commitAll(t, target)
	}
	must(t, target.Close(context.Background()))
	out := []string{fmt.Sprint("tombstones ", w.tombstonesOf(t, opts)), fmt.Sprint("waiting ", w.sortedRejects(t))}
	for _, table := range []string{"t", lake.DeletedName("t")} {
		out = append(out, w.dump(t, table)...)
	}
	return strings.Join(out, "\n")
}

func (w *world) tombstonesOf(t *testing.T, opts lake.TargetOptions) map[int64]int64 {
	if opts.Mode == lake.SCD2 {
		return nil
	}
	return w.tombstones(t, "t")
}

func (w *world) sortedRejects(t *testing.T) []string {
	var all []string
	for _, r := range w.rejects(t, "t") {
		all = append(all, fmt.Sprint(r))
	}
	slices.Sort(all)
	return all
}

// dump is every row of a table with all its columns, in order.
func (w *world) dump(t *testing.T, table string) (rows []string) {
	t.Helper()
	snap := w.snapshot(t, table)
	if snap == nil {
		return nil
	}
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			row := table
			for c, f := range rec.Schema().Fields() {
				row += fmt.Sprintf(" %s=%s", f.Name, rec.Column(c).ValueStr(i))
			}
			rows = append(rows, row)
		}
		rec.Release()
	}
	slices.Sort(rows)
	return rows
}

// The table does not depend on which changes a commit has together, nor does what stands beside it.
func TestKeyed_CommitsOfAnySize_LeaveTheSame(t *testing.T) {
	at := []string{"at"}
	deletes := []lake.Deletes{lake.HardDeletes, lake.SoftDeletes, lake.LogDeletes, lake.IgnoreDeletes}
	ordered := []stream{{}, {partial: true}}
	late := append(ordered, stream{late: true}, stream{late: true, partial: true}, stream{late: true, partial: true, unordered: true})
	for _, mode := range []struct {
		mode     lake.Mode
		sequence []string
		streams  []stream
	}{{lake.Mirror, nil, ordered}, {lake.Upsert, nil, ordered}, {lake.Upsert, at, late},
		{lake.SCD2, at, append(ordered, stream{late: true})}} {
		for _, policy := range deletes {
			if mode.mode == lake.SCD2 && policy != lake.HardDeletes && policy != lake.IgnoreDeletes {
				continue
			}
			for _, kind := range mode.streams {
				name := fmt.Sprintf("%s %v deletes %s %+v", mode.mode, mode.sequence, policy, kind)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					opts := lake.TargetOptions{Mode: mode.mode, ChangeColumns: []string{lake.PositionColumn},
						Key: lake.KeyOptions{SequenceBy: mode.sequence, Deletes: policy}}
					if mode.mode == lake.SCD2 && kind.late {
						opts.ChangeColumns = nil // a row that is split off has those of the row that it was split from
					}
					leavesTheSame(t, opts, kind)
				})
			}
		}
	}
}

func leavesTheSame(t *testing.T, opts lake.TargetOptions, kind stream) {
	t.Helper()
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 11))
		changes := kind.changes(r, 24)
		want := outcome(t, opts, changes, func() int { return 1 })
		for name, sizes := range map[string]func() int{
			"all": func() int { return len(changes) }, "any": func() int { return 1 + r.IntN(12) }} {
			if got := outcome(t, opts, changes, sizes); got != want {
				t.Fatalf("seed %d, commits of %s size: got\n%s\nwant, of one change a commit\n%s\nchanges\n%v", seed, name, got, want, changes)
			}
		}
	}
}
