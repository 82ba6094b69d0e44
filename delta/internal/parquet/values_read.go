package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// slack is how many bytes a short value is copied with at once, whatever its length.
const slack = 16

var (
	errIndex = errors.New("an index points behind the dictionary")
	errLarge = fmt.Errorf("values of more than 2 GiB in one batch: %w", ErrRoom)
	errLevel = errors.New("a definition level is higher than the column's")
)

// readFixed reads k values of fixed width.
func (r *ColumnReader) readFixed(dst []byte, k int) error {
	switch {
	case k == 0:
		return nil
	case r.rle:
		return r.indices.levels(dst)
	case r.coded:
		return r.gatherFixed(dst, k)
	case r.c.Type == PhysicalBoolean:
		if r.bit+k > len(r.plain)*8 {
			return errValues
		}
		unpack(dst, r.plain, r.bit, 1)
		r.bit += k
		return nil
	}
	if len(r.plain) < len(dst) {
		return errValues
	}
	copy(dst, r.plain)
	r.plain = r.plain[len(dst):]
	return nil
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
		for range k {
			_, rest, err := plainBytes(r.plain)
			if err != nil {
				return err
			}
			r.plain = rest
		}
		return nil
	}
	if k > len(r.plain)/r.width {
		return errValues
	}
	r.plain = r.plain[k*r.width:]
	return nil
}

// index reads k indices of the dictionary.
func (r *ColumnReader) index(k int) ([]uint32, error) {
	r.indexBuf = slices.Grow(r.indexBuf[:0], k)[:k]
	if err := r.indices.indices(r.indexBuf); err != nil {
		return nil, err
	}
	most := uint32(0)
	for _, i := range r.indexBuf {
		most = max(most, i)
	}
	if int(most) >= r.dict.entries {
		return nil, errIndex
	}
	return r.indexBuf, nil
}

func (r *ColumnReader) gatherFixed(dst []byte, k int) error {
	indices, err := r.index(k)
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

// readBytes appends k values to v.
func (r *ColumnReader) readBytes(v *Values, k int) error {
	if r.coded {
		return r.gatherBytes(v, k)
	}
	size := len(r.plain) / r.left * k // as long as those of the page are on average
	known := len(v.Data)+len(r.plain) > maxData || !r.c.Room.fits(len(r.plain), r.Held())
	if known {
		var err error
		if size, r.fit, err = plainSize(r.plain, k, r.c.Room.rest()); err != nil {
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
			return r.handOver(v, k)
		}
	}
	before := len(v.Data)
	v.Data = slices.Grow(v.Data, size)
	rest := r.plain
	for range k {
		value, tail, err := plainBytes(rest)
		if err != nil {
			return err
		}
		v.Data = append(v.Data, value...)
		v.Offsets = append(v.Offsets, int32(len(v.Data)))
		rest = tail
	}
	r.plain = rest
	if known {
		return nil
	}
	return r.c.Room.spend(len(v.Data) - before)
}

// handOver makes the memory of the open page that of its next k values, for which there is no room beside it.
func (r *ColumnReader) handOver(v *Values, k int) error {
	if !r.own || len(v.Data) > 0 {
		return ErrRoom
	}
	page, rest, at := r.plain, r.plain, 0
	for range k {
		value, tail, err := plainBytes(rest)
		if err != nil {
			return err
		}
		at += copy(page[at:], value)
		v.Offsets = append(v.Offsets, int32(at))
		rest = tail
	}
	v.Data, r.plain = page[:at:at], rest
	r.opened++
	r.lent += cap(r.page) + cap(r.recoded)
	r.page, r.recoded = nil, nil
	return nil
}

// plainSize is the bytes of the first k PLAIN byte arrays, without their lengths, and how many of them fit in so many.
func plainSize(b []byte, k, most int) (size, fit int, err error) {
	for range k {
		var v []byte
		if v, b, err = plainBytes(b); err != nil {
			return 0, 0, err
		}
		if size += len(v); size <= most {
			fit++
		}
	}
	return size, fit, nil
}

func (r *ColumnReader) gatherBytes(v *Values, k int) error {
	if k == 0 {
		return nil
	}
	indices, err := r.index(k)
	if err != nil {
		return err
	}
	at := len(v.Data)
	total := at
	most := min(at+r.c.Room.rest(), maxData)
	for i, entry := range indices {
		if total += int(r.dict.offsets[entry+1] - r.dict.offsets[entry]); total > most {
			r.fit = i
			return ErrRoom
		}
		v.Offsets = append(v.Offsets, int32(total))
	}
	if err := r.c.Room.spend(total - at); err != nil {
		return err
	}
	v.Data = slices.Grow(v.Data, total-at+slack)
	out := v.Data[:total+slack]
	if r.dict.longest <= slack {
		for _, i := range indices {
			from, to := r.dict.offsets[i], r.dict.offsets[i+1]
			*(*[slack]byte)(out[at:]) = [slack]byte(r.dict.values[from:])
			at += int(to - from)
		}
	} else {
		for _, i := range indices {
			at += copy(out[at:], r.dict.values[r.dict.offsets[i]:r.dict.offsets[i+1]])
		}
	}
	v.Data = out[:total]
	return nil
}

// readPlaces appends places of k texts, spread to the slots that have one.
func (r *ColumnReader) readPlaces(v *Values, slots []uint8, k int) error {
	at := len(v.Places)
	n := max(len(slots), k)
	v.Places = slices.Grow(v.Places, n)[:at+n]
	out := v.Places[at:]
	clear(out[k:])
	if k == 0 {
		return nil
	}
	indices, err := r.index(k)
	if err != nil {
		return err
	}
	if k == n {
		for i, at := range indices {
			out[i] = int32(at)
		}
		return nil
	}
	for i, d := range slots {
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
