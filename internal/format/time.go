package format

import "encoding/binary"

// zone is what a timestamp's text says about its zone.
type zone uint8

const (
	noZone zone = iota
	utc         // Z, or an offset of zero
	offset      // another offset
)

const (
	usPerSecond = 1_000_000
	usPerDay    = 86_400 * usPerSecond
	yearFirst   = 1
	yearLast    = 9999

	firstUs = -719_162 * usPerDay    // 0001-01-01T00:00:00Z
	lastUs  = 2_932_897*usPerDay - 1 // the end of 9999-12-31
)

// moment is a timestamp as its text has it.
type moment struct {
	us    int64 // since 1970-01-01T00:00:00Z; where there is no zone, as if it were UTC
	zone  zone
	finer bool // it has digits below the microsecond that are not 0, which are cut off
	// strict says that it is RFC 3339 to the letter, T between date and time included.
	strict bool
}

// civilDay returns the day since 1970-01-01 of a date of the proleptic Gregorian calendar.
func civilDay(year, month, day int) (int32, bool) {
	if year < yearFirst || year > yearLast || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, false
	}
	if month <= 2 { // years that begin in March have their leap day at the end
		year--
		month += 12
	}
	era := year / 400
	ofEra := year - era*400
	ofYear := (153*(month-3)+2)/5 + day - 1
	return int32(era*146_097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719_468), true
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// clock reads digits and marks from the front of a text.
type clock struct {
	b  []byte
	ok bool
}

// digits reads a number of least to most digits.
func (c *clock) digits(least, most int) (v int) {
	n := 0
	for n < len(c.b) && n < most && c.b[n]-'0' <= 9 {
		v = v*10 + int(c.b[n]-'0')
		n++
	}
	c.b = c.b[n:]
	c.ok = c.ok && n >= least
	return v
}

// next reports the next byte, 0 at the end, without reading it.
func (c *clock) next() byte {
	if len(c.b) == 0 {
		return 0
	}
	return c.b[0]
}

// mark reads one of the bytes, if it is next.
func (c *clock) mark(oneOf string) bool {
	for i := range len(oneOf) {
		if c.next() == oneOf[i] && len(c.b) > 0 {
			c.b = c.b[1:]
			return true
		}
	}
	return false
}

// date reads YYYY-MM-DD, or with slashes; month and day may have one digit.
func (c *clock) date() (day int32, strict bool) {
	before := len(c.b)
	year := c.digits(4, 4)
	separator := c.next()
	c.ok = c.ok && (separator == '-' || separator == '/')
	if !c.ok {
		return 0, false
	}
	c.b = c.b[1:]
	month := c.digits(1, 2)
	c.ok = c.mark(string(rune(separator))) && c.ok
	dayOfMonth := c.digits(1, 2)
	day, ok := civilDay(year, month, dayOfMonth)
	c.ok = c.ok && ok
	return day, separator == '-' && before-len(c.b) == len("2006-01-02")
}

// timeOfDay reads HH:MM[:SS[.fraction]] into m.
func (c *clock) timeOfDay(m *moment) {
	hour := c.digits(2, 2)
	c.ok = c.mark(":") && c.ok
	minute := c.digits(2, 2)
	second := 0
	if c.mark(":") {
		second = c.digits(2, 2)
	} else {
		m.strict = false
	}
	c.ok = c.ok && hour < 24 && minute < 60 && second < 60
	m.us += int64(hour*3600+minute*60+second) * usPerSecond
	m.strict = m.strict && c.next() != ','
	if c.mark(".,") {
		c.fraction(m)
	}
}

func (c *clock) fraction(m *moment) {
	c.ok = c.ok && c.next()-'0' <= 9
	for unit := int64(usPerSecond / 10); c.next()-'0' <= 9; unit /= 10 {
		digit := c.b[0] - '0'
		m.us += int64(digit) * unit
		m.finer = m.finer || unit == 0 && digit != 0
		c.b = c.b[1:]
	}
}

// offsetOf reads a zone, if there is one: Z, UTC, GMT, ±HH, ±HHMM, ±HH:MM.
func (c *clock) offsetOf(m *moment) {
	if len(c.b) > 1 && c.mark(" ") {
		m.strict = false
	}
	switch {
	case len(c.b) == 0:
		m.strict = false
	case c.mark("Zz"):
		m.zone = utc
	case string(c.b) == "UTC" || string(c.b) == "GMT":
		m.zone, m.strict, c.b = utc, false, nil
	case c.next() == '+' || c.next() == '-':
		sign := int64(1)
		if c.next() == '-' {
			sign = -1
		}
		c.b = c.b[1:]
		hour, minute := c.digits(2, 2), 0
		if c.mark(":") {
			minute = c.digits(2, 2)
		} else {
			m.strict = false
			if len(c.b) > 0 {
				minute = c.digits(2, 2)
			}
		}
		c.ok = c.ok && hour < 24 && minute < 60
		m.zone = offset
		if hour == 0 && minute == 0 {
			m.zone = utc
		}
		m.us -= sign * int64(hour*60+minute) * 60 * usPerSecond
	}
}

// parseMoment reads a timestamp, or a date alone, which is its midnight.
func parseMoment(b []byte) (m moment, ok bool) {
	c := clock{b: b, ok: true}
	day, strict := c.date()
	m.us, m.strict = int64(day)*usPerDay, strict
	if !c.ok {
		return m, false
	}
	if len(c.b) == 0 {
		m.strict = false
		return m, true
	}
	m.strict = m.strict && c.next()|0x20 == 't'
	c.ok = c.mark("Tt ")
	c.timeOfDay(&m)
	if c.ok {
		c.offsetOf(&m)
	}
	return m, c.ok && len(c.b) == 0 && m.us >= firstUs && m.us <= lastUs
}

// parseDate reads a date. strict says that it is YYYY-MM-DD to the letter.
func parseDate(b []byte) (day int32, strict, ok bool) {
	c := clock{b: b, ok: true}
	day, strict = c.date()
	if c.ok && len(c.b) == 0 {
		return day, strict, true
	}
	m, ok := parseMoment(b)
	if !ok || m.zone == offset || m.finer || m.us%usPerDay != 0 {
		return 0, false, false
	}
	return int32(m.us / usPerDay), false, true
}

// zeroTime is the text 00:00:00, little-endian.
const zeroTime = 0x30303a30303a3030

// quickMoment reads from behind the quote of a string YYYY-MM-DDTHH:MM:SS[.f…]Z with up to six digits of a
// fraction and the closing quote, when the date is that of the last call for n: what nearly all timestamps
// are. Else it returns failed.
func quickMoment(n *node, b []byte, i int) (us int64, end int) {
	if len(b)-i < len(`2006-01-02T15:04:05Z"`) {
		return 0, failed
	}
	if binary.LittleEndian.Uint64(b[i:]) != n.dateText || binary.LittleEndian.Uint16(b[i+8:]) != n.dateRest ||
		b[i+10] != 'T' {
		return 0, failed
	}
	// With the zeros xor'ed away, digits are 0 to 9 and colons 0. Adding 0x76, at colons 0x7f, sets the
	// highest bit of all else; a carry can only come from a byte whose highest bit is set, which is looked at
	// too.
	x := binary.LittleEndian.Uint64(b[i+11:]) ^ zeroTime
	if (x|(x+0x76767f76767f7676))&highs != 0 {
		return 0, failed
	}
	hour, minute, second := x&0xff*10+x>>8&0xff, x>>24&0xff*10+x>>32&0xff, x>>48&0xff*10+x>>56
	if hour > 23 || minute > 59 || second > 59 {
		return 0, failed
	}
	us = n.dateUs + int64(hour*3600+minute*60+second)*usPerSecond
	i += 19
	if b[i] == '.' {
		i++
		unit := int64(usPerSecond / 10)
		for ; i < len(b) && b[i]-'0' <= 9 && unit > 0; i++ {
			us += int64(b[i]-'0') * unit
			unit /= 10
		}
		if unit == usPerSecond/10 {
			return 0, failed
		}
	}
	if len(b)-i < 2 || b[i] != 'Z' || b[i+1] != '"' {
		return 0, failed
	}
	return us, i + 2
}

// rememberDate keeps the date of the text for quickMoment.
func rememberDate(n *node, b []byte) {
	c := clock{b: b, ok: true}
	day, strict := c.date()
	if c.ok && strict {
		n.dateText, n.dateRest = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint16(b[8:])
		n.dateUs = int64(day) * usPerDay
	}
}
