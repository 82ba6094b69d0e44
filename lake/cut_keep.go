package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// cutsFolder is where a table keeps which cuts tables name its versions: an object <app>.json each, which every vacuum
// leaves alone. It is written before the first cut that names the table.
const cutsFolder = "_freshet/cuts/"

// CutMarker says that cuts name versions of a table.
type CutMarker struct {
	App       string        `json:"app"`
	Cuts      string        `json:"cuts"`     // the cuts table as the pipeline names it
	Location  string        `json:"location"` // its URL
	Retention time.Duration `json:"retention_ns"`
	KeepDays  int           `json:"keep_days"`
}

// mark makes sure that each table that the cut shows bears our marker.
func (r *recorder) mark(ctx context.Context) error {
	want := CutMarker{App: r.a.app, Cuts: r.opts.Table, Location: r.log.st.URL(), Retention: r.opts.Retention,
		KeepDays: r.opts.KeepDays}
	data, err := json.Marshal(want)
	if err != nil {
		return err
	}
	key := cutsFolder + url.PathEscape(r.a.app) + ".json"
	var bear []string // it by now
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(meets)
	for _, s := range r.shown {
		if r.marked[s.t.name] {
			continue
		}
		all.Go(func() error {
			err := r.ask(ctx, s.t, "note that cuts show it", func(ctx context.Context) error {
				return putIfOther(ctx, s.t.st, key, data)
			})
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				bear = append(bear, s.t.name)
			}
			return explain(s.t.name, err)
		})
	}
	err = all.Wait()
	for _, name := range bear {
		r.marked[name] = true
	}
	return err
}

// putIfOther puts the object unless it is there as it is to be.
func putIfOther(ctx context.Context, st store.Store, key string, data []byte) error {
	have, err := st.Get(ctx, key)
	if err == nil && string(have) == string(data) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return st.Put(ctx, key, data)
}

// CutMarkers are the markers that the table at the root of st bears.
func CutMarkers(ctx context.Context, st store.Store) ([]CutMarker, error) {
	var all []CutMarker
	for o, err := range st.List(ctx, cutsFolder, "") {
		if err != nil {
			return nil, explain(st.URL(), err)
		}
		data, err := st.Get(ctx, o.Key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, explain(st.URL(), err)
		}
		var m CutMarker
		if err := json.Unmarshal(data, &m); err != nil || m.Location == "" {
			return nil, &freshet.Error{Code: freshet.CodeCorrupt, Class: freshet.ClassFailure, Place: st.URL(), Err: err,
				Msg: fmt.Sprintf("%s: found %.100q, wanted which cuts name the table", o.Key, data),
				Fix: "delete the object if no cuts name the table; the pipeline that does writes it again"}
		}
		all = append(all, m)
	}
	return all, nil
}

// Protection is what of a table must stay because cuts name it.
type Protection struct {
	// Retention is for how long files must stay that the table lets go of; 0 when nothing says.
	Retention time.Duration
	// From is the oldest version that a cut within its retention names; nil when none does.
	From *int64
	// Versions are those at the ends of days that are kept, besides.
	Versions []int64
}

// cutSlack is how much later than its tables' versions a cut is recorded, at most.
const cutSlack = time.Hour

// CutProtection finds out what cuts name of the table at the time now. cuts opens the table of a marker. Errors: a cuts
// table that is not there, since then nobody knows what must stay.
func CutProtection(ctx context.Context, t *delta.Table, cuts func(CutMarker) (store.Store, error), now time.Time) (
	*Protection, error) {
	p := &Protection{}
	markers, err := CutMarkers(ctx, t.Store())
	if err != nil || len(markers) == 0 {
		return p, err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, explain(t.Store().URL(), err)
	}
	for _, m := range markers {
		st, err := cuts(m)
		if err == nil {
			err = p.add(ctx, m, st, snap.Metadata().ID, now)
		}
		if err != nil {
			return nil, &freshet.Error{Code: freshet.CodeNoTable, Class: freshet.ClassInput, Place: t.Store().URL(), Err: err,
				Msg: fmt.Sprintf("cuts in %s name versions of the table, and cannot be read", m.Location),
				Fix: fmt.Sprintf("if these cuts are given up, delete %s%s.json below the table", cutsFolder, url.PathEscape(m.App))}
		}
	}
	return p, nil
}

// add adds what the cuts in a table name.
func (p *Protection) add(ctx context.Context, m CutMarker, st store.Store, id string, now time.Time) error {
	log, err := OpenCuts(ctx, st)
	if err != nil {
		return err
	}
	p.Retention = max(p.Retention, m.Retention+cutSlack)
	since := now.Add(-m.Retention)
	today := freshet.DayOf(now)
	all, err := log.named(ctx, since, today-freshet.Day(m.KeepDays))
	if err != nil {
		return err
	}
	days := slices.DeleteFunc(slices.Clone(all), func(c *Cut) bool { return c.Opens == 0 })
	ends := map[int64]bool{}
	for _, c := range dayEnds(days) {
		ends[c.Number] = true
	}
	for _, c := range all {
		for _, t := range c.Tables {
			if t.ID != id || c.RecordedAt.Before(since) && !ends[c.Number] {
				continue
			}
			if !c.RecordedAt.Before(since) {
				if p.From == nil || t.Version < *p.From {
					p.From = &t.Version
				}
			} else {
				p.Versions = append(p.Versions, t.Version)
			}
		}
	}
	return nil
}

// Vacuum has a vacuum keep what must stay.
func (p *Protection) Vacuum(ctx context.Context, t *delta.Table, o *delta.VacuumOptions) error {
	o.AtLeast = max(o.AtLeast, p.Retention)
	versions := p.Versions
	if p.From != nil {
		versions = append(versions, *p.From)
	}
	for _, v := range versions {
		_, err := t.SnapshotAt(ctx, v)
		switch {
		case err == nil:
			o.KeepVersions = append(o.KeepVersions, v)
		case !errors.Is(err, delta.ErrVersionNotFound): // its log is gone: nothing can be kept for it
			return explain(t.Store().URL(), err)
		}
	}
	return nil
}

// Clean has a cleanup of the log keep what must stay.
func (p *Protection) Clean(o *delta.CleanOptions) {
	o.KeepVersions = append(o.KeepVersions, p.Versions...)
	if p.From != nil && (o.KeepFrom == nil || *p.From < *o.KeepFrom) {
		o.KeepFrom = p.From
	}
}
