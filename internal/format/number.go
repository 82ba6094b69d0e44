package format

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// decimal is a number as text: the value is ±(whole followed by fraction) · 10^(exponent − digits of the
// fraction).
type decimal struct {
	negative        bool
	whole, fraction []byte // digits; one of them may be empty
	exponent        int    // at most maxExponent from 0
	marked          bool   // it is written with a point or an exponent
}

// maxExponent bounds exponents, so that sums of them do not overflow. All beyond it is 0 or too large for any
// column.
const maxExponent = 1 << 20

// parseDecimal takes what JSON takes and what people write: a plus sign, leading zeros, ".5" and "5.".
func parseDecimal(b []byte) (d decimal, ok bool) {
	i := 0
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		d.negative = b[0] == '-'
		i++
	}
	end := digitsEnd(b, i)
	d.whole, i = b[i:end], end
	if i < len(b) && b[i] == '.' {
		end = digitsEnd(b, i+1)
		d.fraction, i, d.marked = b[i+1:end], end, true
	}
	if len(d.whole)+len(d.fraction) == 0 {
		return d, false
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		sign := 1
		d.marked = true
		i++
		if i < len(b) && (b[i] == '-' || b[i] == '+') {
			if b[i] == '-' {
				sign = -1
			}
			i++
		}
		end = digitsEnd(b, i)
		if end == i {
			return d, false
		}
		for ; i < end; i++ {
			d.exponent = min(d.exponent*10+int(b[i]-'0'), maxExponent)
		}
		d.exponent *= sign
	}
	return d, i == len(b)
}

// isWhole reports whether it is written without point and exponent.
func (d *decimal) isWhole() bool { return !d.marked }

// fit is how well a number fits a type.
type fit uint8

const (
	fits     fit = iota
	inexact      // it would have to be rounded; the value returned is cut off towards zero
	overflow     // it is too large
)

// uint128 is high·2^64 + low.
type uint128 struct{ high, low uint64 }

// maxUnscaled is the first coefficient that decimal(38) does not hold: 10^38.
var maxUnscaled = uint128{0x4b3b4ca85a86c47a, 0x098a224000000000}

func (u uint128) less(v uint128) bool { return u.high < v.high || u.high == v.high && u.low < v.low }

// timesTenPlus returns 10·u + digit; over says that it does not fit.
func (u uint128) timesTenPlus(digit byte) (r uint128, over bool) {
	over1, high := bits.Mul64(u.high, 10)
	carry, low := bits.Mul64(u.low, 10)
	low, c := bits.Add64(low, uint64(digit), 0)
	high, c2 := bits.Add64(high, carry, c)
	return uint128{high, low}, over1 != 0 || c2 != 0
}

// unscaled returns the absolute value times 10^scale, below 10^38.
func (d *decimal) unscaled(scale int) (u uint128, f fit) {
	digits := len(d.whole) + len(d.fraction)
	keep := len(d.whole) + d.exponent + scale // how many of the digits count
	for i := range digits {
		digit := d.digit(i)
		if i >= keep {
			if digit != 0 {
				return u, inexact
			}
			continue
		}
		if u, f = u.next(digit); f != fits {
			return u, f
		}
	}
	for i := digits; i < keep && u != (uint128{}); i++ {
		if u, f = u.next(0); f != fits {
			return u, f
		}
	}
	return u, fits
}

func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i] - '0'
	}
	return d.fraction[i-len(d.whole)] - '0'
}

func (u uint128) next(digit byte) (uint128, fit) {
	u, over := u.timesTenPlus(digit)
	if over || !u.less(maxUnscaled) {
		return u, overflow
	}
	return u, fits
}

// powers are 10^0 to 10^38.
var powers = func() (p [39]uint128) {
	p[0].low = 1
	for i := 1; i < len(p); i++ {
		p[i], _ = p[i-1].timesTenPlus(0)
	}
	return p
}()

// decimal128 returns the number as the coefficient of a decimal(precision,scale).
func (d *decimal) decimal128(precision, scale int) (decimal128.Num, fit) {
	u, f := d.unscaled(scale)
	if f == fits && !u.less(powers[precision]) {
		f = overflow
	}
	if d.negative {
		var borrow uint64
		u.low, borrow = bits.Sub64(0, u.low, 0)
		u.high, _ = bits.Sub64(0, u.high, borrow)
	}
	return decimal128.New(int64(u.high), u.low), f
}

// int64 returns the number times 10^scale.
func (d *decimal) int64(scale int) (int64, fit) {
	u, f := d.unscaled(scale)
	switch {
	case f == overflow || u.high != 0:
		return 0, overflow
	case d.negative && u.low <= 1<<63:
		return -int64(u.low), f
	case u.low > math.MaxInt64:
		return 0, overflow
	}
	return int64(u.low), f
}

// parseFloat returns the nearest float of 32 or 64 bits. The text is one that parseDecimal takes, and its d.
func parseFloat(b []byte, d *decimal, size int) (float64, fit) {
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), size)
	if err != nil {
		return 0, overflow
	}
	if d.isWhole() && len(d.whole) > 7 && !printsAs(v, size, d) && !exactWhole(v, d) {
		return v, inexact
	}
	return v, fits
}

// exactWhole reports whether v is the whole number d.
func exactWhole(v float64, d *decimal) bool {
	u, f := d.unscaled(0)
	if f != fits {
		return false
	}
	const two64 = 1 << 64
	v = math.Abs(v)
	high := math.Floor(v / two64)
	return high < two64 && u.high == uint64(high) && u.low == uint64(v-high*two64)
}

// extent returns how many digits the value has before the point, leading zeros not counted, and behind it,
// trailing zeros not counted.
func (d *decimal) extent() (whole, scale int) {
	digits := len(d.whole) + len(d.fraction)
	first, last := 0, digits
	for first < digits && d.digit(first) == 0 {
		first++
	}
	if first == digits {
		return 0, 0
	}
	for d.digit(last-1) == 0 {
		last--
	}
	point := len(d.whole) + d.exponent
	return max(point-first, 0), max(last-point, 0)
}

// printsAs reports whether the number is what the shortest text that means v is, zeros at the ends aside.
func printsAs(v float64, size int, d *decimal) bool {
	var buf [32]byte
	short := strconv.AppendFloat(buf[:0], v, 'e', -1, size)
	got, ok := parseDecimal(short)
	if !ok || got.negative != d.negative {
		return false
	}
	a, aPoint := d.significant()
	b, bPoint := got.significant()
	return string(a) == string(b) && aPoint == bPoint
}

// significant returns the digits without zeros at the ends, and the power of ten of the first.
func (d *decimal) significant() (digits []byte, power int) {
	digits = append(append(make([]byte, 0, 40), d.whole...), d.fraction...)
	trimmed := bytes.TrimLeft(digits, "0")
	power = len(d.whole) + d.exponent - (len(digits) - len(trimmed))
	if trimmed = bytes.TrimRight(trimmed, "0"); len(trimmed) == 0 {
		power = 0
	}
	return trimmed, power
}
