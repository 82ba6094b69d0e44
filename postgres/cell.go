package postgres

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet/internal/column"
)

// verdict is what becomes of a value.
type verdict uint8

const (
	taken     verdict = iota // it was appended
	malformed                // it is no value of the source's type
	beyond                   // it is one that the column's type cannot hold
)

// decoder appends a value, given as text, to its column. Unless the value is taken nothing but what Truncate drops was
// appended.
type decoder interface {
	text(value []byte) verdict
}

// cell is a column of values, or one within a column, with what becomes of those it cannot hold.
type cell struct {
	decoder decoder
	store   column.Column
	strict  bool  // what is beyond the column's type is not taken; else it becomes null
	nulled  int64 // how many became null
	inner   []*cell
}

// text appends a value.
func (c *cell) text(value []byte) verdict {
	v := c.decoder.text(value)
	if v == taken || v == malformed || c.strict {
		return v
	}
	c.store.Truncate(c.store.Rows())
	c.store.AppendNull()
	c.nulled++
	return taken
}

// beStrict has it take nothing that it cannot hold, nor what is within it.
func (c *cell) beStrict() {
	c.strict = true
	for _, in := range c.inner {
		in.beStrict()
	}
}

// changed returns how many values were changed since the last call.
func (c *cell) changed() int64 {
	n := c.nulled
	c.nulled = 0
	if d, ok := c.decoder.(*textDecoder); ok {
		n += d.replaced
		d.replaced = 0
	}
	for _, in := range c.inner {
		n += in.changed()
	}
	return n
}

// newCell makes the cell for values of a type of the source in a column of a type of Delta. Errors: they do not go
// together.
func (t *typeMap) newCell(oid uint32, modifier int32, to arrow.DataType, depth int) (*cell, error) {
	p, modifier := t.resolve(oid, modifier)
	if c := scalarCell(p, to); c != nil {
		return c, nil
	}
	if depth <= maxNested {
		c, err := t.nestedCell(p, modifier, to, depth+1)
		if c != nil || err != nil {
			return c, err
		}
	}
	return nil, fmt.Errorf("found values of the type %s, wanted ones that go into the column's type %s: "+
		"load the table anew, or make the column text", t.describe(oid, modifier), to)
}

// strangeCell is the cell for values of a type that does not go into the column, since the source has changed it: each value
// that reads as one of the column's is taken, and no other. nil: there is none for columns of several values a row.
func strangeCell(to arrow.DataType) *cell {
	var like pgType
	switch to := to.(type) {
	case *arrow.BooleanType:
		like.kind = kindBool
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		like.kind, like.bits = kindInt, to.(arrow.FixedWidthDataType).BitWidth()
	case *arrow.Float32Type, *arrow.Float64Type:
		like.kind, like.bits = kindFloat, to.(arrow.FixedWidthDataType).BitWidth()
	case *arrow.Decimal128Type:
		like.kind = kindNumeric
	case *arrow.Date32Type:
		like.kind = kindDate
	case *arrow.TimestampType:
		if like.kind = kindStamp; to.TimeZone != "" {
			like.kind = kindInstant
		}
	case *arrow.BinaryType:
		like.kind = kindBytes
	default:
		return nil
	}
	c := scalarCell(like, to)
	if c != nil {
		c.beStrict()
	}
	return c
}

// scalarCell is newCell for columns of one value a row; nil: they do not go together.
func scalarCell(p pgType, to arrow.DataType) *cell {
	whole := p.kind == kindInt
	switch to := to.(type) {
	case *arrow.StringType:
		store := column.NewText(column.Validity{})
		return &cell{decoder: &textDecoder{store: store, padded: p.kind == kindPadded}, store: store}
	case *arrow.BooleanType:
		if p.kind == kindBool {
			store := &column.Bools{}
			return &cell{decoder: &boolDecoder{store}, store: store}
		}
	case *arrow.Int16Type:
		return fixedCell(whole && p.bits <= 16, func(s *column.Fixed[int16]) decoder { return &intDecoder[int16]{s} })
	case *arrow.Int32Type:
		return fixedCell(whole && p.bits <= 32, func(s *column.Fixed[int32]) decoder { return &intDecoder[int32]{s} })
	case *arrow.Int64Type:
		return fixedCell(whole, func(s *column.Fixed[int64]) decoder { return &intDecoder[int64]{s} })
	case *arrow.Float32Type:
		return fixedCell(p.kind == kindFloat && p.bits == 32,
			func(s *column.Fixed[float32]) decoder { return &floatDecoder[float32]{s, 32} })
	case *arrow.Float64Type:
		return fixedCell(p.kind == kindFloat || p.kind == kindNumeric,
			func(s *column.Fixed[float64]) decoder { return &floatDecoder[float64]{s, 64} })
	case *arrow.Decimal128Type:
		return decimalCell(p, to)
	case *arrow.Date32Type:
		return fixedCell(p.kind == kindDate, func(s *column.Fixed[int32]) decoder { return &dateDecoder{store: s} })
	case *arrow.TimestampType:
		return stampCell(p, to)
	case *arrow.BinaryType:
		if p.kind == kindBytes || p.kind == kindHex {
			store := column.NewText(column.Validity{})
			return &cell{decoder: &bytesDecoder{store, p.kind == kindBytes}, store: store}
		}
	}
	return nil
}

// fixedCell is a cell of values of one width, nil unless they go together.
func fixedCell[T int16 | int32 | int64 | float32 | float64 | decimal128.Num](together bool,
	decode func(*column.Fixed[T]) decoder) *cell {
	if !together {
		return nil
	}
	store := &column.Fixed[T]{}
	return &cell{decoder: decode(store), store: store}
}

func decimalCell(p pgType, to *arrow.Decimal128Type) *cell {
	precision, scale := int(to.Precision), int(to.Scale)
	return fixedCell(p.kind == kindInt || p.kind == kindXID8 || p.kind == kindNumeric || p.kind == kindMoney,
		func(s *column.Fixed[decimal128.Num]) decoder {
			d := decimalDecoder{s, precision, scale}
			if p.kind == kindMoney {
				return &moneyDecoder{decimalDecoder: d}
			}
			return &d
		})
}

// stampCell takes timestamps without a zone also into instants, as if they were of UTC, but not the other way round.
func stampCell(p pgType, to *arrow.TimestampType) *cell {
	if to.Unit != arrow.Microsecond {
		return nil
	}
	return fixedCell(p.kind == kindStamp || p.kind == kindInstant && to.TimeZone != "",
		func(s *column.Fixed[int64]) decoder { return &stampDecoder{store: s, zoned: p.kind == kindInstant} })
}

// nestedCell is newCell for columns of several values a row; nil: they do not go together.
func (t *typeMap) nestedCell(p pgType, modifier int32, to arrow.DataType, depth int) (*cell, error) {
	switch to := to.(type) {
	case *arrow.MapType:
		if p.kind == kindMap {
			return mapCell(to), nil
		}
	case *arrow.ListType:
		return t.listCell(p, modifier, to, depth)
	case *arrow.StructType:
		if p.kind == kindStruct {
			return t.structCell(p, to, depth)
		}
	}
	return nil, nil
}

func mapCell(to *arrow.MapType) *cell {
	if to.KeyType().ID() != arrow.STRING || to.ItemType().ID() != arrow.STRING {
		return nil
	}
	text := pgType{kind: kindText}
	key, value := scalarCell(text, to.KeyType()), scalarCell(text, to.ItemType())
	store := column.NewLists(column.Validity{}, key.store, value.store)
	return &cell{decoder: &mapDecoder{store: store, key: key, value: value}, store: store, inner: []*cell{key, value}}
}

func (t *typeMap) listCell(p pgType, modifier int32, to *arrow.ListType, depth int) (*cell, error) {
	var element *cell
	var err error
	switch p.kind {
	case kindArray:
		element, err = t.newCell(p.of, modifier, to.Elem(), depth)
	case kindVector:
		element = scalarCell(pgType{kind: kindFloat, bits: 32}, to.Elem())
	}
	if element == nil || err != nil {
		return nil, err
	}
	store := column.NewLists(column.Validity{}, element.store)
	c := &cell{store: store, inner: []*cell{element}}
	if p.kind == kindVector {
		c.decoder = &vectorDecoder{store, element}
		return c, nil
	}
	delimiter := byte(',')
	if of, _ := t.resolve(p.of, 0); of.delimiter != 0 {
		delimiter = of.delimiter
	}
	c.decoder = &arrayDecoder{store: store, element: element, delimiter: delimiter}
	return c, nil
}

// structCell takes the attributes by name. Those that the column lacks are left out, and those that it has beyond them are
// null: an attribute may have been added or dropped since the column was made.
func (t *typeMap) structCell(p pgType, to *arrow.StructType, depth int) (*cell, error) {
	store := &column.Structs{}
	d := &structDecoder{store: store}
	c := &cell{store: store, decoder: d}
	byName := map[string]int{}
	for i, f := range to.Fields() {
		byName[f.Name] = i
	}
	fields := make([]*cell, to.NumFields())
	for _, a := range p.fields {
		i, there := byName[a.Name]
		if !there {
			d.attributes = append(d.attributes, nil)
			continue
		}
		made, err := t.newCell(a.Type, a.Modifier, to.Field(i).Type, depth)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", a.Name, err)
		}
		fields[i] = made
		d.attributes = append(d.attributes, made)
		c.inner = append(c.inner, made)
	}
	for i, made := range fields {
		if made == nil {
			return nil, fmt.Errorf("found a composite type without the attribute %s, wanted it: the column has it",
				to.Field(i).Name)
		}
		store.Fields = append(store.Fields, made.store)
	}
	return c, nil
}
