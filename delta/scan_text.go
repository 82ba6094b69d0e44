package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// textSource reads strings and binaries that are in no list. The Arrow library makes a slice of each value and appends
// it to a builder that grows as it is filled; this one adds up lengths and then copies bytes.
type textSource struct {
	pages  file.PageReader
	want   arrow.DataType
	maxDef int // the definition level of a value; below it are nulls

	dictionary textDictionary
	left       int // entries of the page, nulls among them
	levels     parquet.Hybrid
	values     []byte         // of a plain page, those that are left
	indices    parquet.Hybrid // of a page with a dictionary
	indexed    bool

	defs    []uint32 // the definition levels of the rows of the last batch; empty when all are maxDef
	scratch []uint32
	spans   []textSpan
	size    int // of the values of the last batch
}

// textDictionary are the values of a chunk. data has room for slack bytes more.
type textDictionary struct {
	data   []byte
	values []textSpan
}

// textSpan is where a value lies.
type textSpan struct{ from, size int32 }

// slack is how many bytes are copied at once, of which only some may be of the value.
const slack = 16

// textEncodings are those that textSource reads; the others are left to the Arrow library.
func textEncodings(encodings []arrowparquet.Encoding) bool {
	for _, e := range encodings {
		switch e {
		case arrowparquet.Encodings.Plain, arrowparquet.Encodings.RLE, arrowparquet.Encodings.BitPacked,
			arrowparquet.Encodings.PlainDict, arrowparquet.Encodings.RLEDict:
		default:
			return false
		}
	}
	return true
}

func newTextSource(pages file.PageReader, maxDef int16, want arrow.DataType) *textSource {
	return &textSource{pages: pages, want: want, maxDef: int(maxDef)}
}

func (s *textSource) close() { _ = s.pages.Close() } // nothing is written

// next returns the next n values.
func (s *textSource) next(n int64) (arrow.Array, error) {
	b := &textBatch{ends: make([]int32, 1, n+1), data: make([]byte, 0, s.size+s.size/8+slack), rows: int(n)}
	s.defs = s.defs[:0]
	for row := 0; row < int(n); {
		if s.left == 0 {
			if err := s.load(); err != nil {
				return nil, err
			}
			continue
		}
		k := min(s.left, int(n)-row)
		if err := s.read(b, row, k); err != nil {
			return nil, err
		}
		s.left -= k
		row += k
	}
	s.size = len(b.data)
	return b.array(s.want), nil
}

// load goes to the next page of values.
func (s *textSource) load() error {
	if !s.pages.Next() {
		if err := s.pages.Err(); err != nil {
			return err
		}
		return errors.New("the column ends early")
	}
	switch p := s.pages.Page().(type) {
	case *file.DictionaryPage:
		return s.dictionary.load(p.Data(), int(p.NumValues()))
	case *file.DataPageV1:
		data := p.Data()
		if s.maxDef > 0 {
			if p.DefinitionLevelEncoding() != arrowparquet.Encodings.RLE {
				return &UnsupportedError{Feature: "definition levels in the encoding " + p.DefinitionLevelEncoding().String()}
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errors.New("the levels of a page are longer than the page")
			}
			size := int(binary.LittleEndian.Uint32(data))
			if err := s.levels.Reset(data[4:4+size], bits.Len(uint(s.maxDef))); err != nil {
				return err
			}
			data = data[4+size:]
		}
		return s.page(p, data)
	case *file.DataPageV2:
		data, reps, defs := p.Data(), int(p.RepetitionLevelByteLen()), int(p.DefinitionLevelByteLen())
		if reps < 0 || defs < 0 || reps+defs > len(data) {
			return errors.New("the levels of a page are longer than the page")
		}
		if err := s.levels.Reset(data[reps:reps+defs], bits.Len(uint(s.maxDef))); err != nil {
			return err
		}
		return s.page(p, data[reps+defs:])
	}
	return nil // an index, or what later versions of the format bring
}

// page begins a page with its values.
func (s *textSource) page(p file.DataPage, data []byte) error {
	s.left = int(p.NumValues())
	switch arrowparquet.Encoding(p.Encoding()) {
	case arrowparquet.Encodings.Plain:
		s.indexed, s.values = false, data
		return nil
	case arrowparquet.Encodings.PlainDict, arrowparquet.Encodings.RLEDict:
		s.indexed = true
		if len(data) == 0 { // all are null
			return s.indices.Reset(nil, 0)
		}
		return s.indices.Reset(data[1:], int(data[0]))
	}
	return &UnsupportedError{Feature: fmt.Sprintf("the encoding %v in a column whose metadata does not name it",
		arrowparquet.Encoding(p.Encoding()))}
}

// load takes the values of a dictionary page.
func (d *textDictionary) load(data []byte, n int) error {
	if n < 0 || n > len(data)/4 {
		return fmt.Errorf("a dictionary of %d values in %d bytes", n, len(data))
	}
	d.data, d.values = make([]byte, 0, len(data)-4*n+slack), make([]textSpan, n)
	for i := range d.values {
		v, rest, err := plainText(data)
		if err != nil {
			return err
		}
		d.values[i] = textSpan{int32(len(d.data)), int32(len(v))}
		d.data, data = append(d.data, v...), rest
	}
	return nil
}

// plainText cuts the first value off.
func plainText(data []byte) (value, rest []byte, err error) {
	if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
		return nil, nil, errors.New("a value is longer than its page")
	}
	end := 4 + int(binary.LittleEndian.Uint32(data))
	return data[4:end], data[end:], nil
}

// read appends k entries of the page, which are the rows from row on.
func (s *textSource) read(b *textBatch, row, k int) error {
	valid, err := s.readLevels(b.rows, row, k)
	if err != nil {
		return err
	}
	if s.indexed {
		s.scratch = slices.Grow(s.scratch[:0], valid)[:valid]
		s.spans = slices.Grow(s.spans[:0], valid)[:valid]
		if err = s.indices.Next(s.scratch); err == nil {
			err = b.appendIndexed(&s.dictionary, s.scratch, s.spans)
		}
	} else {
		s.values, err = b.appendPlain(s.values, valid)
	}
	if err == nil && len(s.defs) > 0 {
		b.spread(s.defs[row:row+k], uint32(s.maxDef), valid)
	}
	return err
}

// readLevels reads the definition levels of k of the rows of a batch, and returns how many of them have a value. While
// all have one the levels are not kept.
func (s *textSource) readLevels(rows, row, k int) (valid int, err error) {
	if s.maxDef == 0 {
		return k, nil
	}
	top := uint32(s.maxDef)
	whole, err := s.levels.Repeats(top, k)
	if err != nil || whole == k && len(s.defs) == 0 {
		return k, err
	}
	if len(s.defs) == 0 {
		s.defs = slices.Grow(s.defs, rows)[:rows]
		for i := range row {
			s.defs[i] = top
		}
	}
	defs := s.defs[row : row+k]
	for i := range whole {
		defs[i] = top
	}
	if err := s.levels.Next(defs[whole:]); err != nil {
		return 0, err
	}
	valid = whole
	for _, d := range defs[whole:] {
		if d == top {
			valid++
		}
	}
	return valid, nil
}

// textBatch is strings on their way to an array.
type textBatch struct {
	ends  []int32 // of each row and of what is before the first
	data  []byte
	valid []byte // a bit a row; nil while there is no null
	nulls int
	rows  int // that there will be
}

// reserve makes room for bytes, and slack.
func (b *textBatch) reserve(size int) error {
	if size > math.MaxInt32-slack-len(b.data) {
		return fmt.Errorf("%d values of more than 2 GiB, which is more than a batch can hold", b.rows)
	}
	b.data = slices.Grow(b.data, size+slack)
	return nil
}

// appendIndexed appends values of a dictionary. spans has as much room as there are indices.
func (b *textBatch) appendIndexed(d *textDictionary, indices []uint32, spans []textSpan) error {
	size := 0
	for i, index := range indices {
		if int64(index) >= int64(len(d.values)) {
			return fmt.Errorf("value %d of a dictionary of %d", index, len(d.values))
		}
		spans[i] = d.values[index]
		size += int(spans[i].size)
	}
	if err := b.reserve(size); err != nil {
		return err
	}
	at, row := len(b.data), len(b.ends)
	out, in := b.data[:cap(b.data)], d.data[:cap(d.data)]
	b.ends = b.ends[:row+len(spans)]
	ends := b.ends[row:]
	for i, v := range spans {
		if v.size <= slack {
			*(*[slack]byte)(out[at:]) = *(*[slack]byte)(in[v.from:])
		} else {
			copy(out[at:], in[v.from:v.from+v.size])
		}
		at += int(v.size)
		ends[i] = int32(at)
	}
	b.data = out[:at]
	return nil
}

// appendPlain appends n values that lie one after another, each behind its length, and returns what follows them.
func (b *textBatch) appendPlain(data []byte, n int) (rest []byte, err error) {
	rest, size := data, 0
	for range n {
		v, next, err := plainText(rest)
		if err != nil {
			return nil, err
		}
		size += len(v)
		rest = next
	}
	if err := b.reserve(size); err != nil {
		return nil, err
	}
	at := len(b.data)
	out := b.data[:cap(b.data)]
	for range n {
		size := int(binary.LittleEndian.Uint32(data))
		if data = data[4:]; size <= slack && len(data) >= slack {
			*(*[slack]byte)(out[at:]) = *(*[slack]byte)(data)
		} else {
			copy(out[at:], data[:size])
		}
		data = data[size:]
		at += size
		b.ends = append(b.ends, int32(at))
	}
	b.data = out[:at]
	return rest, nil
}

// spread puts nulls between the last valid values, where the levels are not maxDef.
func (b *textBatch) spread(defs []uint32, maxDef uint32, valid int) {
	from := len(b.ends) - 1 - valid // the first of these rows
	if b.valid == nil {
		b.valid = make([]byte, (b.rows+7)/8)
		for i := range from {
			b.valid[i>>3] |= 1 << (i & 7)
		}
	}
	b.nulls += len(defs) - valid
	b.ends = b.ends[:from+1+len(defs)]
	at := from + valid // the end of the last valid value that is not placed yet
	for i := len(defs) - 1; i >= 0; i-- {
		b.ends[from+1+i] = b.ends[at]
		if row := from + i; defs[i] == maxDef {
			b.valid[row>>3] |= 1 << (row & 7)
			at--
		}
	}
}

func (b *textBatch) array(want arrow.DataType) arrow.Array {
	var valid *memory.Buffer
	if b.valid != nil {
		valid = memory.NewBufferBytes(b.valid)
	}
	data := array.NewData(want, b.rows, []*memory.Buffer{valid,
		memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(b.ends)), memory.NewBufferBytes(b.data)}, nil, b.nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
