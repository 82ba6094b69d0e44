package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// places finds by hashes where values are in a dictionary. An entry is the place + 1 in the low bits, above them some bits
// of the hash, so that nearly all values that are not it are told apart without a look at them; 0 is free.
type places struct {
	table []uint32 // the length is a power of two, more than twice the number of entries
	low   uint     // bits of places
	salt  [2]uint64
}

// batchValues is how many values are looked up at once: first their entries, then their values, so that the processor
// waits for many of them in memory together.
const batchValues = 64

// fits reports whether the table can take n entries.
func (p *places) fits(n int) bool { return 2*n < len(p.table) }

// grow makes a table for n entries, all of which are to be put anew.
func (p *places) grow(n int) {
	if len(p.table) == 0 {
		seed := maphash.MakeSeed()
		p.salt = [2]uint64{maphash.Comparable(seed, 0), maphash.Comparable(seed, 1)}
	}
	p.low = max(uint(bits.Len(uint(2*n))), 8)
	p.table = make([]uint32, 1<<p.low)
}

// hash spreads the bits of two words. The salt makes collisions unpredictable for whoever chooses the values.
func (p *places) hash(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^p.salt[0], b^p.salt[1])
	return hi ^ lo
}

func (p *places) tag(h uint64) uint32 { return uint32(h>>32) >> p.low << p.low }

// entry is the first entry that the value with this hash may have.
func (p *places) entry(h uint64) uint32 { return p.table[h&uint64(len(p.table)-1)] }

// place is where a value with this hash may be, by its entry; -1: not there.
func (p *places) place(entry uint32, h uint64) int {
	if at := entry ^ p.tag(h); at>>p.low == 0 {
		return int(at) - 1
	}
	return -1
}

// search goes through the entries that a value with this hash may have; same tells whether it is at a place. It returns
// -1 when the value is not there, and slot, where its entry would be.
func (p *places) search(h uint64, same func(int) bool) (place int, slot uint64) {
	mask := uint64(len(p.table) - 1)
	for slot = h & mask; p.table[slot] != 0; slot = (slot + 1) & mask {
		if at := p.place(p.table[slot], h); at >= 0 && same(at) {
			return at, slot
		}
	}
	return -1, slot
}

// put enters a place that is not there.
func (p *places) put(h uint64, place int) {
	_, slot := p.search(h, func(int) bool { return false })
	p.table[slot] = p.tag(h) | uint32(place+1)
}

// numbers is a dictionary of fixed-width values, kept as their bits.
type numbers struct {
	values []int64
	places places
}

func (d *numbers) reset() {
	d.values = d.values[:0]
	clear(d.places.table)
}

func (d *numbers) hash(v int64) uint64 { return d.places.hash(uint64(v), 0) }

// add appends the values' places in the dictionary to idx.
func (d *numbers) add(idx []uint32, v []int64) []uint32 {
	var hashes [batchValues]uint64
	var entries [batchValues]uint32
	for len(v) > 0 {
		n := min(len(v), batchValues)
		d.reserve(n)
		for i, x := range v[:n] {
			hashes[i] = d.hash(x)
			entries[i] = d.places.entry(hashes[i])
		}
		for i, x := range v[:n] {
			at := d.places.place(entries[i], hashes[i])
			if at < 0 || d.values[at] != x {
				at = d.index(x, hashes[i])
			}
			idx = append(idx, uint32(at))
		}
		v = v[n:]
	}
	return idx
}

// index finds or adds the value.
func (d *numbers) index(v int64, h uint64) int {
	at, slot := d.places.search(h, func(at int) bool { return d.values[at] == v })
	if at < 0 {
		at = len(d.values)
		d.values = append(d.values, v)
		d.places.table[slot] = d.places.tag(h) | uint32(at+1)
	}
	return at
}

// reserve makes room for n more values.
func (d *numbers) reserve(n int) {
	if n += len(d.values); d.places.fits(n) {
		return
	}
	d.places.grow(n)
	for i, v := range d.values {
		d.places.put(d.hash(v), i)
	}
}

// texts is a dictionary of byte strings. They lie in data as PLAIN writes them: length in four bytes, bytes.
type texts struct {
	data   []byte
	start  []uint32 // of each value's length in data
	keys   []textKey
	places places
	seed   maphash.Seed // of long texts
}

// textKey is a text of less than 16 bytes, zeros and its length in the last byte; of others, their hash, and 255 in the
// last byte.
type textKey struct{ a, b uint64 }

const longText = 255 << 56

func (d *texts) reset() {
	d.data, d.start, d.keys = d.data[:0], d.start[:0], d.keys[:0]
	clear(d.places.table)
}

func (d *texts) value(i uint32) []byte {
	at := d.start[i]
	n := binary.LittleEndian.Uint32(d.data[at:])
	return d.data[at+4:][:n]
}

// below has the lowest n bytes set, n from 0 to 8.
func below(n int) uint64 { return 1<<(8*uint(n)) - 1 }

// key is the key of data[from:to].
func (d *texts) key(data []byte, from, to int) textKey {
	n := to - from
	if n >= 16 {
		return textKey{maphash.Bytes(d.seed, data[from:to]), longText}
	}
	var short [16]byte
	b := data[from:]
	if len(b) < 16 {
		copy(short[:], b)
		b = short[:]
	}
	return textKey{binary.LittleEndian.Uint64(b) & below(min(n, 8)),
		binary.LittleEndian.Uint64(b[8:])&below(max(n-8, 0)) | uint64(n)<<56}
}

// index finds or adds the text.
func (d *texts) index(v []byte, k textKey, h uint64) int {
	at, slot := d.places.search(h, func(at int) bool { return d.keys[at] == k && d.same(at, k, v) })
	if at < 0 {
		at = len(d.start)
		d.start = append(d.start, uint32(len(d.data)))
		d.data = binary.LittleEndian.AppendUint32(d.data, uint32(len(v)))
		d.data = append(d.data, v...)
		d.keys = append(d.keys, k)
		d.places.table[slot] = d.places.tag(h) | uint32(at+1)
	}
	return at
}

// same reports whether the text at a place, which has the same key, is the same.
func (d *texts) same(at int, k textKey, v []byte) bool {
	return k.b != longText || bytes.Equal(d.value(uint32(at)), v)
}

// reserve makes room for n more values.
func (d *texts) reserve(n int) {
	if n += len(d.start); d.places.fits(n) {
		return
	}
	if len(d.places.table) == 0 {
		d.seed = maphash.MakeSeed()
	}
	d.places.grow(n)
	for i, k := range d.keys {
		d.places.put(d.places.hash(k.a, k.b), i)
	}
}

// addTexts appends the texts' places in the dictionary to idx.
func addTexts[T int32 | int64](d *texts, idx []uint32, offsets []T, data []byte, rows []int32) []uint32 {
	var keys [batchValues]textKey
	var hashes [batchValues]uint64
	var entries [batchValues]uint32
	for len(rows) > 0 {
		n := min(len(rows), batchValues)
		d.reserve(n)
		for i, row := range rows[:n] {
			keys[i] = d.key(data, int(offsets[row]), int(offsets[row+1]))
			hashes[i] = d.places.hash(keys[i].a, keys[i].b)
			entries[i] = d.places.entry(hashes[i])
		}
		for i, row := range rows[:n] {
			v := data[offsets[row]:offsets[row+1]]
			at := d.places.place(entries[i], hashes[i])
			if at < 0 || d.keys[at] != keys[i] || !d.same(at, keys[i], v) {
				at = d.index(v, keys[i], hashes[i])
			}
			idx = append(idx, uint32(at))
		}
		rows = rows[n:]
	}
	return idx
}
