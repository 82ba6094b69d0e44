package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// recorder records the cuts of a target. Only the goroutine that runs the commits uses it, but for what mu guards.
type recorder struct {
	a      *Target
	opts   CutOptions
	log    *cutLog
	head   *Cut            // the newest cut; nil: there is none, or it is to be asked for
	snap   *delta.Snapshot // of the cuts table, with head; nil: to be asked for
	shown  []shownTable    // by the cut that is made
	out    []string        // tables that it leaves out
	folds  []foldedLane    // what it says of lanes beyond the txns of its tables
	marked map[string]bool // names of tables that bear our marker

	owed map[freshet.Lane]int64 // what commits tell that is to come before the tables are level; while tables are met, under mu

	mu       sync.Mutex
	recalled map[string]bool // names of tables whose commits were looked through, under mu
	late     freshet.Day     // the first day that was over when rows of it came, which no cut shows yet; 0: none; commits set it, under mu

	wards []*ward // the cuts table in care; nil: not yet
}

// foldedLane is what a cut says of a lane beyond the txn that a table has of it.
type foldedLane struct {
	t    *table
	lane freshet.Lane
	folded
}

// shownTable is a table as a cut shows it.
type shownTable struct {
	t    *table
	snap *delta.Snapshot
}

func newRecorder(a *Target, o *CutOptions) (*recorder, error) {
	opts := *o
	if opts.Retention <= 0 {
		opts.Retention = DefaultCutRetention
	}
	st, err := a.open(opts.Table)
	if err != nil {
		return nil, err
	}
	return &recorder{a: a, opts: opts, marked: map[string]bool{}, recalled: map[string]bool{},
		owed: map[freshet.Lane]int64{},
		log:  newCutLog(a.app, opts.Table, st, a.opts.EngineInfo)}, nil
}

// cutTxn is the txn of the cuts table that holds the number of the newest cut: what a cut compares and sets, so that of
// two copies that record the same moment only one does.
func cutTxn(app string) string { return app + "#cut" }

// openTxn is the txn of the cuts table that holds the last day that a cut has opened.
func openTxn(app string) string { return app + "#day" }

// openedDay is that day; 0 when no cut has opened one.
func openedDay(snap *delta.Snapshot, app string) freshet.Day {
	day, _ := snap.Txn(openTxn(app))
	return freshet.Day(day)
}

// record makes one cut, unless the tables are not level. Where nothing has moved since the newest one, that is it.
func (r *recorder) record(ctx context.Context, m freshet.Moment) (*freshet.Recorded, error) {
	if !r.opts.Always && len(r.a.together())+len(r.opts.LeftOut) < 2 {
		return nil, nil
	}
	for range maxRaces {
		if err := r.look(ctx); err != nil {
			return nil, err
		}
		c, err := r.take(ctx, m)
		if c == nil || err != nil {
			return nil, err
		}
		if m.Opens != 0 && m.Opens <= openedDay(r.snap, r.a.app) ||
			m.Opens == 0 && r.head != nil && c.samePlace(r.head) {
			return r.settle(m), nil
		}
		if err := r.mark(ctx); err != nil {
			return nil, err
		}
		if err = r.reopen(ctx, c); err == nil && (r.head != c || m.Opens != 0) {
			err = r.append(ctx, c)
		}
		if err == nil {
			return r.settle(m), nil
		}
		r.snap = nil
		if !errors.Is(err, delta.ErrConflict) {
			return nil, err
		}
	}
	return nil, explain(r.log.name, delta.ErrConflict)
}

// reopen has the ends of days move to the cut, from the first one on of which rows came late: it is recorded as their end. One
// that opens another day goes behind it.
func (r *recorder) reopen(ctx context.Context, c *Cut) error {
	r.mu.Lock()
	late := r.late
	r.mu.Unlock()
	if late == 0 || late >= openedDay(r.snap, r.a.app) {
		return nil
	}
	end := *c
	end.Opens, end.First = late+1, false
	if err := r.append(ctx, &end); err != nil {
		return err
	}
	r.mu.Lock()
	if r.late == late {
		r.late = 0
	}
	r.mu.Unlock()
	if c.Number++; c.Opens == 0 {
		r.head, c.Number = c, end.Number
	}
	return nil
}

// cameLate notes that a commit has brought rows of a day that was over; 0: none.
func (r *recorder) cameLate(day freshet.Day) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = earlier(r.late, day)
}

// settle has the tables go on from what the cut says that they hold.
func (r *recorder) settle(m freshet.Moment) *freshet.Recorded {
	for _, f := range r.folds {
		f.t.fold(f.lane, f.own, f.to)
	}
	shown := map[string]bool{}
	for _, s := range r.shown {
		shown[s.t.name] = true
	}
	out := &freshet.Recorded{}
	for _, q := range m.Quiet {
		if !slices.ContainsFunc(r.a.namesOf(q.Table), func(name string) bool { return !shown[name] }) {
			out.Quiet = append(out.Quiet, q)
		}
	}
	return out
}

// look learns of the newest cut, unless it is our own.
func (r *recorder) look(ctx context.Context) (err error) {
	if r.snap != nil {
		return nil
	}
	if r.snap, err = r.log.need(ctx); err != nil {
		return err
	}
	r.head, err = r.log.newest(ctx, r.snap)
	return err
}

// take makes a cut of the tables as they are known, and if that is behind the newest cut, as they are; nil when they are
// not level, or still behind it.
func (r *recorder) take(ctx context.Context, m freshet.Moment) (*Cut, error) {
	tables, err := r.tables(ctx)
	if err != nil || len(tables) == 0 || len(tables)+len(r.out) == 1 && !r.opts.Always {
		return nil, err
	}
	if err := r.meet(ctx, tables); err != nil {
		return nil, err
	}
	idle := idlers(m.Idle)
	for _, name := range r.out {
		if idle[name] != nil {
			return nil, nil // it would not say of the table that it holds as much
		}
	}
	r.a.addQuiet(idle, m.Quiet)
	c, level, err := r.join(ctx, tables, idle, false)
	if err != nil {
		return nil, err
	}
	if !level || r.behind(c) {
		if c, level, err = r.join(ctx, tables, idle, true); err != nil || !level || r.behind(c) {
			return nil, err // this copy is behind another, whose cut says more of tables than their own progress
		}
	}
	if m.Opens != 0 {
		if err := r.alone(c, m); err != nil {
			r.a.opts.Retry("close a day", err)
			return nil, nil
		}
	}
	c.Number, c.RecordedAt, c.SourceTime = 1, time.Now().UTC().Truncate(time.Microsecond), m.Newest
	if r.head != nil {
		c.Number = r.head.Number + 1
		if r.head.SourceTime.After(c.SourceTime) {
			c.SourceTime = r.head.SourceTime
		}
	}
	c.Opens, c.Plan, c.LeftOut, c.Shown = m.Opens, r.opts.Plan, r.out, r.shownOf(r.out)
	c.First = m.Opens != 0 && openedDay(r.snap, r.a.app) == 0
	return c, nil
}

// tables are those that the target knows, and those of the newest cut that it has not met yet, but for those that are left
// out.
func (r *recorder) tables(ctx context.Context) ([]*table, error) {
	known := r.a.together()
	r.out = slices.Clone(r.opts.LeftOut)
	if r.head != nil {
		for _, h := range r.head.Tables {
			if known[h.Name] != nil || !r.keeps(h.Name) {
				continue
			}
			t, err := r.a.ownerOf(h.Name, r.head.Tables).table(h.Name)
			if err != nil {
				return nil, err
			}
			known[h.Name] = t
		}
	}
	var all []*table
	for _, t := range known {
		if slices.Contains(r.opts.LeftOut, t.name) {
			continue
		}
		behind, err := t.park.behind(ctx)
		if err != nil {
			return nil, err
		}
		_, slow := t.park.isSlow()
		snap, err := r.known(ctx, t, behind != parkUnused)
		switch {
		case err != nil:
			return nil, err
		case behind == parkBehind, slow && !(r.hasRecalled(t) && r.marked[t.name]): // its store would be asked
			r.out = append(r.out, t.name)
		case snap != nil:
			all = append(all, t)
		}
	}
	slices.Sort(r.out)
	slices.SortFunc(all, func(a, b *table) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// shownOf tells, of tables that a cut leaves out, which is the newest that shows them.
func (r *recorder) shownOf(out []string) (all []CutShown) {
	if r.head == nil {
		return nil
	}
	for _, name := range out {
		if i := slices.IndexFunc(r.head.Tables, func(t CutTable) bool { return t.Name == name }); i >= 0 {
			t := r.head.Tables[i]
			all = append(all, CutShown{Name: name, Location: t.Location, ID: t.ID, Cut: r.head.Number})
		} else if i := slices.IndexFunc(r.head.Shown, func(t CutShown) bool { return t.Name == name }); i >= 0 {
			all = append(all, r.head.Shown[i])
		}
	}
	return all
}

// ask does something with a table that is to be in the cut, for as long as the other tables wait. Errors: ErrStale when it
// has become slow.
func (r *recorder) ask(ctx context.Context, t *table, doing string, do func(ctx context.Context) error) error {
	return t.within(ctx, 0, doing, func(ctx context.Context) error {
		return r.a.patient(ctx, doing+": "+t.name, func() error { return do(ctx) })
	})
}

// known is the table's known, asked for; of a slow table, as it was last seen.
func (r *recorder) known(ctx context.Context, t *table, fresh bool) (snap *delta.Snapshot, err error) {
	err = r.ask(ctx, t, "read its log", func(ctx context.Context) (err error) {
		snap, err = t.known(ctx, fresh)
		return err
	})
	if seen, slow := t.park.isSlow(); slow {
		return seen, nil
	}
	return snap, err
}

// known is the table as it was last seen, or, if that is wanted, as it is; nil when there is none.
func (t *table) known(ctx context.Context, fresh bool) (*delta.Snapshot, error) {
	t.mu.Lock()
	snap := t.snap
	t.mu.Unlock()
	if snap != nil && !fresh {
		return snap, nil
	}
	return t.look(ctx)
}

// join puts the tables side by side. They are level when no two of them say different things of a lane.
func (r *recorder) join(ctx context.Context, tables []*table, idle map[string]map[freshet.Lane]*stretch, fresh bool) (
	c *Cut, level bool, err error) {
	c, level = &Cut{}, true
	r.shown, r.folds = r.shown[:0], r.folds[:0]
	at := map[freshet.Lane]int64{}
	for _, t := range tables {
		snap, err := r.known(ctx, t, fresh)
		if err != nil {
			return nil, false, err
		}
		if snap == nil {
			continue
		}
		c.Tables = append(c.Tables, CutTable{Name: t.name, Location: t.st.URL(), ID: snap.Metadata().ID,
			Version: snap.Version()})
		r.shown = append(r.shown, shownTable{t, snap})
		err = r.ask(ctx, t, "read its history", func(ctx context.Context) error { return r.recall(ctx, shownTable{t, snap}) })
		if err != nil {
			return nil, false, err
		}
		for _, l := range appProgress(snap, r.a.app, map[string]bool{}).Lanes {
			has, fits := r.holds(t, l, idle[t.name])
			lane := l.Lane
			if lane.Origin == "" {
				lane.Origin = t.name // the table does not say
			}
			seq, seen := at[lane]
			at[lane] = has
			level = level && fits && (!seen || seq == has)
		}
	}
	level = level && r.paid(at)
	for l, seq := range at {
		c.Lanes = append(c.Lanes, CutLane{l, seq})
	}
	slices.SortFunc(c.Lanes, func(a, b CutLane) int {
		return cmp.Or(cmp.Compare(a.Lane.Origin, b.Lane.Origin), compareNames(a.Lane.Name, b.Lane.Name))
	})
	return c, level, nil
}

// holds is up to where the table holds all of a lane once it is past what is idle, or quiet, whose stretch must not begin behind
// where the table is.
func (r *recorder) holds(t *table, l LaneProgress, idle map[freshet.Lane]*stretch) (to int64, fits bool) {
	has := t.folds(l.Lane, l.Seq)
	for lane, s := range idle {
		if lane.Name != l.Lane.Name || l.Lane.Origin != "" && lane != l.Lane {
			continue
		}
		if has < s.after {
			return has, false
		}
		to = max(has, s.last)
		r.folds = append(r.folds, foldedLane{t, lane, folded{l.Seq, to}}, foldedLane{t, l.Lane, folded{l.Seq, to}})
		return to, true
	}
	return has, true
}

// behind reports whether the newest cut is past this one anywhere: another copy has recorded it.
func (r *recorder) behind(c *Cut) bool {
	if r.head == nil {
		return false
	}
	for _, l := range c.Lanes {
		if seq, ok := r.head.lane(l.Lane); ok && seq > l.Seq {
			return true
		}
	}
	for _, t := range c.Tables {
		for _, h := range r.head.Tables {
			if h.Name == t.Name && h.ID == t.ID && h.Version > t.Version {
				return true
			}
		}
	}
	return false
}

// alone is an error when the tables hold lanes that another process reads: nobody knows where those stand in their day.
func (r *recorder) alone(c *Cut, m freshet.Moment) error {
	ours := map[freshet.Lane]bool{}
	for table, lanes := range m.Lanes {
		for _, l := range lanes {
			ours[l] = true
			ours[freshet.Lane{Origin: table, Name: l.Name}] = true // as join names it where the table does not say
		}
	}
	for _, l := range c.Lanes {
		if !ours[l.Lane] && r.reads(l.Lane) {
			return fmt.Errorf("another process reads %s: days are told apart only where one process reads all", l.Lane)
		}
	}
	return nil
}

// append commits the cut behind the newest one. Errors: delta.ErrConflict when there is another by now.
func (r *recorder) append(ctx context.Context, c *Cut) error {
	w, err := r.log.writer()
	if err != nil {
		return err
	}
	abort := func(err error) error { return errors.Join(err, w.Abort(context.WithoutCancel(ctx))) }
	row := cutRow(c)
	defer row.Release()
	if err := w.Write(ctx, row); err != nil {
		return abort(err)
	}
	adds, err := w.Close(ctx)
	if err != nil {
		return abort(err)
	}
	set := txns{}
	f := form{r.a.app, true}
	for _, l := range c.Lanes {
		f.record(set, l.Lane, l.Seq)
	}
	set[cutTxn(r.a.app)] = c.Number
	if c.Opens > openedDay(r.snap, r.a.app) {
		set[openTxn(r.a.app)] = int64(c.Opens)
	}
	tx := r.snap.Table().Begin(r.snap, nil)
	set.addTo(tx, r.snap)
	tx.Add(adds...)
	tx.Operation("WRITE", map[string]string{"mode": "Append", "freshet.cut": fmt.Sprint(c.Number)},
		map[string]string{"numFiles": fmt.Sprint(len(adds)), "numOutputRows": "1"})
	tx.BlindAppend(true)
	done, err := tx.Commit(ctx)
	if errors.Is(err, delta.ErrConflict) {
		return abort(err)
	}
	if err != nil {
		return err
	}
	r.head, r.snap = c, done.Snapshot
	if c.Day() != 0 {
		for _, s := range r.shown {
			r.a.tend.pin(s.snap.Table(), s.snap)
		}
	}
	r.a.tend.checkpoint(done.Snapshot.Table(), done.Snapshot)
	r.a.care.came(&r.wards, func() []*ward { return []*ward{r.log.ward()} })
	if c.Number%expireEvery == 0 {
		r.a.tend.expire(done.Snapshot.Table(), r.expired(c))
	}
	return nil
}

// expireEvery is how often rows of the cuts table are deleted, in cuts.
const expireEvery = 1024

// toldFor is for how long the cuts table tells of cuts whose versions need not be there any more.
const toldFor = 30 * 24 * time.Hour

// expired is the condition of rows that tell of cuts which are long gone when the cut is recorded, but for what it names itself.
func (r *recorder) expired(c *Cut) string {
	before := c.RecordedAt.Add(-r.opts.Retention - toldFor)
	day := freshet.DayOf(c.RecordedAt.Add(-toldFor)) - freshet.Day(r.opts.KeepDays)
	where := fmt.Sprintf("recorded_at < TIMESTAMP '%s' AND (opens_day IS NULL OR opens_day <= DATE '%s')",
		before.UTC().Format("2006-01-02 15:04:05.999999Z07:00"), max(day, 1))
	for _, s := range c.Shown {
		where += fmt.Sprintf(" AND cut <> %d", s.Cut)
	}
	return where
}
