package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// scanBatchBytes is about the size that batches of wide rows are kept to.
const scanBatchBytes = 16 << 20

// scanGroup reads the rows of one row group in batches.
type scanGroup struct {
	*fileReader
	columns []*scanGroupColumn // one a field of plan.read; nil where the file has none
	readers []*parquet.ColumnReader
}

// scanGroupColumn is a column of which parts are read.
type scanGroupColumn struct {
	*columnReader
	counted int // bytes that it keeps, as the file's reader knows
}

func (r *fileReader) readGroup(ctx context.Context, group int, emit emitRows) error {
	rows, first := r.file.MetaData().RowGroup(group).NumRows(), r.row
	r.row += rows
	if rows == 0 || !r.rows.any(first, r.row) {
		return nil
	}
	may, err := r.mayMatch(group)
	if err != nil || len(may) == 0 {
		return err
	}
	g := &scanGroup{fileReader: r}
	if err := guardScan(r.key, func() error { return g.open(group) }); err != nil {
		return err
	}
	step := g.step(rows)
	for at := first; at < r.row; at += step {
		n := min(r.row-at, step)
		live := overlap(r.rows.spans(at, at+n), clip(may, int(at-first), int(at-first+n)))
		if err := g.emit(ctx, int(n), live, at, emit); err != nil {
			return err
		}
	}
	return nil
}

// emit reads the next n rows, from row from of the file on, and hands on those in live, in one batch or, where there is no
// room for that, in several.
func (g *scanGroup) emit(ctx context.Context, n int, live []expr.Span, from int64, emit emitRows) error {
	for at, most := 0, n; at < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var batch arrow.RecordBatch
		var positions []int64
		read, err := fewer(min(n-at, most), g.room, g.readers, func(n int) (err error) {
			batch, positions, err = g.batch(ctx, n, clip(live, at, at+n), from+int64(at))
			return err
		})
		if err != nil {
			return err
		}
		if batch != nil {
			if err := emit(batch, positions); err != nil {
				return err
			}
		}
		at, most = at+read, 2*read
	}
	return nil
}

// guardScan is guard for code that may come upon what this package does not support, which is no damage.
func guardScan(key string, decode func() error) error {
	var unsupported error
	err := guard(key, func() error {
		err := decode()
		if errors.Is(err, ErrUnsupportedFeature) {
			unsupported, err = err, nil
		}
		return err
	})
	return cmp.Or(unsupported, err)
}

// open opens the readers of the columns that the file has.
func (g *scanGroup) open(group int) error {
	meta := g.file.MetaData().RowGroup(group)
	var parts []span
	for _, c := range g.fileReader.columns {
		for leaf := range c.leaves {
			part, err := chunkSpan(g.file, meta, leaf)
			if err != nil {
				return err
			}
			parts = append(parts, part)
		}
	}
	if err := g.file.src.hold(parts); err != nil {
		return err
	}
	g.columns, g.held = make([]*scanGroupColumn, len(g.fileReader.columns)), 0
	for i, c := range g.fileReader.columns {
		if c.field == nil {
			continue
		}
		column, err := g.openColumn(c.field, c.leaves, meta)
		if err != nil {
			return fmt.Errorf("column %q: %w", g.plan.read[i].Name, err)
		}
		g.columns[i] = &scanGroupColumn{columnReader: column}
		g.readers = column.appendReaders(g.readers)
		g.hold(g.columns[i])
	}
	return nil
}

// step is how many rows make a batch: BatchRows, less where rows are wide.
func (g *scanGroup) step(rows int64) int64 {
	wide := int64(1)
	for _, c := range g.columns {
		if c != nil {
			wide += c.bytesOfRow(rows)
		}
	}
	return max(min(int64(g.plan.opts.BatchRows), scanBatchBytes/wide), 1)
}

// batch reads those of the next n rows, from row from of the file on, that are in rows and meet the condition; nil when
// there is none.
func (g *scanGroup) batch(ctx context.Context, n int, rows []expr.Span, from int64) (arrow.RecordBatch, []int64, error) {
	p := g.plan
	arrays := make([]arrow.Array, len(p.read))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release()
			}
		}
	}()
	if p.where != nil && len(rows) > 0 {
		var err error
		if rows, err = g.filter(ctx, arrays, n, rows, from); err != nil {
			return nil, nil, err
		}
	}
	for i := range arrays {
		switch {
		case arrays[i] != nil:
		case len(rows) > 0:
			if err := g.fill(arrays, i, n, rows, from); err != nil {
				return nil, nil, err
			}
		case g.columns[i] != nil:
			g.columns[i].pass(n)
		}
	}
	if len(rows) == 0 {
		return nil, nil, nil
	}
	var positions []int64
	if p.positions {
		positions = spanRows(rows, from)
	}
	columns := pick(arrays, p.out)
	return array.NewRecordBatch(p.schemaOf(columns), columns, int64(expr.CountRows(rows))), positions, nil
}

// schemaOf is the schema of a batch of these columns.
func (p *scanPlan) schemaOf(columns []arrow.Array) *arrow.Schema {
	if !p.opts.coded {
		return p.result
	}
	fields := p.result.Fields()
	for i, c := range columns {
		fields[i].Type = c.DataType()
	}
	return arrow.NewSchema(fields, nil)
}

// filter reads the columns of the condition and returns those of the rows that meet it; columns that have been read keep
// only these.
func (g *scanGroup) filter(ctx context.Context, arrays []arrow.Array, n int, rows []expr.Span, from int64,
) ([]expr.Span, error) {
	p := g.plan
	for _, i := range p.sees {
		if err := g.fill(arrays, i, n, rows, from); err != nil {
			return nil, err
		}
	}
	seen := array.NewRecordBatch(p.seen, pick(arrays, p.sees), int64(expr.CountRows(rows)))
	defer seen.Release()
	kept, err := p.where.Rows(ctx, seen)
	if err != nil {
		return nil, err
	}
	for _, i := range p.sees {
		whole := arrays[i]
		arrays[i] = expr.Take(whole, kept)
		whole.Release()
	}
	return keptOf(rows, kept), nil
}

// keptOf returns those rows of spans that kept names by their places among them.
func keptOf(spans, kept []expr.Span) []expr.Span {
	if len(kept) == 1 && kept[0] == (expr.Span{From: 0, To: expr.CountRows(spans)}) {
		return spans
	}
	var out []expr.Span
	at, i := 0, 0 // the place of the first row of spans[i]
	for _, k := range kept {
		for from := k.From; from < k.To; {
			for at+spans[i].To-spans[i].From <= from {
				at += spans[i].To - spans[i].From
				i++
			}
			first := spans[i].From + from - at
			m := min(k.To-from, spans[i].To-first)
			out = append(out, expr.Span{From: first, To: first + m})
			from += m
		}
	}
	return out
}

// fill reads those of the next n rows of a column that are in rows, and gives them the table's type.
func (g *scanGroup) fill(arrays []arrow.Array, i, n int, rows []expr.Span, from int64) error {
	f, count := &g.plan.read[i], expr.CountRows(rows)
	switch {
	case g.fileReader.columns[i].constant != nil:
		arrays[i] = array.NewSlice(g.fileReader.columns[i].constant, 0, int64(count))
	case g.columns[i] == nil:
		arrays[i] = nullArray(ArrowType(f.Type), count)
	default:
		err := guardScan(g.key, func() error {
			raw, err := g.read(g.columns[i], n, rows)
			if err != nil {
				return fmt.Errorf("column %q: %w", f.Name, err)
			}
			defer raw.Release()
			arrays[i], err = g.plan.mapping.conform(&f.Field, raw, f.Name)
			return err
		})
		if err != nil {
			return err
		}
	}
	if f.role == roleRowID || f.role == roleRowCommitVersion {
		arrays[i] = g.trackRows(f.role, arrays[i], rows, from)
	}
	return nil
}

func (g *scanGroup) read(c *scanGroupColumn, n int, rows []expr.Span) (arrow.Array, error) {
	read, after := rows, c.lists && parquet.Scattered(rows, n)
	if after {
		read = []expr.Span{{From: 0, To: n}}
	}
	arr, _, err := c.columnReader.read(n, read)
	if err != nil {
		return nil, err
	}
	g.hold(c)
	if after {
		defer arr.Release()
		return expr.Take(arr, rows), nil
	}
	return arr, nil
}

// hold takes account of what a column's readers keep in memory, and has them give it up when the readers of all columns
// keep too much.
func (g *scanGroup) hold(c *scanGroupColumn) {
	if g.count(c); g.fileReader.held > g.file.src.heldRoom() {
		c.release()
		g.count(c)
	}
}

func (g *scanGroup) count(c *scanGroupColumn) {
	now := c.held()
	g.fileReader.held += now - c.counted
	c.counted = now
}

// spanRows are the numbers of the rows in spans, from on.
func spanRows(spans []expr.Span, from int64) []int64 {
	rows := make([]int64, 0, expr.CountRows(spans))
	for _, s := range spans {
		for i := s.From; i < s.To; i++ {
			rows = append(rows, from+int64(i))
		}
	}
	return rows
}
