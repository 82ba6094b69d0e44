package delta

import (
	"cmp"
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// deletedTwiceRule compares paths and not deletion vectors: two changes of one file must not pass unseen. What can
// be made good is: other rows of the file, and rows of a rewritten file.
func deletedTwiceRule(ctx context.Context, c *committer, w *winner) error {
	tx := c.tx
	if tx.blindToFiles() {
		return nil
	}
	changes := w.changes()
	for i := range tx.removes {
		r := &tx.removes[i]
		switch f := changes[canonicalPath(r.Path)]; {
		case f == nil:
		case f.remove != nil:
			return w.conflict(ConflictDelete, "both remove the file %s", r.Path)
		default: // it was committed anew, with row ids
			r.BaseRowID, r.DefaultRowCommitVersion = f.add.BaseRowID, f.add.DefaultRowCommitVersion
		}
	}
	if err := c.mergeMarks(ctx, w); err != nil {
		return err
	}
	for _, r := range tx.rewrites {
		for i := range r.Removed {
			if f := changes[canonicalPath(r.Removed[i].Path)]; f != nil {
				if err := c.mergeRewrite(ctx, w, r, i, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// recommitted reports whether a winner only said anew that the file is there: with row ids or statistics.
func (f *fileChange) recommitted(a *Add) bool {
	return f.remove == nil && f.add.DeletionVector.id() == a.DeletionVector.id()
}

// mergeMarks makes good what a winner did to files that lose rows by this transaction.
func (c *committer) mergeMarks(ctx context.Context, w *winner) error {
	var marks []*mark
	for _, m := range c.tx.marks {
		f := w.changes()[m.key]
		switch {
		case f == nil:
			marks = append(marks, m)
		case f.add != nil:
			if err := c.mergeMark(ctx, w, m, f); err != nil {
				return err
			}
			marks = append(marks, m)
		case f.remove.DataChange:
			return w.conflict(ConflictDelete, "it removed the file %s, rows of which are to be deleted", m.file.Path)
		default:
			moved, err := c.moveMark(ctx, w, m, f)
			if err != nil {
				return err
			}
			marks = append(marks, moved...)
			c.moved++
			c.replan(ctx)
		}
	}
	c.tx.marks, c.tx.marked = nil, nil
	for _, m := range marks {
		c.tx.mark(m)
	}
	return nil
}

// mergeMark goes on from the vector that a winner gave a file, if it names other rows.
func (c *committer) mergeMark(ctx context.Context, w *winner, m *mark, f *fileChange) error {
	if !f.recommitted(&m.file) {
		if err := c.retry(ctx, func() error { return m.read(ctx, c.base) }); err != nil {
			return err
		}
		now, err := c.vectorRows(ctx, f.add.DeletionVector)
		if err != nil {
			return err
		}
		both := roaring64.AndNot(now, m.gone)
		both.And(m.rows)
		if !both.IsEmpty() {
			return w.conflict(ConflictDelete, "both delete row %d of %s", both.Minimum(), m.file.Path)
		}
		m.gone = now
	}
	m.file = *f.add
	c.replan(ctx)
	return nil
}

// mergeRewrite makes good what a winner did to the i-th file that is rewritten.
func (c *committer) mergeRewrite(ctx context.Context, w *winner, r *rewrite, i int, f *fileChange) error {
	old := &r.Removed[i]
	if f.add != nil && f.recommitted(old) && !r.taken[i] {
		r.Removed[i] = *f.add
		c.replan(ctx)
		return nil
	}
	givesWay := func(why string) error {
		return w.conflict(ConflictDelete, "it changed the file %s, which is rewritten: %s", old.Path, why)
	}
	switch {
	case r.taken[i]:
		return givesWay("it brought it back")
	case f.add == nil && !f.remove.DataChange:
		return givesWay("both rewrite it")
	case r.Origins == nil:
		return givesWay("where the rows went is not known")
	case !c.tx.allowsVectors(c.base):
		return givesWay("the table has no deletion vectors")
	}
	was, now, err := c.vectors(ctx, r, i, f)
	if err != nil {
		return err
	}
	if back := roaring64.AndNot(was, now); !back.IsEmpty() {
		return givesWay("it brought back rows")
	}
	if !r.lose(i, roaring64.AndNot(now, was)) {
		return givesWay("where some of the rows went is not known")
	}
	if r.gone[i] = now; f.add == nil {
		r.taken[i] = true
	} else {
		r.Removed[i] = *f.add
	}
	c.replan(ctx)
	return nil
}

// vectors are the deleted rows of a file before and after the winner; all rows when it removed the file.
func (c *committer) vectors(ctx context.Context, r *rewrite, i int, f *fileChange,
) (was, now *roaring64.Bitmap, err error) {
	if r.gone[i] == nil {
		if r.gone[i], err = c.vectorRows(ctx, r.Removed[i].DeletionVector); err != nil {
			return nil, nil, err
		}
	}
	if f.add != nil {
		now, err = c.vectorRows(ctx, f.add.DeletionVector)
		return r.gone[i], now, err
	}
	var rows int64
	err = c.retry(ctx, func() error {
		rows, err = c.base.physicalRows(ctx, &r.Removed[i])
		return err
	})
	now = roaring64.New()
	now.AddRange(0, uint64(rows))
	return r.gone[i], now, err
}

// run is an Origin and where it went.
type run struct {
	Origin
	added int   // index into Rewrite.Added
	at    int64 // position of the first row in the new file
}

// lose hides rows of the i-th old file in the new ones, and reports whether all of them were found there.
func (r *rewrite) lose(i int, rows *roaring64.Bitmap) bool {
	var runs []run
	for j, origins := range r.Origins {
		at := int64(0)
		for _, o := range origins {
			if o.File == i && o.Rows > 0 {
				runs = append(runs, run{o, j, at})
			}
			at += o.Rows
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.First, b.First) })
	next := 0
	for it := rows.Iterator(); it.HasNext(); {
		row := int64(it.Next())
		for next < len(runs) && runs[next].First+runs[next].Rows <= row {
			next++
		}
		if next == len(runs) || row < runs[next].First {
			return false
		}
		to := runs[next]
		if r.lost[to.added] == nil {
			r.lost[to.added] = roaring64.New()
		}
		r.lost[to.added].Add(uint64(to.at + row - to.First))
	}
	return true
}
