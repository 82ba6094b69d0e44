package delta

import "hash/maphash"

// fileSet is a set of files. It holds 127 bits of each file's key, under seeds of its own: two files are not
// taken for one, not even by design of who names them. The zero value is empty; it takes files once it is
// open. It is a table with open addressing and linear probing, at most two thirds full, which costs half of
// what a map does.
type fileSet struct {
	seeds [2]maphash.Seed
	slots []fileHash // a power of two; the zero value is a free one
	n     int
}

// fileHash is never zero.
type fileHash [2]uint64

// open makes room for n files.
func (f *fileSet) open(n int) {
	f.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	size := 16
	for 2*size < 3*n {
		size *= 2
	}
	f.slots = make([]fileHash, size)
}

func (f *fileSet) hash(key fileKey) fileHash { return fileHash{f.half(0, key) | 1, f.half(1, key)} }

func (f *fileSet) half(i int, key fileKey) uint64 {
	if key.dv == "" { // a text alone is quicker
		return maphash.String(f.seeds[i], key.path)
	}
	return maphash.Comparable(f.seeds[i], key)
}

// find is where the file is, or the free slot that it would be in.
func (f *fileSet) find(h fileHash) *fileHash {
	last := uint64(len(f.slots) - 1)
	for at := h[0] >> 1 & last; ; at = (at + 1) & last {
		if s := &f.slots[at]; *s == h || *s == (fileHash{}) {
			return s
		}
	}
}

// has looks at the second half of the hash only where the first is there.
func (f *fileSet) has(key fileKey) bool {
	if f.n == 0 {
		return false
	}
	first, last := f.half(0, key)|1, uint64(len(f.slots)-1)
	for at := first >> 1 & last; f.slots[at] != (fileHash{}); at = (at + 1) & last {
		if s := &f.slots[at]; s[0] == first && s[1] == f.half(1, key) {
			return true
		}
	}
	return false
}

// add reports whether the file was not there.
func (f *fileSet) add(h fileHash) bool {
	s := f.find(h)
	if *s == h {
		return false
	}
	*s = h
	if f.n++; 3*f.n > 2*len(f.slots) {
		f.grow()
	}
	return true
}

func (f *fileSet) grow() {
	old := f.slots
	f.slots = make([]fileHash, 2*len(old))
	for _, h := range old {
		if h != (fileHash{}) {
			*f.find(h) = h
		}
	}
}
