package lake_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// keyedParking are the options of a keyed table, changes of which are parked while it is held.
func keyedParking(t *testing.T, held ...string) *lake.TargetOptions {
	t.Helper()
	o := keyedBy(t.TempDir())
	o.Park = parking(held...).Park
	return o
}

// A row of one lane stands behind one of another: taken up by lane, or by seq, the table would have the older one, and not have what
// came behind a Truncate.
func TestPark_LanesOfOneTable_TakenUpAsTheyCame(t *testing.T) {
	starts := freshet.Progress{keyedLane: 99, otherLane: -1}
	empties := itemBatch("t", keyedLane, 101, []itemChange{{freshet.Truncate, item{}}})
	came := []*freshet.Batch{
		itemBatch("t", otherLane, -1, []itemChange{whole(1, 1, "gone", 1), whole(2, 1, "gone", 1)}),
		itemBatch("t", keyedLane, 99, []itemChange{whole(1, 2, "gone", 2), whole(2, 2, "gone", 2)}),
		empties,
		itemBatch("t", otherLane, 1, []itemChange{whole(1, 3, "old", 3), whole(3, 3, "new", 3)}),
		itemBatch("t", keyedLane, 102, []itemChange{whole(1, 4, "old", 4)}),
		itemBatch("t", otherLane, 3, []itemChange{whole(1, 5, "new", 5)}),
	}
	w := newWorld()
	begin := func(opts *lake.TargetOptions) *lake.Target {
		target := w.running(t, opts)
		must(t, target.Ensure(t.Context(), "t", itemSchema))
		have, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane, otherLane})
		must(t, err)
		if len(have) == 0 {
			_, err = target.Start(t.Context(), "t", starts)
			must(t, err)
		}
		return target
	}
	held := begin(keyedParking(t, "t"))
	for i := range 3 { // of which each has two lanes
		commit(t, held, came[2*i], came[2*i+1])
	}
	begin(keyedParking(t))
	compareItems(t, w.items(t, "t"), map[int64]item{1: whole(1, 5, "new", 5).item, 3: whole(3, 3, "new", 3).item})
}

// A commit of a process that is gone lands while the next one parks changes: of what this left out, since a lane was still to show it,
// the late commit shows less. That must not go unsaid, in either order of the lanes.
func TestPark_LaneBesideMovedByAnother_GapIsLoud(t *testing.T) {
	stream, history := lane0, lane1
	starts := freshet.Progress{stream: -1, history: -1}
	for _, c := range []struct {
		name       string
		late, then freshet.Lane
		seq        int64 // up to which the lane beside is told
		want       freshet.Code
	}{
		{"a chunk lands behind what was left out for it", history, stream, -1, freshet.CodeGap},
		{"newer changes land before a chunk", stream, history, -1, freshet.CodeGap},
		{"nothing was left out", history, stream, 1 << 62, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			gone := w.running(t, nil)
			start(t, gone, starts)
			late := sealed(t, gone, batch(c.late, -1, 4))
			next := w.running(t, parking("t"))
			start(t, next, starts)
			leaves := &freshet.Batch{Table: "t", Lane: c.then, After: -1, Last: 2, Beside: []freshet.Place{{Lane: c.late, Seq: c.seq}}}
			commit(t, next, leaves, batch(c.late, -1, 5), batch(c.then, 2, 3))
			_, err := late.Run(t.Context())
			must(t, err)
			last := w.running(t, parking())
			must(t, last.Ensure(t.Context(), "t", freshettest.Schema()))
			_, err = last.Resume(t.Context(), "t", []freshet.Lane{stream, history})
			if got := codeOf(err); got != c.want {
				t.Fatalf("got %v, want the code %q", err, c.want)
			}
			if c.want != "" && !strings.Contains(err.Error(), c.late.String()+" to 4") {
				t.Errorf("got %v, want which lane, and how far it is", err)
			}
		})
	}
}

// Without such a commit what depends on lanes beside it is taken up, in whichever order a process asks where the lanes go on.
func TestPark_DependsOnLanesBeside_TakenUp(t *testing.T) {
	stream, history := lane0, lane1
	starts := freshet.Progress{stream: -1, history: -1}
	for name, asked := range map[string][][]freshet.Lane{
		"both at once": {{stream, history}}, "the stream first": {{stream}, {history, stream}}, "the history first": {{history}, {stream, history}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			held := w.running(t, parking("t"))
			start(t, held, starts)
			want := map[string][]int64{}
			for i := range int64(6) {
				leaves, chunk := batch(stream, i-1, i), batch(history, i-1, i)
				leaves.Beside, chunk.Beside = []freshet.Place{{Lane: history, Seq: i - 1}}, []freshet.Place{{Lane: stream, Seq: i}}
				commit(t, held, leaves, chunk)
				for l := range starts {
					want[l.String()] = append(want[l.String()], i)
				}
			}
			next := w.running(t, parking())
			must(t, next.Ensure(t.Context(), "t", freshettest.Schema()))
			for _, lanes := range asked {
				have, err := next.Resume(t.Context(), "t", lanes)
				must(t, err)
				for _, lane := range lanes {
					if have[lane] != 5 || len(have) != len(lanes) {
						t.Errorf("got %v, want the lanes that were asked of at 5", have)
					}
				}
			}
			freshettest.CheckOnce(t, "rows", w.rows(t, "t"), want)
		})
	}
}

// Progress that leaves out what a lane beside shows is committed, and not left to a cut: or else who moves that lane would not notice.
func TestCommit_LeavesOutWhatIsShownBeside_NotIdle(t *testing.T) {
	w := newWorld()
	target := w.running(t, nil)
	start(t, target, freshet.Progress{lane0: -1, lane1: -1})
	for i, c := range []struct {
		beside []freshet.Place
		idle   bool
	}{{nil, true}, {[]freshet.Place{{Lane: lane1, Seq: 1 << 62}}, true}, {[]freshet.Place{{Lane: lane1, Seq: -1}}, false}} {
		b := &freshet.Batch{Table: "t", Lane: lane0, After: int64(i) - 1, Last: int64(i), Beside: c.beside}
		one := sealed(t, target, b)
		if _, idle := one.(freshet.IdleCommit).Idle(); idle != c.idle {
			t.Errorf("beside %v: idle is %v, want %v", c.beside, idle, c.idle)
		}
		_, err := one.Run(t.Context())
		must(t, err)
	}
}

// Lanes of one table are resumed one after the other, as partitions come: what is parked of all of them is taken up.
func TestPark_LanesResumedApart_AllTakenUp(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("the second is known: %v", known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				held := w.running(t, parking("t"))
				start(t, held, freshet.Progress{lane0: -1, lane1: -1})
				commit(t, held, batch(lane0, -1, 5), batch(lane1, -1, 5))
				opts := parking()
				opts.Park.TailBytes = 1
				hung := false
				target := lake.NewTarget(func(table string) (store.Store, error) {
					return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
						if table != "t" || op != storetest.OpPutIfAbsent || !strings.HasPrefix(key, "_delta_log/") || hung {
							return storetest.Fault{}
						}
						hung = true // until it is stopped
						return storetest.Fault{Kind: storetest.Slow}
					}), nil
				}, app, opts)
				must(t, target.Open(t.Context()))
				_, err := target.Resume(t.Context(), "t", []freshet.Lane{lane0, lane1})
				must(t, err)
				synctest.Wait()
				if !hung {
					t.Fatal("nothing was taken up beside the stream")
				}
				second := lane1
				if !known {
					second = freshettest.Lane(2)
				}
				_, err = target.Resume(t.Context(), "t", []freshet.Lane{second})
				must(t, err)
				synctest.Wait()
				freshettest.CheckOnce(t, "rows", w.rows(t, "t"),
					map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 5}, lane1.String(): {0, 1, 2, 3, 4, 5}})
				must(t, target.Close(t.Context()))
			})
		})
	}
}
