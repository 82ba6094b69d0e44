package expr

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// caseNode is CASE WHEN … THEN … ELSE … END. A branch runs, and can fail, only on the rows that take it.
type caseNode struct {
	t    arrow.DataType
	when []node // conditions
	then []node // as many, and one more for ELSE
}

func (n *caseNode) typ() arrow.DataType { return n.t }
func (n *caseNode) nullable() bool      { return anyNullable(n.then) }

func (n *caseNode) eval(r *run, active bitset) *vector {
	left := active
	var parts []part
	for i, cond := range n.when {
		if left.none(r.rows) {
			break
		}
		taken := andBits(cond.eval(r, left).truth(), left)
		left = without(left, taken, r.rows)
		if !taken.none(r.rows) {
			parts = append(parts, part{n.then[i].eval(r, taken), taken})
		}
	}
	if !left.none(r.rows) {
		if left == nil {
			left = onesBits(r.rows)
		}
		parts = append(parts, part{n.then[len(n.when)].eval(r, left), left})
	}
	return merge(r, n.t, parts)
}

// coalesceNode is the first argument that is not null. Later ones run only on rows where those before are
// null.
type coalesceNode struct {
	t    arrow.DataType
	args []node
}

func (n *coalesceNode) typ() arrow.DataType { return n.t }

func (n *coalesceNode) nullable() bool {
	for _, a := range n.args {
		if !a.nullable() {
			return false
		}
	}
	return true
}

func (n *coalesceNode) eval(r *run, active bitset) *vector {
	left := active
	var parts []part
	for i, a := range n.args {
		v := a.eval(r, left)
		if i == 0 && v.valid == nil {
			return v
		}
		taken := andBits(v.valid, left)
		if taken == nil {
			taken = onesBits(r.rows)
		}
		parts = append(parts, part{v, taken})
		left = without(left, taken, r.rows)
		if left.none(r.rows) {
			break
		}
	}
	return merge(r, n.t, parts)
}

// part is the rows of a result that come from one vector.
type part struct {
	v    *vector
	rows bitset
}

// merge puts parts together whose rows do not overlap; rows of no part are null.
func merge(r *run, t arrow.DataType, parts []part) *vector {
	rows := r.rows
	if len(parts) == 0 {
		return nullVector(t, rows)
	}
	out := &vector{t: t, rows: rows, mask: -1, owned: true}
	valid := newBits(rows)
	for _, p := range parts {
		for w := range valid {
			valid[w] |= p.rows.word(w) & p.v.valid.word(w)
		}
	}
	out.valid = valid
	if valid.count(rows) == rows {
		out.valid = nil
	}
	switch kindOf(t) {
	case kindNull:
		return nullVector(t, rows)
	case kindBool:
		out.bools = newBits(rows)
		for _, p := range parts {
			for w := range out.bools {
				out.bools[w] |= p.rows.word(w) & p.v.bools[w]
			}
		}
	case kindFloat:
		out.floats = mergeValues(rows, parts, func(v *vector) []float64 { return v.floats })
	case kindDecimal:
		out.decimals = newDecimals(rows)
		for _, p := range parts {
			p.rows.each(rows, func(i int) { out.decimals[i] = p.v.dec(i) })
		}
	case kindString, kindBinary:
		mergeStrings(r, out, parts)
	case kindNested:
		mergeNested(r, out, parts)
	default:
		out.ints = mergeValues(rows, parts, func(v *vector) []int64 { return v.ints })
	}
	return out
}

func mergeValues[T int64 | float64](rows int, parts []part, values func(*vector) []T) []T {
	out := make([]T, rows)
	for _, p := range parts {
		in := values(p.v)
		p.rows.each(rows, func(i int) { out[i] = in[i&p.v.mask] })
	}
	return out
}

// owners is for each row which part it comes from, plus one.
func owners(rows int, parts []part) []int32 {
	out := make([]int32, rows)
	for n, p := range parts {
		p.rows.each(rows, func(i int) { out[i] = int32(n + 1) })
	}
	return out
}

func mergeStrings(r *run, out *vector, parts []part) {
	out.offsets = make([]int32, out.rows+1)
	for i, owner := range owners(out.rows, parts) {
		if owner > 0 && out.valid.has(i) {
			out.data = append(out.data, parts[owner-1].v.bytes(i)...)
		}
		if len(out.data) > math.MaxInt32 {
			r.err = errTooLarge
			out.data = nil
		}
		out.offsets[i+1] = int32(len(out.data))
	}
}

// mergeNested picks the rows out of the parts' arrays one after another.
func mergeNested(r *run, out *vector, parts []part) {
	arrays := make([]arrow.Array, len(parts))
	for i, p := range parts {
		arrays[i] = p.v.array()
		defer arrays[i].Release()
	}
	all, err := array.Concatenate(arrays, memory.DefaultAllocator)
	if err != nil {
		r.err = fmt.Errorf("put columns of %s together: %w", typeName(out.t), err)
		arrays[0].Retain()
		out.arr = arrays[0]
		return
	}
	defer all.Release()
	spans := make([]Span, out.rows)
	for i, owner := range owners(out.rows, parts) {
		spans[i] = nullRow
		if owner > 0 && out.valid.has(i) {
			at := int(owner-1)*out.rows + i
			spans[i] = Span{at, at + 1}
		}
	}
	out.arr = Take(all, spans)
}

func (b *binder) caseOf(s *caseOf) (node, error) {
	n := &caseNode{}
	var operand node
	if s.operand != nil {
		of, err := b.bind(s.operand)
		if err != nil {
			return nil, err
		}
		operand = b.share(of)
	}
	for _, w := range s.when {
		cond, err := b.whenCondition(operand, w)
		if err != nil {
			return nil, err
		}
		then, err := b.bind(w.then)
		if err != nil {
			return nil, err
		}
		n.when, n.then = append(n.when, cond), append(n.then, then)
	}
	otherwise := node(nullConst(s.place, typeNull))
	if s.otherwise != nil {
		var err error
		if otherwise, err = b.bind(s.otherwise); err != nil {
			return nil, err
		}
	}
	n.then = append(n.then, otherwise)
	if err := b.mixed(s.place, n.then...); err != nil {
		return nil, err
	}
	var err error
	n.t, err = unify(s.place, "CASE", n.then)
	return n, err
}

func (b *binder) whenCondition(operand node, w when) (node, error) {
	if operand == nil {
		return b.condition(w.cond, "the condition of WHEN")
	}
	value, err := b.bind(w.cond)
	if err != nil {
		return nil, err
	}
	if err := b.mixed(w.cond.where(), operand, value); err != nil {
		return nil, err
	}
	return newCompare(w.cond.where(), "=", operand, value)
}
