package parquet

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// translation is where the values of a dictionary of Arrow's are in the dictionary of the open column chunk.
type translation struct {
	of     arrow.ArrayData
	places []uint32 // + 1; 0: not there yet
}

func (r *translation) reset() { r.of = nil }

// begin returns what is known of the places of a dictionary's values, if it is the last one again.
func (r *translation) begin(of arrow.ArrayData) []uint32 {
	if r.of != of {
		r.of = of // which keeps it from being another one's address
		r.places = slices.Grow(r.places[:0], of.Len())[:of.Len()]
		clear(r.places)
	}
	return r.places
}

// addCoded takes texts that are given by their places in a dictionary. Each of its values is looked up once.
func (l *leaf) addCoded(w *Writer, a *array.Dictionary, idx []int32) error {
	values, isText := a.Dictionary().(array.BinaryLike)
	places, isInt32 := a.Indices().(*array.Int32)
	if !isText || !isInt32 || values.NullN() > 0 {
		return fmt.Errorf("found %s, wanted places of 32 bits among texts without nulls", a.DataType())
	}
	at := places.Int32Values()
	rows := slices.Grow(w.scratch.places[:0], len(idx))[:len(idx)]
	w.scratch.places = rows
	for i, row := range idx {
		rows[i] = at[row]
	}
	var known []uint32
	if l.mode != plain {
		known = l.translation.begin(a.Data().Dictionary())
	}
	return l.addTexts(values, rows, known)
}

// addTexts takes the texts at idx. known, if not nil, is what is known of their places in the dictionary.
func (l *leaf) addTexts(a array.BinaryLike, idx []int32, known []uint32) error {
	if l.col.Kind != String && l.col.Kind != Binary {
		return fmt.Errorf("found %s, wanted %s", a.DataType(), l.col.Kind)
	}
	data := a.Data()
	var bytes []byte
	if b := data.Buffers()[2]; b != nil {
		bytes = b.Bytes()
	}
	switch a.DataType().ID() {
	case arrow.STRING, arrow.BINARY:
		offsets := arrow.Int32Traits.CastFromBytes(data.Buffers()[1].Bytes())[data.Offset():]
		putTexts(l, offsets, bytes, idx, known)
	case arrow.LARGE_STRING, arrow.LARGE_BINARY:
		offsets := arrow.Int64Traits.CastFromBytes(data.Buffers()[1].Bytes())[data.Offset():]
		putTexts(l, offsets, bytes, idx, known)
	default:
		return fmt.Errorf("found %s, wanted %s", a.DataType(), l.col.Kind)
	}
	return nil
}

func putTexts[T int32 | int64](l *leaf, offsets []T, data []byte, idx []int32, known []uint32) {
	bounded := l.col.Kind == String
	if l.mode == plain {
		from := len(l.vals)
		if l.vals = appendTexts(l.vals, offsets, data, idx); bounded {
			textBounds(&l.chunk, l.vals[from:])
		}
		return
	}
	before := len(l.texts.start)
	if known == nil {
		l.idx = addTexts(&l.texts, l.idx, offsets, data, idx)
	} else {
		l.idx = translate(&l.texts, l.idx, offsets, data, idx, known)
	}
	for i := before; bounded && i < len(l.texts.start); i++ {
		l.chunk.text(l.texts.value(uint32(i)))
	}
}

// translate is addTexts with known places, and notes those of texts that come for the first time.
func translate[T int32 | int64](d *texts, idx []uint32, offsets []T, data []byte, rows []int32, known []uint32) []uint32 {
	const asked = ^uint32(0)
	var fresh []int32
	for _, row := range rows {
		if known[row] == 0 {
			known[row] = asked
			fresh = append(fresh, row)
		}
	}
	from := len(idx)
	idx = addTexts(d, idx, offsets, data, fresh)
	for i, row := range fresh {
		known[row] = idx[from+i] + 1
	}
	idx = idx[:from]
	for _, row := range rows {
		idx = append(idx, known[row]-1)
	}
	return idx
}

// appendTexts appends the texts as PLAIN has them.
func appendTexts[T int32 | int64](dst []byte, offsets []T, data []byte, idx []int32) []byte {
	at, total := len(dst), 4*len(idx)
	for _, i := range idx {
		total += int(offsets[i+1] - offsets[i])
	}
	out := slices.Grow(dst, total+slack)[:at+total+slack]
	for _, i := range idx {
		from, to := int(offsets[i]), int(offsets[i+1])
		binary.LittleEndian.PutUint32(out[at:], uint32(to-from))
		at += 4
		if to-from <= slack && from+slack <= len(data) {
			*(*[slack]byte)(out[at:]) = [slack]byte(data[from:])
			at += to - from
		} else {
			at += copy(out[at:], data[from:to])
		}
	}
	return out[:at]
}

// textBounds takes the bounds of PLAIN texts in. Most texts are between those of the ones before them by their first bytes.
func textBounds(s *Stats, plain []byte) {
	for at := 0; at < len(plain); {
		n := int(binary.LittleEndian.Uint32(plain[at:]))
		at += 4
		if s.HasBounds && at+8 <= len(plain) {
			p := binary.BigEndian.Uint64(plain[at:])
			if n < 8 {
				p &= ^uint64(0) << (64 - 8*n)
			}
			if s.minPrefix < p && p < s.maxPrefix {
				at += n
				continue
			}
		}
		s.text(plain[at : at+n])
		at += n
	}
}
