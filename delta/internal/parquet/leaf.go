package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// scratch is shared by all leaves of a writer.
type scratch struct {
	idx    []int32
	ints   []int64
	places []int32
}

// How a leaf encodes the values that come next.
type mode uint8

const (
	plain   mode = iota
	trying       // with a dictionary that has yet to prove itself
	encoded      // with a dictionary that pays
)

// leaf builds the column chunk of one leaf column:
//
//	arrays ─add─▶ values or indices of the open page ─flushPage─▶ pages ─finish─▶ the file
type leaf struct {
	col            *Column
	path           []string
	maxDef, maxRep uint8
	ordinal        int
	physical       Physical
	width          int // bytes of a PhysicalFixed-width value
	wide           bool
	file           *Stats // of the file; nil inside lists
	chunk          Stats  // of the row group

	// The open page.
	entries int     // values, nulls and empty lists
	defs    []uint8 // filled only if hasDefs
	hasDefs bool    // an entry has less than the largest definition level
	reps    []uint8
	vals    []byte // PLAIN
	bools   []uint8
	idx     []uint32 // into the dictionary

	// The open column chunk.
	mode        mode
	numbers     numbers
	texts       texts
	translation translation
	pages       chain // closed pages, compressed, with their headers
	raw         int64 // bytes of pages before compression, headers included
	total       int64 // entries in pages
	plainPages  int
	dictPages   int
}

func newLeaf(c *Column, path []string, def, rep uint8, ordinal int, file *Stats) *leaf {
	l := &leaf{col: c, path: path, maxDef: def, maxRep: rep, ordinal: ordinal, file: file}
	l.physical, l.width = physicalOf(c)
	l.wide = c.Kind == Decimal && c.Precision > 18
	l.resetChunk()
	return l
}

func (l *leaf) resetChunk() {
	l.resetPage()
	l.chunk = Stats{MinBytes: l.chunk.MinBytes[:0], MaxBytes: l.chunk.MaxBytes[:0]}
	l.numbers.reset()
	l.texts.reset()
	l.translation.reset()
	l.raw, l.total, l.plainPages, l.dictPages = 0, 0, 0, 0
	l.mode = trying
}

func (l *leaf) resetPage() {
	l.entries, l.defs, l.hasDefs, l.reps = 0, l.defs[:0], false, l.reps[:0]
	l.vals, l.bools, l.idx = l.vals[:0], l.bools[:0], l.idx[:0]
}

// add takes the entries of one chunk into the open page.
func (l *leaf) add(w *Writer, arr arrow.Array, lv levels) error {
	if l.total == 0 && l.entries == 0 {
		l.begin(w.Shared)
	}
	l.addLevels(lv)
	l.chunk.Nulls += int64(len(lv.idx) - lv.alive)
	if lv.alive == 0 {
		return nil
	}
	idx := lv.idx
	if lv.alive < len(idx) {
		w.scratch.idx = w.scratch.idx[:0]
		for _, at := range idx {
			if at >= 0 {
				w.scratch.idx = append(w.scratch.idx, at)
			}
		}
		idx = w.scratch.idx
	}
	return l.addValues(w, arr, idx)
}

// begin chooses the mode of a new chunk by what earlier ones taught.
func (l *leaf) begin(learned *Shared) {
	switch {
	case l.physical == PhysicalBoolean || l.physical == PhysicalFixed:
		l.mode = plain
	case learned.skip[l.ordinal] > 0:
		learned.skip[l.ordinal]--
		l.mode = plain
	default:
		l.mode = trying
	}
}

func (l *leaf) addLevels(lv levels) {
	n := len(lv.idx)
	if l.maxDef > 0 && (lv.def != nil || l.hasDefs) {
		if !l.hasDefs {
			l.defs, l.hasDefs = fill(l.defs[:0], l.maxDef, l.entries), true
		}
		if lv.def == nil {
			l.defs = fill(l.defs, l.maxDef, n)
		} else {
			l.defs = append(l.defs, lv.def...)
		}
	}
	if l.maxRep > 0 {
		l.reps = append(l.reps, lv.rep...)
	}
	l.entries += n
}

func fill(b []uint8, v uint8, n int) []uint8 {
	at := len(b)
	b = slices.Grow(b, n)[:at+n]
	for i := range b[at:] {
		b[at+i] = v
	}
	return b
}

func (l *leaf) addValues(w *Writer, arr arrow.Array, idx []int32) error {
	if cap(w.scratch.ints) < len(idx) {
		w.scratch.ints = make([]int64, len(idx))
	}
	out := w.scratch.ints[:len(idx)]
	var lo, hi int64
	switch a := arr.(type) {
	case *array.Int8:
		lo, hi = gather(a.Int8Values(), idx, out)
	case *array.Int16:
		lo, hi = gather(a.Int16Values(), idx, out)
	case *array.Int32:
		lo, hi = gather(a.Int32Values(), idx, out)
	case *array.Int64:
		lo, hi = gather(a.Int64Values(), idx, out)
	case *array.Date32:
		lo, hi = gather(a.Date32Values(), idx, out)
	case *array.Timestamp:
		lo, hi = gather(a.TimestampValues(), idx, out)
	case *array.Float32:
		return l.addFloats32(a, idx, out)
	case *array.Float64:
		return l.addFloats64(a, idx, out)
	case *array.Decimal128:
		return l.addDecimals(a.Values(), idx, out)
	case *array.Boolean:
		return l.addBooleans(a, idx)
	case array.BinaryLike:
		return l.addTexts(a, idx, nil)
	case *array.Dictionary:
		return l.addCoded(w, a, idx)
	default:
		return fmt.Errorf("found %s, wanted %s", arr.DataType(), l.col.Kind)
	}
	if !l.col.Kind.takes(arr.DataType()) {
		return fmt.Errorf("found %s, wanted %s", arr.DataType(), l.col.Kind)
	}
	l.chunk.ints(lo, hi)
	l.put(out)
	return nil
}

// put appends fixed-width values of at most eight bytes, given by their bits.
func (l *leaf) put(v []int64) {
	if l.mode != plain {
		l.idx = l.numbers.add(l.idx, v)
		return
	}
	l.vals = appendFixed(l.vals, v, l.width)
}

func appendFixed(b []byte, v []int64, width int) []byte {
	at := len(b)
	b = slices.Grow(b, len(v)*width)[:at+len(v)*width]
	out := b[at:]
	if width == 4 {
		for i, x := range v {
			binary.LittleEndian.PutUint32(out[4*i:], uint32(x))
		}
		return b
	}
	for i, x := range v {
		binary.LittleEndian.PutUint64(out[8*i:], uint64(x))
	}
	return b
}

func (l *leaf) addFloats32(a *array.Float32, idx []int32, out []int64) error {
	if l.col.Kind != Float {
		return fmt.Errorf("found %s, wanted %s", a.DataType(), l.col.Kind)
	}
	v := a.Float32Values()
	floatBounds(&l.chunk, v, idx)
	for i, at := range idx {
		out[i] = int64(math.Float32bits(v[at]))
	}
	l.put(out)
	return nil
}

func (l *leaf) addFloats64(a *array.Float64, idx []int32, out []int64) error {
	if l.col.Kind != Double {
		return fmt.Errorf("found %s, wanted %s", a.DataType(), l.col.Kind)
	}
	v := a.Float64Values()
	floatBounds(&l.chunk, v, idx)
	for i, at := range idx {
		out[i] = int64(math.Float64bits(v[at]))
	}
	l.put(out)
	return nil
}

func (l *leaf) addBooleans(a *array.Boolean, idx []int32) error {
	if l.col.Kind != Boolean {
		return fmt.Errorf("found %s, wanted %s", a.DataType(), l.col.Kind)
	}
	bits, offset := a.Data().Buffers()[1].Bytes(), a.Data().Offset()
	from := len(l.bools)
	l.bools = slices.Grow(l.bools, len(idx))[:from+len(idx)]
	out := l.bools[from:]
	for i, at := range idx {
		bit := uint(offset + int(at))
		out[i] = bits[bit>>3] >> (bit & 7) & 1
	}
	return nil
}

func (l *leaf) addDecimals(v []decimal128.Num, idx []int32, out []int64) error {
	if l.col.Kind != Decimal {
		return fmt.Errorf("found a decimal, wanted %s", l.col.Kind)
	}
	for _, at := range idx {
		if !v[at].FitsInPrecision(int32(l.col.Precision)) {
			return fmt.Errorf("found %s, wanted at most %d digits of decimal(%d,%d)",
				v[at].ToString(int32(l.col.Scale)), l.col.Precision, l.col.Precision, l.col.Scale)
		}
	}
	if !l.wide {
		for i, at := range idx {
			out[i] = int64(v[at].LowBits())
		}
		l.chunk.ints(slices.Min(out), slices.Max(out))
		l.put(out)
		return nil
	}
	var buf [16]byte
	for _, at := range idx {
		l.chunk.decimal(v[at])
		binary.BigEndian.PutUint64(buf[:], uint64(v[at].HighBits()))
		binary.BigEndian.PutUint64(buf[8:], v[at].LowBits())
		l.vals = append(l.vals, buf[16-l.width:]...)
	}
	return nil
}
