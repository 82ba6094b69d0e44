package delta

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/expr"
)

// job is files of one partition that are rewritten together: into one file, or, where rows are laid out, into as many
// as their size asks for.
type job struct {
	files []Add // without statistics
	bytes int64
	live  int64 // about the bytes of rows that are not deleted
	rows  int64 // that are not deleted; -1 when the log does not tell
}

func (j *job) deleted() (n int64) {
	for i := range j.files {
		if v := j.files[i].DeletionVector; v != nil {
			n += v.Cardinality
		}
	}
	return n
}

// candidate is a live file of a chosen partition.
type candidate struct {
	add  Add
	rows int64 // physical; -1 when the log does not tell
	live int64 // about the bytes of rows that are not deleted
}

func newCandidate(a *Add) candidate {
	c := candidate{add: *a, rows: -1, live: a.Size}
	if n, ok := recordCount(a.Stats); ok {
		c.rows = n
	}
	if v := a.DeletionVector; v != nil && c.rows > 0 {
		c.live = a.Size - int64(float64(a.Size)*float64(v.Cardinality)/float64(c.rows))
	}
	c.add.Stats = ""
	return c
}

// worn reports whether too many rows of the file are deleted.
func (c *candidate) worn(most float64) bool {
	v := c.add.DeletionVector
	return v != nil && (c.rows <= 0 || float64(v.Cardinality) > most*float64(c.rows))
}

// plan decides which files are rewritten together.
func (r *optimizer) plan(ctx context.Context) ([]*job, error) {
	groups, err := r.candidates(ctx)
	if err != nil {
		return nil, err
	}
	var jobs []*job
	for _, key := range sortedNames(groups) {
		files := groups[key]
		if r.opts.QuietFor > 0 && busy(files, time.Now().Add(-r.opts.QuietFor)) {
			continue
		}
		slices.SortFunc(files, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.add.ModificationTime, b.add.ModificationTime), cmp.Compare(a.add.Path, b.add.Path))
		})
		if r.layout != nil {
			jobs = append(jobs, r.layout.jobs(files, &r.opts)...)
		} else {
			jobs = append(jobs, r.pack(files)...)
		}
	}
	return jobs, nil
}

// candidates are the live files of the chosen partitions, by partition.
func (r *optimizer) candidates(ctx context.Context) (map[string][]candidate, error) {
	if err := r.snap.onlyPartitions(r.opts.Where); err != nil {
		return nil, err
	}
	groups := map[string][]candidate{}
	for a, err := range r.snap.Matching(ctx, r.opts.Where) {
		if err != nil {
			return nil, err
		}
		key := partitionKey(a.PartitionValues)
		groups[key] = append(groups[key], newCandidate(a))
	}
	return groups, nil
}

// onlyPartitions makes sure that a condition is one on partition columns, so that it is true of all rows of a file or
// of none. One that a partition's values cannot decide counts as true.
func (s *Snapshot) onlyPartitions(where *expr.Expr) error {
	if where == nil {
		return nil
	}
	bound, err := where.BindCondition(s.Schema().Arrow())
	if err != nil {
		return err
	}
	for _, name := range bound.Columns() {
		if !slices.ContainsFunc(s.PartitionColumns(), func(c string) bool { return strings.EqualFold(c, name) }) {
			return fmt.Errorf("condition %s: column %q is %w; those are: %s", where, name, ErrNotPartition,
				orNone(strings.Join(s.PartitionColumns(), ", ")))
		}
	}
	return nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// partitionKey is the same for all files of a partition that their writers wrote alike.
func partitionKey(values map[string]*string) string {
	var b strings.Builder
	for _, name := range sortedNames(values) {
		v := values[name]
		if v == nil || *v == "" {
			fmt.Fprintf(&b, "%q,", name)
		} else {
			fmt.Fprintf(&b, "%q=%q,", name, *v)
		}
	}
	return b.String()
}

func busy(files []candidate, since time.Time) bool {
	return slices.ContainsFunc(files, func(c candidate) bool {
		return time.UnixMilli(c.add.ModificationTime).After(since)
	})
}

// pack puts small and worn files together, in their order, until a bin is full. A bin with one file is worth while
// only if that is worn.
func (r *optimizer) pack(files []candidate) (jobs []*job) {
	var bin job
	worn := false
	next := func() {
		if len(bin.files) > 1 || worn {
			full := bin
			jobs = append(jobs, &full)
		}
		bin, worn = job{}, false
	}
	for i := range files {
		c := &files[i]
		tooWorn := c.worn(r.opts.MaxDeleted)
		if c.add.Size >= r.opts.SmallFileBytes && !tooWorn {
			continue
		}
		if bin.live+c.live > r.opts.TargetFileBytes {
			next()
		}
		bin.take(c)
		worn = worn || tooWorn
	}
	next()
	return jobs
}

func (j *job) take(c *candidate) {
	j.files = append(j.files, c.add)
	j.bytes += c.add.Size
	j.live += c.live
	switch v := c.add.DeletionVector; {
	case c.rows < 0 || j.rows < 0:
		j.rows = -1
	case v != nil:
		j.rows += c.rows - v.Cardinality
	default:
		j.rows += c.rows
	}
}
