package delta

import (
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// fingerprint stands for the values of a row, or of some of its columns: rows with equal ones are taken for alike. It
// depends on secrets of its rowHasher, so that nobody can make two rows meet; that two of a trillion meet by chance
// is as likely as 1 in 10^14.
type fingerprint struct{ hi, lo uint64 }

// rowHasher makes fingerprints. All NaNs are alike, and nulls; the two zeroes differ. It is safe for concurrent use.
type rowHasher struct {
	hi, lo  maphash.Seed
	k1, k2  uint64 // odd
	null    uint64
	initial fingerprint
}

func newRowHasher() *rowHasher {
	h := &rowHasher{hi: maphash.MakeSeed(), lo: maphash.MakeSeed()}
	secret := func(name string) uint64 { return maphash.String(h.hi, name) }
	h.k1, h.k2, h.null = secret("k1")|1, secret("k2")|1, secret("null")
	h.initial = fingerprint{secret("hi"), secret("lo")}
	return h
}

// rows returns the fingerprints of a batch's rows over some of its columns.
func (h *rowHasher) rows(columns []arrow.Array, rows int) []fingerprint {
	out := make([]fingerprint, rows)
	for i := range out {
		out[i] = h.initial
	}
	for _, c := range columns {
		h.column(out, c)
	}
	return out
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func (h *rowHasher) mix(f *fingerprint, v uint64) {
	f.hi = fold(f.hi^v, h.k1)
	f.lo = fold(f.lo^bits.RotateLeft64(v, 32), h.k2)
}

func (h *rowHasher) mixText(f *fingerprint, s string) {
	f.hi = fold(f.hi^maphash.String(h.hi, s), h.k1)
	f.lo = fold(f.lo^maphash.String(h.lo, s), h.k2)
}

// column mixes a column into the fingerprints, by loops over its values where they are of fixed width.
func (h *rowHasher) column(out []fingerprint, arr arrow.Array) {
	switch a := arr.(type) {
	case *array.Int8:
		hashIntegers(h, out, a, a.Int8Values())
	case *array.Int16:
		hashIntegers(h, out, a, a.Int16Values())
	case *array.Int32:
		hashIntegers(h, out, a, a.Int32Values())
	case *array.Int64:
		hashIntegers(h, out, a, a.Int64Values())
	case *array.Date32:
		hashIntegers(h, out, a, a.Date32Values())
	case *array.Timestamp:
		hashIntegers(h, out, a, a.TimestampValues())
	default:
		for i := range out {
			h.value(&out[i], arr, i)
		}
	}
}

func hashIntegers[T ~int8 | ~int16 | ~int32 | ~int64](h *rowHasher, out []fingerprint, arr arrow.Array, values []T) {
	for i, v := range values[:len(out)] {
		if arr.NullN() > 0 && arr.IsNull(i) {
			h.mix(&out[i], h.null)
			continue
		}
		h.mix(&out[i], uint64(int64(v)))
	}
}

// value mixes one value, of any type that Schema.Arrow has.
func (h *rowHasher) value(f *fingerprint, arr arrow.Array, i int) {
	if arr.IsNull(i) || arr.DataType().ID() == arrow.NULL {
		h.mix(f, h.null)
		return
	}
	switch a := arr.(type) {
	case *array.Boolean:
		v := uint64(0)
		if a.Value(i) {
			v = 1
		}
		h.mix(f, v)
	case *array.Float32:
		h.mix(f, floatBits(float64(a.Value(i))))
	case *array.Float64:
		h.mix(f, floatBits(a.Value(i)))
	case *array.Decimal128:
		h.decimal(f, a.Value(i))
	case *array.String:
		h.mixText(f, a.Value(i))
	case *array.Binary:
		h.mixText(f, a.ValueString(i))
	case *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Date32, *array.Timestamp:
		h.mix(f, uint64(integerAt(arr, i)))
	default:
		h.nested(f, arr, i)
	}
}

// floatBits are the bits of a number, the same for every NaN.
func floatBits(v float64) uint64 {
	if v != v {
		return 0x7ff8000000000000
	}
	return math.Float64bits(v)
}

func (h *rowHasher) decimal(f *fingerprint, v decimal128.Num) {
	h.mix(f, v.LowBits())
	h.mix(f, uint64(v.HighBits()))
}

func integerAt(arr arrow.Array, i int) int64 {
	switch a := arr.(type) {
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	}
	return arr.(*array.Int64).Value(i)
}

func (h *rowHasher) nested(f *fingerprint, arr arrow.Array, i int) {
	switch a := arr.(type) {
	case *array.Struct:
		for k := range a.NumField() {
			h.value(f, a.Field(k), i)
		}
	case *array.Map:
		from, to := a.ValueOffsets(i)
		h.mix(f, uint64(to-from))
		for k := from; k < to; k++ {
			h.value(f, a.Keys(), int(k))
			h.value(f, a.Items(), int(k))
		}
	case *array.List:
		from, to := a.ValueOffsets(i)
		h.mix(f, uint64(to-from))
		for k := from; k < to; k++ {
			h.value(f, a.ListValues(), int(k))
		}
	case array.ExtensionArray:
		h.value(f, a.Storage(), i)
	default:
		panic("delta: rows with " + arr.DataType().String() + " cannot be compared") // no column has the type
	}
}
