package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Encodings of values, by their numbers in parquet.thrift.
const (
	encodingDeltaInts    = 5
	encodingDeltaLengths = 6
	encodingDeltaBytes   = 7
	encodingSplit        = 9
)

var errDelta = errors.New("differences of values are malformed, or end too early")

// recode makes the values of a page with at most n of them PLAIN. Spec: Parquet, "Encodings".
func (r *ColumnReader) recode(encoding int, b []byte, n int) ([]byte, error) {
	t := r.c.Type
	out := r.recoded[:0]
	var err error
	switch {
	case encoding == encodingDeltaInts && (t == PhysicalInt32 || t == PhysicalInt64):
		out, err = r.deltaInts(out, b, n)
	case encoding == encodingDeltaLengths && t == PhysicalBytes:
		out, err = r.deltaLengths(out, b, n)
	case encoding == encodingDeltaBytes && (t == PhysicalBytes || t == PhysicalFixed):
		out, err = r.deltaBytes(out, b, n)
	case encoding == encodingSplit && r.width > 1:
		out = joinStreams(out, b, r.width)
	default:
		return nil, fmt.Errorf("%w: number %d", ErrEncoding, encoding)
	}
	r.recoded = out
	return out, err
}

func (r *ColumnReader) deltaInts(out, b []byte, n int) ([]byte, error) {
	values, _, err := r.ints(b, n)
	if err != nil {
		return out, err
	}
	return appendFixed(out, values, r.width), nil
}

// deltaLengths reads DELTA_LENGTH_BYTE_ARRAY: the lengths of all values, then their bytes.
func (r *ColumnReader) deltaLengths(out, b []byte, n int) ([]byte, error) {
	lengths, rest, err := r.ints(b, n)
	if err != nil {
		return out, err
	}
	for _, size := range lengths {
		if size < 0 || size > int64(len(rest)) {
			return out, errDelta
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(size))
		out = append(out, rest[:size]...)
		rest = rest[size:]
	}
	return out, nil
}

// deltaBytes reads DELTA_BYTE_ARRAY: how much of its predecessor each value begins with, then the rest of each.
func (r *ColumnReader) deltaBytes(out, b []byte, n int) ([]byte, error) {
	shared, rest, err := r.ints(b, n)
	if err != nil {
		return out, err
	}
	sizes, rest, err := r.ints(rest, n)
	if err != nil {
		return out, err
	}
	if len(sizes) != len(shared) {
		return out, errDelta
	}
	from, to := len(out), len(out) // the predecessor
	for i, size := range sizes {
		if size < 0 || size > int64(len(rest)) || shared[i] < 0 || shared[i] > int64(to-from) {
			return out, errDelta
		}
		if int64(len(out))+4+shared[i]+size > r.c.Room.left() {
			return out, ErrRoom
		}
		if r.c.Type == PhysicalBytes {
			out = binary.LittleEndian.AppendUint32(out, uint32(shared[i]+size))
		} else if int(shared[i]+size) != r.width {
			return out, errDelta
		}
		begin := len(out)
		out = append(out, out[from:from+int(shared[i])]...)
		out = append(out, rest[:size]...)
		rest = rest[size:]
		from, to = begin, len(out)
	}
	return out, nil
}

// ints reads at most n integers of DELTA_BINARY_PACKED; rest is what is behind them.
func (r *ColumnReader) ints(b []byte, n int) (out []int64, rest []byte, err error) {
	t := &thriftReader{b: b} // its integers are those of Thrift
	block, parts, total, value := t.uvarint(), t.uvarint(), t.uvarint(), t.varint()
	if t.err != nil || parts == 0 || parts > block || block > 1<<20 || block%parts != 0 || block/parts%8 != 0 {
		return nil, nil, errDelta
	}
	if total > uint64(n) {
		return nil, nil, fmt.Errorf("a page has %d values, wanted at most %d", total, n)
	}
	if int64(total) > r.c.Room.left()/8 {
		return nil, nil, ErrRoom
	}
	if total == 0 {
		return nil, b[t.pos:], nil
	}
	out = append(make([]int64, 0, total), value)
	for len(out) < int(total) {
		least := t.varint()
		widths := t.bytes(int(parts))
		for _, width := range widths {
			if len(out) == int(total) {
				break
			}
			packed := t.bytes(int(block/parts) / 8 * int(width))
			if t.err != nil || width > 64 {
				return nil, nil, errDelta
			}
			out = appendDeltas(out, packed, int(width), least, min(int(block/parts), int(total)-len(out)))
		}
		if t.err != nil {
			return nil, nil, errDelta
		}
	}
	return out, b[t.pos:], nil
}

// appendDeltas appends n values, each the sum of its predecessor, least, and a difference of width bits.
func appendDeltas(out []int64, packed []byte, width int, least int64, n int) []int64 {
	value := out[len(out)-1]
	for i := range n {
		value += least + int64(bitsAt(packed, i*width, width))
		out = append(out, value)
	}
	return out
}

// bitsAt returns width bits, from bit on, lowest first.
func bitsAt(b []byte, bit, width int) (v uint64) {
	for got := 0; got < width; {
		at := bit + got
		m := min(width-got, 8-at&7)
		v |= uint64(b[at>>3]) >> (at & 7) & (1<<m - 1) << got
		got += m
	}
	return v
}

// joinStreams reads BYTE_STREAM_SPLIT: the first bytes of all values, then the second bytes, and so on.
func joinStreams(out, b []byte, width int) []byte {
	n := len(b) / width
	for i := range n {
		for k := range width {
			out = append(out, b[k*n+i])
		}
	}
	return out
}
