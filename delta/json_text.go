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
	at := r.pos
	for {
		at = nextMark(r.data, pastQuotes(r.data, at))
		if at >= len(r.data) || r.data[at] == '"' {
			return min(at, len(r.data)) - r.pos
		}
		at += 2
	}
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
	out, err := r.unescape(r.texts.room(r.unescapeRoom()))
	return r.texts.keep(out), err
}

// unescapeRoom is room for a string that begins here, as a rule: logs have an action a line. What textBlocks would give memory
// of its own is not asked for.
func (r *jsonReader) unescapeRoom() int {
	const more = blockBytes + copiedAhead // of unescapeQuotes
	rest := r.data[r.pos:min(len(r.data), r.pos+textBlockBytes/4-more)]
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		return end + more
	}
	return len(rest) + more
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

// unescapeQuotes takes what has no other escape than that of a quote, which is what JSON within JSON is full of, a block at
// once while out has room. It stops before anything else, or short of it.
func (r *jsonReader) unescapeQuotes(out []byte) []byte {
	src, at := r.data, r.pos
	dst, n := out[:cap(out)], len(out)
	for at+blockBytes+copiedAhead <= len(src) && n+blockBytes+copiedAhead <= len(dst) {
		block := src[at : at+blockBytes+copiedAhead]
		end, escapes := quotesIn(block)
		from := 0
		for ; escapes != 0; escapes &= escapes - 1 {
			to := bits.TrailingZeros64(escapes)
			copyWords(dst[n:], block, from, to)
			n, from = n+to-from, to+1
		}
		copyWords(dst[n:], block, from, end)
		n, at = n+end-from, at+end
		if end < blockBytes-1 {
			break
		}
	}
	r.pos = at
	return dst[:n]
}

// copiedAhead is how much copyWords copies at least: most names and values are shorter, so that it need not look how long.
const copiedAhead = 2 * word

// copyWords copies src[from:to], and up to copiedAhead more, which is there in both.
func copyWords(dst, src []byte, from, to int) {
	*(*[copiedAhead]byte)(dst) = [copiedAhead]byte(src[from:])
	for i := from + copiedAhead; i < to; i += word {
		binary.LittleEndian.PutUint64(dst[i-from:], binary.LittleEndian.Uint64(src[i:]))
	}
}

// pastQuotes passes over blocks of a string as unescapeQuotes takes them, from a position on.
func pastQuotes(b []byte, from int) int {
	for from+blockBytes <= len(b) {
		end, _ := quotesIn(b[from:])
		if from += end; end < blockBytes-1 {
			break
		}
	}
	return from
}

// blockBytes is how many bytes of a string are looked at together where many are to be told of.
const blockBytes = 64

// quotesIn tells how many bytes of a block come before anything of a string that is neither plain nor an escaped quote, and
// which of them, a bit a byte, are the backslashes of such quotes. What the last byte begins is left to the next block.
func quotesIn(block []byte) (end int, escapes uint64) {
	var quotes, backs uint64
	for i := 0; i < blockBytes; i += word {
		w := binary.LittleEndian.Uint64(block[i:])
		quotes |= bytesOf(w, '"') << (i & (blockBytes - 1))
		backs |= bytesOf(w, '\\') << (i & (blockBytes - 1))
	}
	end = bits.TrailingZeros64(quotes&^(backs<<1) | backs&^(quotes>>1))
	return end, backs & (1<<end - 1)
}

// bytesOf tells which bytes of a word are c, a bit a byte. Of bytes that are c^1 right behind one that is c it says so, too:
// neither '#' behind a quote nor ']' behind a backslash makes quotesIn pass over what is not an escaped quote.
func bytesOf(w, c uint64) uint64 {
	const ones = 0x0101010101010101
	x := w ^ c*ones
	same := (x - ones) &^ x & (ones << 7)       // the highest bit of each byte that is c
	return same >> 7 * 0x0102040810204080 >> 56 // gathers these bits
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
