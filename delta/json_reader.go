package delta

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// packedBytes is the room that a packed text with escapes finds; a longer one gets memory of its own.
const packedBytes = 512

// maxJSONDepth bounds how deep values of the log nest. What we read nests four deep; deeper values are only
// skipped. Schemas, which nest deeper, are checked first, see ParseSchema.
const maxJSONDepth = 128

var (
	errJSONEnd   = errors.New("the JSON ends too early")
	errJSONDepth = errors.New("the JSON nests too deep")
	errJSONText  = errors.New("a string of the JSON is malformed")
)

// jsonReader walks JSON values in place: no reflection, no floating point, and strings are copied only when
// asked for. A value is read by exactly one call. It is lenient where leniency cannot change a meaning: it
// does not check what it skips beyond strings and brackets.
type jsonReader struct {
	data  []byte
	pos   int
	depth int
	most  int        // how deep values nest; 0: maxJSONDepth
	texts textBlocks // of packed
}

// tooDeep reports whether a value nests deeper than is read.
func (r *jsonReader) tooDeep(depth int) bool { return depth > cmp.Or(r.most, maxJSONDepth) }

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
	if r.depth++; r.tooDeep(r.depth) {
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
			if depth++; r.tooDeep(depth) {
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
			if err := r.skipText(); err != nil {
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

// skipText consumes a string.
func (r *jsonReader) skipText() error {
	_, plain, err := r.plain()
	if err != nil || plain {
		return err
	}
	for i := nextMark(r.data, r.pos); i < len(r.data); i = nextMark(r.data, i+2) {
		if r.data[i] == '"' {
			r.pos = i + 1
			return nil
		}
	}
	return errJSONEnd
}

// nextMark is where the next quote or backslash stands, from a position on; the end or beyond when there is
// none.
func nextMark(b []byte, from int) int {
	for ; from+8 <= len(b); from += 8 {
		w := binary.LittleEndian.Uint64(b[from:])
		if hit := bytesOf(w, '"') | bytesOf(w, '\\'); hit != 0 {
			return from + bits.TrailingZeros64(hit)/8
		}
	}
	for ; from < len(b) && b[from] != '"' && b[from] != '\\'; from++ {
	}
	return from
}

// bytesOf has the highest bit of the lowest byte of w that is c, and none below it.
func bytesOf(w uint64, c byte) uint64 {
	const ones = 0x0101010101010101
	w ^= uint64(c) * ones
	return (w - ones) &^ w & (ones << 7)
}

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

// plain consumes a string if it holds no escapes, else only the quote that opens it.
func (r *jsonReader) plain() (body []byte, ok bool, err error) {
	if err := r.expect('"'); err != nil {
		return nil, false, err
	}
	rest := r.data[r.pos:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return nil, false, errJSONEnd
	}
	if bytes.IndexByte(rest[:end], '\\') >= 0 {
		return nil, false, nil
	}
	r.pos += end + 1
	return rest[:end], true, nil
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
	out, err := r.unescape(r.texts.room(packedBytes))
	return r.texts.keep(out), err
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

// boolOr consumes true, false or null, for which it returns what is told.
func (r *jsonReader) boolOr(null bool) (bool, error) {
	if r.null() {
		return null, nil
	}
	return r.bool()
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
	n, err := r.count()
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, n)
	err = r.array(func() error {
		s, err := r.str()
		list = append(list, s)
		return err
	})
	return list, err
}

// count returns how many elements the array has that comes next, and leaves it there: room for elements that are tiny as
// JSON is then made once, and not twice as much of it.
func (r *jsonReader) count() (n int, err error) {
	at, depth := r.pos, r.depth
	err = r.array(func() error { n++; return r.skip() })
	r.pos, r.depth = at, depth
	return n, err
}

// stringMap consumes an object of strings and nulls, or null. It returns nil when there is nothing in it.
func (r *jsonReader) stringMap() (m map[string]*string, err error) {
	err = r.object(func(key []byte) error {
		if m == nil {
			m = map[string]*string{}
		}
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
func (r *jsonReader) looseMap() (map[string]string, error) { return r.looseFields(math.MaxInt) }

// looseFields is looseMap that passes over what is there beyond so many fields.
func (r *jsonReader) looseFields(most int) (map[string]string, error) {
	if r.null() {
		return nil, nil
	}
	m := map[string]string{}
	err := r.object(func(key []byte) error {
		if r.null() {
			return nil
		}
		if len(m) >= most {
			return r.skip()
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

// skipAction consumes any value that is all of an action. In a log of one action a line it is behind the
// value at once: where '}', the end of the line and '{' follow each other, an action has ended, since within
// a value there is a ',' or a ':' before each '{', and no text holds the end of a line. A value that is not
// well formed may pass.
func (r *jsonReader) skipAction() error {
	rest := r.data[r.pos:]
	end := bytes.IndexByte(rest, '\n')
	if r.depth == 1 && end > 0 && end+1 < len(rest) && rest[end-1] == '}' && rest[end+1] == '{' {
		r.pos += end - 1
		return nil
	}
	return r.skip()
}

// unescape consumes the rest of a string, the quote that closes it included, and appends what it says to out.
func (r *jsonReader) unescape(out []byte) ([]byte, error) {
	for {
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
