package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// ChangeMethod is how the row changes of a commit are found.
type ChangeMethod string

// The methods. All agree on one history, once rows that are deleted and inserted alike are left out and updates are
// paired by a key.
const (
	// MethodAuto chooses for each commit: Feed where the table had the change data feed on or the commit has change
	// files; else Vectors where no file was rewritten; else RowTracking where row ids were kept; else Diff.
	MethodAuto ChangeMethod = ""
	// MethodFeed reads change data as its writer meant it: the cdc files of the commit, or, where it has none, added
	// files as inserts, removed ones as deletes, and what deletion vectors gained and lost. It needs
	// delta.enableChangeDataFeed in the whole range. Spec: "Change Data Files".
	MethodFeed ChangeMethod = "feed"
	// MethodVectors takes files and deletion vectors for what they are, as Feed does without cdc files. A file that
	// was rewritten gives a delete and an insert for each of its rows, also those that were only carried over.
	MethodVectors ChangeMethod = "vectors"
	// MethodRowTracking pairs the rows of removed and added files by row id: those with the same row commit version
	// were carried over, others are updates. It needs delta.enableRowTracking. Spec: "Row Tracking".
	MethodRowTracking ChangeMethod = "row-tracking"
	// MethodDiff takes the rows of removed files from those of added ones, each as often as it occurs: what is left on
	// either side are the deletes and the inserts. It needs nothing but the files.
	MethodDiff ChangeMethod = "diff"
)

// The values of the column ChangeTypeColumn. Spec: "Change Data Files".
const (
	ChangeInsert    = "insert"
	ChangeDelete    = "delete"
	ChangePreimage  = "update_preimage"
	ChangePostimage = "update_postimage"
)

// ChangesOptions say which changes are read, and how. The zero value of each field means its default.
type ChangesOptions struct {
	// Columns are the table's columns to return, in this order, their case ignored. Default: all.
	Columns []string
	// Where keeps the changes for which it is true; besides the table's columns it may name _change_type,
	// _commit_version and _commit_timestamp. An update of which one image fails it is only half there. Default: all.
	Where *expr.Expr
	// Method is how changes are found. Default MethodAuto.
	Method ChangeMethod
	// Key names columns, nested ones not, whose values identify a row. With it, what a commit deleted and inserted
	// under one key is an update, whatever the method, and rows that it deleted and inserted alike are left out. A key
	// that occurs several times is paired as often as it occurs on both sides. Nulls are equal. Default: no pairing
	// beyond that of the method.
	Key []string
	// Ignore names columns whose values do not count when rows are compared: rows that differ in nothing else are alike.
	// Default: all count.
	Ignore []string
	// Concurrency is how many files of a version are read at once. Default: the number of processors.
	Concurrency int
	// BatchRows bounds the rows of a batch. Default 32,768.
	BatchRows int
	// MemoryBytes bounds what is kept of the rows that have to be compared: 32 bytes a row, beyond which they are put
	// aside in TempDir. Default 256 MiB.
	MemoryBytes int64
	// TempDir is where rows are put aside. Default: the system's folder for temporary files.
	TempDir string
}

// Changes are some changes of one version.
type Changes struct {
	Version int64
	Time    time.Time // as the column _commit_timestamp has it
	Method  ChangeMethod
	// Batch has the table's columns that were asked for, with the types of Schema.Arrow, then ChangeTypeColumn
	// (string), CommitVersionColumn (int64) and CommitTimestampColumn (timestamp[µs, UTC]). It is the receiver's, who
	// releases it.
	Batch arrow.RecordBatch
}

// Changes yields the row changes of the versions from to to, inclusive; to = -1 is the newest. They come version by
// version, ascending; within one, in no order but that without cdc files deletes and preimages precede inserts and
// postimages. Batches are not empty, so that a version without changes does not appear. Commits that do not change
// data (dataChange = false), such as those of OPTIMIZE, have none.
//
// All batches have one schema, that of the version to: rows from before a column was added have null in it, values of
// narrower types are widened. A renamed or dropped column, another partitioning or type in between is a
// *SchemaChangeError, before anything is yielded unless a later commit undoes it. Rows that the first version removes
// are read by its schema, too.
//
// The time of a commit is its in-commit timestamp, else the time of its log file, made to increase within the range.
//
// Errors: *RangeError; *VersionError for versions that do not exist yet; *GapError when log cleanup or vacuum has
// taken what is needed, after the versions before it; *FeedError when the method is Feed and the feed was off;
// *MethodError when the method RowTracking cannot tell; ErrCorrupt; those of Scan. Memory: the actions of a few
// commits, what Scan needs, and MemoryBytes. Safe for concurrent use. Spec: "Change Data Files", "Reader Requirements
// for Change Data Files".
func (t *Table) Changes(ctx context.Context, from, to int64, opts *ChangesOptions) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		r, err := t.changesReader(ctx, from, to, opts)
		if err == nil {
			err = r.run(ctx, yield)
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(Changes{}, fmt.Errorf("changes of versions %d to %d: %w", from, r.end(to), err))
		}
	}
}

// changeReader reads a range of versions.
type changeReader struct {
	table    *Table
	from, to int64
	opts     ChangesOptions
	last     *Snapshot // at to: its schema is that of the batches
	shape    *changeShape
}

func (r *changeReader) end(to int64) int64 {
	if r == nil {
		return to
	}
	return r.to
}

func (t *Table) changesReader(ctx context.Context, from, to int64, opts *ChangesOptions) (*changeReader, error) {
	r := &changeReader{table: t, from: from, to: to}
	if opts != nil {
		r.opts = *opts
	}
	if !slices.Contains([]ChangeMethod{MethodAuto, MethodFeed, MethodVectors, MethodRowTracking, MethodDiff},
		r.opts.Method) {
		return nil, fmt.Errorf("method %q: wanted %s, %s, %s, %s or none", r.opts.Method, MethodFeed, MethodVectors,
			MethodRowTracking, MethodDiff)
	}
	if from < 0 || to < -1 || to >= 0 && from > to {
		return nil, &RangeError{From: from, To: to}
	}
	newest, err := t.Snapshot(ctx)
	if errors.Is(err, ErrCorrupt) && to >= 0 { // what comes later need not be whole
		newest, err = t.SnapshotAt(ctx, to)
	}
	if err != nil {
		return nil, err
	}
	if to == -1 {
		r.to = newest.version
	}
	if beyond := max(from, to); beyond > newest.version {
		return nil, t.versionError(ctx, beyond)
	}
	r.last = newest
	if r.to < newest.version {
		if r.last, err = t.SnapshotAt(ctx, r.to); err != nil {
			return nil, r.gap(ctx, err)
		}
	}
	if r.shape, err = newChangeShape(r.last, &r.opts); err != nil {
		return nil, err
	}
	return r, nil
}

// run yields the changes of the range.
func (r *changeReader) run(ctx context.Context, yield func(Changes, error) bool) error {
	times, hole, whole, err := r.times(ctx)
	if err != nil {
		return err
	}
	if hole == r.from {
		return r.missingCommit(ctx, hole, whole)
	}
	state, err := r.begin(ctx)
	if err != nil {
		return err
	}
	for data, err := range r.table.fetchCommits(ctx, r.from, hole-1) {
		if err != nil {
			return r.gone(ctx, state.version+1, err)
		}
		c, err := state.next(data)
		if err != nil {
			return err
		}
		c.at = times[c.version-r.from]
		if c.info.InCommitTimestamp != nil && inCommitTimestamps(c.proto, c.meta) {
			c.at = time.UnixMilli(*c.info.InCommitTimestamp)
		}
		if err := r.check(ctx, c); err != nil {
			return err
		}
		if err := r.version(ctx, c, yield); err != nil {
			return err
		}
	}
	if hole <= r.to {
		return r.missingCommit(ctx, hole, whole)
	}
	return nil
}

// RangeError says that a range of versions is none.
type RangeError struct{ From, To int64 }

func (e *RangeError) Error() string {
	if e.From < 0 || e.To < -1 {
		return "versions are numbered from 0"
	}
	return fmt.Sprintf("the range begins after its end: found %d to %d", e.From, e.To)
}

// FeedError says that the change data feed was off within the range.
type FeedError struct {
	Version int64 // the first version that was committed without it
}

func (e *FeedError) Error() string {
	return fmt.Sprintf("the change data feed was off at version %d (delta.enableChangeDataFeed is not true): begin "+
		"after it, end before it, or use another method, such as %s", e.Version, MethodDiff)
}

// MethodError says that a method cannot tell the changes of a version.
type MethodError struct {
	Version int64
	Method  ChangeMethod
	Reason  string
}

func (e *MethodError) Error() string {
	return fmt.Sprintf("version %d cannot be read by the method %s: %s; use %s", e.Version, e.Method, e.Reason,
		MethodDiff)
}

// SchemaChangeError says that a schema changed within the range so that no one schema holds the rows before and after.
type SchemaChangeError struct {
	Version int64    // that brought the change; -1 when it is not known
	Changes []string // what changed, a sentence each
}

func (e *SchemaChangeError) Error() string {
	return fmt.Sprintf("the schema changed at version %d: %s; read the versions up to %d and those from %d on apart",
		e.Version, strings.Join(e.Changes, ", "), e.Version-1, e.Version)
}
