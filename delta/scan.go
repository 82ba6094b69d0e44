package delta

import (
	"context"
	"fmt"
	"iter"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// ScanOptions say what a scan reads. The zero value of each field means its default.
type ScanOptions struct {
	// Columns are the columns to return, in this order, their case ignored. A path (a.b.c; in an array "element", in a map
	// "value") returns its column with that part of it only, and of several parts of one column their union, where the
	// first is named; no more is read. Default: all.
	Columns []string
	// Where keeps the rows for which it is true. Files are left out by their partition values and statistics. Default:
	// all rows.
	Where *expr.Expr
	// Limit is how many rows to return at most. Default 0: no limit.
	Limit int64
	// Concurrency is how many files are read at once. Default: the number of processors.
	Concurrency int
	// BatchRows bounds the rows of a batch. Default 32,768.
	BatchRows int
	// ChangeType adds the column ChangeTypeColumn after the columns of the table; null where the file lacks it. Files
	// of change data have it.
	ChangeType bool
	// RowIDs adds the columns RowIDColumn and RowCommitVersionColumn at the end: what the file keeps of a row that was
	// moved, else what follows from the add action; null where that says nothing, as in tables that track no rows.
	RowIDs bool
	// Deleted, for ScanFiles only, returns the rows that deletion vectors name, too.
	Deleted bool
	// coded says that batches may have texts as dictionary arrays, also in structs: where files have them so.
	coded bool
	// Rows, for ScanFiles only, are the rows to read of each file, whatever its deletion vector says; nil: the live ones.
	Rows []*RowSet
}

// FileRows is a batch of rows of one data file.
type FileRows struct {
	Batch arrow.RecordBatch // as of Scan; the receiver releases it
	File  int               // index into the files given to ScanFiles
	Rows  []int64           // physical positions in the file, ascending, one a row of Batch
}

// Scan yields the rows of the snapshot as record batches of the columns that were asked for, with the types of
// Schema.Arrow. Rows of one file come in its order; files come in the order of Files, which is none. Batches are not
// empty, and belong to the caller, who releases them. The scan ends with the first error. Memory: about a row group and
// two batches a file that is read at once. Errors: *ColumnError, ErrCorrupt, *UnsupportedError, *expr.Error, *expr.RowErrors
// of the condition, errors of the store.
func (s *Snapshot) Scan(ctx context.Context, opts *ScanOptions) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		p, err := newScanPlan(s, opts)
		if err != nil {
			yield(nil, fmt.Errorf("scan table: %w", err))
			return
		}
		p.opts.Deleted = false
		p.run(ctx, p.live(ctx), func(r FileRows, err error) bool { return yield(r.Batch, err) })
	}
}

// ScanFiles is Scan over these data files, which tells where each row lies: files of the snapshot, of an earlier version
// or of change data. Files come in the order given; those whose statistics rule the condition out are passed over. A file
// is read under the deletion vector of its Add. files must not be changed while the scan goes on. Errors: as Scan.
func (s *Snapshot) ScanFiles(ctx context.Context, files []Add, opts *ScanOptions) iter.Seq2[FileRows, error] {
	return func(yield func(FileRows, error) bool) {
		p, err := newScanPlan(s, opts)
		if err != nil {
			yield(FileRows{}, fmt.Errorf("scan files: %w", err))
			return
		}
		p.positions = true
		p.run(ctx, p.given(files), yield)
	}
}

// Matching yields the live files that may hold rows for which the condition is true, all when where is nil, with their
// statistics, in no order. Every Add is the caller's. Errors: as Files, *expr.Error.
func (s *Snapshot) Matching(ctx context.Context, where *expr.Expr) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		p, err := newScanPlan(s, &ScanOptions{Columns: []string{}, Where: where})
		if err != nil {
			yield(nil, fmt.Errorf("find files: %w", err))
			return
		}
		for add, err := range s.sieved(ctx, kindAdd|kindStats, p.sieve) {
			if err != nil {
				yield(nil, err)
				return
			}
			if p.mayMatch(add) && !yield(add, nil) {
				return
			}
		}
	}
}

// DeletedRows reads the deletion vector: the physical positions of the rows that it names; nil when v is nil. The bitmap
// is the caller's. Errors: ErrCorrupt, *UnsupportedError, errors of the store. Spec: "Deletion Vectors".
func (s *Snapshot) DeletedRows(ctx context.Context, v *DeletionVector) (*roaring64.Bitmap, error) {
	return loadDeletionVector(ctx, s, v)
}
