package lake

import (
	"context"
	"errors"
	"maps"
	"slices"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// A commit that moves nothing but progress need not run where a cut stands behind it: the cut says of each table that it holds
// all up to some seq of each lane. So a table's progress is the greater of its own txn and what the newest cut says that shows it, if
// nobody has set the txn since; a table to which nothing comes gets no versions.
type folded struct {
	own int64 // the txn that the table has of the lane
	to  int64 // up to where a cut says that it holds all
}

// Idle reports whether the commit moves nothing but progress, on which nothing depends: by one that leaves out what a lane beside
// it shows, others that move that lane find out that they must not.
func (c *commit) Idle() (to freshet.Progress, idle bool) {
	depends := slices.Contains(slices.Collect(maps.Values(c.steady)), true)
	if len(c.adds) > 0 || c.keyed != nil || c.rejects != nil || depends {
		return nil, false
	}
	return ends(c.lanes), true
}

// needless reports whether the commit moves nothing but progress, and a cut says that the table holds as much.
func (c *commit) needless() bool {
	to, idle := c.Idle()
	snap := c.knownSnapshot()
	if !idle || snap == nil {
		return false
	}
	f := c.t.a.form()
	for l, seq := range to {
		if own, ok := snap.Txn(f.lane(l)); !ok || own >= seq || c.t.folds(l, own) < seq {
			return false
		}
	}
	return true
}

// Idle reports whether all commits of the group move nothing but progress.
func (c *groupCommit) Idle() (to freshet.Progress, idle bool) {
	for _, m := range c.commits {
		one, is := m.Commit.(freshet.IdleCommit)
		if !is {
			return nil, false
		}
		if to, idle = one.Idle(); !idle {
			return nil, false
		}
	}
	return to, idle
}

// folds is up to where the table holds all of a lane whose txn it has: there, or where a cut says.
func (t *table) folds(l freshet.Lane, own int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, ok := t.folded[l]; ok && f.own == own {
		return f.to
	}
	return own
}

// standsAt reports whether the table, whose own txn of a lane that is, is where a stretch may begin: there, or, as a cut says that it
// holds more, up to that.
func (t *table) standsAt(l freshet.Lane, own, after int64) bool {
	return own == after || own < after && after <= t.folds(l, own)
}

// fold notes that a cut says of the table that it holds all of the lane up to a seq.
func (t *table) fold(l freshet.Lane, own, to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.folded == nil {
		t.folded = map[freshet.Lane]folded{}
	}
	t.folded[l] = folded{own, to}
}

// idlers are the stretches of idle commits, by table.
func idlers(all []freshet.IdleCommit) map[string]map[freshet.Lane]*stretch {
	out := map[string]map[freshet.Lane]*stretch{}
	for _, one := range all {
		switch c := one.(type) {
		case *commit:
			out[c.t.name] = c.lanes
		case *groupCommit:
			for _, m := range c.commits {
				if c, is := m.Commit.(*commit); is {
					out[c.t.name] = c.lanes
				}
			}
		}
	}
	return out
}

// addQuiet adds the stretches in which nothing came for tables, and for those beside them.
func (a *Target) addQuiet(all map[string]map[freshet.Lane]*stretch, quiet []freshet.Quiet) {
	for _, q := range quiet {
		for _, name := range a.namesOf(q.Table) {
			lanes := maps.Clone(all[name]) // it is a commit's
			if lanes == nil {
				lanes = map[freshet.Lane]*stretch{}
			}
			lanes[q.Lane] = &stretch{q.After, q.Last}
			all[name] = lanes
		}
	}
}

// cutsHere is what records the cuts in which the target's tables are; nil when nothing does.
func (a *Target) cutsHere() *recorder {
	if a.lead != nil {
		return a.lead.cuts
	}
	return a.cuts
}

// unfold is the progress that the table has, and that of the newest cut that shows it where that says more.
func (t *table) unfold(ctx context.Context, snap *delta.Snapshot, p freshet.Progress) (freshet.Progress, error) {
	if len(p) == 0 {
		return p, nil
	}
	r, found := t.a.cutsHere(), false
	if r != nil {
		var err error
		if found, err = t.unfoldBy(ctx, r.log, snap, p); err != nil || found {
			return p, err
		}
	}
	markers, err := CutMarkers(ctx, t.st) // the pipeline recorded cuts, or elsewhere
	for _, m := range markers {
		if found || m.App != t.a.app || r != nil && m.Location == r.log.st.URL() {
			continue
		}
		at, e := t.a.open(m.Location)
		if e == nil {
			found, e = t.unfoldBy(ctx, newCutLog(m.App, m.Location, at, ""), snap, p)
		}
		err = errors.Join(err, e)
	}
	return p, err
}

// unfoldBy raises the progress of the table to what the cuts in the log say, and reports whether one of them shows it.
func (t *table) unfoldBy(ctx context.Context, log *cutLog, snap *delta.Snapshot, p freshet.Progress) (bool, error) {
	shows, err := log.shows(ctx, snap)
	if err != nil || shows == nil {
		return false, explain(log.name, err)
	}
	beyond, err := shows.beyond(ctx, snap, t.a.form(), p)
	if err != nil {
		return true, explain(t.name, err)
	}
	for l, to := range beyond {
		t.fold(l, p[l], to)
		p[l] = to
	}
	return true, nil
}

// recollect learns what cuts say of the table's lanes beyond its txns, of all that it has.
func (t *table) recollect(ctx context.Context) error {
	snap, err := t.look(ctx)
	if err != nil || snap == nil {
		return err
	}
	p := freshet.Progress{}
	for _, l := range appProgress(snap, t.a.app, map[string]bool{}).Lanes {
		p[l.Lane] = l.Seq
	}
	_, err = t.unfold(ctx, snap, p)
	return err
}

// beyond is up to where the cut, the newest that shows it, says that a table holds all of a lane, of those of which that is more than
// the table's own txn, which is p. A commit that moves nothing but progress, of a copy that does not know of the cut, may have moved that
// since, but nobody must have set it. Of a version that is gone, it is nothing: what lies between is read again.
func (c *Cut) beyond(ctx context.Context, snap *delta.Snapshot, f form, p freshet.Progress) (freshet.Progress, error) {
	i := slices.IndexFunc(c.Tables, func(t CutTable) bool { return t.ID == snap.Metadata().ID })
	if i < 0 {
		return nil, nil
	}
	then, err := snap, error(nil)
	if v := c.Tables[i].Version; v != snap.Version() {
		then, err = snap.Table().SnapshotAt(ctx, v)
	}
	if errors.Is(err, delta.ErrVersionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	more := freshet.Progress{}
	wasSet, _ := then.Txn(setTxn(f.app))
	if isSet, _ := snap.Txn(setTxn(f.app)); isSet != wasSet {
		return more, nil
	}
	for l, seq := range p {
		to, ok := c.lane(l)
		if was, known := then.Txn(f.lane(l)); ok && known && was <= seq && to > seq {
			more[l] = to
		}
	}
	return more, nil
}

// AddCuts raises what a table records (ReadProgress) to what cuts say beyond it, where the progress of an app is that of its cuts.
// cuts opens the cuts table of a marker.
func AddCuts(ctx context.Context, st store.Store, all []AppProgress, cuts func(CutMarker) (store.Store, error)) error {
	markers, err := CutMarkers(ctx, st)
	if err != nil || len(markers) == 0 {
		return err
	}
	snap, err := openTable(ctx, st, "")
	if err != nil {
		return err
	}
	for _, m := range markers {
		for i := range all {
			if all[i].App != m.App {
				continue
			}
			at, err := cuts(m)
			if err == nil {
				err = all[i].addCuts(ctx, snap, newCutLog(m.App, m.Location, at, ""))
			}
			if err != nil {
				return explain(m.Location, err)
			}
		}
	}
	return nil
}

func (a *AppProgress) addCuts(ctx context.Context, snap *delta.Snapshot, log *cutLog) error {
	shows, err := log.shows(ctx, snap)
	if shows == nil || err != nil {
		return err
	}
	p := freshet.Progress{}
	for _, l := range a.Lanes {
		p[l.Lane] = l.Seq
	}
	more, err := shows.beyond(ctx, snap, form{a.App, a.ManyOrigins}, p)
	for i := range a.Lanes {
		l := &a.Lanes[i]
		if to, ok := more[l.Lane]; ok {
			l.Seq, l.Cut, l.Updated = to, shows.Number, shows.RecordedAt
		}
	}
	return err
}
