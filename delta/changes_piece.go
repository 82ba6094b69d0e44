package delta

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sync/errgroup"
)

// changePiece is rows of one file that a commit took or brought.
type changePiece struct {
	file Add
	side side              // of all rows, but those of cdc files
	rows *roaring64.Bitmap // nil: those that the file's deletion vector leaves

	// What matching found of the rows, nil before: those that are deletes or inserts of their own, and those that belong
	// to an update.
	alone, paired *roaring64.Bitmap
}

// tell takes what matching found of a row.
func (p *changePiece) tell(row int64, paired bool) {
	if paired {
		p.paired.Add(uint64(row))
	} else {
		p.alone.Add(uint64(row))
	}
}

// found are the rows that are left after matching.
func (p *changePiece) found() *roaring64.Bitmap {
	if p.alone == nil {
		return p.rows
	}
	return roaring64.Or(p.alone, p.paired)
}

func cdcPieces(files []CDC) []changePiece {
	pieces := make([]changePiece, len(files))
	for i, f := range files {
		pieces[i].file = Add{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size, DataChange: true}
	}
	return pieces
}

// vectorPair is a file that a commit removed and added with another deletion vector.
type vectorPair struct {
	removed, added *Add
	gone, back     *roaring64.Bitmap // the rows that it lost, and those that it got back
}

// pieces are the rows that the actions of a commit took and brought, those taken first. Spec: "Add File and Remove
// File", "Deletion Vectors".
//
//	removed under  added under  are
//	none           D            D deleted
//	D              none         D inserted
//	D1             D2           D2 \ D1 deleted, D1 \ D2 inserted
//	D              D            nothing
func (r *changeReader) pieces(ctx context.Context, c *changeCommit) ([]changePiece, error) {
	removes, err := r.removed(ctx, c)
	if err != nil {
		return nil, err
	}
	added := make(map[string]*Add, len(c.adds))
	for _, a := range c.adds {
		added[canonicalPath(a.Path)] = a
	}
	var taken, brought []changePiece
	var pairs []*vectorPair
	for _, old := range removes {
		path := canonicalPath(old.Path)
		now, ok := added[path]
		switch {
		case !ok:
			taken = append(taken, changePiece{file: *old, side: deleted})
		case old.DeletionVector.id() != now.DeletionVector.id():
			pairs = append(pairs, &vectorPair{removed: old, added: now})
			fallthrough
		default:
			delete(added, path)
		}
	}
	if err := r.compareVectors(ctx, pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		if !p.gone.IsEmpty() {
			taken = append(taken, changePiece{file: *p.removed, side: deleted, rows: p.gone})
		}
		if !p.back.IsEmpty() {
			brought = append(brought, changePiece{file: *p.added, side: inserted, rows: p.back})
		}
	}
	for _, a := range c.adds { // in their order, which the map has not
		if path := canonicalPath(a.Path); added[path] == a {
			brought = append(brought, changePiece{file: *a, side: inserted})
		}
	}
	return append(taken, brought...), nil
}

// compareVectors reads the vectors of the pairs and takes them from each other.
func (r *changeReader) compareVectors(ctx context.Context, pairs []*vectorPair) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.concurrency())
	for _, p := range pairs {
		g.Go(func() error {
			before, err := r.deletedRows(ctx, p.removed)
			if err != nil {
				return err
			}
			after, err := r.deletedRows(ctx, p.added)
			if err != nil {
				return err
			}
			p.gone, p.back = roaring64.AndNot(after, before), roaring64.AndNot(before, after)
			return nil
		})
	}
	return g.Wait()
}

func (r *changeReader) concurrency() int {
	if r.opts.Concurrency > 0 {
		return r.opts.Concurrency
	}
	return runtime.GOMAXPROCS(0)
}

func (r *changeReader) deletedRows(ctx context.Context, a *Add) (*roaring64.Bitmap, error) {
	rows, err := r.last.DeletedRows(ctx, a.DeletionVector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Path, err)
	}
	if rows == nil {
		rows = roaring64.New()
	}
	return rows, nil
}

// removed are the files that a commit removed, as their add actions had them. A remove action may lack what it takes to
// read the file; that is looked up in the version before.
func (r *changeReader) removed(ctx context.Context, c *changeCommit) ([]*Add, error) {
	files := make([]*Add, len(c.removes))
	lacking := map[fileKey]*Add{}
	for i, f := range c.removes {
		files[i] = &Add{Path: f.Path, PartitionValues: f.PartitionValues, Size: deref(f.Size), DataChange: true,
			Stats: f.Stats, DeletionVector: f.DeletionVector, BaseRowID: f.BaseRowID,
			DefaultRowCommitVersion: f.DefaultRowCommitVersion}
		if f.Size == nil || len(f.PartitionValues) < len(c.meta.PartitionColumns) {
			lacking[f.key()] = files[i]
		}
	}
	if len(lacking) == 0 {
		return files, nil
	}
	before, err := r.table.SnapshotAt(ctx, c.version-1)
	if errors.Is(err, ErrVersionNotFound) {
		return nil, &GapError{Version: c.version, First: -1, Cause: err,
			Missing: "its remove actions lack size and partition values, and the version before is not in the log any more"}
	}
	if err != nil {
		return nil, err
	}
	for a, err := range before.Files(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if f := lacking[a.key()]; f != nil {
			*f = *a
			delete(lacking, a.key())
		}
	}
	for _, f := range lacking {
		return nil, corrupt("version %d removes the file %s, which the version before does not have", c.version, f.Path)
	}
	return files, nil
}
