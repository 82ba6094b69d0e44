package delta

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// castCoded gives texts that are places in a dictionary their type.
func castCoded(arr *array.Dictionary, want arrow.DataType) (arrow.Array, error) {
	have := arr.DataType().(*arrow.DictionaryType).ValueType
	switch {
	case arrow.TypeEqual(have, want):
		arr.Retain()
		return arr, nil
	case want.ID() != arrow.STRING && want.ID() != arrow.BINARY:
		return nil, fmt.Errorf("the file holds %s, wanted %s", have, want)
	}
	d, texts := arr.Data(), arr.Dictionary().Data()
	retyped := array.NewData(want, texts.Len(), texts.Buffers(), nil, 0, texts.Offset())
	defer retyped.Release()
	data := array.NewDataWithDictionary(codedType(want), d.Len(), d.Buffers(), d.NullN(), d.Offset(), retyped)
	defer data.Release()
	return array.NewDictionaryData(data), nil
}

// castPrimitive gives a file's values the type of the table's column: the same values, in a wider type (spec: "Type
// Widening"), or under the annotation that the writer of the file left out. A value that does not fit is an error.
func castPrimitive(arr arrow.Array, t Type) (arrow.Array, error) {
	want := ArrowType(t)
	if arrow.TypeEqual(arr.DataType(), want) {
		arr.Retain()
		return arr, nil
	}
	if coded, ok := arr.(*array.Dictionary); ok {
		return castCoded(coded, want)
	}
	fault := fmt.Errorf("the file holds %s, wanted %s", arr.DataType(), t)
	b := array.NewBuilder(memory.DefaultAllocator, want)
	defer b.Release()
	b.Reserve(arr.Len())
	var put func(i int) error
	switch b := b.(type) {
	case *array.StringBuilder:
		put = putBytes(arr, func(v []byte) { b.Append(string(v)) })
	case *array.BinaryBuilder:
		put = putBytes(arr, b.Append)
	case *array.Float32Builder:
		put = putInts(arr, func(v int64) error { b.Append(float32(v)); return nil })
	case *array.Float64Builder:
		put = putFloats(arr, b.Append)
	case *array.Decimal128Builder:
		put = putDecimals(arr, t.(Decimal), b.Append)
	case *array.TimestampBuilder:
		put = putTimes(arr, func(v int64) { b.Append(arrow.Timestamp(v)) })
	case *array.Int8Builder:
		put = putInts(arr, ranged(math.MinInt8, math.MaxInt8, func(v int64) { b.Append(int8(v)) }))
	case *array.Int16Builder:
		put = putInts(arr, ranged(math.MinInt16, math.MaxInt16, func(v int64) { b.Append(int16(v)) }))
	case *array.Int32Builder:
		put = putInts(arr, ranged(math.MinInt32, math.MaxInt32, func(v int64) { b.Append(int32(v)) }))
	case *array.Int64Builder:
		put = putInts(arr, ranged(math.MinInt64, math.MaxInt64, b.Append))
	case *array.Date32Builder:
		put = putInts(arr, ranged(math.MinInt32, math.MaxInt32, func(v int64) { b.Append(arrow.Date32(v)) }))
	}
	if put == nil {
		return nil, fault
	}
	for i := range arr.Len() {
		if arr.IsNull(i) {
			b.AppendNull()
		} else if err := put(i); err != nil {
			return nil, fmt.Errorf("%w: %w", fault, err)
		}
	}
	return b.NewArray(), nil
}

// ranged appends integers that fit and refuses others.
func ranged(lo, hi int64, put func(int64)) func(int64) error {
	return func(v int64) error {
		if v < lo || v > hi {
			return fmt.Errorf("%d does not fit", v)
		}
		put(v)
		return nil
	}
}

// putInts returns what passes value i of an array of integers on; nil for other arrays.
func putInts(arr arrow.Array, put func(int64) error) func(int) error {
	switch a := arr.(type) {
	case *array.Int8:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Int16:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Int32:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Int64:
		return func(i int) error { return put(a.Value(i)) }
	case *array.Uint8:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Uint16:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Uint32:
		return func(i int) error { return put(int64(a.Value(i))) }
	case *array.Uint64:
		return func(i int) error {
			if a.Value(i) > math.MaxInt64 {
				return fmt.Errorf("%d does not fit", a.Value(i))
			}
			return put(int64(a.Value(i)))
		}
	}
	return nil
}

func putFloats(arr arrow.Array, put func(float64)) func(int) error {
	if a, ok := arr.(*array.Float32); ok {
		return func(i int) error { put(float64(a.Value(i))); return nil }
	}
	return putInts(arr, func(v int64) error { put(float64(v)); return nil })
}

func putBytes(arr arrow.Array, put func([]byte)) func(int) error {
	switch a := arr.(type) {
	case *array.String:
		return func(i int) error { put([]byte(a.Value(i))); return nil }
	case *array.Binary:
		return func(i int) error { put(a.Value(i)); return nil }
	case *array.FixedSizeBinary:
		return func(i int) error { put(a.Value(i)); return nil }
	}
	return nil
}

func putDecimals(arr arrow.Array, d Decimal, put func(decimal128.Num)) func(int) error {
	scaled := func(v decimal128.Num, scale int) error {
		out, err := v.Rescale(int32(scale), int32(d.Scale))
		if err != nil {
			return err
		}
		if !out.FitsInPrecision(int32(d.Precision)) {
			return fmt.Errorf("%s does not fit", v.ToString(int32(scale)))
		}
		put(out)
		return nil
	}
	if a, ok := arr.(*array.Decimal128); ok {
		scale := int(a.DataType().(*arrow.Decimal128Type).Scale)
		return func(i int) error { return scaled(a.Value(i), scale) }
	}
	if a, ok := arr.(*array.Uint64); ok {
		return func(i int) error { return scaled(decimal128.New(0, a.Value(i)), 0) }
	}
	return putInts(arr, func(v int64) error { return scaled(decimal128.FromI64(v), 0) })
}

// putTimes passes moments on in µs. Finer fractions are floored, as Spark does.
func putTimes(arr arrow.Array, put func(int64)) func(int) error {
	switch a := arr.(type) {
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit
		return func(i int) error {
			v := int64(a.Value(i))
			switch unit {
			case arrow.Nanosecond:
				put(floorDiv(v, 1000))
			case arrow.Microsecond:
				put(v)
			case arrow.Millisecond:
				return putTimes64(v, 1000, put)
			default:
				return putTimes64(v, 1_000_000, put)
			}
			return nil
		}
	case *array.Date32:
		return func(i int) error { return putTimes64(int64(a.Value(i)), 86_400_000_000, put) }
	case *array.Int64:
		return func(i int) error { put(a.Value(i)); return nil }
	}
	return nil
}

// putTimes64 passes v × factor on if it fits.
func putTimes64(v, factor int64, put func(int64)) error {
	abs := uint64(max(v, -v))
	if hi, lo := bits.Mul64(abs, uint64(factor)); v == math.MinInt64 || hi != 0 || lo > math.MaxInt64 {
		return fmt.Errorf("the moment %d does not fit", v)
	}
	put(v * factor)
	return nil
}
