package expr

import (
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// bitset is one bit a row, row 0 the lowest bit of the first word. Bits past the last row are not defined. A
// nil bitset stands for all ones where it says which rows are valid or active. Bitsets are shared between
// vectors: whoever made one may write it until it is handed on.
type bitset []uint64

func newBits(rows int) bitset { return make(bitset, (rows+63)/64) }

func onesBits(rows int) bitset {
	b := newBits(rows)
	for i := range b {
		b[i] = ^uint64(0)
	}
	return b
}

// bitsOf copies an Arrow bitmap.
func bitsOf(bitmap []byte, offset, rows int) bitset {
	b := newBits(rows)
	b.copyFrom(bitmap, offset, rows, 0)
	return b
}

// loadBits returns n bits, at most 64, from a bit offset of a bitmap.
func loadBits(bitmap []byte, offset, n int) uint64 {
	at, shift := offset>>3, offset&7
	var word uint64
	if at+8 <= len(bitmap) {
		word = binary.LittleEndian.Uint64(bitmap[at:])
	} else {
		for i, c := range bitmap[at:] {
			word |= uint64(c) << (8 * i)
		}
	}
	word >>= shift
	if shift+n > 64 {
		word |= uint64(bitmap[at+8]) << (64 - shift)
	}
	if n < 64 {
		word &= 1<<n - 1
	}
	return word
}

// put ors n bits, at most 64, in from bit at on.
func (b bitset) put(at, n int, word uint64) {
	b[at>>6] |= word << (at & 63)
	if at&63+n > 64 {
		b[at>>6+1] |= word >> (64 - at&63)
	}
}

// copyFrom ors the bits of a bitmap in from bit at on.
func (b bitset) copyFrom(bitmap []byte, offset, n, at int) {
	for ; n > 0; n -= 64 {
		b.put(at, min(n, 64), loadBits(bitmap, offset, min(n, 64)))
		offset += 64
		at += 64
	}
}

// fill sets n bits from bit at on.
func (b bitset) fill(at, n int) {
	for ; n > 0; n -= 64 {
		b.put(at, min(n, 64), ^uint64(0)>>max(64-n, 0))
		at += 64
	}
}

func (b bitset) has(i int) bool { return b == nil || b[i>>6]>>(i&63)&1 == 1 }
func (b bitset) set(i int)      { b[i>>6] |= 1 << (i & 63) }
func (b bitset) clear(i int)    { b[i>>6] &^= 1 << (i & 63) }

// word is the w-th word, all ones for nil.
func (b bitset) word(w int) uint64 {
	if b == nil {
		return ^uint64(0)
	}
	return b[w]
}

// count is the number of ones among the first rows bits.
func (b bitset) count(rows int) int {
	if b == nil {
		return rows
	}
	n := 0
	for w := range rows >> 6 {
		n += bits.OnesCount64(b[w])
	}
	if tail := rows & 63; tail > 0 {
		n += bits.OnesCount64(b[rows>>6] & (1<<tail - 1))
	}
	return n
}

// none tells whether there is no one among the first rows bits.
func (b bitset) none(rows int) bool {
	if b == nil {
		return rows == 0
	}
	for w := range rows >> 6 {
		if b[w] != 0 {
			return false
		}
	}
	tail := rows & 63
	return tail == 0 || b[rows>>6]&(1<<tail-1) == 0
}

func (b bitset) not() bitset {
	out := make(bitset, len(b))
	for i, w := range b {
		out[i] = ^w
	}
	return out
}

// andBits is the rows that are in both; nil when both are nil.
func andBits(a, b bitset) bitset {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	out := make(bitset, len(a))
	for i := range out {
		out[i] = a[i] & b[i]
	}
	return out
}

// without is the rows of a that are not in b; rows is needed when a is nil.
func without(a, b bitset, rows int) bitset {
	out := newBits(rows)
	for i := range out {
		out[i] = a.word(i) &^ b.word(i)
	}
	return out
}

// each calls f for the rows of b in ascending order.
func (b bitset) each(rows int, f func(i int)) {
	if b == nil {
		for i := range rows {
			f(i)
		}
		return
	}
	for w := range (rows + 63) / 64 {
		word := b[w]
		if left := rows - w*64; left < 64 {
			word &= 1<<left - 1
		}
		for word != 0 {
			f(w*64 + bits.TrailingZeros64(word))
			word &= word - 1
		}
	}
}

// buffer is the bitset as an Arrow bitmap; nil for nil.
func (b bitset) buffer() *memory.Buffer {
	if b == nil {
		return nil
	}
	return memory.NewBufferBytes(arrow.Uint64Traits.CastToBytes(b))
}
