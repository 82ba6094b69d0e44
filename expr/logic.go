package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// logicNode is AND or OR in three-valued logic. An argument is not run, and so does not fail, on rows that
// those before it have decided.
type logicNode struct {
	or   bool
	args []node
}

func (n *logicNode) typ() arrow.DataType { return typeBool }
func (n *logicNode) nullable() bool      { return anyNullable(n.args) }

func (n *logicNode) eval(r *run, active bitset) *vector {
	words := (r.rows + 63) / 64
	isTrue, isFalse := onesBits(r.rows), newBits(r.rows)
	if n.or {
		isTrue, isFalse = isFalse, isTrue
	}
	for i, a := range n.args {
		if i > 0 {
			decided := isFalse
			if n.or {
				decided = isTrue
			}
			active = without(active, decided, r.rows)
			if active.none(r.rows) {
				break
			}
		}
		v := a.eval(r, active)
		for w := range words {
			value, valid := v.bools[w], v.valid.word(w)
			if n.or {
				isTrue[w] |= value & valid
				isFalse[w] &= ^value & valid
			} else {
				isTrue[w] &= value & valid
				isFalse[w] |= ^value & valid
			}
		}
	}
	out := &vector{t: typeBool, rows: r.rows, mask: -1, bools: isTrue}
	if !n.nullable() {
		return out
	}
	valid := newBits(r.rows)
	for w := range valid {
		valid[w] = isTrue[w] | isFalse[w]
	}
	if valid.count(r.rows) < r.rows {
		out.valid = valid
	}
	return out
}

// notNode negates; null stays null.
type notNode struct {
	of node
}

func (n *notNode) typ() arrow.DataType { return typeBool }
func (n *notNode) nullable() bool      { return n.of.nullable() }

func (n *notNode) eval(r *run, active bitset) *vector {
	v := n.of.eval(r, active)
	return &vector{t: typeBool, rows: r.rows, mask: -1, bools: v.bools.not(), valid: v.valid}
}

// nullTestNode is IS NULL.
type nullTestNode struct {
	of node
}

func (n *nullTestNode) typ() arrow.DataType { return typeBool }
func (n *nullTestNode) nullable() bool      { return false }

func (n *nullTestNode) eval(r *run, active bitset) *vector {
	v := n.of.eval(r, active)
	out := &vector{t: typeBool, rows: r.rows, mask: -1, bools: newBits(r.rows)}
	if kindOf(v.t) == kindNull {
		out.bools = onesBits(r.rows)
	} else if v.valid != nil {
		out.bools = v.valid.not()
	}
	return out
}

// truthTestNode is IS TRUE or IS FALSE.
type truthTestNode struct {
	of   node
	want bool
}

func (n *truthTestNode) typ() arrow.DataType { return typeBool }
func (n *truthTestNode) nullable() bool      { return false }

func (n *truthTestNode) eval(r *run, active bitset) *vector {
	v := n.of.eval(r, active)
	bits := v.untruth()
	if n.want {
		bits = v.truth()
	}
	return &vector{t: typeBool, rows: r.rows, mask: -1, bools: bits}
}

// condition binds an operand that must be boolean.
func (b *binder) condition(s syntax, what string) (node, error) {
	n, err := b.bind(s)
	if err != nil {
		return nil, err
	}
	switch kindOf(n.typ()) {
	case kindBool:
		return n, nil
	case kindNull:
		return nullConst(s.where(), typeBool), nil
	}
	fault := s.where().typeFault("%s is not boolean", what)
	fault.Found, fault.Wanted = typeName(n.typ()), "boolean"
	return nil, fault
}

func (b *binder) chain(s *chain) (node, error) {
	if s.op == "||" {
		args, err := b.bindAll(s.args)
		if err == nil {
			err = b.noFloatText(s.place, args)
		}
		if err != nil {
			return nil, err
		}
		return newConcat(s.place, args)
	}
	args := make([]node, len(s.args))
	for i, a := range s.args {
		n, err := b.condition(a, "the operand of "+s.op)
		if err != nil {
			return nil, err
		}
		args[i] = n
	}
	return &logicNode{or: s.op == "OR", args: args}, nil
}

func (b *binder) not(s *not) (node, error) {
	of, err := b.condition(s.of, "the operand of NOT")
	if err != nil {
		return nil, err
	}
	return &notNode{of}, nil
}

func (b *binder) is(s *is) (node, error) {
	var n node
	if s.what == "NULL" {
		of, err := b.bind(s.of)
		if err != nil {
			return nil, err
		}
		n = &nullTestNode{of}
	} else {
		of, err := b.condition(s.of, "the operand of IS "+s.what)
		if err != nil {
			return nil, err
		}
		n = &truthTestNode{of, s.what == "TRUE"}
	}
	return negated(n, s.not), nil
}

func negated(n node, not bool) node {
	if not {
		return &notNode{n}
	}
	return n
}

func (b *binder) between(s *between) (node, error) {
	nodes, err := b.bindAll([]syntax{s.of, s.low, s.high})
	if err == nil {
		err = b.mixed(s.place, nodes...)
	}
	if err != nil {
		return nil, err
	}
	of := b.share(nodes[0])
	low, err := newCompare(s.place, ">=", of, nodes[1])
	if err != nil {
		return nil, err
	}
	high, err := newCompare(s.place, "<=", of, nodes[2])
	if err != nil {
		return nil, err
	}
	return negated(&logicNode{args: []node{low, high}}, s.not), nil
}

func (b *binder) infix(s *infix) (node, error) {
	left, err := b.bind(s.a)
	if err != nil {
		return nil, err
	}
	right, err := b.bind(s.b)
	if err != nil {
		return nil, err
	}
	if b.spark {
		return b.sparkInfix(s, left, right)
	}
	switch s.op {
	case "=", "<>", "<", "<=", ">", ">=", "<=>":
		return newCompare(s.place, s.op, left, right)
	}
	return newArithmetic(s.place, s.op, left, right)
}
