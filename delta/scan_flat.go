package delta

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// flatColumn reads a column, or a struct of columns, without lists and maps, in the encodings that nearly all files have.
// The types are those that the Arrow library would give, but INT96 is µs.
type flatColumn struct {
	field    *arrow.Field
	def      uint8 // the definition level from which on it is not null
	leaf     *parquet.ColumnReader
	stored   parquet.Physical // of a leaf
	children []*flatColumn
}

// flat reports whether flatColumn can read what is wanted of the field in the row group.
func (r *fileReader) flat(f *pqarrow.SchemaField, leaves map[int]bool, meta *metadata.RowGroupMetaData) bool {
	if !f.IsLeaf() {
		if f.Field.Type.ID() != arrow.STRUCT {
			return false
		}
		for i := range f.Children {
			if !r.flat(&f.Children[i], leaves, meta) {
				return false
			}
		}
		return len(f.Children) > 0
	}
	column := r.file.MetaData().Schema.Column(f.ColIndex)
	chunk, err := meta.ColumnChunk(f.ColIndex)
	if err != nil || column.MaxRepetitionLevel() != 0 || chunk.CryptoMetadata() != nil {
		return false
	}
	for _, e := range chunk.Encodings() {
		switch e {
		case arrowparquet.Encodings.Plain, arrowparquet.Encodings.PlainDict, arrowparquet.Encodings.RLEDict,
			arrowparquet.Encodings.RLE, arrowparquet.Encodings.BitPacked:
		default:
			return false
		}
	}
	return !leaves[f.ColIndex] || flatType(column.PhysicalType(), f.Field.Type)
}

// flatType reports whether values stored so can be made an array of the type.
func flatType(p arrowparquet.Type, t arrow.DataType) bool {
	switch p {
	case arrowparquet.Types.Boolean:
		return t.ID() == arrow.BOOL
	case arrowparquet.Types.Int32:
		switch t.ID() {
		case arrow.INT8, arrow.INT16, arrow.INT32, arrow.DATE32, arrow.DECIMAL128:
			return true
		}
	case arrowparquet.Types.Int64:
		switch t.ID() {
		case arrow.INT64, arrow.TIMESTAMP, arrow.DECIMAL128:
			return true
		}
	case arrowparquet.Types.Int96:
		return t.ID() == arrow.TIMESTAMP
	case arrowparquet.Types.Float:
		return t.ID() == arrow.FLOAT32
	case arrowparquet.Types.Double:
		return t.ID() == arrow.FLOAT64
	case arrowparquet.Types.ByteArray:
		return t.ID() == arrow.STRING || t.ID() == arrow.BINARY || t.ID() == arrow.DECIMAL128
	case arrowparquet.Types.FixedLenByteArray:
		return t.ID() == arrow.DECIMAL128
	}
	return false
}

// openFlat opens the readers of the leaves; children without wanted leaves are left out, nil when none is wanted.
func (r *fileReader) openFlat(f *pqarrow.SchemaField, leaves map[int]bool, meta *metadata.RowGroupMetaData) (*flatColumn, error) {
	c := &flatColumn{field: f.Field, def: uint8(f.LevelInfo.DefLevel)}
	if !f.IsLeaf() {
		for i := range f.Children {
			child, err := r.openFlat(&f.Children[i], leaves, meta)
			if err != nil {
				return nil, err
			}
			if child != nil {
				c.children = append(c.children, child)
			}
		}
		if len(c.children) == 0 {
			return nil, nil
		}
		return c, nil
	}
	if !leaves[f.ColIndex] {
		return nil, nil
	}
	part, err := chunkSpan(r.file, meta, f.ColIndex)
	if err != nil {
		return nil, err
	}
	chunk, err := meta.ColumnChunk(f.ColIndex)
	if err != nil {
		return nil, err
	}
	column := r.file.MetaData().Schema.Column(f.ColIndex)
	c.def, c.stored = uint8(column.MaxDefinitionLevel()), parquet.Physical(column.PhysicalType())
	c.leaf, err = parquet.OpenColumn(parquet.Chunk{
		Type: c.stored, Length: column.TypeLength(), MaxDef: int(column.MaxDefinitionLevel()),
		Codec: chunk.Compression(), From: part.from, To: part.to, MaxPage: r.file.src.maxPage(),
		View: func(at int64, n int) ([]byte, error) { return r.file.src.view(at, n, part.to) },
	})
	return c, err
}

// longest bounds the bytes of a row beyond what its pages have.
func (c *flatColumn) longest() int {
	if c.leaf != nil {
		return c.leaf.Longest()
	}
	n := 0
	for _, child := range c.children {
		n += child.longest()
	}
	return n
}

func (c *flatColumn) close() {}

func (c *flatColumn) next(n int64) (arrow.Array, error) {
	arr, _, err := c.read(int(n))
	return arr, err
}

// read returns the next n values and the definition levels of one leaf.
func (c *flatColumn) read(n int) (arr arrow.Array, levels []uint8, err error) {
	if c.leaf == nil {
		return c.readStruct(n)
	}
	v, err := c.leaf.Read(n)
	if err != nil {
		return nil, nil, err
	}
	var valid *memory.Buffer
	if v.Nulls > 0 {
		valid = validity(v.Levels, c.def)
	}
	arr, err = c.array(&v, n, valid)
	return arr, v.Levels, err
}

func (c *flatColumn) readStruct(n int) (arrow.Array, []uint8, error) {
	fields := make([]arrow.Field, len(c.children))
	children := make([]arrow.ArrayData, len(c.children))
	var levels []uint8
	for i, child := range c.children {
		arr, l, err := child.read(n)
		if err != nil {
			return nil, nil, err
		}
		defer arr.Release()
		fields[i], children[i] = *child.field, arr.Data()
		fields[i].Type = arr.DataType()
		levels = l
	}
	buffers := []*memory.Buffer{nil}
	nulls := 0
	for _, l := range levels {
		if l < c.def {
			nulls++
		}
	}
	if nulls > 0 {
		buffers[0] = validity(levels, c.def)
	}
	data := array.NewData(arrow.StructOf(fields...), n, buffers, children, nulls, 0)
	defer data.Release()
	return array.NewStructData(data), levels, nil
}

// validity has a bit for each level that is at least def.
func validity(levels []uint8, def uint8) *memory.Buffer {
	bits := make([]byte, bitutil.BytesForBits(int64(len(levels))))
	for i, l := range levels {
		if l >= def {
			bits[i>>3] |= 1 << (i & 7)
		}
	}
	return memory.NewBufferBytes(bits)
}

// array makes an Arrow array of the values, which it takes over.
func (c *flatColumn) array(v *parquet.Values, n int, valid *memory.Buffer) (arrow.Array, error) {
	t := c.field.Type
	buffers := []*memory.Buffer{valid, nil}
	switch {
	case t.ID() == arrow.STRING || t.ID() == arrow.BINARY:
		buffers = []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Offsets)),
			memory.NewBufferBytes(v.Data)}
	case t.ID() == arrow.DECIMAL128:
		values, err := c.decimals(v, n)
		if err != nil {
			return nil, err
		}
		buffers[1] = memory.NewBufferBytes(values)
	case t.ID() == arrow.BOOL:
		buffers[1] = validity(v.Fixed, 1)
	case t.ID() == arrow.INT8:
		buffers[1] = memory.NewBufferBytes(narrow(v.Fixed, 1))
	case t.ID() == arrow.INT16:
		buffers[1] = memory.NewBufferBytes(narrow(v.Fixed, 2))
	case t.ID() == arrow.TIMESTAMP && len(v.Fixed) == 12*n:
		buffers[1] = memory.NewBufferBytes(int96s(v.Fixed, n))
		t = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	default:
		buffers[1] = memory.NewBufferBytes(v.Fixed)
	}
	data := array.NewData(t, n, buffers, nil, v.Nulls, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
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
		us := int96Micros(arrowparquet.Int96(v[i*12 : i*12+12]))
		binary.LittleEndian.PutUint64(out[i*8:], uint64(us))
	}
	return out
}

// decimals makes integers of 32 or 64 bits, or big-endian ones of any length, decimals.
func (c *flatColumn) decimals(v *parquet.Values, n int) ([]byte, error) {
	out := make([]decimal128.Num, n)
	width := 0
	if n > 0 && v.Offsets == nil {
		width = len(v.Fixed) / n
	}
	integer := c.stored == parquet.PhysicalInt32 || c.stored == parquet.PhysicalInt64
	for i := range out {
		if v.Levels != nil && v.Levels[i] != c.def {
			continue
		}
		switch {
		case integer && width == 4:
			out[i] = decimal128.FromI64(int64(int32(binary.LittleEndian.Uint32(v.Fixed[i*4:]))))
		case integer:
			out[i] = decimal128.FromI64(int64(binary.LittleEndian.Uint64(v.Fixed[i*8:])))
		default:
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
