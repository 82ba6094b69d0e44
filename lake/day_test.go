package lake_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

var firstDay = freshet.DayOf(time.Date(2020, 2, 27, 0, 0, 0, 0, time.UTC))

// daily is an origin whose lanes have rows of some days, each in the order of time, and what is to be seen at the end of
// each day: the seqs up to it by lane.
func daily(seed uint64, lanes, days int) (*freshettest.Origin, []map[string][]int64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	o := freshettest.NewOrigin(lanes)
	seqs := map[string][]int64{}
	var ends []map[string][]int64
	next := make([]int64, lanes)
	for d := range days {
		for i, l := range o.Lanes() {
			rows := max(0, rng.IntN(5)-1)
			if d == 0 || d == days-1 {
				rows++ // the first and the last day have rows
			}
			for k := range rows {
				at := (firstDay + freshet.Day(d)).Start().Add(time.Duration(k) * 5 * time.Hour)
				o.AppendAt(l, 0, freshettest.GoodRecord, at)
				seqs[l.String()] = append(seqs[l.String()], next[i])
				next[i]++
			}
		}
		end := map[string][]int64{}
		for lane, s := range seqs {
			end[lane] = slices.Clone(s)
		}
		ends = append(ends, end)
	}
	return o, ends
}

var withDays = &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Always: true, KeepDays: 90}}

func byDay(o *freshettest.Origin, seed uint64, target freshet.Target, maxRows int64) *freshet.Pipeline {
	p := cutting(o, seed, target, maxRows)
	p.Options.Days = &freshet.Days{}
	return p
}

// checkDays makes sure that the end of each day but the last shows all rows up to it, and none after.
func (w *world) checkDays(t *testing.T, when string, ends []map[string][]int64) {
	t.Helper()
	log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
	must(t, err)
	for d, want := range ends[:len(ends)-1] {
		c, err := log.AsOfDay(t.Context(), firstDay+freshet.Day(d))
		if err != nil {
			t.Fatalf("%s: day %d: %v", when, d, err)
		}
		got := map[string][]int64{}
		for _, table := range c.Tables {
			for _, r := range w.rowsAt(t, table.Name, table.Version) {
				got[r.Lane] = append(got[r.Lane], r.Seq)
			}
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%s: at the end of day %d there is %v, want %v", when, d, got, want)
		}
	}
	if c, err := log.AsOfDay(t.Context(), firstDay+freshet.Day(len(ends)-1)); err == nil {
		t.Fatalf("%s: the last day, which is not over, is cut %d, want an error", when, c.Number)
	}
	if c, err := log.AsOfDay(t.Context(), firstDay-1); err == nil {
		t.Fatalf("%s: the day before the first is cut %d, want an error", when, c.Number)
	}
}

func TestDays_SeveralLanes_EachDayIsWhole(t *testing.T) {
	for seed := range uint64(5) {
		w := newWorld()
		o, ends := daily(seed, 3, 6)
		must(t, byDay(o, seed, w.target(withDays), 4).Run(t.Context()))
		when := fmt.Sprintf("seed %d", seed)
		w.checkDays(t, when, ends)
		w.checkCuts(t, when, o)
		rows, _ := o.Want()
		var all []freshettest.Row
		for i := range 3 {
			all = append(all, w.rows(t, fmt.Sprint("t", i))...)
		}
		freshettest.CheckOnce(t, when, all, rows)
	}
}

func TestDays_CrashAtEveryStoreCall_EachDayIsWhole(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	for at := 1; ; at++ {
		w := newWorld()
		o, ends := daily(seed, 2, 3)
		m := &mortal{w: w, at: at, after: at%2 == 0}
		err := byDay(o, seed, lake.NewTarget(m.open, app, withDays), 4).Run(t.Context())
		if !m.dead {
			must(t, err)
			t.Logf("%d calls", at-1)
			return
		}
		when := fmt.Sprintf("crash at call %d", at)
		must(t, byDay(o, seed+1, w.target(withDays), 3).Run(t.Context()))
		w.checkDays(t, when, ends)
		w.checkCuts(t, when, o)
	}
}

func TestDays_LateRows_CountToTheOpenDay(t *testing.T) {
	const seed = 5
	w, o := newWorld(), freshettest.NewOrigin(1)
	add := func(day freshet.Day) { o.AppendAt(lane0, 0, freshettest.GoodRecord, day.Start().Add(time.Hour)) }
	add(firstDay)
	add(firstDay + 1)
	add(firstDay) // late
	add(firstDay + 2)
	must(t, byDay(o, seed, w.target(withDays), 1).Run(t.Context()))
	lane := lane0.String()
	w.checkDays(t, "late rows", []map[string][]int64{{lane: {0}}, {lane: {0, 1, 2}}, nil})
}

func TestDays_LanesOfAnotherProcess_DayStaysOpen(t *testing.T) {
	const seed = 6
	w := newWorld()
	o, _ := daily(seed, 2, 3)
	must(t, byDay(o, seed, w.target(withDays), 4).Run(t.Context()))
	cuts := len(w.cuts(t))
	for _, l := range o.Lanes() {
		o.AppendAt(l, 0, freshettest.GoodRecord, (firstDay + 10).Start())
	}
	p := byDay(o, seed, w.target(withDays), 4)
	p.Source = freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Bounded: true, Table: perLane,
		Lanes: []freshet.Lane{lane0}})
	if err := p.Run(t.Context()); err == nil {
		t.Error("the day was closed although another process may read the other lane, want an error")
	}
	for _, c := range w.cuts(t)[cuts:] {
		if c.Opens != 0 {
			t.Errorf("cut %d opened %s", c.Number, c.Opens)
		}
	}
}

// A row of a day that is over moves the end of that day, and of those after it, to the cut that has the row, whatever dies
// in between.
func TestDays_LateRowReopens_EndsOfDaysMove(t *testing.T) {
	const seed = 31
	reopening := func(o *freshettest.Origin, target freshet.Target) *freshet.Pipeline {
		p := byDay(o, seed, target, 3)
		p.Options.Days = &freshet.Days{Reopen: true}
		return p
	}
	for at := range someCalls(t) {
		w := newWorld()
		o, ends := daily(seed, 2, 4)
		must(t, reopening(o, w.target(withDays)).Run(t.Context()))
		w.checkDays(t, "before", ends)
		lane := o.Lanes()[0]
		o.AppendAt(lane, 0, freshettest.GoodRecord, (firstDay + 1).Start().Add(7*time.Hour))
		m := &mortal{w: w, at: at}
		err := reopening(o, lake.NewTarget(m.open, app, withDays)).Run(t.Context())
		if m.dead {
			must(t, reopening(o, w.target(withDays)).Run(t.Context()))
		} else {
			must(t, err)
		}
		log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
		must(t, err)
		rows, _ := o.Want()
		late := rows[lane.String()][len(rows[lane.String()])-1]
		for d := range freshet.Day(3) {
			c, err := log.AsOfDay(t.Context(), firstDay+d)
			must(t, err)
			has := false
			for _, table := range c.Tables {
				for _, r := range w.rowsAt(t, table.Name, table.Version) {
					has = has || r.Lane == lane.String() && r.Seq == late
				}
			}
			if want := d >= 1; has != want {
				t.Fatalf("died at call %d (%v): the end of day %d has the late row: %v, want %v", at, m.dead, d, has, want)
			}
		}
		if days, err := log.List(t.Context(), &lake.CutFilter{Days: true}); err != nil || len(days) != 3 {
			t.Fatalf("got %d days and %v, want 3", len(days), err)
		}
		if !m.dead {
			return
		}
	}
}
