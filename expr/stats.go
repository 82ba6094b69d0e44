package expr

import (
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Stats is what is known of a set of rows (a file, a row group) without reading them. A column is a path: the
// name of a top-level column, then of the fields within, as the schema spells them. ok is false for whatever
// is not known; what is not known never excludes rows.
//
// A partition column is described by the same methods: Min and Max are both the partition's value, NullCount
// is 0; for the null partition NullCount is RowCount.
type Stats interface {
	// RowCount is the number of rows.
	RowCount() (rows int64, ok bool)
	// NullCount is the number of rows in which the column is null.
	NullCount(column []string) (nulls int64, ok bool)
	// Min is a bound that no value of the column is below; it need not be one of the values (a truncated
	// string). Nulls and NaN do not count.
	Min(column []string) (v Value, ok bool)
	// Max is a bound that no value of the column is above. A timestamp that was cut to milliseconds is to be
	// rounded up by the implementation. NaN does not count: a float column is taken to hold NaN besides.
	Max(column []string) (v Value, ok bool)
}

// Value is one value that is not null, as a bound in Stats. Made by the functions below; a Value of another
// kind than the column's type counts as unknown.
type Value struct {
	kind  kind
	scale int32
	i     int64
	f     float64
	d     decimal128.Num
	s     string
}

// BoolValue is a bound of a boolean column; false is less than true.
func BoolValue(v bool) Value {
	if v {
		return Value{kind: kindBool, i: 1}
	}
	return Value{kind: kindBool}
}

// IntValue is a bound of an integer column of any width.
func IntValue(v int64) Value { return Value{kind: kindInt, i: v} }

// FloatValue is a bound of a float or double column.
func FloatValue(v float64) Value { return Value{kind: kindFloat, f: v} }

// DecimalValue is a bound of a decimal column: unscaled × 10^-scale.
func DecimalValue(unscaled decimal128.Num, scale int32) Value {
	return Value{kind: kindDecimal, d: unscaled, scale: scale}
}

// StringValue is a bound of a string column, compared by bytes.
func StringValue(v string) Value { return Value{kind: kindString, s: v} }

// BinaryValue is a bound of a binary column, compared by bytes. The bytes are copied.
func BinaryValue(v []byte) Value { return Value{kind: kindBinary, s: string(v)} }

// DateValue is a bound of a date column, in days since 1970-01-01.
func DateValue(days int32) Value { return Value{kind: kindDate, i: int64(days)} }

// TimestampValue is a bound of a timestamp or timestamp_ntz column, in microseconds since 1970-01-01 (UTC).
func TimestampValue(micros int64) Value { return Value{kind: kindTime, i: micros} }
