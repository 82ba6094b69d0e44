// Package column holds columns while they are filled: typed slices, one value a row, whose memory becomes that of
// Arrow arrays without a copy. Decoders of formats and protocols append to them value by value: there are no
// builders, no interface call a value where the type is known, and the last rows can be taken back when a record
// turns out to be bad.
//
//	c := column.NewText(column.Validity{})
//	c.Append([]byte("a"))
//	c.AppendNull()
//	data := c.Take(arrow.BinaryTypes.String) // ["a", null]; c is empty again
//
// A column is used by one goroutine. It does not check what it is given.
package column

import (
	"encoding/binary"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Column is the values of one column, or of one field of a struct, since the last Take.
type Column interface {
	Rows() int

	// AppendNull appends a null; where the column allows none, because it is in a struct that is null, any
	// value.
	AppendNull()

	// Truncate drops all but the first n rows, and what no Finish has made a row of.
	Truncate(n int)

	// NullAt reports whether the last row, which this is, is null.
	NullAt(row int) bool

	// Reserve makes room for as many values as the last Take took.
	Reserve()

	// Take returns the column, which is the caller's, and begins anew.
	Take(t arrow.DataType) arrow.ArrayData
}

// Validity is the rows of a column that are null. The zero value allows nulls.
type Validity struct {
	nulls    []int32 // ascending
	Required bool    // the column allows no nulls
}

func (v *Validity) setNull(row int) {
	if !v.Required {
		v.nulls = append(v.nulls, int32(row))
	}
}

// NullAt is that of Column.
func (v *Validity) NullAt(row int) bool {
	n := len(v.nulls)
	return n > 0 && int(v.nulls[n-1]) == row
}

func (v *Validity) truncate(rows int) {
	n := len(v.nulls)
	for n > 0 && int(v.nulls[n-1]) >= rows {
		n--
	}
	v.nulls = v.nulls[:n]
}

// take returns the validity bitmap of so many rows, nil if none is null, and the number of nulls.
func (v *Validity) take(rows int) (*memory.Buffer, int) {
	nulls := len(v.nulls)
	if nulls == 0 {
		return nil, 0
	}
	bitmap := make([]byte, (rows+7)/8)
	for i := range bitmap {
		bitmap[i] = 0xff
	}
	if rows%8 != 0 {
		bitmap[len(bitmap)-1] = 1<<(rows%8) - 1
	}
	for _, row := range v.nulls {
		bitmap[row>>3] &^= 1 << (row & 7)
	}
	v.nulls = v.nulls[:0]
	return memory.NewBufferBytes(bitmap), nulls
}

// Fixed is a column of values of one width. The zero value is an empty one.
type Fixed[T int8 | int16 | int32 | int64 | float32 | float64 | decimal128.Num] struct {
	Validity
	Values []T
	last   int // rows of the last Take
}

// Rows is that of Column.
func (c *Fixed[T]) Rows() int { return len(c.Values) }

// Append appends a value.
func (c *Fixed[T]) Append(v T) { c.Values = append(c.Values, v) }

// AppendNull is that of Column.
func (c *Fixed[T]) AppendNull() {
	c.setNull(len(c.Values))
	var zero T
	c.Values = append(c.Values, zero)
}

// Truncate is that of Column.
func (c *Fixed[T]) Truncate(n int) {
	if n < len(c.Values) {
		c.truncate(n)
		c.Values = c.Values[:n]
	}
}

// Reserve is that of Column.
func (c *Fixed[T]) Reserve() {
	if c.Values == nil {
		c.Values = make([]T, 0, room(c.last))
	}
}

// Take is that of Column.
func (c *Fixed[T]) Take(t arrow.DataType) arrow.ArrayData {
	valid, nulls := c.take(len(c.Values))
	data := array.NewData(t, len(c.Values), []*memory.Buffer{valid, bufferOf(c.Values)}, nil, nulls, 0)
	c.last, c.Values = len(c.Values), nil
	return data
}

// Bools is a column of booleans, one byte each until it is taken. The zero value is an empty one.
type Bools struct {
	Validity
	values []byte // 0 or 1
	last   int
}

// Rows is that of Column.
func (c *Bools) Rows() int { return len(c.values) }

// Append appends a value.
func (c *Bools) Append(v bool) {
	var bit byte
	if v {
		bit = 1
	}
	c.values = append(c.values, bit)
}

// AppendNull is that of Column.
func (c *Bools) AppendNull() {
	c.setNull(len(c.values))
	c.values = append(c.values, 0)
}

// Truncate is that of Column.
func (c *Bools) Truncate(n int) {
	if n < len(c.values) {
		c.truncate(n)
		c.values = c.values[:n]
	}
}

// Reserve is that of Column.
func (c *Bools) Reserve() {
	if c.values == nil {
		c.values = make([]byte, 0, room(c.last)+8)
	}
}

// Take is that of Column.
func (c *Bools) Take(t arrow.DataType) arrow.ArrayData {
	rows := len(c.values)
	bitmap := make([]byte, (rows+7)/8)
	for len(c.values)%8 != 0 {
		c.values = append(c.values, 0)
	}
	for i := range bitmap {
		// The multiplication gathers the lowest bits of eight bytes, first byte first, in the highest byte.
		bitmap[i] = byte(binary.LittleEndian.Uint64(c.values[i*8:]) * 0x0102040810204080 >> 56)
	}
	valid, nulls := c.take(rows)
	data := array.NewData(t, rows, []*memory.Buffer{valid, memory.NewBufferBytes(bitmap)}, nil, nulls, 0)
	c.last, c.values = rows, c.values[:0]
	return data
}

// Text is a column of strings or binaries. All its rows together must be below 2 GiB; the caller sees to it.
type Text struct {
	Validity
	Data      []byte  // of all rows, and behind them what Finish makes the next row of
	offsets   []int32 // where each row begins in Data, and where the last ends
	last      int
	lastBytes int
}

// NewText returns an empty column.
func NewText(v Validity) *Text { return &Text{Validity: v, offsets: []int32{0}} }

// Rows is that of Column.
func (c *Text) Rows() int { return len(c.offsets) - 1 }

// Append appends a value.
func (c *Text) Append(v []byte) {
	// Nearly all values are short: so many bytes, whatever they are, are copied faster than just the right ones.
	const short = 16
	if at := len(c.Data); len(v) <= short && cap(v) >= short && cap(c.Data)-at >= short {
		*(*[short]byte)(c.Data[at : at+short]) = [short]byte(v[:short])
		c.Data = c.Data[:at+len(v)]
	} else {
		c.Data = append(c.Data, v...)
	}
	c.Finish()
}

// Finish makes a row of what was appended to Data.
func (c *Text) Finish() { c.offsets = append(c.offsets, int32(len(c.Data))) }

// Begin is where in Data the row begins.
func (c *Text) Begin(row int) int { return int(c.offsets[row]) }

// AppendNull is that of Column.
func (c *Text) AppendNull() {
	c.setNull(c.Rows())
	c.Finish()
}

// Truncate is that of Column.
func (c *Text) Truncate(n int) {
	if n < c.Rows() {
		c.truncate(n)
		c.offsets = c.offsets[:n+1]
	}
	c.Data = c.Data[:c.offsets[c.Rows()]]
}

// Reserve is that of Column.
func (c *Text) Reserve() {
	if cap(c.offsets) < c.last {
		c.offsets = append(make([]int32, 0, room(c.last)+1), 0)
	}
	if c.Data == nil {
		c.Data = make([]byte, 0, room(c.lastBytes))
	}
}

// Take is that of Column.
func (c *Text) Take(t arrow.DataType) arrow.ArrayData {
	rows := c.Rows()
	valid, nulls := c.take(rows)
	buffers := []*memory.Buffer{valid, bufferOf(c.offsets), memory.NewBufferBytes(c.Data)}
	data := array.NewData(t, rows, buffers, nil, nulls, 0)
	c.last, c.lastBytes = rows, len(c.Data)
	c.offsets, c.Data = []int32{0}, nil
	return data
}

// Void is a column of the type null. The zero value is an empty one.
type Void struct{ n int }

// Rows is that of Column.
func (c *Void) Rows() int { return c.n }

// AppendNull is that of Column.
func (c *Void) AppendNull() { c.n++ }

// Truncate is that of Column.
func (c *Void) Truncate(n int) { c.n = min(c.n, n) }

// Reserve is that of Column.
func (c *Void) Reserve() {}

// NullAt is that of Column.
func (c *Void) NullAt(int) bool { return true }

// Take is that of Column.
func (c *Void) Take(t arrow.DataType) arrow.ArrayData {
	data := array.NewData(t, c.n, []*memory.Buffer{nil}, nil, c.n, 0)
	c.n = 0
	return data
}

// room is the capacity for a batch when the last one had n: a little more, so that equal batches do not grow.
func room(n int) int { return n + n/8 }

// bufferOf returns the slice's memory as a buffer, without a copy.
func bufferOf[T any](values []T) *memory.Buffer {
	if len(values) == 0 {
		return memory.NewBufferBytes([]byte{})
	}
	size := len(values) * int(unsafe.Sizeof(values[0]))
	return memory.NewBufferBytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), size))
}
