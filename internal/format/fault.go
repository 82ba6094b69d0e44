package format

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/freshet-io/freshet"
)

// flushBytes is how much of payload, unpacked, a decoder takes before it wants to be flushed: it bounds what small
// records can unpack to, and keeps a column's text within its int32 offsets.
const flushBytes = 64 << 20

var errNoRescued = fmt.Errorf(
	"new_fields is rescue: the schema lacks the nullable string column %q that Infer adds", RescuedColumn)

func reject(code freshet.Code, at int, format string, args ...any) *freshet.RejectError {
	return &freshet.RejectError{Code: code, Offset: at, Message: fmt.Sprintf(format, args...)}
}

// faults collects why a record cannot be taken: the reason where it is found, the path on the way back up.
type faults struct {
	reason *freshet.RejectError
	trail  []string // the segments of the path, innermost first
}

// failed is the index that the functions of the scanner return when they have set a fault.
const failed = -1

// fail sets the fault and returns failed.
func (f *faults) fail(code freshet.Code, at int, format string, args ...any) int {
	f.reason = reject(code, at, format, args...)
	f.trail = f.trail[:0]
	return failed
}

// inField adds the object's key to the path of the fault, and returns failed.
func (f *faults) inField(key string) int {
	if key == "" || strings.ContainsAny(key, ".[]`") {
		key = "`" + strings.ReplaceAll(key, "`", "``") + "`"
	}
	f.trail = append(f.trail, clip(key))
	return failed
}

// inElement adds the array's index to the path of the fault, and returns failed.
func (f *faults) inElement(i int) int {
	f.trail = append(f.trail, "["+strconv.Itoa(i)+"]")
	return failed
}

// take returns the fault with its path and forgets it.
func (f *faults) take() *freshet.RejectError {
	var path strings.Builder
	for i := len(f.trail) - 1; i >= 0; i-- {
		if path.Len() > 0 && !strings.HasPrefix(f.trail[i], "[") {
			path.WriteByte('.')
		}
		path.WriteString(f.trail[i])
	}
	r := f.reason
	r.Path = path.String()
	f.reason, f.trail = nil, f.trail[:0]
	return r
}

// unexpected sets the fault that b has something else at i, or nothing, where wanted was wanted.
func (f *faults) unexpected(b []byte, i int, wanted string) int {
	if i >= len(b) {
		return f.fail(freshet.CodeMalformed, len(b), "the text ends here, wanted %s", wanted)
	}
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return f.fail(freshet.CodeMalformed, i, "found %s, wanted %s; JSON has no such number, quote it",
				word, wanted)
		}
	}
	if i == 0 && b[0] == 0 && len(b) > 5 {
		return f.fail(freshet.CodeMalformed, i,
			"found byte 0x00, wanted %s; it looks like the header of a schema registry", wanted)
	}
	r, n := utf8.DecodeRune(b[i:])
	if r == utf8.RuneError && n <= 1 {
		return f.fail(freshet.CodeBadUTF8, i, "found byte 0x%02x, wanted %s", b[i], wanted)
	}
	return f.fail(freshet.CodeMalformed, i, "found %q, wanted %s", r, wanted)
}

// clip shortens text from a record for a message.
func clip(s string) string {
	const most = clipAt
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "\uFFFD") + "…"
}

// describe tells a JSON value in a message.
func describe(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "the text " + clip(string(value))
	}
	return clip(string(value))
}

// clipAt is how many bytes of a record's text a message has at most.
const clipAt = 60
