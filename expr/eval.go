package expr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Eval computes the expression for every row of the batch, whose schema must be the bound one as far as the
// expression reads it. The array is the caller's. Rows that failed are null in it and named by a *RowErrors,
// which comes together with the array; with any other error the array is nil. Errors: *RowErrors; ctx's
// error.
func (b *Bound) Eval(ctx context.Context, rec arrow.RecordBatch) (arrow.Array, error) {
	r, v, err := b.run(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer r.release()
	if r.faulty != nil {
		v = v.withValid(without(v.valid, r.faulty, v.rows))
	}
	return v.array(), r.rowErrors()
}

// Rows returns the rows of the batch for which the expression, a boolean, is true: neither false nor null nor
// failed. Errors: *RowErrors, together with the rows; ctx's error.
func (b *Bound) Rows(ctx context.Context, rec arrow.RecordBatch) ([]Span, error) {
	if kindOf(b.Type()) != kindBool && kindOf(b.Type()) != kindNull {
		return nil, place{1, 1, 1}.typeFault("a condition is boolean, found %s", typeName(b.Type()))
	}
	r, v, err := b.run(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer r.release()
	if kindOf(v.t) == kindNull {
		return nil, nil
	}
	truth := v.truth()
	if r.faulty != nil {
		truth = without(truth, r.faulty, v.rows)
	}
	return spansOf(truth, v.rows), r.rowErrors()
}

// Filter returns the rows of the batch for which the expression is true; the batch itself, retained, when
// that is all of them. The result is the caller's and may be empty. Errors: as Rows, with the batch.
func (b *Bound) Filter(ctx context.Context, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	rows, err := b.Rows(ctx, rec)
	var faults *RowErrors
	if err != nil && !errors.As(err, &faults) {
		return nil, err
	}
	return TakeBatch(rec, rows), err
}

// release lets go of the columns.
func (r *run) release() {
	for _, c := range r.columns {
		if c != nil {
			c.Release()
		}
	}
}

func (b *Bound) run(ctx context.Context, rec arrow.RecordBatch) (*run, *vector, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	r := &run{rows: int(rec.NumRows()), shared: make([]*vector, b.shared)}
	r.columns = make([]arrow.Array, b.schema.NumFields())
	for _, c := range b.columns {
		want := b.schema.Field(c)
		if c >= int(rec.NumCols()) || rec.ColumnName(c) != want.Name ||
			!arrow.TypeEqual(rec.Column(c).DataType(), want.Type) {
			return nil, nil, fmt.Errorf("evaluate %s: the batch is not of the schema that was bound: "+
				"wanted column %d to be %q of type %s", clip(b.String()), c, want.Name, want.Type)
		}
		column, err := Dense(rec.Column(c))
		if err != nil {
			r.release()
			return nil, nil, fmt.Errorf("evaluate %s: column %q: %w", clip(b.String()), want.Name, err)
		}
		r.columns[c] = column
	}
	now, ok := ctx.Value(clockKey{}).(time.Time)
	if !ok {
		now = time.Now()
	}
	r.micros = now.UnixMicro()
	v := b.root.eval(r, nil)
	if v.isConst() && v.offsets != nil && len(v.bytes(0))*v.rows > math.MaxInt32 {
		r.err = errTooLarge
	}
	if r.err != nil {
		r.release()
		return nil, nil, fmt.Errorf("evaluate %s: %w", clip(b.String()), r.err)
	}
	return r, v, nil
}
