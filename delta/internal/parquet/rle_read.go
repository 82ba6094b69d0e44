package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

var errRuns = errors.New("runs of levels or indices are malformed, or end too early")

// runs decodes the hybrid of run lengths and packed bits. Spec: Parquet, "Run Length Encoding / Bit-Packing Hybrid".
type runs struct {
	data   []byte
	width  int
	left   int    // values of the current run
	packed bool   // the run is packed bits, which begin at bit of data
	value  uint32 // of a run that is not
	bits   []byte
	bit    int
}

func newRuns(data []byte, width int) (runs, error) {
	if width < 0 || width > 32 {
		return runs{}, errRuns
	}
	return runs{data: data, width: width}, nil
}

// next begins the next run.
func (r *runs) next() error {
	head, n := binary.Uvarint(r.data)
	if n <= 0 {
		return errRuns
	}
	r.data = r.data[n:]
	count := head >> 1
	if head&1 == 0 {
		size := (r.width + 7) / 8
		if len(r.data) < size || count == 0 || count > 1<<31 {
			return errRuns
		}
		r.value = 0
		for i := range size {
			r.value |= uint32(r.data[i]) << (8 * i)
		}
		r.data, r.left, r.packed = r.data[size:], int(count), false
		return nil
	}
	// groups of eight; writers may cut off the padding of the last
	if count == 0 || count > 1<<28 {
		return errRuns
	}
	size := min(int(count)*r.width, len(r.data))
	r.left = int(count) * 8
	if r.width > 0 {
		r.left = min(r.left, size*8/r.width)
	}
	if r.left == 0 {
		return errRuns
	}
	r.bits, r.data, r.bit, r.packed = r.data[:size], r.data[size:], 0, true
	return nil
}

// levels decodes values that fit a byte.
func (r *runs) levels(dst []uint8) error { return decodeRuns(r, dst) }

// indices decodes values.
func (r *runs) indices(dst []uint32) error { return decodeRuns(r, dst) }

func decodeRuns[T uint8 | uint32](r *runs, dst []T) error {
	for len(dst) > 0 {
		if r.left == 0 {
			if err := r.next(); err != nil {
				return err
			}
		}
		n := min(r.left, len(dst))
		if r.packed {
			unpack(dst[:n], r.bits, r.bit, r.width)
			r.bit += n * r.width
		} else {
			v := T(r.value)
			for i := range dst[:n] {
				dst[i] = v
			}
		}
		dst, r.left = dst[n:], r.left-n
	}
	return nil
}

// pass moves over k values.
func (r *runs) pass(k int) error {
	for k > 0 {
		if r.left == 0 {
			if err := r.next(); err != nil {
				return err
			}
		}
		n := min(r.left, k)
		if r.packed {
			r.bit += n * r.width
		}
		k, r.left = k-n, r.left-n
	}
	return nil
}

// count moves over k values and counts those that equal most.
func (r *runs) count(k int, most uint8) (total int, err error) {
	var some [64]uint8
	for k > 0 {
		if r.left == 0 {
			if err := r.next(); err != nil {
				return 0, err
			}
		}
		n := min(r.left, k)
		switch {
		case !r.packed && r.value == uint32(most):
			total += n
		case !r.packed:
		case r.width == 1 && most == 1:
			total += ones(r.bits, r.bit, n)
		default:
			n = min(n, len(some))
			unpack(some[:n], r.bits, r.bit, r.width)
			for _, v := range some[:n] {
				if v == most {
					total++
				}
			}
		}
		if r.packed {
			r.bit += n * r.width
		}
		k, r.left = k-n, r.left-n
	}
	return total, nil
}

// ones counts those of n bits, from bit on, that are set; they are all there.
func ones(b []byte, bit, n int) (total int) {
	for n > 0 {
		var word [8]byte
		copy(word[:], b[bit>>3:])
		m := min(n, 64-bit&7)
		v := binary.LittleEndian.Uint64(word[:]) >> (bit & 7)
		total += bits.OnesCount64(v << (64 - m))
		bit, n = bit+m, n-m
	}
	return total
}

// unpack takes values of width bits from a bit on, lowest bits first; they are all there.
func unpack[T uint8 | uint32](dst []T, bits []byte, bit, width int) {
	mask := uint64(1)<<width - 1
	i := 0
	for ; i < len(dst) && bit>>3+8 <= len(bits); i++ {
		dst[i] = T(binary.LittleEndian.Uint64(bits[bit>>3:]) >> (bit & 7) & mask)
		bit += width
	}
	for ; i < len(dst); i++ {
		var word [8]byte
		if bit>>3 < len(bits) {
			copy(word[:], bits[bit>>3:])
		}
		dst[i] = T(binary.LittleEndian.Uint64(word[:]) >> (bit & 7) & mask)
		bit += width
	}
}
