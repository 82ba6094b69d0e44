package parquet

import (
	"encoding/binary"
	"math/bits"

	"github.com/klauspost/compress/huff0"
)

// zstdBlock is the most bytes that a block of zstd stands for.
const zstdBlock = 128 << 10

// Numbers of RFC 8878: types of blocks, types of literals.
const (
	blockRaw        = 0
	blockCompressed = 2

	literalsRaw        = 0
	literalsRepeated   = 1
	literalsCompressed = 2
)

// zstdFrame writes zstd frames whose blocks hold literals and, but for those of rising, equal sequences: so many literals, then a match of so many
// bytes, all at one offset. The decoder's tables then have one entry each, and a sequence takes no bits but those that
// its codes have for the low bits of lengths.
type zstdFrame struct {
	huff  huff0.Scratch
	body  []byte // of the block that is being written
	block int    // where in the frame the last block begins
}

// begin appends the header of a frame of size bytes, with matches within zstdBlock.
func (z *zstdFrame) begin(dst []byte, size int) []byte {
	z.block = -1
	dst = append(dst, 0x28, 0xb5, 0x2f, 0xfd, // the magic number
		2<<6, // the size is given in four bytes; no checksum, no dictionary
		7<<3) // a window of 2^(10+7) bytes
	return binary.LittleEndian.AppendUint32(dst, uint32(size))
}

// sequences are n times the same: literals, then a match. offset is its Offset_Value: 1 repeats the last one's offset,
// which takes at least one literal; d + 3 is d bytes back.
type sequences struct{ n, literals, match, offset int }

// add appends a block: literals, of which s takes what it needs and the rest are its end.
func (z *zstdFrame) add(dst, literals []byte, s sequences) []byte {
	z.body = s.append(z.appendLiterals(z.body[:0], literals))
	if s.n == 0 && len(z.body) >= len(literals) {
		return append(z.open(dst, blockRaw, len(literals)), literals...)
	}
	return append(z.open(dst, blockCompressed, len(z.body)), z.body...)
}

// addLiterals appends blocks without sequences.
func (z *zstdFrame) addLiterals(dst, b []byte) []byte {
	for len(b) > 0 {
		n := min(len(b), zstdBlock)
		dst = z.add(dst, b[:n], sequences{})
		b = b[n:]
	}
	return dst
}

// open appends the header of a block.
func (z *zstdFrame) open(dst []byte, kind, size int) []byte {
	z.block = len(dst)
	header := uint32(size)<<3 | uint32(kind)<<1
	return append(dst, byte(header), byte(header>>8), byte(header>>16))
}

// end marks the last block as such.
func (z *zstdFrame) end(dst []byte) []byte {
	dst[z.block] |= 1
	return dst
}

// appendLiterals appends a Literals_Section.
func (z *zstdFrame) appendLiterals(dst, literals []byte) []byte {
	const fewest, oneStream = 64, 1023
	err := huff0.ErrIncompressible
	var packed []byte
	z.huff.Reuse = huff0.ReusePolicyNone
	switch n := len(literals); {
	case n < fewest:
	case n <= oneStream:
		packed, _, err = huff0.Compress1X(literals, &z.huff)
	default:
		packed, _, err = huff0.Compress4X(literals, &z.huff)
	}
	if err == huff0.ErrUseRLE { //nolint:errorlint // huff0 returns it as it is
		return append(appendRawHeader(dst, literalsRepeated, len(literals)), literals[0])
	}
	if err != nil || len(packed) >= len(literals) {
		return append(appendRawHeader(dst, literalsRaw, len(literals)), literals...)
	}
	return append(appendPackedHeader(dst, len(literals), len(packed)), packed...)
}

// appendRawHeader appends the header of literals that are not compressed, in its longest form.
func appendRawHeader(dst []byte, kind, n int) []byte {
	v := uint32(kind) | 3<<2 | uint32(n)<<4
	return append(dst, byte(v), byte(v>>8), byte(v>>16))
}

// appendPackedHeader appends the header of Huffman-coded literals: in one stream up to 1023 of them, else in four.
func appendPackedHeader(dst []byte, n, packed int) []byte {
	format, width := uint64(0), 10
	switch {
	case n >= 1<<14:
		format, width = 3, 18
	case n >= 1<<10:
		format, width = 2, 14
	}
	v := literalsCompressed | format<<2 | uint64(n)<<4 | uint64(packed)<<(4+width)
	for left := 4 + 2*width; left > 0; left -= 8 {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

// append appends a Sequences_Section whose three tables are RLE_Mode.
func (s sequences) append(dst []byte) []byte {
	dst = appendSequenceCount(dst, s.n)
	if s.n == 0 {
		return dst
	}
	l, m := literalsCode(s.literals), matchCode(s.match)
	o := lengthCode{code: byte(bits.Len(uint(s.offset)) - 1)}
	o.bits = int(o.code)
	o.low = uint64(s.offset) &^ (1 << o.bits)
	dst = append(dst, 1<<6|1<<4|1<<2, l.code, o.code, m.code)
	// Backwards, the reader finds the offset's bits, the match's, the literals'.
	width := l.bits + m.bits + o.bits
	v := o.low<<(l.bits+m.bits) | m.low<<l.bits | l.low
	var acc uint64
	have := 0
	for range s.n {
		if width == 0 {
			break
		}
		acc |= v << have
		for have += width; have >= 8; have -= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	return append(dst, byte(acc|1<<have))
}

// appendSequenceCount appends Number_of_Sequences.
func appendSequenceCount(dst []byte, n int) []byte {
	switch {
	case n < 128:
		return append(dst, byte(n))
	case n < 0x7f00:
		return append(dst, byte(n>>8)+128, byte(n))
	}
	return binary.LittleEndian.AppendUint16(append(dst, 255), uint16(n-0x7f00))
}

// lengthCode is a code and the low bits that it leaves open.
type lengthCode struct {
	code byte
	bits int
	low  uint64
}

// maxLiterals and maxMatch are the largest lengths that literalsCode and matchCode know.
const (
	maxLiterals = 127
	maxMatch    = 66
)

// literalsCode is the Literals_Length_Code of a length up to maxLiterals.
func literalsCode(n int) lengthCode {
	if n < 16 {
		return lengthCode{code: byte(n)}
	}
	return longCode(n, 16, []uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 6}, 16)
}

// matchCode is the Match_Length_Code of a length from 3 to maxMatch.
func matchCode(n int) lengthCode {
	if n < 35 {
		return lengthCode{code: byte(n - 3)}
	}
	return longCode(n, 32, []uint8{1, 1, 1, 1, 2, 2, 3, 3}, 35)
}

// longCode finds the code in a row of codes, of so many open bits each, of which the first stands for from on.
func longCode(n int, code byte, open []uint8, from int) lengthCode {
	for _, b := range open {
		if n < from+1<<b {
			return lengthCode{code: code, bits: int(b), low: uint64(n - from)}
		}
		from += 1 << b
		code++
	}
	panic("parquet: a length beyond the codes that are known") //nolint:forbidigo // callers keep to the limits above
}
