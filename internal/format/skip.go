package format

import (
	"encoding/binary"
	"math/bits"

	"github.com/freshet-io/freshet"
)

// skip returns the end of the value that begins at i, having checked all of it.
func (s *scanner) skip(b []byte, i int) int {
	if i >= len(b) {
		return s.unexpected(b, i, "a value")
	}
	switch b[i] {
	case '"':
		_, end := s.text(b, i+1)
		return end
	case '{':
		return s.skipObject(b, i)
	case '[':
		return s.skipArray(b, i)
	case 'n', 't', 'f':
		return s.literal(b, i)
	}
	return s.number(b, i)
}

func (s *scanner) skipObject(b []byte, i int) int {
	if !s.open(i) {
		return failed
	}
	keys := s.keys.frame()
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		s.close()
		return i + 1
	}
	for {
		key, value := s.key(b, i)
		if value == failed {
			return failed
		}
		if !s.keys.add(&keys, key) {
			return s.duplicate(i, key)
		}
		at := len(s.keys.list) - 1
		end := s.skip(b, value)
		if end == failed {
			return s.inField(string(s.keys.at(at)))
		}
		var more bool
		if i, more = s.more(b, end, '}'); i == failed {
			return failed
		}
		if !more {
			s.keys.end(&keys)
			s.close()
			return i
		}
	}
}

func (s *scanner) skipArray(b []byte, i int) int {
	if !s.open(i) {
		return failed
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		s.close()
		return i + 1
	}
	for n := 0; ; n++ {
		end := s.skip(b, i)
		if end == failed {
			return s.inElement(n)
		}
		var more bool
		if i, more = s.more(b, end, ']'); i == failed {
			return failed
		}
		if !more {
			s.close()
			return i
		}
	}
}

// key scans an object's key, whose quote must be at i, and the colon. The content is as text's; value is
// where the key's value begins.
func (s *scanner) key(b []byte, i int) (content []byte, value int) {
	if i >= len(b) || b[i] != '"' {
		return nil, s.unexpected(b, i, "a key in quotes")
	}
	content, i = s.text(b, i+1)
	if i == failed {
		return nil, failed
	}
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return nil, s.unexpected(b, i, "a colon behind the key")
	}
	return content, skipSpace(b, i+1)
}

// more scans what follows a member of an object or array: a comma, and then it returns where the next member
// begins, or the closing bracket, and then it returns the index behind it.
func (s *scanner) more(b []byte, i int, closing byte) (next int, more bool) {
	i = skipSpace(b, i)
	if i < len(b) {
		switch b[i] {
		case ',':
			return skipSpace(b, i+1), true
		case closing:
			return i + 1, false
		}
	}
	return s.unexpected(b, i, "a comma or "+string(rune(closing))), false
}

func (s *scanner) duplicate(i int, key []byte) int {
	s.fail(freshet.CodeDuplicateKey, i, "found key %q twice in an object, wanted it once", clip(string(key)))
	return s.inField(string(key))
}

// keySet tells whether a key came before in the same object, for objects within each other: each has a frame,
// frames are a stack.
type keySet struct {
	arena []byte
	list  []keyRef
}

type keyRef struct {
	begin, end int    // within the arena
	hint       uint64 // the same for equal keys, mostly another for others
}

// keyFrame is the keys of one object.
type keyFrame struct {
	first, arena int             // where they begin in the list, in the arena
	index        map[string]bool // of them; nil while they are few
}

// fewKeys is how many keys are compared one by one, by their hints.
const fewKeys = 96

func hintOf(key []byte) uint64 {
	n := len(key)
	if n >= 8 {
		return binary.LittleEndian.Uint64(key) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(key[n-8:]), n)
	}
	hint := uint64(n)
	for _, c := range key {
		hint = hint<<8 | uint64(c)
	}
	return hint
}

func (k *keySet) clear() { k.arena, k.list = k.arena[:0], k.list[:0] }

func (k *keySet) frame() keyFrame { return keyFrame{first: len(k.list), arena: len(k.arena)} }

func (k *keySet) end(f *keyFrame) { k.list, k.arena = k.list[:f.first], k.arena[:f.arena] }

func (k *keySet) at(i int) []byte { return k.arena[k.list[i].begin:k.list[i].end] }

// add copies the key to the frame, unless it is there: then it returns false.
func (k *keySet) add(f *keyFrame, key []byte) bool {
	hint := hintOf(key)
	if f.index == nil {
		for i := f.first; i < len(k.list); i++ {
			if k.list[i].hint == hint && string(k.at(i)) == string(key) {
				return false
			}
		}
		if len(k.list)-f.first >= fewKeys {
			f.index = make(map[string]bool, 2*fewKeys)
			for i := f.first; i < len(k.list); i++ {
				f.index[string(k.at(i))] = true
			}
		}
	} else if f.index[string(key)] {
		return false
	}
	if f.index != nil {
		f.index[string(key)] = true
	}
	k.list = append(k.list, keyRef{len(k.arena), len(k.arena) + len(key), hint})
	k.arena = append(k.arena, key...)
	return true
}
