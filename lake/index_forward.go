package lake

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/store"
)

// indexChange is a change of the index under way that remembers what it takes away: a key that has no row any more may have
// a tombstone from before.
type indexChange struct {
	*keyindex.Change
	version int64
	files   map[string]bool               // that go
	keys    map[keyindex.Fingerprint]bool // whose rows go and come nowhere else, and that were not buried either
	moved   bool                          // whole files of rows go, and nobody says which of them come elsewhere
	gone    bool                          // whole files of rows left their places, so that any that come may be the same
	left    map[keyindex.Fingerprint]bool // other keys whose rows left their places; as gone where they become too many
}

func (r *rowIndex) begin(version int64) (*indexChange, error) {
	c, err := r.x.Begin(version)
	return &indexChange{Change: c, version: version, files: map[string]bool{}, keys: map[keyindex.Fingerprint]bool{},
		left: map[keyindex.Fingerprint]bool{}}, err
}

// leftMost is how many keys are remembered whose rows left their places.
const leftMost = 1 << 16

// leave notes keys whose rows leave their places.
func (c *indexChange) leave(keys []keyindex.Fingerprint) {
	if c.gone = c.gone || len(c.left)+len(keys) > leftMost; c.gone {
		clear(c.left)
		return
	}
	for _, key := range keys {
		c.left[key] = true
	}
}

// moving are those of the keys, and where they stand among them, whose rows may have had another place before.
func (c *indexChange) moving(keys []keyindex.Fingerprint) (rows []int, some []keyindex.Fingerprint) {
	if !c.gone && len(c.left) == 0 {
		return nil, nil
	}
	for i, key := range keys {
		if c.gone || c.left[key] {
			rows, some = append(rows, i), append(some, key)
		}
	}
	return rows, some
}

// forward brings the index to a version, the snapshot's or one below, by the commits between. Errors: store.ErrNotFound when
// one of them is gone, or when the index is of no version that leads here.
func (r *rowIndex) forward(ctx context.Context, snap *delta.Snapshot, version int64) error {
	if r.numbers() {
		return r.renumber(ctx, snap, version)
	}
	from := r.x.Version() + 1
	if from == 0 || from > version+1 {
		return fmt.Errorf("bring the key index to version %d: %w", version, store.ErrNotFound)
	}
	c, err := r.begin(version)
	if err != nil {
		return err
	}
	err = r.readCommits(ctx, snap, c, from)
	if err == nil {
		err = r.bury(ctx, c)
	}
	if err != nil {
		return errors.Join(err, c.Discard())
	}
	return r.commit(ctx, c.Change)
}

// touchedFile is what commits of others made of a file.
type touchedFile struct {
	data bool                  // a commit that removed it took rows out of the table, or wrote them elsewhere
	was  *delta.DeletionVector // before the first of them, where that removed it
	gone *delta.Add            // likewise, the whole file as the removal tells it; nil: it does not
	add  *delta.Add            // without statistics; nil: it is gone
}

// readCommits adds to the change what the commits from a version up to that of the change did to files.
func (r *rowIndex) readCommits(ctx context.Context, snap *delta.Snapshot, c *indexChange, from int64) error {
	touched, err := touchedFiles(ctx, snap, from, c.version)
	if err != nil {
		return err
	}
	var fresh []delta.Add
	for path, f := range touched {
		r.files.drop(path)
		switch {
		case f.add == nil:
			c.gone = c.gone || c.Has(path)
			c.moved = c.moved || f.data && c.Has(path)
			c.files[path] = true
			c.Remove(path)
		case !c.Has(path):
			fresh = append(fresh, *f.add)
		default:
			if err := r.remark(ctx, snap, c, *f.add, f.was); err != nil {
				return err
			}
		}
	}
	return r.addFiles(ctx, snap, c, fresh)
}

// touchedFiles are the files that the commits from a version up to another added or removed, by path. A commit that
// gives a file another deletion vector does both, in any order.
func touchedFiles(ctx context.Context, snap *delta.Snapshot, from, to int64) (map[string]*touchedFile, error) {
	touched := map[string]*touchedFile{}
	if from > to {
		return touched, nil
	}
	for lc, err := range snap.Table().Commits(ctx, from, to) {
		if err != nil {
			return nil, err
		}
		for _, a := range lc.Actions {
			if a.Remove == nil {
				continue
			}
			f := touched[a.Remove.Path]
			if f == nil {
				f = &touchedFile{was: a.Remove.DeletionVector, gone: removedFile(a.Remove)}
				touched[a.Remove.Path] = f
			}
			f.add, f.data = nil, f.data || a.Remove.DataChange
		}
		for _, a := range lc.Actions {
			if a.Add == nil {
				continue
			}
			if f := touched[a.Add.Path]; f == nil {
				touched[a.Add.Path] = &touchedFile{add: a.Add}
			} else {
				f.add = a.Add
			}
		}
	}
	return touched, nil
}

// removedFile is a file as it was when it was removed; nil where that is not said.
func removedFile(r *delta.Remove) *delta.Add {
	if r.Size == nil || r.ExtendedFileMetadata == nil || !*r.ExtendedFileMetadata {
		return nil
	}
	return &delta.Add{Path: r.Path, PartitionValues: r.PartitionValues, Size: *r.Size, DeletionVector: r.DeletionVector,
		BaseRowID: r.BaseRowID, DefaultRowCommitVersion: r.DefaultRowCommitVersion}
}

// orders are those of rows that are read from the table, one after another; nil where nothing orders changes. Where a row
// came from, which tells it from others of its sequence, is known as long as the index has the key with this sequence: so
// it outlasts that files are rewritten. Of others the tail says it, if that is not nil.
func (r *rowIndex) orders(c *indexChange, keys []keyindex.Fingerprint, sequence []arrow.Array, tail order) ([]byte, error) {
	if r.sequence == nil {
		return nil, nil
	}
	orders := make([]byte, len(keys)*r.identity.SequenceBytes)
	r.sequence.put(orders, r.identity.SequenceBytes, sequence, len(keys))
	for i := range keys {
		copy(r.orderOf(orders, i)[r.sequence.width:], tail)
	}
	rows, old := c.moving(keys)
	at, known := make([]keyindex.Position, len(old)), make([]byte, len(old)*r.identity.SequenceBytes)
	if err := r.x.Lookup(old, at, known); err != nil {
		return nil, err
	}
	for i, row := range rows {
		mine, theirs := r.orderOf(orders, row), r.orderOf(known, i)
		there := at[i].File != 0 && at[i].File != keyindex.Tombstone
		if there && bytes.Equal(mine.sequence(), theirs.sequence()) {
			copy(mine, theirs)
		}
	}
	return orders, nil
}

// orderOf is the order of the entry i of a look-up.
func (r *rowIndex) orderOf(orders []byte, i int) order {
	w := r.identity.SequenceBytes
	return orders[i*w : (i+1)*w]
}

// remark deletes the keys of rows of a file that others have marked as deleted since, and adds those of rows that are no
// longer marked: RESTORE brings rows back.
func (r *rowIndex) remark(ctx context.Context, snap *delta.Snapshot, c *indexChange, add delta.Add,
	was *delta.DeletionVector) error {
	now, err := deletedRows(ctx, snap, add.DeletionVector)
	if err != nil {
		return err
	}
	before, err := deletedRows(ctx, snap, was) // store.ErrNotFound once it is vacuumed: made anew then
	if err != nil {
		return err
	}
	back := before.Clone()
	back.AndNot(now)
	now.AndNot(before)
	if err := r.dropRows(ctx, snap, c, add, now); err != nil || back.IsEmpty() {
		return err
	}
	c.gone = true // where they were meanwhile is not known
	opts := &delta.ScanOptions{Columns: r.columns, Rows: []*delta.RowSet{back}}
	for rows, err := range snap.ScanFiles(ctx, []delta.Add{add}, opts) {
		if err != nil {
			return err
		}
		err = r.addRows(c, add.Path, rows)
		rows.Batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// deletedRows is the set of rows that a vector names, the empty one where there is none.
func deletedRows(ctx context.Context, snap *delta.Snapshot, v *delta.DeletionVector) (*delta.RowSet, error) {
	if v == nil {
		return delta.NewRowSet(), nil
	}
	return snap.DeletedRows(ctx, v)
}

// dropRows deletes the keys of these rows of a file, as far as they still lie there.
func (r *rowIndex) dropRows(ctx context.Context, snap *delta.Snapshot, c *indexChange, add delta.Add,
	rows *delta.RowSet) error {
	if rows.IsEmpty() {
		return nil
	}
	opts := &delta.ScanOptions{Columns: r.columns[:r.keys], Rows: []*delta.RowSet{rows}}
	if r.window != nil {
		opts.Columns = r.columns
	}
	for got, err := range snap.ScanFiles(ctx, []delta.Add{add}, opts) {
		if err != nil {
			return err
		}
		keys, err := r.hash(got.Batch.Columns())
		got.Batch.Release()
		if err != nil {
			return err
		}
		at := make([]keyindex.Position, len(keys))
		if err := r.x.Lookup(keys, at, nil); err != nil {
			return err
		}
		gone := keys[:0]
		for i, p := range at {
			if path, ok := r.x.Path(p.File); ok && path == add.Path && p.Row == got.Rows[i] {
				gone = append(gone, keys[i])
			}
		}
		if r.t.tombstones != nil {
			for _, key := range gone {
				c.keys[key] = true
			}
		}
		if r.sequence != nil {
			c.leave(gone)
		}
		if err := c.Delete(gone); err != nil {
			return err
		}
	}
	return nil
}
