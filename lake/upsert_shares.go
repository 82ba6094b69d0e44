package lake

import (
	"cmp"
	"context"
	"errors"

	"github.com/freshet-io/freshet/delta"
)

// A commit whose rows were spilled applies them share by share (gather_spill.go), all in one edit of the table:
//
//	share ─▶ upsert, or history ─▶ delta.Edit, tombstones, log of deletes ─▶ next share …

// spills reports whether gathered rows may be taken share by share: nothing besides their key tells what becomes of them.
func (o *TargetOptions) spills() bool { return o.Mode.keyed() }

// shareBytes is how much memory the rows of one share are to take: put side by side and written they take thrice as much.
func (o *TargetOptions) shareBytes() int64 { return cmp.Or(o.MemoryBytes, gatheredBytes)/3 + 1 }

// spill moves what is gathered out of memory, if it is more than may be. From then on nothing stays there.
func (t *table) spill(g *gathered) error {
	o := &t.opts
	if !o.spills() || g.spilled == nil && g.size() <= cmp.Or(o.MemoryBytes, gatheredBytes) {
		return nil
	}
	if g.spilled == nil {
		dir, err := t.a.indexRoot()
		if err != nil {
			return err
		}
		if g.spilled, err = newSpilled(dir, t.newDivider()); err != nil {
			return err
		}
	}
	return g.spillAll(t.schema, o.shareBytes())
}

// spillAll moves the batches that are in memory, of a table with this schema, to those that were spilled.
func (g *gathered) spillAll(schema *delta.Schema, most int64) error {
	g.spilled.whole = g.spilled.whole || !g.spilled.by.fits(schema)
	for len(g.batches) > 0 {
		b := g.batches[0]
		g.batches = g.batches[1:]
		if err := g.spilled.add(b, most); err != nil {
			return err
		}
	}
	g.bytes = 0
	return nil
}

// prepareShares is prepare of rows that were spilled. Errors: errUndivided.
func (c *commit) prepareShares(ctx context.Context, snap *delta.Snapshot, meta, to *delta.Metadata, schema *delta.Schema) (
	w *upsertWriter, err error) {
	most, s := c.t.opts.shareBytes(), c.keyed.spilled
	if s.whole {
		return nil, errUndivided
	}
	defer func() {
		if err != nil && w != nil {
			w.close()
			err = errors.Join(err, w.abort(ctx))
			w = nil
		}
	}()
	for _, one := range s.shares(most) {
		back, err := s.load(one)
		if err != nil {
			return w, err
		}
		if len(back) == 0 {
			continue
		}
		all := gathered{batches: back, empties: c.keyed.empties}
		rows, err := all.union(schema, to.PartitionColumns, c.t.looked())
		if err != nil {
			releaseBatches(back)
			return w, err
		}
		rows.own, rows.divided = back, true
		if w == nil {
			w, err = c.t.writeFirst(ctx, snap, meta, to, rows, true)
		} else {
			err = c.t.writeNext(ctx, snap, to, rows, w)
		}
		if err == nil {
			err = c.noteBeside(ctx, w)
		}
		if err != nil {
			return w, err
		}
	}
	if w == nil { // no row has a key, or says anything
		u, err := undecided(c.t, snap, to, &changeRows{empties: c.keyed.empties, divided: true})
		if err == nil {
			w, err = u.begin(ctx, meta, true)
		}
		return w, err
	}
	w.news.tail = s.tail()
	return w, nil
}

// tail is what the key index keeps of the rows behind their sequence, if one lane has brought all: where in it they are is
// told by its last seq.
func (s *spilled) tail() order {
	if len(s.lanes) != 1 {
		return nil
	}
	for lane, last := range s.lanes {
		return newOrder(nil, lane, last)
	}
	return nil
}
