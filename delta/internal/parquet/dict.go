package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// numbers is a dictionary of fixed-width values, kept as their bits.
type numbers struct {
	values []int64
	slots  []uint32 // index + 1 into values; 0 is free; the length is a power of two
	seed   uint64
}

func (d *numbers) reset() {
	d.values = d.values[:0]
	clear(d.slots)
}

// mix spreads the bits of v. The seed makes collisions unpredictable for whoever chooses the values.
func mix(v, seed uint64) uint64 {
	hi, lo := bits.Mul64(v^seed, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (d *numbers) index(v int64) uint32 {
	if 2*len(d.values) >= len(d.slots) {
		d.grow()
	}
	mask := uint64(len(d.slots) - 1)
	for h := mix(uint64(v), d.seed) & mask; ; h = (h + 1) & mask {
		at := d.slots[h]
		if at == 0 {
			d.values = append(d.values, v)
			d.slots[h] = uint32(len(d.values))
			return uint32(len(d.values) - 1)
		}
		if d.values[at-1] == v {
			return at - 1
		}
	}
}

func (d *numbers) grow() {
	if d.seed == 0 {
		d.seed = maphash.Comparable(maphash.MakeSeed(), 0) | 1
	}
	d.slots = make([]uint32, max(256, 2*len(d.slots)))
	mask := uint64(len(d.slots) - 1)
	for i, v := range d.values {
		h := mix(uint64(v), d.seed) & mask
		for d.slots[h] != 0 {
			h = (h + 1) & mask
		}
		d.slots[h] = uint32(i + 1)
	}
}

// texts is a dictionary of byte strings. They lie in data as PLAIN writes them: length in four bytes, bytes.
type texts struct {
	data  []byte
	start []uint32 // of each value's length in data
	slots []slot
	seed  maphash.Seed
}

// slot has what is needed to find a value with one look into data.
type slot struct {
	hash   uint32
	at     uint32 // index + 1; 0 is free
	start  uint32 // of the bytes in data
	length uint32
}

func (d *texts) reset() {
	d.data, d.start = d.data[:0], d.start[:0]
	clear(d.slots)
}

func (d *texts) value(i uint32) []byte {
	at := d.start[i]
	n := binary.LittleEndian.Uint32(d.data[at:])
	return d.data[at+4:][:n]
}

// index returns the value's place and whether it is new.
func (d *texts) index(v []byte) (uint32, bool) {
	if 2*len(d.start) >= len(d.slots) {
		d.grow()
	}
	hash := maphash.Bytes(d.seed, v)
	tag := uint32(hash >> 32)
	mask := uint64(len(d.slots) - 1)
	for h := hash & mask; ; h = (h + 1) & mask {
		s := &d.slots[h]
		if s.at == 0 {
			d.start = append(d.start, uint32(len(d.data)))
			d.data = binary.LittleEndian.AppendUint32(d.data, uint32(len(v)))
			d.slots[h] = slot{tag, uint32(len(d.start)), uint32(len(d.data)), uint32(len(v))}
			d.data = append(d.data, v...)
			return uint32(len(d.start) - 1), true
		}
		if s.hash == tag && int(s.length) == len(v) && bytes.Equal(d.data[s.start:][:len(v)], v) {
			return s.at - 1, false
		}
	}
}

func (d *texts) grow() {
	if len(d.slots) == 0 {
		d.seed = maphash.MakeSeed()
	}
	n := max(256, 2*len(d.slots))
	d.slots = make([]slot, n)
	mask := uint64(n - 1)
	for i := range d.start {
		v := d.value(uint32(i))
		hash := maphash.Bytes(d.seed, v)
		h := hash & mask
		for d.slots[h].at != 0 {
			h = (h + 1) & mask
		}
		d.slots[h] = slot{uint32(hash >> 32), uint32(i + 1), d.start[i] + 4, uint32(len(v))}
	}
}
