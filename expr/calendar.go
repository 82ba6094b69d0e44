package expr

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 86_400 * microsPerSecond

	// The first day of year 1 and the last of year 9999: what Delta's readers agree on.
	minDays = -719_162
	maxDays = 2_932_896
)

var (
	errCalendar = errors.New("no such day or time")
	errClock    = errors.New("not of the form 2024-05-01 or 2024-05-01T10:00:00.5+02:00")
	errYears    = errors.New("outside the years 1 to 9999")
)

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

// daysOf returns the days since 1970-01-01 of a day of the proleptic Gregorian calendar; month is 1 to 12.
func daysOf(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yearOfEra := year - era*400
	shifted := (month + 9) % 12
	dayOfYear := (153*shifted+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return era*146097 + dayOfEra - 719468
}

// dateOf is the inverse of daysOf.
func dateOf(days int64) (year, month, day int64) {
	days += 719468
	era := floorDiv(days, 146097)
	dayOfEra := days - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = (shifted+2)%12 + 1
	year = yearOfEra + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

func daysInMonth(year, month int64) int64 {
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

// addMonths moves a day by whole months; a day that the month does not have becomes its last.
func addMonths(days, months int64) int64 {
	year, month, day := dateOf(days)
	total := year*12 + month - 1 + months
	year, month = floorDiv(total, 12), floorMod(total, 12)+1
	return daysOf(year, month, min(day, daysInMonth(year, month)))
}

func checkDays(days int64) error {
	if days < minDays || days > maxDays {
		return errYears
	}
	return nil
}

func checkMicros(micros int64) error { return checkDays(floorDiv(micros, microsPerDay)) }

// weekday is 0 for Monday.
func weekday(days int64) int64 { return floorMod(days+3, 7) }

// isoWeek is the week of the year as ISO 8601 counts it.
func isoWeek(days int64) int64 {
	thursday := days - weekday(days) + 3
	year, _, _ := dateOf(thursday)
	return (thursday-daysOf(year, 1, 1))/7 + 1
}

// interval is a span of time; months and days are not a fixed number of microseconds. All times being UTC, a
// day is.
type interval struct {
	months, micros int64
}

// intervalUnit is the singular of a unit of time in small letters, "" for another word.
func intervalUnit(word string) string {
	word = strings.TrimSuffix(strings.ToLower(word), "s")
	switch word {
	case "year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond":
		return word
	}
	return ""
}

func (iv interval) times(n int64, unit string) interval {
	switch unit {
	case "year":
		return interval{months: 12 * n}
	case "quarter":
		return interval{months: 3 * n}
	case "month":
		return interval{months: n}
	case "week":
		return interval{micros: 7 * microsPerDay * n}
	}
	return interval{micros: unitMicros(unit) * n}
}

// unitMicros is the length of a unit that has a fixed one, up to days.
func unitMicros(unit string) int64 {
	switch unit {
	case "day":
		return microsPerDay
	case "hour":
		return 3600 * microsPerSecond
	case "minute":
		return 60 * microsPerSecond
	case "second":
		return microsPerSecond
	case "millisecond":
		return 1000
	case "microsecond":
		return 1
	}
	return 0
}

// parseInterval reads pairs of a whole number and a unit: `1 day -2 hours`.
func parseInterval(s string) (interval, error) {
	words := strings.Fields(s)
	var out interval
	if len(words) == 0 || len(words)%2 != 0 {
		return out, fmt.Errorf("the interval is wrong: found '%s', wanted a number and a unit, as in '1 day'",
			clip(strings.TrimSpace(s)))
	}
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit := intervalUnit(words[i+1])
		if err != nil || unit == "" || n > math.MaxInt32 || n < math.MinInt32 {
			return out, fmt.Errorf("the interval is wrong: found '%s %s', wanted a whole number and a unit "+
				"from microsecond to year", clip(words[i]), clip(words[i+1]))
		}
		part := out.times(n, unit)
		out.months += part.months
		out.micros += part.micros
	}
	return out, nil
}

// addTo moves a timestamp: months first.
func (iv interval) addTo(micros int64) (int64, error) {
	if iv.months != 0 {
		days := floorDiv(micros, microsPerDay)
		micros += (addMonths(days, iv.months) - days) * microsPerDay
	}
	micros += iv.micros
	return micros, checkMicros(micros)
}

// wholeDays tells whether a date moved by the interval is a date again.
func (iv interval) wholeDays() bool { return iv.micros%microsPerDay == 0 }
