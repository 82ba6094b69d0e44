package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// DMLOptions tune operations that change rows. The zero value of each field means its default.
type DMLOptions struct {
	// CopyOnWrite says how rows leave a file: true rewrites the file without them, false marks them in a deletion
	// vector, which the table must allow. Default nil: vectors where delta.enableDeletionVectors is true.
	CopyOnWrite *bool
	// Txns is progress that the commit records. When the table holds as much of each already, nothing is done.
	Txns []Txn
	// UserMetadata is commitInfo.userMetadata. Default none.
	UserMetadata string
	// Deadline bounds how long lost races are answered by running the operation again. Default 10 minutes.
	Deadline time.Duration
	// MemoryBytes bounds the rows of a merge's source that are held at once; a larger source is merged in several
	// passes over the table. Default 256 MiB, at most 1 GiB.
	MemoryBytes int64
	// MaxPairs bounds the pairs of rows that a merge without an equality between source and target may look at.
	// Default 1e9.
	MaxPairs int64
	// Concurrency is how many files are read at once. Default: the number of processors.
	Concurrency int
	// TargetFileBytes is the size from which a data file is closed and a new one begun. Default 128 MiB.
	TargetFileBytes int64
	// TruncateTimes is as in WriterOptions.
	TruncateTimes bool
	// Buffers is as in WriterOptions.
	Buffers *Buffers
	// Progress is called between files by the goroutine that runs the operation. Default none.
	Progress func(DMLProgress)
}

// DMLProgress tells how far a long operation is.
type DMLProgress struct {
	Step       string // "find", "change", "copy"
	FilesDone  int
	FilesTotal int
}

// DMLResult tells what an operation that changes rows did.
type DMLResult struct {
	Version   int64     // of the commit; of the table as it was found when there was nothing to commit
	Committed bool      // false when nothing had to change, or Txns were there already
	Snapshot  *Snapshot // the table at Version
	Retries   int       // times that the operation, or its commit alone, lost a race
	Moved     int       // files whose rows to change were found again where a compaction had put them meanwhile

	Inserted int64 // rows
	Updated  int64 // rows
	Deleted  int64 // rows; of whole files without statistics none are counted
	Copied   int64 // rows that moved into another file unchanged

	FilesAdded   int // data files that are new
	FilesRemoved int // data files that are gone
	FilesMarked  int // data files with rows that a deletion vector takes out
	ChangeFiles  int // change data files
	BytesAdded   int64
	BytesRemoved int64

	Metrics map[string]string // commitInfo.operationMetrics
}

const (
	maxMergeBytes    = 1 << 30
	defaultMergeSize = 256 << 20
	defaultMaxPairs  = 1_000_000_000
)

func (o *DMLOptions) withDefaults() DMLOptions {
	var r DMLOptions
	if o != nil {
		r = *o
	}
	if r.Deadline <= 0 {
		r.Deadline = 10 * time.Minute
	}
	if r.MemoryBytes <= 0 {
		r.MemoryBytes = defaultMergeSize
	}
	r.MemoryBytes = min(r.MemoryBytes, maxMergeBytes)
	if r.MaxPairs <= 0 {
		r.MaxPairs = defaultMaxPairs
	}
	if r.Concurrency <= 0 {
		r.Concurrency = runtime.GOMAXPROCS(0)
	}
	return r
}

func (o *DMLOptions) progress(step string, done, total int) {
	if o.Progress != nil {
		o.Progress(DMLProgress{step, done, total})
	}
}

// RowSource is rows that can be read again and again, and are the same each time, in the same order.
type RowSource struct {
	Schema *arrow.Schema
	// Rows yields the rows as batches of Schema, which belong to the receiver. After an error it ends.
	Rows func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error]
}

// SourceOf is the source of these batches, which stay the caller's and must not be released before the source is
// no longer in use.
func SourceOf(schema *arrow.Schema, batches ...arrow.RecordBatch) RowSource {
	return RowSource{Schema: schema, Rows: func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return func(yield func(arrow.RecordBatch, error) bool) {
			for _, b := range batches {
				b.Retain()
				if !yield(b, nil) {
					return
				}
			}
		}
	}}
}

// Source is the rows of the snapshot as the source of a merge.
func (s *Snapshot) Source(opts *ScanOptions) RowSource {
	return RowSource{Schema: s.Schema().Arrow(), Rows: func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return s.Scan(ctx, opts)
	}}
}

// dense is the source with batches of one layout, whatever the rows come in.
func (r RowSource) dense() RowSource {
	schema := expr.DenseSchema(r.Schema)
	if schema == r.Schema {
		return r
	}
	return RowSource{Schema: schema, Rows: func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return mapped(r.Rows(ctx), expr.DenseBatch)
	}}
}

// attempt does an operation's work on one version of the table and commits it. What it wrote and could not commit
// it takes back.
type attempt func(ctx context.Context, snap *Snapshot, deadline time.Time) (*DMLResult, error)

// rerun runs an operation until it is committed, fails for good, or the deadline has passed. A conflict is answered
// by doing it again on the newest version, since what it found there before may not hold any more.
func (t *Table) rerun(ctx context.Context, opts *DMLOptions, try attempt) (*DMLResult, error) {
	deadline := time.Now().Add(opts.Deadline)
	for retries := 0; ; retries++ {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		if len(opts.Txns) > 0 && hasTxns(snap, opts.Txns) {
			return &DMLResult{Version: snap.Version(), Snapshot: snap, Retries: retries}, nil
		}
		result, err := try(ctx, snap, deadline)
		if err == nil {
			result.Retries += retries
			return result, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
		if err := pause(ctx, retries, deadline, err); err != nil {
			return nil, err
		}
	}
}

// hasTxns reports whether the table holds as much progress as these record.
func hasTxns(s *Snapshot, txns []Txn) bool {
	for _, t := range txns {
		if v, ok := s.Txn(t.AppID); !ok || v < t.Version {
			return false
		}
	}
	return true
}

// pause waits before another try, longer each time and never twice alike; it fails with cause when there is no
// time left.
func pause(ctx context.Context, retries int, deadline time.Time, cause error) error {
	longest := min(10*time.Millisecond<<min(retries, 10), 5*time.Second)
	wait := longest/2 + rand.N(longest/2+1)
	if time.Now().Add(wait).After(deadline) {
		return fmt.Errorf("after %d tries: %w", retries+1, cause)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), cause)
	case <-timer.C:
		return nil
	}
}

// begin starts the transaction of an attempt.
func (t *Table) begin(snap *Snapshot, opts *DMLOptions, deadline time.Time) *Transaction {
	tx := t.Begin(snap, &TransactionOptions{Deadline: max(time.Until(deadline), time.Second)})
	for _, txn := range opts.Txns {
		tx.AddTxn(txn.AppID, txn.Version)
	}
	tx.UserMetadata(opts.UserMetadata)
	tx.BlindAppend(false)
	return tx
}

// stopwatch takes the times that commits tell of their operation.
type stopwatch struct {
	start, scanned time.Time
}

func (w *stopwatch) metrics(m map[string]string) {
	end := time.Now()
	scanned := w.scanned
	if scanned.IsZero() {
		scanned = end
	}
	m["executionTimeMs"] = strconv.FormatInt(end.Sub(w.start).Milliseconds(), 10)
	m["scanTimeMs"] = strconv.FormatInt(scanned.Sub(w.start).Milliseconds(), 10)
	m["rewriteTimeMs"] = strconv.FormatInt(end.Sub(scanned).Milliseconds(), 10)
}

// dropped takes back what an attempt wrote, unless its commit may have landed.
func dropped(ctx context.Context, err error, writers ...*Writer) error {
	if err == nil || errors.Is(err, store.ErrAmbiguous) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, w := range writers {
		if w != nil {
			_ = w.Abort(ctx) // what stays behind is garbage that no reader sees
		}
	}
	return err
}

// predicateText is a condition as commits tell it.
func predicateText(e *expr.Expr) string {
	if e == nil {
		return ""
	}
	return "(" + e.String() + ")"
}

func count[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
