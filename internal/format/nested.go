package format

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// structs is a column of structs: its fields are columns of as many rows.
type structs struct {
	validity
	n      int
	fields []column
}

func (c *structs) rows() int { return c.n }

func (c *structs) appendNull() {
	c.setNull(c.n)
	c.n++
	for _, f := range c.fields {
		f.appendNull()
	}
}

// truncate also drops what a record that failed has left in some of the fields.
func (c *structs) truncate(n int) {
	c.validity.truncate(n)
	c.n = min(c.n, n)
	for _, f := range c.fields {
		f.truncate(n)
	}
}

func (c *structs) reserve() {
	for _, f := range c.fields {
		f.reserve()
	}
}

func (c *structs) take(t arrow.DataType) arrow.ArrayData {
	children := make([]arrow.ArrayData, len(c.fields))
	for i, f := range c.fields {
		children[i] = f.take(t.(*arrow.StructType).Field(i).Type)
	}
	valid, nulls := c.validity.take(c.n)
	data := array.NewData(t, c.n, []*memory.Buffer{valid}, children, nulls, 0)
	releaseAll(children)
	c.n = 0
	return data
}

// lists is a column of lists, or of maps: offsets into the rows of its elements, which are one column, or two
// (keys and values).
type lists struct {
	validity
	offsets  []int32
	elements []column
	last     int
}

func newLists(v validity, elements ...column) *lists {
	return &lists{validity: v, offsets: []int32{0}, elements: elements}
}

func (c *lists) rows() int { return len(c.offsets) - 1 }

// finish makes a row of the elements that were appended.
func (c *lists) finish() { c.offsets = append(c.offsets, int32(c.elements[0].rows())) }

func (c *lists) appendNull() {
	c.setNull(c.rows())
	c.finish()
}

func (c *lists) truncate(n int) {
	if n < c.rows() {
		c.validity.truncate(n)
		c.offsets = c.offsets[:n+1]
	}
	for _, e := range c.elements {
		e.truncate(int(c.offsets[c.rows()]))
	}
}

func (c *lists) reserve() {
	if cap(c.offsets) < c.last {
		c.offsets = append(make([]int32, 0, room(c.last)+1), 0)
	}
	for _, e := range c.elements {
		e.reserve()
	}
}

func (c *lists) take(t arrow.DataType) arrow.ArrayData {
	var child arrow.ArrayData
	switch t := t.(type) {
	case *arrow.MapType:
		child = c.takeEntries(t)
	case *arrow.ListType:
		child = c.elements[0].take(t.Elem())
	}
	rows := c.rows()
	valid, nulls := c.validity.take(rows)
	children := []arrow.ArrayData{child}
	data := array.NewData(t, rows, []*memory.Buffer{valid, bufferOf(c.offsets)}, children, nulls, 0)
	releaseAll(children)
	c.last, c.offsets = rows, []int32{0}
	return data
}

func (c *lists) takeEntries(t *arrow.MapType) arrow.ArrayData {
	n := c.elements[0].rows()
	children := []arrow.ArrayData{c.elements[0].take(t.KeyType()), c.elements[1].take(t.ItemType())}
	entries := array.NewData(t.Elem(), n, []*memory.Buffer{nil}, children, 0, 0)
	releaseAll(children)
	return entries
}

func releaseAll(data []arrow.ArrayData) {
	for _, d := range data {
		d.Release()
	}
}
