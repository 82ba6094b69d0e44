package expr

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

var mathFunctions = map[string]function{
	"abs":     {"n", newAbs},
	"sign":    {"n", of(typeInt32, mapInts(sign))},
	"round":   {"n?i", newRound},
	"floor":   {"n", func(c *callSite) (node, error) { return newWhole(c, math.Floor, -1) }},
	"ceil":    {"n", func(c *callSite) (node, error) { return newWhole(c, math.Ceil, 1) }},
	"ceiling": {"n", func(c *callSite) (node, error) { return newWhole(c, math.Ceil, 1) }},
	"sqrt":    {"f", of(typeFloat64, mapFloats(squareRoot))},
	"power":   {"ff", of(typeFloat64, mapFloats(power))},
	"pow":     {"ff", of(typeFloat64, mapFloats(power))},
	"mod":     {"nn", newMod},
}

func newMod(c *callSite) (node, error) { return newArithmetic(c.place, "%", c.args[0], c.args[1]) }

func newAbs(c *callSite) (node, error) {
	t := c.args[0].typ()
	switch kindOf(t) {
	case kindInt:
		return c.node(t, mapInts(func(k *kernel, i int) (int64, result) {
			v := k.args[0].int(i)
			if v >= 0 {
				return v, isValue
			}
			if _, ok := toWidth(-v, t); !ok || v == math.MinInt64 {
				k.fault(i, "abs(%d) overflows %s", v, typeName(t))
			}
			return -v, isValue
		}))
	case kindFloat:
		return c.node(t, mapFloats(func(k *kernel, i int) (float64, result) {
			return math.Abs(k.args[0].float(i)), isValue
		}))
	}
	return c.node(t, mapDecimals(func(k *kernel, i int) (decimal128.Num, bool) {
		return k.args[0].dec(i).Abs(), true
	}))
}

// mapDecimals makes a run out of a function of one row; ok is false when the result has too many digits.
func mapDecimals(f func(k *kernel, i int) (d decimal128.Num, ok bool)) func(*kernel) {
	return func(k *kernel) {
		k.out.decimals = newDecimals(k.r.rows)
		k.live.each(k.r.rows, func(i int) {
			d, ok := f(k, i)
			if !ok {
				k.fault(i, "%s has more digits than %s", textOf(k.args[0], i, nil), typeName(k.out.t))
			}
			k.out.decimals[i] = d
		})
	}
}

// sign is -1, 0 or 1; NaN has none.
func sign(k *kernel, i int) (int64, result) {
	v := k.args[0]
	switch kindOf(v.t) {
	case kindDecimal:
		return int64(v.dec(i).Sign()), isValue
	case kindFloat:
		f := v.float(i)
		switch {
		case math.IsNaN(f):
			k.fault(i, "NaN has no sign")
			return 0, isFault
		case f > 0:
			return 1, isValue
		case f < 0:
			return -1, isValue
		}
		return 0, isValue
	}
	return max(min(v.int(i), 1), -1), isValue
}

// newRound rounds to digits after the point (0 by default; negative: before it), halves away from zero.
func newRound(c *callSite) (node, error) {
	digits := int64(0)
	if len(c.args) > 1 {
		var err error
		if digits, err = c.constInt(1, "the number of digits"); err != nil {
			return nil, err
		}
	}
	if digits > maxDigits || digits < -maxDigits {
		return nil, c.typeFault("round takes -%d to %d digits, found %d", maxDigits, maxDigits, digits)
	}
	c.args = c.args[:1]
	t := c.args[0].typ()
	switch t := t.(type) {
	case *arrow.Decimal128Type:
		return roundDecimal(c, t, int32(digits))
	case *arrow.Float32Type, *arrow.Float64Type:
		return c.node(t, mapFloats(func(k *kernel, i int) (float64, result) {
			return roundFloat(k.args[0].float(i), int(digits)), isValue
		}))
	}
	if digits >= 0 {
		return c.args[0], nil
	}
	return c.node(t, mapInts(func(k *kernel, i int) (int64, result) {
		v := k.args[0].int(i)
		d, ok := roundTo(decimal128.FromI64(v), int32(-digits), maxDigits)
		if ok && isInt64(d) {
			if n, ok := toWidth(int64(d.LowBits()), t); ok {
				return n, isValue
			}
		}
		k.fault(i, "round(%d, %d) overflows %s", v, digits, typeName(t))
		return 0, isFault
	}))
}

// roundTo makes the last digits zero.
func roundTo(d decimal128.Num, digits, precision int32) (decimal128.Num, bool) {
	if digits > maxDigits-1 {
		return decimal128.Num{}, true
	}
	unit := decimal128.GetScaleMultiplier(int(digits))
	out, ok := mulDecimal(roundedQuotient(d, unit), unit)
	return out, ok && fits(out, precision)
}

// roundDecimal gives a decimal of the scale that is left.
func roundDecimal(c *callSite, t *arrow.Decimal128Type, digits int32) (node, error) {
	if digits >= t.Scale {
		return c.args[0], nil
	}
	to := decimalType(min(t.Precision-t.Scale+max(digits, 0)+1, maxDigits), max(digits, 0))
	return c.node(to, mapDecimals(func(k *kernel, i int) (decimal128.Num, bool) {
		d, ok := rescaleFloor(k.args[0].dec(i), t.Scale, digits)
		return d, ok && fits(d, to.Precision)
	}))
}

// rescaleFloor rounds to digits, which may be negative, and gives the value at scale max(digits, 0).
func rescaleFloor(d decimal128.Num, scale, digits int32) (decimal128.Num, bool) {
	if digits >= 0 {
		return rescale(d, scale, digits, maxDigits)
	}
	if scale-digits > maxDigits-1 {
		return decimal128.Num{}, true
	}
	d = roundedQuotient(d, decimal128.GetScaleMultiplier(int(scale-digits)))
	return mulDecimal(d, decimal128.GetScaleMultiplier(int(-digits)))
}

// roundFloat rounds the decimal text of the number, so that round(1.005, 2) is what a person expects of
// 1.005.
func roundFloat(f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) || digits == 0 {
		return math.Round(f)
	}
	scale := int32(max(digits, 0))
	d, err := parseDecimal(string(appendFloat(nil, f, typeFloat64)), maxDigits, scale)
	if err != nil {
		// So large that it has no digits to round, or so many that they are beyond its precision.
		return f
	}
	if digits < 0 {
		d, _ = roundTo(d, int32(-digits), maxDigits)
	}
	return decimalFloat(d, scale)
}

// newWhole is floor and ceil: a decimal gives a decimal without fraction, a float a float, an integer itself.
func newWhole(c *callSite, f func(float64) float64, direction int) (node, error) {
	switch t := c.args[0].typ().(type) {
	case *arrow.Decimal128Type:
		if t.Scale == 0 {
			return c.args[0], nil
		}
		to := decimalType(min(t.Precision-t.Scale+1, maxDigits), 0)
		unit := decimal128.GetScaleMultiplier(int(t.Scale))
		return rising(to, mapDecimals(func(k *kernel, i int) (decimal128.Num, bool) {
			whole, rest := k.args[0].dec(i).Div(unit)
			if rest.Sign() == direction {
				whole = whole.Add(decimal128.FromI64(int64(direction)))
			}
			return whole, true
		}))(c)
	case *arrow.Float32Type, *arrow.Float64Type:
		return rising(t, mapFloats(func(k *kernel, i int) (float64, result) {
			return f(k.args[0].float(i)), isValue
		}))(c)
	}
	return c.args[0], nil
}

func squareRoot(k *kernel, i int) (float64, result) {
	f := k.args[0].float(i)
	if f < 0 {
		k.fault(i, "sqrt of a negative number: %s", appendFloat(nil, f, typeFloat64))
		return 0, isFault
	}
	return math.Sqrt(f), isValue
}

func power(k *kernel, i int) (float64, result) {
	return math.Pow(k.args[0].float(i), k.args[1].float(i)), isValue
}
