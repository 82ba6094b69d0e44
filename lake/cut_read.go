package lake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// Cuts is a cuts table, for readers. It is safe for concurrent use.
type Cuts struct{ log *cutLog }

// OpenCuts opens the cuts table at the root of st. Errors: an *freshet.Error with CodeNoTable when there is none, which is
// the case as long as no cut was recorded, and with CodeSchemaMismatch when the table is another one.
func OpenCuts(ctx context.Context, st store.Store) (*Cuts, error) {
	l := newCutLog("", st.URL(), st, defaultEngine)
	snap, err := l.look(ctx)
	if err != nil {
		return nil, explain(l.name, err)
	}
	if snap == nil {
		return nil, &freshet.Error{Code: freshet.CodeNoTable, Class: freshet.ClassInput, Place: l.name,
			Msg: "there is no table of cuts", Fix: "no cut was recorded so far, unless the name is wrong"}
	}
	return &Cuts{l}, nil
}

// Location is the table's URL.
func (c *Cuts) Location() string { return c.log.st.URL() }

// CutFilter chooses cuts. The zero value chooses all.
type CutFilter struct {
	Days bool // only those at the end of a day
	Last int  // how many of the newest; 0: all
}

// List returns the cuts that the filter chooses, by number.
func (c *Cuts) List(ctx context.Context, f *CutFilter) ([]*Cut, error) {
	where := "TRUE"
	switch {
	case f.Days:
		where = "day IS NOT NULL"
	case f.Last > 0:
		newest, err := c.newest(ctx)
		if err != nil {
			return nil, err
		}
		where = fmt.Sprintf("cut > %d", newest-int64(f.Last))
	}
	all, err := c.read(ctx, where)
	if f.Days {
		all = dayEnds(all)
	}
	if f.Last > 0 && len(all) > f.Last {
		all = all[len(all)-f.Last:]
	}
	return all, err
}

func (c *Cuts) read(ctx context.Context, where string) ([]*Cut, error) {
	snap, err := c.log.look(ctx)
	if err == nil && snap == nil {
		err = delta.ErrNoTable
	}
	if err != nil {
		return nil, explain(c.log.name, err)
	}
	all, err := readCuts(ctx, snap, where)
	return all, explain(c.log.name, err)
}

// named are the cuts that were recorded since then, and those at the ends of days from one on.
func (c *Cuts) named(ctx context.Context, since time.Time, from freshet.Day) ([]*Cut, error) {
	return c.read(ctx, fmt.Sprintf("recorded_at >= TIMESTAMP '%s' OR day >= DATE '%s'",
		since.UTC().Format("2006-01-02 15:04:05.999999Z07:00"), max(from, 1)))
}

// At returns the cut of this number. Errors: *freshet.Error with CodeNoVersion.
func (c *Cuts) At(ctx context.Context, number int64) (*Cut, error) {
	found, err := c.read(ctx, fmt.Sprintf("cut = %d", number))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, c.none(ctx, fmt.Sprintf("cut %d", number))
	}
	return found[0], nil
}

// Newest returns the newest cut. Errors: *freshet.Error with CodeNoVersion when there is none.
func (c *Cuts) Newest(ctx context.Context) (*Cut, error) {
	newest, err := c.newest(ctx)
	if err != nil {
		return nil, err
	}
	return c.At(ctx, newest)
}

// newest is the number of the newest cut; 0 when there is none.
func (c *Cuts) newest(ctx context.Context) (int64, error) {
	snap, err := c.log.look(ctx)
	if err == nil && snap == nil {
		err = delta.ErrNoTable
	}
	if err != nil {
		return 0, explain(c.log.name, err)
	}
	newest := int64(0)
	for id, txn := range snap.Txns() {
		if app, is := strings.CutSuffix(id, cutTxn("")); is && app != "" {
			newest = max(newest, txn.Version)
		}
	}
	return newest, nil
}

// AsOfDay returns the cut that holds all that the origin committed up to the end of the day, and nothing after it but what
// came late. Errors: *freshet.Error with CodeNoVersion when the day is not over, or was never told apart.
func (c *Cuts) AsOfDay(ctx context.Context, day freshet.Day) (*Cut, error) {
	all, err := c.read(ctx, "opens_day IS NOT NULL")
	if err != nil {
		return nil, err
	}
	all = dayEnds(all)
	for i, cut := range all {
		if cut.Opens <= day {
			continue
		}
		if i == 0 && cut.Day() != day {
			break // nothing tells when the days before it ended
		}
		return cut, nil
	}
	return nil, c.noDay(all, day)
}

// dayEnds are, of cuts that stand at ends of days, those that do still, each once a day: one that reopens a day stands at the
// end of that and of all that were over by then.
func dayEnds(all []*Cut) []*Cut {
	var ends []*Cut
	opened := freshet.Day(0)
	for _, c := range all {
		if c.Opens > opened {
			opened = c.Opens
			ends = append(ends, c)
			continue
		}
		for i, e := range ends {
			if e.Day() != 0 && e.Opens >= c.Opens {
				moved := *c
				moved.Opens = e.Opens
				ends[i] = &moved
			}
		}
	}
	return ends
}

func (c *Cuts) noDay(all []*Cut, day freshet.Day) error {
	e := &freshet.Error{Code: freshet.CodeNoVersion, Class: freshet.ClassInput, Place: c.log.name}
	switch {
	case len(all) == 0:
		e.Msg = fmt.Sprintf("%s: no cut stands at the end of a day", day)
		e.Fix = "write keep_daily into the pipeline; it works from the next day on"
	case day >= all[len(all)-1].Opens:
		e.Msg = fmt.Sprintf("%s is not over: the last day that is, is %s", day, all[len(all)-1].Opens-1)
		e.Fix = "a day is over when the pipeline has read a record of a later day; the newest cut is --cut latest"
	default:
		first := all[0].Opens
		if !all[0].First {
			first--
		}
		e.Msg = fmt.Sprintf("%s: the first day of which there is an end is %s", day, first)
	}
	return e
}

// none says that something is not there, and which cuts are.
func (c *Cuts) none(ctx context.Context, what string) error {
	e := &freshet.Error{Code: freshet.CodeNoVersion, Class: freshet.ClassInput, Place: c.log.name,
		Msg: what + " is not there", Fix: "no cut was recorded so far"}
	all, err := c.read(ctx, "TRUE")
	if err != nil {
		return err
	}
	if len(all) > 0 {
		e.Fix = fmt.Sprintf("there are the cuts %d to %d: `freshet cut list`", all[0].Number, all[len(all)-1].Number)
	}
	return e
}

// CheckWhole looks whether all that the cut names can be read still: versions and files. open opens a table by its URL.
// Errors: *freshet.Error with CodeNoVersion, which names what is whole still.
func (c *Cuts) CheckWhole(ctx context.Context, cut *Cut, open Opener) error {
	w := &wholeness{open: open, tables: map[string]*delta.Table{}, keys: map[string]map[string]bool{}}
	broken := w.check(ctx, cut)
	if broken == nil || !isGone(broken) {
		return broken
	}
	all, err := c.read(ctx, "TRUE")
	if err != nil {
		return err
	}
	// What a vacuum takes, it takes from the oldest versions on, but for the ends of days.
	at := slices.IndexFunc(all, func(o *Cut) bool { return o.Number > cut.Number })
	whole := "none of the cuts after it is whole"
	if at >= 0 {
		if first, err := w.firstWhole(ctx, all[at:]); err != nil {
			return err
		} else if first != nil {
			whole = fmt.Sprintf("cuts %d to %d are whole still", first.Number, all[len(all)-1].Number)
		}
	}
	return &freshet.Error{Code: freshet.CodeNoVersion, Class: freshet.ClassInput, Place: c.log.name, Err: broken,
		Msg: fmt.Sprintf("cut %d cannot be read any more", cut.Number), Fix: whole}
}

// goneError says what of a cut is not there any more.
type goneError struct{ what string }

func (e *goneError) Error() string { return e.what }

func isGone(err error) bool {
	var gone *goneError
	return errors.As(err, &gone)
}

// wholeness looks whether cuts can be read.
type wholeness struct {
	open   Opener
	tables map[string]*delta.Table
	keys   map[string]map[string]bool // of each table, the files that are there
}

// firstWhole is the first of the cuts that is whole, by halves.
func (w *wholeness) firstWhole(ctx context.Context, cuts []*Cut) (*Cut, error) {
	low, high := 0, len(cuts)
	for low < high {
		middle := (low + high) / 2
		err := w.check(ctx, cuts[middle])
		switch {
		case err == nil:
			high = middle
		case isGone(err):
			low = middle + 1
		default:
			return nil, err
		}
	}
	if low == len(cuts) {
		return nil, nil
	}
	return cuts[low], nil
}

func (w *wholeness) check(ctx context.Context, cut *Cut) error {
	for _, t := range cut.Tables {
		if err := w.checkTable(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (w *wholeness) checkTable(ctx context.Context, t CutTable) error {
	d, err := w.table(ctx, t.Location)
	if errors.Is(err, delta.ErrNoTable) {
		return &goneError{fmt.Sprintf("the table %s is gone", t.Location)}
	}
	if err != nil {
		return err
	}
	snap, err := d.SnapshotAt(ctx, t.Version)
	switch {
	case errors.Is(err, delta.ErrVersionNotFound), errors.Is(err, delta.ErrCorrupt):
		return &goneError{fmt.Sprintf("version %d of %s is gone: %v", t.Version, t.Location, err)}
	case err != nil:
		return explain(t.Location, err)
	case snap.Metadata().ID != t.ID:
		return &goneError{fmt.Sprintf("the table at %s is another one by now", t.Location)}
	}
	for key, err := range snap.Keys(ctx) {
		if err != nil {
			return explain(t.Location, err)
		}
		if !w.keys[t.Location][key] {
			return &goneError{fmt.Sprintf("files of version %d of %s are gone, such as %s", t.Version, t.Location, key)}
		}
	}
	return nil
}

// table opens a table and lists its files, once.
func (w *wholeness) table(ctx context.Context, location string) (*delta.Table, error) {
	if t := w.tables[location]; t != nil {
		return t, nil
	}
	st, err := w.open(location)
	if err != nil {
		return nil, err
	}
	t, err := delta.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for o, err := range st.List(ctx, "", "") {
		if err != nil {
			return nil, explain(location, err)
		}
		keys[o.Key] = true
	}
	w.tables[location], w.keys[location] = t, keys
	return t, nil
}
