package delta

import (
	"unsafe"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// textBlockBytes is the size of a block of texts: large enough that making one is rare, and small enough that
// whoever keeps one text of it keeps little else.
const textBlockBytes = 16 << 10

// textBlocks makes strings that lie in blocks of memory, many in one: a string costs a copy and no
// allocation. A block is there as long as one of its strings is.
type textBlocks struct {
	most int    // how many bytes all strings have together, at most; 0: not known
	free []byte // of the current block, what is used up has been cut off
}

// of copies a text.
func (t *textBlocks) of(b []byte) string { return t.keep(append(t.room(len(b)), b...)) }

// room returns an empty slice with room for n bytes, to be given to keep before anything else is asked for.
func (t *textBlocks) room(n int) []byte {
	if cap(t.free) < n {
		size := textBlockBytes
		if t.most > 0 {
			size = min(size, t.most)
		}
		if n > size/4 && cap(t.free) > 0 { // the rest of the block serves smaller ones
			return parquet.Uncleared(n)[:0]
		}
		t.free = parquet.Uncleared(max(size, n))[:0]
	}
	return t.free[:0:n]
}

// keep makes a string of what was appended to what room returned.
func (t *textBlocks) keep(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if cap(t.free) > 0 && &t.free[:1][0] == &b[0] {
		t.free = t.free[len(b):len(b):cap(t.free)]
	}
	return unsafe.String(&b[0], len(b))
}
