package lake

import (
	"context"
	"fmt"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// vacuumEvery is how often a table is vacuumed.
const vacuumEvery = 24 * time.Hour

// nextVacuum is when the table is to be vacuumed; zero: never. A table that is younger than the shortest retention has
// nothing to delete.
func nextVacuum(snap *delta.Snapshot, l lease, retention time.Duration) time.Time {
	if retention < 0 {
		return time.Time{}
	}
	next := l.Vacuumed.Add(vacuumEvery)
	if made := snap.Metadata().CreatedTime; made != nil {
		if ripe := time.UnixMilli(*made).Add(shortestRetention); ripe.After(next) {
			next = ripe
		}
	}
	return next
}

func vacuumWhy(l lease) string {
	if l.Vacuumed.IsZero() {
		return "none is on record"
	}
	return fmt.Sprintf("the last one was at %s", l.Vacuumed.Format(time.RFC3339))
}

// vacuum deletes what no version needs, once a day. It returns when the table is to be looked at next, which is at again
// unless a vacuum is due before.
func (u *upkeep) vacuum(ctx context.Context, w *ward, snap *delta.Snapshot, again time.Time) (time.Time, error) {
	sooner := func(at time.Time) time.Time {
		if again.IsZero() || !at.IsZero() && at.Before(again) {
			return at
		}
		return again
	}
	if u.opts.Retention < 0 {
		return again, nil
	}
	l, err := readLease(ctx, w.st)
	if err != nil {
		return again, err
	}
	now := time.Now()
	if next := nextVacuum(snap, l, u.opts.Retention); next.After(now) {
		return sooner(next), nil
	}
	why := vacuumWhy(l)
	if l, err = u.hold(ctx, w); err != nil {
		return again, err
	}
	result, err := u.vacuumTable(ctx, snap.Table(), now)
	if err != nil {
		return again, err
	}
	l.Vacuumed = now.UTC()
	if err := l.write(ctx, w.st); err != nil {
		return again, err
	}
	u.opts.Done(freshet.Upkeep{Table: w.name, Kind: string(Vacuum), Why: why, Version: -1, FilesBefore: result.Deleted,
		BytesBefore: result.DeletedBytes, Took: time.Since(now)})
	return sooner(now.Add(vacuumEvery)), nil
}

// vacuumTable vacuums by the retention, else by that of the table where it is long enough, and keeps what cuts name.
func (u *upkeep) vacuumTable(ctx context.Context, d *delta.Table, now time.Time) (*delta.VacuumResult, error) {
	p, err := CutProtection(ctx, d, u.a.cutsOf, now)
	if err != nil {
		return nil, err
	}
	o := &delta.VacuumOptions{Retention: u.opts.Retention, AtLeast: shortestRetention}
	if err := p.Vacuum(ctx, d, o); err != nil {
		return nil, err
	}
	return d.Vacuum(ctx, o)
}
