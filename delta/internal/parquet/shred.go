package parquet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// node is a column or a node below one.
type node struct {
	col      *Column
	children []*node
	leaf     *leaf
	stats    *Stats // nil inside lists and maps, and for structs
	rep      uint8  // repetition level of this node's own repetition (lists, maps)

	ordinal int
}

// nodeScratch is room for the levels that a node makes. They live until the walk comes to the same node again.
type nodeScratch struct {
	idx []int32 // of the entries that are not null
	def []uint8

	elements    []int32 // of a list's elements, where in the array of elements they are
	elementDefs []uint8
	elementReps []uint8
}

// levels is the state of Dremel's shredding at one node: one entry a value, a null, or an empty list.
type levels struct {
	idx   []int32 // where in the node's array the entry is; -1 where an ancestor is null or an empty list
	def   []uint8 // definition levels; nil when all are d
	rep   []uint8 // repetition levels; nil when all are 0
	d     uint8   // the definition level of entries that are there
	alive int     // entries that are there
}

func (w *Writer) newNode(c *Column, path []string, def, rep uint8, counted bool, count *int) *node {
	n := &node{col: c, ordinal: *count}
	*count++
	path = append(slices.Clone(path), c.Name)
	if c.Nullable {
		def++
	}
	if counted && c.Kind != Struct {
		n.stats = &Stats{}
	}
	switch c.Kind {
	case Struct:
		for i := range c.Children {
			n.children = append(n.children, w.newNode(&c.Children[i], path, def, rep, counted, count))
		}
	case List:
		n.rep = rep + 1
		path = append(path, "list")
		n.children = []*node{w.newNode(&c.Children[0], path, def+1, rep+1, false, count)}
	case Map:
		n.rep = rep + 1
		path = append(path, "key_value")
		for i := range c.Children {
			n.children = append(n.children, w.newNode(&c.Children[i], path, def+1, rep+1, false, count))
		}
	default:
		n.leaf = newLeaf(c, path, def, rep, len(w.leaves), n.stats)
		w.leaves = append(w.leaves, n.leaf)
	}
	return n
}

func (n *node) resetStats() {
	if n.stats != nil {
		*n.stats = Stats{}
	}
	for _, c := range n.children {
		c.resetStats()
	}
}

// walk takes the entries through the node and its children to the leaves.
func (w *Writer) walk(n *node, arr arrow.Array, lv levels) error {
	if n.col.Nullable {
		lv = w.nodes[n.ordinal].enter(arr, lv)
	} else if err := n.require(arr, lv); err != nil {
		return err
	}
	if n.stats != nil {
		n.stats.Nulls += int64(len(lv.idx) - lv.alive)
	}
	if lv.alive == 0 {
		arr = nil // its type does not matter: an array of type null is welcome
	}
	switch n.col.Kind {
	case Struct:
		return w.walkStruct(n, arr, lv)
	case List, Map:
		return w.walkList(n, arr, lv)
	}
	return n.leaf.add(w, arr, lv)
}

// enter ends the entries that are null.
func (n *nodeScratch) enter(arr arrow.Array, lv levels) levels {
	if arr != nil && arr.NullN() == 0 {
		if lv.def != nil {
			n.def = append(n.def[:0], lv.def...)
			for i, at := range lv.idx {
				if at >= 0 {
					n.def[i] = lv.d + 1
				}
			}
			lv.def = n.def
		}
		lv.d++
		return lv
	}
	size := len(lv.idx)
	n.idx = slices.Grow(n.idx[:0], size)[:size]
	n.def = slices.Grow(n.def[:0], size)[:size]
	var bits []byte
	offset := 0
	if arr != nil {
		bits, offset = arr.NullBitmapBytes(), arr.Data().Offset()
	}
	alive := 0
	for i, at := range lv.idx {
		d := lv.d
		if lv.def != nil {
			d = lv.def[i]
		}
		if at >= 0 && bits != nil && bitutil.BitIsSet(bits, offset+int(at)) {
			d = lv.d + 1
			alive++
		} else {
			at = -1
		}
		n.idx[i], n.def[i] = at, d
	}
	lv.idx, lv.def, lv.alive = n.idx, n.def, alive
	lv.d++
	return lv
}

var errNull = errors.New("a null where the schema says NOT NULL")

// require checks that no entry is null.
func (n *node) require(arr arrow.Array, lv levels) error {
	if lv.alive == 0 || arr != nil && arr.NullN() == 0 {
		return nil
	}
	for _, at := range lv.idx {
		if at >= 0 && (arr == nil || arr.IsNull(int(at))) {
			return errNull
		}
	}
	return nil
}

func (w *Writer) walkStruct(n *node, arr arrow.Array, lv levels) error {
	var s *array.Struct
	if arr != nil {
		var ok bool
		if s, ok = arr.(*array.Struct); !ok {
			return fmt.Errorf("found %s, wanted a struct", arr.DataType())
		}
	}
	for _, c := range n.children {
		if err := w.walk(c, childOf(s, c.col.Source()), lv); err != nil {
			return fmt.Errorf("field %q: %w", c.col.Name, err)
		}
	}
	return nil
}

// childOf returns the field of that name, its case ignored; nil when there is none.
func childOf(s *array.Struct, name string) arrow.Array {
	if s == nil {
		return nil
	}
	t := s.DataType().(*arrow.StructType)
	if i, ok := t.FieldIdx(name); ok {
		return s.Field(i)
	}
	for i, f := range t.Fields() {
		if strings.EqualFold(f.Name, name) {
			return s.Field(i)
		}
	}
	return nil
}

func (w *Writer) walkList(n *node, arr arrow.Array, lv levels) error {
	children, scratch := make([]arrow.Array, len(n.children)), &w.nodes[n.ordinal]
	switch a := arr.(type) {
	case nil:
		lv = expand[int32](n.rep, scratch, nil, lv)
	case *array.Map:
		if n.col.Kind != Map {
			return fmt.Errorf("found %s, wanted a list", arr.DataType())
		}
		lv = expand(n.rep, scratch, a.Offsets()[a.Data().Offset():], lv)
		children[0], children[1] = a.Keys(), a.Items()
	case *array.List:
		if n.col.Kind != List {
			return fmt.Errorf("found %s, wanted a map", arr.DataType())
		}
		lv = expand(n.rep, scratch, a.Offsets()[a.Data().Offset():], lv)
		children[0] = a.ListValues()
	case *array.LargeList:
		if n.col.Kind != List {
			return fmt.Errorf("found %s, wanted a map", arr.DataType())
		}
		lv = expand(n.rep, scratch, a.Offsets()[a.Data().Offset():], lv)
		children[0] = a.ListValues()
	default:
		return fmt.Errorf("found %s, wanted a list or map", arr.DataType())
	}
	for i, c := range n.children {
		if err := w.walk(c, children[i], lv); err != nil {
			return fmt.Errorf("%s: %w", c.col.Name, err)
		}
	}
	return nil
}

// expand replaces each list by its elements; a list that is empty, or not there, stays as one dead entry.
func expand[T int32 | int64](rep uint8, n *nodeScratch, offsets []T, lv levels) levels {
	idx, def, reps := n.elements[:0], n.elementDefs[:0], n.elementReps[:0]
	alive := 0
	for i, at := range lv.idx {
		d, r := lv.d, uint8(0)
		if lv.def != nil {
			d = lv.def[i]
		}
		if lv.rep != nil {
			r = lv.rep[i]
		}
		if at < 0 || offsets[at] == offsets[at+1] {
			idx, def, reps = append(idx, -1), append(def, d), append(reps, r)
			continue
		}
		for e := offsets[at]; e < offsets[at+1]; e++ {
			idx, def, reps = append(idx, int32(e)), append(def, lv.d+1), append(reps, r)
			r = rep
		}
		alive += int(offsets[at+1] - offsets[at])
	}
	n.elements, n.elementDefs, n.elementReps = idx, def, reps
	return levels{idx: idx, def: def, rep: reps, d: lv.d + 1, alive: alive}
}
