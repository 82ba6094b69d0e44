package delta

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

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
	f, err := openParquet(ctx, at.st, at.key, add.Size, &p.spares)
	if err != nil {
		return absent(err)
	}
	defer f.src.close()
	r := &fileReader{plan: p, add: add, file: f, key: at.key, rows: rows, coded: p.opts.coded,
		room: f.src.room()}
	if err := guardScan(at.key, r.open); err != nil {
		return err
	}
	for i := range f.NumRowGroups() {
		if err := r.readGroup(ctx, i, emit); err != nil {
			return err
		}
	}
	return nil
}

// emitRows takes rows of a file, and their positions where the plan wants them.
type emitRows func(batch arrow.RecordBatch, rows []int64) error

// rowsOf are the rows of a file that are read.
func (p *scanPlan) rowsOf(ctx context.Context, f wantedFile) (*fileRows, error) {
	if p.opts.Rows != nil && p.opts.Rows[f.index] != nil {
		return &fileRows{rows: p.opts.Rows[f.index].Iterator(), wanted: true}, nil
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
	key     string
	schema  *pqarrow.SchemaManifest
	columns []fileColumn // one a field of plan.read
	rows    *fileRows    // that are read; nil: all
	row     int64        // of the file, that comes next
	room    *parquet.Room
	held    int  // by the columns' readers
	coded   bool // texts may be dictionary arrays
}

// fileColumn is where a column's values come from: a field of the file, a constant, or, with neither, nowhere: it is null.
type fileColumn struct {
	field    *pqarrow.SchemaField
	leaves   map[int]bool // those that are wanted
	constant arrow.Array  // the partition value, as often as a batch has rows, or more often
}

func (r *fileReader) open() error {
	p := r.plan
	var err error
	// without what writers in Arrow say of their own types, which readers of values do not know
	if r.schema, err = manifestOf(r.file.MetaData().Schema, nil); err != nil {
		return err
	}
	fields := arrowFieldsOf(r.schema.Fields)
	for i := range p.read {
		c, at, read := fileColumn{}, -1, &p.read[i]
		switch {
		case read.role != roleData:
			at = slices.IndexFunc(fields, func(f arrow.Field) bool { return read.stored != "" && f.Name == read.stored })
		case p.parts[lowerName(&read.Field)]:
			if c.constant, err = r.partition(&read.Field); err != nil {
				return err
			}
		default:
			at = p.mapping.find(fields, &read.Field)
		}
		if at >= 0 {
			c.field, c.leaves = &r.schema.Fields[at], make(map[int]bool)
			p.mapping.choose(&read.Field, c.field, c.leaves)
		}
		r.columns = append(r.columns, c)
	}
	return nil
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
