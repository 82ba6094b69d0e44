package expr

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// sparkToken reads what Spark writes otherwise than Parse: strings with escapes, and numbers with a suffix. ok is false
// when the text begins with neither.
func (l *lexer) sparkToken(t *token) (n int, ok bool, err error) {
	rest := l.rest()
	switch {
	case rest[0] == '\'' || rest[0] == '"':
		n, err = l.sparkString(t, rest)
		return n, true, err
	case len(rest) > 1 && (rest[0] == 'r' || rest[0] == 'R') && (rest[1] == '\'' || rest[1] == '"'):
		end := strings.IndexByte(rest[2:], rest[1])
		if end < 0 {
			return 0, true, t.at.fault(Syntax, fmt.Sprintf("the quote %c is not closed", rest[1]))
		}
		t.kind, t.text = tokString, rest[2:2+end]
		return end + 3, true, nil
	case isDigit(rest[0]) || rest[0] == '.' && len(rest) > 1 && isDigit(rest[1]):
		n = numberLength(rest)
		t.kind, t.text = tokNumber, rest[:n]
		word := wordLength(rest[n:])
		switch suffix := rest[n : n+word]; strings.ToUpper(suffix) {
		case "", "L", "S", "Y", "D", "F", "BD":
			t.suffix = suffix
		default:
			return 0, true, t.at.fault(Syntax, fmt.Sprintf("found %q, which is neither a number nor a name", rest[:n+word]))
		}
		return n + word, true, nil
	case rest[0] == '!' && !strings.HasPrefix(rest, "!="):
		t.kind, t.text = tokSymbol, "!"
		return 1, true, nil
	}
	return 0, false, nil
}

// sparkString reads a string in ' or ". Two that follow each other are refused: what they stand for depends on the
// version of Spark.
func (l *lexer) sparkString(t *token, s string) (int, error) {
	var out strings.Builder
	for i := 1; i < len(s); {
		switch {
		case s[i] == s[0]:
			if i+1 < len(s) && s[i+1] == s[0] {
				return 0, t.at.fault(Syntax, fmt.Sprintf("a quote within a string is written \\%c", s[0]))
			}
			t.kind, t.text = tokString, out.String()
			return i + 1, nil
		case s[i] == '\\' && i+1 < len(s):
			i += 1 + sparkEscape(&out, s[i+1:])
		default:
			out.WriteByte(s[i])
			i++
		}
	}
	return 0, t.at.fault(Syntax, fmt.Sprintf("the quote %c is not closed", s[0]))
}

// sparkEscape writes what the text after a backslash stands for and returns how many bytes of it that took.
func sparkEscape(out *strings.Builder, s string) int {
	for _, u := range []struct {
		mark   byte
		digits int
	}{{'u', 4}, {'U', 8}} {
		if s[0] == u.mark && len(s) > u.digits {
			if v, err := strconv.ParseUint(s[1:1+u.digits], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
				out.WriteRune(rune(v))
				return 1 + u.digits
			}
		}
	}
	if len(s) >= 3 && s[0] <= '1' && isDigit(s[0]) {
		if v, err := strconv.ParseUint(s[:3], 8, 8); err == nil {
			out.WriteRune(rune(v))
			return 3
		}
	}
	if i := strings.IndexByte("0bnrtZ", s[0]); i >= 0 {
		out.WriteByte("\x00\b\n\r\t\x1a"[i])
		return 1
	}
	if s[0] == '%' || s[0] == '_' { // kept for LIKE
		out.WriteByte('\\')
	}
	_, size := utf8.DecodeRuneInString(s)
	out.WriteString(s[:size])
	return size
}
