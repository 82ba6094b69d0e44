package lake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// DeletedAtColumn is the timestamp column that SoftDeletes fills: null while the key is there.
const DeletedAtColumn = "_deleted_at"

// fill is a column of a table that the target fills: no source has it.
type fill struct {
	name string
	typ  arrow.DataType // nil: see PeriodOptions.fills
	// value appends the value of a row that this change made. It is the same on every replay. nil: what fills the column
	// is not one change (see PeriodOptions).
	value func(b array.Builder, c cause)
}

// cause is the change that made a row of a table what it is.
type cause struct {
	of   *causes
	row  int          // of the batch
	kind freshet.Kind // the old image of an update that changed its key is a Delete
}

// causes are the changes of a batch.
type causes struct {
	*freshet.Batch
	names []string                                     // of the columns that the source has
	nth   []int64                                      // of each row: its place among those of its record
	place func(row int) (lane freshet.Lane, seq int64) // of each row
}

func newCauses(b *freshet.Batch) *causes {
	c := &causes{Batch: b, nth: make([]int64, len(b.Seqs))}
	for _, f := range b.Rows.Schema().Fields() {
		c.names = append(c.names, f.Name)
	}
	c.place = func(row int) (freshet.Lane, int64) {
		if at := b.Behind; at != nil {
			return at.Lane, at.Seq
		}
		return b.Lane, b.Seqs[row]
	}
	for i, place := range b.Places {
		c.nth[i] = int64(place)
	}
	for i := 1; i < len(c.nth) && b.Places == nil; i++ {
		if b.Seqs[i] == b.Seqs[i-1] {
			c.nth[i] = c.nth[i-1] + 1
		}
	}
	return c
}

// at is the change of a row.
func (c *causes) at(row int) cause {
	k := cause{of: c, row: row}
	if c.Kinds != nil {
		k.kind = c.Kinds[row]
	}
	return k
}

// stamp is what the origin tells of the change.
func (c cause) stamp() freshet.Stamp {
	if c.of.Stamps == nil {
		return freshet.Stamp{Ordinal: -1}
	}
	return c.of.Stamps[c.row]
}

// committed is when the origin committed the change, in microseconds since 1970 UTC, or else the time of the record that
// it came in; 0 when neither is known.
func (c cause) committed() int64 {
	if at := c.stamp().Committed; at != 0 || c.of.Records == nil {
		return at
	}
	if at := c.of.Records[c.row].Record().Time; !at.IsZero() {
		return at.UnixMicro()
	}
	return 0
}

// ordinal is the place of the change within its transaction, or else among the rows of its record.
func (c cause) ordinal() int64 {
	if n := c.stamp().Ordinal; n >= 0 {
		return n
	}
	return c.of.nth[c.row]
}

// fills are the columns that a target with these options fills.
func (o *TargetOptions) fills() []fill {
	var all []fill
	if o.Mode.keyed() && o.Key.Deletes == SoftDeletes {
		all = append(all, fill{DeletedAtColumn, arrow.FixedWidthTypes.Timestamp_us, fillDeletedAt})
	}
	if o.Mode == SCD2 {
		all = o.Periods.fills(o.sequenceType())
	}
	for _, name := range o.ChangeColumns {
		if f, ok := changeFill(name); ok {
			all = append(all, f)
		}
	}
	return all
}

// fillDeletedAt is when the origin committed the delete, as far as it says, else when its record was received.
func fillDeletedAt(b array.Builder, c cause) {
	if c.kind != freshet.Delete {
		b.AppendNull()
		return
	}
	at := c.committed()
	if at == 0 {
		at = c.of.ReadAt.UnixMicro()
	}
	b.(*array.TimestampBuilder).Append(arrow.Timestamp(at))
}

// fillNamed is the column of this name that the target fills, its case ignored.
func fillNamed(fills []fill, name string) (fill, bool) {
	i := slices.IndexFunc(fills, func(f fill) bool { return strings.EqualFold(f.name, name) })
	if i < 0 {
		return fill{}, false
	}
	return fills[i], true
}

// column is the column for n rows, of which each came from a change.
func (f fill) column(n int, of func(i int) cause) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, f.typ)
	defer b.Release()
	b.Reserve(n)
	for i := range n {
		f.value(b, of(i))
	}
	return b.NewArray()
}

// FilledColumns are the columns that a target with these options fills, in the order in which a table gets them behind
// those of the source, all of them nullable; of type null where the source's sequence decides. The source must not have
// columns of these names.
func FilledColumns(opts *TargetOptions) []arrow.Field {
	o := NewTarget(nil, "", opts).opts
	var fields []arrow.Field
	for _, f := range o.fills() {
		if f.typ == nil {
			f.typ = arrow.Null
		}
		fields = append(fields, arrow.Field{Name: f.name, Type: f.typ, Nullable: true})
	}
	return fields
}

// withFills are the columns of a table for rows of these columns. Errors: *freshet.Error for rows that have a column which
// the target fills.
func (t *table) withFills(rows *delta.Schema) (*delta.Schema, error) {
	if len(t.fills) == 0 {
		return rows, nil
	}
	fields := make([]arrow.Field, len(t.fills))
	for i, f := range t.fills {
		if have, _ := rows.Lookup(f.name); have != nil {
			return nil, &freshet.Error{Code: freshet.CodeFilledColumn, Class: freshet.ClassInput, Place: t.name,
				Msg: fmt.Sprintf("column %q: the source has it, and the target is to fill it", have.Name),
				Fix: "rename the source's in a select step, or have the target not fill it"}
		}
		if f.typ == nil {
			if f = t.opts.sequenced(f, rows); f.typ == nil {
				return nil, t.opts.checkKey(t.name, rows)
			}
		}
		fields[i] = arrow.Field{Name: f.name, Type: f.typ, Nullable: true}
	}
	more, err := delta.SchemaFromArrow(arrow.NewSchema(fields, nil))
	if err != nil {
		return nil, err
	}
	whole, _, err := rows.Merge(more)
	return whole, err
}

// withoutFills are the columns that a source may have: those of a table less what the target fills.
func withoutFills(fills []fill, table *arrow.Schema) *arrow.Schema {
	if len(fills) == 0 {
		return table
	}
	fields := slices.DeleteFunc(slices.Clone(table.Fields()), func(f arrow.Field) bool {
		_, is := fillNamed(fills, f.Name)
		return is
	})
	meta := table.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// fillRows adds to the batch the columns that the target fills.
func (t *table) fillRows(c *causes) {
	if len(t.fills) == 0 {
		return
	}
	rows := c.Rows
	columns, fields := slices.Clone(rows.Columns()), slices.Clone(rows.Schema().Fields())
	for _, f := range t.fills {
		column := f.column(c.NumRows(), c.at)
		defer column.Release()
		columns = append(columns, column)
		fields = append(fields, arrow.Field{Name: f.name, Type: f.typ, Nullable: true})
	}
	meta := rows.Schema().Metadata()
	c.Rows = array.NewRecordBatch(arrow.NewSchema(fields, &meta), columns, rows.NumRows())
	rows.Release()
}

// entryCauses are the changes of a batch whose seqs are indices into entries.
func entryCauses(b *freshet.Batch, entries []*Entry) *causes {
	c := newCauses(b)
	c.place = func(row int) (freshet.Lane, int64) { return entries[b.Seqs[row]].stands() }
	return c
}
