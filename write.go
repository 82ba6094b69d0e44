package freshet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/freshet-io/freshet/store"
)

const (
	firstEvery = 100 * time.Millisecond // what Options.Every is to the first commit of a run, at most
	maxFlying  = 2                      // groups that are sealed and not committed: one runs, one waits
	maxPause   = 10 * time.Second       // between two attempts to read again
)

// writer is the write goroutine's own state: nobody else touches it, nor the target's writing half.
type writer struct {
	*run
	lanes    lanes
	levels   map[Lane]level    // up to where all tables have all of a lane, of those that were resumed before
	written  int64             // items of the queue, with the present one
	gens     map[string]int    // by table: how often what was written of it had to be dropped
	strikes  map[string]int    // by table: how often in a row
	troubles map[string]string // by table: what failed, until its lanes are read again or given up
	pending  map[string]span   // tables with something to seal
	due      time.Time         // when it must be sealed; zero when nothing is pending
	timer    *time.Timer       // fires at due
	flying   int               // groups handed over and not done
	cut      bool              // the cut of the last group that is done is recorded
	uncut    bool              // a process before may have left commits without their cut
	first    bool              // nothing has been sealed in this run
	sealedAt time.Time         // when it was sealed last
	rewound  int               // rewinds asked for
	more     bool              // the source's next batch belongs to the moment of the last one
	partial  map[string]bool   // tables whose last batch was Partial
	rejects  *rejectWindow
	days     *dayGate // nil: days are not told apart
	verdict  error    // what the run ends with, once everything is committed
}

func newWriter(r *run) *writer {
	w := &writer{run: r, lanes: lanes{}, levels: map[Lane]level{}, gens: map[string]int{}, strikes: map[string]int{},
		troubles: map[string]string{}, pending: map[string]span{}, partial: map[string]bool{}, timer: time.NewTimer(time.Hour), first: true,
		rejects: newRejectWindow(r.opts.StopAbove), days: newDayGate(r.opts.Days)}
	w.timer.Stop()
	return w
}

// loop writes what comes from the queue and seals it in time, until the queue is closed, everything is
// committed, or something fails; then it stops the reading, and returns when the commit goroutine has ended
// too.
func (w *writer) loop(ctx context.Context, stopReading func()) error {
	defer w.timer.Stop()
	err := w.work(ctx)
	close(w.done)
	stopReading()
	close(w.sealed)
	for res := range w.results {
		if e := w.settle(res); err == nil {
			err = e
		}
	}
	if err == nil {
		err = w.verdict
	}
	return err
}

func (w *writer) work(ctx context.Context) error {
	if err := w.openDay(ctx); err != nil {
		return err
	}
	for {
		var err error
		over := false
		select {
		case it, ok := <-w.queue:
			if over = !ok; over {
				err = w.flush(ctx, group{})
			} else {
				over, err = w.take(ctx, it)
			}
		case a := <-w.asks:
			over, err = w.answer(ctx, a)
		case res := <-w.results:
			err = w.settle(res)
		case <-w.timer.C:
		case <-w.days.tick():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err == nil && !over {
			err = w.sealIfDue(ctx)
		}
		if err == nil && !over {
			err = w.closeDay(ctx, false)
		}
		if err != nil || over {
			return err
		}
	}
}

// take handles one item of the queue. It reports whether the run is over.
func (w *writer) take(ctx context.Context, it item) (over bool, err error) {
	w.written++
	if it.batch != nil {
		defer w.room.Release(it.size)
		if it.batch.Level && it.rewind == w.rewound && w.days == nil { // else a table lacks rows, or is to stand elsewhere
			w.levels[it.batch.Lane] = level{it.batch.Last, w.written}
		}
		return w.write(ctx, it.batch)
	}
	if err := w.settleAll(ctx); err != nil || it.rewind != w.rewound {
		return false, err
	}
	if err := w.closeDay(ctx, true); err != nil || it.rewind != w.rewound {
		return false, err
	}
	w.verdict = w.rejects.final()
	return true, nil
}

// write puts the batch through the steps into the target. It reports whether the run is over.
func (w *writer) write(ctx context.Context, b *Batch) (over bool, err error) {
	if w.lanes.torn(b) {
		w.dropUnfinished()
	}
	next := Day(0)
	if w.lanes.fits(b) {
		next = w.days.head(b, time.Now())
	}
	wanted, err := w.lanes.admit(b)
	w.more = b.More
	if next != 0 {
		w.lanes.giveUp(b.Table, []Lane{b.Lane})
		w.days.park(laneKey{b.Table, b.Lane}, next, time.Now())
	}
	if err != nil || !wanted {
		b.Release()
		return false, err
	}
	if delete(w.partial, b.Table); b.Partial {
		w.partial[b.Table] = true
	}
	w.days.late(b)
	s, seen := w.pending[b.Table]
	if b.ReadAt.IsZero() {
		b.ReadAt = time.Now()
	}
	if !seen || b.ReadAt.Before(s.oldest) {
		s.oldest = b.ReadAt
	}
	if b.Newest.After(s.newest) {
		s.newest = b.Newest
	}
	w.pending[b.Table] = s
	w.setDue(s.oldest)
	if err := w.transform(ctx, b); err != nil {
		b.Release()
		return false, err
	}
	table, rows, rejects := b.Table, int64(b.NumRows()), int64(len(b.Rejects))
	start := time.Now()
	rejected, err := w.target.Write(ctx, b)
	w.stage("write", start)
	if err != nil {
		return false, w.lost(ctx, table, "write to "+table, err)
	}
	if w.verdict = w.rejects.add(time.Now(), rows-rejected, rejects+rejected); w.verdict != nil {
		return true, w.settleAll(ctx)
	}
	return false, w.sealIfFull(ctx)
}

// sealIfFull seals when there is enough for a commit.
func (w *writer) sealIfFull(ctx context.Context) error {
	rows, bytes := w.target.Pending()
	full := w.opts.MaxRows > 0 && rows >= w.opts.MaxRows || bytes >= w.opts.MaxBytes
	if !full || w.within() {
		return nil
	}
	return w.flush(ctx, group{})
}

// within reports whether what was written ends within a moment of the origin, so that nothing is to be sealed yet.
func (w *writer) within() bool { return w.more || len(w.unfinished()) > 0 }

// unfinished are the tables that are not to be committed as they stand: a lane stands within a seq, or their last batch was
// Partial.
func (w *writer) unfinished() map[string]bool {
	tables := w.lanes.unfinished()
	maps.Copy(tables, w.partial)
	return tables
}

func (w *writer) transform(ctx context.Context, b *Batch) error {
	w.stepping.Lock()
	defer w.stepping.Unlock()
	steps, err := w.stepsFor(b.Table)
	if err != nil || len(steps) == 0 {
		return err
	}
	start := time.Now()
	came := beforeSteps(b)
	defer came.tell(b)
	for _, s := range steps {
		if err := s.Apply(ctx, b); err != nil {
			return fmt.Errorf("step %s on %s: %w", s.Name(), b.Lane.Position(b.Last), err)
		}
	}
	w.stage("transform", start)
	return nil
}

// setDue makes sure that what arrived at oldest is sealed in time.
func (w *writer) setDue(oldest time.Time) {
	every := w.opts.Every
	if w.first {
		every = min(every, firstEvery)
	}
	at := oldest.Add(every)
	// What waited in the queue while others were written would be overdue at once, batch for batch.
	if soonest := w.sealedAt.Add(every); at.Before(soonest) {
		at = soonest
	}
	if w.due.IsZero() || at.Before(w.due) {
		w.due = at
		w.timer.Reset(time.Until(at))
	}
}

// sealIfDue seals when it is time, unless the commits cannot keep up: then waiting makes the next one larger,
// and not later than it would be behind the others.
func (w *writer) sealIfDue(ctx context.Context) error {
	if w.due.IsZero() || w.flying >= maxFlying || time.Now().Before(w.due) || w.within() {
		return nil
	}
	return w.flush(ctx, group{})
}

// flush seals what is pending and hands it over in the group, whose passed, if any, is closed once that and all before it
// is done with.
func (w *writer) flush(ctx context.Context, g group) error {
	w.dropUnfinished()
	g.torn = w.more
	w.due = time.Time{}
	w.timer.Stop()
	if err := w.even(ctx); err != nil {
		return err
	}
	g.quiet = w.lanes.quiet(w.levels, false)
	if len(w.pending) > 0 {
		commits, err := w.target.Seal(ctx)
		g.commits, g.spans, g.gens = commits, w.pending, map[string]int{}
		for _, c := range commits {
			g.gens[c.Table()] = w.gens[c.Table()]
		}
		tables := w.pending
		w.pending, w.first = map[string]span{}, false
		w.sealedAt = time.Now()
		g.reach = w.lanes.clean()
		if err != nil {
			if err := w.unsealed(ctx, tables, g.gens, err); err != nil {
				return err
			}
		}
	}
	if w.opened.Load() {
		g.look, w.uncut = w.uncut, false
	}
	if w.uncut {
		w.expectCut()
	}
	if len(g.commits) == 0 && g.passed == nil && g.opens == 0 && !g.look {
		return nil
	}
	return w.handOver(ctx, g)
}

// even brings the tables that wait to be sealed up to where all are, since the source said that nothing came for them there: so that
// they are level behind their commits.
func (w *writer) even(ctx context.Context) error {
	for _, q := range w.lanes.quiet(w.levels, true) {
		key := laneKey{q.Table, q.Lane}
		if s := w.lanes[key]; !s.owned || !s.dirty {
			continue // another lane of the table could not be brought there
		}
		w.lanes[key].pos = q.Last
		if _, err := w.target.Write(ctx, &Batch{Table: q.Table, Lane: q.Lane, After: q.After, Last: q.Last}); err != nil {
			if err := w.lost(ctx, q.Table, "write to "+q.Table, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropUnfinished drops what was written of tables that are unfinished, and has it read again: it cannot be sealed, and the
// seal does not wait.
func (w *writer) dropUnfinished() {
	for table := range w.unfinished() {
		w.drop(table)
		w.rewound++
		w.rewinds.add(table, 0)
	}
}

// unsealed drops the tables that Seal could not seal.
func (w *writer) unsealed(ctx context.Context, tables map[string]span, sealed map[string]int,
	err error) error {
	for table := range tables {
		if _, ok := sealed[table]; ok {
			continue
		}
		if err := w.lost(ctx, table, "seal "+table, err); err != nil {
			return err
		}
	}
	return nil
}

// handOver gives the group to the commit goroutine. While that is busy its results are settled, lest each
// waits for the other.
func (w *writer) handOver(ctx context.Context, g group) error {
	for {
		select {
		case w.sealed <- g:
			w.flying++
			return nil
		case res := <-w.results:
			if err := w.settle(res); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settleAll commits everything that was written and waits for it.
func (w *writer) settleAll(ctx context.Context) error {
	if err := w.flush(ctx, group{}); err != nil {
		return err
	}
	return w.settled(ctx)
}

// settled waits until everything that was handed over is done.
func (w *writer) settled(ctx context.Context) error {
	for w.flying > 0 {
		select {
		case res := <-w.results:
			if err := w.settle(res); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settle takes note of the outcome of a commit.
func (w *writer) settle(res result) error {
	switch {
	case res.table == "":
		w.flying--
		w.cut = res.cut
		return res.err
	case res.err == nil:
		delete(w.strikes, res.table)
	case errors.Is(res.err, ErrStale):
		if res.gen == w.gens[res.table] {
			w.stale(res.table, res.err)
		}
	default:
		return res.err
	}
	return nil
}

// lost drops what was written of the table and has it read again, when err is one that this helps against.
func (w *writer) lost(ctx context.Context, table, doing string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrStale):
	case store.Retryable(err):
		w.retry(doing, err)
		w.troubles[table] = doing
	default:
		return err
	}
	w.stale(table, err)
	return nil
}

// stale drops what was written of the table and not committed, and has the source read it again. The pauses
// between attempts without progress grow and are random, so that two copies that fight over a table do not
// keep in step.
func (w *writer) stale(table string, why error) {
	w.drop(table)
	if w.obs.Stale != nil {
		w.obs.Stale(table)
	}
	pause := pauseAfter(w.strikes[table])
	w.strikes[table]++
	w.log.Warn("the table has moved on; reading again", "table", table, "why", why, "pause", pause)
	w.rewound++
	w.rewinds.add(table, pause)
}

// drop drops what was written of the table and not committed; its batches are dropped until its lanes are resumed.
func (w *writer) drop(table string) {
	w.target.Discard(table)
	w.gens[table]++
	for _, key := range w.lanes.giveUpTable(table) {
		w.days.forget(key)
	}
	delete(w.pending, table)
	delete(w.partial, table)
	if len(w.pending) == 0 && !w.uncut {
		w.due = time.Time{}
		w.timer.Stop()
	}
}

// pauseAfter is how long to wait after that many failures in a row: nothing, then up to 50 ms, 100 ms, … 10
// s.
func pauseAfter(strikes int) time.Duration {
	if strikes == 0 {
		return 0
	}
	ceiling := min(maxPause, 50*time.Millisecond<<min(strikes-1, 10))
	return ceiling/2 + rand.N(ceiling/2)
}

// expectCut makes sure that a cut is looked for even if nothing comes: a process before may have ended between the commits
// of a group and their cut. It is looked for once the source is open: until then a cut would show only the tables that it has
// come to, and what the newest one says of the progress of the others would be forgotten.
func (w *writer) expectCut() {
	if _, cuts := w.target.(Cutter); !cuts {
		return
	}
	if w.uncut = true; w.due.IsZero() {
		w.due = time.Now().Add(w.opts.Every)
		w.timer.Reset(w.opts.Every)
	}
}

// catchUp writes what was queued before lanes were asked for that are ours: it is not given up with them, since a source that
// was just asked where they stand goes on behind it. It reports whether the run is over.
func (w *writer) catchUp(ctx context.Context, a ask) (over bool, err error) {
	for w.lanes.owned(a.table, a.lanes) && w.written < a.behind && !over && err == nil {
		select {
		case it, ok := <-w.queue:
			if !ok {
				return false, nil
			}
			over, err = w.take(ctx, it)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return over, err
}

// answer does what Downstream asks for. It reports whether the run is over.
func (w *writer) answer(ctx context.Context, a ask) (over bool, err error) {
	if !a.own {
		if over, err = w.catchUp(ctx, a); over || err != nil {
			return over, err
		}
		return false, w.giveUp(ctx, a)
	}
	for lane, pos := range a.progress {
		w.lanes.own(a.table, lane, pos, w.written)
		w.days.forget(laneKey{a.table, lane})
	}
	w.more = false // what the source was about to deliver it reads again
	w.expectCut()
	close(a.done)
	return false, nil
}

// giveUp commits what was written of the lanes, and drops what comes of them until they are resumed.
func (w *writer) giveUp(ctx context.Context, a ask) error {
	if doing, ok := w.troubles[a.table]; ok {
		w.recovered(doing)
		delete(w.troubles, a.table)
	}
	if w.lanes.within(a.table, a.lanes) { // once given up it would be sealed as if it were whole
		w.dropUnfinished()
	}
	dirty := w.lanes.giveUp(a.table, a.lanes)
	for _, lane := range a.lanes {
		w.days.forget(laneKey{a.table, lane})
	}
	g := group{passed: a.done}
	if a.gone {
		g.left = w.lanes.leave(a.table, a.lanes)
	}
	if !dirty && w.flying == 0 && !a.gone {
		close(a.done)
		return nil
	}
	if dirty {
		return w.flush(ctx, g)
	}
	return w.handOver(ctx, g)
}
