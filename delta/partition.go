package delta

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// nullPartition is the folder of rows whose partition value is null, or the empty string, which Delta takes for null.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// partitionFolder returns the folder "a=1/b=x" of a partition, escaped once, as Hive and Spark do: this is the raw
// key below the table's root.
func partitionFolder(names []string, values []*string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(escapeHive(name))
		b.WriteByte('=')
		if values[i] == nil || *values[i] == "" {
			b.WriteString(nullPartition)
		} else {
			b.WriteString(escapeHive(*values[i]))
		}
	}
	return b.String()
}

// escapeHive escapes the bytes that Hive does not want in names of folders as %XX.
func escapeHive(s string) string {
	return escape(s, func(r rune) bool { return r < 0x20 || r == 0x7f || strings.ContainsRune("\"#%'*/:=?\\{[]^", r) })
}

// encodePath makes a raw key the URI-encoded path of an add action, by the rules of java.net.URI, which Spark uses:
// letters beyond ASCII stay as they are. Spec: "Add File and Remove File".
func encodePath(key string) string {
	return escape(key, func(r rune) bool {
		switch {
		case r >= utf8.RuneSelf:
			return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || unicode.IsControl(r)
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("_-!.~'()*,;:$&+=@/", r)
	})
}

func escape(s string, must func(rune) bool) string {
	const hex = "0123456789ABCDEF"
	var b []byte
	for i, r := range s {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		if !must(r) {
			b = append(b, s[i:i+size]...)
			continue
		}
		for _, c := range []byte(s[i : i+size]) {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// formatPartition returns row i of the array as a partition value; nil is null. Spec: "Partition Value Serialization".
func formatPartition(t Type, arr arrow.Array, i int) *string {
	if arr == nil || arr.IsNull(i) {
		return nil
	}
	var s string
	switch a := arr.(type) {
	case *array.Boolean:
		s = strconv.FormatBool(a.Value(i))
	case *array.Int8:
		s = strconv.Itoa(int(a.Value(i)))
	case *array.Int16:
		s = strconv.Itoa(int(a.Value(i)))
	case *array.Int32:
		s = strconv.Itoa(int(a.Value(i)))
	case *array.Int64:
		s = strconv.FormatInt(a.Value(i), 10)
	case *array.Float32:
		s = formatJavaFloat(float64(a.Value(i)), 32)
	case *array.Float64:
		s = formatJavaFloat(a.Value(i), 64)
	case *array.Decimal128:
		s = a.Value(i).ToString(int32(t.(Decimal).Scale))
	case *array.Date32:
		s = formatDate(int64(a.Value(i)))
	case *array.Timestamp:
		s = formatMicros(int64(a.Value(i)), t == Timestamp)
	case *array.String:
		s = strings.Clone(a.Value(i))
	case *array.LargeString:
		s = strings.Clone(a.Value(i))
	case *array.Binary:
		s = string(a.Value(i))
	case *array.LargeBinary:
		s = string(a.Value(i))
	default:
		return nil // an array of type null
	}
	if s == "" {
		return nil
	}
	return &s
}

// formatJavaFloat writes a number as Java's toString does: in decimals from 1e-3 up to 1e7, else as 1.0E10.
func formatJavaFloat(v float64, bits int) string {
	switch {
	case v != v:
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	if abs := math.Abs(v); abs == 0 || abs >= 1e-3 && abs < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'E', -1, bits), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}

func formatDate(days int64) string {
	y, m, d := time.Unix(days*86400, 0).UTC().Date()
	return formatYear(y) + fmt.Sprintf("-%02d-%02d", m, d)
}

func formatYear(y int) string {
	if y < 0 {
		return fmt.Sprintf("-%04d", -y)
	}
	return fmt.Sprintf("%04d", y)
}

// formatMicros writes an instant as 2024-01-01T10:00:00.000000Z and a wall clock as 2024-01-01 10:00:00.000000.
func formatMicros(us int64, instant bool) string {
	t := time.UnixMicro(us).UTC()
	if instant {
		return formatYear(t.Year()) + t.Format("-01-02T15:04:05.000000Z")
	}
	return formatYear(t.Year()) + t.Format("-01-02 15:04:05.000000")
}
