package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// ParseSpark reads one expression in Spark's SQL, as Delta tables hold it in constraints, generated columns and
// defaults. It computes what Spark computes in ANSI mode with the session time zone UTC, and takes nothing of which that
// is not known: what it does not know is a *Error that names it, when parsing or when binding.
//
// What differs from Parse: "x" and 'x' are both strings, with backslash escapes; `x` is a name; LIKE has the escape \;
// array elements count from 0; numbers as written are int, bigint, decimal or double and do not take the type of what
// they stand beside; a cast to an integer cuts off; a function has Spark's meaning or is unknown.
//
// Rows on which Spark fails in ANSI mode (overflow, a cast, a division by zero, an element that is not there) fail here,
// where an older Spark would go on with null or a wrapped number. Case of letters that changes the number of letters
// fails, too. Errors: *Error of kind Syntax.
func ParseSpark(src string) (*Expr, error) {
	if len(src) > MaxLength {
		return nil, place{1, 1, 1}.fault(Syntax,
			fmt.Sprintf("the expression has %d bytes, more than %d", len(src), MaxLength))
	}
	p := &parser{lex: lexer{src: src, line: 1, col: 1, spark: true}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	root, err := p.whole()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokEnd {
		return nil, p.unexpected("an operator or the end")
	}
	return &Expr{root: &sparkOf{root.where(), root, src}}, nil
}

// sparkOf is an expression in Spark's SQL, whatever is around it.
type sparkOf struct {
	place
	of   syntax
	text string // as written
}

// BindAs is Bind with the result brought to the type of the column that it is assigned to. Errors: as Bind.
func (e *Expr) BindAs(schema *arrow.Schema, to arrow.DataType) (*Bound, error) {
	root := e.root
	if s, ok := root.(*sparkOf); ok {
		root = &sparkOf{s.place, &cast{place: s.place, of: s.of, to: to}, s.text}
	} else {
		root = &cast{place: root.where(), of: root, to: to}
	}
	return (&Expr{root}).Bind(schema)
}

func (b *binder) sparkOf(s *sparkOf) (node, error) {
	before := b.spark
	b.spark = true
	defer func() { b.spark = before }()
	return b.bind(s.of)
}

// mixed refuses to let a float meet integers where Spark would make them floats: only a number that is as exact in a
// float may.
func (b *binder) mixed(at place, nodes ...node) error {
	if !b.spark {
		return nil
	}
	float, ints := false, false
	for _, n := range nodes {
		float = float || n.typ().ID() == arrow.FLOAT32
		if kindOf(n.typ()) == kindInt {
			c, ok := n.(*constNode)
			ok = ok && !c.isNull()
			ints = ints || !ok || c.value.int(0) > 1<<24 || c.value.int(0) < -1<<24
		}
	}
	if float && ints {
		err := at.typeFault("float and integers do not go together here")
		err.Hint = "CAST the float to double"
		return err
	}
	return nil
}

// sparkInfix types an operator as Spark does.
func (b *binder) sparkInfix(s *infix, left, right node) (node, error) {
	sides := []node{left, right}
	if err := b.mixed(s.place, left, right); err != nil {
		return nil, err
	}
	switch s.op {
	case "=", "<>", "<", "<=", ">", ">=", "<=>":
		return newCompare(s.place, s.op, left, right)
	case "//":
		for i, n := range sides {
			if k := kindOf(n.typ()); k != kindInt && k != kindNull {
				return nil, notNumbers(s.place, "DIV", sides)
			}
			wide, err := newCast(s.place, n, typeInt64, false)
			if err != nil {
				return nil, err
			}
			sides[i] = wide
		}
		return newArithmetic(s.place, "//", sides[0], sides[1])
	}
	return b.sparkArithmetic(s, sides)
}

func (b *binder) sparkArithmetic(s *infix, sides []node) (node, error) {
	kinds := [2]kind{kindOf(sides[0].typ()), kindOf(sides[1].typ())}
	for i, n := range sides {
		c, written := n.(*constNode)
		wide := n.typ().ID() == arrow.INT64 && !(written && c.number)
		if kinds[1-i] == kindDecimal && wide { // a bigint counts as 20 digits
			exact, err := newCast(s.place, n, decimalType(20, 0), false)
			if err != nil {
				return nil, err
			}
			sides[i] = exact
		}
	}
	if kinds[0] == kindDate && kinds[1] == kindDate {
		return nil, s.typeFault("the difference of dates is an interval, which is not known here; use datediff(a, b)")
	}
	n, err := newArithmetic(s.place, s.op, sides[0], sides[1])
	if err != nil || kindOf(n.typ()) != kindDecimal || s.op == "/" {
		return n, err
	}
	a, aOK := sides[0].typ().(*arrow.Decimal128Type)
	d, dOK := sides[1].typ().(*arrow.Decimal128Type)
	if aOK && dOK && sparkDigits(s.op, a, d) > maxDigits {
		err := s.typeFault("the result has more than %d digits, which Spark rounds", maxDigits)
		err.Hint = "CAST one side to a decimal with fewer digits"
		return nil, err
	}
	return n, nil
}

// sparkDigits is the precision of a sum, difference, product or remainder before Spark bounds it.
func sparkDigits(op string, a, b *arrow.Decimal128Type) int32 {
	whole, scale := max(a.Precision-a.Scale, b.Precision-b.Scale), max(a.Scale, b.Scale)
	switch op {
	case "*":
		return a.Precision + b.Precision + 1
	case "%":
		return min(a.Precision-a.Scale, b.Precision-b.Scale) + scale
	}
	return whole + scale + 1
}

// sparkIndex is x[i]: elements count from 0, and one that is not there fails.
func (b *binder) sparkIndex(s *index, of, at node) (node, error) {
	t, ok := of.typ().(arrow.ListLikeType)
	if _, isMap := of.typ().(*arrow.MapType); isMap || !ok {
		return nil, nil
	}
	if kindOf(at.typ()) != kindInt {
		return nil, nil
	}
	return &elementNode{of: of, at: at, t: t.Elem(), strict: true, base: 0, place: s.place}, nil
}

// sparkCast is CAST by Spark's rules, nil where they are those of newCast.
func sparkCast(s *cast, of node) (node, error) {
	from, to := of.typ(), s.to
	kf, kt := kindOf(from), kindOf(to)
	switch {
	case (kf == kindFloat || kf == kindDecimal) && kt == kindInt:
		return cutNode(s, of, from)
	case isNumber(from) && kt == kindTime && to.(*arrow.TimestampType).TimeZone != "":
		return &mapNode{t: to, at: s.place, args: []node{of}, run: mapInts(secondsToMicros)}, nil
	case kf == kindTime && kt == kindInt && from.(*arrow.TimestampType).TimeZone != "":
		seconds := &mapNode{t: typeInt64, at: s.place, args: []node{of}, rising: true,
			run: mapInts(func(k *kernel, i int) (int64, result) {
				return floorDiv(k.args[0].int(i), microsPerSecond), isValue
			})}
		return newCast(s.place, fold(seconds), to, s.try)
	case kf == kindFloat && kt == kindString:
		return nil, floatText(s.place)
	case kf == kindBinary && kt == kindString:
		return nil, s.typeFault("CAST of binary to string keeps bytes that are no text, which is not done here")
	case kt == kindNested && !arrow.TypeEqual(from, to):
		return nil, s.typeFault("there is no cast between these types: found %s to %s", typeName(from), typeName(to))
	}
	return nil, nil
}

// floatText refuses to make a text of a float: its digits depend on the version of Java.
func floatText(at place) error {
	err := at.typeFault("the text of a float is not the same in all versions of Spark")
	err.Hint = "CAST it to a decimal first"
	return err
}

// noFloatText is floatText for what is joined to a string.
func (b *binder) noFloatText(at place, nodes []node) error {
	if b.spark && slices.ContainsFunc(nodes, func(n node) bool { return kindOf(n.typ()) == kindFloat }) {
		return floatText(at)
	}
	return nil
}

// cutNode casts a number to an integer, without its fraction.
func cutNode(s *cast, of node, from arrow.DataType) (node, error) {
	whole := &mapNode{at: s.place, args: []node{of}, t: from, rising: true}
	if d, ok := from.(*arrow.Decimal128Type); ok {
		whole.t = decimalType(maxDigits, 0)
		whole.run = cutDecimals(d)
	} else {
		whole.run = mapFloats(cutFloat)
	}
	return newCast(s.place, fold(whole), s.to, s.try)
}

// sparkLiteral reads what a number's suffix says of its type.
func (p *parser) sparkNumber(t token) syntax {
	l := &literal{place: t.at, kind: litNumber, text: t.text}
	var to arrow.DataType
	switch strings.ToUpper(t.suffix) {
	case "":
		return l
	case "L":
		to = typeInt64
	case "S":
		to = typeInt16
	case "Y":
		to = typeInt8
	case "D":
		to = typeFloat64
	case "F":
		to = typeFloat32
	case "BD":
		return l
	}
	return &cast{place: t.at, of: l, to: to}
}
