package expr

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

func validUTF8(b []byte) bool               { return utf8.Valid(b) }
func appendInt(dst []byte, v int64) []byte  { return strconv.AppendInt(dst, v, 10) }
func newDecimals(rows int) []decimal128.Num { return make([]decimal128.Num, rows) }

// view is the bytes as a string that must not outlive them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// decimalAtBool is decimalAt for booleans too.
func decimalAtBool(v *vector, i int) (decimal128.Num, int32) {
	if kindOf(v.t) == kindBool {
		n, _ := intAt(v, i)
		return decimal128.FromI64(n), 0
	}
	return v.decimalAt(i)
}

// appendFloat writes the shortest text that reads back as the same value: 1.0, 0.1, 1.0E20, NaN, Infinity.
func appendFloat(dst []byte, f float64, t arrow.DataType) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	bits := 64
	if t.ID() == arrow.FLOAT32 {
		bits = 32
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-3 || abs >= 1e7) {
		return appendScientific(dst, f, bits)
	}
	before := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
	if !strings.Contains(view(dst[before:]), ".") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendScientific writes 1.5E-7, as Spark does.
func appendScientific(dst []byte, f float64, bits int) []byte {
	text := strconv.FormatFloat(f, 'E', -1, bits)
	mantissa, exponent, _ := strings.Cut(text, "E")
	dst = append(dst, mantissa...)
	if !strings.Contains(mantissa, ".") {
		dst = append(dst, ".0"...)
	}
	dst = append(dst, 'E')
	if exponent[0] == '-' {
		dst = append(dst, '-')
	}
	return append(dst, strings.TrimLeft(exponent, "+-0")...)
}

// stringCaster returns the conversion from string.
func stringCaster(to kind) func(*castRun) {
	switch to {
	case kindBinary:
		return func(c *castRun) { c.borrow(c.args[0]) }
	case kindBool:
		return func(c *castRun) {
			c.out.bools = newBits(c.r.rows)
			c.each(func(i int, s string) error {
				v, err := parseBool(s)
				if v {
					c.out.bools.set(i)
				}
				return err
			})
		}
	case kindInt:
		return castStringToInt
	case kindFloat:
		return castStringToFloat
	case kindDecimal:
		return func(c *castRun) {
			to := c.to.(*arrow.Decimal128Type)
			c.out.decimals = newDecimals(c.r.rows)
			c.each(func(i int, s string) (err error) {
				c.out.decimals[i], err = parseDecimal(s, to.Precision, to.Scale)
				return err
			})
		}
	case kindDate:
		return castStringToDate
	case kindTime:
		return castStringToTime
	}
	return nil
}

// each converts the live rows of a string argument.
func (c *castRun) each(f func(i int, s string) error) {
	v := c.args[0]
	c.live.each(c.r.rows, func(i int) {
		if err := f(i, view(v.bytes(i))); err != nil {
			c.fail(i, err.Error())
		}
	})
}

func castStringToInt(c *castRun) {
	c.out.ints = make([]int64, c.r.rows)
	width := intWidth(c.to)
	c.each(func(i int, s string) error {
		v, err := strconv.ParseInt(strings.TrimSpace(s), 10, width)
		if errors.Is(err, strconv.ErrRange) {
			return errors.New("out of range")
		}
		if err != nil {
			return errNumber
		}
		c.out.ints[i] = v
		return nil
	})
}

func castStringToFloat(c *castRun) {
	c.out.floats = make([]float64, c.r.rows)
	c.each(func(i int, s string) error {
		f, err := parseFloat(strings.TrimSpace(s))
		if err != nil {
			return err
		}
		f, ok := narrow(f, c.to)
		if !ok {
			return errors.New("out of range")
		}
		c.out.floats[i] = f
		return nil
	})
}

// parseFloat reads a decimal number, NaN, Infinity and inf; one that is too large is an error.
func parseFloat(s string) (float64, error) {
	if strings.ContainsAny(s, "xX_pP") {
		return 0, errNumber
	}
	f, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("out of range")
	}
	if err != nil {
		return 0, errNumber
	}
	return f, nil
}

func parseBool(s string) (bool, error) {
	s = strings.TrimSpace(s)
	for _, yes := range []string{"true", "t", "yes", "y", "1"} {
		if strings.EqualFold(s, yes) {
			return true, nil
		}
	}
	for _, no := range []string{"false", "f", "no", "n", "0"} {
		if strings.EqualFold(s, no) {
			return false, nil
		}
	}
	return false, errors.New("neither true nor false")
}

// castStringToDate takes the day that the text names, whatever time and zone follow it.
func castStringToDate(c *castRun) {
	c.out.ints = make([]int64, c.r.rows)
	c.each(func(i int, s string) error {
		at, err := parseClock(s)
		if err != nil {
			return err
		}
		c.out.ints[i] = at.days()
		return nil
	})
}

func castStringToTime(c *castRun) {
	c.out.ints = make([]int64, c.r.rows)
	local := c.to.(*arrow.TimestampType).TimeZone == ""
	c.each(func(i int, s string) error {
		at, err := parseClock(s)
		if err != nil {
			return err
		}
		if local && at.offset != 0 {
			return errors.New("it has a zone; cast it to timestamp")
		}
		c.out.ints[i] = at.instant()
		return checkMicros(c.out.ints[i])
	})
}
