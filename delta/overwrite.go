package delta

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// tableWrite is rows on their way into a table. They are written once; what they replace is found by each attempt.
type tableWrite struct {
	opts    *WriteOptions
	began   *Snapshot // whose metadata the files are written under
	meta    *Metadata // of the version to come; nil: that of began
	data    *Writer
	changes *Writer // change data that tells of the new rows; nil: readers need none
	adds    []Add
	cdc     []CDC
	rows    int64
}

// takeRows writes the new rows.
func (w *tableWrite) takeRows(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error]) error {
	e, err := newRowEdit(w.began, &w.opts.DMLOptions, w.meta)
	if err != nil {
		return err
	}
	e.fresh = true
	if _, err := e.writer(); err != nil {
		return err
	}
	w.data = e.data
	check := &replaceCheck{where: w.opts.Where, table: e.snap.Schema(), truncate: w.opts.TruncateTimes}
	tell := w.tells(e)
	for batch, err := range rows {
		if err != nil {
			return fmt.Errorf("read the rows: %w", err)
		}
		if err = check.look(ctx, batch); err == nil {
			err = e.insertRows(ctx, batch, tell)
		}
		batch.Release()
		w.changes = e.changes
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.rows = e.inserted
	w.adds, w.cdc, err = e.close(ctx)
	if e.meta != w.began.Metadata() {
		w.meta = e.meta
	}
	return err
}

// tells reports whether the commit needs change data: when files are rewritten, whose remaining rows would else be
// taken for new ones.
func (w *tableWrite) tells(e *rowEdit) bool {
	if w.opts.Mode != WriteReplaceWhere || !e.feed || e.byVector {
		return false
	}
	for _, n := range w.opts.Where.Names() {
		if !slices.ContainsFunc(e.meta.PartitionColumns, func(c string) bool { return strings.EqualFold(c, n[0]) }) {
			return true
		}
	}
	return false
}

// replaceCheck makes sure that new rows are such as are replaced.
type replaceCheck struct {
	where    *expr.Expr // nil: all rows are
	table    *Schema
	truncate bool
	bound    *expr.Bound
	schema   *arrow.Schema
	seen     int64
}

func (c *replaceCheck) look(ctx context.Context, batch arrow.RecordBatch) (err error) {
	if c.where == nil {
		return nil
	}
	if batch, err = fittedBatch(batch, c.table, c.truncate); err != nil {
		return err
	}
	defer batch.Release()
	if c.bound == nil || !c.schema.Equal(batch.Schema()) {
		if c.bound, err = c.where.BindCondition(batch.Schema()); err != nil {
			return err
		}
		c.schema = batch.Schema()
	}
	spans, err := c.bound.Rows(ctx, batch)
	if err != nil {
		return err
	}
	next := 0
	for _, s := range spans {
		if s.From > next {
			break
		}
		next = s.To
	}
	if int64(next) < batch.NumRows() {
		return &ReplaceWhereError{c.where.String(), c.seen + int64(next)}
	}
	c.seen += batch.NumRows()
	return nil
}

// attempt finds what goes in one version of the table, and commits it together with what comes.
func (w *tableWrite) attempt(ctx context.Context, snap *Snapshot, deadline time.Time) (*DMLResult, error) {
	if !w.suits(snap) {
		return nil, &staleFilesError{w.began.Version(), snap.Version()}
	}
	e, err := newRowEdit(snap, &w.opts.DMLOptions, w.meta)
	if err != nil {
		return nil, err
	}
	e.given, e.givenCDC, e.inserted = w.adds, w.cdc, w.rows
	reads, err := w.makeRoom(ctx, e)
	if err != nil {
		return nil, dropped(ctx, err, e.data, e.changes)
	}
	return e.commit(ctx, deadline, editCommit{operation: "WRITE", params: w.params(e), metrics: w.metrics, reads: reads})
}

// suits reports whether the files that were written are right for this version of the table.
func (w *tableWrite) suits(snap *Snapshot) bool {
	before, after := w.began.state, snap.state
	if w.meta != nil {
		return sameMetadata(before.meta, after.meta) && sameProtocol(before.proto, after.proto)
	}
	if before.meta.ID != after.meta.ID || !slices.Equal(before.meta.PartitionColumns, after.meta.PartitionColumns) ||
		before.meta.boolean(propChangeDataFeed, false) != after.meta.boolean(propChangeDataFeed, false) ||
		!adoptable(before.proto, after.proto) || after.meta.Takes(before.meta) != nil {
		return false
	}
	_, wider, err := snap.schema.Merge(w.began.schema)
	return err == nil && !wider
}

// makeRoom takes out what the new rows replace, and tells what the write depends on.
func (w *tableWrite) makeRoom(ctx context.Context, e *rowEdit) (reads func(*Transaction), err error) {
	switch w.opts.Mode {
	case WriteOverwrite:
		if err := e.find(ctx, nil); err != nil {
			return nil, err
		}
		e.keepOnly(nil)
		return (*Transaction).ReadTable, nil
	case WriteReplaceWhere:
		if err := e.deleteWhere(ctx, w.opts.Where, len(w.cdc) > 0); err != nil {
			return nil, err
		}
		return func(tx *Transaction) { tx.ReadWhere(w.opts.Where) }, nil
	case WriteDynamic:
		return w.replacePartitions(ctx, e)
	}
	return func(tx *Transaction) { tx.BlindAppend(w.meta == nil) }, nil
}

// replacePartitions takes out the files of all partitions that the new files are of.
func (w *tableWrite) replacePartitions(ctx context.Context, e *rowEdit) (func(*Transaction), error) {
	ours := make(map[string]*expr.Expr)
	for i := range w.adds {
		key, where, err := e.partition(&w.adds[i])
		if err != nil {
			return nil, err
		}
		ours[key] = where
	}
	var any []*expr.Expr
	for _, key := range sortedNames(ours) {
		any = append(any, ours[key])
	}
	read := expr.Or(any...)
	if len(any) == 0 {
		return nil, nil
	}
	if len(any) > manyKeys || slices.Contains(any, nil) {
		read = nil
	}
	for add, err := range e.snap.Matching(ctx, read) {
		if err != nil {
			return nil, err
		}
		key, _, err := e.partition(add)
		if err != nil {
			return nil, err
		}
		if _, hit := ours[key]; hit {
			e.whole = append(e.whole, *add)
		}
	}
	return func(tx *Transaction) { tx.ReadWhere(read) }, nil
}

// partition returns what files of one partition have in common, however their writers spelled its values, and the
// condition that holds for its rows; nil when there is no literal for a value.
func (e *rowEdit) partition(add *Add) (key string, where *expr.Expr, err error) {
	by := mappingOf(e.meta.Configuration)
	var b []byte
	all := []*expr.Expr{}
	for _, name := range e.meta.PartitionColumns {
		f, _ := e.schema.Lookup(name)
		value, err := partitionArray(f.Type, add.PartitionValues[by.physicalName(f)], 1)
		if err != nil {
			return "", nil, fmt.Errorf("partition column %q of %s: %w", name, add.Path, err)
		}
		if value.IsNull(0) {
			b, all = append(b, 0), append(all, expr.IsNull(expr.Name(f.Name)))
			continue
		}
		b = appendKey(append(b, 1), value, 0)
		if l, ok := expr.Literal(value, 0); ok {
			all = append(all, expr.Compare("=", expr.Name(f.Name), l))
		}
	}
	return string(b), expr.And(all...), nil
}

// params are what commits tell of a write, in Spark's words.
func (w *tableWrite) params(e *rowEdit) map[string]string {
	mode := "Append"
	if w.opts.Mode != WriteAppend {
		mode = "Overwrite"
	}
	p := map[string]string{"mode": mode, "partitionBy": jsonList(e.meta.PartitionColumns)}
	if w.opts.Where != nil {
		p["predicate"] = w.opts.Where.String()
	}
	if w.opts.Mode == WriteDynamic {
		p["isDynamicPartitionOverwrite"] = "true"
	}
	return p
}

func (w *tableWrite) metrics(r *DMLResult, m map[string]string) {
	m["numFiles"], m["numOutputRows"] = count(r.FilesAdded), count(r.Inserted+r.Copied)
	m["numOutputBytes"] = count(r.BytesAdded)
	if w.opts.Mode != WriteAppend {
		m["numRemovedFiles"], m["numRemovedBytes"] = count(r.FilesRemoved), count(r.BytesRemoved)
		m["numDeletedRows"], m["numCopiedRows"] = count(r.Deleted), count(r.Copied)
		m["numAddedChangeFiles"] = count(r.ChangeFiles)
	}
}
