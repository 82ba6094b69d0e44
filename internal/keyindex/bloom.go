package keyindex

import (
	"encoding/binary"
	"math/bits"
)

// filter tells most keys that a run does not hold. A key has four bits of one word, which its fingerprint's
// upper half chooses: the top bits choose the word, so that a sorted batch walks the filter in order, the low
// ones the bits.
type filter []uint64

// filterMax is the most entries that a run may have to get a filter: larger ones would cost more memory than
// the look-ups they spare.
const filterMax = 16 << 20

// newFilter makes the filter for so many entries, a byte each; nil where there is to be none.
func newFilter(entries uint64) filter {
	if entries > filterMax {
		return nil
	}
	return make(filter, (entries+7)/8)
}

func (f filter) word(hi uint64) int {
	i, _ := bits.Mul64(hi, uint64(len(f)))
	return int(i)
}

func filterBits(hi uint64) uint64 {
	return 1<<(hi&63) | 1<<(hi>>6&63) | 1<<(hi>>12&63) | 1<<(hi>>18&63)
}

func (f filter) add(hi uint64) { f[f.word(hi)] |= filterBits(hi) }

// split sorts keys into those that the run may hold and those that it does not. Both keep their order; none
// takes the room of refs.
func (f filter) split(refs, some []ref) (none, maybe []ref) {
	none, some = refs[:0], some[:len(refs)]
	n := 0
	for _, r := range refs {
		mask := filterBits(r.hi)
		if f[f.word(r.hi)]&mask == mask {
			some[n] = r
			n++
			continue
		}
		none = append(none, r)
	}
	return none, some[:n]
}

func (f filter) encode(dst []byte) []byte {
	for _, w := range f {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

func decodeFilter(b []byte) filter {
	f := make(filter, len(b)/8)
	for i := range f {
		f[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return f
}
