package delta

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// partitionArray returns n times the partition value s as an array of t's Arrow type; nil and "" are null.
func partitionArray(t Type, s *string, n int) (arrow.Array, error) {
	if s == nil || *s == "" {
		return nullArray(ArrowType(t), n), nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, ArrowType(t))
	defer b.Release()
	if err := appendPartitionValue(b, t, *s); err != nil {
		return nil, fmt.Errorf("partition value %q, wanted %s: %w", *s, t, err)
	}
	arr := b.NewArray()
	for arr.Len() < n {
		double, err := array.Concatenate([]arrow.Array{arr, arr}, memory.DefaultAllocator)
		arr.Release()
		if err != nil {
			return nil, err
		}
		arr = double
	}
	return arr, nil
}

func appendPartitionValue(b array.Builder, t Type, s string) error {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(strings.ToLower(s))
		b.Append(v)
		return err
	case *array.Int8Builder:
		v, err := strconv.ParseInt(s, 10, 8)
		b.Append(int8(v))
		return err
	case *array.Int16Builder:
		v, err := strconv.ParseInt(s, 10, 16)
		b.Append(int16(v))
		return err
	case *array.Int32Builder:
		v, err := strconv.ParseInt(s, 10, 32)
		b.Append(int32(v))
		return err
	case *array.Int64Builder:
		v, err := strconv.ParseInt(s, 10, 64)
		b.Append(v)
		return err
	case *array.Float32Builder:
		v, err := strconv.ParseFloat(s, 32)
		b.Append(float32(v))
		return err
	case *array.Float64Builder:
		v, err := strconv.ParseFloat(s, 64)
		b.Append(v)
		return err
	case *array.Decimal128Builder:
		v, err := parseDecimalValue(s, t.(Decimal))
		b.Append(v)
		return err
	case *array.StringBuilder:
		b.Append(s)
	case *array.BinaryBuilder:
		b.Append([]byte(s))
	case *array.Date32Builder:
		v, err := parseDate(s)
		b.Append(arrow.Date32(v))
		return err
	case *array.TimestampBuilder:
		v, err := parseMicros(s)
		b.Append(arrow.Timestamp(v))
		return err
	default:
		return fmt.Errorf("%s cannot partition a table", t)
	}
	return nil
}

func parseDecimalValue(s string, d Decimal) (decimal128.Num, error) {
	whole, _, _ := strings.Cut(s, "E")
	if strings.ContainsAny(s, "eE") || len(whole) > 80 {
		return decimal128.Num{}, fmt.Errorf("not a plain decimal number")
	}
	return decimal128.FromString(s, int32(d.Precision), int32(d.Scale))
}

// parseDate parses YYYY-MM-DD, the year with a sign if need be, to days since the epoch.
func parseDate(s string) (int64, error) {
	body, sign := s, 1
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		if s[0] == '-' {
			sign = -1
		}
		body = s[1:]
	}
	parts := strings.Split(body, "-")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 7 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, fmt.Errorf("not a date of the form YYYY-MM-DD")
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return 0, err
		}
		n[i] = int(v)
	}
	t := time.Date(sign*n[0], time.Month(n[1]), n[2], 0, 0, 0, 0, time.UTC)
	if int(t.Month()) != n[1] || t.Day() != n[2] {
		return 0, fmt.Errorf("no such day")
	}
	return t.Unix() / 86400, nil
}

// parseMicros parses a timestamp in any form that a partition value may have: a date, then a T or a space, the time
// of day with up to nine digits of a second, then Z, an offset, or nothing, which is taken for UTC.
func parseMicros(s string) (int64, error) {
	at := strings.IndexAny(s, "T ")
	if at < 0 {
		days, err := parseDate(s)
		return days * 86_400_000_000, err
	}
	days, err := parseDate(s[:at])
	if err != nil {
		return 0, err
	}
	clock, zone := s[at+1:], ""
	if i := strings.IndexAny(clock, "Z+-"); i >= 0 {
		clock, zone = clock[:i], clock[i:]
	}
	t, err := time.Parse("15:04:05", clock) // takes a fraction, too
	if err != nil {
		return 0, fmt.Errorf("no time of day of the form hh:mm:ss: %q", clock)
	}
	offset, err := parseZone(zone)
	if err != nil {
		return 0, err
	}
	midnight := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	return days*86_400_000_000 + t.Sub(midnight).Microseconds() - offset*1_000_000, nil
}

// parseZone returns the seconds east of UTC.
func parseZone(zone string) (int64, error) {
	if zone == "" || zone == "Z" {
		return 0, nil
	}
	t, err := time.Parse("-07:00", zone)
	if err != nil {
		return 0, fmt.Errorf("no zone of the form ±hh:mm: %q", zone)
	}
	_, offset := t.Zone()
	return int64(offset), nil
}
