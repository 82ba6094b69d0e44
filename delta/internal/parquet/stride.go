package parquet

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// strider compresses records of one width, integers or texts of one length, as zstd. It looks for no matches: of
// neighbouring records some bytes are always the same, the high ones of integers, the length and the beginning of texts.
// The longest run of such bytes becomes a match with the record before, all else literals:
//
//	┌ record ──────┐┌ record ──────┐
//	 literal  match  literal  match        all sequences are the same, which costs nothing
//
// Where the run changes, a new block begins. That is several times as fast as the search for matches, and smaller, as
// nothing has to be told of each match. Integers of which the run differs from one to the next are written by rising.
type strider struct {
	frame    zstdFrame
	rising   rising
	parts    []stretch
	literals []byte
}

const (
	// groupRecords is how many records are looked at together.
	groupRecords = 256
	// blockCost is about what one more block costs, in bytes: its headers and the table of its literals.
	blockCost = 100
	// maxStride bounds records, so that lengths have codes and the bytes that change fit a mask.
	maxStride = 64
)

// stretch is records that have the same run of bytes as the record before each.
type stretch struct {
	records int
	changed uint64 // a bit for each byte that changes
	run
}

// run is where the bytes are that stay the same.
type run struct{ from, bytes int }

func (r run) end() int { return r.from + r.bytes }

// append appends b, which from some byte on is records of so many bytes, compressed. It reports false, and appends
// nothing, where that is no good.
func (s *strider) append(dst, b []byte, from, stride int) ([]byte, bool) {
	records := b[from:]
	if stride != 4 && stride < 8 || stride > maxStride || len(records) < groupRecords*stride || len(records)%stride != 0 {
		return dst, false
	}
	s.divide(records, stride)
	saved, ok := s.saved()
	rises := false
	if stride == 8 {
		var literals int
		literals, rises = s.rising.measure(records)
		rises = rises && (!ok || len(records)-saved > literals+literals/8)
	}
	if !rises && (!ok || saved < len(records)/8) || len(b) > math.MaxInt32 {
		return dst, false
	}
	dst = s.frame.addLiterals(s.frame.begin(dst, len(b)), b[:from])
	if rises {
		dst = s.rising.write(&s.frame, dst, records)
	} else {
		dst = s.write(dst, records, stride)
	}
	return s.frame.end(dst), true
}

// saved is how many bytes of the stretches are in matches; false when one has too few for a match.
func (s *strider) saved() (n int, ok bool) {
	for i := range s.parts {
		if s.parts[i].bytes < 3 {
			return 0, false
		}
		n += s.parts[i].records * s.parts[i].bytes
	}
	return n, true
}

// divide finds the stretches of all records but the first.
func (s *strider) divide(b []byte, stride int) {
	s.parts = s.parts[:0]
	most := (zstdBlock - 3*stride) / stride
	for at := 1; at*stride < len(b); {
		n := min(groupRecords, len(b)/stride-at)
		next := stretch{records: n, changed: changed(b[(at-1)*stride:(at+n)*stride], stride)}
		next.run = longestRun(next.changed, stride)
		at += n
		if last := len(s.parts) - 1; last >= 0 && s.parts[last].records+n <= most {
			old := &s.parts[last]
			both := longestRun(old.changed|next.changed, stride)
			if (old.bytes-both.bytes)*old.records+(next.bytes-both.bytes)*n <= blockCost {
				old.changed, old.run, old.records = old.changed|next.changed, both, old.records+n
				continue
			}
		}
		s.parts = append(s.parts, next)
	}
}

// changed has a bit for each byte that is not the same in all records.
func changed(b []byte, stride int) uint64 {
	if stride == 4 {
		return changedWords(b, 4, func(b []byte) uint64 { return uint64(binary.LittleEndian.Uint32(b)) })
	}
	var mask uint64
	for at := 0; ; at = min(at+8, stride-8) {
		mask |= changedWords(b[at:], stride, binary.LittleEndian.Uint64) << at
		if at == stride-8 {
			return mask
		}
	}
}

// changedWords compares the first word of each record with that of the record before.
func changedWords(b []byte, stride int, word func([]byte) uint64) uint64 {
	var differ, last uint64
	last = word(b)
	for at := stride; at < len(b); at += stride {
		next := word(b[at:])
		differ |= next ^ last
		last = next
	}
	var mask uint64
	for i := range 8 {
		if byte(differ>>(8*i)) != 0 {
			mask |= 1 << i
		}
	}
	return mask
}

// longestRun finds the longest run of zeros among the lowest bits of the mask, as far as a match has codes for it; there
// is at least one byte beside it.
func longestRun(mask uint64, stride int) (best run) {
	for from := 0; from < stride; {
		n := min(bits.TrailingZeros64(mask>>from), stride-from, maxMatch, stride-1)
		if n > best.bytes {
			best = run{from, n}
		}
		from += n + 1
	}
	return best
}

// write writes the stretches as blocks. The first block holds the first record and the beginning of the second, and sets
// the offset that all others repeat.
func (s *strider) write(dst, b []byte, stride int) []byte {
	first := s.parts[0].run
	set := sequences{n: 1, literals: stride + first.from, match: first.bytes, offset: stride + 3}
	dst = s.frame.add(dst, b[:set.literals], set)
	// All before at is written; there the run of the record before the next one ends.
	at, next, end := stride+first.end(), 2, 1
	for i := range s.parts {
		p := &s.parts[i]
		end += p.records
		n := end - next
		s.literals = gather8(s.literals[:0], b[at:], n, stride, stride-p.bytes)
		at, next = at+n*stride, end
		// Up to where the run of the next stretch has been, all are literals.
		to := len(b)
		if i+1 < len(s.parts) {
			if to = (end-1)*stride + s.parts[i+1].end(); to < at {
				to, next = to+stride, end+1
			}
		}
		if s.literals = append(s.literals, b[at:to]...); len(s.literals) > 0 {
			dst = s.frame.add(dst, s.literals, sequences{n: n, literals: stride - p.bytes, match: p.bytes, offset: 1})
		}
		at = to
	}
	return dst
}

// gather8 appends the first k bytes of each of n records.
func gather8(dst, b []byte, n, stride, k int) []byte {
	to := len(dst)
	dst = slices.Grow(dst, n*k+8)[:to+n*k+8]
	at := 0
	for ; n > 0 && at+k+8 <= len(b); n-- {
		for i := 0; i < k; i += 8 {
			*(*[8]byte)(dst[to+i:]) = [8]byte(b[at+i:])
		}
		at, to = at+stride, to+k
	}
	for ; n > 0; n-- {
		copy(dst[to:], b[at:at+k])
		at, to = at+stride, to+k
	}
	return dst[:to]
}
