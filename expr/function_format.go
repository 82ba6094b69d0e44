package expr

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// A format is written as strftime does (%Y-%m-%d) or as Java does (yyyy-MM-dd): one that holds a % is the
// former.
var formatFunctions = map[string]function{
	"strftime":    {"ws", newFormat},
	"date_format": {"ws", newFormat},
}

// formatPart is a piece of a format: a text, or a field of the time.
//
//	Y year  y its last two digits  M month  b, B its name short and long  d day  j day of the year
//	a, A weekday short and long    H hour   I hour of 12   p AM or PM     m minute  S second
//	f fraction of width digits     z zone
type formatPart struct {
	what  byte
	width int
	text  string
}

const formatText = byte(0)

const javaLetters = "yyyy, yy, M, MM, MMM, MMMM, d, dd, D, E, EEEE, H, HH, h, hh, a, m, mm, s, ss, S to SSSSSS, " +
	"X, XXX, texts in '' or % codes"

const strftimeCodes = "%Y %y %m %b %B %d %j %a %A %H %I %p %M %S %f %g %z %F %T %%"

func parseFormat(text string) ([]formatPart, error) {
	if strings.Contains(text, "%") {
		return parseStrftime(text)
	}
	return parseJavaFormat(text)
}

func parseStrftime(text string) ([]formatPart, error) {
	var parts []formatPart
	for text != "" {
		plain, rest, found := strings.Cut(text, "%")
		if plain != "" {
			parts = append(parts, formatPart{text: plain})
		}
		if !found {
			break
		}
		if rest == "" {
			return nil, errors.New("the format ends in %")
		}
		expanded, ok := strftimePart(rest[0])
		if !ok {
			r, _ := utf8.DecodeRuneInString(rest)
			return nil, fmt.Errorf("the format has %%%c, wanted one of %s", r, strftimeCodes)
		}
		parts = append(parts, expanded...)
		text = rest[1:]
	}
	return parts, nil
}

func strftimePart(c byte) ([]formatPart, bool) {
	switch c {
	case 'Y':
		return []formatPart{{what: 'Y', width: 4}}, true
	case 'y', 'd', 'H', 'I', 'S':
		return []formatPart{{what: c, width: 2}}, true
	case 'm':
		return []formatPart{{what: 'M', width: 2}}, true
	case 'M':
		return []formatPart{{what: 'm', width: 2}}, true
	case 'b', 'B', 'a', 'A', 'p', 'z':
		return []formatPart{{what: c}}, true
	case 'j':
		return []formatPart{{what: 'j', width: 3}}, true
	case 'f':
		return []formatPart{{what: 'f', width: 6}}, true
	case 'g':
		return []formatPart{{what: 'f', width: 3}}, true
	case 'F':
		return []formatPart{{what: 'Y', width: 4}, {text: "-"}, {what: 'M', width: 2}, {text: "-"},
			{what: 'd', width: 2}}, true
	case 'T':
		return []formatPart{{what: 'H', width: 2}, {text: ":"}, {what: 'm', width: 2}, {text: ":"},
			{what: 'S', width: 2}}, true
	case '%':
		return []formatPart{{text: "%"}}, true
	}
	return nil, false
}

func parseJavaFormat(text string) ([]formatPart, error) {
	var parts []formatPart
	for text != "" {
		c := text[0]
		switch {
		case c == '\'':
			plain, size := unquote(text)
			if size == 0 {
				return nil, fmt.Errorf("the quote ' in the format is not closed")
			}
			if plain == "" {
				plain = "'"
			}
			parts, text = append(parts, formatPart{text: plain}), text[size:]
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			n := 1
			for n < len(text) && text[n] == c {
				n++
			}
			p, ok := javaPart(c, n)
			if !ok {
				return nil, fmt.Errorf("the format has %s, wanted %s", text[:n], javaLetters)
			}
			parts, text = append(parts, p), text[n:]
		default:
			_, size := utf8.DecodeRuneInString(text)
			parts, text = append(parts, formatPart{text: text[:size]}), text[size:]
		}
	}
	return parts, nil
}

func javaPart(c byte, n int) (formatPart, bool) {
	switch {
	case c == 'y' && n == 2:
		return formatPart{what: 'y', width: 2}, true
	case c == 'y' && n <= 4:
		return formatPart{what: 'Y', width: n}, true
	case (c == 'M' || c == 'L') && n <= 2:
		return formatPart{what: 'M', width: n}, true
	case (c == 'M' || c == 'L') && n <= 4:
		return formatPart{what: "bB"[n-3]}, true
	case c == 'E' && n <= 4:
		return formatPart{what: "aaaA"[n-1]}, true
	case c == 'D' && n <= 3:
		return formatPart{what: 'j', width: n}, true
	case c == 'S' && n <= 6:
		return formatPart{what: 'f', width: n}, true
	case c == 'a' && n == 1:
		return formatPart{what: 'p'}, true
	case (c == 'X' || c == 'x' || c == 'Z') && n <= 3:
		return formatPart{what: 'z', width: n}, true
	case n <= 2 && strings.IndexByte("dHhms", c) >= 0:
		return formatPart{what: "dHImS"[strings.IndexByte("dHhms", c)], width: n}, true
	}
	return formatPart{}, false
}

// format compiles the second argument.
func (c *callSite) format() ([]formatPart, error) {
	text, err := c.constText(1, "the format")
	if err != nil {
		return nil, err
	}
	parts, err := parseFormat(text)
	if err != nil {
		return nil, c.typeFault("%s: %v", c.name, err)
	}
	return parts, nil
}

// newFormat writes a date or timestamp.
func newFormat(c *callSite) (node, error) {
	format, err := c.format()
	if err != nil {
		return nil, err
	}
	c.args = c.args[:1]
	return c.node(typeString, mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		at := momentOf(parts(k.args[0], i))
		for _, p := range format {
			dst = p.append(dst, at)
		}
		return dst, isValue
	}))
}

// moment is a time taken apart.
type moment struct {
	days, year, month, day int64
	hour, micros           int64 // micros: of the day
}

func momentOf(days, micros int64) moment {
	year, month, day := dateOf(days)
	return moment{days, year, month, day, micros / (3600 * microsPerSecond), micros}
}

func (p formatPart) append(dst []byte, at moment) []byte {
	switch p.what {
	case formatText:
		return append(dst, p.text...)
	case 'Y':
		return appendPadded(dst, at.year, p.width)
	case 'y':
		return appendPadded(dst, at.year%100, 2)
	case 'M':
		return appendPadded(dst, at.month, p.width)
	case 'b':
		return append(dst, monthName(at.month)[:3]...)
	case 'B':
		return append(dst, monthName(at.month)...)
	case 'd':
		return appendPadded(dst, at.day, p.width)
	case 'j':
		return appendPadded(dst, at.days-daysOf(at.year, 1, 1)+1, p.width)
	case 'a':
		return append(dst, weekdayName(at.days)[:3]...)
	case 'A':
		return append(dst, weekdayName(at.days)...)
	case 'H':
		return appendPadded(dst, at.hour, p.width)
	case 'I':
		return appendPadded(dst, (at.hour+11)%12+1, p.width)
	case 'p':
		return append(dst, []string{"AM", "PM"}[at.hour/12]...)
	case 'm':
		return appendPadded(dst, at.micros/(60*microsPerSecond)%60, p.width)
	case 'S':
		return appendPadded(dst, at.micros/microsPerSecond%60, p.width)
	case 'f':
		before := len(dst)
		return appendPadded(dst, at.micros%microsPerSecond, 6)[:before+p.width]
	}
	return append(dst, []string{"+0000", "Z", "Z", "Z"}[p.width]...)
}

// newParse reads a string by a format: all of it must match. What the format leaves out is January, the
// first, midnight.
func newParse(c *callSite, to arrow.DataType) (node, error) {
	format, err := c.format()
	if err != nil {
		return nil, err
	}
	hasYear := false
	for _, p := range format {
		if strings.IndexByte("ajA", p.what) >= 0 && p.what != formatText {
			return nil, c.typeFault("%s: a weekday or day of the year can be written, not read", c.name)
		}
		hasYear = hasYear || p.what == 'Y' || p.what == 'y'
	}
	if !hasYear {
		return nil, c.typeFault("%s: the format has no year", c.name)
	}
	text, _ := c.constText(1, "the format")
	c.args = c.args[:1]
	return c.node(to, mapInts(func(k *kernel, i int) (int64, result) {
		at, err := parseByFormat(view(k.args[0].bytes(i)), format)
		if err == nil && kindOf(to) == kindDate {
			return at.days(), isValue
		}
		if err == nil {
			err = checkMicros(at.instant())
		}
		if err != nil {
			k.fault(i, "%s('%s', '%s'): %v", c.name, clip(k.args[0].str(i)), clip(text), err)
			return 0, isFault
		}
		return at.instant(), isValue
	}))
}

func parseByFormat(s string, format []formatPart) (clock, error) {
	t := clockText{strings.TrimSpace(s), true}
	c := clock{month: 1, day: 1}
	half := int64(-1)
	for n, p := range format {
		// Digits that run into the next field end where the width says.
		tight := n+1 < len(format) && format[n+1].what != formatText
		p.read(&t, &c, &half, tight)
		if !t.ok {
			return c, errors.New("the text does not match")
		}
	}
	if t.s != "" {
		return c, fmt.Errorf("the text goes on with '%s'", clip(t.s))
	}
	if half >= 0 {
		if c.hour < 1 || c.hour > 12 {
			return c, errCalendar
		}
		c.hour = c.hour%12 + half*12
	}
	return c, c.check()
}

// read takes the part from the text into c; half becomes 0 for AM and 1 for PM.
func (p formatPart) read(t *clockText, c *clock, half *int64, tight bool) {
	least := 1
	if tight {
		least = max(p.width, 1)
	}
	switch p.what {
	case formatText:
		rest, ok := strings.CutPrefix(t.s, p.text)
		t.s, t.ok = rest, t.ok && ok
	case 'Y':
		c.year = t.number(4, 4)
	case 'y':
		c.year = 2000 + t.number(2, 2)
	case 'M':
		c.month = t.number(least, 2)
	case 'b', 'B':
		c.month = t.month(p.what == 'b')
	case 'd':
		c.day = t.number(least, 2)
	case 'H', 'I':
		c.hour = t.number(least, 2)
	case 'm':
		c.minute = t.number(least, 2)
	case 'S':
		c.second = t.number(least, 2)
	case 'f':
		c.micros = t.fraction()
	case 'p':
		*half = 0
		if t.accept("Pp") {
			*half = 1
		} else {
			t.expect("Aa")
		}
		t.expect("Mm")
	case 'z':
		c.zoned, c.offset = t.zone()
		t.ok = t.ok && c.zoned
	}
}

// month takes the name of a month.
func (t *clockText) month(short bool) int64 {
	for m := int64(1); m <= 12; m++ {
		name := monthName(m)
		if short {
			name = name[:3]
		}
		if len(t.s) >= len(name) && strings.EqualFold(t.s[:len(name)], name) {
			t.s = t.s[len(name):]
			return m
		}
	}
	t.ok = false
	return 0
}
