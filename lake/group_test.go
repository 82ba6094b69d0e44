package lake_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

func logOf(table string) string { return table + "_log" }

// logged is a target with a change log beside each table.
func logged(open lake.Opener, opts *lake.TargetOptions) *lake.Group {
	return lake.NewGroup(lake.NewTarget(open, app, opts),
		lake.Beside{Target: lake.NewTarget(open, app, lake.ChangeLogOptions(opts)), Name: logOf})
}

// Both the table and its change log keep every promise of a target.
func TestGroup_TargetSuite_Holds(t *testing.T) {
	for name, of := range map[string]func(string) string{"table": func(s string) string { return s }, "log": logOf} {
		t.Run(name, func(t *testing.T) {
			freshettest.RunTarget(t, func(*testing.T) freshettest.TargetHarness {
				w := newWorld()
				return freshettest.TargetHarness{
					New: func(*testing.T) freshet.Target { return logged(w.open, nil) },
					Rows: func(t *testing.T, table string) []freshettest.Row {
						t.Helper()
						return w.rows(t, of(table))
					},
					Rejects: w.rejects,
				}
			})
		})
	}
}

func TestGroup_CrashAtEveryStoreCall_EachOnceInBoth(t *testing.T) {
	const seed = 12
	t.Logf("seed %d", seed)
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w, o := newWorld(), mixed(seed, 2, 9)
			m := &mortal{w: w, at: at, after: after}
			err := pipe(o, seed, logged(m.open, nil), 3).Run(t.Context())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			must(t, pipe(o, seed+1, logged(w.open, nil), 5).Run(t.Context()))
			when := fmt.Sprintf("crash at call %d, after it: %v", at, after)
			w.checkAll(t, when, o)
			rows, _ := o.Want()
			freshettest.CheckOnce(t, when+": the log's rows", w.rows(t, logOf("t")), rows)
		}
	}
}

// A change log that is added to a table later begins where the table is.
func TestGroup_LogAddedLater_BeginsWhereTheTableIs(t *testing.T) {
	w, o := newWorld(), mixed(3, 1, 8)
	must(t, pipe(o, 1, w.target(nil), 5).Run(t.Context()))
	before, _ := o.Want()
	for range 7 {
		o.Append(freshettest.Lane(0), 0, freshettest.GoodRecord)
	}
	must(t, pipe(o, 2, logged(w.open, nil), 5).Run(t.Context()))
	w.checkAll(t, "a log added", o)
	rows, _ := o.Want()
	for lane := range rows {
		rows[lane] = rows[lane][len(before[lane]):]
	}
	freshettest.CheckOnce(t, "the log's rows", w.rows(t, logOf("t")), rows)
}

// Cuts show the table and its log at one moment.
func TestGroup_Cuts_ShowBothAtOneMoment(t *testing.T) {
	w, o := newWorld(), mixed(6, 2, 12)
	must(t, pipe(o, 1, logged(w.open, withCuts), 4).Run(t.Context()))
	o.Append(freshettest.Lane(0), 0, freshettest.GoodRecord)
	must(t, pipe(o, 1, logged(w.open, withCuts), 4).Run(t.Context()))
	cuts := w.cuts(t)
	if len(cuts) < 3 {
		t.Fatalf("got %d cuts, want some", len(cuts))
	}
	for _, c := range cuts {
		if len(c.Tables) != 2 || c.Tables[0].Name != "t" || c.Tables[1].Name != "t_log" {
			t.Fatalf("cut %d: got the tables %+v, want t and t_log", c.Number, c.Tables)
		}
		table, log := sorted(w.rowsAt(t, "t", c.Tables[0].Version)), sorted(w.rowsAt(t, "t_log", c.Tables[1].Version))
		got, want := map[freshettest.Row]int{}, map[freshettest.Row]int{}
		for _, r := range table {
			want[r]++
		}
		for _, r := range log {
			got[r]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("cut %d: the log has %v, the table %v", c.Number, got, want)
		}
	}
}

// A process ends when it has widened a column of the table and not that of its log: the next one goes on with both.
func TestGroup_EndedBetweenWidenings_LogIsWidened(t *testing.T) {
	w, ctx := newWorld(), t.Context()
	of := func(n arrow.DataType) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.BinaryTypes.String}, {Name: "n", Type: n, Nullable: true}}, nil)
	}
	g := logged(w.open, nil)
	must(t, g.Open(ctx))
	must(t, g.Ensure(ctx, "t", of(arrow.PrimitiveTypes.Int32)))
	must(t, g.Close(ctx))
	alone := w.target(nil)
	must(t, alone.Open(ctx))
	must(t, alone.Widen(ctx, "t", of(arrow.PrimitiveTypes.Int64)))
	must(t, alone.Close(ctx))

	g = logged(w.open, nil)
	must(t, g.Open(ctx))
	schema, err := g.Schema(ctx, "t")
	must(t, err)
	must(t, g.Ensure(ctx, "t", schema))
	must(t, g.Close(ctx))
	must(t, alone.Open(ctx))
	log, err := alone.Schema(ctx, logOf("t"))
	must(t, err)
	if n, _ := log.FieldsByName("n"); len(n) != 1 || n[0].Type.ID() != arrow.INT64 {
		t.Errorf("got the log's columns %s, want n to be of 64 bits", log)
	}
}
