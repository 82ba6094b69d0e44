package postgres

import (
	"math"
	"math/bits"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet/internal/column"
)

// intDecoder reads whole numbers.
type intDecoder[T int16 | int32 | int64] struct{ store *column.Fixed[T] }

func (d *intDecoder[T]) text(b []byte) verdict {
	v, ok := parseInt(b)
	if !ok {
		return malformed
	}
	if int64(T(v)) != v {
		return beyond
	}
	d.store.Append(T(v))
	return taken
}

// parseInt reads a number of up to 64 bits.
func parseInt(b []byte) (v int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var u uint64
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	if negative {
		return -int64(u), u <= 1<<63
	}
	return int64(u), u <= math.MaxInt64
}

// floatDecoder reads floats. Of 64 bits they may also be numerics, and are the nearest then.
type floatDecoder[T float32 | float64] struct {
	store *column.Fixed[T]
	bits  int
}

func (d *floatDecoder[T]) text(b []byte) verdict {
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), d.bits)
	switch {
	case err == nil:
		d.store.Append(T(v))
		return taken
	case math.IsInf(v, 0):
		return beyond
	}
	return malformed
}

// decimalDecoder reads numbers into a decimal. What has more digits behind the point than the scale, other than zeros, is
// beyond it, as NaN and the infinities are.
type decimalDecoder struct {
	store            *column.Fixed[decimal128.Num]
	precision, scale int
}

func (d *decimalDecoder) text(b []byte) verdict {
	v, verdict := parseDecimal(b, d.precision, d.scale)
	if verdict == taken {
		d.store.Append(v)
	}
	return verdict
}

// parseDecimal returns the coefficient of a decimal(precision,scale).
func parseDecimal(b []byte, precision, scale int) (decimal128.Num, verdict) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) > 0 && b[0]-'0' > 9 {
		return decimal128.Num{}, notANumber(b)
	}
	for len(b) > 1 && b[0] == '0' && b[1] != '.' {
		b = b[1:]
	}
	// Nearly all numbers have at most 18 digits: then the coefficient is one of 64 bits.
	var low uint64
	point, n := -1, 0
	for i, c := range b {
		digit := c - '0'
		if digit > 9 {
			if c != '.' || point >= 0 || i == 0 {
				return decimal128.Num{}, malformed
			}
			point = i
			continue
		}
		if n++; n > 18 {
			return longDecimal(b, negative, precision, scale)
		}
		low = low*10 + uint64(digit)
	}
	fraction := 0
	if point >= 0 {
		fraction = len(b) - point - 1
	}
	if n == 0 || point >= 0 && fraction == 0 {
		return decimal128.Num{}, malformed
	}
	for ; fraction > scale; fraction-- {
		if low%10 != 0 {
			return decimal128.Num{}, beyond
		}
		low /= 10
	}
	return scaled(0, low, negative, scale-fraction, precision)
}

// longDecimal is parseDecimal of more than 18 digits, the sign and leading zeros taken off.
func longDecimal(b []byte, negative bool, precision, scale int) (decimal128.Num, verdict) {
	var high, low uint64
	fraction, seen, significant := 0, false, 0
	fits := true
	for i, c := range b {
		digit := c - '0'
		if digit > 9 {
			if c != '.' || seen || i == 0 || i == len(b)-1 {
				return decimal128.Num{}, malformed
			}
			seen = true
			continue
		}
		if seen {
			if fraction == scale {
				fits = fits && digit == 0
				continue
			}
			fraction++
		}
		if significant > 0 || digit > 0 {
			significant++
		}
		if significant > 38 {
			fits = false
			continue
		}
		carry, l := bits.Mul64(low, 10)
		l, c := bits.Add64(l, uint64(digit), 0)
		high, low = high*10+carry+c, l
	}
	if !fits {
		return decimal128.Num{}, beyond
	}
	return scaled(high, low, negative, scale-fraction, precision)
}

// scaled returns the number, of at most 38 digits, times ten to the power of up, if its coefficient has at most
// precision digits.
func scaled(high, low uint64, negative bool, up, precision int) (decimal128.Num, verdict) {
	v := decimal128.New(int64(high), low)
	if v == (decimal128.Num{}) {
		return v, taken
	}
	if up == precision || !v.FitsInPrecision(int32(precision-up)) {
		return v, beyond
	}
	if up > 0 {
		v = v.IncreaseScaleBy(int32(up))
	}
	if negative {
		v = v.Negate()
	}
	return v, taken
}

// notANumber is the verdict on what does not begin with a digit, the sign taken off.
func notANumber(b []byte) verdict {
	if s := string(b); s == "NaN" || s == "Infinity" {
		return beyond
	}
	return malformed
}

// moneyDecoder reads amounts as the locale C writes them: -$1,234.56.
type moneyDecoder struct {
	decimalDecoder
	plain []byte
}

func (d *moneyDecoder) text(b []byte) verdict {
	d.plain = d.plain[:0]
	for _, c := range b {
		if c != '$' && c != ',' {
			d.plain = append(d.plain, c)
		}
	}
	return d.decimalDecoder.text(d.plain)
}
