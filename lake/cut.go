package lake

import (
	"context"
	"errors"
	"slices"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// DefaultCutRetention is for how long the versions stay that a cut names, unless it is said otherwise.
const DefaultCutRetention = 7 * 24 * time.Hour

// CutOptions have a target record cuts. The zero value of each field means its default, but for Table.
type CutOptions struct {
	// Table names the cuts table, as Opener takes names. It is made with the first cut. Required.
	Table string
	// Always records cuts of a single table, too. Default: only where there are several.
	Always bool
	// LeftOut are tables of the pipeline that it does not read now, which cuts name as left out.
	LeftOut []string
	// Plan identifies the tables and options of the pipeline. It stands in every cut. One that is not that of the newest cut is
	// refused as long as the tables are not level.
	Plan string
	// TakePlan lets a plan that has changed take effect although the tables are not level.
	TakePlan bool
	// Of tells whether a table that a former cut shows is still one of the pipeline's; Reads, whether a lane is one that it
	// reads. Default: all are.
	Of    func(table string) bool
	Reads func(l freshet.Lane) bool
	// Retention is for how long our vacuum and log cleanup keep the versions that a cut names. Default
	// DefaultCutRetention.
	Retention time.Duration
	// KeepDays is for how many days the cut at the end of each day is kept. Default 0: as any other cut.
	KeepDays int
}

// Cut is a set of versions of tables that together show the source at one moment.
type Cut struct {
	Number     int64
	RecordedAt time.Time
	SourceTime time.Time   // of the newest record among what had been committed; zero when unknown
	Opens      freshet.Day // the day that began with it; 0: it does not stand at the end of a day
	First      bool        // with Opens: days were not told apart before it
	Plan       string
	Lanes      []CutLane  // where every lane stood, by origin and name
	Tables     []CutTable // by name
	LeftOut    []string   // tables of the pipeline that it does not show
	Shown      []CutShown // the newest cut that shows them, of those that one did
}

// CutShown tells which cut is the newest that shows a table which a later one leaves out: up to there the table holds its lanes,
// whatever its own progress says.
type CutShown struct {
	Name     string
	Location string
	ID       string
	Cut      int64
}

// CutLane is where a lane stood.
type CutLane struct {
	Lane freshet.Lane
	Seq  int64
}

// CutTable is a table in a cut.
type CutTable struct {
	Name     string // as the pipeline names it
	Location string // its URL
	ID       string // of its metadata
	Version  int64
}

// Day is the last day of which the cut holds everything; 0 when it does not stand at the end of a day.
func (c *Cut) Day() freshet.Day {
	if c.Opens == 0 || c.First {
		return 0
	}
	return c.Opens - 1
}

// Table is the cut's entry for the table at this URL; nil when it has none.
func (c *Cut) Table(location string) *CutTable {
	i := slices.IndexFunc(c.Tables, func(t CutTable) bool { return t.Location == location })
	if i < 0 {
		return nil
	}
	return &c.Tables[i]
}

// lane is where the lane stood; ok is false when the cut does not know it.
func (c *Cut) lane(l freshet.Lane) (seq int64, ok bool) {
	for _, have := range c.Lanes {
		if have.Lane == l {
			return have.Seq, true
		}
	}
	return 0, false
}

// samePlace reports whether both cuts stand at the same seqs of the same lanes and tables.
func (c *Cut) samePlace(o *Cut) bool {
	return slices.Equal(c.Lanes, o.Lanes) && slices.EqualFunc(c.Tables, o.Tables, func(a, b CutTable) bool {
		return a.Name == b.Name && a.ID == b.ID
	})
}

var _ freshet.Cutter = (*Target)(nil)

// Cut records which versions its tables are at, if they hold the same of each lane.
func (a *Target) Cut(ctx context.Context, m freshet.Moment) (recorded *freshet.Recorded, err error) {
	if a.cuts == nil {
		return nil, nil
	}
	err = a.patient(ctx, "record a cut in "+a.cuts.log.name, func() error {
		recorded, err = a.cuts.record(ctx, m)
		return err
	})
	if errors.Is(err, freshet.ErrStale) {
		return nil, nil // a table is slow: the next cut leaves it out
	}
	return recorded, explain(a.cuts.log.name, err)
}

// OpenDay is the day that the newest cut opened that opened one.
func (a *Target) OpenDay(ctx context.Context) (freshet.Day, error) {
	if a.cuts == nil {
		return 0, nil
	}
	day, err := a.cuts.log.openDay(ctx)
	return day, explain(a.cuts.log.name, err)
}

// openCuts makes ready for recording cuts, if they are wanted.
func (a *Target) openCuts() (err error) {
	if a.opts.Cuts != nil && a.cuts == nil {
		a.cuts, err = newRecorder(a, a.opts.Cuts)
	}
	return err
}

// cleaning is what cleanup of a table's log must keep.
func (a *Target) cleaning(ctx context.Context, d *delta.Table) (*delta.CleanOptions, error) {
	p, err := CutProtection(ctx, d, a.cutsOf, time.Now())
	if err != nil {
		return nil, err
	}
	o := &delta.CleanOptions{}
	p.Clean(o)
	return o, nil
}

// cutsOf opens the cuts table that a marker names.
func (a *Target) cutsOf(m CutMarker) (store.Store, error) {
	if m.App == a.app {
		return a.open(m.Cuts)
	}
	return a.open(m.Location)
}
