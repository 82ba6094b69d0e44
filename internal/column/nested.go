package column

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Structs is a column of structs: its fields are columns of as many rows.
type Structs struct {
	Validity
	N      int // rows
	Fields []Column
}

// Rows is that of Column.
func (c *Structs) Rows() int { return c.N }

// AppendNull is that of Column.
func (c *Structs) AppendNull() {
	c.setNull(c.N)
	c.N++
	for _, f := range c.Fields {
		f.AppendNull()
	}
}

// Truncate is that of Column. It also drops what a record that failed has left in some of the fields.
func (c *Structs) Truncate(n int) {
	c.truncate(n)
	c.N = min(c.N, n)
	for _, f := range c.Fields {
		f.Truncate(n)
	}
}

// Reserve is that of Column.
func (c *Structs) Reserve() {
	for _, f := range c.Fields {
		f.Reserve()
	}
}

// Take is that of Column.
func (c *Structs) Take(t arrow.DataType) arrow.ArrayData {
	children := make([]arrow.ArrayData, len(c.Fields))
	for i, f := range c.Fields {
		children[i] = f.Take(t.(*arrow.StructType).Field(i).Type)
	}
	valid, nulls := c.take(c.N)
	data := array.NewData(t, c.N, []*memory.Buffer{valid}, children, nulls, 0)
	releaseAll(children)
	c.N = 0
	return data
}

// Lists is a column of lists, or of maps: offsets into the rows of its elements, which are one column, or two
// (keys and values).
type Lists struct {
	Validity
	Elements []Column
	offsets  []int32
	last     int
}

// NewLists returns an empty column.
func NewLists(v Validity, elements ...Column) *Lists {
	return &Lists{Validity: v, offsets: []int32{0}, Elements: elements}
}

// Rows is that of Column.
func (c *Lists) Rows() int { return len(c.offsets) - 1 }

// Begin is the first of the elements of the row.
func (c *Lists) Begin(row int) int { return int(c.offsets[row]) }

// Finish makes a row of the elements that were appended.
func (c *Lists) Finish() { c.offsets = append(c.offsets, int32(c.Elements[0].Rows())) }

// AppendNull is that of Column.
func (c *Lists) AppendNull() {
	c.setNull(c.Rows())
	c.Finish()
}

// Truncate is that of Column.
func (c *Lists) Truncate(n int) {
	if n < c.Rows() {
		c.truncate(n)
		c.offsets = c.offsets[:n+1]
	}
	for _, e := range c.Elements {
		e.Truncate(int(c.offsets[c.Rows()]))
	}
}

// Reserve is that of Column.
func (c *Lists) Reserve() {
	if cap(c.offsets) < c.last {
		c.offsets = append(make([]int32, 0, room(c.last)+1), 0)
	}
	for _, e := range c.Elements {
		e.Reserve()
	}
}

// Take is that of Column.
func (c *Lists) Take(t arrow.DataType) arrow.ArrayData {
	var child arrow.ArrayData
	switch t := t.(type) {
	case *arrow.MapType:
		child = c.takeEntries(t)
	case *arrow.ListType:
		child = c.Elements[0].Take(t.Elem())
	}
	rows := c.Rows()
	valid, nulls := c.take(rows)
	children := []arrow.ArrayData{child}
	data := array.NewData(t, rows, []*memory.Buffer{valid, bufferOf(c.offsets)}, children, nulls, 0)
	releaseAll(children)
	c.last, c.offsets = rows, []int32{0}
	return data
}

func (c *Lists) takeEntries(t *arrow.MapType) arrow.ArrayData {
	n := c.Elements[0].Rows()
	children := []arrow.ArrayData{c.Elements[0].Take(t.KeyType()), c.Elements[1].Take(t.ItemType())}
	entries := array.NewData(t.Elem(), n, []*memory.Buffer{nil}, children, 0, 0)
	releaseAll(children)
	return entries
}

func releaseAll(data []arrow.ArrayData) {
	for _, d := range data {
		d.Release()
	}
}
