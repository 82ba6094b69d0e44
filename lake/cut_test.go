package lake_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// perLane sends each lane into a table of its own.
func perLane(l freshet.Lane) string { return "t" + l.Name }

// cutting returns a pipeline of a table a lane that records cuts into "cuts".
func cutting(o *freshettest.Origin, seed uint64, target freshet.Target, maxRows int64) *freshet.Pipeline {
	p := pipe(o, seed, target, maxRows)
	p.Source = freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Bounded: true, Table: perLane})
	return p
}

var withCuts = &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Plan: "p1"}}

// cuts are all that were recorded.
func (w *world) cuts(t *testing.T) []*lake.Cut {
	t.Helper()
	if w.snapshot(t, "cuts") == nil {
		return nil
	}
	log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
	must(t, err)
	all, err := log.List(t.Context(), &lake.CutFilter{})
	must(t, err)
	return all
}

// rowsAt are the rows of a table at a version, by lane and seq.
func (w *world) rowsAt(t *testing.T, table string, version int64) []freshettest.Row {
	t.Helper()
	d, err := delta.Open(t.Context(), w.store(table), nil)
	must(t, err)
	snap, err := d.SnapshotAt(t.Context(), version)
	must(t, err)
	return rowsOf(t, snap)
}

// checkCuts makes sure that each cut's versions hold all up to its seqs of each lane, and nothing past them, and that
// numbers, seqs and versions only grow.
func (w *world) checkCuts(t *testing.T, when string, o *freshettest.Origin) {
	t.Helper()
	rows, _ := o.Want()
	var before *lake.Cut
	for _, c := range w.cuts(t) {
		at := map[string]int64{}
		for _, l := range c.Lanes {
			at[l.Lane.String()] = l.Seq
		}
		got := map[string][]int64{}
		for _, table := range c.Tables {
			for _, r := range w.rowsAt(t, table.Name, table.Version) {
				got[r.Lane] = append(got[r.Lane], r.Seq)
			}
		}
		for lane, seqs := range rows {
			var want []int64
			for _, seq := range seqs {
				if last, known := at[lane]; known && seq <= last {
					want = append(want, seq)
				}
			}
			if !slices.Equal(got[lane], want) {
				t.Fatalf("%s: cut %d: %s has %v, want %v", when, c.Number, lane, got[lane], want)
			}
		}
		if before != nil && c.Number != before.Number+1 {
			t.Fatalf("%s: cut %d follows cut %d", when, c.Number, before.Number)
		}
		before = c
	}
}

func TestCut_TwoTables_ShowsBothAtTheLanesSeqs(t *testing.T) {
	const seed = 3
	w, o := newWorld(), mixed(seed, 2, 20)
	must(t, cutting(o, seed, w.target(withCuts), 5).Run(t.Context()))
	all := w.cuts(t)
	if len(all) < 3 {
		t.Fatalf("got %d cuts, want several", len(all))
	}
	w.checkCuts(t, "one run", o)
	last := all[len(all)-1]
	if len(last.Tables) != 2 || len(last.Lanes) != 2 || last.Plan != "p1" || last.RecordedAt.IsZero() {
		t.Errorf("the last cut is %+v", last)
	}
	for _, table := range last.Tables {
		if want := w.snapshot(t, table.Name).Version(); table.Version != want {
			t.Errorf("%s is in the last cut at version %d, want %d", table.Name, table.Version, want)
		}
	}
}

func TestCut_OneTable_OnlyWhenAsked(t *testing.T) {
	const seed = 4
	w, o := newWorld(), mixed(seed, 2, 5)
	must(t, pipe(o, seed, w.target(withCuts), 5).Run(t.Context()))
	if got := w.cuts(t); got != nil {
		t.Errorf("got %d cuts of a single table, want none", len(got))
	}
	o.Fill(3)
	opts := &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Always: true}}
	must(t, pipe(o, seed, w.target(opts), 5).Run(t.Context()))
	if got := w.cuts(t); len(got) == 0 {
		t.Error("got no cuts of a single table that were asked for")
	}
	w.checkCuts(t, "one table", o)
}

func TestCut_CrashAtEveryStoreCall_ReadersSeeWholeCuts(t *testing.T) {
	const seed = 12
	t.Logf("seed %d", seed)
	halves := 0
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w, o := newWorld(), mixed(seed, 2, 3)
			m := &mortal{w: w, at: at, after: after}
			spy := &sealSpy{Target: lake.NewTarget(m.open, app, withCuts)}
			err := cutting(o, seed, spy, 3).Run(t.Context())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls, %d groups were left half", at-1, halves)
				if halves == 0 {
					t.Error("no group was left half")
				}
				return
			}
			when := fmt.Sprintf("crash at call %d, after it: %v", at, after)
			w.checkCuts(t, when, o)
			half := spy.half(t, w)
			halves += len(half)
			must(t, cutting(o, seed+1, w.target(withCuts), 1).Run(t.Context()))
			w.checkCuts(t, when+", next run", o)
			w.checkGroups(t, when, spy.groups, half)
			w.checkLastCut(t, when)
		}
	}
}

// sealSpy notes where each lane ends in what is sealed together.
type sealSpy struct {
	*lake.Target
	written map[string]int64
	groups  []map[string]int64
}

func (s *sealSpy) Write(ctx context.Context, b *freshet.Batch) (int64, error) {
	if s.written == nil {
		s.written = map[string]int64{}
	}
	s.written[b.Lane.String()] = b.Last
	return s.Target.Write(ctx, b)
}

func (s *sealSpy) Seal(ctx context.Context) ([]freshet.Commit, error) {
	s.groups = append(s.groups, s.written)
	s.written = nil
	return s.Target.Seal(ctx)
}

// half are the groups of which the tables hold a part: the number of each, and the lanes that landed.
func (s *sealSpy) half(t *testing.T, w *world) map[int][]string {
	t.Helper()
	at := map[string]int64{}
	for _, table := range []string{"t0", "t1"} {
		if w.snapshot(t, table) == nil {
			continue
		}
		apps, err := lake.ReadProgress(t.Context(), w.store(table))
		must(t, err)
		for _, a := range apps {
			for _, l := range a.Lanes {
				at[l.Lane.String()] = l.Seq
			}
		}
	}
	all := map[int][]string{}
	for i, g := range s.groups {
		var landed []string
		for lane, seq := range g {
			if at[lane] >= seq {
				landed = append(landed, lane)
			}
		}
		if len(landed) > 0 && len(landed) < len(g) {
			all[i] = landed
		}
	}
	return all
}

// checkGroups makes sure that no cut shows what landed of a group without the rest.
func (w *world) checkGroups(t *testing.T, when string, groups []map[string]int64, half map[int][]string) {
	t.Helper()
	for _, c := range w.cuts(t) {
		at := map[string]int64{}
		for _, l := range c.Lanes {
			at[l.Lane.String()] = l.Seq
		}
		for i, landed := range half {
			for lane, seq := range groups[i] {
				if at[landed[0]] >= groups[i][landed[0]] && at[lane] < seq {
					t.Fatalf("%s: cut %d shows %s of group %d, and not %s: it is at %d, wanted %d", when, c.Number, landed, i,
						lane, at[lane], seq)
				}
			}
		}
	}
}

// checkLastCut makes sure that the newest cut shows the tables as they are.
func (w *world) checkLastCut(t *testing.T, when string) {
	t.Helper()
	all := w.cuts(t)
	if len(all) == 0 {
		t.Fatalf("%s: no cut", when)
	}
	for _, table := range all[len(all)-1].Tables {
		snap := w.snapshot(t, table.Name)
		if d := snap.Version() - table.Version; d != 0 {
			t.Fatalf("%s: %s is at version %d, the newest cut has it at %d", when, table.Name, snap.Version(), table.Version)
		}
	}
}

// Copies of a pipeline fight: what one of them records must never contradict what another did.
func TestCut_CopiesDieAtRandom_NoContradiction(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w, o := newWorld(), mixed(seed, 2, 30)
	fight(t, seed, func(m *mortal, from uint64) *freshet.Pipeline {
		m.w = w
		return cutting(o, from, lake.NewTarget(m.open, app, withCuts), 8)
	})
	must(t, cutting(o, seed, w.target(withCuts), 8).Run(t.Context()))
	w.checkCuts(t, "after all copies", o)
	w.checkLastCut(t, "after all copies")
}
