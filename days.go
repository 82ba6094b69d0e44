package freshet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Days has the stream cut at the end of each day of the origin's time: a row of a later day waits until no lane has rows of
// the open day to give any more; then all is committed, the Target, which must be a Cutter, records a cut, and the next day
// is open. The time of a row is when the origin committed it (Stamp.Committed), else the time of its
// record; a row without a time is of the open day, and so is one that comes after its day was over, unless days are opened again.
//
//	lane a   23:58  23:59 │ 00:01 …      waits: its record is read again later
//	lane b   23:57        │              quiet, and known to be at its end, or waited for for Wait
//	                      └ cut at the end of the day
type Days struct {
	// Wait is how long a lane is waited for that gives nothing, once another lane has come to a later day. It is also
	// how far clocks may be apart: a lane at its end counts as having passed midnight that long after it, and times
	// that lie further ahead than that are not believed. Default 1 minute.
	Wait time.Duration
	// Zone is where days begin at midnight; one with a change of clocks is shorter or longer. Default UTC.
	Zone *time.Location
	// Reopen has the Target told of rows that come after their day was over (Batch.Late).
	Reopen bool
}

// of is the day that the time is in, in the zone; 0 for the zero time and for all before 1970-01-02.
func (d *dayGate) of(t time.Time) Day {
	year, month, day := t.In(d.zone).Date()
	return DayOf(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
}

// start is when the day begins in the zone.
func (d *dayGate) start(day Day) time.Time {
	year, month, number := day.Start().Date()
	return time.Date(year, month, number, 0, 0, 0, 0, d.zone)
}

// dayLook is how often lanes are looked at while the end of a day is near: a source tells nobody that a lane is at its end.
const dayLook = 200 * time.Millisecond

// dayGate keeps rows of later days back. A lane that comes to one is given up until the day is over, and then read again
// from there: so nothing is held in memory. Only the write goroutine uses it.
type dayGate struct {
	wait   time.Duration
	reopen bool
	zone   *time.Location
	open   Day // 0: none is open, and every row with a time waits
	parked map[laneKey]Day
	since  time.Time // when the first lane was parked
	seen   map[laneKey]time.Time
	timer  *time.Timer
	after  time.Time // not to be closed sooner: it could not be
}

func newDayGate(o *Days) *dayGate {
	if o == nil {
		return nil
	}
	d := &dayGate{wait: o.Wait, reopen: o.Reopen, zone: o.Zone, parked: map[laneKey]Day{}, seen: map[laneKey]time.Time{},
		timer: time.NewTimer(time.Hour)}
	d.timer.Stop()
	if d.wait <= 0 {
		d.wait = time.Minute
	}
	if d.zone == nil {
		d.zone = time.UTC
	}
	return d
}

// tick is when lanes are to be looked at.
func (d *dayGate) tick() <-chan time.Time {
	if d == nil {
		return nil
	}
	return d.timer.C
}

// openDay asks which day is open.
func (w *writer) openDay(ctx context.Context) error {
	if w.days == nil {
		return nil
	}
	to, ok := w.target.(Cutter)
	if !ok {
		return invariant("days are to be told apart, and the target records no cuts")
	}
	return w.waitOut(ctx, "read which day is open", func() (err error) {
		w.days.open, err = to.OpenDay(ctx)
		return err
	})
}

// head cuts from the batch what begins with the first row of a later day, and returns that day; 0 when there is none.
func (d *dayGate) head(b *Batch, now time.Time) Day {
	if d == nil {
		return 0
	}
	d.seen[laneKey{b.Table, b.Lane}] = now
	latest := now.Add(d.wait)
	for row := range b.NumRows() {
		at := b.rowTime(row)
		if at.IsZero() || at.After(latest) || d.of(at) <= d.open {
			continue
		}
		b.until(b.Seqs[row] - 1)
		b.Newest = b.newestRow()
		return d.of(at)
	}
	return 0
}

// newestRow is the newest time of the rows; zero when there are none.
func (b *Batch) newestRow() (newest time.Time) {
	for row := range b.NumRows() {
		newest = later(newest, b.rowTime(row))
	}
	return newest
}

// late notes in the batch which is the first day that was over when rows of it came.
func (d *dayGate) late(b *Batch) {
	if d == nil || !d.reopen {
		return
	}
	for row := range b.NumRows() {
		at := b.rowTime(row)
		if at.IsZero() {
			continue
		}
		if day := d.of(at); day != 0 && day < d.open && (b.Late == 0 || day < b.Late) {
			b.Late = day
		}
	}
}

// rowTime is when the origin committed the row, or made its record; zero when unknown.
func (b *Batch) rowTime(row int) time.Time {
	switch {
	case b.Stamps != nil && b.Stamps[row].Committed != 0:
		return time.UnixMicro(b.Stamps[row].Committed)
	case b.Records != nil:
		return b.Records[row].Record().Time
	}
	return b.Newest
}

// park has the lane wait, which is given up, until a day has begun.
func (d *dayGate) park(key laneKey, first Day, now time.Time) {
	if len(d.parked) == 0 {
		d.since = now
		d.timer.Reset(0)
	}
	d.parked[key] = first
}

// forget drops what is known of the lane: it is read from elsewhere.
func (d *dayGate) forget(key laneKey) {
	if d != nil {
		delete(d.parked, key)
		delete(d.seen, key)
	}
}

// over reports whether no lane has rows of the open day to give any more.
func (d *dayGate) over(l lanes, now time.Time, end func(laneKey) (int64, bool)) bool {
	if len(d.parked) == 0 || now.Before(d.after) {
		return false
	}
	for key, s := range l {
		switch _, waits := d.parked[key]; {
		case waits || s.left:
		case !s.owned: // it is about to be read again
			return false
		case now.Before(later(d.since, d.seen[key]).Add(d.wait)) && !d.atEnd(s, key, now, end):
			return false
		}
	}
	return true
}

// atEnd reports whether the lane has nothing left that may belong to the open day, as far as the source knows.
func (d *dayGate) atEnd(s *laneState, key laneKey, now time.Time, end func(laneKey) (int64, bool)) bool {
	last, known := end(key)
	return known && s.pos >= last && (d.open == 0 || !now.Before(d.start(d.open+1).Add(d.wait)))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// closeDay commits what there is, has a cut recorded and opens the next day, if the open one is over; ended says that the
// source has come to its end, so that it is.
func (w *writer) closeDay(ctx context.Context, ended bool) error {
	d := w.days
	if d == nil || len(d.parked) == 0 || !ended && w.within() {
		return nil
	}
	if !ended && !d.over(w.lanes, time.Now(), w.laneEnd) {
		d.timer.Reset(dayLook)
		return nil
	}
	next := slices.Min(slices.Collect(maps.Values(d.parked)))
	rewound := w.rewound
	if err := w.flush(ctx, group{opens: next, lanes: w.reading()}); err != nil {
		return err
	}
	if err := w.settled(ctx); err != nil {
		return err
	}
	switch {
	case w.cut:
		if d.open == 0 {
			w.log.Info("the first day that is kept has begun", "day", next.String())
		} else {
			w.log.Info("a day is over", "day", d.open.String(), "next", next.String())
		}
		d.open = next
		w.unpark()
	case rewound != w.rewound: // a commit was stale: its lanes come to the end of the day once more
	case ended:
		return &Error{Code: CodeConflict, Class: ClassFailure, Msg: fmt.Sprintf("the day before %s cannot be closed: the "+
			"tables hold lanes that another process reads", next),
			Fix: "with keep_daily, let one process read all of a pipeline's topics"}
	default:
		d.after = time.Now().Add(d.wait)
		d.timer.Reset(d.wait)
	}
	return nil
}

// unpark has the lanes that waited be read again.
func (w *writer) unpark() {
	tables := map[string]bool{}
	for key := range w.days.parked {
		tables[key.table] = true
	}
	clear(w.days.parked)
	for table := range tables {
		w.rewound++
		w.rewinds.add(table, 0)
	}
}

// reading are the lanes that this run reads, by table. The progress of others' is asked for, too, and so a source that knows
// which it reads is believed.
func (w *writer) reading() map[string][]Lane {
	ours := w.lanes.ours()
	if _, tells := w.source.(Ender); !tells {
		return ours
	}
	for table, all := range ours {
		ours[table] = slices.DeleteFunc(all, func(l Lane) bool {
			_, known := w.laneEnd(laneKey{table, l})
			return !known
		})
	}
	return ours
}

// Ender is a Source that knows where its lanes end.
type Ender interface {
	// End returns the last seq that the origin had of the lane when it was asked last; known is false when it never was, and
	// when the source does not read the lane.
	End(table string, l Lane) (last int64, known bool)
}

// laneEnd is where a lane ends, if the source says.
func (w *writer) laneEnd(key laneKey) (int64, bool) {
	e, ok := w.source.(Ender)
	if !ok {
		return 0, false
	}
	return e.End(key.table, key.lane)
}
