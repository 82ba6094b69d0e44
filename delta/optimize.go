package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/expr"
)

// OptimizeOptions tune Optimize. The zero value of each field means its default.
type OptimizeOptions struct {
	// Where chooses partitions: a condition on partition columns. Default: all.
	Where *expr.Expr
	// QuietFor leaves partitions alone to which files were added within this time. Default 0: none are.
	QuietFor time.Duration
	// ZOrderBy are columns by which rows are laid out, so that files are small boxes in their space. All files of the
	// chosen partitions are rewritten, unless they lie so already. Not for clustered tables, which have columns of their
	// own. Default: rows keep their order.
	ZOrderBy []string
	// Full lays out a clustered table anew, also what lies well already.
	Full bool
	// TargetFileBytes is the size that files are made for. Default: delta.targetFileSize, else 256 MiB.
	TargetFileBytes int64
	// SmallFileBytes is the size below which files are packed together. Default: half of TargetFileBytes.
	SmallFileBytes int64
	// MaxDeleted is the share of deleted rows above which a file is rewritten whatever its size. Default 0.05.
	MaxDeleted float64
	// BatchBytes is how much is rewritten in one commit. What is committed stays when a later batch fails, and need not
	// be done again. Default 1 GiB, of an ordering the whole partition or cube.
	BatchBytes int64
	// MemoryBytes bounds the rows that an ordering holds in memory; the rest waits on disk. Default 128 MiB.
	MemoryBytes int64
	// SpillDir is where that is. Default: the system's folder for temporary files.
	SpillDir string
	// Concurrency is how many files are written at once. Default: the number of processors.
	Concurrency int
	// DryRun makes the plan, counts what would be removed, and changes nothing.
	DryRun bool
	// Deadline bounds for how long batches that lost against other writers are begun anew, from the start on. Default 1
	// hour.
	Deadline time.Duration
	// UserMetadata is commitInfo.userMetadata of the commits.
	UserMetadata string
	// Progress is told how far it is after each file that was written and each commit, by one goroutine at a time.
	Progress func(OptimizeProgress)
}

// OptimizeProgress tells how far Optimize is.
type OptimizeProgress struct {
	Files, Bytes           int64 // to be rewritten, in this round
	FilesDone, BytesDone   int64 // of these, read and written again
	FilesAdded, BytesAdded int64
	Commits                int64
}

// OptimizeResult is what Optimize did.
type OptimizeResult struct {
	Version      int64 // of the last commit, or that which was looked at when there was nothing to do
	Commits      int64
	RemovedFiles int64 // in a dry run: that would be rewritten
	RemovedBytes int64
	AddedFiles   int64 // in a dry run: about how many would come of them
	AddedBytes   int64
	Rows         int64 // in the added files
	DeletedRows  int64 // that deletion vectors of removed files named, and that are gone from storage with a vacuum
	Conflicts    int64 // batches that other writers got ahead of and that were begun anew
}

func (o *OptimizeOptions) withDefaults(s *Snapshot) (OptimizeOptions, error) {
	var r OptimizeOptions
	if o != nil {
		r = *o
	}
	if r.TargetFileBytes <= 0 {
		size, err := targetFileSize(s.Property("delta.targetFileSize"))
		if err != nil {
			return r, err
		}
		r.TargetFileBytes = size
	}
	r.SmallFileBytes = cmp.Or(max(r.SmallFileBytes, 0), r.TargetFileBytes/2)
	r.MaxDeleted = cmp.Or(max(r.MaxDeleted, 0), 0.05)
	r.BatchBytes = cmp.Or(max(r.BatchBytes, 0), 1<<30)
	r.MemoryBytes = cmp.Or(max(r.MemoryBytes, 0), 128<<20)
	r.Concurrency = cmp.Or(max(r.Concurrency, 0), runtime.GOMAXPROCS(0))
	r.Deadline = cmp.Or(max(r.Deadline, 0), time.Hour)
	return r, nil
}

// targetFileSize reads the property of that name: bytes, or a number with a unit like "100mb".
func targetFileSize(text string) (int64, error) {
	if text == "" {
		return 256 << 20, nil
	}
	digits := strings.TrimRight(strings.ToLower(text), "kmgtb ")
	units := map[string]int64{"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30,
		"gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40}
	unit, known := units[strings.TrimSpace(strings.ToLower(text)[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n <= 0 || n > 1<<62/unit {
		return 0, fmt.Errorf("table property delta.targetFileSize: found %q, wanted a size like 134217728 or 128mb", text)
	}
	return n * unit, nil
}

// ErrNotPartition says that a condition which chooses partitions looks at other columns.
var ErrNotPartition = errors.New("not a partition column")

// Optimize rewrites files for the sake of readers: small files into large ones, and those with many deleted rows
// without them; with ZOrderBy, and in clustered tables, rows that are close in value into the same files. The rows stay
// the same, their ids too where the table tracks them, and commits say so (dataChange false): appends and changes of
// other writers at the same time go through, and deletions by deletion vector are carried over to the new files. Where
// they cannot be, the batch gives way and is begun anew. Work is committed batch by batch. Errors: ErrNotPartition,
// *UnsupportedError, ErrCorrupt when a file does not hold as many rows as it should, ErrConflict after the deadline;
// what is committed by then stays, and the result tells of it.
func (t *Table) Optimize(ctx context.Context, opts *OptimizeOptions) (*OptimizeResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	r := &optimizer{table: t, result: OptimizeResult{Version: snap.version}}
	if r.opts, err = opts.withDefaults(snap); err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return &r.result, fmt.Errorf("optimize %s: %w", t.st.URL(), err)
	}
	return &r.result, nil
}

// optimizer is one run of Optimize.
type optimizer struct {
	table  *Table
	opts   OptimizeOptions
	snap   *Snapshot // what the round under way was planned on
	layout *layout   // nil: rows keep their order
	result OptimizeResult
	added  []Add // by all commits
	meter  meter

	// As RepackOptions has them.
	around      func(ctx context.Context, commit func(context.Context) (CommitResult, error)) error
	writerBytes int64
}

// run makes rounds until nobody has got ahead of any batch.
func (r *optimizer) run(ctx context.Context) error {
	deadline := time.Now().Add(r.opts.Deadline)
	for {
		lost, err := r.round(ctx)
		if err != nil || lost == nil {
			return err
		}
		if time.Now().After(deadline) {
			return lost
		}
	}
}

// round plans on the newest version and rewrites; lost is the last conflict, of which there may be several.
func (r *optimizer) round(ctx context.Context) (lost, err error) {
	if r.snap, err = r.table.Snapshot(ctx); err != nil {
		return nil, err
	}
	if err := r.snap.CheckWrite(); err != nil {
		return nil, err
	}
	if r.layout, err = r.snap.layout(&r.opts); err != nil {
		return nil, err
	}
	jobs, err := r.plan(ctx)
	if err != nil {
		return nil, err
	}
	r.meter = meter{report: r.opts.Progress}
	for _, j := range jobs {
		r.meter.now.Files += int64(len(j.files))
		r.meter.now.Bytes += j.bytes
	}
	if r.opts.DryRun {
		r.result.RemovedFiles, r.result.RemovedBytes = r.meter.now.Files, r.meter.now.Bytes
		for _, j := range jobs {
			r.result.AddedFiles += max((j.live+r.opts.TargetFileBytes-1)/r.opts.TargetFileBytes, 1)
			r.result.DeletedRows += j.deleted()
		}
		return nil, nil
	}
	for len(jobs) > 0 {
		n := r.batch(jobs)
		err := r.rewrite(ctx, jobs[:n])
		if errors.Is(err, ErrConflict) {
			r.result.Conflicts++
			lost, err = err, nil
		}
		if err != nil {
			return nil, err
		}
		jobs = jobs[n:]
	}
	return lost, nil
}

// batch is how many of the jobs, from the first on, are committed together.
func (r *optimizer) batch(jobs []*job) int {
	var bytes int64
	for n, j := range jobs {
		if bytes += j.bytes; n > 0 && bytes > r.opts.BatchBytes {
			return n
		}
	}
	return len(jobs)
}
