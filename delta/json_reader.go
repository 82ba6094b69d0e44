package delta

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds how deep values of the log nest. What we read nests four deep; deeper values are only
// skipped.
const maxJSONDepth = 128

var (
	errJSONEnd   = errors.New("the JSON ends too early")
	errJSONDepth = errors.New("the JSON nests deeper than 128 levels")
	errJSONText  = errors.New("a string of the JSON is malformed")
)

// jsonReader walks JSON values in place: no reflection, no floating point, and strings are copied only when
// asked for. A value is read by exactly one call. It is lenient where leniency cannot change a meaning: it
// does not check what it skips beyond strings and brackets.
type jsonReader struct {
	data  []byte
	pos   int
	depth int
}

// peek returns the first byte of the next value or token, past white space; 0 at the end.
func (r *jsonReader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) fail(wanted string) error {
	if r.pos >= len(r.data) {
		return errJSONEnd
	}
	return errors.New("found " + strconv.QuoteRune(rune(r.data[r.pos])) + " in the JSON, wanted " + wanted)
}

func (r *jsonReader) expect(c byte) error {
	if r.peek() != c {
		return r.fail(strconv.QuoteRune(rune(c)))
	}
	r.pos++
	return nil
}

// null consumes the value if it is null.
func (r *jsonReader) null() bool {
	if r.peek() != 'n' || !bytes.HasPrefix(r.data[r.pos:], []byte("null")) {
		return false
	}
	r.pos += len("null")
	return true
}

// object calls field with each key; field must consume the value. A null counts as an object without fields.
func (r *jsonReader) object(field func(key []byte) error) error {
	if r.null() {
		return nil
	}
	return r.sequence('{', '}', func() error {
		key, err := r.text()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		return field(key)
	})
}

// array calls element for each element, which it must consume. A null counts as an array without elements.
func (r *jsonReader) array(element func() error) error {
	if r.null() {
		return nil
	}
	return r.sequence('[', ']', element)
}

func (r *jsonReader) sequence(first, last byte, item func() error) error {
	if err := r.expect(first); err != nil {
		return err
	}
	if r.depth++; r.depth > maxJSONDepth {
		return errJSONDepth
	}
	if r.peek() == last {
		r.pos++
		r.depth--
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.pos++
		case last:
			r.pos++
			r.depth--
			return nil
		default:
			return r.fail("',' or " + strconv.QuoteRune(rune(last)))
		}
	}
}

// raw consumes any value and returns its bytes, which alias the input.
func (r *jsonReader) raw() ([]byte, error) {
	r.peek()
	start := r.pos
	if err := r.skip(); err != nil {
		return nil, err
	}
	return r.data[start:r.pos], nil
}

// skip consumes any value.
func (r *jsonReader) skip() error {
	depth := r.depth
	for {
		switch c := r.peek(); c {
		case 0:
			return errJSONEnd
		case '{', '[':
			r.pos++
			if depth++; depth > maxJSONDepth {
				return errJSONDepth
			}
		case '}', ']':
			if depth == r.depth {
				return r.fail("a value")
			}
			r.pos++
			depth--
		case ',', ':':
			if depth == r.depth {
				return r.fail("a value")
			}
			r.pos++
			continue
		case '"':
			if _, _, err := r.span(); err != nil {
				return err
			}
		default:
			if err := r.literal(); err != nil {
				return err
			}
		}
		if depth == r.depth {
			return nil
		}
	}
}

// literal consumes a number, true, false or null.
func (r *jsonReader) literal() error {
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '+', c == '.':
			r.pos++
			continue
		}
		break
	}
	if r.pos == start {
		return r.fail("a value")
	}
	return nil
}

// span consumes a string and returns what is between its quotes, undecoded, and whether it holds escapes.
func (r *jsonReader) span() (body []byte, escaped bool, err error) {
	if err := r.expect('"'); err != nil {
		return nil, false, err
	}
	start := r.pos
	rest := r.data[start:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, false, errJSONEnd
	}
	slash := bytes.IndexByte(rest[:end], '\\')
	if slash < 0 {
		r.pos = start + end + 1
		return rest[:end], false, nil
	}
	for i := slash; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			r.pos = start + i + 1
			return rest[:i], true, nil
		}
	}
	return nil, false, errJSONEnd
}

// text consumes a string. The bytes alias the input unless the string holds escapes.
func (r *jsonReader) text() ([]byte, error) {
	body, escaped, err := r.span()
	if err != nil || !escaped {
		return body, err
	}
	return unescapeJSON(body)
}

// str consumes a string or null, which is "".
func (r *jsonReader) str() (string, error) {
	if r.null() {
		return "", nil
	}
	b, err := r.text()
	return string(b), err
}

// bool consumes true, false or null, which is false.
func (r *jsonReader) bool() (bool, error) {
	if r.null() {
		return false, nil
	}
	rest := r.data[r.pos:]
	switch {
	case bytes.HasPrefix(rest, []byte("true")):
		r.pos += len("true")
		return true, nil
	case bytes.HasPrefix(rest, []byte("false")):
		r.pos += len("false")
		return false, nil
	}
	return false, r.fail("true or false")
}

// int consumes an integer or null, which is 0. Integers beyond int64 and fractions are errors.
func (r *jsonReader) int() (int64, error) {
	if r.null() {
		return 0, nil
	}
	start := r.pos
	if err := r.literal(); err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(r.data[start:r.pos]), 10, 64)
}

// optional consumes an integer, or null, for which it returns nil.
func (r *jsonReader) optional() (*int64, error) {
	if r.null() {
		return nil, nil
	}
	v, err := r.int()
	return &v, err
}

// strings consumes an array of strings, or null, for which it returns nil.
func (r *jsonReader) strings() ([]string, error) {
	if r.null() {
		return nil, nil
	}
	list := []string{}
	err := r.array(func() error {
		s, err := r.str()
		list = append(list, s)
		return err
	})
	return list, err
}

// stringMap consumes an object of strings and nulls, or null, for which it returns nil.
func (r *jsonReader) stringMap() (map[string]*string, error) {
	if r.null() {
		return nil, nil
	}
	m := map[string]*string{}
	err := r.object(func(key []byte) error {
		if r.null() {
			m[string(key)] = nil
			return nil
		}
		v, err := r.loose()
		m[string(key)] = &v
		return err
	})
	return m, err
}

// looseMap consumes an object, or null, for which it returns nil. Values that are no strings are kept as JSON
// texts, nulls are left out.
func (r *jsonReader) looseMap() (map[string]string, error) {
	if r.null() {
		return nil, nil
	}
	m := map[string]string{}
	err := r.object(func(key []byte) error {
		if r.null() {
			return nil
		}
		v, err := r.loose()
		m[string(key)] = v
		return err
	})
	return m, err
}

// loose consumes any value: a string as its text, null as "", anything else as its JSON.
func (r *jsonReader) loose() (string, error) {
	if c := r.peek(); c == '"' || c == 'n' {
		return r.str()
	}
	b, err := r.raw()
	return string(b), err
}

// unescapeJSON decodes what is between the quotes of a string; it never becomes longer.
func unescapeJSON(body []byte) ([]byte, error) {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		if i++; i == len(body) {
			return nil, errJSONText
		}
		switch body[i] {
		case '"', '\\', '/':
			out = append(out, body[i])
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
			v, size, err := unescapeUnicode(body[i+1:])
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, v)
			i += size
		default:
			return nil, errJSONText
		}
	}
	return out, nil
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
