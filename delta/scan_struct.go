package delta

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// structSource reads a struct without lists and maps: its strings and binaries by textSource, the rest of it, as a struct
// of those fields alone, by the Arrow library.
type structSource struct {
	root *structNode
	rest columnSource // nil: all fields are texts
}

// structNode is a struct or a field of one.
type structNode struct {
	field    *pqarrow.SchemaField
	text     *textSource   // of a text
	children []*structNode // of a struct
	rest     bool          // the Arrow library reads it, or a part of it
}

// openStruct opens a struct that holds texts; nil for other columns.
func (r *fileReader) openStruct(ctx context.Context, c fileColumn, group int) (columnSource, error) {
	f := &r.pages.Manifest.Fields[c.field]
	if f.Field.Type.ID() != arrow.STRUCT || !c.whole(f) {
		return nil, nil
	}
	rest := make(map[int]bool)
	s := &structSource{}
	var err error
	if s.root, err = r.openNode(f, group, rest); err != nil || len(rest) == len(c.leaves) {
		s.close()
		return nil, err
	}
	if len(rest) > 0 {
		column, err := r.pages.GetFieldReader(ctx, c.field, rest, []int{group})
		if err != nil {
			s.close()
			return nil, err
		}
		s.rest = arrowSource{column}
	}
	return s, nil
}

// whole reports whether all leaves below the field are read, and none is in a list.
func (c *fileColumn) whole(f *pqarrow.SchemaField) bool {
	if f.IsLeaf() {
		return c.leaves[f.ColIndex] && f.LevelInfo.RepLevel == 0
	}
	for i := range f.Children {
		if !c.whole(&f.Children[i]) {
			return false
		}
	}
	return f.Field.Type.ID() == arrow.STRUCT
}

// openNode opens the texts below a field, and adds the other leaves to rest.
func (r *fileReader) openNode(f *pqarrow.SchemaField, group int, rest map[int]bool) (*structNode, error) {
	n := &structNode{field: f}
	if f.IsLeaf() {
		var err error
		if n.text, err = r.openText(f, group); err == nil && n.text == nil {
			n.rest, rest[f.ColIndex] = true, true
		}
		return n, err
	}
	for i := range f.Children {
		child, err := r.openNode(&f.Children[i], group, rest)
		n.children = append(n.children, child)
		if err != nil {
			return n, err
		}
		n.rest = n.rest || child.rest
	}
	return n, nil
}

func (s *structSource) close() {
	s.root.close()
	if s.rest != nil {
		s.rest.close()
	}
}

func (n *structNode) close() {
	if n.text != nil {
		n.text.close()
	}
	for _, c := range n.children {
		c.close()
	}
}

func (s *structSource) next(n int64) (arrow.Array, error) {
	if s.rest == nil {
		return s.root.build(n, nil)
	}
	rest, err := s.rest.next(n)
	if err != nil {
		return nil, err
	}
	defer rest.Release()
	return s.root.build(n, rest)
}

// build reads the next rows of the node. rest is what the Arrow library read of it, nil: nothing.
func (n *structNode) build(rows int64, rest arrow.Array) (arrow.Array, error) {
	switch {
	case n.text != nil:
		return n.text.next(rows)
	case len(n.children) == 0:
		rest.Retain()
		return rest, nil
	}
	parts := make([]arrow.ArrayData, len(n.children))
	read := 0 // fields of rest that were used
	for i, c := range n.children {
		var part arrow.Array
		if c.rest {
			part = rest.(*array.Struct).Field(read)
			read++
		}
		child, err := c.build(rows, part)
		if err != nil {
			return nil, err
		}
		defer child.Release()
		parts[i] = child.Data()
	}
	valid, nulls := n.valid(int(rows), rest)
	data := array.NewData(n.field.Field.Type, int(rows), []*memory.Buffer{valid}, parts, nulls, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// valid tells which rows of a struct are not null, by what the Arrow library says or by the levels of a text in it.
func (n *structNode) valid(rows int, rest arrow.Array) (*memory.Buffer, int) {
	null := func(i int) bool { return rest.IsNull(i) }
	if rest == nil {
		defs, level := n.levels(), uint32(n.field.LevelInfo.DefLevel)
		null = func(i int) bool { return defs[i] < level }
		if len(defs) == 0 {
			return nil, 0
		}
	} else if rest.NullN() == 0 {
		return nil, 0
	}
	bitmap, nulls := make([]byte, (rows+7)/8), 0
	for i := range rows {
		if null(i) {
			nulls++
		} else {
			bitmap[i>>3] |= 1 << (i & 7)
		}
	}
	if nulls == 0 {
		return nil, 0
	}
	return memory.NewBufferBytes(bitmap), nulls
}

// levels are the definition levels of the last rows of the first text below the node; none when all are as high as can be.
func (n *structNode) levels() []uint32 {
	if n.text != nil {
		return n.text.defs
	}
	return n.children[0].levels()
}
