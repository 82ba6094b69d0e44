package delta

import (
	"context"
	"fmt"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/expr"
)

// Delete takes the rows out of the table for which where is true: neither those for which it is false nor those for
// which it is null; all rows when where is nil. Files all of whose rows go, by their partition values and statistics,
// are not read. A table with a change feed gets change data files only if files are rewritten: readers see the rows
// that a deletion vector takes out. A lost race that concerns the rows is answered by running it again. Errors:
// *expr.Error; *expr.RowErrors when the condition fails on a row; *UnsupportedError; ErrConflict when the deadline has
// passed; as Transaction.Commit.
func (t *Table) Delete(ctx context.Context, where *expr.Expr, opts *DMLOptions) (*DMLResult, error) {
	o := opts.withDefaults()
	r, err := t.rerun(ctx, &o, func(ctx context.Context, snap *Snapshot, deadline time.Time) (*DMLResult, error) {
		e, err := newRowEdit(snap, &o, nil)
		if err != nil {
			return nil, err
		}
		if err := e.deleteWhere(ctx, where, false); err != nil {
			return nil, dropped(ctx, err, e.data, e.changes)
		}
		return e.commit(ctx, deadline, editCommit{
			operation: "DELETE",
			params:    map[string]string{"predicate": predicateList(where)},
			metrics:   deleteMetrics,
			reads:     func(tx *Transaction) { tx.ReadWhere(where) },
		})
	})
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return r, nil
}

// predicateList is a condition as commits of DELETE tell it: a list of one, or of none.
func predicateList(where *expr.Expr) string {
	if where == nil {
		return "[]"
	}
	return jsonList([]string{predicateText(where)})
}

// deleteWhere takes out the rows for which where is true. tell says that change data is needed even where readers
// could do without, since the commit has others.
func (e *rowEdit) deleteWhere(ctx context.Context, where *expr.Expr, tell bool) error {
	if err := e.find(ctx, where); err != nil {
		return err
	}
	forced := tell
	tell = e.feed && (tell || !e.byVector)
	some, err := e.partly(where)
	if err != nil {
		return err
	}
	if tell && (forced || len(some) > 0) {
		some = e.allFiles() // where there is change data, it must tell of all rows
	}
	e.keepOnly(some)
	opts := ScanOptions{Columns: []string{}, Where: where}
	if tell {
		opts.Columns = nil
	}
	return e.scan(ctx, "find", e.allFiles(), opts, func(r FileRows) error {
		if !tell {
			return e.deleteRows(ctx, r.File, r.Rows, nil)
		}
		return e.deleteRows(ctx, r.File, r.Rows, r.Batch)
	})
}

// partly returns the numbers of the files in which where may not be true of all rows.
func (e *rowEdit) partly(where *expr.Expr) ([]int, error) {
	if where == nil {
		return nil, nil
	}
	p, err := newScanPlan(e.snap, &ScanOptions{Columns: []string{},
		Where: expr.Or(expr.Not(where), expr.IsNull(where))})
	if err != nil {
		return nil, err
	}
	var some []int
	for i := range e.files {
		if p.mayMatch(&e.files[i]) {
			some = append(some, i)
		}
	}
	return some, nil
}

// keepOnly leaves these of the files to be read, and makes the others go as a whole.
func (e *rowEdit) keepOnly(some []int) {
	all := e.files
	e.files = nil
	for _, n := range some {
		e.files = append(e.files, all[n])
	}
	e.gone = make([]*roaring64.Bitmap, len(e.files))
	at := 0
	for i := range all {
		if at < len(some) && some[at] == i {
			at++
			continue
		}
		e.whole = append(e.whole, all[i])
	}
}

func deleteMetrics(r *DMLResult, m map[string]string) {
	m["numRemovedFiles"], m["numAddedFiles"] = count(r.FilesRemoved), count(r.FilesAdded)
	m["numRemovedBytes"], m["numAddedBytes"] = count(r.BytesRemoved), count(r.BytesAdded)
	m["numDeletedRows"], m["numCopiedRows"] = count(r.Deleted), count(r.Copied)
	m["numAddedChangeFiles"] = count(r.ChangeFiles)
	m["numDeletionVectorsAdded"] = count(r.FilesMarked)
}
