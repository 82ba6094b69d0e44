package expr

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// compareNode is a comparison of two values that are held alike. Floats are in total order: NaN equals itself
// and is above all others. Strings compare by bytes.
type compareNode struct {
	mapNode
	op string
}

// sameNode is the comparison that counts two nulls as equal and is never null.
type sameNode struct {
	equal *compareNode
}

// newCompare brings both sides to values that can be compared.
func newCompare(at place, op string, a, b node) (node, error) {
	sides := []node{a, b}
	if err := comparable(at, op, sides); err != nil {
		return nil, err
	}
	if kindOf(sides[0].typ()) == kindNull {
		sides[0], sides[1] = nullConst(at, typeBool), nullConst(at, typeBool)
	}
	plain := op
	if op == "<=>" {
		plain = "="
	}
	n := &compareNode{op: plain}
	n.mapNode = mapNode{t: typeBool, at: at, args: sides, run: func(k *kernel) { compare(k, plain) }}
	if op == "<=>" {
		return &sameNode{n}, nil
	}
	return fold(n), nil
}

// comparable makes the sides' kinds equal, in place.
func comparable(at place, op string, sides []node) error {
	for i, n := range sides {
		other := sides[1-i].typ()
		c, written := n.(*constNode)
		written = written && (c.text || c.number && !c.strict)
		if kindOf(n.typ()) != kindNull && (!written || kindOf(other) == kindNull) {
			continue
		}
		if adapted, ok, err := coerce(n, other); err != nil {
			return err
		} else if ok {
			sides[i] = adapted
			break
		}
	}
	ka, kb := kindOf(sides[0].typ()), kindOf(sides[1].typ())
	if ka == kindNested || kb == kindNested || ka == kindInterval || kb == kindInterval {
		return incomparable(at, op, sides)
	}
	if ka == kb {
		return nil
	}
	var to arrow.DataType
	switch {
	case ka == kindFloat || kb == kindFloat:
		to = typeFloat64
	case isNumber(sides[0].typ()) && isNumber(sides[1].typ()):
		to = decimalType(19, 0)
	case ka == kindDate && kb == kindTime, ka == kindTime && kb == kindDate:
		to = typeTimestamp
	}
	for i, n := range sides {
		k := kindOf(n.typ())
		if to == nil || k != kindOf(to) && !isNumber(n.typ()) && k != kindDate {
			return incomparable(at, op, sides)
		}
		if k == kindOf(to) {
			continue
		}
		cast, err := newCast(at, n, to, false)
		if err != nil {
			return err
		}
		sides[i] = cast
	}
	return nil
}

func incomparable(at place, op string, sides []node) *Error {
	err := at.typeFault("%s cannot compare these types", op)
	err.Found = typeName(sides[0].typ()) + " and " + typeName(sides[1].typ())
	err.Hint = "CAST one to the type of the other"
	if kindOf(sides[0].typ()) == kindNested || kindOf(sides[1].typ()) == kindNested {
		err.Hint = "compare a field or an element of it"
	}
	return err
}

func (n *sameNode) typ() arrow.DataType { return typeBool }
func (n *sameNode) nullable() bool      { return false }

func (n *sameNode) eval(r *run, active bitset) *vector {
	a, b := n.equal.args[0].eval(r, active), n.equal.args[1].eval(r, active)
	k := &kernel{r: r, args: []*vector{a, b}, out: &vector{}}
	compare(k, "=")
	out := &vector{t: typeBool, rows: r.rows, mask: -1, bools: newBits(r.rows)}
	for w := range out.bools {
		va, vb := a.valid.word(w), b.valid.word(w)
		out.bools[w] = k.out.bools[w]&va&vb | ^va & ^vb
	}
	return out
}

// compare fills k.out.bools. All orders come from "less" and "equal", which total order allows.
func compare(k *kernel, op string) {
	a, b := k.args[0], k.args[1]
	switch op {
	case "=":
		k.out.bools = equalBits(a, b, k.r.rows)
	case "<>":
		k.out.bools = equalBits(a, b, k.r.rows).not()
	case "<":
		k.out.bools = lessBits(a, b, k.r.rows)
	case ">=":
		k.out.bools = lessBits(a, b, k.r.rows).not()
	case ">":
		k.out.bools = lessBits(b, a, k.r.rows)
	case "<=":
		k.out.bools = lessBits(b, a, k.r.rows).not()
	}
}

func equalBits(a, b *vector, rows int) bitset {
	out := newBits(rows)
	switch kindOf(a.t) {
	case kindBool:
		for w := range out {
			out[w] = ^(a.bools[w] ^ b.bools[w])
		}
	case kindInt, kindDate, kindTime:
		fillInts(out, a, b, rows, func(x, y int64) bool { return x == y })
	case kindFloat:
		fillWith(out, rows, func(i int) bool {
			x, y := a.float(i), b.float(i)
			return x == y || x != x && y != y
		})
	case kindDecimal:
		order := decimalOrder(a, b)
		fillWith(out, rows, func(i int) bool { return order(i) == 0 })
	case kindString, kindBinary:
		fillWith(out, rows, func(i int) bool { return bytes.Equal(a.bytes(i), b.bytes(i)) })
	}
	return out
}

func lessBits(a, b *vector, rows int) bitset {
	out := newBits(rows)
	switch kindOf(a.t) {
	case kindBool:
		for w := range out {
			out[w] = ^a.bools[w] & b.bools[w]
		}
	case kindInt, kindDate, kindTime:
		fillInts(out, a, b, rows, func(x, y int64) bool { return x < y })
	case kindFloat:
		fillWith(out, rows, func(i int) bool { return lessFloat(a.float(i), b.float(i)) })
	case kindDecimal:
		order := decimalOrder(a, b)
		fillWith(out, rows, func(i int) bool { return order(i) < 0 })
	case kindString, kindBinary:
		fillWith(out, rows, func(i int) bool { return bytes.Compare(a.bytes(i), b.bytes(i)) < 0 })
	}
	return out
}

func lessFloat(x, y float64) bool { return x < y || y != y && x == x }

// fillWith sets the bits for which f is true, a word at a time.
func fillWith(out bitset, rows int, f func(i int) bool) {
	for w := range out {
		var word uint64
		for i := w * 64; i < min(w*64+64, rows); i++ {
			if f(i) {
				word |= 1 << (i & 63)
			}
		}
		out[w] = word
	}
}

// fillInts is fillWith over two integers, written so that the inner loop has no branches.
func fillInts(out bitset, a, b *vector, rows int, f func(x, y int64) bool) {
	for w := range out {
		var word uint64
		from, to := w*64, min(w*64+64, rows)
		for i := from; i < to; i++ {
			var one uint64
			if f(a.ints[i&a.mask], b.ints[i&b.mask]) {
				one = 1
			}
			word |= one << (i - from)
		}
		out[w] = word
	}
}

func decimalOrder(a, b *vector) func(i int) int {
	scaleA, scaleB := a.t.(*arrow.Decimal128Type).Scale, b.t.(*arrow.Decimal128Type).Scale
	if scaleA == scaleB {
		return func(i int) int { return a.dec(i).Cmp(b.dec(i)) }
	}
	return func(i int) int { return compareDecimals(a.dec(i), scaleA, b.dec(i), scaleB) }
}

// decimalAt is an integer or decimal as unscaled value and scale.
func (v *vector) decimalAt(i int) (decimal128.Num, int32) {
	if d, ok := v.t.(*arrow.Decimal128Type); ok {
		return v.dec(i), d.Scale
	}
	return decimal128.FromI64(v.int(i)), 0
}
