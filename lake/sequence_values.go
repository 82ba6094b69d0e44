package lake

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// values are the columns whose texts append made, of so many of them: what it took, but that the zeroes of floats have no
// sign and NaN is one number. The caller releases them.
func (s *sequencer) values(texts []byte) []arrow.Array {
	out := make([]arrow.Array, len(s.widths))
	at := 0
	for i, w := range s.widths {
		b := array.NewBuilder(memory.DefaultAllocator, s.types[i])
		for from := at; from < len(texts); from += s.width {
			appendSequence(b, texts[from:from+w])
		}
		out[i] = b.NewArray()
		b.Release()
		at += w
	}
	return out
}

// appendSequence appends the value of one text.
func appendSequence(b array.Builder, text []byte) {
	var whole [8]byte
	copy(whole[8-min(8, len(text)):], text)
	bits := binary.BigEndian.Uint64(whole[:])
	signed := int64(bits ^ 1<<(8*min(8, len(text))-1))
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(bits != 0)
	case *array.Int8Builder:
		b.Append(int8(signed))
	case *array.Int16Builder:
		b.Append(int16(signed))
	case *array.Int32Builder:
		b.Append(int32(signed))
	case *array.Date32Builder:
		b.Append(arrow.Date32(int32(signed)))
	case *array.Int64Builder:
		b.Append(signed)
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(signed))
	case *array.Float32Builder:
		b.Append(math.Float32frombits(unordered(uint32(bits), math.Float32bits(float32(math.NaN())))))
	case *array.Float64Builder:
		b.Append(math.Float64frombits(unordered(bits, math.Float64bits(math.NaN()))))
	case *array.Decimal128Builder:
		b.Append(decimal128.New(int64(binary.BigEndian.Uint64(text)^1<<63), binary.BigEndian.Uint64(text[8:])))
	}
}

// unordered are the bits that ordered was given, of NaN any.
func unordered[B uint32 | uint64](v, nan B) (bits B) {
	sign := ^(^B(0) >> 1)
	switch {
	case v == ^B(0):
		return nan
	case v&sign == 0:
		return ^v
	}
	return v &^ sign
}
