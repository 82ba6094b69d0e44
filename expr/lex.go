package expr

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// place is where a piece of the text is: line and column from 1, length in characters.
type place struct {
	line, col, len int
}

func (p place) fault(kind Kind, msg string) *Error {
	return &Error{Kind: kind, Line: p.line, Col: p.col, Len: max(p.len, 1), Msg: msg}
}

func (p place) typeFault(format string, args ...any) *Error {
	return p.fault(BadType, fmt.Sprintf(format, args...))
}

type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokWord             // an identifier or keyword as written
	tokQuoted           // an identifier in "" or ``; text is what it stands for
	tokString           // text is what it stands for
	tokNumber
	tokSymbol
)

type token struct {
	kind tokenKind
	text string
	at   place
	end  int // byte after it

	suffix string // of a number in Spark's SQL: 1L
}

// describe is the token in a message.
func (t token) describe() string {
	switch t.kind {
	case tokEnd:
		return "the end"
	case tokString:
		return "'" + clip(t.text) + "'"
	}
	return clip(t.text)
}

func clip(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// lexer cuts text into tokens. Comments are -- to the end of the line and /* */.
type lexer struct {
	src       string
	spark     bool
	pos       int
	line, col int
}

func (l *lexer) rest() string { return l.src[l.pos:] }

// step moves on by the next n bytes, which are whole characters.
func (l *lexer) step(n int) {
	for _, r := range l.src[l.pos : l.pos+n] {
		l.col++
		if r == '\n' {
			l.line, l.col = l.line+1, 1
		}
	}
	l.pos += n
}

func (l *lexer) here() place { return place{l.line, l.col, 1} }

func (l *lexer) skipSpace() error {
	for l.pos < len(l.src) {
		rest := l.rest()
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return l.here().fault(Syntax, fmt.Sprintf("the text is not UTF-8: found byte 0x%02x", rest[0]))
		case unicode.IsSpace(r):
			l.step(size)
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			l.step(end)
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest, "*/")
			if end < 0 {
				return l.here().fault(Syntax, "the comment /* has no end */")
			}
			l.step(end + 2)
		default:
			return nil
		}
	}
	return nil
}

// next returns the next token; tokEnd for ever once the text ends.
func (l *lexer) next() (token, error) {
	if err := l.skipSpace(); err != nil {
		return token{}, err
	}
	t := token{at: l.here(), end: l.pos}
	rest := l.rest()
	if rest == "" {
		return t, nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	var n int
	if l.spark {
		n, ok, err := l.sparkToken(&t)
		if err != nil {
			return t, err
		}
		if ok {
			return l.cut(t, n), nil
		}
	}
	switch {
	case r == '\'' || r == '"' || r == '`':
		text, size := unquote(rest)
		if size == 0 {
			return t, t.at.fault(Syntax, fmt.Sprintf("the quote %c is not closed", r))
		}
		t.kind, t.text, n = tokQuoted, text, size
		if r == '\'' {
			t.kind = tokString
		} else if text == "" {
			return t, t.at.fault(Syntax, "a name is empty")
		}
	case isDigit(rest[0]) || rest[0] == '.' && len(rest) > 1 && isDigit(rest[1]):
		n = numberLength(rest)
		t.kind, t.text = tokNumber, rest[:n]
	case isWordStart(r):
		n = wordLength(rest)
		t.kind, t.text = tokWord, rest[:n]
	default:
		n = symbolLength(rest)
		if n == 0 {
			return t, t.at.fault(Syntax, fmt.Sprintf("found %q, which begins nothing", r))
		}
		t.kind, t.text = tokSymbol, rest[:n]
	}
	return l.cut(t, n), nil
}

// cut takes a token of n bytes off the text.
func (l *lexer) cut(t token, n int) token {
	t.at.len = utf8.RuneCountInString(l.src[l.pos : l.pos+n])
	l.step(n)
	t.end = l.pos
	return t
}

// unquote reads a quoted text whose quote stands for itself when doubled; size is 0 when it is not closed.
func unquote(s string) (text string, size int) {
	quote := s[0]
	var out strings.Builder
	for i := 1; i < len(s); {
		end := strings.IndexByte(s[i:], quote)
		if end < 0 {
			return "", 0
		}
		out.WriteString(s[i : i+end])
		i += end + 1
		if i == len(s) || s[i] != quote {
			return out.String(), i
		}
		out.WriteByte(quote)
		i++
	}
	return "", 0
}

func isDigit(c byte) bool     { return c >= '0' && c <= '9' }
func isWordStart(r rune) bool { return r == '_' || unicode.IsLetter(r) }
func isWordInner(r rune) bool { return isWordStart(r) || r == '$' || unicode.IsDigit(r) }
func isSimpleName(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && isWordStart(r) && wordLength(s) == len(s)
}

func wordLength(s string) int {
	for i, r := range s {
		if !isWordInner(r) || r == utf8.RuneError {
			return i
		}
	}
	return len(s)
}

func numberLength(s string) int {
	n := digitsLength(s)
	if n < len(s) && s[n] == '.' {
		n++
		n += digitsLength(s[n:])
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		exp := n + 1
		if exp < len(s) && (s[exp] == '+' || s[exp] == '-') {
			exp++
		}
		if d := digitsLength(s[exp:]); d > 0 {
			n = exp + d
		}
	}
	return n
}

func digitsLength(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func symbolLength(s string) int {
	for _, long := range []string{"<=>", "<>", "!=", "<=", ">=", "==", "||", "::", "//"} {
		if strings.HasPrefix(s, long) {
			return len(long)
		}
	}
	if strings.IndexByte("()[],.=<>+-*/%", s[0]) >= 0 {
		return 1
	}
	return 0
}
