package lake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// commonLog is an origin whose only lane several tables follow: at each seq, from 1 on, some of them get a row. It forgets what all of
// them are said to hold.
type commonLog struct {
	tables []string

	mu     sync.Mutex
	rows   [][]string // by seq − 1, the tables that get a row
	forgot int64
}

// at adds a seq at which these tables get a row.
func (l *commonLog) at(tables ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, tables)
}

// grow adds n seqs at which some of the first few tables get rows.
func (l *commonLog) grow(rng *rand.Rand, n, few int) {
	for range n {
		var some []string
		for len(some) == 0 {
			for _, table := range l.tables[:few] {
				if rng.IntN(2) == 0 {
					some = append(some, table)
				}
			}
		}
		l.at(some...)
	}
}

func (l *commonLog) last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.rows))
}

// want are the seqs that a table has rows of, up to one.
func (l *commonLog) want(table string, upto int64) (seqs []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, tables := range l.rows[:upto] {
		if slices.Contains(tables, table) {
			seqs = append(seqs, int64(i+1))
		}
	}
	return seqs
}

// logReader reads a common log up to its end, in batches as chance has it.
type logReader struct {
	log   *commonLog
	rng   *rand.Rand
	down  freshet.Downstream
	ready []*freshet.Batch
	after map[string]int64
	pos   int64
	told  bool // at the end of the log, that all tables have all

	mu    sync.Mutex
	acked map[string]int64
}

func (l *commonLog) reader(seed uint64) *logReader {
	return &logReader{log: l, rng: rand.New(rand.NewPCG(seed, 3)), after: map[string]int64{}, acked: map[string]int64{}}
}

// run reads the log into the target, with so many rows a commit.
func (l *commonLog) run(t *testing.T, seed uint64, target freshet.Target, maxRows int64) error {
	return l.pipe(seed, target, maxRows).Run(t.Context())
}

func (l *commonLog) pipe(seed uint64, target freshet.Target, maxRows int64) *freshet.Pipeline {
	return &freshet.Pipeline{Name: "test", Source: l.reader(seed), Target: target,
		Options: freshet.Options{MaxRows: maxRows, QueueBatches: 4, Every: time.Hour}}
}

var errForgotten = errors.New("the log has forgotten what the table needs next")

func (r *logReader) Open(ctx context.Context, down freshet.Downstream) error {
	r.down, r.pos = down, r.log.last()
	for _, table := range r.log.tables {
		if err := down.Ensure(ctx, table, freshettest.Schema()); err != nil {
			return err
		}
		if err := r.locate(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// locate asks where a table goes on, which must not be before what the log has forgotten.
func (r *logReader) locate(ctx context.Context, table string) error {
	lane := freshettest.Lane(0)
	r.log.mu.Lock()
	forgot := r.log.forgot // before the answer: another copy may let it forget more
	r.log.mu.Unlock()
	p, err := r.down.Resume(ctx, table, []freshet.Lane{lane})
	if err == nil && len(p) == 0 {
		p, err = r.down.Start(ctx, table, freshet.Progress{lane: 0})
	}
	if err != nil {
		return err
	}
	if p[lane] < forgot {
		return fmt.Errorf("%s is at %d, and the log begins behind %d: %w", table, p[lane], forgot, errForgotten)
	}
	r.after[table], r.pos, r.told = p[lane], min(r.pos, p[lane]), false
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[table] = p[lane]
	return nil
}

func (r *logReader) Next(context.Context) (*freshet.Batch, error) {
	if len(r.ready) == 0 && !r.read() {
		if r.told {
			return nil, io.EOF
		}
		r.told = true
		table := slices.MinFunc(r.log.tables, func(a, b string) int { return int(r.after[a] - r.after[b]) })
		if r.after[table] < r.pos {
			r.ready = append(r.ready, &freshet.Batch{Table: table, Lane: freshettest.Lane(0), After: r.after[table], Last: r.pos, Level: true})
			r.after[table] = r.pos
		} else {
			return nil, io.EOF
		}
	}
	b := r.ready[0]
	r.ready = r.ready[1:]
	return b, nil
}

// read makes a moment of the next few seqs, and reports whether there is one.
func (r *logReader) read() bool {
	for len(r.ready) == 0 {
		from, to := r.pos, min(r.pos+1+int64(r.rng.IntN(3)), r.log.last())
		if from == to {
			return false
		}
		r.pos = to
		for _, table := range r.log.tables {
			rows := slices.DeleteFunc(r.log.want(table, to), func(seq int64) bool { return seq <= max(from, r.after[table]) })
			if len(rows) > 0 {
				b := rowsOfLog(table, r.after[table], to, rows)
				b.More, r.after[table] = true, to
				r.ready = append(r.ready, b)
			}
		}
	}
	last := r.ready[len(r.ready)-1]
	last.More, last.Level = false, true
	return true
}

func rowsOfLog(table string, after, last int64, seqs []int64) *freshet.Batch {
	lane := freshettest.Lane(0)
	rows := array.NewRecordBuilder(memory.DefaultAllocator, freshettest.Schema())
	defer rows.Release()
	for _, seq := range seqs {
		rows.Field(0).(*array.StringBuilder).Append(lane.String())
		rows.Field(1).(*array.Int64Builder).Append(seq)
	}
	return &freshet.Batch{Table: table, Lane: lane, After: after, Last: last, Seqs: seqs, Rows: rows.NewRecordBatch(), Bytes: int64(len(seqs))}
}

func (r *logReader) Rewind(ctx context.Context, table string) error {
	for _, b := range r.ready {
		b.Release()
	}
	for _, b := range r.ready { // they come again
		r.after[b.Table] = min(r.after[b.Table], b.After)
		r.pos = min(r.pos, b.After)
	}
	r.ready = nil
	return r.locate(ctx, table)
}

func (r *logReader) Ack(_ context.Context, table string, p freshet.Progress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[table] = max(r.acked[table], p[freshettest.Lane(0)])
	if len(r.acked) < len(r.log.tables) {
		return nil
	}
	least := r.acked[table]
	for _, seq := range r.acked {
		least = min(least, seq)
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.forgot = max(r.log.forgot, least)
	return nil
}

func (r *logReader) Close(context.Context) error { return nil }

// checkLog makes sure that each table has each of its rows once, and each cut what came up to where it stands, and nothing past it.
func (w *world) checkLog(t *testing.T, when string, l *commonLog) {
	t.Helper()
	check := func(what, table string, upto int64, rows []freshettest.Row) {
		t.Helper()
		var got []int64
		for _, r := range rows {
			got = append(got, r.Seq)
		}
		if want := l.want(table, upto); !slices.Equal(got, want) {
			t.Fatalf("%s: %s: %s has %v, want %v", when, what, table, got, want)
		}
	}
	before := int64(-1)
	for _, c := range w.cuts(t) {
		if len(c.Lanes) != 1 || c.Lanes[0].Seq < before {
			t.Fatalf("%s: cut %d stands at %v, the one before at %d", when, c.Number, c.Lanes, before)
		}
		before = c.Lanes[0].Seq
		for _, table := range c.Tables {
			check(fmt.Sprintf("cut %d", c.Number), table.Name, before, w.rowsAt(t, table.Name, table.Version))
		}
	}
	for _, table := range l.tables {
		check("at the end", table, l.last(), w.rows(t, table))
	}
}

// cutsOf is the cuts table of a marker.
func (w *world) cutsOf(lake.CutMarker) (store.Store, error) { return w.store("cuts"), nil }

// newest is where the newest cut stands.
func (w *world) newest(t *testing.T) int64 {
	t.Helper()
	return w.lastCut(t).Lanes[0].Seq
}

// Cuts keep up with the one table that changes, those for which nothing comes get no versions, and the log forgets what all have.
func TestCut_QuietTables_AtTheMomentOfTheOther(t *testing.T) {
	w, l := newWorld(), &commonLog{tables: []string{"t0", "t1", "t2", "t3"}}
	rng := rand.New(rand.NewPCG(41, 1))
	l.grow(rng, 4, 4)
	must(t, l.run(t, 41, w.target(withCuts), 2))
	var versions []int64
	for _, table := range l.tables[1:] {
		versions = append(versions, w.snapshot(t, table).Version())
	}
	for run := range uint64(3) {
		before := len(w.cuts(t))
		l.grow(rng, 12, 1)
		must(t, l.run(t, 42+run, w.target(withCuts), 2))
		if got, want := w.newest(t), l.last(); got != want || l.forgot != want {
			t.Errorf("the newest cut stands at %d and the log begins behind %d, want %d", got, l.forgot, want)
		}
		if got := len(w.cuts(t)) - before; got < 3 {
			t.Errorf("got %d cuts of 12 rows that were committed by few, want at least 3", got)
		}
	}
	for i, table := range l.tables[1:] {
		if got := w.snapshot(t, table).Version(); got != versions[i] {
			t.Errorf("%s is at version %d, want %d as before: nothing came for it", table, got, versions[i])
		}
	}
	l.grow(rng, 8, 4)
	must(t, l.run(t, 50, w.target(withCuts), 3))
	w.checkLog(t, "at the end", l)
	w.checkLastCut(t, "at the end")
}

// Wherever a process dies, the log still has what each table needs next, and cuts are right.
func TestCut_QuietTablesCrashAtEveryStoreCall_NothingForgotten(t *testing.T) {
	for at := range someCalls(t) {
		for _, after := range []bool{false, true} {
			w, l := newWorld(), &commonLog{tables: []string{"t0", "t1", "t2"}}
			rng := rand.New(rand.NewPCG(43, 1))
			l.grow(rng, 3, 3)
			must(t, l.run(t, 43, w.target(withCuts), 2))
			l.grow(rng, 6, 1)
			l.grow(rng, 3, 2)
			m := &mortal{w: w, at: at, after: after}
			err := l.run(t, 44, lake.NewTarget(m.open, app, withCuts), 2)
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			if err != nil && !errors.Is(err, storetest.ErrCrashed) { // what looks after the log beside the stream may be what dies
				t.Fatalf("crash at call %d, after it: %v: got %v", at, after, err)
			}
			l.grow(rng, 2, 1)
			must(t, l.run(t, 45, w.target(withCuts), 3))
			when := fmt.Sprintf("crash at call %d, after it: %v", at, after)
			w.checkLog(t, when, l)
			if got, want := w.newest(t), l.last(); got != want {
				t.Fatalf("%s: the newest cut stands at %d, want %d", when, got, want)
			}
		}
	}
}

func TestCut_QuietTablesCopiesDieAtRandom_NothingForgotten(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w, l := newWorld(), &commonLog{tables: []string{"t0", "t1", "t2", "t3"}}
	l.grow(rand.New(rand.NewPCG(seed, 1)), 40, 2)
	l.at("t3")
	l.grow(rand.New(rand.NewPCG(seed, 2)), 10, 3)
	fight(t, seed, func(m *mortal, from uint64) *freshet.Pipeline {
		m.w = w
		return l.pipe(from, lake.NewTarget(m.open, app, withCuts), 4)
	})
	must(t, l.run(t, seed, w.target(withCuts), 4))
	w.checkLog(t, "after all copies", l)
	w.checkLastCut(t, "after all copies")
}

// A table that cuts said to hold more than its own progress, and that cuts leave out since: it goes on from what they said.
func TestCut_QuietTableIsHeldBack_GoesOnWhereACutHadIt(t *testing.T) {
	w, l := newWorld(), &commonLog{tables: []string{"t0", "t1", "t2"}}
	rng := rand.New(rand.NewPCG(47, 1))
	l.grow(rng, 3, 3)
	must(t, l.run(t, 47, w.target(parking()), 2))
	l.grow(rng, 5, 1)
	must(t, l.run(t, 48, w.target(parking()), 2))
	quiet := l.last()
	l.grow(rng, 3, 1)
	must(t, l.run(t, 49, w.target(parking("t2")), 2)) // left out before anything of it is parked
	if last := w.lastCut(t); !slices.Equal(last.LeftOut, []string{"t2"}) || len(last.Shown) != 1 || last.Shown[0].Name != "t2" {
		t.Errorf("the newest cut leaves out %v, and says of %v which cut shows them: want t2", last.LeftOut, last.Shown)
	}
	if got := w.resumed(t, "t2", freshettest.Lane(0)); got[freshettest.Lane(0)] < quiet {
		t.Errorf("it goes on behind %v, want at least %d, which a cut before said", got, quiet)
	}
	l.at("t2", "t0")
	must(t, l.run(t, 50, w.target(parking("t2")), 2))
	parked, err := lake.ReadParked(t.Context(), w.store("t2_parked"), w.store("t2"), app, w.cutsOf)
	must(t, err)
	if parked.Rows != 1 {
		t.Errorf("got %d parked rows, want 1", parked.Rows)
	}
	l.grow(rng, 2, 2)
	must(t, l.run(t, 51, w.target(parking()), 2))
	w.checkLog(t, "at the end", l)
	if last := w.lastCut(t); len(last.LeftOut)+len(last.Shown) != 0 || last.Lanes[0].Seq != l.last() {
		t.Errorf("the newest cut is at %v, leaves out %v and names %v, want the end and none", last.Lanes, last.LeftOut, last.Shown)
	}
}

// A pipeline that has become another one takes over where cuts had its tables.
func TestCut_QuietTablesPlanChanges_AreLevel(t *testing.T) {
	w, l := newWorld(), &commonLog{tables: []string{"t0", "t1", "t2"}}
	rng := rand.New(rand.NewPCG(53, 1))
	l.grow(rng, 3, 3)
	l.grow(rng, 5, 1)
	must(t, l.run(t, 53, w.target(withCuts), 2))
	l.grow(rng, 2, 1)
	must(t, l.run(t, 54, w.target(&lake.TargetOptions{Cuts: &lake.CutOptions{Table: "cuts", Plan: "p2"}}), 2))
	if last := w.lastCut(t); last.Plan != "p2" || last.Lanes[0].Seq != l.last() {
		t.Errorf("got plan %q at %v, want p2 at the end", last.Plan, last.Lanes)
	}
}

// A copy that does not know of a cut moves the progress of a quiet table, and not as far: the cut still counts.
func TestCut_QuietTableIsMovedByAnotherCopy_CutCounts(t *testing.T) {
	w, l := newWorld(), &commonLog{tables: []string{"t0", "t1"}}
	lane := freshettest.Lane(0)
	l.at("t0", "t1")
	must(t, l.run(t, 57, w.target(withCuts), 1))
	late := w.running(t, nil)
	at, err := late.Resume(t.Context(), "t1", []freshet.Lane{lane})
	must(t, err)
	l.grow(rand.New(rand.NewPCG(57, 1)), 4, 1)
	must(t, l.run(t, 58, w.target(withCuts), 1))
	_, err = late.Write(t.Context(), &freshet.Batch{Table: "t1", Lane: lane, After: at[lane], Last: at[lane] + 1})
	must(t, err)
	commits, err := late.Seal(t.Context())
	must(t, err)
	_, err = commits[0].Run(t.Context())
	must(t, err)
	if got := w.resumed(t, "t1", lane); got[lane] != l.last() {
		t.Errorf("it goes on behind %v, want %d", got, l.last())
	}
	l.at("t1")
	must(t, l.run(t, 59, w.target(withCuts), 1))
	w.checkLog(t, "at the end", l)
}
