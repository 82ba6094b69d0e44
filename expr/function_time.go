package expr

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// All times are in UTC.
var timeFunctions = map[string]function{
	"date":              {"d", func(c *callSite) (node, error) { return c.args[0], nil }},
	"year":              {"w", rising(typeInt32, mapInts(partOf("year")))},
	"quarter":           {"w", of(typeInt32, mapInts(partOf("quarter")))},
	"month":             {"w", of(typeInt32, mapInts(partOf("month")))},
	"week":              {"w", of(typeInt32, mapInts(partOf("week")))},
	"day":               {"w", of(typeInt32, mapInts(partOf("day")))},
	"dayofyear":         {"w", of(typeInt32, mapInts(partOf("dayofyear")))},
	"hour":              {"t", of(typeInt32, mapInts(partOf("hour")))},
	"minute":            {"t", of(typeInt32, mapInts(partOf("minute")))},
	"second":            {"t", of(typeInt32, mapInts(partOf("second")))},
	"date_part":         {"sw", newDatePart},
	"date_trunc":        {"sw", newDateTrunc},
	"date_add":          {"di", moveDays("+")},
	"date_sub":          {"di", moveDays("-")},
	"datediff":          {"aa?a", newDateDiff},
	"date_diff":         {"aa?a", newDateDiff},
	"now":               {"", func(*callSite) (node, error) { return &clockNode{typeTimestamp}, nil }},
	"current_timestamp": {"", func(*callSite) (node, error) { return &clockNode{typeTimestamp}, nil }},
	"current_date":      {"", func(*callSite) (node, error) { return &clockNode{typeDate}, nil }},
	"epoch_ms":          {"a", func(c *callSite) (node, error) { return newEpoch(c, 1000) }},
	"epoch_us":          {"a", func(c *callSite) (node, error) { return newEpoch(c, 1) }},
	"unix_timestamp":    {"a?s", newUnixTimestamp},
	"from_unixtime":     {"n?s", newFromUnixTime},
	"to_timestamp":      {"a?s", newToTimestamp},
	"to_date":           {"a?s", newToDate},
}

func moveDays(op string) func(*callSite) (node, error) {
	return func(c *callSite) (node, error) { return addDays(c.place, op, c.args[0], c.args[1]), nil }
}

// parts splits a date or timestamp into days and the microseconds of the day.
func parts(v *vector, i int) (days, micros int64) {
	if kindOf(v.t) == kindDate {
		return v.int(i), 0
	}
	days = floorDiv(v.int(i), microsPerDay)
	return days, v.int(i) - days*microsPerDay
}

// partOf returns the row function of a unit; nil when there is no such part.
func partOf(unit string) func(k *kernel, i int) (int64, result) {
	var f func(days, micros int64) int64
	switch unit {
	case "year":
		f = func(days, _ int64) int64 { y, _, _ := dateOf(days); return y }
	case "quarter":
		f = func(days, _ int64) int64 { _, m, _ := dateOf(days); return (m + 2) / 3 }
	case "month":
		f = func(days, _ int64) int64 { _, m, _ := dateOf(days); return m }
	case "week":
		f = func(days, _ int64) int64 { return isoWeek(days) }
	case "day":
		f = func(days, _ int64) int64 { _, _, d := dateOf(days); return d }
	case "dayofyear", "doy":
		f = func(days, _ int64) int64 { y, _, _ := dateOf(days); return days - daysOf(y, 1, 1) + 1 }
	case "hour":
		f = func(_, micros int64) int64 { return micros / unitMicros("hour") }
	case "minute":
		f = func(_, micros int64) int64 { return micros / unitMicros("minute") % 60 }
	case "second":
		f = func(_, micros int64) int64 { return micros / microsPerSecond % 60 }
	case "millisecond":
		f = func(_, micros int64) int64 { return micros / 1000 % 60_000 }
	case "microsecond":
		f = func(_, micros int64) int64 { return micros % (60 * microsPerSecond) }
	default:
		return nil
	}
	return func(k *kernel, i int) (int64, result) { return f(parts(k.args[0], i)), isValue }
}

// constUnit takes an argument that names a unit of time, in singular or plural.
func (c *callSite) constUnit(i int) (string, error) {
	text, err := c.constText(i, "the unit")
	if err != nil {
		return "", err
	}
	unit := strings.ToLower(text)
	if known := intervalUnit(unit); known != "" {
		unit = known
	}
	return unit, nil
}

func newDatePart(c *callSite) (node, error) {
	unit, err := c.constUnit(0)
	if err != nil {
		return nil, err
	}
	f := partOf(unit)
	if f == nil {
		return nil, noUnit(c, unit, "dayofyear, "+unitNames)
	}
	c.args = c.args[1:]
	return c.node(typeInt32, mapInts(f))
}

const unitNames = "year, quarter, month, week, day, hour, minute, second, millisecond or microsecond"

func noUnit(c *callSite, unit, wanted string) error {
	err := c.typeFault("%s knows no such unit", c.name)
	err.Found, err.Wanted = "'"+clip(unit)+"'", wanted
	return err
}

// truncate returns the function that cuts days since 1970 to the beginning of a unit; nil for units below a
// day.
func truncate(unit string) func(days int64) int64 {
	switch unit {
	case "year":
		return func(days int64) int64 { y, _, _ := dateOf(days); return daysOf(y, 1, 1) }
	case "quarter":
		return func(days int64) int64 { y, m, _ := dateOf(days); return daysOf(y, (m-1)/3*3+1, 1) }
	case "month":
		return func(days int64) int64 { y, m, _ := dateOf(days); return daysOf(y, m, 1) }
	case "week":
		return func(days int64) int64 { return days - weekday(days) }
	case "day":
		return func(days int64) int64 { return days }
	}
	return nil
}

// newDateTrunc cuts to the beginning of a unit; weeks begin on Monday. A date stays a date.
func newDateTrunc(c *callSite) (node, error) {
	unit, err := c.constUnit(0)
	if err != nil {
		return nil, err
	}
	c.args = c.args[1:]
	t := c.args[0].typ()
	cut, step := truncate(unit), unitMicros(unit)
	switch {
	case cut != nil && kindOf(t) == kindDate:
		return rising(t, mapInts(func(k *kernel, i int) (int64, result) {
			return cut(k.args[0].int(i)), isValue
		}))(c)
	case cut != nil:
		return rising(t, mapInts(func(k *kernel, i int) (int64, result) {
			return cut(floorDiv(k.args[0].int(i), microsPerDay)) * microsPerDay, isValue
		}))(c)
	case step == 0:
		return nil, noUnit(c, unit, unitNames)
	case kindOf(t) == kindDate:
		return nil, c.typeFault("date_trunc('%s', …) takes a timestamp, found date", unit)
	}
	return rising(t, mapInts(func(k *kernel, i int) (int64, result) {
		v := k.args[0].int(i)
		return v - floorMod(v, step), isValue
	}))(c)
}

// newDateDiff is datediff(end, start) in days, or datediff('unit', start, end): how many beginnings of the
// unit lie between the two.
func newDateDiff(c *callSite) (node, error) {
	unit, from, to := "day", 1, 0
	if len(c.args) == 3 {
		var err error
		if unit, err = c.constUnit(0); err != nil {
			return nil, err
		}
		from, to = 1, 2
	}
	letter := byte('w')
	if truncate(unit) == nil {
		letter = 't'
	}
	sides := []node{c.args[from], c.args[to]}
	for i, n := range sides {
		same, wanted, err := accept(c.place, letter, n)
		if err != nil {
			return nil, err
		}
		if wanted != "" {
			fault := c.typeFault("%s takes dates or timestamps", c.name)
			fault.Found, fault.Wanted = typeName(n.typ()), wanted
			return nil, fault
		}
		sides[i] = same
	}
	number, err := unitNumber(unit)
	if err != nil {
		return nil, noUnit(c, unit, unitNames)
	}
	c.args = sides
	var t arrow.DataType = typeInt64
	if len(sides) == 2 && unit == "day" {
		t = typeInt32
	}
	return c.node(t, mapInts(func(k *kernel, i int) (int64, result) {
		return number(parts(k.args[1], i)) - number(parts(k.args[0], i)), isValue
	}))
}

// unitNumber counts the units since some fixed moment.
func unitNumber(unit string) (func(days, micros int64) int64, error) {
	switch unit {
	case "year":
		return func(days, _ int64) int64 { y, _, _ := dateOf(days); return y }, nil
	case "quarter":
		return func(days, _ int64) int64 { y, m, _ := dateOf(days); return y*4 + (m-1)/3 }, nil
	case "month":
		return func(days, _ int64) int64 { y, m, _ := dateOf(days); return y*12 + m }, nil
	case "week":
		return func(days, _ int64) int64 { return floorDiv(days+3, 7) }, nil
	}
	step := unitMicros(unit)
	if step == 0 {
		return nil, fmt.Errorf("no unit %q", unit)
	}
	return func(days, micros int64) int64 { return days*(microsPerDay/step) + micros/step }, nil
}

// newEpoch turns a number of units since 1970 into a timestamp, and a date or timestamp into that number.
func newEpoch(c *callSite, micros int64) (node, error) {
	t := c.args[0].typ()
	switch {
	case kindOf(t) == kindInt:
		return rising(typeTimestamp, mapInts(func(k *kernel, i int) (int64, result) {
			v, ok := checkedInt("*", k.args[0].int(i), micros)
			if !ok || checkMicros(v) != nil {
				k.fault(i, "%s(%d): %v", c.name, k.args[0].int(i), errYears)
			}
			return v, isValue
		}))(c)
	case kindOf(t) == kindTime || kindOf(t) == kindDate || kindOf(t) == kindNull:
		n, _, err := accept(c.place, 't', c.args[0])
		if err != nil {
			return nil, err
		}
		c.args = []node{n}
		return rising(typeInt64, mapInts(func(k *kernel, i int) (int64, result) {
			return floorDiv(k.args[0].int(i), micros), isValue
		}))(c)
	}
	err := c.typeFault("argument 1 of %s is of the wrong type", c.name)
	err.Found, err.Wanted = typeName(t), "an integer, a date or a timestamp"
	return nil, err
}

// newUnixTimestamp gives whole seconds since 1970 of a timestamp, or of a string by a format.
func newUnixTimestamp(c *callSite) (node, error) {
	ts, err := newToTimestamp(&callSite{c.place, c.name, c.args, c.share})
	if err != nil {
		return nil, err
	}
	c.args = []node{fold(ts)}
	return rising(typeInt64, mapInts(func(k *kernel, i int) (int64, result) {
		return floorDiv(k.args[0].int(i), microsPerSecond), isValue
	}))(c)
}

// secondsToMicros is a number of seconds, fractions allowed, in microseconds.
func secondsToMicros(k *kernel, i int) (int64, result) {
	v := k.args[0]
	micros, ok := int64(0), true
	switch kindOf(v.t) {
	case kindInt:
		micros, ok = checkedInt("*", v.int(i), microsPerSecond)
	case kindFloat:
		f := v.float(i) * microsPerSecond
		micros, ok = int64(f), f > -1e18 && f < 1e18
	default:
		d, fits := rescale(v.dec(i), v.t.(*arrow.Decimal128Type).Scale, 6, maxDigits)
		micros, ok = int64(d.LowBits()), fits && isInt64(d)
	}
	if !ok || checkMicros(micros) != nil {
		k.fault(i, "%s seconds: %v", textOf(v, i, nil), errYears)
		return 0, isFault
	}
	return micros, isValue
}

// newToTimestamp makes a timestamp of a number of seconds, of a date, or of a string: as CAST reads it, or by
// a format.
func newToTimestamp(c *callSite) (node, error) {
	t := c.args[0].typ()
	switch {
	case len(c.args) == 2 && (kindOf(t) == kindString || kindOf(t) == kindNull):
		return newParse(c, typeTimestamp)
	case len(c.args) == 2:
		err := c.typeFault("%s takes a format for strings only", c.name)
		err.Found = typeName(t)
		return nil, err
	case isNumber(t):
		return rising(typeTimestamp, mapInts(secondsToMicros))(c)
	}
	return newCast(c.place, c.args[0], typeTimestamp, false)
}

// newToDate makes a date of a timestamp or of a string: as CAST reads it, or by a format.
func newToDate(c *callSite) (node, error) {
	t := c.args[0].typ()
	switch {
	case len(c.args) == 2 && (kindOf(t) == kindString || kindOf(t) == kindNull):
		return newParse(c, typeDate)
	case len(c.args) == 2:
		err := c.typeFault("to_date takes a format for strings only")
		err.Found = typeName(t)
		return nil, err
	}
	return newCast(c.place, c.args[0], typeDate, false)
}

// newFromUnixTime writes the time that a number of seconds stands for, by default as 2024-05-01 10:00:00.
func newFromUnixTime(c *callSite) (node, error) {
	seconds := &callSite{c.place, c.name, c.args[:1], c.share}
	ts, err := rising(typeTimestamp, mapInts(secondsToMicros))(seconds)
	if err != nil {
		return nil, err
	}
	format := node(stringConst(c.place, "yyyy-MM-dd HH:mm:ss"))
	if len(c.args) > 1 {
		format = c.args[1]
	}
	c.args = []node{fold(ts), format}
	return newFormat(c)
}

func monthName(month int64) string  { return time.Month(month).String() }
func weekdayName(days int64) string { return time.Weekday((weekday(days) + 1) % 7).String() }
