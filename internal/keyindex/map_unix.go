//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package keyindex

import (
	"errors"
	"os"
	"syscall"
)

// mapFile maps the first size bytes of a file, to be read only. The mapping outlives the file.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
}

// mapMemory returns zeroes that are not on the heap.
func mapMemory(size int) ([]byte, error) {
	return syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// unmap gives back what mapFile or mapMemory returned; nil is nothing.
func unmap(b []byte) error {
	if b == nil {
		return nil
	}
	return syscall.Munmap(b)
}

// lockFile takes the file for this process until it is closed, by whatever end. Errors: ErrLocked.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
