package canonical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet/variant"
	"github.com/google/uuid"
)

// maxVariantDepth bounds how deep a variant that is printed nests.
const maxVariantDepth = 500

// isVariant tells the pair of binaries that a variant is read as.
func isVariant(t *arrow.StructType) bool {
	if t.NumFields() != 2 {
		return false
	}
	_, metadata := t.FieldIdx("metadata")
	_, value := t.FieldIdx("value")
	return metadata && value && t.Field(0).Type.ID() == arrow.BINARY && t.Field(1).Type.ID() == arrow.BINARY
}

func appendVariant(dst []byte, s *array.Struct, i int) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the library trusts the bytes of scalars
			out, err = nil, fmt.Errorf("a variant does not decode: %v", p)
		}
	}()
	t := s.DataType().(*arrow.StructType)
	m, _ := t.FieldIdx("metadata")
	v, _ := t.FieldIdx("value")
	if s.Field(m).IsNull(i) || s.Field(v).IsNull(i) {
		return append(dst, "null"...), nil
	}
	value, err := variant.New(s.Field(m).(*array.Binary).Value(i), s.Field(v).(*array.Binary).Value(i))
	if err != nil {
		return nil, fmt.Errorf("a variant does not decode: %w", err)
	}
	return appendPlain(dst, value, 0)
}

// appendPlain writes what a variant holds by the rules for columns.
func appendPlain(dst []byte, v variant.Value, depth int) ([]byte, error) {
	if depth > maxVariantDepth {
		return nil, fmt.Errorf("a variant nests deeper than %d", maxVariantDepth)
	}
	switch x := v.Value().(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return fmt.Append(dst, x), nil
	case int8, int16, int32, int64:
		return fmt.Append(dst, x), nil
	case float32:
		return appendFloat(dst, float64(x), 64), nil
	case float64:
		return appendFloat(dst, x, 64), nil
	case string:
		return appendString(dst, x), nil
	case []byte:
		return appendBinary(dst, x), nil
	case uuid.UUID:
		return appendQuoted(dst, x.String()), nil
	case arrow.Date32:
		return appendQuoted(dst, date(int64(x))), nil
	case arrow.Timestamp:
		return appendTimestamp(dst, v.Type(), x), nil
	case variant.DecimalValue[decimal.Decimal32]:
		return appendQuoted(dst, decimal128.FromI64(int64(x.Value.(decimal.Decimal32))).ToString(int32(x.Scale))), nil
	case variant.DecimalValue[decimal.Decimal64]:
		return appendQuoted(dst, decimal128.FromI64(int64(x.Value.(decimal.Decimal64))).ToString(int32(x.Scale))), nil
	case variant.DecimalValue[decimal.Decimal128]:
		return appendQuoted(dst, x.Value.(decimal.Decimal128).ToString(int32(x.Scale))), nil
	case variant.ArrayValue:
		return appendItems(dst, x, depth)
	case variant.ObjectValue:
		return appendObject(dst, x, depth)
	default:
		return nil, fmt.Errorf("a variant of type %d has no canonical form", v.Type())
	}
}

func appendTimestamp(dst []byte, t variant.Type, v arrow.Timestamp) []byte {
	switch t {
	case variant.TimestampMicros:
		return appendQuoted(dst, moment(v.ToTime(arrow.Microsecond), true))
	case variant.TimestampNanos:
		return appendQuoted(dst, moment(v.ToTime(arrow.Nanosecond), true))
	case variant.TimestampNanosNTZ:
		return appendQuoted(dst, moment(v.ToTime(arrow.Nanosecond), false))
	}
	return appendQuoted(dst, moment(v.ToTime(arrow.Microsecond), false))
}

func appendItems(dst []byte, a variant.ArrayValue, depth int) ([]byte, error) {
	dst = append(dst, '[')
	first := true
	for v := range a.Values() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		if dst, err = appendPlain(dst, v, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, o variant.ObjectValue, depth int) ([]byte, error) {
	type field struct {
		name  string
		value variant.Value
	}
	var fields []field
	for name, v := range o.Values() {
		fields = append(fields, field{name, v})
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, f.name), ':')
		var err error
		if dst, err = appendPlain(dst, f.value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
