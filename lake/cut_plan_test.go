package lake_test

import (
	"errors"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// A plan that has changed waits until the former one has left its tables level.
func TestCut_PlanChangedWhileNotLevel_RefusedUntilLevel(t *testing.T) {
	const seed = 41
	w, o := newWorld(), mixed(seed, 1, 6)
	plan := func(name string, take bool) *lake.TargetOptions {
		return &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Plan: name, TakePlan: take}}
	}
	must(t, pipe(o, seed, logged(w.open, plan("p1", false)), 4).Run(t.Context()))
	o.Append(lane0, 0, freshettest.GoodRecord)
	must(t, pipe(o, seed, w.target(nil), 4).Run(t.Context())) // the log is behind, as after a crash
	err := pipe(o, seed, logged(w.open, plan("p2", false)), 4).Run(t.Context())
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodePlanChanged {
		t.Fatalf("got %v, want %s", err, freshet.CodePlanChanged)
	}
	must(t, pipe(o, seed, logged(w.open, plan("p1", false)), 4).Run(t.Context()))
	must(t, pipe(o, seed, logged(w.open, plan("p2", false)), 4).Run(t.Context()))
	o.Append(lane0, 0, freshettest.GoodRecord)
	must(t, pipe(o, seed, w.target(nil), 4).Run(t.Context()))
	must(t, pipe(o, seed, logged(w.open, plan("p3", true)), 4).Run(t.Context()))
	if got := w.lastCut(t).Plan; got != "p3" {
		t.Errorf("the newest cut is of plan %q, want p3", got)
	}
}

// A table that is none of the pipeline's any more does not keep the others from being level.
func TestCut_TableTakenOut_CutsGoOnWithoutIt(t *testing.T) {
	const seed = 42
	w, o := newWorld(), mixed(seed, 1, 6)
	must(t, pipe(o, seed, logged(w.open, withCuts), 4).Run(t.Context()))
	o.Append(lane0, 0, freshettest.GoodRecord)
	opts := &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Always: true, Plan: "p2",
		Of: func(table string) bool { return table == "t" }}}
	must(t, pipe(o, seed, w.target(opts), 4).Run(t.Context()))
	if last := w.lastCut(t); last.Plan != "p2" || len(last.Tables) != 1 || last.Tables[0].Name != "t" {
		t.Errorf("the newest cut is %+v, want one of t by p2", last)
	}
}

// A lane that is not read any more keeps no day open.
func TestDay_LaneTakenOut_DaysAreOverWithoutIt(t *testing.T) {
	const seed = 43
	w := newWorld()
	o, _ := daily(seed, 2, 2)
	opts := *withDays
	cuts := *withDays.Cuts
	opts.Cuts = &cuts
	must(t, byDay(o, seed, w.target(&opts), 5).Run(t.Context()))
	o.AppendAt(lane0, 0, freshettest.GoodRecord, (firstDay + 3).Start())
	run := func() error {
		p := byDay(o, seed, w.target(&opts), 5)
		p.Source = freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Bounded: true, TellEnds: true,
			Lanes: []freshet.Lane{lane0}, Table: perLane})
		return p.Run(t.Context())
	}
	if err := run(); err == nil {
		t.Error("got no error while another process may read the other lane")
	}
	cuts.Reads = func(l freshet.Lane) bool { return l == lane0 }
	must(t, run())
	log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
	must(t, err)
	if _, err := log.AsOfDay(t.Context(), firstDay+2); err != nil {
		t.Errorf("the day that is over: %v", err)
	}
}
