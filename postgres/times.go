package postgres

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/column"
)

const (
	secondMicros = 1_000_000
	dayMicros    = 86_400 * secondMicros

	// The days that Delta's engines have: of the years 1 to 9999.
	firstDay = -719_162
	lastDay  = 2_932_896
)

// dateDecoder reads dates into days since 1970. What is out of the years 1 to 9999 is beyond them, as infinity is.
type dateDecoder struct {
	store *column.Fixed[int32]
	calendar
}

func (d *dateDecoder) text(b []byte) verdict {
	if isInfinite(b) {
		return beyond
	}
	day, rest, ok := d.day(b)
	if !ok {
		return malformed
	}
	day, ok = era(day, rest)
	switch {
	case !ok:
		return malformed
	case day < firstDay || day > lastDay:
		return beyond
	}
	d.store.Append(int32(day))
	return taken
}

// stampDecoder reads timestamps, with or without a zone, into microseconds since 1970.
type stampDecoder struct {
	store *column.Fixed[int64]
	zoned bool
	calendar
}

func (d *stampDecoder) text(b []byte) verdict {
	if isInfinite(b) {
		return beyond
	}
	day, rest, ok := d.day(b)
	if !ok || len(rest) == 0 || rest[0] != ' ' {
		return malformed
	}
	micros, rest, ok := timeOfDay(rest[1:])
	if !ok {
		return malformed
	}
	if d.zoned {
		var east int64
		if east, rest, ok = offset(rest); !ok {
			return malformed
		}
		micros -= east * secondMicros
	}
	if day, ok = era(day, rest); !ok {
		return malformed
	}
	if day < firstDay-1 || day > lastDay+1 {
		return beyond
	}
	micros += day * dayMicros
	if micros < firstDay*dayMicros || micros >= (lastDay+1)*dayMicros {
		return beyond
	}
	d.store.Append(micros)
	return taken
}

func isInfinite(b []byte) bool {
	return len(b) > 0 && (b[0] == 'i' || b[0] == '-') && (string(b) == "infinity" || string(b) == "-infinity")
}

// calendar reads dates; it remembers the last, since a log has many of one day.
type calendar struct {
	text uint64 // of the last date: its first 8 bytes, and the last 2
	rest uint16
	last int64 // the day of it
}

// day reads YYYY-MM-DD, with more digits of the year beyond 9999. The day is of the proleptic Gregorian calendar, since
// 1970. rest is what is behind it.
func (c *calendar) day(b []byte) (day int64, rest []byte, ok bool) {
	if len(b) < 10 {
		return 0, nil, false
	}
	if c.rest != 0 && binary.LittleEndian.Uint64(b) == c.text && binary.LittleEndian.Uint16(b[8:]) == c.rest {
		return c.last, b[10:], true
	}
	year, n := digits(b, 7)
	if n < 4 || len(b) < n+6 || b[n] != '-' || b[n+3] != '-' {
		return 0, nil, false
	}
	month, two := digits(b[n+1:], 2)
	dayOfMonth, more := digits(b[n+4:], 2)
	if two != 2 || more != 2 || month < 1 || month > 12 || dayOfMonth < 1 {
		return 0, nil, false
	}
	day, rest = civil(year, month, dayOfMonth), b[n+6:]
	if day > civil(year, month, 28) && dayOfMonth > civil(year, month+1, 1)-civil(year, month, 1) {
		return 0, nil, false
	}
	if n == 4 {
		c.text, c.rest, c.last = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint16(b[8:]), day
	}
	return day, rest, true
}

// digits reads up to so many digits and returns how many there are.
func digits(b []byte, most int) (v int64, n int) {
	for n < len(b) && n < most && b[n]-'0' <= 9 {
		v = v*10 + int64(b[n]-'0')
		n++
	}
	return v, n
}

// civil is the day since 1970-01-01 of a date of the proleptic Gregorian calendar, whose year 0 is 1 BC. The month may be
// 13: the first of the next year.
func civil(year, month, day int64) int64 {
	if month > 12 {
		year, month = year+1, month-12
	}
	if month <= 2 { // years that begin in March have their leap day at the end
		year--
		month += 12
	}
	cycle := year / 400
	if year < 0 {
		cycle = (year - 399) / 400
	}
	ofCycle := year - cycle*400
	ofYear := (153*(month-3)+2)/5 + day - 1
	return cycle*146_097 + ofCycle*365 + ofCycle/4 - ofCycle/100 + ofYear - 719_468
}

// era looks at what is behind a date or timestamp: nothing, or " BC", which makes all of it beyond what Delta holds. The
// day is then only somewhere before those.
func era(day int64, rest []byte) (int64, bool) {
	switch {
	case len(rest) == 0:
		return day, true
	case string(rest) == " BC":
		return firstDay - 2, true
	}
	return 0, false
}

// timeOfDay reads HH:MM:SS with up to six digits of a fraction, in microseconds.
func timeOfDay(b []byte) (micros int64, rest []byte, ok bool) {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return 0, nil, false
	}
	hour, h := digits(b, 2)
	minute, m := digits(b[3:], 2)
	second, s := digits(b[6:], 2)
	if h+m+s != 6 || hour > 23 || minute > 59 || second > 59 {
		return 0, nil, false
	}
	micros, b = (hour*3600+minute*60+second)*secondMicros, b[8:]
	if len(b) > 0 && b[0] == '.' {
		fraction, n := digits(b[1:], 6)
		if n == 0 {
			return 0, nil, false
		}
		b = b[1+n:]
		for ; n < 6; n++ {
			fraction *= 10
		}
		micros += fraction
	}
	return micros, b, true
}

// offset reads +HH, +HH:MM or +HH:MM:SS, or their negatives, in seconds.
func offset(b []byte) (east int64, rest []byte, ok bool) {
	if len(b) < 3 || b[0] != '+' && b[0] != '-' {
		return 0, nil, false
	}
	sign := int64(1)
	if b[0] == '-' {
		sign = -1
	}
	unit := int64(3600)
	for b = b[1:]; ; b = b[1:] {
		v, n := digits(b, 2)
		if n != 2 {
			return 0, nil, false
		}
		east, b, unit = east+v*unit, b[2:], unit/60
		if unit == 0 || len(b) == 0 || b[0] != ':' {
			return sign * east, b, true
		}
	}
}
