package format

import (
	"encoding/binary"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// column is the values of one column, or of one field of a struct, since the last take. Its memory becomes
// that of the Arrow arrays without a copy.
type column interface {
	rows() int

	// appendNull appends a null; where the column allows none, because it is in a struct that is null, any
	// value.
	appendNull()

	// truncate drops all but the first n rows.
	truncate(n int)

	// nullAt reports whether the last row, which this is, is null.
	nullAt(row int) bool

	// reserve makes room for as many values as the last take took.
	reserve()

	// take returns the column, which is the caller's, and begins anew.
	take(t arrow.DataType) arrow.ArrayData
}

// validity is the rows of a column that are null, ascending.
type validity struct {
	nulls    []int32
	required bool // the column allows no nulls
}

func (v *validity) setNull(row int) {
	if !v.required {
		v.nulls = append(v.nulls, int32(row))
	}
}

func (v *validity) nullAt(row int) bool {
	n := len(v.nulls)
	return n > 0 && int(v.nulls[n-1]) == row
}

func (v *validity) truncate(rows int) {
	n := len(v.nulls)
	for n > 0 && int(v.nulls[n-1]) >= rows {
		n--
	}
	v.nulls = v.nulls[:n]
}

// take returns the validity bitmap of so many rows, nil if none is null, and the number of nulls.
func (v *validity) take(rows int) (*memory.Buffer, int) {
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

// fixed is a column of values of one width.
type fixed[T int8 | int16 | int32 | int64 | float32 | float64 | decimal128.Num] struct {
	validity
	values []T
	last   int // rows of the last take
}

func (c *fixed[T]) rows() int { return len(c.values) }

func (c *fixed[T]) append(v T) { c.values = append(c.values, v) }

func (c *fixed[T]) appendNull() {
	c.setNull(len(c.values))
	var zero T
	c.values = append(c.values, zero)
}

func (c *fixed[T]) truncate(n int) {
	if n < len(c.values) {
		c.validity.truncate(n)
		c.values = c.values[:n]
	}
}

func (c *fixed[T]) reserve() {
	if c.values == nil {
		c.values = make([]T, 0, room(c.last))
	}
}

func (c *fixed[T]) take(t arrow.DataType) arrow.ArrayData {
	valid, nulls := c.validity.take(len(c.values))
	data := array.NewData(t, len(c.values), []*memory.Buffer{valid, bufferOf(c.values)}, nil, nulls, 0)
	c.last, c.values = len(c.values), nil
	return data
}

// bools is a column of booleans, one byte each until it is taken.
type bools struct {
	validity
	values []byte // 0 or 1
	last   int
}

func (c *bools) rows() int { return len(c.values) }

func (c *bools) append(v bool) {
	var bit byte
	if v {
		bit = 1
	}
	c.values = append(c.values, bit)
}

func (c *bools) appendNull() {
	c.setNull(len(c.values))
	c.values = append(c.values, 0)
}

func (c *bools) truncate(n int) {
	if n < len(c.values) {
		c.validity.truncate(n)
		c.values = c.values[:n]
	}
}

func (c *bools) reserve() {
	if c.values == nil {
		c.values = make([]byte, 0, room(c.last)+8)
	}
}

func (c *bools) take(t arrow.DataType) arrow.ArrayData {
	rows := len(c.values)
	bitmap := make([]byte, (rows+7)/8)
	for len(c.values)%8 != 0 {
		c.values = append(c.values, 0)
	}
	for i := range bitmap {
		// The multiplication gathers the lowest bits of eight bytes, first byte first, in the highest byte.
		bitmap[i] = byte(binary.LittleEndian.Uint64(c.values[i*8:]) * 0x0102040810204080 >> 56)
	}
	valid, nulls := c.validity.take(rows)
	data := array.NewData(t, rows, []*memory.Buffer{valid, memory.NewBufferBytes(bitmap)}, nil, nulls, 0)
	c.last, c.values = rows, c.values[:0]
	return data
}

// text is a column of strings or binaries.
type text struct {
	validity
	offsets   []int32 // where each row begins in data, and where the last ends
	data      []byte
	last      int
	lastBytes int
}

func newText(v validity) *text { return &text{validity: v, offsets: []int32{0}} }

func (c *text) rows() int { return len(c.offsets) - 1 }

func (c *text) append(v []byte) {
	c.data = append(c.data, v...)
	c.finish()
}

// finish makes a row of what was appended to data.
func (c *text) finish() { c.offsets = append(c.offsets, int32(len(c.data))) }

func (c *text) appendNull() {
	c.setNull(c.rows())
	c.finish()
}

func (c *text) truncate(n int) {
	if n < c.rows() {
		c.validity.truncate(n)
		c.offsets = c.offsets[:n+1]
	}
	c.data = c.data[:c.offsets[c.rows()]] // also what no finish has made a row of
}

func (c *text) reserve() {
	if cap(c.offsets) < c.last {
		c.offsets = append(make([]int32, 0, room(c.last)+1), 0)
	}
	if c.data == nil {
		c.data = make([]byte, 0, room(c.lastBytes))
	}
}

func (c *text) take(t arrow.DataType) arrow.ArrayData {
	rows := c.rows()
	valid, nulls := c.validity.take(rows)
	buffers := []*memory.Buffer{valid, bufferOf(c.offsets), memory.NewBufferBytes(c.data)}
	data := array.NewData(t, rows, buffers, nil, nulls, 0)
	c.last, c.lastBytes = rows, len(c.data)
	c.offsets, c.data = []int32{0}, nil
	return data
}

// void is a column of the type null.
type void struct{ n int }

func (c *void) rows() int       { return c.n }
func (c *void) appendNull()     { c.n++ }
func (c *void) truncate(n int)  { c.n = min(c.n, n) }
func (c *void) reserve()        {}
func (c *void) nullAt(int) bool { return true }

func (c *void) take(t arrow.DataType) arrow.ArrayData {
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
