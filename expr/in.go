package expr

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// inNode is membership in a list of constants. A null in the list makes "not found" null.
type inNode struct {
	of      node
	list    []*constNode // without nulls, of the kind of of
	ints    map[int64]struct{}
	strings map[string]struct{}
	hasNull bool
}

func (n *inNode) typ() arrow.DataType { return typeBool }
func (n *inNode) nullable() bool      { return n.hasNull || n.of.nullable() }

func (n *inNode) eval(r *run, active bitset) *vector {
	v := n.of.eval(r, active)
	out := &vector{t: typeBool, rows: r.rows, mask: -1, bools: newBits(r.rows), valid: v.valid}
	switch {
	case n.ints != nil:
		fillWith(out.bools, r.rows, func(i int) bool { _, ok := n.ints[v.int(i)]; return ok })
	case n.strings != nil:
		fillWith(out.bools, r.rows, func(i int) bool { _, ok := n.strings[string(v.bytes(i))]; return ok })
	default:
		for _, c := range n.list {
			for w, word := range equalBits(v, c.eval(r, nil), r.rows) {
				out.bools[w] |= word
			}
		}
	}
	if n.hasNull {
		out.valid = andBits(out.valid, out.bools)
	}
	return out
}

// in binds a list of constants as a set, any other as comparisons joined by OR.
func (b *binder) in(s *in) (node, error) {
	nodes, err := b.bindAll(append([]syntax{s.of}, s.list...))
	if err == nil {
		err = b.mixed(s.place, nodes...)
	}
	if err != nil {
		return nil, err
	}
	if _, err := unify(s.place, "IN", nodes); err != nil {
		return nil, err
	}
	if kindOf(nodes[0].typ()) == kindNull {
		return nullConst(s.place, typeBool), nil
	}
	if kindOf(nodes[0].typ()) == kindNested {
		return nil, incomparable(s.place, "IN", nodes[:2])
	}
	if allConst(nodes[1:]) {
		return negated(newIn(nodes[0], nodes[1:]), s.not), nil
	}
	of := b.share(nodes[0])
	found := &logicNode{or: true}
	for _, item := range nodes[1:] {
		equal, err := newCompare(s.place, "=", of, item)
		if err != nil {
			return nil, err
		}
		found.args = append(found.args, equal)
	}
	return negated(found, s.not), nil
}

func newIn(of node, list []node) node {
	n := &inNode{of: of}
	for _, item := range list {
		c := item.(*constNode)
		if c.isNull() {
			n.hasNull = true
			continue
		}
		n.list = append(n.list, c)
	}
	switch kindOf(of.typ()) {
	case kindInt, kindDate, kindTime:
		n.ints = map[int64]struct{}{}
		for _, c := range n.list {
			n.ints[c.value.int(0)] = struct{}{}
		}
	case kindString, kindBinary:
		n.strings = map[string]struct{}{}
		for _, c := range n.list {
			n.strings[c.value.str(0)] = struct{}{}
		}
	}
	n.list = slices.Clip(n.list)
	return n
}
