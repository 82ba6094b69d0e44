package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sizeNode is the number of elements of an array or map; null where it is null.
type sizeNode struct{ of node }

func newSize(c *callSite) (node, error) {
	if _, err := c.listOf(); err != nil {
		return nil, err
	}
	return &sizeNode{c.args[0]}, nil
}

func (n *sizeNode) typ() arrow.DataType { return typeInt32 }
func (n *sizeNode) nullable() bool      { return n.of.nullable() }

func (n *sizeNode) eval(r *run, active bitset) *vector {
	of := n.of.eval(r, active)
	list := of.arr.(array.ListLike)
	out := &vector{t: typeInt32, rows: r.rows, mask: -1, valid: of.valid, owned: true, ints: make([]int64, r.rows)}
	for i := range out.ints {
		if of.valid.has(i) {
			start, end := list.ValueOffsets(i)
			out.ints[i] = end - start
		}
	}
	return out
}

// containsNode tells whether an array has a value; null where it has not and has a null.
type containsNode struct{ of, value node }

func newArrayContains(c *callSite) (node, error) {
	t, err := c.listOf()
	if err != nil {
		return nil, err
	}
	if _, isMap := t.(*arrow.MapType); isMap || kindOf(t.Elem()) == kindNested {
		return nil, c.typeFault("array_contains takes an array of plain values, found %s", typeName(t))
	}
	value, ok, err := coerce(c.args[1], t.Elem())
	if err != nil {
		return nil, err
	}
	if !ok {
		err := c.typeFault("the value of array_contains is of the wrong type")
		err.Found, err.Wanted = typeName(c.args[1].typ()), typeName(t.Elem())
		return nil, err
	}
	return &containsNode{c.args[0], value}, nil
}

func (n *containsNode) typ() arrow.DataType { return typeBool }
func (n *containsNode) nullable() bool      { return true }

func (n *containsNode) eval(r *run, active bitset) *vector {
	of, value := n.of.eval(r, active), n.value.eval(r, active)
	list := of.arr.(array.ListLike)
	elements := load(list.ListValues())
	out := &vector{t: typeBool, rows: r.rows, mask: -1, bools: newBits(r.rows), valid: newBits(r.rows)}
	one := &run{rows: 1}
	for i := range r.rows {
		if !of.valid.has(i) || !value.valid.has(i) {
			continue
		}
		out.valid.set(i)
		start, end := list.ValueOffsets(i)
		for at := int(start); at < int(end); at++ {
			if !elements.valid.has(at) {
				out.valid.clear(i)
				continue
			}
			if equalBits(elements.at(at), value.at(i), one.rows).has(0) {
				out.bools.set(i)
				out.valid.set(i)
				break
			}
		}
	}
	return out
}

// at is one value as a constant.
func (v *vector) at(i int) *vector {
	one := &vector{t: v.t, rows: 1}
	switch j := i & v.mask; kindOf(v.t) {
	case kindBool:
		one.bools = newBits(1)
		if v.bools.has(i) {
			one.bools.set(0)
		}
	case kindFloat:
		one.floats = v.floats[j : j+1]
	case kindDecimal:
		one.decimals = v.decimals[j : j+1]
	case kindString, kindBinary:
		one.offsets, one.data = v.offsets[j:j+2], v.data
	default:
		one.ints = v.ints[j : j+1]
	}
	return one
}
