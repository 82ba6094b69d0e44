package parquet

import (
	"strings"
	"unsafe"
)

// Uncleared is n bytes that hold anything. Memory that is filled at once need not be cleared before, which costs a tenth of what
// reading does; only strings.Builder takes memory so.
func Uncleared(n int) []byte {
	if n == 0 {
		return []byte{}
	}
	var b strings.Builder
	b.Grow(n)
	_ = b.WriteByte(0) // the string has memory that can be asked for; the error is always nil
	return unsafe.Slice(unsafe.StringData(b.String()), n)
}
