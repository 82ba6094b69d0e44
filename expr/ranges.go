package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Range says where the values of a column must lie for a condition to be true.
type Range struct {
	Column []string // as in Stats
	Type   arrow.DataType
	// Lo and Hi are bounds, inclusive, nil where there is none: an int64 of integers, dates (days since 1970-01-01) and
	// timestamps (µs since then), a string of strings.
	Lo, Hi any
}

// Ranges returns what follows from the parts of a condition that compare a column with a constant and must all be true
// for it to be: rows outside of any of the ranges, and rows that are null there, are not kept. It is a first sieve that
// costs nothing a file; MayMatch knows more. Empty when nothing follows. Columns of floating point, decimals and booleans
// have none.
func (b *Bound) Ranges() []Range { return ranges(b.root, nil) }

func ranges(n node, out []Range) []Range {
	switch n := n.(type) {
	case *sharedNode:
		return ranges(n.node, out)
	case *logicNode:
		if !n.or {
			for _, a := range n.args {
				out = ranges(a, out)
			}
		}
	case *compareNode:
		if r, ok := n.asRange(); ok {
			out = append(out, r)
		}
	case *inNode:
		if r, ok := n.asRange(); ok {
			out = append(out, r)
		}
	}
	return out
}

func (n *compareNode) asRange() (Range, bool) {
	op, column, constant := n.op, n.args[0], n.args[1]
	if _, ok := column.(*constNode); ok {
		column, constant = constant, column
		op = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
	}
	c, ok := constant.(*constNode)
	if !ok || c.isNull() {
		return Range{}, false
	}
	r, ok := rangeOf(column)
	v := c.scalar()
	if !ok || v == nil || kindOf(r.Type) != kindOf(c.typ()) {
		return Range{}, false
	}
	switch op {
	case "=":
		r.Lo, r.Hi = v, v
	case "<", "<=":
		r.Hi = v
	case ">", ">=":
		r.Lo = v
	default:
		return Range{}, false
	}
	return r, true
}

func (n *inNode) asRange() (Range, bool) {
	r, ok := rangeOf(n.of)
	if !ok || len(n.list) == 0 {
		return Range{}, false
	}
	for _, c := range n.list {
		v := c.scalar()
		if v == nil || kindOf(r.Type) != kindOf(c.typ()) {
			return Range{}, false
		}
		if r.Lo == nil || scalarLess(v, r.Lo) {
			r.Lo = v
		}
		if r.Hi == nil || scalarLess(r.Hi, v) {
			r.Hi = v
		}
	}
	return r, true
}

// rangeOf is the range without bounds of a column or of a field within one.
func rangeOf(n node) (Range, bool) {
	if s, ok := n.(*sharedNode); ok {
		n = s.node
	}
	path := (&pruner{}).path(n)
	return Range{Column: path, Type: n.typ()}, path != nil
}

// scalar is the constant's value as in Range; nil for types that have no ranges.
func (n *constNode) scalar() any {
	switch kindOf(n.typ()) {
	case kindInt, kindDate, kindTime:
		return n.value.int(0)
	case kindString:
		return n.value.str(0)
	}
	return nil
}

func scalarLess(a, b any) bool {
	if a, ok := a.(int64); ok {
		return a < b.(int64)
	}
	return a.(string) < b.(string)
}
