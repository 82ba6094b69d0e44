package expr

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// newCast makes an explicit cast, checked: a value that the type cannot hold fails the row, or is null with
// try. A constant that cannot be cast is an error here.
func newCast(at place, of node, to arrow.DataType, try bool) (node, error) {
	from := of.typ()
	if arrow.TypeEqual(from, to) {
		return of, nil
	}
	if kindOf(from) == kindNull {
		return nullConst(at, to), nil
	}
	convert := caster(from, to)
	if convert == nil {
		err := at.typeFault("there is no cast between these types")
		err.Found = fmt.Sprintf("%s to %s", typeName(from), typeName(to))
		err.Hint = castHint(from, to)
		return nil, err
	}
	n := &mapNode{t: to, at: at, args: []node{of}, maybe: try, rising: risingCast(from, to),
		run: func(k *kernel) { convert(&castRun{kernel: k, from: from, to: to, try: try}) }}
	folded := fold(n)
	if c, isConst := of.(*constNode); isConst && folded == node(n) {
		r := &run{rows: 1}
		n.eval(r, nil)
		err := *r.faults[0].Err
		err.Kind = BadType
		if err.Line == 0 {
			err.Line, err.Col, err.Len = c.at.line, c.at.col, c.at.len
		}
		return nil, &err
	}
	return folded, nil
}

func castHint(from, to arrow.DataType) string {
	kf, kt := kindOf(from), kindOf(to)
	switch {
	case isNumber(from) && kt == kindTime:
		return "to_timestamp(x) takes seconds, epoch_ms(x) milliseconds"
	case kf == kindTime && isNumber(to):
		return "unix_timestamp(ts) gives seconds, epoch_ms(ts) milliseconds"
	case kf == kindDate && isNumber(to):
		return "datediff(d, DATE '1970-01-01') gives days"
	case kf == kindNested:
		return "take a field or an element of it"
	}
	return ""
}

// risingCast tells whether the cast keeps order.
func risingCast(from, to arrow.DataType) bool {
	kf, kt := kindOf(from), kindOf(to)
	inOrder := func(k kind) bool { return k == kindInt || k == kindDecimal || k == kindDate || k == kindTime }
	switch {
	case inOrder(kf) && inOrder(kt):
		return true
	case (kf == kindInt || kf == kindDecimal) && kt == kindFloat:
		return true
	}
	return kf == kindString && kt == kindBinary || kf == kindFloat && kt == kindFloat
}

// castRun is one run of a cast.
type castRun struct {
	*kernel
	from, to arrow.DataType
	try      bool
}

// fail makes the row null, or fails it.
func (c *castRun) fail(row int, why string) {
	if c.try {
		c.null(row)
		return
	}
	found := string(textOf(c.args[0], row, nil))
	switch kindOf(c.from) {
	case kindString:
		found = "'" + clip(found) + "'"
	case kindBinary:
		found = fmt.Sprintf("X'%s'", clip(strings.ToUpper(hex.EncodeToString([]byte(found)))))
	}
	if why != "" {
		why = ": " + why
	}
	c.fault(row, "cannot cast %s to %s%s", found, typeName(c.to), why)
}

// caster returns the conversion between two types that differ, nil when there is none.
func caster(from, to arrow.DataType) func(*castRun) {
	kf, kt := kindOf(from), kindOf(to)
	switch {
	case kt == kindNull || kt == kindNested || kt == kindInterval || kf == kindInterval || kf == kindNested:
		return nil
	case kf == kindString:
		return stringCaster(kt)
	case kt == kindString:
		return castToString
	case kf == kindBinary || kt == kindBinary:
		return nil
	case kt == kindBool && isNumber(from):
		return castToBool
	case kt == kindDate || kt == kindTime:
		return timeCaster(kf, kt)
	case kf == kindDate || kf == kindTime || kt == kindBool:
		return nil
	case kt == kindInt:
		return castToInt
	case kt == kindFloat:
		return castToFloat
	}
	return castToDecimal
}

func timeCaster(kf, kt kind) func(*castRun) {
	switch {
	case kf == kindTime && kt == kindTime:
		return func(c *castRun) { c.borrow(c.args[0]) }
	case kf == kindTime && kt == kindDate:
		return castToDay
	case kf == kindDate && kt == kindTime:
		return func(c *castRun) { c.mapInts(func(v int64) int64 { return v * microsPerDay }) }
	}
	return nil
}

// castToDay divides only where a row is not of the day of the one before, which rows that come in order mostly are.
func castToDay(c *castRun) {
	v := c.args[0]
	c.out.ints = make([]int64, c.r.rows)
	day, from := int64(0), int64(0)
	for i := range c.out.ints {
		at := v.int(i)
		if at < from || uint64(at-from) >= microsPerDay {
			day = floorDiv(at, microsPerDay)
			from = day * microsPerDay
		}
		c.out.ints[i] = day
		if from > at { // the day begins before the first time there is
			day, from = 0, 0
		}
	}
}

// mapInts converts every row, null or not, with a function that cannot fail.
func (c *castRun) mapInts(f func(int64) int64) {
	v := c.args[0]
	c.out.ints = make([]int64, c.r.rows)
	for i := range c.out.ints {
		c.out.ints[i] = f(v.int(i))
	}
}

// toWidth tells whether the value fits the integer type.
func toWidth(v int64, t arrow.DataType) (int64, bool) {
	switch intWidth(t) {
	case 8:
		return v, v == int64(int8(v))
	case 16:
		return v, v == int64(int16(v))
	case 32:
		return v, v == int64(int32(v))
	}
	return v, true
}

func castToInt(c *castRun) {
	v := c.args[0]
	if kindOf(c.from) == kindInt && intWidth(c.to) >= intWidth(c.from) {
		c.borrow(v)
		return
	}
	c.out.ints = make([]int64, c.r.rows)
	c.live.each(c.r.rows, func(i int) {
		n, ok := intAt(v, i)
		if ok {
			n, ok = toWidth(n, c.to)
		}
		if !ok {
			c.fail(i, "out of range")
			return
		}
		c.out.ints[i] = n
	})
}

// intAt is the value as an integer, rounded to the nearest, halves away from zero.
func intAt(v *vector, i int) (int64, bool) {
	switch kindOf(v.t) {
	case kindBool:
		if v.bools.has(i) {
			return 1, true
		}
		return 0, true
	case kindFloat:
		f := math.Round(v.float(i))
		if !(f >= -1<<63 && f < 1<<63) {
			return 0, false
		}
		return int64(f), true
	case kindDecimal:
		d, ok := rescale(v.dec(i), v.t.(*arrow.Decimal128Type).Scale, 0, maxDigits)
		return int64(d.LowBits()), ok && isInt64(d)
	}
	return v.int(i), true
}

func castToFloat(c *castRun) {
	v := c.args[0]
	c.out.floats = make([]float64, c.r.rows)
	c.live.each(c.r.rows, func(i int) {
		f, ok := narrow(floatAt(v, i), c.to)
		if !ok {
			c.fail(i, "out of range")
		}
		c.out.floats[i] = f
	})
}

// narrow rounds to float where that is the type; ok is false when that makes it infinite.
func narrow(f float64, t arrow.DataType) (_ float64, ok bool) {
	if t.ID() != arrow.FLOAT32 {
		return f, true
	}
	n := float64(float32(f))
	return n, !math.IsInf(n, 0) || math.IsInf(f, 0)
}

func floatAt(v *vector, i int) float64 {
	switch kindOf(v.t) {
	case kindBool, kindInt:
		n, _ := intAt(v, i)
		return float64(n)
	case kindDecimal:
		return decimalFloat(v.dec(i), v.t.(*arrow.Decimal128Type).Scale)
	}
	return v.float(i)
}

func castToDecimal(c *castRun) {
	v := c.args[0]
	to := c.to.(*arrow.Decimal128Type)
	c.out.decimals = newDecimals(c.r.rows)
	if kindOf(c.from) == kindInt && to.Scale == 0 && to.Precision >= intDigits(c.from) {
		for i := range c.out.decimals {
			c.out.decimals[i] = decimal128.FromI64(v.int(i))
		}
		return
	}
	c.live.each(c.r.rows, func(i int) {
		if kindOf(c.from) == kindFloat {
			d, err := parseDecimal(string(appendFloat(nil, v.float(i), c.from)), to.Precision, to.Scale)
			if err != nil {
				c.fail(i, err.Error())
			}
			c.out.decimals[i] = d
			return
		}
		d, scale := decimalAtBool(v, i)
		moved, ok := rescale(d, scale, to.Scale, to.Precision)
		if !ok {
			c.fail(i, errDigits.Error())
			return
		}
		c.out.decimals[i] = moved
	})
}

func castToBool(c *castRun) {
	v := c.args[0]
	c.out.bools = newBits(c.r.rows)
	c.live.each(c.r.rows, func(i int) {
		if floatAt(v, i) != 0 {
			c.out.bools.set(i)
		}
	})
}

func castToString(c *castRun) {
	mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		before := len(dst)
		dst = textOf(k.args[0], i, dst)
		if kindOf(c.from) == kindBinary && !validUTF8(dst[before:]) {
			c.fail(i, "not UTF-8")
			return dst, isFault
		}
		return dst, isValue
	})(c.kernel)
}

// textOf appends the row's value as CAST to string gives it; binary as it is.
func textOf(v *vector, i int, dst []byte) []byte {
	switch kindOf(v.t) {
	case kindBool:
		if v.bools.has(i) {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case kindInt:
		return appendInt(dst, v.int(i))
	case kindFloat:
		return appendFloat(dst, v.float(i), v.t)
	case kindDecimal:
		return appendDecimal(dst, v.dec(i), v.t.(*arrow.Decimal128Type).Scale)
	case kindDate:
		return appendDate(dst, v.int(i))
	case kindTime:
		return appendTimestamp(dst, v.int(i))
	case kindString, kindBinary:
		return append(dst, v.bytes(i)...)
	}
	return append(dst, strings.ToUpper(typeName(v.t))...)
}
