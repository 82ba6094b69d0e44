package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
	"github.com/freshet-io/freshet/internal/veil"
)

// Hiding is what is hidden of a column. Values are hidden where they are decoded: nothing behind that has them, and what is kept before,
// as a transaction that does not fit in memory, is encrypted.
type Hiding struct {
	Key     *veil.Key // values become their hashes under it, as text; nil: they stay as they are
	LeftOut bool      // the column is left out, as if the table had none of the name
}

// hiding is what is hidden of a column of the table.
func (t *typeMap) hiding(table *Table, c *Column) Hiding {
	if t.choices.Hidden == nil {
		return Hiding{}
	}
	return t.choices.Hidden(table.String(), columnName(c.Name))
}

// shown is the table without the columns that are left out; nil: none.
func (t *typeMap) shown(table *Table) *Table {
	if table == nil || t.choices.Hidden == nil {
		return table
	}
	some := *table
	some.Columns = slices.DeleteFunc(slices.Clone(table.Columns), func(c Column) bool { return t.hiding(table, &c).LeftOut })
	return &some
}

// shownOf is the schema of a table's Delta table without columns that are left out by now.
func (t *typeMap) shownOf(table *Table, known *arrow.Schema) *arrow.Schema {
	if t.choices.Hidden == nil {
		return known
	}
	meta := known.Metadata()
	return arrow.NewSchema(slices.DeleteFunc(slices.Clone(known.Fields()),
		func(f arrow.Field) bool { return t.choices.Hidden(table.String(), f.Name).LeftOut }), &meta)
}

// maskDecoder keeps the hashes of values.
type maskDecoder struct {
	store  *column.Text
	hasher *veil.Hasher
	padded bool // blanks at the end are no part of a value
}

func (d *maskDecoder) text(b []byte) verdict {
	if d.padded {
		b = bytes.TrimRight(b, " ")
	}
	d.store.Data = d.hasher.Append(d.store.Data, b)
	d.store.Finish()
	return taken
}

// maskCell is the cell for values of a column that is masked. Errors: its column has no text.
func maskCell(p pgType, key *veil.Key, to arrow.DataType) (*cell, error) {
	if to.ID() != arrow.STRING {
		return nil, fmt.Errorf("found the column's type %s, wanted string for hashes: load the table again", to)
	}
	store := column.NewText(column.Validity{})
	return &cell{decoder: &maskDecoder{store: store, hasher: key.Hasher(), padded: p.kind == kindPadded}, store: store}, nil
}

// hashed stands in quarantine for a value that is masked.
type hashed struct {
	Hash string `json:"hash"`
}

// told is what quarantine is told of a value: the text, or its hash; ok is false where the column is left out.
func (r *rows) told(column int, value []byte) (_ any, ok bool) {
	if r.hidden == nil {
		return legible(value), true
	}
	switch h := r.hidden[column]; {
	case h.LeftOut:
		return nil, false
	case h.Key != nil:
		if r.padded[column] {
			value = bytes.TrimRight(value, " ")
		}
		return hashed{h.Key.Hash(string(value))}, true
	}
	return legible(value), true
}

// legible is a value as text that JSON can have.
func legible(value []byte) string { return strings.ToValidUTF8(string(value), "\uFFFD") }

// retell appends what quarantine was told of a value. Errors: *freshet.RejectError.
func (r *rows) retell(i int, told json.RawMessage) error {
	var value string
	if json.Unmarshal(told, &value) == nil {
		return r.text(i, []byte(value))
	}
	var h hashed
	name := r.table.Columns[i].Name
	if json.Unmarshal(told, &h) != nil || len(h.Hash) != veil.HashLen {
		return &freshet.RejectError{Code: freshet.CodeMalformed, Path: name, Offset: -1,
			Message: "found neither the text of a value nor a hash"}
	}
	place := r.places[i]
	if place < 0 {
		return nil
	}
	d, masked := r.cells[place].decoder.(*maskDecoder)
	if !masked {
		return &freshet.RejectError{Code: freshet.CodeMalformed, Path: name, Offset: -1,
			Message: "quarantine has the hash of the value alone, and the column is not masked any more: load the table again for it, or give it up"}
	}
	d.store.Append([]byte(h.Hash))
	return nil
}

// sealer is the key under which bounds of chunks are sealed, which are values of the table's key; nil: none of them is masked.
func (s *Source) sealer(f *feed) *veil.Key {
	if s.o.Types.Hidden == nil {
		return nil
	}
	for _, name := range s.Key(f.name) {
		if key := s.o.Types.Hidden(f.sourceName(), name).Key; key != nil {
			return key
		}
	}
	return nil
}

// parseMark reads the bookmark of a chunk of the feed, which may be sealed.
func (s *Source) parseMark(f *feed, b []byte) (*chunkMark, error) {
	if !veil.IsSealed(b) {
		return parseMark(b)
	}
	key := s.sealer(f)
	if key == nil {
		return nil, veil.ErrKey
	}
	plain, err := veil.Open(b, []*veil.Key{key})
	if err != nil {
		return nil, fmt.Errorf("the bookmark of a chunk: %w", err)
	}
	return parseMark(plain)
}

// hide notes what is hidden of a column.
func (r *rows) hide(t *typeMap, column int, h Hiding) {
	if r.hidden == nil {
		r.hidden, r.padded = make([]Hiding, len(r.table.Columns)), make([]bool, len(r.table.Columns))
	}
	c := &r.table.Columns[column]
	p, _ := t.resolve(c.Type, c.Modifier)
	r.hidden[column], r.padded[column] = h, p.kind == kindPadded
}

// columnCell is the cell for values of a column of a table. Errors: they do not go into a column of the type.
func (t *typeMap) columnCell(c *Column, h Hiding, to arrow.DataType) (*cell, error) {
	if h.Key == nil {
		return t.newCell(c.Type, c.Modifier, to, 0)
	}
	p, _ := t.resolve(c.Type, c.Modifier)
	return maskCell(p, h.Key, to)
}

// tellHidden tells of columns that are left out and that the table has, from before: nothing is wrong with that, but their values are there.
func (s *Source) tellHidden(f *feed, t *Table, known *arrow.Schema) {
	for _, field := range known.Fields() {
		if s.types.choices.Hidden != nil && s.types.choices.Hidden(t.String(), field.Name).LeftOut {
			s.o.Log.Warn("a column is left out, and the table has it: rows keep what they have in it until the table is loaded again",
				"table", f.name, "column", field.Name)
		}
	}
}
