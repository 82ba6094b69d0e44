package expr

import (
	"errors"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

var (
	errDigits = errors.New("more digits than the type has")
	errNumber = errors.New("not a number")
)

// fits tells whether the unscaled value has at most precision digits.
func fits(d decimal128.Num, precision int32) bool {
	return d.Abs().Less(decimal128.GetScaleMultiplier(int(precision)))
}

// compareDecimals compares two unscaled values of any scales, exactly.
func compareDecimals(a decimal128.Num, scaleA int32, b decimal128.Num, scaleB int32) int {
	switch {
	case scaleA < scaleB:
		scaled, ok := mulDecimal(a, decimal128.GetScaleMultiplier(int(scaleB-scaleA)))
		if !ok {
			return a.Sign()
		}
		return scaled.Cmp(b)
	case scaleA > scaleB:
		return -compareDecimals(b, scaleB, a, scaleA)
	}
	return a.Cmp(b)
}

// mulDecimal multiplies; ok is false when the product has more than 38 digits.
func mulDecimal(a, b decimal128.Num) (product decimal128.Num, ok bool) {
	if isInt64(a) && isInt64(b) {
		// 63 by 63 bits are below 10^38.
		return mulInt64(int64(a.LowBits()), int64(b.LowBits())), true
	}
	x, y := a.Abs(), b.Abs()
	hi, lo := bits.Mul64(x.LowBits(), y.LowBits())
	hi1, cross1 := bits.Mul64(uint64(x.HighBits()), y.LowBits())
	hi2, cross2 := bits.Mul64(x.LowBits(), uint64(y.HighBits()))
	if hi1|hi2 != 0 || x.HighBits() != 0 && y.HighBits() != 0 {
		return decimal128.Num{}, false
	}
	hi, carry1 := bits.Add64(hi, cross1, 0)
	hi, carry2 := bits.Add64(hi, cross2, 0)
	if carry1|carry2 != 0 || hi>>63 != 0 {
		return decimal128.Num{}, false
	}
	product = decimal128.New(int64(hi), lo)
	if !fits(product, maxDigits) {
		return decimal128.Num{}, false
	}
	if (a.Sign() < 0) != (b.Sign() < 0) {
		product = product.Negate()
	}
	return product, true
}

// mulInt64 is the product in full.
func mulInt64(a, b int64) decimal128.Num {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return decimal128.New(int64(hi)-a>>63&b-b>>63&a, lo)
}

// rescale changes the scale, rounding halves away from zero; ok is false when the result exceeds precision.
func rescale(d decimal128.Num, from, to, precision int32) (decimal128.Num, bool) {
	switch {
	case to > from:
		scaled, ok := mulDecimal(d, decimal128.GetScaleMultiplier(int(to-from)))
		return scaled, ok && fits(scaled, precision)
	case to < from:
		d = roundedQuotient(d, decimal128.GetScaleMultiplier(int(from-to)))
	}
	return d, fits(d, precision)
}

// roundedQuotient is a/b for b > 0, halves away from zero.
func roundedQuotient(a, b decimal128.Num) decimal128.Num {
	if isInt64(a) && isInt64(b) {
		x, y := int64(a.LowBits()), int64(b.LowBits())
		q, r := x/y, x%y
		switch {
		case r > 0 && r >= y-r:
			q++
		case r < 0 && -r >= y+r:
			q--
		}
		return decimal128.FromI64(q)
	}
	return decimal128.FromBigInt(roundQuo(a.BigInt(), b.BigInt()))
}

func isInt64(d decimal128.Num) bool { return d.HighBits() == int64(d.LowBits())>>63 }

// roundQuo is a/b, halves away from zero.
func roundQuo(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if r.CmpAbs(b) >= 0 {
		q.Add(q, big.NewInt(int64(a.Sign()*b.Sign())))
	}
	return q
}

// divDecimal returns a/b at the scale asked for, halves away from zero; b is not zero.
func divDecimal(a decimal128.Num, scaleA int32, b decimal128.Num, scaleB, scale, precision int32,
) (decimal128.Num, bool) {
	x, y := a.BigInt(), b.BigInt()
	shift := scale - scaleA + scaleB
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	if shift >= 0 {
		x.Mul(x, power)
	} else {
		y.Mul(y, power)
	}
	q := roundQuo(x, y)
	if q.BitLen() > 127 {
		return decimal128.Num{}, false
	}
	d := decimal128.FromBigInt(q)
	return d, fits(d, precision)
}

// parseDecimal reads an optional sign, digits with an optional point, and an optional exponent, rounding
// halves away from zero. Spaces around it are allowed.
func parseDecimal(s string, precision, scale int32) (decimal128.Num, error) {
	s = strings.TrimSpace(s)
	negative := strings.HasPrefix(s, "-")
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || numberLength(digits) != len(digits) || strings.Trim(digits, ".") == "" {
		return decimal128.Num{}, errNumber
	}
	exponent := 0
	if e := strings.IndexAny(digits, "eE"); e >= 0 {
		n, err := strconv.Atoi(digits[e+1:])
		if err != nil || n > 1000 || n < -1000 {
			return decimal128.Num{}, errDigits
		}
		digits, exponent = digits[:e], n
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	unscaled, ok := digitsDecimal(whole+fraction, exponent-len(fraction)+int(scale))
	if !ok || !fits(unscaled, precision) {
		return decimal128.Num{}, errDigits
	}
	if negative {
		unscaled = unscaled.Negate()
	}
	return unscaled, nil
}

// digitsDecimal is digits × 10^shift, halves rounded up.
func digitsDecimal(digits string, shift int) (decimal128.Num, bool) {
	digits = strings.TrimLeft(digits, "0")
	roundUp := false
	if shift < 0 && digits != "" {
		keep := max(len(digits)+shift, 0)
		if len(digits)+shift >= 0 {
			roundUp = digits[keep] >= '5'
		}
		digits, shift = digits[:keep], 0
	}
	if digits != "" && len(digits)+shift > maxDigits {
		return decimal128.Num{}, false
	}
	var out decimal128.Num
	for len(digits) > 0 {
		n := min(len(digits), 18)
		part, err := strconv.ParseUint(digits[:n], 10, 64)
		if err != nil {
			return out, false
		}
		out = out.Mul(decimal128.GetScaleMultiplier(n)).Add(decimal128.FromU64(part))
		digits = digits[n:]
	}
	if shift > 0 && out.Sign() != 0 {
		out = out.Mul(decimal128.GetScaleMultiplier(shift))
	}
	if roundUp {
		out = out.Add(decimal128.FromU64(1))
	}
	return out, true
}

// appendDecimal writes all digits of the scale: 1.50.
func appendDecimal(dst []byte, d decimal128.Num, scale int32) []byte {
	if d.Sign() < 0 {
		dst = append(dst, '-')
		d = d.Negate()
	}
	var digits []byte
	if isInt64(d) {
		digits = strconv.AppendUint(make([]byte, 0, 40), d.LowBits(), 10)
	} else {
		digits = d.BigInt().Append(make([]byte, 0, 40), 10)
	}
	for len(digits) <= int(scale) {
		digits = append([]byte{'0'}, digits...)
	}
	point := len(digits) - int(scale)
	dst = append(dst, digits[:point]...)
	if scale > 0 {
		dst = append(dst, '.')
		dst = append(dst, digits[point:]...)
	}
	return dst
}

// decimalFloat is the nearest float64.
func decimalFloat(d decimal128.Num, scale int32) float64 {
	if isInt64(d) {
		if v := int64(d.LowBits()); scale <= 22 && v < 1<<53 && v > -1<<53 {
			return float64(v) / exactPower(scale)
		}
	}
	f, _ := strconv.ParseFloat(string(appendDecimal(nil, d, scale)), 64)
	return f
}

// exactPower is 10^n for n up to 22, which a float64 holds exactly.
func exactPower(n int32) float64 {
	out := 1.0
	for range n {
		out *= 10
	}
	return out
}
