package delta

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// check reports values that array cannot make what the leaf's annotation says. length is that of PhysicalFixed.
func (c *columnReader) check(length int) error {
	t := storageOf(c.field.Type)
	width, ok := c.stored.Width(length), false
	switch t.ID() {
	case arrow.STRING, arrow.BINARY:
		ok = c.stored == parquet.PhysicalBytes
	case arrow.BOOL:
		ok = c.stored == parquet.PhysicalBoolean
	case arrow.NULL:
		ok = true
	case arrow.DECIMAL128:
		ok = c.stored != parquet.PhysicalBoolean && c.stored != parquet.PhysicalInt96
	case arrow.INT8, arrow.UINT8, arrow.INT16, arrow.UINT16:
		ok = c.stored == parquet.PhysicalInt32
	case arrow.TIMESTAMP:
		ok = c.stored == parquet.PhysicalInt64 || c.stored == parquet.PhysicalInt96
	default:
		fixed, isFixed := t.(arrow.FixedWidthDataType)
		ok = isFixed && c.stored != parquet.PhysicalBytes && fixed.Bytes() == width
	}
	if !ok {
		return &UnsupportedError{Feature: fmt.Sprintf("Parquet values of physical type %d, %d bytes, as %s", c.stored, width, t)}
	}
	return nil
}

// array makes an Arrow array of the values, which it takes over.
func (c *columnReader) array(v *parquet.Values) (arrow.Array, error) {
	t := storageOf(c.field.Type)
	n := v.Len
	buffers := []*memory.Buffer{nil, nil}
	if v.Nulls > 0 {
		buffers[0] = validity(v.Slots, uint8(c.levels.DefLevel))
	}
	switch {
	case v.Places != nil:
		return c.coded(v, buffers[0]), nil
	case t.ID() == arrow.NULL:
		if v.Nulls != n {
			return nil, fmt.Errorf("%d values in a column that has no type, wanted nulls", n-v.Nulls)
		}
		return array.NewNull(n), nil
	case t.ID() == arrow.STRING || t.ID() == arrow.BINARY:
		buffers[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Offsets))
		buffers = append(buffers, memory.NewBufferBytes(v.Data))
	case t.ID() == arrow.DECIMAL128:
		values, err := c.decimals(v)
		if err != nil {
			return nil, err
		}
		buffers[1] = memory.NewBufferBytes(values)
	case t.ID() == arrow.BOOL:
		buffers[1] = validity(v.Fixed, 1)
	case t.ID() == arrow.INT8 || t.ID() == arrow.UINT8:
		buffers[1] = memory.NewBufferBytes(narrow(v.Fixed, 1))
	case t.ID() == arrow.INT16 || t.ID() == arrow.UINT16:
		buffers[1] = memory.NewBufferBytes(narrow(v.Fixed, 2))
	case c.stored == parquet.PhysicalInt96:
		buffers[1] = memory.NewBufferBytes(int96s(v.Fixed, n))
		t = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	default:
		buffers[1] = memory.NewBufferBytes(v.Fixed)
	}
	data := array.NewData(t, n, buffers, nil, v.Nulls, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// coded makes a dictionary array of texts. Those of one dictionary share one ArrayData, by which it is known again.
func (c *columnReader) coded(v *parquet.Values, valid *memory.Buffer) arrow.Array {
	t := storageOf(c.field.Type)
	if first := &v.Texts.Offsets[0]; c.textsFirst != first {
		c.textsFirst = first
		c.texts = array.NewData(t, len(v.Texts.Offsets)-1, []*memory.Buffer{nil,
			memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Texts.Offsets)), memory.NewBufferBytes(v.Texts.Data)}, nil, 0, 0)
	}
	places := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Places))
	data := array.NewDataWithDictionary(codedType(t), v.Len, []*memory.Buffer{valid, places}, v.Nulls, 0, c.texts)
	defer data.Release()
	return array.NewDictionaryData(data)
}

// codedType is the type of texts that are given by places in a dictionary.
func codedType(texts arrow.DataType) arrow.DataType {
	return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: texts}
}

// narrow keeps the low bytes of integers of four.
func narrow(v []byte, width int) []byte {
	out := make([]byte, len(v)/4*width)
	for i := range len(v) / 4 {
		copy(out[i*width:(i+1)*width], v[i*4:])
	}
	return out
}

func int96s(v []byte, n int) []byte {
	out := make([]byte, 8*n)
	for i := range n {
		binary.LittleEndian.PutUint64(out[i*8:], uint64(int96Micros([12]byte(v[i*12:]))))
	}
	return out
}

// int96Micros converts nanoseconds of the day and Julian day. It wraps around as Spark does, whose own files hold
// moments of which only that makes sense.
func int96Micros(v [12]byte) int64 {
	const epoch, day = 2440588, 86_400_000_000 // the Julian day of 1970-01-01; µs
	days := int64(int32(binary.LittleEndian.Uint32(v[8:]))) - epoch
	return days*day + floorDiv(int64(binary.LittleEndian.Uint64(v[:8])), 1000)
}

// decimals makes integers of 32 or 64 bits, or big-endian ones of any length, decimals.
func (c *columnReader) decimals(v *parquet.Values) ([]byte, error) {
	out := make([]decimal128.Num, v.Len)
	width := 0
	if v.Len > 0 && v.Offsets == nil {
		width = len(v.Fixed) / v.Len
	}
	for i := range out {
		if v.Slots != nil && int16(v.Slots[i]) != c.levels.DefLevel {
			continue
		}
		switch c.stored {
		case parquet.PhysicalInt32:
			out[i] = decimal128.FromI64(int64(int32(binary.LittleEndian.Uint32(v.Fixed[i*4:]))))
			continue
		case parquet.PhysicalInt64:
			out[i] = decimal128.FromI64(int64(binary.LittleEndian.Uint64(v.Fixed[i*8:])))
			continue
		}
		b := v.Data
		if v.Offsets != nil {
			b = b[v.Offsets[i]:v.Offsets[i+1]]
		} else {
			b = v.Fixed[i*width : (i+1)*width]
		}
		d, ok := signedDecimal(b)
		if !ok {
			return nil, fmt.Errorf("a decimal of %d bytes is out of range", len(b))
		}
		out[i] = d
	}
	return arrow.Decimal128Traits.CastToBytes(out), nil
}

// signedDecimal reads a big-endian two's complement of any length.
func signedDecimal(b []byte) (decimal128.Num, bool) {
	if len(b) == 0 {
		return decimal128.Num{}, true
	}
	sign := byte(int8(b[0]) >> 7)
	for len(b) > 16 {
		if b[0] != sign || b[1]>>7 != sign>>7 {
			return decimal128.Num{}, false
		}
		b = b[1:]
	}
	var wide [16]byte
	for i := range wide[:16-len(b)] {
		wide[i] = sign
	}
	copy(wide[16-len(b):], b)
	return decimal128.New(int64(binary.BigEndian.Uint64(wide[:8])), binary.BigEndian.Uint64(wide[8:])), true
}
