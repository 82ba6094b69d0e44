package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// dayColumn tells the day in the rows of all days.
const dayColumn = "_day"

// scanCut yields the rows of a table at the cut, or at the ends of all days, to take.
func (c *cli) scanCut(ctx context.Context, name string, o readOptions, take func(arrow.RecordBatch) error) error {
	cuts, open, err := c.cutsOf(ctx, name, &o.cut)
	if err != nil {
		return err
	}
	if o.cut.days {
		return c.scanDays(ctx, name, o, cuts, open, take)
	}
	cut, err := o.cut.find(ctx, cuts)
	if err != nil {
		return err
	}
	return c.scanAt(ctx, name, o, cuts, open, cut, take)
}

func (c *cli) scanAt(ctx context.Context, name string, o readOptions, cuts *lake.Cuts, open lake.Opener, cut *lake.Cut,
	take func(arrow.RecordBatch) error) error {
	t, err := c.entry(ctx, name, cut)
	if err != nil {
		return err
	}
	o.at, o.cut = at{version: t.Version}, readCut{}
	err = c.scan(ctx, name, o, take)
	if err != nil {
		return explainGone(ctx, cuts, cut, open, err)
	}
	return nil
}

// scanDays yields the rows of the table at the end of every day, the first day first, in the columns that it has at the
// end of the last one and with the day.
func (c *cli) scanDays(ctx context.Context, name string, o readOptions, cuts *lake.Cuts, open lake.Opener,
	take func(arrow.RecordBatch) error) error {
	days, err := cuts.List(ctx, &lake.CutFilter{Days: true})
	if err != nil {
		return err
	}
	if len(days) == 0 {
		return usageError("no day is over of which a cut is kept", "write keep_daily into the pipeline")
	}
	wide, err := c.columnsAt(ctx, name, o, days[len(days)-1])
	if err != nil {
		return err
	}
	left := o.limit
	for _, cut := range days {
		if o.limit > 0 && left <= 0 {
			return nil
		}
		day := o
		day.limit = left
		if day.columns, err = c.columnsThen(ctx, name, o, cut); err != nil {
			return err
		}
		err := c.scanAt(ctx, name, day, cuts, open, cut, func(b arrow.RecordBatch) error {
			left -= b.NumRows()
			all, err := ofDay(b, wide, cut.Day())
			if err != nil {
				return err
			}
			defer all.Release()
			return take(all)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// columnsThen are those of the columns asked for that the table had at the cut; none, which is all, when it had none of them.
func (c *cli) columnsThen(ctx context.Context, name string, o readOptions, cut *lake.Cut) ([]string, error) {
	if len(o.columns) == 0 {
		return nil, nil
	}
	all := o
	all.columns = nil
	had, err := c.columnsAt(ctx, name, all, cut)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(o.columns), func(column string) bool { return !had.HasField(column) }), nil
}

// columnsAt are the columns that a scan of the cut yields.
func (c *cli) columnsAt(ctx context.Context, name string, o readOptions, cut *lake.Cut) (*arrow.Schema, error) {
	t, err := c.entry(ctx, name, cut)
	if err != nil {
		return nil, err
	}
	snap, err := c.snapshot(ctx, name, at{version: t.Version})
	if err != nil {
		return nil, err
	}
	whole := snap.Schema().Arrow()
	if len(o.columns) == 0 {
		return whole, nil
	}
	var fields []arrow.Field
	for _, column := range o.columns {
		i := whole.FieldIndices(column)
		if len(i) != 1 {
			return nil, usageError(fmt.Sprintf("--columns: found %q, wanted columns of the table with --days", column), "")
		}
		fields = append(fields, whole.Field(i[0]))
	}
	return arrow.NewSchema(fields, nil), nil
}

// ofDay puts the rows into these columns, null where they have none, behind the column of their day.
func ofDay(b arrow.RecordBatch, wide *arrow.Schema, day freshet.Day) (arrow.RecordBatch, error) {
	fields := []arrow.Field{{Name: dayColumn, Type: arrow.FixedWidthTypes.Date32}}
	days := array.NewDate32Builder(memory.DefaultAllocator)
	defer days.Release()
	for range b.NumRows() {
		days.Append(arrow.Date32(day))
	}
	columns := []arrow.Array{days.NewArray()}
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for _, f := range wide.Fields() {
		f.Nullable = true
		fields = append(fields, f)
		at := b.Schema().FieldIndices(f.Name)
		switch {
		case len(at) == 0:
			columns = append(columns, array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, int(b.NumRows())))
		case !arrow.TypeEqual(b.Column(at[0]).DataType(), f.Type):
			return nil, &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: day.String(),
				Msg: fmt.Sprintf("column %q was %s at the end of the day, and is %s now", f.Name,
					b.Column(at[0]).DataType(), f.Type),
				Fix: "leave it out with --columns, or read the day by itself with --as-of-day"}
		default:
			c := b.Column(at[0])
			c.Retain()
			columns = append(columns, c)
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, b.NumRows()), nil
}
