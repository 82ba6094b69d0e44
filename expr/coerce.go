package expr

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// fold replaces a node whose arguments are all constant by its value. A node that faults stays: whether it
// runs depends on the branch it is in.
func fold(n node) node {
	m, ok := n.(interface{ mapping() *mapNode })
	if !ok || !allConst(m.mapping().args) || len(m.mapping().args) == 0 {
		return n
	}
	r := &run{rows: 1}
	v := n.eval(r, nil)
	if len(r.faults) > 0 {
		return n
	}
	value := *v
	value.column = nil
	if value.valid != nil && value.valid.has(0) {
		value.valid = nil
	}
	return &constNode{at: m.mapping().at, value: &value}
}

func (n *mapNode) mapping() *mapNode { return n }

// literalText returns the text of a string literal that still takes any type.
func literalText(n node) (string, bool) {
	c, ok := n.(*constNode)
	if !ok || !c.text {
		return "", false
	}
	return c.value.str(0), true
}

// coerce makes a node have type t where that loses nothing, and string literals and numbers as written where
// they fit. ok is false when it cannot.
func coerce(n node, t arrow.DataType) (_ node, ok bool, err error) {
	from := n.typ()
	if arrow.TypeEqual(from, t) {
		return n, true, nil
	}
	c, isConst := n.(*constNode)
	if kindOf(from) == kindNull {
		return nullConst(place{}, t), true, nil
	}
	if isConst && c.text {
		n, err := newCast(c.at, n, t, false)
		return n, err == nil, err
	}
	if isConst && c.number && !c.strict && numberFits(c, t) {
		n, err := newCast(c.at, n, t, false)
		return n, err == nil, err
	}
	common, ok := commonType(from, t)
	if !ok || !arrow.TypeEqual(common, t) {
		return n, false, nil
	}
	n, err = newCast(place{}, n, t, false)
	return n, err == nil, err
}

// numberFits tells whether a number as written becomes a value of t without loss.
func numberFits(c *constNode, t arrow.DataType) bool {
	if !isNumber(t) {
		return false
	}
	if kindOf(t) == kindFloat {
		_, ok := narrow(floatAt(c.value, 0), t)
		return ok
	}
	if kindOf(c.value.t) == kindFloat {
		return false
	}
	d, scale := c.value.decimalAt(0)
	to := asDecimal(t)
	if scale > to.Scale {
		return false
	}
	moved, ok := rescale(d, scale, to.Scale, to.Precision)
	if ok && kindOf(t) == kindInt {
		_, ok = toWidth(int64(moved.LowBits()), t)
		ok = ok && isInt64(moved)
	}
	return ok
}

// unify gives all nodes one type. what names the place in messages.
func unify(at place, what string, nodes []node) (arrow.DataType, error) {
	t, err := unifiedType(at, what, nodes)
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		same, ok, err := coerce(n, t)
		if err != nil {
			return nil, err
		}
		if !ok {
			if same, err = newCast(at, n, t, false); err != nil {
				return nil, err
			}
		}
		nodes[i] = same
	}
	return t, nil
}

// unifiedType is the least type of all; constants as written take the type of the others if they fit.
func unifiedType(at place, what string, nodes []node) (arrow.DataType, error) {
	var t arrow.DataType = typeNull
	text, decimals := false, false // among the constants as written
	for _, n := range nodes {
		if c, ok := n.(*constNode); ok && (c.text || c.number && !c.strict) {
			text = text || c.text
			decimals = decimals || kindOf(c.value.t) == kindDecimal
			continue
		}
		common, ok := commonType(t, n.typ())
		if !ok {
			return nil, mixedTypes(at, what, nodes)
		}
		t = common
	}
	for _, n := range nodes {
		c, ok := n.(*constNode)
		if !ok || !c.number || c.strict || numberFits(c, t) {
			continue
		}
		if (decimals || kindOf(t) == kindDecimal) && kindOf(c.value.t) == kindInt {
			c = decimalLiteral(c)
		}
		common, ok := commonType(t, c.typ())
		if !ok {
			return nil, mixedTypes(at, what, nodes)
		}
		t = common
	}
	if text && kindOf(t) == kindNull {
		return typeString, nil
	}
	if kindOf(t) == kindInterval {
		return nil, at.typeFault("%s takes no interval", what)
	}
	return t, nil
}

// decimalLiteral is an integer as written, as the decimal of its digits.
func decimalLiteral(c *constNode) *constNode {
	d, _ := c.value.decimalAt(0)
	digits := len(appendDecimal(nil, d.Abs(), 0))
	out := decimalConst(c.at, decimalType(int32(digits), 0), d)
	out.number = true
	return out
}

func mixedTypes(at place, what string, nodes []node) *Error {
	var types []string
	for _, n := range nodes {
		if name := typeName(n.typ()); !slices.Contains(types, name) && len(types) < 4 {
			types = append(types, name)
		}
	}
	err := at.typeFault("the types of %s do not fit together", what)
	err.Found, err.Hint = strings.Join(types, " and "), "CAST one to the type of the other"
	return err
}
