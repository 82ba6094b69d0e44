package expr

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// Compare returns -1, 0 or 1 as v is less than, equal to or greater than w, in the order of expressions: texts by
// their bytes, NaN above all numbers. ok is false for values of different kinds, and for decimals of different scales.
func (v Value) Compare(w Value) (order int, ok bool) {
	if v.kind != w.kind {
		return 0, false
	}
	switch v.kind {
	case kindFloat:
		if n := nan(v.f) - nan(w.f); n != 0 {
			return n, true
		}
		return cmp.Compare(v.f, w.f), true
	case kindDecimal:
		return v.d.Cmp(w.d), v.scale == w.scale
	case kindString, kindBinary:
		return cmp.Compare(v.s, w.s), true
	}
	return cmp.Compare(v.i, w.i), true
}

// nan is 1 for NaN and 0 for numbers.
func nan(f float64) int {
	if f != f {
		return 1
	}
	return 0
}

// Float is the number of a float or double column; ok is false for other kinds.
func (v Value) Float() (f float64, ok bool) { return v.f, v.kind == kindFloat }

// String writes the value for people: texts in quotes, times as in RFC 3339.
func (v Value) String() string {
	switch v.kind {
	case kindBool:
		return strconv.FormatBool(v.i != 0)
	case kindFloat:
		return strconv.FormatFloat(v.f, 'g', -1, 64)
	case kindDecimal:
		return v.d.ToString(v.scale)
	case kindString, kindBinary:
		if len(v.s) > 100 {
			return strconv.Quote(v.s[:100]) + "…"
		}
		return strconv.Quote(v.s)
	case kindDate:
		return time.Unix(v.i*86400, 0).UTC().Format(time.DateOnly)
	case kindTime:
		return time.UnixMicro(v.i).UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.i)
}
