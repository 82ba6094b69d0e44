// Package pgtext writes values as PostgreSQL does with the settings that we read it by: UTC, ISO dates, the shortest numbers. So a
// value of another origin has the same text, and the same hash, as one that a database has.
//
// Non-goals: nested values.
package pgtext

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Of is the text of a value that is not null. Errors: a type of which there is none here: nested ones, and those that PostgreSQL has
// not.
func Of(column arrow.Array, row int) (string, error) {
	switch c := column.(type) {
	case *array.Boolean:
		return strconv.FormatBool(c.Value(row))[:1], nil
	case *array.Date32:
		return moment(c.Value(row).ToTime(), "2006-01-02"), nil
	case *array.Timestamp:
		zone := ""
		if c.DataType().(*arrow.TimestampType).TimeZone != "" {
			zone = "+00"
		}
		return moment(c.Value(row).ToTime(arrow.Microsecond), "2006-01-02 15:04:05.999999"+zone), nil
	case *array.Binary:
		return `\x` + hex.EncodeToString(c.Value(row)), nil
	case *array.Float32:
		return number(float64(c.Value(row)), 32), nil
	case *array.Float64:
		return number(c.Value(row), 64), nil
	case *array.Int16, *array.Int32, *array.Int64, *array.String, *array.Decimal128:
		return c.ValueStr(row), nil
	}
	return "", fmt.Errorf("found the type %s, of whose values there is no text here", column.DataType())
}

// moment writes a time; years before 1 are those before our era.
func moment(t time.Time, layout string) string {
	if t.Year() > 0 {
		return t.Format(layout)
	}
	return t.AddDate(2*(1-t.Year())-1, 0, 0).Format(layout) + " BC"
}

func number(v float64, bits int) string {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}
