package freshet

import (
	"context"
	"fmt"
	"time"
)

// Cutter is a Target that records cuts: which versions of its tables together show the source at one moment.
type Cutter interface {
	Target

	// Cut records a cut, if the tables allow one now. It is called by the goroutine that runs commits, when all that
	// was sealed has landed. It returns nil when the tables are not level, so that nothing could be recorded: it is
	// called again after the next commits. Outages are retried inside for as long as ctx lasts.
	Cut(ctx context.Context, m Moment) (*Recorded, error)

	// OpenDay is the Opens of the newest cut that has one; 0 when none has.
	OpenDay(ctx context.Context) (Day, error)
}

// Moment is what the pipe knows of a cut.
type Moment struct {
	// Newest is the time of the newest record among what this run committed; zero when unknown.
	Newest time.Time
	// Opens is set when the cut stands at the end of a day: every row before it was committed by the origin before
	// this day began, and none after it was, but for late ones. 0: it stands somewhere.
	Opens Day
	// Lanes are those that this run reads, by table; only with Opens.
	Lanes map[string][]Lane
	// Idle are commits that move nothing but progress. They have not run: a cut that is recorded stands behind them, and says
	// of their tables that they hold as much, so that they need not.
	Idle []IdleCommit
	// Quiet are stretches of lanes in which nothing came for a table: where that is in the cut, this says that it holds as much.
	Quiet []Quiet
}

// Quiet says of a table that nothing comes for it of a lane in (After, Last], and that all before was sealed.
type Quiet struct {
	Table       string
	Lane        Lane
	After, Last int64
}

// Recorded tells of a cut that was recorded, now or before.
type Recorded struct {
	Quiet []Quiet // of those of the Moment, which it says of their tables: all but those that it leaves out
}

// IdleCommit is a Commit that may move nothing but progress.
type IdleCommit interface {
	Commit
	// Idle reports whether it does, and up to where.
	Idle() (to Progress, idle bool)
}

// Day is a day of the calendar, as the number of days since 1970-01-01. 0 is no day. When it begins depends on a zone.
type Day int32

const daySeconds = 24 * 60 * 60

// DayOf is the day of UTC that the time is in; 0 for the zero time and for all before 1970-01-02.
func DayOf(t time.Time) Day { return max(0, Day(t.Unix()/daySeconds)) }

// ParseDay reads a day such as 2026-11-29.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || DayOf(t) == 0 {
		return 0, fmt.Errorf("found %q, wanted a day such as 2026-11-29", s)
	}
	return DayOf(t), nil
}

// Start is when the day begins in UTC.
func (d Day) Start() time.Time { return time.Unix(int64(d)*daySeconds, 0).UTC() }

// String gives the day as 2026-11-29.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// debts are what was sealed of each table and has not landed: a commit was stale, and its lanes are read again. Tables are
// level when there are none. Only the goroutine that commits uses it.
type debts map[string]Progress

// owe notes what a group is to bring.
func (d debts) owe(reach map[string]Progress) {
	for table, p := range reach {
		if d[table] == nil {
			d[table] = Progress{}
		}
		for l, seq := range p {
			d[table][l] = max(seq, d[table][l])
		}
	}
}

// pay notes what has landed.
func (d debts) pay(table string, p Progress) {
	for l, seq := range p {
		if owed, ok := d[table][l]; ok && seq >= owed {
			d.forgive(table, l)
		}
	}
}

// forgive drops a lane that another process reads from now on.
func (d debts) forgive(table string, l Lane) {
	delete(d[table], l)
	if len(d[table]) == 0 {
		delete(d, table)
	}
}

// cutter records cuts after groups. Only the goroutine that commits uses it.
type cutter struct {
	to     Cutter // nil: the target records none
	debts  debts
	newest time.Time
}

func newCutter(t Target) *cutter {
	to, _ := t.(Cutter)
	return &cutter{to: to, debts: debts{}}
}

// begin notes what the group is to bring, and which lanes are no longer ours.
func (c *cutter) begin(g group) {
	if c.to == nil {
		return
	}
	c.debts.owe(g.reach)
	for _, l := range g.left {
		c.debts.forgive(l.table, l.lane)
	}
}

// landed notes what a commit brought.
func (c *cutter) landed(done Committed, s span) {
	if c.to == nil {
		return
	}
	c.debts.pay(done.Table, done.Progress)
	if s.newest.After(c.newest) {
		c.newest = s.newest
	}
}

// idle reports whether the commit can wait for the cut behind it, which makes it needless.
func (c *cutter) idle(of Commit) bool {
	i, may := of.(IdleCommit)
	if c.to == nil || !may {
		return false
	}
	_, is := i.Idle()
	return is
}

// cut records a cut if there may be one to record, and all tables are level once what is idle has run, which it then need
// not. nil: none is recorded.
func (c *cutter) cut(ctx context.Context, g group, idle []IdleCommit) (recorded *Recorded, err error) {
	if c.to == nil || g.torn || len(g.commits) == 0 && g.opens == 0 && !g.look {
		return nil, nil
	}
	waits := map[string]Progress{}
	for _, i := range idle {
		waits[i.Table()], _ = i.Idle()
		c.debts.pay(i.Table(), waits[i.Table()])
	}
	if len(c.debts) == 0 {
		recorded, err = c.to.Cut(ctx, Moment{Newest: c.newest, Opens: g.opens, Lanes: g.lanes, Idle: idle, Quiet: g.quiet})
	}
	if recorded == nil {
		c.debts.owe(waits)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return recorded, err
}
