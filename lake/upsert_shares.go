package lake

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// A commit whose rows were spilled applies them share by share, all in one edit of the table:
//
//	spilled, in order ─ divide, by fingerprint ─▶ a file a share ─▶ upsert, upsert, … ─▶ delta.Edit
//
// A share has all changes of its keys, in their order. Each attempt divides anew, as the index may have another secret then.

// errUndivided says that changes of one key depend on those of another: all rows must be looked at together.
var errUndivided = errors.New("rows that depend on each other")

// maxShares bounds the files that are open at once. Shares grow beyond what was wanted once a transaction has so many.
const maxShares = 1024

// spills reports whether gathered rows may be taken share by share: nothing but their place orders them, and nothing besides
// the table is to be told of them. Where deletes are ignored, a row that came under another key is told from one by both of its sides.
func (o *TargetOptions) spills() bool {
	return (o.Mode == Mirror || o.Mode == Upsert) && len(o.Key.SequenceBy) == 0 &&
		(o.Key.Deletes == HardDeletes || o.Key.Deletes == SoftDeletes)
}

// spill moves what is gathered out of memory, if it is more than may be.
func (t *table) spill() error {
	g := t.keyed
	if !t.a.opts.spills() || g.bytes <= cmp.Or(t.a.opts.MemoryBytes, gatheredBytes) {
		return nil
	}
	if g.spilled == nil {
		dir, err := t.a.indexRoot()
		if err != nil {
			return err
		}
		if g.spilled, err = newSpilled(dir); err != nil {
			return err
		}
	}
	for len(g.batches) > 0 {
		b := g.batches[0]
		g.batches = g.batches[1:]
		if err := g.spilled.add(b); err != nil {
			return err
		}
	}
	g.bytes = 0
	return nil
}

// loaded is all of it in memory, in order. The batches that were read back are returned, too, for the caller to release.
func (g *gathered) loaded() (all gathered, back []*freshet.Batch, err error) {
	all = gathered{batches: g.batches, empties: g.empties}
	if g.spilled == nil {
		return all, nil, nil
	}
	back, err = g.spilled.all()
	all.batches = slices.Concat(back, g.batches)
	return all, back, err
}

// all reads all batches back.
func (s *spilled) all() (batches []*freshet.Batch, err error) {
	for i := range s.batches {
		b, err := s.load(i)
		if err != nil {
			releaseBatches(batches)
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

func releaseBatches(batches []*freshet.Batch) {
	for _, b := range batches {
		b.Release()
	}
}

// shares are files with the changes of some keys each.
type shares struct {
	key    []*delta.Field // of the table to come
	hasher *keyindex.Hasher
	of     []*spilled
}

// dealOut puts what was gathered into shares. Errors: errUndivided; *freshet.Error for the disk.
func (t *table) dealOut(g *gathered, schema *delta.Schema) (_ *shares, err error) {
	s := &shares{hasher: t.index.x.Hasher()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, name := range t.key() {
		f, _ := schema.Lookup(name)
		s.key = append(s.key, f)
	}
	dir, err := t.a.indexRoot()
	if err != nil {
		return nil, err
	}
	most := cmp.Or(t.a.opts.MemoryBytes, gatheredBytes)
	for range min((g.spilled.memory+g.bytes)/(most/3+1)+1, maxShares) { // put side by side and written they take thrice as much
		one, err := newSpilled(dir)
		if err != nil {
			return nil, err
		}
		s.of = append(s.of, one)
	}
	for i := range g.spilled.batches {
		b, err := g.spilled.load(i)
		if err != nil {
			return nil, err
		}
		err = s.deal(b)
		b.Release()
		if err != nil {
			return nil, err
		}
	}
	for _, b := range g.batches {
		if err := s.deal(b); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *shares) close() {
	for _, one := range s.of {
		one.close()
	}
}

// deal adds the rows of a batch to the shares of their keys. What a commit skips is left out: rows without a key, which are
// rejects, and old images of updates that left the key as it was. Those of other updates say that the old key is gone.
func (s *shares) deal(b *freshet.Batch) error {
	keys := make([]arrow.Array, len(s.key))
	defer func() {
		for _, k := range keys {
			if k != nil {
				k.Release()
			}
		}
	}()
	for i, f := range s.key {
		var err error
		if keys[i], err = f.Conform(b.Rows.Column(columnNamed(b.Rows.Schema(), f.Name))); err != nil {
			return err
		}
	}
	rows, hashes, err := s.hash(keys)
	if err != nil {
		return err
	}
	to := make([][]int32, len(s.of))
	kinds := slices.Clone(b.Kinds)
	for i, row := range rows {
		next := i + 1
		if kinds != nil && kinds[row] == freshet.UpdatePreimage {
			if next == len(rows) || rows[next] != row+1 || hashes[next] == hashes[i] {
				continue
			}
			if b.Unsent.Any(int(row) + 1) {
				return errUndivided // what was not sent is as the row of the old key had it
			}
			kinds[row] = freshet.Delete
		}
		share := hashes[i].Hi % uint64(len(s.of))
		to[share] = append(to[share], row)
	}
	for i, rows := range to {
		if len(rows) > 0 {
			if err := s.of[i].add(rowsOfBatch(b, kinds, rows)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash makes the fingerprints of the rows that have a key.
func (s *shares) hash(keys []arrow.Array) (rows []int32, hashes []keyindex.Fingerprint, err error) {
	for row := range keys[0].Len() {
		if !slices.ContainsFunc(keys, func(k arrow.Array) bool { return k.IsNull(row) }) {
			rows = append(rows, int32(row))
		}
	}
	some := make([]arrow.Array, len(keys))
	for i, k := range keys {
		some[i] = expr.Take(k, expr.SpansOf(rows))
		defer some[i].Release()
	}
	hashes, err = s.hasher.Append(nil, some)
	return rows, hashes, err
}

// rowsOfBatch are some rows of a batch, in their order, of these kinds.
func rowsOfBatch(b *freshet.Batch, kinds []freshet.Kind, rows []int32) *freshet.Batch {
	some := &freshet.Batch{Lane: b.Lane, Behind: b.Behind, ReadAt: b.ReadAt, Kinds: these(kinds, rows),
		Rows: expr.TakeBatch(b.Rows, expr.SpansOf(rows)),
		Seqs: these(b.Seqs, rows), Stamps: these(b.Stamps, rows), Places: these(b.Places, rows), Records: these(b.Records, rows)}
	columns := int(b.Rows.NumCols())
	for n, row := range rows {
		if !b.Unsent.Any(int(row)) {
			continue
		}
		if some.Unsent == nil {
			some.Unsent = freshet.NewMask(columns)
		}
		for c := range columns {
			if b.Unsent.Has(int(row), c) {
				some.Unsent.Mark(n, c)
			}
		}
	}
	return some
}

func these[T any](all []T, rows []int32) []T {
	if all == nil {
		return nil
	}
	some := make([]T, len(rows))
	for n, row := range rows {
		some[n] = all[row]
	}
	return some
}

// prepareShares is prepare of rows that were spilled. Errors: errUndivided.
func (c *commit) prepareShares(ctx context.Context, snap *delta.Snapshot, meta, to *delta.Metadata, schema *delta.Schema) (
	_ *upsertWriter, err error) {
	s, err := c.t.dealOut(c.keyed, schema)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var w *upsertWriter
	defer func() {
		if err != nil && w != nil {
			w.close()
			err = errors.Join(err, w.edit.Abort(context.WithoutCancel(ctx)))
		}
	}()
	for _, share := range s.of {
		if len(share.batches) == 0 {
			continue
		}
		u, err := c.upsertShare(ctx, snap, to, schema, share)
		if err != nil {
			return nil, err
		}
		if w == nil {
			if w, err = u.begin(ctx, meta); err != nil {
				u.close()
				return nil, err
			}
			w.edit.Unplaced()
			w.news.unnoted, w.shared = true, true
		} else {
			w.next(u)
		}
		if err := w.putAll(ctx); err != nil {
			return nil, err
		}
		c.noteRejects(u)
	}
	if w == nil {
		return nil, errUndivided // no row has a key
	}
	return w, nil
}

// upsertShare finds out what a share does to the snapshot.
func (c *commit) upsertShare(ctx context.Context, snap *delta.Snapshot, to *delta.Metadata, schema *delta.Schema, share *spilled) (
	*upsert, error) {
	back, err := share.all()
	if err != nil {
		return nil, err
	}
	all := gathered{batches: back, empties: c.keyed.empties}
	rows, err := all.union(schema, to.PartitionColumns, c.t.looked())
	if err != nil {
		releaseBatches(back)
		return nil, err
	}
	rows.own = back
	u, err := newUpsert(ctx, c.t, snap, to, rows)
	if err != nil {
		rows.release()
	}
	return u, err
}

// next goes on with another share.
func (w *upsertWriter) next(u *upsert) {
	u.counts.add(w.counts)
	u.feed = u.feed && !u.rows.empties
	w.close()
	w.upsert = u
}
