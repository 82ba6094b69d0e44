package delta

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// rowsFitter gives batches the columns that expressions over rows of a table can speak of: those whose Arrow types Delta
// lacks have the type of the table's column of their name, if their values may be its values, else the type that has them all.
type rowsFitter struct {
	fitter
	schema *arrow.Schema
	fields []Field // one a column; without a type where it stays as it is
}

// newRowsFitter returns nil when nothing is to be done. rows is dense.
func newRowsFitter(rows *arrow.Schema, table *Schema, truncate bool) (*rowsFitter, error) {
	columns := slices.Clone(rows.Fields())
	f := &rowsFitter{fitter: fitter{truncate: truncate}, fields: make([]Field, len(columns))}
	some := false
	for i, c := range columns {
		if !foreign(c.Type) {
			continue
		}
		own, faults := fieldsFromArrow(columns[i:i+1], "")
		if len(faults) > 0 {
			return nil, errors.Join(faults...)
		}
		if to, _ := table.Lookup(c.Name); to != nil && fits(to.Type, c.Type) {
			own[0].Type = to.Type
		}
		f.fields[i], columns[i].Type, some = own[0], ArrowType(own[0].Type), true
	}
	if !some {
		return nil, nil
	}
	metadata := rows.Metadata()
	f.schema = arrow.NewSchema(columns, &metadata)
	return f, nil
}

// batch returns the rows of a dense batch, the caller's. Errors: *ValueError.
func (f *rowsFitter) batch(b arrow.RecordBatch) (arrow.RecordBatch, error) {
	columns := slices.Clone(b.Columns())
	for i, field := range f.fields {
		if field.Type == nil {
			continue
		}
		fitted, err := f.fit(field.Type, columns[i], field.Name, false)
		if err != nil {
			return nil, err
		}
		defer fitted.Release()
		columns[i] = fitted
	}
	return array.NewRecordBatch(f.schema, columns, b.NumRows()), nil
}

// fitted is the dense source with columns that expressions can speak of beside those of the table.
func (r RowSource) fitted(table *Schema, truncate bool) (RowSource, error) {
	f, err := newRowsFitter(r.Schema, table, truncate)
	if f == nil || err != nil {
		return r, err
	}
	return RowSource{Schema: f.schema, Rows: func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return mapped(r.Rows(ctx), f.batch)
	}}, nil
}

// mapped yields what each batch becomes, and releases the batch. After an error it ends.
func mapped(rows iter.Seq2[arrow.RecordBatch, error], to func(arrow.RecordBatch) (arrow.RecordBatch, error),
) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for batch, err := range rows {
			if err != nil {
				yield(nil, err)
				return
			}
			out, err := to(batch)
			batch.Release()
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// fittedBatch is a batch of any layout as expressions can speak of it, the caller's.
func fittedBatch(b arrow.RecordBatch, table *Schema, truncate bool) (arrow.RecordBatch, error) {
	dense, err := expr.DenseBatch(b)
	if err != nil {
		return nil, err
	}
	f, err := newRowsFitter(dense.Schema(), table, truncate)
	if f == nil || err != nil {
		return dense, err
	}
	defer dense.Release()
	return f.batch(dense)
}
