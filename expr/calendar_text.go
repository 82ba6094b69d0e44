package expr

import (
	"strconv"
	"strings"
)

// clock is a point of time as its text says it.
type clock struct {
	year, month, day     int64
	hour, minute, second int64
	micros               int64 // of the second
	zoned                bool
	offset               int64 // seconds east of UTC
}

// check tells whether there is such a day and time.
func (c clock) check() error {
	switch {
	case c.year < 1 || c.year > 9999:
		return errYears
	case c.month < 1 || c.month > 12 || c.day < 1 || c.day > daysInMonth(c.year, c.month):
		return errCalendar
	case c.hour > 23 || c.minute > 59 || c.second > 59:
		return errCalendar
	}
	return nil
}

func (c clock) days() int64 { return daysOf(c.year, c.month, c.day) }

// wall is the time in microseconds as the text says it, whatever its zone.
func (c clock) wall() int64 {
	return c.days()*microsPerDay + ((c.hour*60+c.minute)*60+c.second)*microsPerSecond + c.micros
}

// instant is the time in microseconds; a text without zone is in UTC.
func (c clock) instant() int64 { return c.wall() - c.offset*microsPerSecond }

// clockText reads the parts of a text from the left.
type clockText struct {
	s  string
	ok bool
}

// number takes a number of least to most digits.
func (t *clockText) number(least, most int) int64 {
	n := 0
	for n < len(t.s) && n < most && isDigit(t.s[n]) {
		n++
	}
	if n < least {
		t.ok = false
		return 0
	}
	v, _ := strconv.ParseInt(t.s[:n], 10, 64)
	t.s = t.s[n:]
	return v
}

// accept takes one of the bytes when it is next.
func (t *clockText) accept(any string) bool {
	if t.s == "" || strings.IndexByte(any, t.s[0]) < 0 {
		return false
	}
	t.s = t.s[1:]
	return true
}

func (t *clockText) expect(any string) { t.ok = t.accept(any) && t.ok }

// fraction takes the digits after the point and returns microseconds; digits past the sixth are cut.
func (t *clockText) fraction() int64 {
	n := digitsLength(t.s)
	if n == 0 || n > 18 {
		t.ok = false
		return 0
	}
	digits := (t.s[:n] + "00000")[:6]
	t.s = t.s[n:]
	v, _ := strconv.ParseInt(digits, 10, 64)
	return v
}

// zone takes Z, UTC, +02:00, +0200, +02; nothing when the text ends.
func (t *clockText) zone() (zoned bool, offset int64) {
	t.s = strings.TrimPrefix(t.s, " ")
	switch {
	case t.s == "":
		return false, 0
	case t.s == "Z" || t.s == "z" || strings.EqualFold(t.s, "UTC") || strings.EqualFold(t.s, "GMT"):
		t.s = ""
		return true, 0
	}
	sign := int64(1)
	if t.s[0] == '-' {
		sign = -1
	}
	t.expect("+-")
	hours := t.number(1, 2)
	var minutes int64
	if t.accept(":") || t.s != "" {
		minutes = t.number(2, 2)
	}
	if hours > 18 || minutes > 59 {
		t.ok = false
	}
	return true, sign * (hours*3600 + minutes*60)
}

// parseClock reads `2024-05-01`, `2024-05-01T10:00`, `2024-05-01 10:00:00.123456+02:00`, spaces around it
// allowed.
func parseClock(s string) (clock, error) {
	t := clockText{strings.TrimSpace(s), true}
	var c clock
	c.year = t.number(4, 4)
	t.expect("-")
	c.month = t.number(1, 2)
	t.expect("-")
	c.day = t.number(1, 2)
	if t.s != "" && t.ok {
		t.expect("T t")
		c.hour = t.number(1, 2)
		t.expect(":")
		c.minute = t.number(2, 2)
		if t.accept(":") {
			c.second = t.number(2, 2)
			if t.accept(".,") {
				c.micros = t.fraction()
			}
		}
		c.zoned, c.offset = t.zone()
	}
	if !t.ok || t.s != "" {
		return c, errClock
	}
	return c, c.check()
}

// appendPadded writes v with at least width digits.
func appendPadded(dst []byte, v int64, width int) []byte {
	if v >= 0 && v < 100 && width <= 2 {
		if v >= 10 || width == 2 {
			dst = append(dst, byte('0'+v/10))
		}
		return append(dst, byte('0'+v%10))
	}
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], v, 10)
	for n := len(text); n < width; n++ {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

func appendDate(dst []byte, days int64) []byte {
	year, month, day := dateOf(days)
	dst = appendPadded(dst, year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, month, 2)
	dst = append(dst, '-')
	return appendPadded(dst, day, 2)
}

// appendTimestamp writes `2024-05-01 10:00:00.123`, without a zone and without trailing zeros of the
// fraction.
func appendTimestamp(dst []byte, micros int64) []byte {
	days := floorDiv(micros, microsPerDay)
	rest := micros - days*microsPerDay
	dst = appendDate(dst, days)
	for i, part := range []int64{rest / (3600 * microsPerSecond), rest / (60 * microsPerSecond) % 60,
		rest / microsPerSecond % 60} {
		dst = append(dst, " ::"[i])
		dst = appendPadded(dst, part, 2)
	}
	if fraction := rest % microsPerSecond; fraction != 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, fraction, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return dst
}
