package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// scanBatchBytes is about the size that batches of wide rows are kept to.
const scanBatchBytes = 16 << 20

// emitRows takes rows of a file, and their positions where the plan wants them.
type emitRows func(batch arrow.RecordBatch, rows []int64) error

// readFile hands the file's live rows, filtered, to emit. What is wrong with the bytes is ErrCorrupt.
func (p *scanPlan) readFile(ctx context.Context, wanted wantedFile, emit emitRows) error {
	add := wanted.Add
	at, err := p.snap.locate(ctx, add.Path)
	if err != nil {
		return err
	}
	rows, err := p.rowsOf(ctx, wanted)
	if err != nil {
		return err
	}
	f, err := openParquet(ctx, at.st, at.key, add.Size)
	if err != nil {
		return absent(err)
	}
	r := &fileReader{plan: p, add: add, file: f, rows: rows}
	if err := guardScan(at.key, r.open); err != nil {
		return err
	}
	for i := range f.NumRowGroups() {
		if err := r.readGroup(ctx, at.key, i, emit); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf are the rows of a file that are read.
func (p *scanPlan) rowsOf(ctx context.Context, f wantedFile) (*fileRows, error) {
	if p.opts.rows != nil && p.opts.rows[f.index] != nil {
		return &fileRows{rows: p.opts.rows[f.index].Iterator(), wanted: true}, nil
	}
	if f.DeletionVector == nil || p.opts.Deleted {
		return nil, nil
	}
	rows, err := loadDeletionVector(ctx, p.snap, f.DeletionVector)
	if err != nil {
		return nil, err
	}
	return &fileRows{rows: rows.Iterator()}, nil
}

// fileReader reads one data file.
type fileReader struct {
	plan    *scanPlan
	add     *Add
	file    *parquetFile
	pages   *pqarrow.FileReader
	columns []fileColumn // one a field of plan.read
	rows    *fileRows    // that are read; nil: all
	row     int64        // of the file, that comes next
}

// fileColumn is where a column's values come from: the file's field of that number, a constant, or, with neither,
// nowhere: it is null.
type fileColumn struct {
	field    int
	leaves   map[int]bool
	constant arrow.Array // the partition value, as often as a batch has rows, or more often
}

func (r *fileReader) open() error {
	p := r.plan
	props := pqarrow.ArrowReadProperties{BatchSize: int64(p.opts.BatchRows)}
	var err error
	if r.pages, err = pqarrow.NewFileReader(r.file.Reader, props, memory.DefaultAllocator); err != nil {
		return err
	}
	schema, err := r.pages.Schema()
	if err != nil {
		return err
	}
	for i := range p.read {
		c := fileColumn{field: -1}
		if read := &p.read[i]; read.role != roleData {
			c.field = slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool {
				return read.stored != "" && f.Name == read.stored
			})
		} else if p.parts[lowerName(&read.Field)] {
			if c.constant, err = r.partition(&read.Field); err != nil {
				return err
			}
		} else {
			c.field = p.mapping.find(schema.Fields(), &read.Field)
		}
		if c.field >= 0 {
			c.leaves = make(map[int]bool)
			addLeaves(c.leaves, &r.pages.Manifest.Fields[c.field])
		}
		r.columns = append(r.columns, c)
	}
	return nil
}

func addLeaves(leaves map[int]bool, f *pqarrow.SchemaField) {
	if f.IsLeaf() {
		leaves[f.ColIndex] = true
	}
	for i := range f.Children {
		addLeaves(leaves, &f.Children[i])
	}
}

// partition returns the file's value of a partition column, at least as often as a batch will have rows.
func (r *fileReader) partition(f *Field) (arrow.Array, error) {
	most := int64(0)
	for i := range r.file.NumRowGroups() {
		most = max(most, min(r.file.MetaData().RowGroup(i).NumRows(), int64(r.plan.opts.BatchRows)))
	}
	value := r.add.PartitionValues[r.plan.mapping.physicalName(f)]
	arr, err := partitionArray(f.Type, value, int(most))
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", f.Name, err)
	}
	return arr, nil
}

// readGroup reads one row group in batches.
func (r *fileReader) readGroup(ctx context.Context, key string, group int, emit emitRows) error {
	var columns []columnSource
	rows, step := r.file.MetaData().RowGroup(group).NumRows(), int64(0)
	if !r.rows.any(r.row, r.row+rows) {
		r.row += rows
		return nil
	}
	err := guardScan(key, func() (err error) {
		if columns, err = r.openColumns(ctx, group); err == nil {
			step = r.step(group, columns)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.close()
			}
		}
	}()
	for rows > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rows, step)
		var batch arrow.RecordBatch
		err := guardScan(key, func() (err error) { batch, err = r.batch(columns, n); return err })
		if err != nil {
			return err
		}
		from := r.row
		r.row += n
		batch, positions, err := r.plan.finish(ctx, batch, r.rows.spans(from, r.row), from)
		if err != nil {
			return err
		}
		if batch != nil {
			if err := emit(batch, positions); err != nil {
				return err
			}
		}
		rows -= n
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

// step is how many rows of the group make a batch: BatchRows, less where rows are wide, or may be.
func (r *fileReader) step(group int, columns []columnSource) int64 {
	m := r.file.MetaData().RowGroup(group)
	step := int64(r.plan.opts.BatchRows)
	if rows := m.NumRows(); rows > 0 && m.TotalByteSize()/rows > scanBatchBytes/step {
		step = max(scanBatchBytes/(m.TotalByteSize()/rows), 1)
	}
	longest := int64(0)
	for _, c := range columns {
		if f, ok := c.(*flatColumn); ok {
			longest += int64(f.longest())
		}
	}
	if longest*step > 4*scanBatchBytes {
		step = max(4*scanBatchBytes/longest, 1)
	}
	return step
}

// openColumns opens the readers of the columns that the file has; nil for the others.
func (r *fileReader) openColumns(ctx context.Context, group int) ([]columnSource, error) {
	meta := r.file.MetaData().RowGroup(group)
	var parts []span
	for _, c := range r.columns {
		for leaf := range c.leaves {
			part, err := chunkSpan(r.file, meta, leaf)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	if err := r.file.src.hold(parts); err != nil {
		return nil, err
	}
	columns := make([]columnSource, len(r.columns))
	for i, c := range r.columns {
		if c.field < 0 {
			continue
		}
		var err error
		if columns[i], err = r.openColumn(ctx, c, group); err != nil {
			return nil, fmt.Errorf("column %q: %w", r.plan.read[i].Name, err)
		}
	}
	return columns, nil
}

func (r *fileReader) openColumn(ctx context.Context, c fileColumn, group int) (columnSource, error) {
	f := &r.pages.Manifest.Fields[c.field]
	if meta := r.file.MetaData().RowGroup(group); r.flat(f, c.leaves, meta) {
		return r.openFlat(f, c.leaves, meta)
	}
	column, err := r.pages.GetFieldReader(ctx, c.field, c.leaves, []int{group})
	if err != nil {
		return nil, err
	}
	return arrowSource{column}, nil
}

// batch reads the next n rows.
func (r *fileReader) batch(columns []columnSource, n int64) (arrow.RecordBatch, error) {
	arrays := make([]arrow.Array, len(columns))
	defer func() {
		for _, a := range arrays {
			if a != nil {
				a.Release()
			}
		}
	}()
	for i := range columns {
		f := &r.plan.read[i]
		var err error
		switch {
		case r.columns[i].constant != nil:
			arrays[i] = array.NewSlice(r.columns[i].constant, 0, n)
		case columns[i] == nil:
			arrays[i] = nullArray(ArrowType(f.Type), int(n))
		default:
			if arrays[i], err = r.next(columns[i], &f.Field, n); err != nil {
				return nil, fmt.Errorf("column %q: %w", f.Name, err)
			}
		}
		if f.role == roleRowID || f.role == roleRowCommitVersion {
			arrays[i] = r.trackRows(f.role, arrays[i])
		}
	}
	return array.NewRecordBatch(r.plan.schema, arrays, n), nil
}

// next reads the next n values of a column and gives them the table's type.
func (r *fileReader) next(c columnSource, f *Field, n int64) (arrow.Array, error) {
	raw, err := c.next(n)
	if err != nil {
		return nil, err
	}
	defer raw.Release()
	return r.plan.mapping.conform(f, raw, f.Name)
}
