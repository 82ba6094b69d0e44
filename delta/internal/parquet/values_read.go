package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// slack is how many bytes a short value is copied with at once, whatever its length.
const slack = 16

var (
	errIndex = errors.New("an index points behind the dictionary")
	errLarge = fmt.Errorf("values of more than 2 GiB in one batch: %w", ErrRoom)
	errLevel = errors.New("a definition level is higher than the column's")
)

// readFixed reads values of fixed width.
func (r *ColumnReader) readFixed(dst []byte, e *entries) error {
	switch {
	case e.of == 0:
		return nil
	case r.rle:
		return r.readRuns(dst, e)
	case r.coded:
		return r.gatherFixed(dst, e)
	case r.c.Type == PhysicalBoolean:
		if r.bit+e.of > len(r.plain)*8 {
			return errValues
		}
		for _, s := range e.values {
			unpack(dst[:s.To-s.From], r.plain, r.bit+s.From, 1)
			dst = dst[s.To-s.From:]
		}
		r.bit += e.of
		return nil
	}
	if len(r.plain) < e.of*r.width {
		return errValues
	}
	copyRows(dst, r.plain, e.values, r.width)
	r.plain = r.plain[e.of*r.width:]
	return nil
}

// readRuns reads booleans that lie in runs.
func (r *ColumnReader) readRuns(dst []byte, e *entries) error {
	at := 0
	for _, s := range e.values {
		if err := r.indices.pass(s.From - at); err != nil {
			return err
		}
		if err := r.indices.levels(dst[:s.To-s.From]); err != nil {
			return err
		}
		dst, at = dst[s.To-s.From:], s.To
	}
	return r.indices.pass(e.of - at)
}

// passValues moves over k values.
func (r *ColumnReader) passValues(k int) error {
	switch {
	case k == 0:
		return nil
	case r.rle || r.coded:
		return r.indices.pass(k)
	case r.c.Type == PhysicalBoolean:
		r.bit += k
		return nil
	case r.c.Type == PhysicalBytes:
		return r.passTexts(k)
	}
	if k > len(r.plain)/r.width {
		return errValues
	}
	r.plain = r.plain[k*r.width:]
	return nil
}

// index reads indices of the dictionary.
func (r *ColumnReader) index(e *entries) ([]uint32, error) {
	indices := slices.Grow(r.c.Room.indices[:0], e.of)[:e.of]
	r.c.Room.indices = indices
	if err := r.indices.indices(indices); err != nil {
		return nil, err
	}
	if e.n < e.of {
		indices = moveRows(indices, e.values)
	}
	most := uint32(0)
	for _, i := range indices {
		most = max(most, i)
	}
	if e.n > 0 && int(most) >= r.dict.entries {
		return nil, errIndex
	}
	return indices, nil
}

func (r *ColumnReader) gatherFixed(dst []byte, e *entries) error {
	indices, err := r.index(e)
	if err != nil {
		return err
	}
	switch r.width {
	case 4:
		lookUp(arrow.Uint32Traits.CastFromBytes(dst), arrow.Uint32Traits.CastFromBytes(r.dict.values), indices)
	case 8:
		lookUp(arrow.Uint64Traits.CastFromBytes(dst), arrow.Uint64Traits.CastFromBytes(r.dict.values), indices)
	default:
		w := r.width
		for i, at := range indices {
			copy(dst[i*w:(i+1)*w], r.dict.values[int(at)*w:])
		}
	}
	return nil
}

func lookUp[T uint32 | uint64](dst, dict []T, indices []uint32) {
	dst = dst[:len(indices)]
	for i, at := range indices {
		dst[i] = dict[at]
	}
}

// readBytes appends values to v.
func (r *ColumnReader) readBytes(v *Values, e *entries) error {
	if r.coded {
		return r.gatherBytes(v, e)
	}
	size := len(r.plain) / r.left * e.n // as long as those of the page are on average
	known := len(v.Data)+len(r.plain) > maxData || !r.c.Room.fits(len(r.plain), r.Held())
	if known {
		var err error
		if size, r.fit, err = plainSize(r.plain, e.values, r.c.Room.rest()); err != nil {
			return err
		}
		if len(v.Data)+size > maxData {
			return errLarge
		}
		if err := r.c.Room.spend(size); err != nil {
			return err
		}
		r.fit = 0
		if int64(r.Held()) > r.c.Room.left() {
			return r.handOver(v, e)
		}
	}
	before := len(v.Data)
	r.reserve(v, size, e.n)
	err := r.eachSpan(e, func(n int) error {
		for range n {
			value, rest, err := plainBytes(r.plain)
			if err != nil {
				return err
			}
			v.Data = appendText(v.Data, value)
			v.Offsets = append(v.Offsets, int32(len(v.Data)))
			r.plain = rest
		}
		return nil
	})
	if err != nil || known {
		return err
	}
	return r.c.Room.spend(len(v.Data) - before)
}

// eachSpan has read take the texts of each span of the entries, which are so many, and moves over the others.
func (r *ColumnReader) eachSpan(e *entries, read func(n int) error) error {
	at := 0
	for _, s := range e.values {
		if err := r.passTexts(s.From - at); err != nil {
			return err
		}
		if err := read(s.To - s.From); err != nil {
			return err
		}
		at = s.To
	}
	return r.passTexts(e.of - at)
}

// passTexts moves over k values.
func (r *ColumnReader) passTexts(k int) error {
	for range k {
		_, rest, err := plainBytes(r.plain)
		if err != nil {
			return err
		}
		r.plain = rest
	}
	return nil
}

// appendText appends a short text by one copy of fixed size where there is memory behind both.
func appendText(data, text []byte) []byte {
	n := len(data)
	if len(text) > slack || cap(text) < slack || cap(data)-n < slack {
		return append(data, text...)
	}
	*(*[slack]byte)(data[n : n+slack]) = [slack]byte(text[:slack])
	return data[:n+len(text)]
}

// aheadBytes is how much memory is taken at most for texts that are yet to be read.
const aheadBytes = 1 << 20

// reserve makes room for size bytes of k texts, and, as far as may be told of these, for those that Read has yet to return.
func (r *ColumnReader) reserve(v *Values, size, k int) {
	if cap(v.Data)-len(v.Data) < size+slack {
		ahead := min(size/max(k, 1)*max(r.due-k, 0), aheadBytes, r.c.Room.rest())
		v.Data = append(Uncleared(len(v.Data) + size + ahead + slack)[:0], v.Data...)
	}
}

// handOver makes the memory of the open page that of values of it, for which there is no room beside it.
func (r *ColumnReader) handOver(v *Values, e *entries) error {
	if !r.own || len(v.Data) > 0 {
		return ErrRoom
	}
	page, size := r.plain, 0
	err := r.eachSpan(e, func(n int) error {
		for range n {
			value, rest, err := plainBytes(r.plain)
			if err != nil {
				return err
			}
			size += copy(page[size:], value)
			v.Offsets = append(v.Offsets, int32(size))
			r.plain = rest
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.Data = page[:size:size]
	r.opened++
	r.lent += cap(r.page) + cap(r.recoded)
	r.page, r.recoded = nil, nil
	return nil
}

// plainSize is the bytes of some PLAIN byte arrays, without their lengths, and how many of them fit in so many.
func plainSize(b []byte, values []expr.Span, most int) (size, fit int, err error) {
	at := 0
	for _, s := range values {
		for ; at < s.To; at++ {
			var v []byte
			if v, b, err = plainBytes(b); err != nil {
				return 0, 0, err
			}
			if at < s.From {
				continue
			}
			if size += len(v); size <= most {
				fit++
			}
		}
	}
	return size, fit, nil
}

func (r *ColumnReader) gatherBytes(v *Values, e *entries) error {
	if e.of == 0 {
		return nil
	}
	indices, err := r.index(e)
	if err != nil {
		return err
	}
	at, first := len(v.Data), len(v.Offsets)
	v.Offsets = slices.Grow(v.Offsets, len(indices))[:first+len(indices)]
	total, fit := r.dict.ends(v.Offsets[first:], indices, at, min(at+r.c.Room.rest(), maxData))
	if fit < len(indices) {
		r.fit = fit
		return ErrRoom
	}
	if err := r.c.Room.spend(total - at); err != nil {
		return err
	}
	r.reserve(v, total-at, len(indices))
	r.dict.copy(v.Data[:total+slack], at, v.Offsets[first:], indices)
	v.Data = v.Data[:total]
	return nil
}

// readPlaces appends places of texts, spread to the slots that have one.
func (r *ColumnReader) readPlaces(v *Values, e *entries) error {
	at := len(v.Places)
	v.Places = slices.Grow(v.Places, e.slots)[:at+e.slots]
	out := v.Places[at:]
	clear(out[e.n:])
	if e.of == 0 {
		return nil
	}
	indices, err := r.index(e)
	if err != nil {
		return err
	}
	if e.n == e.slots {
		for i, at := range indices {
			out[i] = int32(at)
		}
		return nil
	}
	for i, d := range e.defs {
		out[i] = 0
		if int(d) == r.c.MaxDef {
			out[i], indices = int32(indices[0]), indices[1:]
		}
	}
	return nil
}

// resolve turns places into texts, as a page with texts in full follows.
func (r *ColumnReader) resolve(v *Values) error {
	texts := r.dict.texts()
	v.Offsets = make([]int32, 1, cap(v.Places)+1)
	for i, at := range v.Places {
		if r.c.MaxDef == 0 || int(v.Defs[i]) == r.c.MaxDef {
			text := texts.Data[texts.Offsets[at]:texts.Offsets[at+1]]
			if len(v.Data) > maxData-len(text) {
				return errLarge
			}
			v.Data = append(v.Data, text...)
		}
		v.Offsets = append(v.Offsets, int32(len(v.Data)))
	}
	v.Places = nil
	return r.c.Room.spend(len(v.Data))
}

// spread moves k values to the rows that have one.
func spread(dst []byte, levels []uint8, width, k int, most uint8) {
	from := k
	for i := len(levels) - 1; from <= i; i-- {
		if levels[i] != most {
			continue
		}
		from--
		switch width {
		case 8:
			binary.LittleEndian.PutUint64(dst[i*8:], binary.LittleEndian.Uint64(dst[from*8:]))
		case 4:
			binary.LittleEndian.PutUint32(dst[i*4:], binary.LittleEndian.Uint32(dst[from*4:]))
		default:
			copy(dst[i*width:(i+1)*width], dst[from*width:(from+1)*width])
		}
	}
}

// spreadOffsets makes ends of k values, which follow the start in offsets, the ends of rows, of which some have none.
func spreadOffsets(offsets []int32, levels []uint8, k int, most uint8) {
	for i := len(levels) - 1; i >= 0; i-- {
		offsets[i+1] = offsets[k]
		if levels[i] == most {
			k--
		}
	}
}
