package delta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// filePlan is what becomes of a transaction's files in the version that it is built upon.
type filePlan struct {
	adds    []Add
	removes []Remove
	vectors []string // keys of the objects that hold deletion vectors of adds
}

// resolve makes the plan, unless the one that is there still holds, and writes the deletion vectors of it.
func (c *committer) resolve(ctx context.Context) error {
	if c.tx.plan != nil {
		return nil
	}
	w := &vectorWriter{st: c.tx.table.st}
	var p *filePlan
	err := c.retry(ctx, func() (err error) {
		p, err = c.tx.planFiles(ctx, c.base, w)
		return err
	})
	if err == nil {
		err = c.retry(ctx, func() error { return w.flush(ctx) })
	}
	if err != nil {
		c.forget(ctx, w.keys)
		return err
	}
	p.vectors = w.keys
	c.tx.plan = p
	return nil
}

// replan drops the plan, since a winner has changed what it was made from, and the vectors that nobody will name.
func (c *committer) replan(ctx context.Context) {
	if p := c.tx.plan; p != nil {
		c.tx.plan = nil
		c.forget(ctx, p.vectors)
	}
}

// forget deletes objects that no commit names. What cannot be deleted stays behind as garbage, for a vacuum.
func (c *committer) forget(ctx context.Context, keys []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, key := range keys {
		_ = c.tx.table.st.Delete(ctx, key)
	}
}

// planFiles gathers adds and removes of marks and rewrites. It may be called again after an error.
func (tx *Transaction) planFiles(ctx context.Context, base *Snapshot, w *vectorWriter) (*filePlan, error) {
	p := &filePlan{}
	w.data = nil
	for _, m := range tx.marks {
		if err := tx.planMark(ctx, base, m, p, w); err != nil {
			return nil, fmt.Errorf("delete rows of %s: %w", m.file.Path, err)
		}
	}
	for _, r := range tx.rewrites {
		if err := tx.planRewrite(ctx, base, r, p, w); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (tx *Transaction) planMark(ctx context.Context, base *Snapshot, m *mark, p *filePlan, w *vectorWriter) error {
	if err := m.read(ctx, base); err != nil {
		return err
	}
	if m.rows.IsEmpty() {
		return nil
	}
	if m.gone.Intersects(m.rows) {
		return fmt.Errorf("%w: row %d", ErrRowGone, roaring64.And(m.gone, m.rows).Minimum())
	}
	gone := roaring64.Or(m.gone, m.rows)
	lost := gone.GetCardinality()
	rows, err := base.physicalRows(ctx, &m.file)
	if err != nil {
		return err
	}
	if last := gone.Maximum(); last >= uint64(rows) {
		return fmt.Errorf("row %d is to be deleted, the file has %d rows", last, rows)
	}
	p.removes = append(p.removes, m.file.Remove())
	if lost == uint64(rows) {
		return nil
	}
	add := m.file
	add.DataChange = true
	if err := tx.hide(ctx, base, &add, gone, rows, w); err != nil {
		return err
	}
	p.adds = append(p.adds, add)
	return nil
}

// read reads the vector that the file has in the version that is built upon.
func (m *mark) read(ctx context.Context, base *Snapshot) (err error) {
	if m.gone == nil {
		m.gone, err = base.vectorRows(ctx, m.file.DeletionVector)
	}
	return err
}

func (tx *Transaction) planRewrite(ctx context.Context, base *Snapshot, r *rewrite, p *filePlan, w *vectorWriter,
) error {
	for i := range r.Removed {
		if r.taken[i] {
			continue
		}
		remove := r.Removed[i].Remove()
		remove.DataChange = false
		p.removes = append(p.removes, remove)
	}
	for i := range r.Added {
		add := r.Added[i]
		add.DataChange = false
		if lost := r.lost[i]; lost != nil && !lost.IsEmpty() {
			rows, err := base.physicalRows(ctx, &add)
			if err != nil {
				return err
			}
			if lost.GetCardinality() == uint64(rows) {
				continue
			}
			if err := tx.hide(ctx, base, &add, lost, rows, w); err != nil {
				return err
			}
		}
		p.adds = append(p.adds, add)
	}
	return nil
}

// hide gives the file a vector of these rows. Spec: "Per-file Statistics": bounds are wide from then on.
func (tx *Transaction) hide(ctx context.Context, base *Snapshot, add *Add, gone *roaring64.Bitmap, rows int64,
	w *vectorWriter,
) (err error) {
	if !tx.allowsVectors(base) {
		return fmt.Errorf("some rows of %s are to be deleted, and the table has no deletion vectors: set "+
			"delta.enableDeletionVectors, or rewrite the file", add.Path)
	}
	add.DeletionVector, err = w.add(ctx, gone)
	add.Stats = wideStats(add.Stats, rows)
	return err
}

// allowsVectors reports whether the table may get deletion vectors by this transaction.
func (tx *Transaction) allowsVectors(base *Snapshot) bool {
	proto, meta := tx.next(base)
	return proto.Supports("deletionVectors") && meta.boolean(propDeletionVectors, false)
}

// vectorRows is DeletedRows with an empty bitmap for no vector.
func (s *Snapshot) vectorRows(ctx context.Context, v *DeletionVector) (*roaring64.Bitmap, error) {
	if v == nil {
		return roaring64.New(), nil
	}
	return s.DeletedRows(ctx, v)
}

// physicalRows is how many rows the data file has, deleted ones included: as its statistics say, else its footer.
func (s *Snapshot) physicalRows(ctx context.Context, add *Add) (int64, error) {
	if n, ok := recordCount(add.Stats); ok {
		return n, nil
	}
	at, err := s.locate(ctx, add.Path)
	if err != nil {
		return 0, err
	}
	f, err := openParquet(ctx, at.st, at.key, add.Size, nil)
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s: %w", add.Path, absent(err))
	}
	return rowsOfGroups(f.MetaData()), nil
}

// recordCount is numRecords of statistics.
func recordCount(stats string) (rows int64, ok bool) {
	if stats == "" {
		return 0, false
	}
	r := &jsonReader{data: []byte(stats)}
	err := r.object(func(key []byte) (err error) {
		if string(key) != "numRecords" || r.null() {
			return r.skip()
		}
		rows, err = r.int()
		ok = err == nil && rows >= 0
		return err
	})
	return rows, ok && err == nil
}

// wideStats are the statistics of a file of so many rows once some are deleted.
func wideStats(stats string, rows int64) string {
	var parts statsParts
	if text := []byte(stats); json.Valid(text) {
		parts, _ = splitStats(text) // what is left out behind a count that is none is no loss
	}
	o := &objectWriter{}
	o.int("numRecords", rows)
	for _, p := range []struct {
		key   string
		value []byte
	}{{"minValues", parts.min}, {"maxValues", parts.max}, {"nullCount", parts.nulls}} {
		if p.value != nil {
			o.key(p.key)
			o.b = append(o.b, p.value...)
		}
	}
	o.bool("tightBounds", false)
	return string(o.end())
}

// allAdds are the files that the transaction adds in the version that it is built upon. The slice is the caller's.
func (tx *Transaction) allAdds() []Add {
	if tx.plan == nil {
		return slices.Concat(tx.adds, tx.again)
	}
	return slices.Concat(tx.adds, tx.again, tx.plan.adds)
}

// allRemoves are the files that it removes there.
func (tx *Transaction) allRemoves() []Remove {
	if tx.plan == nil {
		return tx.removes
	}
	return slices.Concat(tx.removes, tx.plan.removes)
}
