package delta

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strconv"
)

// maxJSONDepth bounds how deep values of the log nest. What we read nests four deep; deeper values are only
// skipped. Schemas, which nest deeper, are checked first, see ParseSchema.
const maxJSONDepth = 128

var (
	errJSONEnd   = errors.New("the JSON ends too early")
	errJSONDepth = errors.New("the JSON nests too deep")
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

// end reports whether nothing but space is left. A NUL, of which files that a crash has left may consist, is something.
func (r *jsonReader) end() bool { return r.peek() == 0 && r.pos >= len(r.data) }

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
	more, err := r.begin('{', '}')
	for more && err == nil {
		var key []byte
		if key, err = r.text(); err != nil {
			break
		}
		if err = r.expect(':'); err != nil {
			break
		}
		if err = field(key); err == nil {
			more, err = r.goesOn('}')
		}
	}
	return err
}

// array calls element for each element, which it must consume. A null counts as an array without elements.
func (r *jsonReader) array(element func() error) error {
	if r.null() {
		return nil
	}
	more, err := r.begin('[', ']')
	for more && err == nil {
		if err = element(); err == nil {
			more, err = r.goesOn(']')
		}
	}
	return err
}

// begin consumes the bracket that opens a value, and the one that closes it if there is nothing more in it.
func (r *jsonReader) begin(first, last byte) (more bool, err error) {
	if err := r.expect(first); err != nil {
		return false, err
	}
	if r.depth++; r.tooDeep(r.depth) {
		return false, errJSONDepth
	}
	if r.peek() != last {
		return true, nil
	}
	r.pos++
	r.depth--
	return false, nil
}

// goesOn consumes what stands behind a part of a value: a comma, or the bracket that closes it.
func (r *jsonReader) goesOn(last byte) (more bool, err error) {
	switch r.peek() {
	case ',':
		r.pos++
		return true, nil
	case last:
		r.pos++
		r.depth--
		return false, nil
	}
	return false, r.fail("',' or " + strconv.QuoteRune(rune(last)))
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
	for r.pos < len(r.data) && inLiteral(r.data[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		return r.fail("a value")
	}
	return nil
}

func inLiteral(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.'
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
	if v, ok := r.digits(); ok {
		return v, nil
	}
	if r.null() {
		return 0, nil
	}
	start := r.pos
	if err := r.literal(); err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(r.data[start:r.pos]), 10, 64)
}

// digits consumes an integer of digits alone that cannot be too many, if that is what comes next.
func (r *jsonReader) digits() (v int64, ok bool) {
	const surelyFits = 18
	at := r.pos
	for ; at < len(r.data) && '0' <= r.data[at] && r.data[at] <= '9'; at++ {
		v = 10*v + int64(r.data[at]-'0')
	}
	if at == r.pos || at-r.pos > surelyFits || at < len(r.data) && inLiteral(r.data[at]) {
		return 0, false
	}
	r.pos = at
	return v, true
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
