package keyindex

import (
	"encoding/binary"
	"math/bits"
)

// filter tells most keys that a run does not hold. It is made of words of 64 bits, little-endian, and a key
// has four bits of one word, which its fingerprint's upper half chooses: the top bits choose the word, so
// that a sorted batch walks the filter in order, the low ones the bits.
type filter []byte

// filterMax is the most entries that a run may have to get a filter: larger ones would cost more memory than
// the look-ups they spare.
const filterMax = 16 << 20

// filterSize is the bytes of the filter for so many entries, one each; 0 where there is to be none.
func filterSize(entries uint64) uint64 {
	if entries > filterMax {
		return 0
	}
	return (entries + 7) / 8 * 8
}

func (f filter) word(hi uint64) []byte {
	i, _ := bits.Mul64(hi, uint64(len(f)/8))
	return f[8*i:]
}

func filterBits(hi uint64) uint64 {
	return 1<<(hi&63) | 1<<(hi>>6&63) | 1<<(hi>>12&63) | 1<<(hi>>18&63)
}

func (f filter) add(hi uint64) {
	w := f.word(hi)
	binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|filterBits(hi))
}

func (f filter) has(hi uint64) bool {
	mask := filterBits(hi)
	return binary.LittleEndian.Uint64(f.word(hi))&mask == mask
}

// split sorts keys into those that the run does not hold and those that it may. Both keep their order. It
// uses up refs and some.
func (f filter) split(refs, some []ref) (none, maybe []ref) {
	none, maybe = refs[:0], some[:0]
	for _, r := range refs {
		if f.has(r.hi) {
			maybe = append(maybe, r)
		} else {
			none = append(none, r)
		}
	}
	return none, maybe
}
