package parquet

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Stats are the null count and the bounds of a column's values in a file or a row group. Of the bounds, the pair
// that fits the column's kind is set: integers for integers, dates, timestamps and decimals of at most 18 digits
// (unscaled), floats for Float and Double, decimals beyond that, bytes for String. Other kinds have none.
type Stats struct {
	Nulls     int64 // values that are null or below a null struct
	HasBounds bool  // false when there was no value, or none but NaN
	HasNaN    bool  // NaN is outside of the bounds

	MinInt, MaxInt         int64
	MinFloat, MaxFloat     float64 // a zero minimum is -0, a zero maximum +0
	MinDecimal, MaxDecimal decimal128.Num
	MinBytes, MaxBytes     []byte

	minPrefix, maxPrefix uint64
}

// Visit calls f for each part of the first n columns that can be counted, in their order: every leaf, list and map that
// is not inside a list or map. path is valid during the call.
func (w *Writer) Visit(n int, f func(path []*Column, s *Stats)) {
	for _, n := range w.roots[:n] {
		n.visit(nil, f)
	}
}

func (n *node) visit(path []*Column, f func([]*Column, *Stats)) {
	path = append(path, n.col)
	if n.stats != nil {
		f(path, n.stats)
		return
	}
	for _, c := range n.children {
		c.visit(path, f)
	}
}

func (s *Stats) ints(lo, hi int64) {
	if !s.HasBounds {
		s.MinInt, s.MaxInt, s.HasBounds = lo, hi, true
		return
	}
	s.MinInt, s.MaxInt = min(s.MinInt, lo), max(s.MaxInt, hi)
}

// float takes one value in; NaN is only noted.
func (s *Stats) float(v float64) {
	switch {
	case v != v:
		s.HasNaN = true
	case !s.HasBounds:
		s.MinFloat, s.MaxFloat, s.HasBounds = v, v, true
	case v < s.MinFloat:
		s.MinFloat = v
	case v > s.MaxFloat:
		s.MaxFloat = v
	}
}

// floatBounds takes the bounds of the values at idx in.
func floatBounds[T float32 | float64](s *Stats, v []T, idx []int32) {
	lo, hi, nan := T(math.Inf(1)), T(math.Inf(-1)), false
	for _, at := range idx {
		x := v[at]
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
		nan = nan || x != x
	}
	s.HasNaN = s.HasNaN || nan
	if lo <= hi {
		s.float(float64(lo))
		s.float(float64(hi))
	}
}

// signZeros makes zero bounds safe whichever way a reader orders -0 and +0.
func (s *Stats) signZeros() {
	if s.MinFloat == 0 {
		s.MinFloat = math.Copysign(0, -1)
	}
	if s.MaxFloat == 0 {
		s.MaxFloat = 0
	}
}

func (s *Stats) decimal(v decimal128.Num) {
	switch {
	case !s.HasBounds:
		s.MinDecimal, s.MaxDecimal, s.HasBounds = v, v, true
	case v.Less(s.MinDecimal):
		s.MinDecimal = v
	case s.MaxDecimal.Less(v):
		s.MaxDecimal = v
	}
}

// text takes one value in. The first eight bytes decide nearly always.
func (s *Stats) text(v []byte) {
	p := prefix(v)
	if !s.HasBounds {
		s.HasBounds = true
		s.MinBytes, s.MaxBytes = append(s.MinBytes[:0], v...), append(s.MaxBytes[:0], v...)
		s.minPrefix, s.maxPrefix = p, p
		return
	}
	if p < s.minPrefix || p == s.minPrefix && bytes.Compare(v, s.MinBytes) < 0 {
		s.MinBytes, s.minPrefix = append(s.MinBytes[:0], v...), p
	}
	if p > s.maxPrefix || p == s.maxPrefix && bytes.Compare(v, s.MaxBytes) > 0 {
		s.MaxBytes, s.maxPrefix = append(s.MaxBytes[:0], v...), p
	}
}

// prefix is the first eight bytes as a number that orders like them; missing ones count as zero.
func prefix(v []byte) uint64 {
	if len(v) >= 8 {
		return binary.BigEndian.Uint64(v)
	}
	var p uint64
	for i, c := range v {
		p |= uint64(c) << (56 - 8*i)
	}
	return p
}

// merge takes the bounds of o in, not its nulls; wide says that they are decimals of more than 18 digits.
func (s *Stats) merge(o *Stats, k Kind, wide bool) {
	s.HasNaN = s.HasNaN || o.HasNaN
	if !o.HasBounds {
		return
	}
	switch {
	case k == Float || k == Double:
		s.float(o.MinFloat)
		s.float(o.MaxFloat)
		s.signZeros()
	case k == String:
		s.text(o.MinBytes)
		s.text(o.MaxBytes)
	case wide:
		s.decimal(o.MinDecimal)
		s.decimal(o.MaxDecimal)
	default:
		s.ints(o.MinInt, o.MaxInt)
	}
}

type integer interface {
	int8 | int16 | int32 | int64 | arrow.Date32 | arrow.Timestamp
}

// gather copies the values at idx to out and returns the bounds; idx is not empty.
func gather[T integer](v []T, idx []int32, out []int64) (lo, hi int64) {
	l, h := v[idx[0]], v[idx[0]]
	out = out[:len(idx)]
	for i, at := range idx {
		x := v[at]
		l, h = min(l, x), max(h, x)
		out[i] = int64(x)
	}
	return int64(l), int64(h)
}
