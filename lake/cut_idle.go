package lake

import (
	"context"
	"errors"
	"slices"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// A commit that moves nothing but progress need not run where a cut stands behind it: the cut says of each table that it holds
// all up to some seq of each lane. So a table's progress is the greater of its own txn and what the newest cut says, if
// nobody has set the txn since; a table to which nothing comes gets no versions.
type folded struct {
	own int64 // the txn that the table has of the lane
	to  int64 // up to where a cut says that it holds all
}

// Idle reports whether the commit moves nothing but progress.
func (c *commit) Idle() (to freshet.Progress, idle bool) {
	if len(c.adds) > 0 || c.keyed != nil || c.rejects != nil {
		return nil, false
	}
	return ends(c.lanes), true
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

// cutsHere is what records the cuts in which the target's tables are; nil when nothing does.
func (a *Target) cutsHere() *recorder {
	if a.lead != nil {
		return a.lead.cuts
	}
	return a.cuts
}

// unfold is the progress that the table has, and the newest cut where that says more.
func (t *table) unfold(ctx context.Context, snap *delta.Snapshot, p freshet.Progress) (freshet.Progress, error) {
	r := t.a.cutsHere()
	if r == nil {
		return p, nil
	}
	cuts, err := r.log.look(ctx)
	if err != nil || cuts == nil {
		return p, explain(r.log.name, err)
	}
	f, more := form{t.a.app, true}, false
	for l, own := range p {
		seq, ok := cuts.Txn(f.lane(l))
		more = more || ok && seq > own
	}
	if !more {
		return p, nil
	}
	head, err := r.log.newest(ctx, cuts)
	if err != nil || head == nil {
		return p, explain(r.log.name, err)
	}
	i := slices.IndexFunc(head.Tables, func(c CutTable) bool { return c.ID == snap.Metadata().ID })
	if i < 0 {
		return p, nil
	}
	then, err := snap.Table().SnapshotAt(ctx, head.Tables[i].Version)
	if errors.Is(err, delta.ErrVersionNotFound) {
		return p, nil // what lies between is read again
	}
	if err != nil {
		return nil, explain(t.name, err)
	}
	for l, seq := range p {
		to, ok := head.lane(l)
		if was, known := then.Txn(t.a.form().lane(l)); ok && known && was == seq && to > seq {
			t.fold(l, seq, to)
			p[l] = to
		}
	}
	return p, nil
}
