package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// dictionary is the values that a chunk's pages point to.
type dictionary struct {
	entries int
	values  []byte  // of fixed width, or texts on end, with slack behind them
	offsets []int32 // of texts
	longest int     // text
	even    int     // the length of all texts, when it is one and not above slack; else 0
}

// texts is none where nothing has pointed to the dictionary since it was given up.
func (d *dictionary) texts() *Texts {
	if d.offsets == nil {
		return &Texts{Offsets: []int32{0}}
	}
	return &Texts{d.offsets, d.values[:d.offsets[d.entries]]}
}

// average is the bytes of a text, rounded up.
func (d *dictionary) average() int {
	if d.entries == 0 {
		return 0
	}
	return (len(d.values) + d.entries - 1) / d.entries
}

var errValues = errors.New("a page has fewer values than its header says")

// readDict decodes the chunk's dictionary page and makes the page after it the next one, unless one is open.
func (r *ColumnReader) readDict() error {
	next := r.at
	r.at = r.dictAt
	h, body, err := r.header()
	if err != nil {
		return err
	}
	packed, err := r.body(&h, body)
	if err != nil {
		return err
	}
	r.at = max(r.at, next)
	d := &r.dict
	d.entries = h.values
	d.values = Uncleared(h.uncompressed + slack)[:h.uncompressed]
	if err := r.dec.decode(d.values, packed); err != nil {
		return err
	}
	width := max(r.width, 4)
	if r.c.Type == PhysicalBoolean || h.values > len(d.values)/width {
		return fmt.Errorf("a dictionary of %d bytes claims %d values", len(d.values), h.values)
	}
	if r.c.Type == PhysicalBytes {
		return d.squeeze()
	}
	return nil
}

// squeeze takes the lengths out from between PLAIN texts.
func (d *dictionary) squeeze() error {
	d.offsets = make([]int32, 0, d.entries+1)
	d.offsets = append(d.offsets, 0)
	rest, at := d.values, 0
	for range d.entries {
		v, tail, err := plainBytes(rest)
		if err != nil {
			return err
		}
		at += copy(d.values[at:], v)
		d.offsets = append(d.offsets, int32(at))
		d.longest = max(d.longest, len(v))
		rest = tail
	}
	d.values = d.values[:at+slack]
	if d.longest <= slack && d.longest*d.entries == at {
		d.even = d.longest
	}
	return nil
}

// ends fills dst with where texts end of which the first begins at from. fit is how many of them end before most, or there.
func (d *dictionary) ends(dst []int32, indices []uint32, from, most int) (total, fit int) {
	total = from
	if d.even > 0 {
		for i := range dst {
			total += d.even
			dst[i] = int32(total)
		}
		return total, min((most-from)/d.even, len(dst))
	}
	for i, entry := range indices {
		if total += int(d.offsets[entry+1] - d.offsets[entry]); total > most {
			return total, i
		}
		dst[i] = int32(total)
	}
	return total, len(dst)
}

// copy puts texts into dst, one behind another from at on; ends are theirs. Behind the last one dst has slack. Short texts are
// copied with what is behind them.
func (d *dictionary) copy(dst []byte, at int, ends []int32, indices []uint32) {
	switch {
	case d.even > 0:
		for _, i := range indices {
			*(*[slack]byte)(dst[at:]) = [slack]byte(d.values[int(i)*d.even:])
			at += d.even
		}
	case d.longest <= 4*slack:
		for k, i := range indices {
			end := int(ends[k])
			for from := d.offsets[i]; at < end; from += slack {
				*(*[slack]byte)(dst[at:]) = [slack]byte(d.values[from:])
				at += slack
			}
			at = end
		}
	default:
		for _, i := range indices {
			at += copy(dst[at:], d.values[d.offsets[i]:d.offsets[i+1]])
		}
	}
}

// plainBytes takes a value off PLAIN byte arrays.
func plainBytes(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errValues
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, errValues
	}
	return b[4 : 4+n], b[4+n:], nil
}
