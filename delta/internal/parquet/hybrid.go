package parquet

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("the run-length encoded values end early")

// Hybrid decodes numbers in Parquet's hybrid of run lengths and bit packing, as definition levels and indices into
// dictionaries are. It is used by one goroutine. Spec: "Run Length Encoding / Bit-Packing Hybrid".
type Hybrid struct {
	data  []byte
	width uint // bits of a number, 0 to 32

	left   int    // numbers of the run
	value  uint32 // that the run repeats
	packed []byte // of a run that is packed; nil: it repeats value
	bit    uint   // in packed, where the next number begins
}

// Reset begins anew with other bytes. Errors: a width of more than 32 bits.
func (h *Hybrid) Reset(data []byte, width int) error {
	if width < 0 || width > 32 {
		return errors.New("numbers of more than 32 bits")
	}
	*h = Hybrid{data: data, width: uint(width)}
	return nil
}

// Next fills out. Errors: bytes that end before.
func (h *Hybrid) Next(out []uint32) error {
	for len(out) > 0 {
		if h.left == 0 {
			if err := h.run(); err != nil {
				return err
			}
			continue
		}
		n := min(h.left, len(out))
		if h.packed == nil {
			for i := range out[:n] {
				out[i] = h.value
			}
		} else {
			h.unpack(out[:n])
		}
		h.left -= n
		out = out[n:]
	}
	return nil
}

// Repeats returns how many of the next n numbers are known to be v without looking at each, and passes over them.
func (h *Hybrid) Repeats(v uint32, n int) (int, error) {
	passed := 0
	for passed < n {
		if h.left == 0 {
			if err := h.run(); err != nil {
				return 0, err
			}
			continue
		}
		if h.packed != nil || h.value != v {
			break
		}
		k := min(h.left, n-passed)
		h.left -= k
		passed += k
	}
	return passed, nil
}

// run reads the head of the next run, which may be empty.
func (h *Hybrid) run() error {
	head, size := binary.Uvarint(h.data)
	if size <= 0 || head>>1 > 1<<31 {
		return errShort
	}
	h.data = h.data[size:]
	if head&1 == 0 {
		n := int(h.width+7) / 8
		if len(h.data) < n {
			return errShort
		}
		h.value, h.packed, h.left = 0, nil, int(head>>1)
		for i := range n {
			h.value |= uint32(h.data[i]) << (8 * i)
		}
		if uint64(h.value)>>h.width != 0 {
			return errors.New("a run repeats a number of too many bits")
		}
		h.data = h.data[n:]
		return nil
	}
	groups := int(head >> 1) // of eight numbers
	n := groups * int(h.width)
	h.left, h.bit = groups*8, 0
	if n > len(h.data) { // the last run may leave out bytes that hold no number
		n = len(h.data)
		if h.width > 0 {
			h.left = n * 8 / int(h.width)
		}
		if h.left == 0 {
			return errShort
		}
	}
	h.packed, h.data = h.data[:n:n], h.data[n:]
	return nil
}

// unpack takes numbers, which there are, from the packed run.
func (h *Hybrid) unpack(out []uint32) {
	mask := uint64(1)<<h.width - 1
	for i := range out {
		at := h.bit >> 3
		var word uint64
		if at+8 <= uint(len(h.packed)) {
			word = binary.LittleEndian.Uint64(h.packed[at:])
		} else {
			for k, b := range h.packed[min(at, uint(len(h.packed))):] {
				word |= uint64(b) << (8 * k)
			}
		}
		out[i] = uint32(word >> (h.bit & 7) & mask)
		h.bit += h.width
	}
}
