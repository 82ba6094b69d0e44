package delta

import (
	"slices"
	"sync"
)

// sparesKept is how many buffers wait at most: one a file that is read at once, on most machines.
const sparesKept = 8

// spares keeps the memory of bytes of files that have been decoded, for the next ones: memory that is new has to be
// cleared, page by page, which costs as much as the decoding of a page. Any goroutine may use it; nil keeps nothing.
type spares struct {
	mu   sync.Mutex
	free [][]byte
}

// take returns a buffer for n bytes that is not much larger, or nil.
func (s *spares) take(n int) []byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, b := range s.free {
		if cap(b) >= n && cap(b)/4 <= n && (best < 0 || cap(b) < cap(s.free[best])) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	b := s.free[best]
	s.free = slices.Delete(s.free, best, best+1)
	return b
}

// give has a buffer used again, in which nobody reads any more. Where there are many, the smallest goes.
func (s *spares) give(b []byte) {
	if s == nil || cap(b) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free = append(s.free, b); len(s.free) <= sparesKept {
		return
	}
	least := 0
	for i, b := range s.free {
		if cap(b) < cap(s.free[least]) {
			least = i
		}
	}
	s.free = slices.Delete(s.free, least, least+1)
}
