package keyindex

import (
	"os"
	"syscall"
)

// forgetMapped takes the pages of a mapped file out of the memory of the process that have bytes of [from, to), but the last: they
// stay in the system's cache of files, from which they come again when they are looked at.
func forgetMapped(mapped []byte, from, to int) {
	page := os.Getpagesize()
	if from, to = from/page*page, to/page*page; from < to {
		_ = syscall.Madvise(mapped[from:to], syscall.MADV_DONTNEED) // without it they stay a while
	}
}
