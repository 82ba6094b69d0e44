package lake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// parking are options under which changes of these tables are parked, with cuts.
func parking(held ...string) *lake.TargetOptions {
	o := &lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts"}, Park: &lake.ParkOptions{Held: map[string]bool{}}}
	for _, table := range held {
		o.Park.Held[table] = true
	}
	return o
}

// rowsIn are the rows of some tables, by lane and seq.
func (w *world) rowsIn(t *testing.T, tables ...string) []freshettest.Row {
	t.Helper()
	var all []freshettest.Row
	for _, table := range tables {
		all = append(all, w.rows(t, table)...)
	}
	return all
}

// A table that is held back stays as it is, and its source and the other tables go on; then it takes up what was parked.
func TestPark_OneOfTwoTables_OthersGoOnAndItFollows(t *testing.T) {
	const seed = 21
	w, o := newWorld(), mixed(seed, 2, 12)
	must(t, cutting(o, seed, w.target(parking()), 5).Run(t.Context()))
	before := w.snapshot(t, "t1").Version()
	grow(o, 9)
	src := freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Bounded: true, Table: perLane})
	p := cutting(o, seed, w.target(parking("t1")), 5)
	p.Source = src
	must(t, p.Run(t.Context()))
	if got := w.snapshot(t, "t1").Version(); got != before {
		t.Errorf("the table that is held back is at version %d, want %d as before", got, before)
	}
	rows, rejects := o.Want()
	freshettest.CheckOnce(t, "the other table", w.rows(t, "t0"), map[string][]int64{"o[0]": rows["o[0]"]})
	if got, want := src.Acked("t1")[freshettest.Lane(1)], lastOf(o, 1); got != want {
		t.Errorf("the origin may forget up to %d of the table that is held back, want %d: it is parked", got, want)
	}
	last := w.lastCut(t)
	if !slices.Equal(last.LeftOut, []string{"t1"}) || len(last.Tables) != 1 || last.Tables[0].Name != "t0" {
		t.Errorf("the newest cut shows %v and leaves out %v, want t0 and t1", last.Tables, last.LeftOut)
	}
	must(t, cutting(o, seed+1, w.target(parking()), 5).Run(t.Context()))
	freshettest.CheckOnce(t, "rows", w.rowsIn(t, "t0", "t1"), rows)
	freshettest.CheckOnce(t, "rejects", append(w.rejects(t, "t0"), w.rejects(t, "t1")...), rejects)
	if last = w.lastCut(t); len(last.LeftOut) != 0 || len(last.Tables) != 2 {
		t.Errorf("the newest cut shows %v and leaves out %v, want both", last.Tables, last.LeftOut)
	}
	w.checkLastCut(t, "gone on")
}

// grow adds records of all kinds to all lanes.
func grow(o *freshettest.Origin, n int) {
	for _, l := range o.Lanes() {
		for i := range n {
			o.Append(l, int64(i%2), freshettest.RecordKind(i%3))
		}
	}
}

// lastOf is the last seq of a lane.
func lastOf(o *freshettest.Origin, lane int) int64 {
	src := freshettest.NewSource(o, freshettest.SourceOptions{TellEnds: true})
	last, _ := src.End("", freshettest.Lane(lane))
	return last
}

func (w *world) lastCut(t *testing.T) *lake.Cut {
	t.Helper()
	all := w.cuts(t)
	if len(all) == 0 {
		t.Fatal("got no cut")
	}
	return all[len(all)-1]
}

// The process dies at each call while it parks, and the next one while it takes up.
func TestPark_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	const seed = 22
	t.Logf("seed %d", seed)
	for name, phase := range map[string]int{"parking": 0, "taking up": 1} {
		t.Run(name, func(t *testing.T) { crashParked(t, seed, phase) })
	}
}

func crashParked(t *testing.T, seed uint64, phase int) {
	t.Helper()
	for at := 1; ; at++ {
		w, o := newWorld(), mixed(seed, 2, 2)
		must(t, cutting(o, seed, w.target(parking()), 9).Run(t.Context()))
		grow(o, 3)
		opts := parking("t1")
		if phase == 1 {
			must(t, cutting(o, seed, w.target(opts), 3).Run(t.Context()))
			o.Append(freshettest.Lane(1), 0, freshettest.GoodRecord)
			opts = parking()
		}
		m := &mortal{w: w, at: at, after: at%2 == 0}
		err := cutting(o, seed+1, lake.NewTarget(m.open, app, opts), 4).Run(t.Context())
		if !m.dead {
			must(t, err)
			t.Logf("%d calls", at-1)
			return
		}
		when := fmt.Sprintf("crash at call %d, after it: %v", at, m.after)
		if phase == 0 {
			must(t, cutting(o, seed+2, w.target(opts), 2).Run(t.Context()))
		}
		must(t, cutting(o, seed+3, w.target(parking()), 9).Run(t.Context()))
		rows, rejects := o.Want()
		freshettest.CheckOnce(t, when+": rows", w.rowsIn(t, "t0", "t1"), rows)
		freshettest.CheckOnce(t, when+": rejects", append(w.rejects(t, "t0"), w.rejects(t, "t1")...), rejects)
		w.checkCuts(t, when, o)
		if t.Failed() {
			t.FailNow()
		}
	}
}

// Of a table and its change log, which one lane feeds, either may be held back alone.
func TestPark_TableOrItsLogHeldBack_TheOtherGoesOn(t *testing.T) {
	for _, held := range []string{"t", "t_log"} {
		t.Run(held, func(t *testing.T) {
			const seed = 23
			w, o := newWorld(), mixed(seed, 2, 6)
			must(t, pipe(o, seed, logged(w.open, parking()), 4).Run(t.Context()))
			behind, _ := o.Want()
			grow(o, 6)
			must(t, pipe(o, seed, logged(w.open, parking(held)), 4).Run(t.Context()))
			rows, _ := o.Want()
			for _, table := range []string{"t", "t_log"} {
				want := rows
				if table == held {
					want = behind
				}
				freshettest.CheckOnce(t, "while it is held back: "+table, w.rows(t, table), want)
			}
			if last := w.lastCut(t); !slices.Equal(last.LeftOut, []string{held}) {
				t.Errorf("the newest cut leaves out %v, want %s", last.LeftOut, held)
			}
			must(t, pipe(o, seed, logged(w.open, parking()), 4).Run(t.Context()))
			w.checkAll(t, "gone on", o)
			freshettest.CheckOnce(t, "the log's rows", w.rows(t, "t_log"), rows)
			if last := w.lastCut(t); len(last.LeftOut) != 0 {
				t.Errorf("the newest cut leaves out %v, want none", last.LeftOut)
			}
		})
	}
}

func TestPark_LogHeldBack_CrashAtEveryStoreCall_EachOnceInBoth(t *testing.T) {
	const seed = 24
	for at := 1; ; at++ {
		w, o := newWorld(), mixed(seed, 1, 2)
		must(t, pipe(o, seed, logged(w.open, parking("t_log")), 4).Run(t.Context()))
		grow(o, 3)
		m := &mortal{w: w, at: at, after: at%2 == 0}
		err := pipe(o, seed+1, logged(m.open, parking()), 4).Run(t.Context())
		if !m.dead {
			must(t, err)
			t.Logf("%d calls", at-1)
			return
		}
		must(t, pipe(o, seed+2, logged(w.open, parking()), 3).Run(t.Context()))
		when := fmt.Sprintf("crash at call %d", at)
		w.checkAll(t, when, o)
		rows, _ := o.Want()
		freshettest.CheckOnce(t, when+": the log's rows", w.rows(t, "t_log"), rows)
	}
}

// With more than may wait, it is taken up beside the stream, and what comes meanwhile is parked behind it.
func TestPark_MuchIsParked_TakenUpBesideTheStream(t *testing.T) {
	const seed = 25
	w, o := newWorld(), mixed(seed, 2, 30)
	must(t, cutting(o, seed, w.target(parking("t1")), 5).Run(t.Context()))
	opts := parking()
	opts.Park.TailBytes = 6000
	src := freshettest.NewSource(o, freshettest.SourceOptions{Seed: seed, Table: perLane})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := cutting(o, seed, w.target(opts), 5)
	p.Source = src
	p.Options.Every = 20 * time.Millisecond
	landed := make(chan freshet.Committed, 1024)
	p.Options.Observer.Committed = func(c freshet.Committed, _, _ time.Duration, _ time.Time) { landed <- c }
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	parkedOnce := false
	for live := false; !live; { // what comes is parked until the table has taken up the rest
		o.Append(freshettest.Lane(1), 0, freshettest.GoodRecord)
		select {
		case c := <-landed:
			parkedOnce = parkedOnce || c.Parked
			live = c.Table == "t1" && !c.Parked && parkedOnce
		case err := <-ended:
			t.Fatal(err)
		}
	}
	stop()
	must(t, <-ended)
	must(t, cutting(o, seed, w.target(parking()), 5).Run(t.Context()))
	rows, rejects := o.Want()
	freshettest.CheckOnce(t, "rows", w.rowsIn(t, "t0", "t1"), rows)
	freshettest.CheckOnce(t, "rejects", append(w.rejects(t, "t0"), w.rejects(t, "t1")...), rejects)
}

// Beyond its bound nothing more is kept, and the table goes on from what its origin still has.
func TestPark_MoreThanMayBeParked_GoesOnFromTheOrigin(t *testing.T) {
	const seed = 26
	w, o := newWorld(), mixed(seed, 2, 40)
	for range 2 { // a process that is held back still reads nothing twice
		opts := parking("t1")
		opts.Park.MaxRows = 7
		must(t, cutting(o, seed, w.target(opts), 5).Run(t.Context()))
		grow(o, 4)
	}
	state, err := lake.ReadParked(t.Context(), w.store("t1_parked"), w.store("t1"), app, w.cutsOf)
	must(t, err)
	if state.Rows > 7 || state.Rows == 0 || state.Over.IsZero() {
		t.Errorf("got %+v, want up to 7 rows and since when there were too many", state)
	}
	must(t, cutting(o, seed, w.target(parking()), 5).Run(t.Context()))
	rows, _ := o.Want()
	freshettest.CheckOnce(t, "rows", w.rowsIn(t, "t0", "t1"), rows)
	state, err = lake.ReadParked(t.Context(), w.store("t1_parked"), w.store("t1"), app, w.cutsOf)
	must(t, err)
	if state.Rows != 0 || !state.Over.IsZero() {
		t.Errorf("gone on: got %+v, want nothing parked", state)
	}
}

// A seq that comes in several batches is parked in parts, and taken up whole.
func TestPark_SeqInSeveralBatches_TakenUpWhole(t *testing.T) {
	w := newWorld()
	held := w.running(t, parking("t"))
	start(t, held, freshet.Progress{lane0: -1})
	commit(t, held, append(parts(-1, 4), batch(lane0, 4, 6))...)
	commit(t, held, parts(6, 7)...)
	freshettest.CheckOnce(t, "rows while it is held back", w.rows(t, "t"), map[string][]int64{})
	start(t, w.running(t, parking()), freshet.Progress{lane0: -1})
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"), map[string][]int64{lane0.String(): {4, 4, 5, 6, 7, 7}})
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {4, 4, 7, 7}})
}

// A table that cannot take its rows is held back alone, and what it could not take is parked.
func TestPark_TableFails_HeldBackAloneIfWanted(t *testing.T) {
	w := newWorld()
	lane := freshettest.Lane(0)
	first := w.running(t, nil)
	start(t, first, freshet.Progress{lane: -1})
	commit(t, first, batch(lane, -1, 3))
	opts := parking()
	opts.FixedSchema = true
	var told error
	opts.Park.OnError = func(_ context.Context, table string, err error) error {
		told = fmt.Errorf("%s: %w", table, err)
		return nil
	}
	target := w.running(t, opts)
	start(t, target, freshet.Progress{lane: -1})
	_, err := target.Write(t.Context(), wide(lane, 3, 5, "more", freshettest.Schema().Field(1).Type))
	if !errors.Is(err, freshet.ErrStale) || told == nil {
		t.Fatalf("got %v, and was told %v, want ErrStale and to be told", err, told)
	}
	target.Discard("t")
	at, err := target.Resume(t.Context(), "t", []freshet.Lane{lane})
	must(t, err)
	if at[lane] != 3 {
		t.Fatalf("got %v, want to go on after 3", at)
	}
	commit(t, target, wide(lane, 3, 5, "more", freshettest.Schema().Field(1).Type))
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"), map[string][]int64{lane.String(): {0, 1, 2, 3}})
	opts = parking()
	mended := w.running(t, opts)
	start(t, mended, freshet.Progress{lane: -1})
	freshettest.CheckOnce(t, "rows of a table that may get columns", w.rows(t, "t"),
		map[string][]int64{lane.String(): {0, 1, 2, 3, 4, 5}})
}
