package expr

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Span is the rows from From up to and without To.
type Span struct {
	From, To int
}

// CountRows is the number of rows in the spans.
func CountRows(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += s.To - s.From
	}
	return n
}

// Bounds yields From and To of each span.
func Bounds(spans []Span) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for _, s := range spans {
			if !yield(s.From, s.To) {
				return
			}
		}
	}
}

// spansOf returns the ones of a bitset.
func spansOf(b bitset, rows int) []Span {
	var out []Span
	for i := 0; i < rows; {
		from := nextBit(b, i, rows, true)
		if from == rows {
			break
		}
		i = nextBit(b, from, rows, false)
		out = append(out, Span{from, i})
	}
	return out
}

// nextBit is the first row at or after i whose bit is as asked for; rows when there is none.
func nextBit(b bitset, i, rows int, one bool) int {
	for i < rows {
		word := b.word(i >> 6)
		if !one {
			word = ^word
		}
		word >>= i & 63
		if word != 0 {
			return min(i+bits.TrailingZeros64(word), rows)
		}
		i = i&^63 + 64
	}
	return rows
}

// TakeBatch returns the rows of the spans, in their order; the batch itself, retained, when they are all its
// rows in order. The result is the caller's and shares nothing with the batch unless it is the batch.
func TakeBatch(rec arrow.RecordBatch, spans []Span) arrow.RecordBatch {
	if isAll(spans, int(rec.NumRows())) {
		rec.Retain()
		return rec
	}
	p := pick(spans)
	columns := make([]arrow.Array, rec.NumCols())
	for i, c := range rec.Columns() {
		data := takeData(c.Data(), p)
		columns[i] = array.MakeFromData(data)
		data.Release()
		defer columns[i].Release()
	}
	return array.NewRecordBatch(rec.Schema(), columns, int64(p.rows))
}

func isAll(spans []Span, rows int) bool {
	return len(spans) == 1 && spans[0] == Span{0, rows} || len(spans) == 0 && rows == 0
}

// Take returns the rows of the spans, in their order, rows and spans as often as they occur. It takes every
// type that a Delta table can hold, fixed-size and large ones, views of bytes, dictionaries and extensions; not runs, views
// of lists and unions. The result is the
// caller's.
func Take(arr arrow.Array, spans []Span) arrow.Array {
	if isAll(spans, arr.Len()) {
		arr.Retain()
		return arr
	}
	data := takeData(arr.Data(), pick(spans))
	defer data.Release()
	return array.MakeFromData(data)
}

// nullRow is the span that stands for one row of null.
var nullRow = Span{-1, 0}

// picked is spans with what all columns want to know of them.
type picked struct {
	spans []Span
	rows  int
	nulls bool // nullRow is among them
}

func pick(spans []Span) picked {
	return picked{spans, CountRows(spans), slices.ContainsFunc(spans, func(s Span) bool { return s.From < 0 })}
}

func takeData(d arrow.ArrayData, p picked) arrow.ArrayData {
	spans, rows := p.spans, p.rows
	t := d.DataType()
	if t.ID() == arrow.NULL {
		return array.NewData(t, rows, []*memory.Buffer{nil}, nil, rows, 0)
	}
	valid, nulls := takeValid(d, p)
	storage := t
	if e, ok := t.(arrow.ExtensionType); ok {
		storage = e.StorageType()
	}
	buffers := []*memory.Buffer{valid}
	switch s := storage.(type) {
	case *arrow.BooleanType:
		buffers = append(buffers, takeBits(d, spans, rows))
	case *arrow.StringViewType, *arrow.BinaryViewType:
		buffers = append(append(buffers, takeFixed(d, spans, rows, arrow.ViewHeaderSizeBytes)), d.Buffers()[2:]...)
	case arrow.BinaryDataType:
		buffers = append(buffers, takeBinary(d, spans, rows)...)
	case *arrow.StructType:
		return takeStruct(d, p, buffers, nulls)
	case *arrow.ListType, *arrow.MapType, *arrow.LargeListType:
		return takeList(d, spans, buffers, nulls)
	case *arrow.FixedSizeListType:
		return takeFixedList(d, int(s.Len()), spans, buffers, nulls)
	case *arrow.DictionaryType:
		buffers = append(buffers, takeFixed(d, spans, rows, s.BitWidth()/8))
		return array.NewDataWithDictionary(t, rows, buffers, nulls, 0, d.Dictionary().(*array.Data))
	case arrow.FixedWidthDataType:
		buffers = append(buffers, takeFixed(d, spans, rows, s.BitWidth()/8))
	default:
		panic(fmt.Sprintf("expr: take of %s", t)) //nolint:forbidigo // no column has the type
	}
	return array.NewData(t, rows, buffers, nil, nulls, 0)
}

func takeValid(d arrow.ArrayData, p picked) (*memory.Buffer, int) {
	bitmap := d.Buffers()[0]
	hasNulls := bitmap != nil && d.NullN() != 0
	if !hasNulls && !p.nulls {
		return nil, 0
	}
	out := newBits(p.rows)
	at := 0
	for _, s := range p.spans {
		n := s.To - s.From
		switch {
		case s.From < 0:
		case hasNulls:
			out.copyFrom(bitmap.Bytes(), d.Offset()+s.From, n, at)
		default:
			out.fill(at, n)
		}
		at += n
	}
	return out.buffer(), p.rows - out.count(p.rows)
}

func takeBits(d arrow.ArrayData, spans []Span, rows int) *memory.Buffer {
	out := newBits(rows)
	at := 0
	for _, s := range spans {
		if s.From >= 0 {
			out.copyFrom(d.Buffers()[1].Bytes(), d.Offset()+s.From, s.To-s.From, at)
		}
		at += s.To - s.From
	}
	return out.buffer()
}

// takeFixed copies values of width bytes.
func takeFixed(d arrow.ArrayData, spans []Span, rows, width int) *memory.Buffer {
	out := make([]byte, rows*width)
	var in []byte
	if b := d.Buffers()[1]; b != nil {
		in = b.Bytes()[d.Offset()*width:]
	}
	if width == 8 {
		takeWords(arrow.Uint64Traits.CastFromBytes(out), arrow.Uint64Traits.CastFromBytes(in), spans)
		return memory.NewBufferBytes(out)
	}
	at := 0
	for _, s := range spans {
		n := (s.To - s.From) * width
		if s.From >= 0 {
			copy(out[at:at+n], in[s.From*width:])
		}
		at += n
	}
	return memory.NewBufferBytes(out)
}

// takeWords is takeFixed for 8 bytes: spans are mostly short, and a loop is faster than many small copies.
func takeWords(out, in []uint64, spans []Span) {
	for _, s := range spans {
		n := s.To - s.From
		switch {
		case s.From < 0:
		case n > 16:
			copy(out, in[s.From:s.To])
		default:
			for i, v := range in[s.From:s.To] {
				out[i] = v
			}
		}
		out = out[n:]
	}
}

func takeBinary(d arrow.ArrayData, spans []Span, rows int) []*memory.Buffer {
	var data []byte
	if b := d.Buffers()[2]; b != nil {
		data = b.Bytes()
	}
	if isLarge(d.DataType()) {
		offsets, ranges, total := takeOffsets[int64](d, spans, rows)
		return []*memory.Buffer{
			memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(offsets)), copyRanges(data, ranges, total)}
	}
	offsets, ranges, total := takeOffsets[int32](d, spans, rows)
	return []*memory.Buffer{
		memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), copyRanges(data, ranges, total)}
}

func isLarge(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.LARGE_STRING, arrow.LARGE_BINARY, arrow.LARGE_LIST:
		return true
	}
	return false
}

// takeOffsets returns the new offsets, the ranges of the values they cover, and the sum of those.
func takeOffsets[T int32 | int64](d arrow.ArrayData, spans []Span, rows int,
) (out []T, ranges []Span, total int) {
	var in []T
	if b := d.Buffers()[1]; b != nil && b.Len() > 0 {
		in = arrow.GetData[T](b.Bytes())[d.Offset():]
	}
	out = make([]T, rows+1)
	ranges = make([]Span, 0, len(spans))
	at := 0
	for _, s := range spans {
		n := s.To - s.From
		if s.From < 0 {
			for range n {
				at++
				out[at] = T(total)
			}
			continue
		}
		shift := T(total) - in[s.From]
		to := out[at+1 : at+1+n]
		for i, end := range in[s.From+1 : s.To+1] {
			to[i] = end + shift
		}
		at += n
		ranges = append(ranges, Span{int(in[s.From]), int(in[s.To])})
		total += int(in[s.To] - in[s.From])
	}
	return out, ranges, total
}

func copyRanges(data []byte, ranges []Span, total int) *memory.Buffer {
	out := make([]byte, 0, total)
	for _, r := range ranges {
		out = append(out, data[r.From:r.To]...)
	}
	return memory.NewBufferBytes(out)
}

func takeStruct(d arrow.ArrayData, p picked, buffers []*memory.Buffer, nulls int) arrow.ArrayData {
	moved := p
	moved.spans = shift(p.spans, d.Offset())
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, c := range d.Children() {
		children[i] = takeData(c, moved)
		defer children[i].Release()
	}
	return array.NewData(d.DataType(), p.rows, buffers, children, nulls, 0)
}

// shift moves spans by an array's offset into the rows of its children.
func shift(spans []Span, by int) []Span {
	if by == 0 {
		return spans
	}
	out := make([]Span, len(spans))
	for i, s := range spans {
		out[i] = s
		if s.From >= 0 {
			out[i] = Span{s.From + by, s.To + by}
		}
	}
	return out
}

func takeList(d arrow.ArrayData, spans []Span, buffers []*memory.Buffer, nulls int) arrow.ArrayData {
	rows := CountRows(spans)
	var ranges []Span
	if isLarge(d.DataType()) {
		offsets, r, _ := takeOffsets[int64](d, spans, rows)
		ranges, buffers = r, append(buffers, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(offsets)))
	} else {
		offsets, r, _ := takeOffsets[int32](d, spans, rows)
		ranges, buffers = r, append(buffers, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)))
	}
	child := takeData(d.Children()[0], pick(ranges))
	defer child.Release()
	return array.NewData(d.DataType(), rows, buffers, []arrow.ArrayData{child}, nulls, 0)
}

func takeFixedList(d arrow.ArrayData, size int, spans []Span, buffers []*memory.Buffer, nulls int,
) arrow.ArrayData {
	ranges := make([]Span, 0, len(spans))
	for _, s := range spans {
		if s.From >= 0 {
			ranges = append(ranges, Span{(s.From + d.Offset()) * size, (s.To + d.Offset()) * size})
			continue
		}
		for range (s.To - s.From) * size {
			ranges = append(ranges, nullRow)
		}
	}
	child := takeData(d.Children()[0], pick(ranges))
	defer child.Release()
	return array.NewData(d.DataType(), CountRows(spans), buffers, []arrow.ArrayData{child}, nulls, 0)
}
