package expr

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is how deep arrays and objects may be nested in each other.
const maxJSONDepth = 512

// jsonText is JSON that is read from the left; ok falls when it is none. Unlike RFC 8259 it does not look for
// invalid UTF-8, which the column's type rules out.
type jsonText struct {
	s     []byte
	at    int
	depth int
	ok    bool
}

func validJSON(s []byte) bool {
	t := jsonText{s: s, ok: true}
	t.value()
	t.space()
	return t.ok && t.at == len(s)
}

// findJSON returns the text of the value at the path; ok is false when the whole is no JSON.
func findJSON(s []byte, path []jsonStep) (value []byte, found, ok bool) {
	if !validJSON(s) {
		return nil, false, false
	}
	t := jsonText{s: s, ok: true}
	for _, step := range path {
		if !t.descend(step) {
			return nil, false, true
		}
	}
	t.space()
	from := t.at
	t.value()
	return s[from:t.at], true, true
}

// descend moves to the value of a key or index of the value that comes next; false when it has none. The text
// is valid.
func (t *jsonText) descend(step jsonStep) bool {
	t.space()
	open := byte('{')
	if step.isIndex {
		open = '['
	}
	if t.s[t.at] != open {
		return false
	}
	t.at++
	for n := 0; ; n++ {
		t.space()
		if c := t.s[t.at]; c == '}' || c == ']' {
			return false
		}
		if step.isIndex && n == step.index {
			return true
		}
		if !step.isIndex {
			from := t.at
			t.string()
			key := t.s[from:t.at]
			t.space()
			t.at++ // the colon
			if isJSONKey(key, step.key) {
				return true
			}
		}
		t.value()
		t.space()
		if t.s[t.at] == ',' {
			t.at++
		}
	}
}

// isJSONKey compares a key with its quotes to a name.
func isJSONKey(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	return string(appendJSONString(nil, key)) == name
}

// countJSON is the number of elements of a valid array.
func countJSON(s []byte) int64 {
	t := jsonText{s: s, at: 1, ok: true}
	t.space()
	if t.s[t.at] == ']' {
		return 0
	}
	for n := int64(1); ; n++ {
		t.value()
		t.space()
		if t.s[t.at] == ']' {
			return n
		}
		t.at++
	}
}

func (t *jsonText) peek() byte {
	if t.at < len(t.s) {
		return t.s[t.at]
	}
	return 0
}

func (t *jsonText) space() {
	for t.at < len(t.s) {
		switch t.s[t.at] {
		case ' ', '\t', '\n', '\r':
			t.at++
		default:
			return
		}
	}
}

func (t *jsonText) expect(c byte) {
	if t.peek() != c {
		t.ok = false
		return
	}
	t.at++
}

func (t *jsonText) value() {
	t.space()
	switch c := t.peek(); {
	case c == '{':
		t.list('}', func() { t.space(); t.string(); t.space(); t.expect(':'); t.value() })
	case c == '[':
		t.list(']', t.value)
	case c == '"':
		t.string()
	case c == 't':
		t.word("true")
	case c == 'f':
		t.word("false")
	case c == 'n':
		t.word("null")
	default:
		t.number()
	}
}

func (t *jsonText) list(end byte, item func()) {
	t.at++
	t.depth++
	if t.depth > maxJSONDepth {
		t.ok = false
	}
	t.space()
	for first := true; t.ok && (t.peek() != end || !first); first = false {
		item()
		t.space()
		if t.peek() == end {
			break
		}
		t.expect(',')
	}
	t.depth--
	if t.ok {
		t.expect(end)
	}
}

func (t *jsonText) word(w string) {
	if len(t.s)-t.at < len(w) || string(t.s[t.at:t.at+len(w)]) != w {
		t.ok = false
		return
	}
	t.at += len(w)
}

func (t *jsonText) string() {
	t.expect('"')
	for t.ok {
		if t.at == len(t.s) || t.s[t.at] < ' ' {
			t.ok = false
			return
		}
		c := t.s[t.at]
		t.at++
		switch c {
		case '"':
			return
		case '\\':
			t.escape()
		}
	}
}

func (t *jsonText) escape() {
	if t.at == len(t.s) {
		t.ok = false
		return
	}
	c := t.s[t.at]
	t.at++
	switch {
	case c == 'u':
		if _, ok := hex4(t.s, t.at); !ok {
			t.ok = false
			return
		}
		t.at += 4
	case bytes.IndexByte([]byte(`"\/bfnrt`), c) < 0:
		t.ok = false
	}
}

func hex4(s []byte, at int) (rune, bool) {
	if len(s)-at < 4 {
		return 0, false
	}
	for _, c := range s[at : at+4] {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(s[at:at+4]), 16, 16)
	return rune(n), err == nil
}

func (t *jsonText) number() {
	if t.peek() == '-' {
		t.at++
	}
	switch c := t.peek(); {
	case c == '0':
		t.at++
	default:
		t.digits()
	}
	if t.ok && t.peek() == '.' {
		t.at++
		t.digits()
	}
	if t.ok && (t.peek()|0x20) == 'e' {
		t.at++
		if c := t.peek(); c == '+' || c == '-' {
			t.at++
		}
		t.digits()
	}
}

func (t *jsonText) digits() {
	n := digitsLength(view(t.s[t.at:]))
	t.ok = t.ok && n > 0
	t.at += n
}

// appendJSONString writes what a valid string with its quotes stands for. A surrogate without its other half
// becomes U+FFFD.
func appendJSONString(dst, s []byte) []byte {
	s = s[1 : len(s)-1]
	for len(s) > 0 {
		plain := bytes.IndexByte(s, '\\')
		if plain < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:plain]...)
		c := s[plain+1]
		s = s[plain+2:]
		if c != 'u' {
			dst = append(dst, unescape(c))
			continue
		}
		r, _ := hex4(s, 0)
		s = s[4:]
		if utf16.IsSurrogate(r) {
			low := rune(0)
			if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
				low, _ = hex4(s, 2)
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				s = s[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
