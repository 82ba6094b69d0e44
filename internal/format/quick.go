package format

import (
	"encoding/binary"
	"math/bits"

	"github.com/freshet-io/freshet/internal/column"
)

// quickBool reads true and false. It returns failed for all else.
func quickBool(b []byte, i int) (v bool, end int) {
	switch {
	case len(b)-i >= 4 && string(b[i:i+4]) == "true":
		return true, i + 4
	case len(b)-i >= 5 && string(b[i:i+5]) == "false":
		return false, i + 5
	}
	return false, failed
}

// quickText appends the text behind whose opening quote i is, if it is ASCII without escapes, of at most 15
// bytes, and neither the record nor the room in the column ends near it. It returns failed for all else.
func quickText(c *column.Text, b []byte, i int) (end int) {
	size := len(c.Data)
	if len(b)-i < 16 || cap(c.Data)-size < 16 {
		return failed
	}
	b = b[i : i+16]
	x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	var n int
	var ascii uint64
	if m := specials(x); m != 0 {
		at := bits.TrailingZeros64(m)
		n, ascii = at>>3, x&(1<<at-1)
	} else if m = specials(y); m != 0 {
		at := bits.TrailingZeros64(m)
		n, ascii = 8+at>>3, x|y&(1<<at-1)
	} else {
		return failed
	}
	if b[n] != '"' || ascii&highs != 0 {
		return failed
	}
	room := c.Data[size : size+16]
	binary.LittleEndian.PutUint64(room, x)
	binary.LittleEndian.PutUint64(room[8:], y)
	c.Data = c.Data[:size+n]
	c.Finish()
	return i + n + 1
}

// quickInt reads a whole number of at most 18 digits. It returns failed for all else, also for what is no
// JSON.
func quickInt(b []byte, i int) (v int64, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	first := i
	for i < len(b) && b[i]-'0' <= 9 {
		v = v*10 + int64(b[i]-'0')
		i++
	}
	n := i - first
	if n == 0 || n > 18 || n > 1 && b[first] == '0' || i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
		return 0, failed
	}
	if negative {
		v = -v
	}
	return v, i
}

// powersOfTen are those that a float64 holds exactly.
var powersOfTen = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
	1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// quickFloat reads a number without exponent whose digits are a whole number below 2^53: then it is the
// quotient of two exact floats, which is correctly rounded. It returns failed for all else, also for what is
// no JSON.
func quickFloat(b []byte, i int) (v float64, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	first := i
	var digits uint64
	for i < len(b) && b[i]-'0' <= 9 {
		digits = digits*10 + uint64(b[i]-'0')
		i++
	}
	n := i - first
	if n == 0 || n > 1 && b[first] == '0' {
		return 0, failed
	}
	scale := 0
	if i < len(b) && b[i] == '.' {
		i++
		point := i
		for i < len(b) && b[i]-'0' <= 9 {
			digits = digits*10 + uint64(b[i]-'0')
			i++
		}
		if scale = i - point; scale == 0 {
			return 0, failed
		}
	}
	if n+scale > 18 || digits > 1<<53 || i < len(b) && b[i]|0x20 == 'e' {
		return 0, failed
	}
	v = float64(digits)
	if scale > 0 {
		v /= powersOfTen[scale]
	}
	if negative {
		v = -v
	}
	return v, i
}
