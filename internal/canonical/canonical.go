// Package canonical prints rows in one form on which every program agrees, so that a SHA-256 tells whether two of them
// read the same from a table.
//
// A row is a JSON object on one line as encoding/json prints it without HTML escaping; keys are sorted by their
// bytes; nulls are written. Decimals, dates, timestamps and binary are strings, maps are arrays of {"key","value"} in
// the order of the key's text. The digest of a table is the SHA-256 of its lines, sorted by their bytes, each closed
// by a line feed.
//
// Guarantees: the lines depend on values alone, not on the order of columns, batches or dictionaries. A Digest's memory
// is bounded: runs of sorted lines go to a temporary file.
//
// Non-goals: reading rows back; types that Delta tables do not have.
//
//	enc := canonical.NewEncoder(schema)
//	line, err := enc.AppendRow(nil, batch, 0) // {"amount":"1.50","id":1}
package canonical

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Encoder prints the rows of batches of one schema. It is safe for concurrent use.
type Encoder struct {
	order []int    // the columns by their names
	names [][]byte // of each in order: the key with its colon
}

// NewEncoder prepares for batches of the schema.
func NewEncoder(schema *arrow.Schema) *Encoder {
	e := &Encoder{}
	e.order, e.names = sortedFields(schema.Fields())
	return e
}

func sortedFields(fields []arrow.Field) (order []int, names [][]byte) {
	for i := range fields {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(fields[a].Name, fields[b].Name) })
	for _, i := range order {
		names = append(names, append(appendString(nil, fields[i].Name), ':'))
	}
	return order, names
}

// AppendRow appends row i of the batch, without a line feed. Errors: a type that has no canonical form; a variant that
// does not decode.
func (e *Encoder) AppendRow(dst []byte, rec arrow.RecordBatch, i int) ([]byte, error) {
	dst = append(dst, '{')
	for k, c := range e.order {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e.names[k]...)
		var err error
		if dst, err = appendValue(dst, rec.Column(c), i); err != nil {
			return nil, fmt.Errorf("column %q: %w", rec.ColumnName(c), err)
		}
	}
	return append(dst, '}'), nil
}

func appendValue(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	if arr.IsNull(i) || arr.DataType().ID() == arrow.NULL {
		return append(dst, "null"...), nil
	}
	switch a := arr.(type) {
	case *array.Boolean:
		return strconv.AppendBool(dst, a.Value(i)), nil
	case *array.Int8:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), nil
	case *array.Int16:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), nil
	case *array.Int32:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), nil
	case *array.Int64:
		return strconv.AppendInt(dst, a.Value(i), 10), nil
	case *array.Float32:
		return appendFloat(dst, float64(a.Value(i)), 32), nil
	case *array.Float64:
		return appendFloat(dst, a.Value(i), 64), nil
	case *array.Decimal128:
		return appendQuoted(dst, a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)), nil
	case *array.String:
		return appendString(dst, a.Value(i)), nil
	case *array.LargeString:
		return appendString(dst, a.Value(i)), nil
	case *array.Binary:
		return appendBinary(dst, a.Value(i)), nil
	case *array.LargeBinary:
		return appendBinary(dst, a.Value(i)), nil
	case *array.Date32:
		return appendQuoted(dst, date(int64(a.Value(i)))), nil
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType)
		return appendQuoted(dst, moment(a.Value(i).ToTime(t.Unit), t.TimeZone != "")), nil
	case *array.Dictionary:
		return appendValue(dst, a.Dictionary(), a.GetValueIndex(i))
	}
	return appendNested(dst, arr, i)
}

func appendNested(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	switch a := arr.(type) {
	case *array.Struct:
		if isVariant(a.DataType().(*arrow.StructType)) {
			return appendVariant(dst, a, i)
		}
		return appendStruct(dst, a, i)
	case *array.Map:
		from, to := a.ValueOffsets(i)
		return appendEntries(dst, a.Keys(), a.Items(), int(from), int(to))
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		if s, ok := a.ListValues().(*array.Struct); ok && isEntry(s.DataType().(*arrow.StructType)) {
			return appendEntries(dst, s.Field(0), s.Field(1), int(from), int(to))
		}
		dst = append(dst, '[')
		for at := from; at < to; at++ {
			if at > from {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendValue(dst, a.ListValues(), int(at)); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case array.ExtensionArray:
		return appendValue(dst, a.Storage(), i)
	}
	return nil, fmt.Errorf("values of type %s have no canonical form", arr.DataType())
}

func appendStruct(dst []byte, s *array.Struct, i int) ([]byte, error) {
	order, names := sortedFields(s.DataType().(*arrow.StructType).Fields())
	dst = append(dst, '{')
	for k, f := range order {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, names[k]...)
		var err error
		if dst, err = appendValue(dst, s.Field(f), i); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// isEntry tells the lists of {key, value} that engines without maps make of maps.
func isEntry(t *arrow.StructType) bool {
	return t.NumFields() == 2 && t.Field(0).Name == "key" && t.Field(1).Name == "value"
}

func appendEntries(dst []byte, keys, items arrow.Array, from, to int) ([]byte, error) {
	type entry struct{ key, value []byte }
	entries := make([]entry, 0, to-from)
	for i := from; i < to; i++ {
		key, err := appendValue(nil, keys, i)
		if err != nil {
			return nil, err
		}
		value, err := appendValue(nil, items, i)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{key, value})
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	dst = append(dst, '[')
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"key":`...), e.key...)
		dst = append(append(dst, `,"value":`...), e.value...)
		dst = append(dst, '}')
	}
	return append(dst, ']'), nil
}

// appendFloat writes the shortest digits that give v back in its width, with the exponents of ECMAScript.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	abs := math.Abs(v)
	small, large := abs < 1e-6, abs >= 1e21
	if bits == 32 {
		small, large = float32(abs) < 1e-6, float32(abs) >= 1e21
	}
	if abs == 0 || !small && !large {
		return strconv.AppendFloat(dst, v, 'f', -1, bits)
	}
	dst = strconv.AppendFloat(dst, v, 'e', -1, bits)
	if n := len(dst); dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}

func appendQuoted(dst []byte, plain string) []byte {
	return append(append(append(dst, '"'), plain...), '"')
}

func appendBinary(dst, v []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, '"')
}

func date(days int64) string {
	t := time.Unix(days*86400, 0).UTC()
	return year(t) + t.Format("-01-02")
}

func moment(t time.Time, instant bool) string {
	t = t.UTC()
	if instant {
		return year(t) + t.Format("-01-02T15:04:05.000000Z")
	}
	return year(t) + t.Format("-01-02T15:04:05.000000")
}

// year has four digits or more; years before 0 have a sign.
func year(t time.Time) string {
	if t.Year() < 0 {
		return fmt.Sprintf("-%04d", -t.Year())
	}
	return fmt.Sprintf("%04d", t.Year())
}

// appendString writes s with the escapes of encoding/json without HTML.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', c)
		case r == '\b':
			dst = append(dst, `\b`...)
		case r == '\f':
			dst = append(dst, `\f`...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case r == utf8.RuneError && size == 1:
			dst = append(dst, `\ufffd`...)
		case r == '\u2028':
			dst = append(dst, `\u2028`...)
		case r == '\u2029':
			dst = append(dst, `\u2029`...)
		default:
			dst = append(dst, s[i:i+size]...)
		}
		i += size
	}
	return append(dst, '"')
}
