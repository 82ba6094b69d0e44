package expr

import (
	"bytes"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// MayMatch tells whether the expression, a boolean, can be true of any of the rows that s describes. False is
// certain; true is not. It looks at nothing but s, and costs no more than evaluating the expression on a few
// rows.
func (b *Bound) MayMatch(s Stats) bool {
	if rows, ok := s.RowCount(); ok && rows == 0 {
		return false
	}
	p := &pruner{schema: b.schema, stats: s}
	switch kindOf(b.Type()) {
	case kindBool:
		return p.truths(b.root).yes
	case kindNull:
		return false
	}
	return true
}

// pruner follows an expression over ranges in place of values.
type pruner struct {
	schema *arrow.Schema
	stats  Stats
}

// truths says what a boolean can be of some row. A row that fails counts as null.
type truths struct {
	yes, no, null bool
}

// scope is the values that a subexpression can have.
type scope struct {
	lo, hi *vector // one-row bounds, inclusive; nil when not known
	nan    bool    // NaN can occur besides, which is above hi
	null   bool    // can be null
	value  bool    // can be other than null
}

var anyScope = scope{nan: true, null: true, value: true}

func (p *pruner) truths(n node) truths {
	switch n := n.(type) {
	case *sharedNode:
		return p.truths(n.node)
	case *logicNode:
		return p.logic(n)
	case *notNode:
		t := p.truths(n.of)
		return truths{yes: t.no, no: t.yes, null: t.null}
	case *truthTestNode:
		t := p.truths(n.of)
		if n.want {
			return truths{yes: t.yes, no: t.no || t.null}
		}
		return truths{yes: t.no, no: t.yes || t.null}
	case *nullTestNode:
		s := p.scope(n.of)
		return truths{yes: s.null, no: s.value}
	case *compareNode:
		return p.compare(n.op, p.scope(n.args[0]), p.scope(n.args[1]))
	case *sameNode:
		a, b := p.scope(n.equal.args[0]), p.scope(n.equal.args[1])
		return truths{yes: a.null && b.null || p.compare("=", a, b).yes, no: true}
	case *inNode:
		return p.in(n)
	case *likeNode:
		return p.like(n)
	}
	return p.leaf(n)
}

// leaf is the truths of a node whose own range is all there is to know.
func (p *pruner) leaf(n node) truths {
	s := p.valueScope(n)
	t := truths{yes: s.value, no: s.value, null: s.null}
	if s.lo != nil && s.lo.bools.has(0) {
		t.no = false
	}
	if s.hi != nil && !s.hi.bools.has(0) {
		t.yes = false
	}
	return t
}

func (p *pruner) logic(n *logicNode) truths {
	out := truths{yes: !n.or, no: n.or}
	for _, a := range n.args {
		t := p.truths(a)
		out.null = out.null || t.null
		if n.or {
			out.yes, out.no = out.yes || t.yes, out.no && t.no
		} else {
			out.yes, out.no = out.yes && t.yes, out.no || t.no
		}
	}
	return out
}

func (p *pruner) compare(op string, a, b scope) truths {
	if !a.value || !b.value {
		return truths{null: true}
	}
	var yes, no bool
	switch op {
	case "=":
		yes, no = canEqual(a, b), !samePoint(a, b)
	case "<>":
		yes, no = !samePoint(a, b), canEqual(a, b)
	case "<":
		yes, no = canBeLess(a, b), canBeAtLeast(a, b)
	case ">=":
		yes, no = canBeAtLeast(a, b), canBeLess(a, b)
	case ">":
		yes, no = canBeLess(b, a), canBeAtLeast(b, a)
	case "<=":
		yes, no = canBeAtLeast(b, a), canBeLess(b, a)
	}
	return truths{yes: yes, no: no, null: a.null || b.null}
}

func less(a, b *vector) bool { return lessBits(a, b, 1).has(0) }

// canBeLess tells whether some a can be less than some b.
func canBeLess(a, b scope) bool {
	return a.lo == nil || b.hi == nil || b.nan || less(a.lo, b.hi)
}

// canBeAtLeast tells whether some a can be equal to or above some b.
func canBeAtLeast(a, b scope) bool {
	return a.hi == nil || b.lo == nil || a.nan || !less(a.hi, b.lo)
}

func canEqual(a, b scope) bool {
	if canBeNaN(a) && canBeNaN(b) {
		return true
	}
	below := a.hi != nil && b.lo != nil && less(a.hi, b.lo)
	above := b.hi != nil && a.lo != nil && less(b.hi, a.lo)
	return !below && !above
}

func canBeNaN(s scope) bool {
	return s.nan || s.hi == nil || kindOf(s.hi.t) == kindFloat && math.IsNaN(s.hi.float(0))
}

// isPoint tells whether all values that are not null are equal.
func (s scope) isPoint() bool {
	return s.lo != nil && s.hi != nil && !s.nan && equalBits(s.lo, s.hi, 1).has(0)
}

func samePoint(a, b scope) bool {
	return a.isPoint() && b.isPoint() && equalBits(a.lo, b.lo, 1).has(0)
}

func (p *pruner) in(n *inNode) truths {
	s := p.scope(n.of)
	out := truths{no: s.value, null: s.null || n.hasNull}
	for _, c := range n.list {
		item := scope{lo: c.value, hi: c.value, value: true}
		t := p.compare("=", s, item)
		out.yes = out.yes || t.yes
		if s.value && !t.no {
			out.no = false
		}
	}
	return out
}

// like uses that all matches begin with the pattern's fixed prefix.
func (p *pruner) like(n *likeNode) truths {
	s := p.scope(n.args[0])
	if s.isPoint() {
		return p.leaf(n)
	}
	out := truths{yes: s.value, no: s.value, null: s.null}
	if s.hi != nil && bytes.Compare(s.hi.bytes(0), n.prefix) < 0 {
		out.yes = false
	}
	if s.lo != nil {
		head := s.lo.bytes(0)
		if bytes.Compare(head[:min(len(head), len(n.prefix))], n.prefix) > 0 {
			out.yes = false
		}
		if n.exact && bytes.Compare(head, n.prefix) > 0 {
			out.yes = false
		}
	}
	return out
}

func (p *pruner) scope(n node) scope {
	if kindOf(n.typ()) != kindBool {
		return p.valueScope(n)
	}
	t := p.truths(n)
	s := scope{null: t.null, value: t.yes || t.no}
	if s.value {
		s.lo, s.hi = boolConst(place{}, !t.no).value, boolConst(place{}, t.yes).value
	}
	return s
}

// valueScope is the range of a node by its form.
func (p *pruner) valueScope(n node) scope {
	switch n := n.(type) {
	case *sharedNode:
		return p.valueScope(n.node)
	case *constNode:
		if n.isNull() {
			return scope{null: true}
		}
		return scope{lo: n.value, hi: n.value, value: true}
	case *columnNode, *fieldNode:
		if path := p.path(n); path != nil {
			return p.column(path, n.typ())
		}
	case interface{ mapping() *mapNode }:
		return p.mapped(n.mapping())
	}
	return anyScope
}

// path is the names of a column or of a field within one; nil for a field of anything else.
func (p *pruner) path(n node) []string {
	switch n := n.(type) {
	case *columnNode:
		return []string{n.field.Name}
	case *fieldNode:
		if path := p.path(n.of); path != nil {
			return append(path, n.field.Name)
		}
	}
	return nil
}

func (p *pruner) column(path []string, t arrow.DataType) scope {
	s := anyScope
	s.nan = kindOf(t) == kindFloat
	if nulls, ok := p.stats.NullCount(path); ok {
		s.null = nulls > 0
		rows, known := p.stats.RowCount()
		s.value = !known || nulls < rows
	}
	if v, ok := p.stats.Min(path); ok {
		s.lo = v.vector(t)
	}
	if v, ok := p.stats.Max(path); ok {
		s.hi = v.vector(t)
	}
	return s
}

// mapped follows a function that keeps order, or one whose arguments are all known.
func (p *pruner) mapped(n *mapNode) scope {
	out := scope{null: n.maybe, value: true}
	args := make([]scope, len(n.args))
	points, varying := true, -1
	for i, a := range n.args {
		args[i] = p.scope(a)
		if !args[i].value {
			return scope{null: true}
		}
		out.null, out.nan = out.null || args[i].null, out.nan || args[i].nan
		if _, isConst := a.(*constNode); !isConst {
			points = points && args[i].isPoint()
			varying = i
		}
	}
	if !points && !n.rising || varying < 0 {
		out.nan = true
		return out
	}
	out.lo, out.hi = apply(n, args, false), apply(n, args, true)
	if out.lo == nil || out.hi == nil || points && !n.rising && (out.lo.valid != nil || out.hi.valid != nil) {
		out.null = true
	}
	return out
}

// apply runs the node on the lower or upper ends of its arguments; nil when one is not known or the row fails
// or is null.
func apply(n *mapNode, args []scope, upper bool) *vector {
	m := *n
	m.args = make([]node, len(args))
	for i, s := range args {
		end := s.lo
		if upper {
			end = s.hi
		}
		if end == nil {
			return nil
		}
		m.args[i] = &constNode{value: end}
	}
	r := &run{rows: 1}
	v := m.eval(r, nil)
	if len(r.faults) > 0 || !v.valid.has(0) {
		return nil
	}
	out := *v
	out.valid, out.column = nil, nil
	return &out
}

// vector makes a bound of a column's type; nil when the value is of another kind.
func (v Value) vector(t arrow.DataType) *vector {
	if v.kind != kindOf(t) {
		return nil
	}
	out := &vector{t: t, rows: 1}
	switch v.kind {
	case kindBool:
		return boolConst(place{}, v.i != 0).value
	case kindFloat:
		if math.IsNaN(v.f) {
			return nil
		}
		out.floats = []float64{v.f}
	case kindDecimal:
		to := t.(*arrow.Decimal128Type)
		if v.scale > to.Scale {
			out.t = decimalType(maxDigits, v.scale)
			out.decimals = []decimal128.Num{v.d}
			return out
		}
		d, ok := rescale(v.d, v.scale, to.Scale, maxDigits)
		if !ok {
			return nil
		}
		out.decimals = []decimal128.Num{d}
	case kindString, kindBinary:
		out.offsets, out.data = []int32{0, int32(len(v.s))}, []byte(v.s)
	default:
		out.ints = []int64{v.i}
	}
	return out
}
