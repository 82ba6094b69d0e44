package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// vector holds the values of one subexpression for the rows of a batch. The slice that the kind of t calls
// for is set. A constant holds one value that stands for every row: mask is 0 and so i&mask is always 0;
// otherwise mask is -1. Bitsets have one bit a row also for constants. Values of rows that are null are not
// defined. A vector does not change once made.
//
//	kind     bool   int, date, time   float    decimal   string, binary   nested
//	values   bools  ints              floats   decimals  offsets, data    arr
type vector struct {
	t    arrow.DataType
	rows int
	mask int

	valid bitset // nil: no nulls

	bools    bitset
	ints     []int64
	floats   []float64
	decimals []decimal128.Num
	offsets  []int32
	data     []byte
	arr      arrow.Array // nested values; its own validity is part of valid

	column arrow.Array // the column that this vector is, unchanged, when it is one
	owned  bool        // the values were made for this vector and are in no column
}

func (v *vector) isConst() bool { return v.mask == 0 }

func (v *vector) int(i int) int64            { return v.ints[i&v.mask] }
func (v *vector) float(i int) float64        { return v.floats[i&v.mask] }
func (v *vector) dec(i int) decimal128.Num   { return v.decimals[i&v.mask] }
func (v *vector) bytes(i int) []byte         { i &= v.mask; return v.data[v.offsets[i]:v.offsets[i+1]] }
func (v *vector) str(i int) string           { return string(v.bytes(i)) }
func (v *vector) withValid(b bitset) *vector { c := *v; c.valid, c.column = b, nil; return &c }

// truth is the rows in which a boolean vector is true.
func (v *vector) truth() bitset { return andBits(v.bools, v.valid) }

// untruth is the rows in which a boolean vector is false.
func (v *vector) untruth() bitset { return andBits(v.bools.not(), v.valid) }

// nullVector is null in every row.
func nullVector(t arrow.DataType, rows int) *vector {
	v := &vector{t: t, rows: rows, valid: newBits(rows)}
	switch kindOf(t) {
	case kindBool:
		v.bools = newBits(rows)
		v.mask = -1
	case kindInt, kindDate, kindTime:
		v.ints = make([]int64, 1)
	case kindFloat:
		v.floats = make([]float64, 1)
	case kindDecimal:
		v.decimals = make([]decimal128.Num, 1)
	case kindString, kindBinary:
		v.offsets = make([]int32, 2)
	case kindNested:
		b := array.NewBuilder(memory.DefaultAllocator, t)
		defer b.Release()
		b.AppendNulls(rows)
		v.arr = b.NewArray()
		v.mask = -1
	}
	return v
}

// load makes a vector of a column. Values of 64 bits and strings are not copied.
func load(col arrow.Array) *vector {
	rows := col.Len()
	v := &vector{t: col.DataType(), rows: rows, mask: -1, column: col}
	if col.NullN() > 0 && col.DataType().ID() != arrow.NULL {
		v.valid = bitsOf(col.NullBitmapBytes(), col.Data().Offset(), rows)
	}
	switch c := col.(type) {
	case *array.Null:
		return nullVector(typeNull, rows)
	case *array.Boolean:
		v.bools = newBits(rows)
		if rows > 0 {
			v.bools = bitsOf(c.Data().Buffers()[1].Bytes(), c.Data().Offset(), rows)
		}
	case *array.Int8:
		v.ints = widen(c.Int8Values())
	case *array.Int16:
		v.ints = widen(c.Int16Values())
	case *array.Int32:
		v.ints = widen(c.Int32Values())
	case *array.Int64:
		v.ints = c.Int64Values()
	case *array.Date32:
		v.ints = widen(c.Date32Values())
	case *array.Float32:
		v.floats = make([]float64, rows)
		for i, f := range c.Float32Values() {
			v.floats[i] = float64(f)
		}
	case *array.Float64:
		v.floats = c.Float64Values()
	case *array.Decimal128:
		v.decimals = c.Values()
	case *array.String:
		v.offsets, v.data = stringParts(c.Data())
	case *array.Binary:
		v.offsets, v.data = stringParts(c.Data())
	default:
		v.loadOther(col)
	}
	return v
}

func (v *vector) loadOther(col arrow.Array) {
	if ts, ok := col.(*array.Timestamp); ok && kindOf(v.t) == kindTime {
		values := ts.TimestampValues()
		v.ints = arrow.GetData[int64](arrow.TimestampTraits.CastToBytes(values))
		return
	}
	v.arr = col
}

func widen[T int8 | int16 | int32 | arrow.Date32](in []T) []int64 {
	out := make([]int64, len(in))
	for i, x := range in {
		out[i] = int64(x)
	}
	return out
}

// stringParts returns the offsets of the rows and the bytes that they point into.
func stringParts(d arrow.ArrayData) ([]int32, []byte) {
	buffers := d.Buffers()
	if d.Len() == 0 || buffers[1] == nil {
		return make([]int32, d.Len()+1), nil
	}
	offsets := arrow.Int32Traits.CastFromBytes(buffers[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
	if buffers[2] == nil {
		return offsets, nil
	}
	return offsets, buffers[2].Bytes()
}

// array returns the vector as an Arrow array that is the caller's.
func (v *vector) array() arrow.Array {
	if v.column != nil {
		v.column.Retain()
		return v.column
	}
	var values []byte
	switch kindOf(v.t) {
	case kindNull:
		return array.NewNull(v.rows)
	case kindNested:
		return v.nestedArray()
	case kindString, kindBinary:
		return v.stringArray()
	case kindBool:
		values = arrow.Uint64Traits.CastToBytes(v.bools)
	case kindFloat:
		if v.t.ID() == arrow.FLOAT32 {
			values = arrow.Float32Traits.CastToBytes(convert[float64, float32](v.floats, v.rows, v.mask))
		} else {
			values = arrow.Float64Traits.CastToBytes(ownValues(v, v.floats))
		}
	case kindDecimal:
		values = arrow.Decimal128Traits.CastToBytes(ownValues(v, v.decimals))
	default:
		values = v.intBytes()
	}
	return v.made(memory.NewBufferBytes(values))
}

func (v *vector) intBytes() []byte {
	switch v.t.(arrow.FixedWidthDataType).BitWidth() {
	case 8:
		return arrow.Int8Traits.CastToBytes(convert[int64, int8](v.ints, v.rows, v.mask))
	case 16:
		return arrow.Int16Traits.CastToBytes(convert[int64, int16](v.ints, v.rows, v.mask))
	case 32:
		return arrow.Int32Traits.CastToBytes(convert[int64, int32](v.ints, v.rows, v.mask))
	}
	return arrow.Int64Traits.CastToBytes(ownValues(v, v.ints))
}

// ownValues is a value a row in memory that an array may keep.
func ownValues[T any](v *vector, in []T) []T {
	if v.owned && v.mask == -1 {
		return in
	}
	out := make([]T, v.rows)
	for i := range out {
		out[i] = in[i&v.mask]
	}
	return out
}

func convert[F int64 | float64, T int8 | int16 | int32 | float32](in []F, rows, mask int) []T {
	out := make([]T, rows)
	for i := range out {
		out[i] = T(in[i&mask])
	}
	return out
}

func (v *vector) stringArray() arrow.Array {
	offsets, data := v.offsets, v.data
	switch {
	case v.isConst():
		value := v.bytes(0)
		offsets = make([]int32, v.rows+1)
		if v.valid != nil && v.valid.none(v.rows) {
			value = nil
		}
		data = make([]byte, 0, len(value)*v.rows)
		for i := range v.rows {
			data = append(data, value...)
			offsets[i+1] = int32(len(data))
		}
	case !v.owned:
		first, last := offsets[0], offsets[v.rows]
		data = append([]byte(nil), data[first:last]...)
		moved := make([]int32, v.rows+1)
		for i := range moved {
			moved[i] = offsets[i] - first
		}
		offsets = moved
	}
	return v.made(memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(data))
}

func (v *vector) nestedArray() arrow.Array {
	d := v.arr.Data()
	if v.valid == nil || d.DataType().ID() == arrow.NULL {
		v.arr.Retain()
		return v.arr
	}
	buffers := append([]*memory.Buffer(nil), d.Buffers()...)
	nulls := v.rows - v.valid.count(v.rows)
	valid := newBits((v.rows + d.Offset()))
	v.valid.each(v.rows, func(i int) { valid.set(i + d.Offset()) })
	buffers[0] = valid.buffer()
	data := array.NewData(v.t, v.rows, buffers, d.Children(), nulls, d.Offset())
	defer data.Release()
	return array.MakeFromData(data)
}

// made wraps value buffers and validity as an array.
func (v *vector) made(values ...*memory.Buffer) arrow.Array {
	nulls := v.rows - v.valid.count(v.rows)
	buffers := make([]*memory.Buffer, 1, 3)
	if nulls > 0 {
		buffers[0] = v.valid.buffer()
	}
	data := array.NewData(v.t, v.rows, append(buffers, values...), nil, nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
