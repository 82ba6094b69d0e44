package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var errJSONText = errors.New("a string of the JSON is malformed")

// word is how many bytes of a string are looked at together.
const word = 8

// text consumes a string. The bytes alias the input unless the string holds escapes.
func (r *jsonReader) text() ([]byte, error) {
	body, plain, err := r.plain()
	if err != nil || plain {
		return body, err
	}
	return r.unescape(make([]byte, 0, r.escaped()))
}

// escaped is how many bytes there are up to the quote that closes the string: what it says has no more.
func (r *jsonReader) escaped() int {
	i := nextMark(r.data, r.pos)
	for i < len(r.data) && r.data[i] != '"' {
		i = nextMark(r.data, i+2)
	}
	return min(i, len(r.data)) - r.pos
}

// str consumes a string or null, which is "".
func (r *jsonReader) str() (string, error) {
	if r.null() {
		return "", nil
	}
	b, err := r.text()
	return string(b), err
}

// packed is str for texts of which there are many. They share memory, see textBlocks.
func (r *jsonReader) packed() (string, error) {
	if r.null() {
		return "", nil
	}
	body, plain, err := r.plain()
	if err != nil || plain {
		return r.texts.of(body), err
	}
	out, err := r.unescape(r.texts.room(r.restOfLine()))
	return r.texts.keep(out), err
}

// restOfLine is how long a string that begins here can be, as a rule: logs have an action a line. What
// textBlocks would give memory of its own is not asked for.
func (r *jsonReader) restOfLine() int {
	rest := r.data[r.pos:min(len(r.data), r.pos+textBlockBytes/4)]
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		return end
	}
	return len(rest)
}

// skipText consumes a string.
func (r *jsonReader) skipText() error {
	_, plain, err := r.plain()
	if err != nil || plain {
		return err
	}
	if r.pos += r.escaped(); r.pos == len(r.data) {
		return errJSONEnd
	}
	r.pos++
	return nil
}

// plain consumes a string if it holds no escapes, else only the quote that opens it.
func (r *jsonReader) plain() (body []byte, ok bool, err error) {
	if err := r.expect('"'); err != nil {
		return nil, false, err
	}
	from := r.pos
	end := nextMark(r.data, from)
	switch {
	case end >= len(r.data):
		return nil, false, errJSONEnd
	case r.data[end] != '"':
		return nil, false, nil
	}
	r.pos = end + 1
	return r.data[from:end], true, nil
}

// nextMark is where the next quote or backslash stands, from a position on; the end or beyond when there is
// none.
func nextMark(b []byte, from int) int {
	for ; from+word <= len(b); from += word {
		if n := plainBytes(binary.LittleEndian.Uint64(b[from:])); n < word {
			return from + n
		}
	}
	for ; from < len(b) && b[from] != '"' && b[from] != '\\'; from++ {
	}
	return from
}

// plainBytes is how many bytes of a word come before its first quote or backslash; word when it has none.
func plainBytes(w uint64) int {
	const ones = 0x0101010101010101
	quote, back := w^'"'*ones, w^'\\'*ones // which are 0 there
	return bits.TrailingZeros64(((quote-ones)&^quote|(back-ones)&^back)&(ones<<7)) / 8
}

// unescape consumes the rest of a string, the quote that closes it included, and appends what it says to out.
func (r *jsonReader) unescape(out []byte) ([]byte, error) {
	for {
		out = r.unescapeQuotes(out)
		mark := nextMark(r.data, r.pos)
		if mark+1 >= len(r.data) && (mark >= len(r.data) || r.data[mark] != '"') {
			return nil, errJSONEnd
		}
		out = append(out, r.data[r.pos:mark]...)
		r.pos = mark + 1
		if r.data[mark] == '"' {
			return out, nil
		}
		c := r.data[r.pos]
		r.pos++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			v, size, err := unescapeUnicode(r.data[r.pos:])
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, v)
			r.pos += size
		default:
			return nil, errJSONText
		}
	}
}

// unescapeQuotes takes what has no other escape than that of a quote, which is what JSON within JSON is full
// of, word by word while out has room. It stops before anything else, the quote that closes the string
// included. Each word is copied whole; what is behind its mark is overwritten by the next.
func (r *jsonReader) unescapeQuotes(out []byte) []byte {
	src, at := r.data, r.pos
	dst, n := out[:cap(out)], len(out)
	for at+word < len(src) && n+word <= len(dst) {
		w := binary.LittleEndian.Uint64(src[at:])
		binary.LittleEndian.PutUint64(dst[n:], w)
		plain := plainBytes(w)
		at, n = at+plain, n+plain
		if plain == word {
			continue
		}
		if src[at] != '\\' || src[at+1] != '"' {
			break
		}
		dst[n] = '"'
		at, n = at+2, n+1
	}
	r.pos = at
	return dst[:n]
}

// unescapeUnicode decodes what follows \u, a second half of a surrogate pair included.
func unescapeUnicode(b []byte) (rune, int, error) {
	v, err := hexRune(b)
	if err != nil || !utf16.IsSurrogate(v) {
		return v, 4, err
	}
	if len(b) >= 10 && b[4] == '\\' && b[5] == 'u' {
		if low, err := hexRune(b[6:]); err == nil {
			if pair := utf16.DecodeRune(v, low); pair != utf8.RuneError {
				return pair, 10, nil
			}
		}
	}
	return utf8.RuneError, 4, nil
}

func hexRune(b []byte) (rune, error) {
	if len(b) < 4 {
		return 0, errJSONText
	}
	v, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil {
		return 0, errJSONText
	}
	return rune(v), nil
}
