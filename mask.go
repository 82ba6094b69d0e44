package freshet

import (
	"encoding/binary"
	"iter"
)

// Mask marks cells of a batch whose value the source did not send: an unchanged value that its log leaves out, a
// column that a patch does not name, all but the key of a deleted row. The cell itself is null and means nothing.
// A nil *Mask marks none.
type Mask struct {
	words int      // of a row
	bits  []uint64 // row by row
}

// NewMask returns a mask that marks nothing in rows of this many columns. Rows beyond the last are added by Mark.
func NewMask(columns int) *Mask { return &Mask{words: (columns + 63) / 64} }

// Mark marks a cell.
func (m *Mask) Mark(row, column int) {
	if need := (row + 1) * m.words; need > len(m.bits) {
		m.bits = append(m.bits, make([]uint64, need-len(m.bits))...)
	}
	m.bits[row*m.words+column/64] |= 1 << (column % 64)
}

// Has reports whether the cell is marked.
func (m *Mask) Has(row, column int) bool {
	if m == nil {
		return false
	}
	at := row*m.words + column/64
	return at < len(m.bits) && m.bits[at]&(1<<(column%64)) != 0
}

// Clear takes all marks off a row.
func (m *Mask) Clear(row int) {
	if m != nil {
		clear(m.bits[min(row*m.words, len(m.bits)):min((row+1)*m.words, len(m.bits))])
	}
}

// bytes is what the mask takes in memory.
func (m *Mask) bytes() int64 {
	if m == nil {
		return 0
	}
	return 8 * int64(len(m.bits))
}

// Any reports whether a cell of the row is marked.
func (m *Mask) Any(row int) bool {
	if m == nil {
		return false
	}
	for at := row * m.words; at < min((row+1)*m.words, len(m.bits)); at++ {
		if m.bits[at] != 0 {
			return true
		}
	}
	return false
}

// Take returns the mask of the rows [from, to), in a memory of its own: nil when none of them is marked.
func (m *Mask) Take(from, to int) *Mask {
	if m == nil {
		return nil
	}
	low, high := min(from*m.words, len(m.bits)), min(to*m.words, len(m.bits))
	out := &Mask{words: m.words, bits: append([]uint64(nil), m.bits[low:high]...)}
	for _, w := range out.bits {
		if w != 0 {
			return out
		}
	}
	return nil
}

// Pick returns the mask of these rows, in their order: nil when none of them is marked.
func (m *Mask) Pick(rows []int32) *Mask {
	if m == nil {
		return nil
	}
	var out *Mask
	for n, row := range rows {
		from := min(int(row)*m.words, len(m.bits))
		for i, w := range m.bits[from:min(from+m.words, len(m.bits))] {
			if w == 0 {
				continue
			}
			if out == nil {
				out = &Mask{words: m.words, bits: make([]uint64, len(rows)*m.words)}
			}
			out.bits[n*m.words+i] = w
		}
	}
	return out
}

// Bytes returns the marks of the first rows as bytes, of each row as many as RowBytes says: a bit a column, the lowest first.
func (m *Mask) Bytes(rows int) []byte {
	out := make([]byte, 0, rows*m.RowBytes())
	for _, w := range m.bits[:min(rows*m.words, len(m.bits))] {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out[:cap(out)]
}

// RowBytes is how many bytes the marks of a row take.
func (m *Mask) RowBytes() int { return 8 * m.words }

// MarkBytes marks cells of a row as Bytes has them, of which trailing bytes may be missing; those too many say nothing.
func (m *Mask) MarkBytes(row int, marks []byte) {
	if need := (row + 1) * m.words; need > len(m.bits) {
		m.bits = append(m.bits, make([]uint64, need-len(m.bits))...)
	}
	for i, b := range marks[:min(len(marks), m.RowBytes())] {
		m.bits[row*m.words+i/8] |= uint64(b) << (8 * (i % 8))
	}
}

// Append adds the marks of other, whose first row becomes row at; both have the same columns.
func (m *Mask) Append(at int, other *Mask) {
	if other == nil || len(other.bits) == 0 {
		return
	}
	need := at*m.words + len(other.bits)
	if need > len(m.bits) {
		m.bits = append(m.bits, make([]uint64, need-len(m.bits))...)
	}
	copy(m.bits[at*m.words:], other.bits)
}

// Empty returns a mask of the same columns that marks nothing.
func (m *Mask) Empty() *Mask { return &Mask{words: m.words} }

// in is the mask of the rows of the spans, [from, to) each, one after another.
func (m *Mask) in(spans iter.Seq2[int, int]) *Mask {
	if m == nil {
		return nil
	}
	var out *Mask
	n := 0
	for from, to := range spans {
		if part := m.Take(from, to); part != nil {
			if out == nil {
				out = m.Empty()
			}
			out.Append(n, part)
		}
		n += to - from
	}
	return out
}
