package postgres

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// rows collects rows of one table into columns, value by value, in the text that the server writes of them. A row is
// what is given between begin and end: for each column of the table one call of text, null or unsent. Used by one
// goroutine.
type rows struct {
	table  *Table
	schema *arrow.Schema
	places []int // of the table's columns in the schema; -1: it is not there
	cells  []*cell
	texts  []*column.Text // of the table's columns: those that take text as it stands; nil: others
	hidden []Hiding       // of the table's columns; nil: nothing is hidden
	padded []bool         // of them: blanks at the end are no part of the value; with hidden
	mask   *freshet.Mask
	n      int // rows that end has ended
	size   int // bytes of text given since take
}

// newRows returns a collector for rows of the table into columns of the schema, which is what typeMap.fit said, or some
// of its columns. Errors: a column whose values do not go into its type.
func newRows(t *typeMap, table *Table, schema *arrow.Schema) (*rows, error) {
	r := &rows{table: table, schema: schema, places: make([]int, len(table.Columns)),
		cells: make([]*cell, schema.NumFields()), texts: make([]*column.Text, len(table.Columns))}
	for i := range table.Columns {
		c := &table.Columns[i]
		r.places[i] = indexOf(schema, columnName(c.Name))
		hiding := t.hiding(table, c)
		if hiding != (Hiding{}) {
			r.hide(t, i, hiding)
		}
		if hiding.LeftOut || c.Out {
			r.places[i] = -1
		}
		if r.places[i] < 0 {
			continue
		}
		field := schema.Field(r.places[i])
		made, err := t.columnCell(c, hiding, field.Type)
		if err != nil {
			if made = strangeCell(field.Type); made == nil || hiding.Key != nil {
				return nil, fmt.Errorf("table %s, column %s: %w", table, c.Name, err)
			}
		}
		if c.Unique || c.Key && table.Identity != IdentityFull || t.choices.Beyond == BeyondReject {
			made.beStrict()
		}
		r.cells[r.places[i]] = made
		if d, is := made.decoder.(*textDecoder); is && !d.padded {
			r.texts[i] = d.store
		}
	}
	for i, c := range r.cells {
		if c == nil {
			return nil, fmt.Errorf("table %s: found no column %q, wanted it: the target's table has it", table,
				schema.Field(i).Name)
		}
	}
	return r, nil
}

// indexOf is where in the schema the column is, -1: nowhere. Delta's names are equal when they differ in case alone.
func indexOf(schema *arrow.Schema, name string) int {
	if i := schema.FieldIndices(name); len(i) > 0 {
		return i[0]
	}
	for i, f := range schema.Fields() {
		if strings.EqualFold(f.Name, name) {
			return i
		}
	}
	return -1
}

// text appends the value of a column of the table. Error: *freshet.RejectError; the row must be undone.
func (r *rows) text(column int, value []byte) error {
	if r.texts[column] != nil && isASCII(value) {
		return r.ascii(column, value)
	}
	r.size += len(value)
	place := r.places[column]
	if place < 0 {
		return nil
	}
	if v := r.cells[place].text(value); v != taken {
		return r.fault(place, v, value)
	}
	return nil
}

// ascii is text of a value that is known to have no byte above 0x7f.
func (r *rows) ascii(column int, value []byte) error {
	if t := r.texts[column]; t != nil {
		r.size += len(value)
		t.Append(value)
		return nil
	}
	return r.text(column, value)
}

// null appends a null to a column of the table.
func (r *rows) null(column int) {
	if place := r.places[column]; place >= 0 {
		r.cells[place].store.AppendNull()
	}
}

// unsent appends a null to a column of the table that means nothing: the source did not say.
func (r *rows) unsent(column int) {
	place := r.places[column]
	if place < 0 {
		return
	}
	r.cells[place].store.AppendNull()
	if r.mask == nil {
		r.mask = freshet.NewMask(len(r.cells))
	}
	r.mask.Mark(r.n, place)
}

// begin begins a row. For the first since take it makes room for as many as that took: not before, as it may be long until a row
// comes, and there may be many tables.
func (r *rows) begin() {
	if r.n == 0 {
		for _, c := range r.cells {
			c.store.Reserve()
		}
	}
}

// end ends the row.
func (r *rows) end() { r.n++ }

// undo drops what was given since the last end.
func (r *rows) undo() {
	for _, c := range r.cells {
		c.store.Truncate(r.n)
	}
	r.mask = r.mask.Take(0, r.n)
}

// len is the number of rows since take.
func (r *rows) len() int { return r.n }

// bytes is how much text was given since take. Take before it reaches maxRowsBytes.
func (r *rows) bytes() int { return r.size }

// maxRowsBytes bounds the text of one batch: the offsets of a column are of 32 bits, and one value may have 1 GB.
const maxRowsBytes = 512 << 20

// nulled adds to counts, by the name of the column, how many values since the last call became null because the
// column's type cannot hold them, or were changed otherwise.
func (r *rows) nulled(counts map[string]int64) {
	for i, c := range r.cells {
		if n := c.changed(); n > 0 {
			counts[r.schema.Field(i).Name] += n
		}
	}
}

// take returns the rows, which are the caller's, and what was not sent of them, nil: nothing, and begins anew.
func (r *rows) take() (arrow.RecordBatch, *freshet.Mask) {
	columns := make([]arrow.Array, len(r.cells))
	for i, c := range r.cells {
		data := c.store.Take(r.schema.Field(i).Type)
		columns[i] = array.MakeFromData(data)
		data.Release()
	}
	batch := array.NewRecordBatch(r.schema, columns, int64(r.n))
	for _, c := range columns {
		c.Release()
	}
	mask := r.mask
	r.mask, r.n, r.size = nil, 0, 0
	return batch, mask
}

// fault says why the value cannot be.
func (r *rows) fault(place int, v verdict, value []byte) error {
	field := r.schema.Field(place)
	found := string(value[:min(len(value), maxShown)])
	if len(found) < len(value) {
		found += "…"
	}
	e := &freshet.RejectError{Path: field.Name, Offset: -1, Code: freshet.CodeWrongType,
		Message: fmt.Sprintf("found %q, wanted %s", found, field.Type)}
	if v == beyond {
		e.Code = freshet.CodeOutOfRange
		e.Message += ", which cannot hold it"
	}
	return e
}

// maxShown is how many bytes of a value a message shows.
const maxShown = 60
