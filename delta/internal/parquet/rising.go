package parquet

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// rising compresses integers of eight bytes each of which begins, from its high end, as the one before: ids and times that
// ascend. How many bytes they share differs from one to the next, so that each is a sequence of its own kind:
//
//	┌ integer ───────────┐┌ integer ───────────┐
//	 low bytes  match      low bytes  match       1 to 5 bytes are literals, the match is at 8 bytes' distance
//
// The lengths are coded by FSE with a table a block.
type rising struct {
	lengths  []uint8 // of the literals of each integer but the first
	literals []byte
	low      fse // of lengths of literals
	high     fse // of lengths of matches
}

// longestLow is the most literals of an integer: a match has at least three bytes.
const longestLow = 5

// measure looks at integers, of which there are at least two, and reports how many bytes are to be literals; false where
// some share too little with the one before.
func (r *rising) measure(b []byte) (literals int, ok bool) {
	n := len(b)/8 - 1
	r.lengths = slices.Grow(r.lengths[:0], n)[:n]
	last := binary.LittleEndian.Uint64(b)
	for i := range r.lengths {
		next := binary.LittleEndian.Uint64(b[8*i+8:])
		low := max((bits.Len64(next^last)+7)/8, 1)
		if low > longestLow {
			return 0, false
		}
		r.lengths[i] = uint8(low)
		literals += low
		last = next
	}
	return literals + 8, true
}

// write writes the integers that were measured as blocks. The first block holds two of them, and sets the offset that all
// others repeat.
func (r *rising) write(z *zstdFrame, dst, b []byte) []byte {
	first := int(r.lengths[0])
	dst = z.add(dst, b[:8+first], sequences{n: 1, literals: 8 + first, match: 8 - first, offset: 8 + 3})
	b = b[16:]
	for lengths := range slices.Chunk(r.lengths[1:], zstdBlock/8) {
		n := 8 * len(lengths)
		dst = r.block(z, dst, b[:n], lengths)
		b = b[n:]
	}
	return dst
}

func (r *rising) block(z *zstdFrame, dst, b []byte, lengths []uint8) []byte {
	out := slices.Grow(r.literals[:0], len(b)+8)[:len(b)+8]
	var counts [longestLow + 1]int
	at := 0
	for i, low := range lengths {
		*(*[8]byte)(out[at:]) = [8]byte(b[8*i:])
		at += int(low)
		counts[low]++
	}
	r.literals = out
	if low := int(lengths[0]); counts[low] == len(lengths) {
		return z.add(dst, out[:at], sequences{n: len(lengths), literals: low, match: 8 - low, offset: 1})
	}
	z.body = r.appendSequences(z.appendLiterals(z.body[:0], out[:at]), lengths, &counts)
	return append(z.open(dst, blockCompressed, len(z.body)), z.body...)
}

// appendSequences appends a Sequences_Section whose tables of lengths are FSE_Compressed_Mode. The codes of short lengths
// have no low bits: that of so many literals is the number, that of a match three less.
func (r *rising) appendSequences(dst []byte, lengths []uint8, counts *[longestLow + 1]int) []byte {
	const fseMode, rleMode, sameOffset = 2, 1, 0
	dst = append(appendSequenceCount(dst, len(lengths)), fseMode<<6|rleMode<<4|fseMode<<2)
	low := normalize(counts, len(lengths))
	high := low
	slices.Reverse(high[:])
	dst = appendWeights(dst, &low)
	dst = append(dst, sameOffset)
	dst = appendWeights(dst, &high)
	r.low.build(&low)
	r.high.build(&high)
	// A reader goes backwards: it finds the states of the first sequence's lengths at the end.
	last := lengths[len(lengths)-1]
	l, m := r.low.begin(last), r.high.begin(longestLow-last)
	from := len(dst)
	dst = slices.Grow(dst, 2*len(lengths)+16)[:from+2*len(lengths)+16]
	at := from
	var acc uint64
	have := uint32(0)
	put := func(v, n uint32) {
		acc |= uint64(v&(1<<n-1)) << have
		have += n
	}
	for _, low := range slices.Backward(lengths[:len(lengths)-1]) {
		n := r.high.width(m, longestLow-low)
		put(m, n)
		m = r.high.next(m, n, longestLow-low)
		n = r.low.width(l, low)
		put(l, n)
		l = r.low.next(l, n, low)
		binary.LittleEndian.PutUint64(dst[at:], acc)
		at += int(have >> 3)
		acc >>= have &^ 7
		have &= 7
	}
	put(m, fseLog)
	put(l, fseLog)
	put(1, 1) // the end
	binary.LittleEndian.PutUint64(dst[at:], acc)
	return dst[:at+int(have+7)/8]
}

// fseLog is the Accuracy_Log of tables.
const fseLog = 7

// normalize makes weights of counts whose sum is n: their sum is 1<<fseLog, and none that is counted is nought.
func normalize(counts *[longestLow + 1]int, n int) (weights [longestLow + 1]int) {
	left, most := 1<<fseLog, 0
	for i, c := range counts {
		if c > 0 {
			weights[i] = max((c<<fseLog+n/2)/n, 1)
		}
		left -= weights[i]
		if c > counts[most] {
			most = i
		}
	}
	weights[most] += left
	return weights
}

// appendWeights appends an FSE table description, of at least two symbols.
func appendWeights(dst []byte, weights *[longestLow + 1]int) []byte {
	acc, have := uint64(fseLog-5), 4 // the lowest Accuracy_Log is 5
	put := func(v, n int) {
		acc |= uint64(v) << have
		have += n
	}
	left, threshold, width := 1<<fseLog+1, 1<<fseLog, fseLog+1
	for i := 0; left > 1; {
		w := weights[i]
		i++
		short := 2*threshold - 1 - left
		left -= w
		v := w + 1
		if v >= threshold {
			v += short
		}
		put(v, width)
		if v < short {
			have--
		}
		if w == 0 { // how many more are nought
			zeros := 0
			for weights[i] == 0 {
				zeros, i = zeros+1, i+1
			}
			for ; zeros >= 3; zeros -= 3 {
				put(3, 2)
			}
			put(zeros, 2)
		}
		for left < threshold {
			threshold, width = threshold/2, width-1
		}
	}
	for ; have > 0; have -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// fse codes symbols by a table. Spec: RFC 8878, "FSE"; the arithmetic is that of its authors' implementation.
type fse struct {
	states [1 << fseLog]uint16
	bits   [longestLow + 1]uint32 // added to a state: the bits to write, times 65536
	find   [longestLow + 1]int32  // added to a state without these bits: where in states the next one is
}

func (f *fse) build(weights *[longestLow + 1]int) {
	const size, step = 1 << fseLog, 1<<fseLog/2 + 1<<fseLog/8 + 3
	var symbols [size]uint8
	var first [longestLow + 1]int
	at, total := 0, 0
	for s, w := range weights {
		for range w {
			symbols[at] = uint8(s)
			at = (at + step) % size
		}
		first[s] = total
		f.find[s] = int32(total - w)
		width := uint32(fseLog)
		if w > 1 {
			width -= uint32(bits.Len(uint(w-1)) - 1)
		}
		f.bits[s] = width<<16 - uint32(w)<<width
		total += w
	}
	for i, s := range symbols {
		f.states[first[s]] = uint16(size + i)
		first[s]++
	}
}

// begin is the state that stands for the last symbol.
func (f *fse) begin(s uint8) uint32 {
	width := (f.bits[s] + 1<<15) >> 16
	return f.next(width<<16-f.bits[s], width, s)
}

// width is how many of the state's low bits are written before a symbol.
func (f *fse) width(state uint32, s uint8) uint32 { return (state + f.bits[s]) >> 16 }

func (f *fse) next(state, width uint32, s uint8) uint32 {
	return uint32(f.states[int32(state>>width)+f.find[s]])
}
