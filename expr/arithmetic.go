package expr

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// newArithmetic types + - * / // %. Integers stay integers of the wider side and are checked, except that /
// gives double; decimals are exact, and only / rounds; a float on either side gives double (float with float:
// float).
func newArithmetic(at place, op string, a, b node) (node, error) {
	if n, err := newTimeArithmetic(at, op, a, b); n != nil || err != nil {
		return n, err
	}
	sides := []node{a, b}
	for i, n := range sides {
		if kindOf(n.typ()) == kindNull {
			sides[i], _, _ = coerce(n, sides[1-i].typ())
		}
	}
	if kindOf(sides[0].typ()) == kindNull {
		return nullConst(at, typeNull), nil
	}
	for _, n := range sides {
		if !isNumber(n.typ()) {
			return nil, notNumbers(at, op, sides)
		}
	}
	ka, kb := kindOf(sides[0].typ()), kindOf(sides[1].typ())
	switch {
	case op == "//" && (ka != kindInt || kb != kindInt):
		err := notNumbers(at, op, sides)
		err.Wanted = "two integers"
		return nil, err
	case ka == kindFloat || kb == kindFloat, op == "/" && ka == kindInt && kb == kindInt:
		return floatArithmetic(at, op, sides)
	case ka == kindInt && kb == kindInt:
		return intArithmetic(at, op, sides)
	}
	return decimalArithmetic(at, op, sides)
}

func notNumbers(at place, op string, sides []node) *Error {
	err := at.typeFault("%s does not apply to these types", op)
	err.Found = typeName(sides[0].typ()) + " and " + typeName(sides[1].typ())
	err.Wanted = "numbers"
	if kindOf(sides[0].typ()) == kindString || kindOf(sides[1].typ()) == kindString {
		err.Hint = "CAST the string to a number; || joins strings"
	}
	return err
}

func floatArithmetic(at place, op string, sides []node) (node, error) {
	var t arrow.DataType = typeFloat64
	if op != "/" && sides[0].typ().ID() == arrow.FLOAT32 && sides[1].typ().ID() == arrow.FLOAT32 {
		t = typeFloat32
	}
	for i, n := range sides {
		cast, err := newCast(at, n, t, false)
		if err != nil {
			return nil, err
		}
		sides[i] = cast
	}
	run := func(k *kernel) {
		floats(k, op)
		if t == typeFloat32 {
			for i, f := range k.out.floats {
				k.out.floats[i] = float64(float32(f))
			}
		}
	}
	return fold(&mapNode{t: t, at: at, args: sides, run: run}), nil
}

func floats(k *kernel, op string) {
	a, b, rows := k.args[0], k.args[1], k.r.rows
	out := make([]float64, rows)
	k.out.floats = out
	switch op {
	case "+":
		for i := range out {
			out[i] = a.floats[i&a.mask] + b.floats[i&b.mask]
		}
	case "-":
		for i := range out {
			out[i] = a.floats[i&a.mask] - b.floats[i&b.mask]
		}
	case "*":
		for i := range out {
			out[i] = a.floats[i&a.mask] * b.floats[i&b.mask]
		}
	default:
		k.live.each(rows, func(i int) {
			divisor := b.float(i)
			switch {
			case divisor == 0:
				k.fault(i, "division by zero")
			case op == "/":
				out[i] = a.float(i) / divisor
			default:
				out[i] = math.Mod(a.float(i), divisor)
			}
		})
	}
}

func intArithmetic(at place, op string, sides []node) (node, error) {
	t, _ := commonType(sides[0].typ(), sides[1].typ())
	run := func(k *kernel) { ints(k, op, t) }
	return fold(&mapNode{t: t, at: at, args: sides, run: run}), nil
}

// ints computes all rows and looks for overflow afterwards, only where a whole pass saw one.
func ints(k *kernel, op string, t arrow.DataType) {
	a, b := k.args[0], k.args[1]
	out := make([]int64, k.r.rows)
	k.out.ints = out
	var over int64
	shift := 64 - intWidth(t)
	switch op {
	case "+":
		for i := range out {
			x, y := a.ints[i&a.mask], b.ints[i&b.mask]
			sum := x + y
			out[i] = sum
			over |= (x^sum)&(y^sum)>>63 | sum ^ sum<<shift>>shift
		}
	case "-":
		for i := range out {
			x, y := a.ints[i&a.mask], b.ints[i&b.mask]
			difference := x - y
			out[i] = difference
			over |= (x^y)&(x^difference)>>63 | difference ^ difference<<shift>>shift
		}
	default:
		over = 1
	}
	if over == 0 {
		return
	}
	divides := op == "//" || op == "%"
	k.live.each(k.r.rows, func(i int) {
		x, y := a.int(i), b.int(i)
		if divides && y == 0 {
			k.fault(i, "division by zero")
			return
		}
		v, ok := checkedInt(op, x, y)
		if !ok || v != v<<shift>>shift {
			k.fault(i, "%d %s %d overflows %s", x, op, y, typeName(t))
			v = 0
		}
		out[i] = v
	})
}

// checkedInt is x op y; ok is false when it overflows.
func checkedInt(op string, x, y int64) (v int64, ok bool) {
	switch op {
	case "+":
		v = x + y
		return v, (x^v)&(y^v) >= 0
	case "-":
		v = x - y
		return v, (x^y)&(x^v) >= 0
	case "*":
		hi, lo := bits.Mul64(uint64(x), uint64(y))
		signed := int64(hi) - x>>63&y - y>>63&x
		return int64(lo), signed == int64(lo)>>63
	case "//":
		if y == -1 {
			return -x, x != math.MinInt64
		}
		return x / y, true
	}
	if y == -1 {
		return 0, true
	}
	return x % y, true
}

// decimalResult is the type of a op b. Sums and products keep all digits of the fraction; a quotient has as
// many as Spark's.
func decimalResult(at place, op string, a, b *arrow.Decimal128Type) (*arrow.Decimal128Type, error) {
	whole := max(a.Precision-a.Scale, b.Precision-b.Scale)
	scale := max(a.Scale, b.Scale)
	switch op {
	case "*":
		scale = a.Scale + b.Scale
		if scale > maxDigits {
			err := at.typeFault("the product has more than %d digits after the point", maxDigits)
			err.Found = typeName(a) + " * " + typeName(b)
			err.Hint = "CAST one side to a decimal with a smaller scale"
			return nil, err
		}
		return decimalType(min(a.Precision+b.Precision, maxDigits), scale), nil
	case "/":
		scale = max(6, a.Scale+b.Precision+1)
		precision := a.Precision - a.Scale + b.Scale + scale
		if precision > maxDigits {
			scale = max(maxDigits-(precision-scale), min(scale, 6))
			precision = maxDigits
		}
		return decimalType(precision, scale), nil
	case "%":
		return decimalType(min(whole+scale, maxDigits), scale), nil
	}
	return decimalType(min(whole+scale+1, maxDigits), scale), nil
}

func decimalArithmetic(at place, op string, sides []node) (node, error) {
	for i, n := range sides {
		if kindOf(n.typ()) == kindDecimal {
			continue
		}
		if c, ok := n.(*constNode); ok && c.number {
			sides[i] = decimalLiteral(c)
			continue
		}
		cast, err := newCast(at, n, asDecimal(n.typ()), false)
		if err != nil {
			return nil, err
		}
		sides[i] = cast
	}
	a, b := sides[0].typ().(*arrow.Decimal128Type), sides[1].typ().(*arrow.Decimal128Type)
	t, err := decimalResult(at, op, a, b)
	if err != nil {
		return nil, err
	}
	run := func(k *kernel) { decimals(k, op, t) }
	return fold(&mapNode{t: t, at: at, args: sides, run: run}), nil
}

func decimals(k *kernel, op string, t *arrow.Decimal128Type) {
	a, b := k.args[0], k.args[1]
	scaleA, scaleB := a.t.(*arrow.Decimal128Type).Scale, b.t.(*arrow.Decimal128Type).Scale
	k.out.decimals = newDecimals(k.r.rows)
	if neverOverflows(op, a.t.(*arrow.Decimal128Type), b.t.(*arrow.Decimal128Type), t) {
		easyDecimals(k, op)
		return
	}
	k.live.each(k.r.rows, func(i int) {
		x, y := a.dec(i), b.dec(i)
		if y.Sign() == 0 && (op == "/" || op == "%") {
			k.fault(i, "division by zero")
			return
		}
		v, ok := checkedDecimal(op, x, scaleA, y, scaleB, t)
		if !ok {
			k.fault(i, "%s %s %s overflows %s", appendDecimal(nil, x, scaleA), op,
				appendDecimal(nil, y, scaleB), typeName(t))
		}
		k.out.decimals[i] = v
	})
}

// neverOverflows tells whether the result has room for all values, without a change of scale.
func neverOverflows(op string, a, b, t *arrow.Decimal128Type) bool {
	switch op {
	case "*":
		return a.Precision+b.Precision <= t.Precision
	case "+", "-":
		return a.Scale == b.Scale && max(a.Precision, b.Precision) < t.Precision
	}
	return false
}

// easyDecimals computes every row, null or not.
func easyDecimals(k *kernel, op string) {
	a, b, out := k.args[0], k.args[1], k.out.decimals
	switch op {
	case "+":
		for i := range out {
			out[i] = a.dec(i).Add(b.dec(i))
		}
	case "-":
		for i := range out {
			out[i] = a.dec(i).Sub(b.dec(i))
		}
	default:
		for i := range out {
			if x, y := a.dec(i), b.dec(i); isInt64(x) && isInt64(y) {
				out[i] = mulInt64(int64(x.LowBits()), int64(y.LowBits()))
			} else {
				out[i], _ = mulDecimal(x, y)
			}
		}
	}
}

func checkedDecimal(op string, x decimal128.Num, scaleX int32, y decimal128.Num, scaleY int32,
	t *arrow.Decimal128Type) (decimal128.Num, bool) {
	switch op {
	case "*":
		v, ok := mulDecimal(x, y)
		return v, ok && fits(v, t.Precision)
	case "/":
		return divDecimal(x, scaleX, y, scaleY, t.Scale, t.Precision)
	}
	x, okX := rescale(x, scaleX, t.Scale, maxDigits)
	y, okY := rescale(y, scaleY, t.Scale, maxDigits)
	if op == "%" {
		return remainder(x, okX, y, okY, t)
	}
	if !okX || !okY {
		return decimal128.Num{}, false
	}
	v := x.Add(y)
	if op == "-" {
		v = x.Sub(y)
	}
	return v, fits(v, t.Precision)
}

func remainder(x decimal128.Num, okX bool, y decimal128.Num, okY bool, t *arrow.Decimal128Type,
) (decimal128.Num, bool) {
	if !okX || !okY {
		return decimal128.Num{}, false
	}
	if isInt64(x) && isInt64(y) {
		v, _ := checkedInt("%", int64(x.LowBits()), int64(y.LowBits()))
		return decimal128.FromI64(v), true
	}
	_, rest := x.Div(y)
	return rest, fits(rest, t.Precision)
}

func (b *binder) negate(s *negate) (node, error) {
	of, err := b.bind(s.of)
	if err != nil {
		return nil, err
	}
	if c, ok := of.(*constNode); ok && kindOf(c.value.t) == kindInterval {
		v := *c.value
		v.ints = []int64{-c.value.ints[0], -c.value.ints[1]}
		return &constNode{at: s.place, value: &v}, nil
	}
	zero := node(intConst(s.place, typeInt8, 0))
	if !isNumber(of.typ()) && kindOf(of.typ()) != kindNull {
		err := s.typeFault("- does not apply to this type")
		err.Found, err.Wanted = typeName(of.typ()), "a number"
		return nil, err
	}
	if kindOf(of.typ()) == kindNull {
		return of, nil
	}
	if kindOf(of.typ()) == kindInt {
		return newArithmetic(s.place, "-", zero, of)
	}
	run := func(k *kernel) {
		k.out.floats, k.out.decimals = make([]float64, k.r.rows), newDecimals(k.r.rows)
		v := k.args[0]
		k.live.each(k.r.rows, func(i int) {
			if kindOf(v.t) == kindFloat {
				k.out.floats[i] = -v.float(i)
				return
			}
			k.out.decimals[i] = v.dec(i).Negate()
		})
	}
	return fold(&mapNode{t: of.typ(), at: s.place, args: []node{of}, run: run}), nil
}
