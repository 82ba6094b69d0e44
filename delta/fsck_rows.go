package delta

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// checkRows reads every file that is there.
func (c *check) checkRows(ctx context.Context) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(c.opts.Concurrency)
	for i := range c.files {
		if c.blind[c.files[i].key()] {
			continue
		}
		group.Go(func() error {
			rows, err := c.checkFile(gctx, i)
			c.mu.Lock()
			c.done++
			c.report.Rows += rows
			if c.opts.Progress != nil {
				c.opts.Progress(c.done, c.report.Files)
			}
			c.mu.Unlock()
			return err
		})
	}
	return group.Wait()
}

// checkFile reads the i-th file and compares it with what the log says of it.
func (c *check) checkFile(ctx context.Context, i int) (live int64, err error) {
	a := &c.files[i]
	physical, err := c.footerRows(ctx, a)
	if err != nil {
		return 0, c.damage(ctx, a, err)
	}
	c.rows[i] = physical
	if n, ok := recordCount(a.Stats); ok && n != physical {
		c.about(a, SeverityError, FindingRows, "", "it has %d rows, by its statistics it has %d", physical, n)
	}
	if !c.checkVector(ctx, a, physical) {
		return 0, nil
	}
	truth, err := c.measure(ctx, a)
	if err != nil {
		return 0, c.damage(ctx, a, err)
	}
	if v := a.DeletionVector; v != nil && truth.rows != physical-v.Cardinality {
		c.about(a, SeverityError, FindingRows, "", "%d rows of it were read, wanted %d less %d that are deleted", truth.rows,
			physical, v.Cardinality)
	}
	c.compareStats(a, truth)
	return truth.rows, nil
}

func (c *check) footerRows(ctx context.Context, a *Add) (int64, error) {
	at, err := c.snap.locate(ctx, a.Path)
	if err != nil {
		return 0, err
	}
	f, err := openParquet(ctx, at.st, at.key, a.Size, nil)
	if err != nil {
		return 0, err
	}
	return rowsOfGroups(f.MetaData()), nil
}

// damage makes a finding of what is wrong with a file's bytes; other errors end the check.
func (c *check) damage(ctx context.Context, a *Add, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrUnsupportedFeature):
		c.about(a, SeverityInfo, FindingUnknown, "", "%v", err)
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrPermission):
		return err
	default:
		c.about(a, SeverityError, FindingUnreadable, "restore the file from a copy, or the table to an older version", "%v",
			err)
	}
	return nil
}

// checkVector reads the file's deletion vector; it reports whether the file can be read with it.
func (c *check) checkVector(ctx context.Context, a *Add, physical int64) bool {
	rows, err := c.snap.DeletedRows(ctx, a.DeletionVector)
	switch {
	case err != nil:
		c.about(a, SeverityError, FindingVector, "restore an older version", "%v", err)
		return false
	case rows != nil && !rows.IsEmpty() && rows.Maximum() >= uint64(physical):
		c.about(a, SeverityError, FindingVector, "", "it names row %d of a file of %d rows", rows.Maximum(), physical)
	}
	return true
}

// truth is what a file holds.
type truth struct {
	rows  int64
	stats string // of the live rows, exact
	nulls map[string]int64
}

// measure reads the live rows and gathers their statistics, as a writer of the file would, but of all columns and
// without shortening texts.
func (c *check) measure(ctx context.Context, a *Add) (*truth, error) {
	l, err := newFileLayout(c.snap.Metadata(), c.snap.Protocol(), &WriterOptions{Trusted: true})
	if err != nil {
		return c.count(ctx, a)
	}
	l.rules = statsRules{indexed: -1, prefix: math.MaxInt32}
	for i := range l.columns {
		allowNulls(&l.columns[i])
	}
	w := parquet.NewWriter(io.Discard, l.columns, &parquet.Options{Codec: parquet.Uncompressed})
	t := &truth{nulls: map[string]int64{}}
	for rows, err := range c.snap.ScanFiles(ctx, []Add{*a}, &ScanOptions{Concurrency: 1}) {
		if err != nil {
			return nil, err
		}
		n := int(rows.Batch.NumRows())
		t.rows += int64(n)
		err = w.Append(pick(rows.Batch.Columns(), l.data), parquet.AllRows(n))
		for i, f := range c.snap.schema.Fields {
			if !f.Nullable {
				t.nulls[f.Name] += int64(rows.Batch.Column(i).NullN())
			}
		}
		rows.Batch.Release()
		if err == nil && w.Buffered() > scanBatchBytes {
			err = w.FlushRowGroup()
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	t.stats = l.stats(w)
	return t, nil
}

// count only counts the rows: of tables whose types are not written.
func (c *check) count(ctx context.Context, a *Add) (*truth, error) {
	t := &truth{}
	for rows, err := range c.snap.ScanFiles(ctx, []Add{*a}, &ScanOptions{Concurrency: 1}) {
		if err != nil {
			return nil, err
		}
		t.rows += rows.Batch.NumRows()
		rows.Batch.Release()
	}
	return t, nil
}

func allowNulls(c *parquet.Column) {
	c.Nullable = true
	if c.Kind == parquet.Map {
		return // a key is never null
	}
	for i := range c.Children {
		allowNulls(&c.Children[i])
	}
}

// compareStats compares what the log says with the truth: bounds must enclose all live values, counts of nulls must be
// exact where no row is deleted.
func (c *check) compareStats(a *Add, t *truth) {
	for _, name := range slices.Sorted(maps.Keys(t.nulls)) {
		if n := t.nulls[name]; n > 0 {
			c.about(a, SeverityError, FindingNull, "", "column %q is NOT NULL, and null in %d rows", name, n)
		}
	}
	if a.Stats == "" || t.stats == "" || t.rows == 0 {
		return
	}
	real := *a
	real.Stats, real.DeletionVector = t.stats, nil
	if !json.Valid([]byte(a.Stats)) {
		c.about(a, SeverityError, FindingStats, "rewrite the file", "the statistics are no JSON: %.100s", a.Stats)
		return
	}
	plan, err := newScanPlan(c.snap, &ScanOptions{Columns: []string{}})
	if err != nil {
		c.about(a, SeverityInfo, FindingUnknown, "", "%v", err)
		return
	}
	given, exact := &fileStats{plan: plan, add: a}, &fileStats{plan: plan, add: &real}
	for _, path := range leafPaths(c.snap.schema.Fields, nil) {
		if !slices.Contains(c.snap.PartitionColumns(), path[0]) {
			c.compareColumn(a, given, exact, path)
		}
	}
}

func (c *check) compareColumn(a *Add, given, exact *fileStats, path []string) {
	wrong := func(what string, is, said any) {
		c.about(a, SeverityError, FindingStats, "rewrite the file", "column %s: the %s is %v, by the statistics it is %v",
			strings.Join(path, "."), what, is, said)
	}
	if lo, ok := given.Min(path); ok {
		if least, ok := exact.Min(path); ok && above(lo, least) {
			wrong("least value", least, lo)
		}
	}
	if hi, ok := given.Max(path); ok {
		if most, ok := exact.Max(path); ok && above(most, hi) {
			wrong("greatest value", most, hi)
		}
	}
	if a.DeletionVector != nil {
		return
	}
	if n, ok := given.NullCount(path); ok {
		if nulls, ok := exact.NullCount(path); ok && n != nulls {
			wrong("number of nulls", nulls, n)
		}
	}
}

// above reports whether a is greater than b, and not only because the statistics of a float tell fewer digits than the
// double has that it was widened to.
func above(a, b expr.Value) bool {
	order, ok := a.Compare(b)
	if !ok || order <= 0 {
		return false
	}
	x, float := a.Float()
	y, _ := b.Float()
	return !float || float32(x) > float32(y)
}

// leafPaths are the paths of columns and fields that are no structs.
func leafPaths(fields []Field, above []string) (paths [][]string) {
	for _, f := range fields {
		path := append(slices.Clone(above), f.Name)
		if s, ok := f.Type.(*Struct); ok {
			paths = append(paths, leafPaths(s.Fields, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}
