package parquet

import (
	"encoding/binary"
	"math/bits"
)

// appendHybrid appends v in Parquet's RLE/bit-packed hybrid encoding, without a length before it. Each value has at
// most width bits. Runs of eight and more equal values that begin at a group of eight become RLE runs.
func appendHybrid[T uint8 | uint32](dst []byte, v []T, width int) []byte {
	literals, i := 0, 0
	for len(v)-i >= 8 {
		if !allEqual(v[i : i+8]) {
			i += 8
			continue
		}
		end := i + 8
		for end < len(v) && v[end] == v[i] {
			end++
		}
		dst = appendLiterals(dst, v[literals:i], width)
		dst = appendRun(dst, uint32(v[i]), end-i, width)
		literals, i = end, end
	}
	return appendLiterals(dst, v[literals:], width)
}

func allEqual[T uint8 | uint32](v []T) bool {
	_ = v[7]
	return v[0] == v[1] && v[0] == v[2] && v[0] == v[3] && v[0] == v[4] && v[0] == v[5] && v[0] == v[6] && v[0] == v[7]
}

// appendRun appends n times the value as one RLE run.
func appendRun(dst []byte, value uint32, n, width int) []byte {
	dst = binary.AppendUvarint(dst, uint64(n)<<1)
	for ; width > 0; width -= 8 {
		dst = append(dst, byte(value))
		value >>= 8
	}
	return dst
}

// appendLiterals appends the values bit-packed, the last group of eight filled up with zeros.
func appendLiterals[T uint8 | uint32](dst []byte, v []T, width int) []byte {
	if len(v) == 0 {
		return dst
	}
	groups := (len(v) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	whole := len(v) &^ 7
	dst = appendPacked(dst, v[:whole], width)
	if whole < len(v) {
		var last [8]T
		copy(last[:], v[whole:])
		dst = appendPacked(dst, last[:], width)
	}
	return dst
}

// appendPacked appends groups of eight values, lowest bits first.
func appendPacked[T uint8 | uint32](dst []byte, v []T, width int) []byte {
	var acc uint64
	var n int
	for _, x := range v {
		acc |= uint64(x) << n
		n += width
		if n >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(acc))
			acc >>= 32
			n -= 32
		}
	}
	for ; n > 0; n -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// bitWidth is the number of bits that the values 0…largest need.
func bitWidth(largest int) int { return bits.Len(uint(largest)) }

// appendLevels appends the levels of a data page of version 1: their length in four bytes, then the hybrid. A nil
// slice stands for n times the largest level.
func appendLevels(dst []byte, levels []uint8, n int, largest uint8) []byte {
	if largest == 0 {
		return dst
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	width := bitWidth(int(largest))
	if levels == nil {
		dst = appendRun(dst, uint32(largest), n, width)
	} else {
		dst = appendHybrid(dst, levels, width)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}
