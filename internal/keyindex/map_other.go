//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package keyindex

import (
	"io"
	"os"
)

// mapFile reads the first size bytes of a file: where files are not mapped, the index lies on the heap.
func mapFile(f *os.File, size int) ([]byte, error) {
	b := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), b)
	return b, err
}

func mapMemory(size int) ([]byte, error) { return make([]byte, size), nil }

func unmap([]byte) error { return nil }

// lockFile takes nothing: that no other process has the index open is the caller's word here.
func lockFile(*os.File) error { return nil }
