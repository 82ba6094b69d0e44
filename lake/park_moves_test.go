package lake_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// Lanes move between two processes while both take up what was parked of their table, beside what comes: a process goes on to take up lanes that it
// has no more, and both may take up the same ones. Each commit lands on exactly what it started from, so that nothing is twice, or missing.
func TestPark_LanesMoveWhileTakenUp_EachOnce(t *testing.T) {
	for seed := range number("FRESHET_FIRE_ROUNDS", 3) {
		for mode, dir := range map[string]func() string{"append": func() string { return "" }, "upsert": t.TempDir} {
			dirs := []string{dir(), dir(), dir()}
			synctest.Test(t, func(t *testing.T) { moveWhileTakenUp(t, uint64(seed), mode, dirs) })
		}
		if t.Failed() {
			return
		}
	}
}

func moveWhileTakenUp(t *testing.T, seed uint64, mode string, dirs []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s, o := newSick(), mixed(seed, 3, 30)
	held := parking("t")
	must(t, pipe(o, seed, s.target(held), 5).Run(t.Context()))
	copies := make([]*freshettest.Source, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, len(copies))
	options := func(i int) *lake.TargetOptions {
		opts := patient(dirs[i])
		opts.Park.TailBytes = 1
		return opts
	}
	for i, lanes := range [][]freshet.Lane{o.Lanes(), {}} {
		copies[i] = freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Lanes: lanes})
		p := &freshet.Pipeline{Name: "test", Source: copies[i], Target: lake.NewTarget(s.open, app, options(i)),
			Options: freshet.Options{Every: time.Second, MaxRows: 5}}
		go func() { ended <- p.Run(ctx) }()
		pass(time.Second)
	}
	s.fall(answersAfter(700*time.Millisecond), "t")
	owner := make([]int, len(o.Lanes()))
	for range 12 {
		pass(time.Duration(r.IntN(5000)) * time.Millisecond)
		lane := r.IntN(len(owner))
		moved := []freshet.Lane{freshettest.Lane(lane)}
		must(t, copies[owner[lane]].Revoke(ctx, moved))
		owner[lane] = 1 - owner[lane]
		must(t, copies[owner[lane]].Assign(ctx, moved))
		grow(o, 1)
	}
	s.fall(nil, "t")
	pass(time.Minute)
	cancel()
	for range copies {
		must(t, <-ended)
	}
	must(t, pipe(o, seed, s.target(options(2)), 5).Run(t.Context()))
	rows, rejects := o.Want()
	freshettest.CheckOnce(t, mode+": rows", s.rows(t, "t"), rows)
	freshettest.CheckOnce(t, mode+": rejects", s.rejects(t, "t"), rejects)
	if t.Failed() {
		t.Errorf("%s, seed %d", mode, seed)
	}
}
