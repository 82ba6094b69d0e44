package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// javaRegexp compiles a pattern of Java's language that means the same in RE2's, as far as finding a match goes:
// $ also stands before a last line break, . stops at more line breaks, \s has one character more. What may mean
// something else is an error.
func javaRegexp(pattern string) (*regexp.Regexp, error) {
	var out strings.Builder
	class := false // within [ ]
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			i++
			text, err := javaEscape(pattern[i], class)
			if err != nil {
				return nil, err
			}
			out.WriteString(text)
		case class && c == '[', class && c == '&' && strings.HasPrefix(pattern[i:], "&&"):
			return nil, fmt.Errorf("found %q within [ ], which Java reads as an operator on sets", c)
		case class:
			class = c != ']'
			out.WriteByte(c)
		case c == '[':
			class = true
			out.WriteByte(c)
			if strings.HasPrefix(pattern[i+1:], "^") {
				i++
				out.WriteByte('^')
			}
			if strings.HasPrefix(pattern[i+1:], "]") {
				return nil, errors.New("found ] right after [, wanted \\]")
			}
		case c == '$':
			out.WriteString(`(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z`)
		case c == '.':
			out.WriteString(`[^\n\r\x{85}\x{2028}\x{2029}]`)
		case c == '(' && strings.HasPrefix(pattern[i:], "(?"):
			if !strings.HasPrefix(pattern[i:], "(?:") {
				return nil, fmt.Errorf("found %s, wanted \"(\" or \"(?:\"", clip(pattern[i:]))
			}
			out.WriteByte(c)
		case (c == '+') && i > 0 && strings.IndexByte("*+?}", pattern[i-1]) >= 0 && (i < 2 || pattern[i-2] != '\\'):
			return nil, errors.New("possessive quantifiers are not known here")
		default:
			out.WriteByte(c)
		}
	}
	return regexp.Compile(out.String())
}

// javaEscape is what a backslash and the letter mean.
func javaEscape(c byte, class bool) (string, error) {
	switch {
	case c == 's' && class:
		return `\t\n\x0b\f\r `, nil
	case c == 's':
		return `[\t\n\x0b\f\r ]`, nil
	case c == 'S' && !class:
		return `[^\t\n\x0b\f\r ]`, nil
	case strings.IndexByte("dDwW", c) >= 0, strings.IndexByte("tnrf", c) >= 0:
		return `\` + string(c), nil
	case !isDigit(c) && !(c|0x20 >= 'a' && c|0x20 <= 'z') && c < 0x80:
		return `\` + string(c), nil
	case c == 'A' && !class, c == 'z' && !class:
		return `\` + string(c), nil
	}
	return "", fmt.Errorf("the escape \\%c is not known here", c)
}
