package expr

import (
	"fmt"
	"strings"
)

// Functions of time; the session's time zone is UTC.
var sparkTimes = map[string]function{
	"date":                {"d", func(c *callSite) (node, error) { return c.args[0], nil }},
	"year":                timeFunctions["year"],
	"quarter":             timeFunctions["quarter"],
	"month":               timeFunctions["month"],
	"weekofyear":          timeFunctions["week"],
	"day":                 timeFunctions["day"],
	"dayofmonth":          timeFunctions["day"],
	"dayofyear":           timeFunctions["dayofyear"],
	"dayofweek":           {"w", of(typeInt32, mapInts(dayPart(func(days int64) int64 { return (weekday(days)+1)%7 + 1 })))},
	"weekday":             {"w", of(typeInt32, mapInts(dayPart(weekday)))},
	"hour":                timeFunctions["hour"],
	"minute":              timeFunctions["minute"],
	"second":              timeFunctions["second"],
	"date_part":           {"sw", newSparkPart},
	"date_trunc":          {"st", newSparkTrunc},
	"trunc":               {"ds", newTruncDate},
	"date_format":         {"ts", sparkFormat(newFormat)},
	"date_add":            timeFunctions["date_add"],
	"dateadd":             timeFunctions["date_add"],
	"date_sub":            timeFunctions["date_sub"],
	"datediff":            {"dd", newDateDiff},
	"date_diff":           {"dd", newDateDiff},
	"add_months":          {"di", of(typeDate, mapInts(sparkAddMonths))},
	"last_day":            {"d", rising(typeDate, mapInts(dayPart(lastDay)))},
	"make_date":           {"iii", of(typeDate, mapInts(makeDate))},
	"to_date":             {"a?s", sparkFormat(newToDate)},
	"to_timestamp":        {"a?s", sparkFormat(newToTimestamp)},
	"from_unixtime":       {"i?s", sparkFormat(newFromUnixTime)},
	"unix_timestamp":      {"t", rising(typeInt64, mapInts(wholeSeconds))},
	"to_unix_timestamp":   {"t", rising(typeInt64, mapInts(wholeSeconds))},
	"unix_seconds":        {"t", sparkUnix(microsPerSecond)},
	"unix_millis":         {"t", sparkUnix(1000)},
	"unix_micros":         {"t", sparkUnix(1)},
	"unix_date":           {"d", rising(typeInt32, mapInts(dayPart(func(days int64) int64 { return days })))},
	"date_from_unix_date": {"i", of(typeDate, mapInts(dateFromUnix))},
	"timestamp_seconds":   {"n", rising(typeTimestamp, mapInts(secondsToMicros))},
	"timestamp_millis":    {"i", func(c *callSite) (node, error) { return newEpoch(c, 1000) }},
	"timestamp_micros":    {"i", func(c *callSite) (node, error) { return newEpoch(c, 1) }},
	"now":                 timeFunctions["now"],
	"current_timestamp":   timeFunctions["current_timestamp"],
	"current_date":        timeFunctions["current_date"],
	"curdate":             timeFunctions["current_date"],
}

func dayPart(f func(days int64) int64) func(k *kernel, i int) (int64, result) {
	return func(k *kernel, i int) (int64, result) {
		days, _ := parts(k.args[0], i)
		return f(days), isValue
	}
}

// wholeSeconds cuts off what is no whole second, towards 1970.
func wholeSeconds(k *kernel, i int) (int64, result) {
	return k.args[0].int(i) / microsPerSecond, isValue
}

func sparkUnix(micros int64) func(*callSite) (node, error) {
	return rising(typeInt64, mapInts(func(k *kernel, i int) (int64, result) {
		return floorDiv(k.args[0].int(i), micros), isValue
	}))
}

func lastDay(days int64) int64 {
	y, m, _ := dateOf(days)
	return daysOf(y, m, daysInMonth(y, m))
}

func sparkAddMonths(k *kernel, i int) (int64, result) {
	by := k.args[1].int(i)
	if by > 12*20_000 || by < -12*20_000 {
		k.fault(i, "add_months by %d: %v", by, errYears)
		return 0, isFault
	}
	days := addMonths(k.args[0].int(i), by)
	if err := checkDays(days); err != nil {
		k.fault(i, "add_months by %d: %v", by, err)
		return 0, isFault
	}
	return days, isValue
}

func makeDate(k *kernel, i int) (int64, result) {
	at := clock{year: k.args[0].int(i), month: k.args[1].int(i), day: k.args[2].int(i)}
	if err := at.check(); err != nil {
		k.fault(i, "make_date(%d, %d, %d): %v", at.year, at.month, at.day, err)
		return 0, isFault
	}
	return at.days(), isValue
}

func dateFromUnix(k *kernel, i int) (int64, result) {
	days := k.args[0].int(i)
	if days > 2*maxDays || days < -2*maxDays || checkDays(days) != nil {
		k.fault(i, "date_from_unix_date(%d): %v", days, errYears)
		return 0, isFault
	}
	return days, isValue
}

// sparkUnits are the names of the units that date_trunc and trunc take.
var sparkUnits = map[string]string{
	"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mm": "month", "mon": "month",
	"week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
	"millisecond": "millisecond", "microsecond": "microsecond",
}

// sparkUnit takes the argument that names a unit out of the arguments.
func (c *callSite) sparkUnit(at int, allowed ...string) (string, error) {
	text, err := c.constText(at, "the unit")
	if err != nil {
		return "", err
	}
	unit := sparkUnits[strings.ToLower(text)]
	known := unit != ""
	if len(allowed) > 0 && known {
		known = strings.Contains(" "+strings.Join(allowed, " ")+" ", " "+unit+" ")
	}
	if !known {
		return "", noUnit(c, text, "year, quarter, month, week or a shorter one that "+c.name+" has")
	}
	c.args = append(c.args[:at:at], c.args[at+1:]...)
	return unit, nil
}

// newSparkTrunc cuts a timestamp to the beginning of a unit; a date becomes a timestamp.
func newSparkTrunc(c *callSite) (node, error) {
	unit, err := c.sparkUnit(0)
	if err != nil {
		return nil, err
	}
	at, err := newCast(c.place, c.args[0], typeTimestamp, false)
	if err != nil {
		return nil, err
	}
	c.args = []node{stringConst(c.place, unit), at}
	return newDateTrunc(c)
}

// newTruncDate is trunc(date, unit).
func newTruncDate(c *callSite) (node, error) {
	unit, err := c.sparkUnit(1, "year", "quarter", "month", "week")
	if err != nil {
		return nil, err
	}
	c.args = []node{stringConst(c.place, unit), c.args[0]}
	return newDateTrunc(c)
}

// sparkParts are the parts of a time that are whole numbers in Spark, too.
var sparkParts = map[string]string{
	"year": "year", "years": "year", "quarter": "quarter", "month": "month", "months": "month", "week": "week",
	"weeks": "week", "day": "day", "days": "day", "d": "day", "doy": "dayofyear", "hour": "hour", "hours": "hour",
	"minute": "minute", "minutes": "minute",
}

func newSparkPart(c *callSite) (node, error) {
	text, err := c.constText(0, "the unit")
	if err != nil {
		return nil, err
	}
	unit := sparkParts[strings.ToLower(text)]
	if unit == "" {
		return nil, noUnit(c, text, "year, quarter, month, week, day, doy, hour or minute")
	}
	if t := c.args[1].typ(); kindOf(t) == kindDate && (unit == "hour" || unit == "minute") {
		return nil, c.typeFault("date_part('%s', …) takes a timestamp, found date", unit)
	}
	c.args = c.args[1:]
	return c.node(typeInt32, mapInts(partOf(unit)))
}

// sparkFormat refuses formats that may mean something else here.
func sparkFormat(build func(*callSite) (node, error)) func(*callSite) (node, error) {
	return func(c *callSite) (node, error) {
		if len(c.args) < 2 {
			return build(c)
		}
		text, err := c.constText(1, "the format")
		if err != nil {
			return nil, err
		}
		if err := checkSparkFormat(text); err != nil {
			return nil, c.typeFault("%s: %v", c.name, err)
		}
		return build(c)
	}
}

func checkSparkFormat(text string) error {
	const known = "y yyyy M MM MMM MMMM d dd E EEE EEEE H HH h hh a m mm s ss S SS SSS SSSS SSSSS SSSSSS D DDD yy"
	quoted := false
	for i := 0; i < len(text); {
		c := text[i]
		n := 1
		for i+n < len(text) && text[i+n] == c {
			n++
		}
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		switch {
		case c == '\'':
			n, quoted = 1, !quoted
		case quoted:
		case letter && !strings.Contains(" "+known+" ", " "+text[i:i+n]+" "):
			return fmt.Errorf("the format has %s, wanted one of %s", text[i:i+n], known)
		case strings.IndexByte("%[]#{}", c) >= 0:
			return fmt.Errorf("the format has %c, which is not known here", c)
		}
		i += n
	}
	return nil
}
