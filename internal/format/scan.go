package format

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/freshet-io/freshet"
)

// scanner walks JSON text, strictly by RFC 8259. Its functions take the text and the index where something
// begins, and return the index behind it, or failed with the fault set. They never read beyond the text.
type scanner struct {
	faults
	keys     keySet
	depth    int    // objects and arrays that are open
	maxDepth int    // the most that may be
	scratch  []byte // text whose escapes are resolved; the last one only
	// bareFloats says that NaN, Infinity and -Infinity are numbers, as Java's JSON writers have it.
	bareFloats bool
}

// begin readies the scanner for a new text.
func (s *scanner) begin() {
	s.depth = 0
	s.keys.clear()
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// specials returns a word whose lowest set bit is in the first byte of x, little-endian, that is a quote, a
// backslash or a control character; 0 if there is none. Higher bits mean nothing: the subtractions borrow.
func specials(x uint64) uint64 {
	quote := x ^ 0x2222222222222222
	slash := x ^ 0x5c5c5c5c5c5c5c5c
	return ((quote - lows) | (slash - lows) | (x - 0x2020202020202020)) & ^x & highs
}

// plainEnd returns the index of the first quote, backslash or control character at or after i, len(b) if
// there is none. If ascii is true, all before it is ASCII.
func plainEnd(b []byte, i int) (end int, ascii bool) {
	var seen uint64
	for len(b)-i >= 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if m := specials(x); m != 0 {
			n := bits.TrailingZeros64(m)
			seen |= x & (1<<n - 1)
			return i + n>>3, seen&highs == 0
		}
		seen |= x
		i += 8
	}
	for ; i < len(b); i++ {
		c := b[i]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		seen |= uint64(c)
	}
	return i, seen&highs == 0
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// text scans the rest of a string, from behind its opening quote. The content is a part of b, or of scratch
// if escapes had to be resolved: it is valid until the next call.
func (s *scanner) text(b []byte, i int) (content []byte, end int) {
	j, ascii := plainEnd(b, i)
	if j < len(b) && b[j] == '"' && (ascii || utf8.Valid(b[i:j])) {
		return b[i:j], j + 1
	}
	s.scratch, end = s.unescape(s.scratch[:0], b, i)
	return s.scratch, end
}

// unescape scans the rest of a string, from behind its opening quote, and appends its content to dst.
func (s *scanner) unescape(dst, b []byte, i int) ([]byte, int) {
	for {
		j, ascii := plainEnd(b, i)
		if !ascii {
			if bad := invalidUTF8(b[i:j]); bad >= 0 {
				return dst, s.fail(freshet.CodeBadUTF8, i+bad, "found byte 0x%02x in text, wanted UTF-8", b[i+bad])
			}
		}
		dst = append(dst, b[i:j]...)
		switch {
		case j == len(b):
			return dst, s.unexpected(b, j, "the quote that ends the text")
		case b[j] == '"':
			return dst, j + 1
		case b[j] < ' ':
			return dst, s.fail(freshet.CodeMalformed, j, "found control character 0x%02x, wanted it escaped", b[j])
		}
		dst, i = s.escape(dst, b, j)
		if i == failed {
			return dst, failed
		}
	}
}

// escape resolves the escape whose backslash is at i.
func (s *scanner) escape(dst, b []byte, i int) ([]byte, int) {
	if i+1 >= len(b) {
		return dst, s.unexpected(b, i+1, "the rest of an escape")
	}
	switch c := b[i+1]; c {
	case '"', '\\', '/':
		return append(dst, c), i + 2
	case 'b':
		return append(dst, '\b'), i + 2
	case 'f':
		return append(dst, '\f'), i + 2
	case 'n':
		return append(dst, '\n'), i + 2
	case 'r':
		return append(dst, '\r'), i + 2
	case 't':
		return append(dst, '\t'), i + 2
	case 'u':
		return s.escapedRune(dst, b, i)
	}
	return dst, s.unexpected(b, i+1, `one of "\/bfnrtu behind a backslash`)
}

// escapedRune resolves the \uXXXX at i, or the pair of them that stands for one character.
func (s *scanner) escapedRune(dst, b []byte, i int) ([]byte, int) {
	r, ok := hex4(b, i+2)
	if !ok {
		return dst, s.fail(freshet.CodeMalformed, i, "found %q, wanted \\u and four hexadecimal digits",
			clip(string(b[i:min(i+6, len(b))])))
	}
	if r < 0xd800 || r > 0xdfff {
		return utf8.AppendRune(dst, r), i + 6
	}
	if r < 0xdc00 && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
		if low, ok := hex4(b, i+8); ok && low >= 0xdc00 && low <= 0xdfff {
			return utf8.AppendRune(dst, 0x10000+(r-0xd800)<<10+(low-0xdc00)), i + 12
		}
	}
	return dst, s.fail(freshet.CodeBadUTF8, i, "found the lone surrogate %s, wanted a pair", b[i:i+6])
}

func hex4(b []byte, i int) (r rune, ok bool) {
	if len(b)-i < 4 {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// invalidUTF8 returns the index of the first byte that is not part of valid UTF-8, -1 if all is.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// number returns the end of the number that begins at i.
func (s *scanner) number(b []byte, i int) int {
	j := i
	if j < len(b) && b[j] == '-' {
		j++
	}
	digits := digitsEnd(b, j)
	if digits == j && s.bareFloats {
		if end := bareFloatEnd(b, i, j); end != failed {
			return end
		}
	}
	switch {
	case digits == j:
		return s.unexpected(b, j, "a value")
	case b[j] == '0' && digits > j+1:
		return s.fail(freshet.CodeMalformed, i, "found a number with a leading zero, wanted one without")
	}
	j = digits
	if j < len(b) && b[j] == '.' {
		digits = digitsEnd(b, j+1)
		if digits == j+1 {
			return s.unexpected(b, digits, "a digit behind the decimal point")
		}
		j = digits
	}
	if j < len(b) && b[j]|0x20 == 'e' {
		j++
		if j < len(b) && (b[j] == '+' || b[j] == '-') {
			j++
		}
		digits = digitsEnd(b, j)
		if digits == j {
			return s.unexpected(b, j, "a digit of the exponent")
		}
		j = digits
	}
	return j
}

// bareFloatEnd returns the end of the NaN or ±Infinity that begins at i, with its word at j; or failed.
func bareFloatEnd(b []byte, i, j int) int {
	for _, word := range []string{"NaN", "Infinity"} {
		if len(b)-j >= len(word) && string(b[j:j+len(word)]) == word && (i == j || word != "NaN") {
			return j + len(word)
		}
	}
	return failed
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// literal returns the end of the word null, true or false that begins at i.
func (s *scanner) literal(b []byte, i int) int {
	word := "null"
	switch b[i] {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word)
	}
	return s.unexpected(b, i, "a value")
}

// open counts an object or array that begins at i; it must be closed, unless the record fails.
func (s *scanner) open(i int) bool {
	if s.depth == s.maxDepth {
		s.fail(freshet.CodeTooDeep, i, "found nesting of %d, wanted at most %d", s.depth+1, s.maxDepth)
		return false
	}
	s.depth++
	return true
}

func (s *scanner) close() { s.depth-- }
