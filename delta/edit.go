package delta

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Edit changes rows of one snapshot whose places the caller knows, in one commit. It is what Delete, Update and Merge do
// once they have found their rows: these leave their files by deletion vector or by a copy of what is left, rows that
// come are completed, checked and written, change data is recorded, row ids are kept.
//
// Rows are given as the table has them. Replace and Write go together: of n rows that Replace takes out, the new forms
// are among those that Write says to replace; Commit compares the sums, and the rows that left and came, before it
// writes anything to the log. One goroutine uses an Edit; it ends with Commit or Abort.
type Edit struct {
	rows     *rowEdit
	deadline time.Time
}

// EditCommit says how an Edit appears in the log, and what it depends on.
type EditCommit struct {
	Operation string            // in Spark's words: "MERGE"
	Params    map[string]string // as Transaction.Operation has them
	// Fill adds progress, expectations, metadata and what was read to the transaction. May be nil.
	Fill func(tx *Transaction)
}

// Edit begins an edit of the snapshot. Of opts, Txns and MaxPairs and MemoryBytes mean nothing. meta is the metadata to come, nil
// for what there is. Errors: *UnsupportedError, deletion vectors that the table does not allow.
func (s *Snapshot) Edit(meta *Metadata, opts *DMLOptions) (*Edit, error) {
	o := opts.withDefaults()
	r, err := newRowEdit(s, &o, meta)
	if err != nil {
		return nil, fmt.Errorf("edit rows: %w", err)
	}
	r.places = true
	return &Edit{rows: r, deadline: time.Now().Add(o.Deadline)}, nil
}

// Lose names a file that may lose rows, as the snapshot gave it, with statistics, and returns the number by which Delete and
// Replace know it. A file is named once.
func (e *Edit) Lose(file Add) int {
	e.rows.files, e.rows.gone = append(e.rows.files, file), append(e.rows.gone, nil)
	return len(e.rows.files) - 1
}

// Unplaced has Commit not tell where the rows landed, which takes 16 bytes of memory for each: EditResult.Places is nil then.
// It is called before anything is written.
func (e *Edit) Unplaced() { e.rows.places = false }

// Feed reports whether the table records change data, so that Tell must be called.
func (e *Edit) Feed() bool { return e.rows.feed }

// ByVector reports whether rows leave their files by deletion vector; else what is left of the files moves.
func (e *Edit) ByVector() bool { return e.rows.byVector }

// Delete takes rows out of a file, by their physical positions.
func (e *Edit) Delete(file int, rows []int64) {
	e.rows.take(file, rows)
	e.rows.deleted += int64(len(rows))
}

// Replace takes rows out of a file whose new forms Write brings.
func (e *Edit) Replace(file int, rows []int64) {
	e.rows.take(file, rows)
	e.rows.updated += int64(len(rows))
}

// Empty takes whole files out, which are none of those that lose rows, without reading them. Of the rows in them no change data
// is told, and so none may be in this commit: readers take these from the files.
func (e *Edit) Empty(files ...Add) { e.rows.whole = append(e.rows.whole, files...) }

// Write writes rows, of which so many are new forms of rows that Replace takes out, and the others new. It returns them
// completed, as the table has them, for the caller to release. Errors: those of Writer.Write about rows, and then
// nothing of the batch was written.
func (e *Edit) Write(ctx context.Context, rows arrow.RecordBatch, replaced int) (arrow.RecordBatch, error) {
	whole, err := e.rows.write(ctx, rows)
	if err != nil {
		return nil, err
	}
	e.rows.inserted += rows.NumRows() - int64(replaced)
	return whole, nil
}

// Check returns the error that Write would have for the rows, and writes nothing.
func (e *Edit) Check(ctx context.Context, rows arrow.RecordBatch) error {
	w, err := e.rows.writer()
	if err != nil {
		return err
	}
	return w.Check(ctx, rows)
}

// Tell records change data: kind is one of ChangeInsert, ChangeDelete, ChangePreimage and ChangePostimage. In a commit in which nothing but new rows come it is not needed: readers take these from
// the data files; Commit then drops what was told.
func (e *Edit) Tell(ctx context.Context, kind string, rows arrow.RecordBatch) error {
	return e.rows.tell(ctx, kind, rows)
}

// EditResult is what an Edit did.
type EditResult struct {
	*DMLResult
	Added  []Add   // the new data files, as they were committed but for row ids
	Places []Place // of the rows that Write wrote, in its order: File is an index into Added; nil after Unplaced
	Marked []Add   // files that have another deletion vector now
}

// Commit finishes the files and writes the commit, which is there even when no row changed: it may carry progress. What
// was written is deleted again when it fails, unless it may have landed. Errors: ErrConflict; as Transaction.Commit.
func (e *Edit) Commit(ctx context.Context, c EditCommit) (*EditResult, error) {
	r := e.rows
	if r.updated+r.deleted == 0 && r.changes != nil {
		if err := r.changes.Abort(ctx); err != nil {
			return nil, err
		}
		r.changes = nil
	}
	out := &EditResult{}
	var made *Transaction
	result, err := r.commit(ctx, e.deadline, editCommit{
		operation: c.Operation, params: c.Params, metrics: editMetrics, always: true,
		reads: func(tx *Transaction) {
			made, out.Added = tx, slices.Clone(tx.adds)
			if c.Fill != nil {
				c.Fill(tx)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	out.DMLResult = result
	if made.plan != nil {
		out.Marked = made.plan.adds
	}
	if r.data != nil {
		out.Places = r.data.Places()
	}
	return out, nil
}

// Abort drops what was written.
func (e *Edit) Abort(ctx context.Context) error {
	return dropped(ctx, nil, e.rows.data, e.rows.changes)
}

func editMetrics(r *DMLResult, m map[string]string) {
	m["numTargetRowsInserted"], m["numTargetRowsUpdated"] = count(r.Inserted), count(r.Updated)
	m["numTargetRowsDeleted"], m["numTargetRowsCopied"] = count(r.Deleted), count(r.Copied)
	m["numOutputRows"] = count(r.Inserted + r.Updated + r.Copied)
	m["numTargetFilesAdded"], m["numTargetFilesRemoved"] = count(r.FilesAdded), count(r.FilesRemoved)
	m["numTargetBytesAdded"], m["numTargetBytesRemoved"] = count(r.BytesAdded), count(r.BytesRemoved)
	m["numTargetChangeFilesAdded"] = count(r.ChangeFiles)
	m["numTargetDeletionVectorsAdded"] = count(r.FilesMarked)
}
