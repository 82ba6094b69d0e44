package delta

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/store"
)

// The isolation levels, as commitInfo.isolationLevel names them.
const (
	serializable      = "Serializable"
	writeSerializable = "WriteSerializable"
	snapshotIsolation = "SnapshotIsolation"
)

// isolation is the level at which the transaction is checked: that of the table, Serializable unless
// delta.isolationLevel says WriteSerializable; a transaction that only rewrites rows as they are need not see rows
// that appear meanwhile.
func (tx *Transaction) isolation(m *Metadata) string {
	files := len(tx.adds) + len(tx.removes) + len(tx.rewrites) + len(tx.again)
	others := tx.meta != nil || tx.proto != nil || len(tx.txns)+len(tx.domains) > 0
	if files > 0 && !others && !tx.changesData() {
		return snapshotIsolation
	}
	if m.Configuration[propIsolationLevel] == writeSerializable {
		return writeSerializable
	}
	return serializable
}

// changesData reports whether rows come or go.
func (tx *Transaction) changesData() bool {
	for i := range tx.adds {
		if tx.adds[i].DataChange {
			return true
		}
	}
	for i := range tx.removes {
		if tx.removes[i].DataChange {
			return true
		}
	}
	return len(tx.marks) > 0
}

// appendRule: rows that appear among those that the transaction read are rows it should have seen.
func appendRule(ctx context.Context, c *committer, w *winner) error {
	tx := c.tx
	level := tx.isolation(w.before.meta)
	blind := w.info.IsBlindAppend != nil && *w.info.IsBlindAppend
	switch {
	case !tx.reads.all && len(tx.reads.where) == 0, level == snapshotIsolation:
		return nil
	case level == writeSerializable && blind && tx.meta == nil:
		return nil
	}
	changes := w.changes()
	for _, path := range w.order {
		f := changes[path]
		if f.add == nil || !f.add.DataChange {
			continue
		}
		concerns, err := c.mayHaveRead(f.add)
		if err == nil && concerns && f.remove != nil {
			concerns, err = c.restores(ctx, f)
		}
		if err != nil {
			return err
		}
		if concerns {
			return w.conflict(ConflictAppend, "it added rows that were not read: %s", f.add.Path)
		}
	}
	return nil
}

// restores reports whether a new vector of a file names fewer rows than the one before, so that some come back.
func (c *committer) restores(ctx context.Context, f *fileChange) (bool, error) {
	before, err := c.vectorRows(ctx, f.remove.DeletionVector)
	if err != nil || before.IsEmpty() {
		return false, err
	}
	after, err := c.vectorRows(ctx, f.add.DeletionVector)
	if err != nil {
		return false, err
	}
	before.AndNot(after)
	return !before.IsEmpty(), nil
}

// vectorRows reads a vector, as long as it takes. The bitmap is the caller's.
func (c *committer) vectorRows(ctx context.Context, v *DeletionVector) (rows *roaring64.Bitmap, err error) {
	err = c.retry(ctx, func() error {
		rows, err = c.base.vectorRows(ctx, v)
		return err
	})
	return rows, err
}

// mayHaveRead reports whether the file may hold rows of the kind that the transaction depends on.
func (c *committer) mayHaveRead(add *Add) (bool, error) {
	if c.tx.reads.all {
		return true, nil
	}
	if c.matchers == nil {
		for _, e := range c.tx.reads.where {
			p, err := newScanPlan(c.base, &ScanOptions{Where: e})
			if err != nil {
				return false, err
			}
			c.matchers = append(c.matchers, p)
		}
	}
	for _, p := range c.matchers {
		if p.mayMatch(add) {
			return true, nil
		}
	}
	return false, nil
}

// deletedReadRule: rows that the transaction read and that are gone are rows it should not have counted on.
func deletedReadRule(ctx context.Context, c *committer, w *winner) error {
	reads := &c.tx.reads
	if reads.empty() {
		return nil
	}
	changes := w.changes()
	for _, path := range w.order {
		f := changes[path]
		if f.remove == nil {
			continue
		}
		if !f.remove.DataChange {
			c.readMoved(w, path)
			continue
		}
		concerns := reads.all || reads.files[path]
		if !concerns && len(reads.where) > 0 {
			var err error
			if concerns, err = c.deletedReads(ctx, w, path); err != nil {
				return err
			}
		}
		if concerns {
			return w.conflict(ConflictDelete, "it removed rows that were read: %s", f.remove.Path)
		}
	}
	return nil
}

// readMoved has the transaction depend on the files of a winner that rewrote one which it has read.
func (c *committer) readMoved(w *winner, path string) {
	if !c.tx.reads.files[path] {
		return
	}
	for to, f := range w.changes() {
		if f.add != nil && !f.add.DataChange {
			c.tx.reads.files[to] = true
		}
	}
}

// deletedReads reports whether a winner deleted rows of this file that the transaction's conditions are true for.
func (c *committer) deletedReads(ctx context.Context, w *winner, path string) (bool, error) {
	f := w.changes()[path]
	old, err := c.before(ctx, w, path)
	if err != nil {
		return false, err
	}
	concerns, err := c.mayHaveRead(old)
	if err != nil || !concerns || c.exact == exactFiles {
		return concerns, err
	}
	c.exact++
	err = c.retry(ctx, func() error {
		concerns, err = c.matchesDeleted(ctx, old, f)
		return err
	})
	if err != nil && !store.Retryable(err) && ctx.Err() == nil {
		return true, nil // a file that cannot be read settles nothing: the operation that begins anew will say why
	}
	return concerns, err
}

// exactFiles bounds how many files a commit reads to learn whether deleted rows concern it.
const exactFiles = 32

// matchesDeleted reads the rows of a file that the winner deleted, and reports whether a condition is true for one.
func (c *committer) matchesDeleted(ctx context.Context, old *Add, f *fileChange) (bool, error) {
	file := *old
	file.DeletionVector = f.remove.DeletionVector
	var after *roaring64.Bitmap // nil: no row is left
	if f.add != nil {
		var err error
		if after, err = c.base.vectorRows(ctx, f.add.DeletionVector); err != nil {
			return false, err
		}
	}
	lost := func(row int64) bool { return after == nil || after.Contains(uint64(row)) }
	for _, e := range c.tx.reads.where {
		opts := &ScanOptions{Columns: []string{}, Where: e}
		for r, err := range c.base.ScanFiles(ctx, []Add{file}, opts) {
			if err != nil {
				return false, err
			}
			r.Batch.Release()
			if slices.ContainsFunc(r.Rows, lost) {
				return true, nil
			}
		}
	}
	return false, nil
}

// before is the file as it was before the winner; with statistics, if they can be had.
func (c *committer) before(ctx context.Context, w *winner, path string) (*Add, error) {
	if a := c.known[path]; a != nil {
		return a, nil
	}
	if m := c.tx.marked[path]; m != nil {
		return &m.file, nil
	}
	if !c.looked[w.version] { // once a winner: what it removed, all of it
		if err := c.lookUp(ctx, w); err != nil {
			return nil, err
		}
	}
	if a := c.known[path]; a != nil {
		return a, nil
	}
	r := w.changes()[path].remove
	return &Add{Path: r.Path, PartitionValues: r.PartitionValues, DeletionVector: r.DeletionVector}, nil
}

// lookUp finds the files that the winner removed among those of the base. The log is read for it; the other way out
// is a conflict, after which the whole operation reads at least as much.
func (c *committer) lookUp(ctx context.Context, w *winner) error {
	c.looked[w.version] = true
	missing := 0
	for path, f := range w.changes() {
		if f.remove != nil && f.remove.DataChange && c.known[path] == nil {
			c.known[path] = nil
			missing++
		}
	}
	return c.retry(ctx, func() error {
		for a, err := range c.base.Files(ctx, &FilesOptions{Stats: true}) {
			if err != nil {
				return err
			}
			if found, wanted := c.known[canonicalPath(a.Path)]; wanted && found == nil {
				c.known[canonicalPath(a.Path)] = a
				if missing--; missing == 0 {
					break
				}
			}
		}
		return nil
	})
}
