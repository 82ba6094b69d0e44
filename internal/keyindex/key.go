package keyindex

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Fingerprint stands for a key: SipHash-2-4 of its canonical bytes under the secret of the index.
// Fingerprints of different indexes do not compare.
type Fingerprint struct{ Hi, Lo uint64 }

func (f Fingerprint) compare(o Fingerprint) int {
	if f.Hi != o.Hi {
		return cmp.Compare(f.Hi, o.Hi)
	}
	return cmp.Compare(f.Lo, o.Lo)
}

// The canonical bytes of a key are those of its values, one after another; each starts with the kind of its
// type, so that no two types, and no two ways to cut bytes into values, look alike. What Spark's = calls
// equal has equal bytes: both zeroes, and all NaNs. Null has the kind with the top bit set, and no value.
const (
	kindBoolean   = iota + 1 // 1 byte
	kindByte                 // 8 bytes, little-endian, as all integers
	kindShort                //
	kindInteger              //
	kindLong                 //
	kindFloat                // 4 bytes of IEEE 754
	kindDouble               // 8 bytes
	kindDecimal              // scale, 16 bytes unscaled
	kindString               // uvarint of the length, bytes
	kindBinary               //
	kindDate                 // days since 1970, as an integer
	kindTimestamp            // microseconds since 1970 UTC, as an integer
	kindTimestampNTZ
	kindNull = 0x80
)

// Hasher turns keys into the fingerprints of one index. It is safe for concurrent use and outlives the Index.
type Hasher struct {
	secret  secret
	columns int
	nulls   bool
}

// NewHasher returns a hasher that belongs to no index, of keys with so many columns, any of which may be null. Its secret is
// its own.
func NewHasher(columns int) *Hasher {
	return &Hasher{secret: newSecret(), columns: columns, nulls: true}
}

// Append appends the fingerprint of each row to dst. The columns are those of the key in its order, of equal
// length; that their types are those of the index is the caller's word. Errors: *NullKeyError (dst is
// returned as it was); a type that no key can have.
func (h *Hasher) Append(dst []Fingerprint, columns []arrow.Array) ([]Fingerprint, error) {
	if len(columns) != h.columns {
		return dst, fmt.Errorf("hash keys: found %d columns, the key has %d", len(columns), h.columns)
	}
	values := make([]func([]byte, int) []byte, len(columns))
	for i, col := range columns {
		if col.Len() != columns[0].Len() {
			return dst, fmt.Errorf("hash keys: column %d has %d rows, column 0 has %d", i, col.Len(), columns[0].Len())
		}
		value, err := h.column(i, col)
		if err != nil {
			return dst, err
		}
		values[i] = value
	}
	if long, ok := columns[0].(*array.Int64); ok && len(columns) == 1 && long.NullN() == 0 {
		return h.longs(dst, long.Int64Values()), nil
	}
	var key []byte
	for row := range columns[0].Len() {
		key = key[:0]
		for _, value := range values {
			key = value(key, row)
		}
		dst = append(dst, h.secret.sum(key))
	}
	return dst, nil
}

// longs hashes keys of one column of 64-bit integers, whose nine bytes need no buffer.
func (h *Hasher) longs(dst []Fingerprint, values []int64) []Fingerprint {
	dst = slices.Grow(dst, len(values))
	for _, v := range values {
		dst = append(dst, h.secret.sumNine(kindLong, uint64(v)))
	}
	return dst
}

// column returns what appends the canonical bytes of a row's value.
func (h *Hasher) column(i int, col arrow.Array) (func([]byte, int) []byte, error) {
	kind, value := values(col)
	if value == nil {
		return nil, fmt.Errorf("hash keys: column %d is of type %s, which no key can have", i, col.DataType())
	}
	some := func(dst []byte, row int) []byte { return value(append(dst, kind), row) }
	if col.NullN() == 0 {
		return some, nil
	}
	if !h.nulls {
		for row := range col.Len() {
			if col.IsNull(row) {
				return nil, &NullKeyError{Column: i, Row: row}
			}
		}
	}
	return func(dst []byte, row int) []byte {
		if col.IsNull(row) {
			return append(dst, kind|kindNull)
		}
		return some(dst, row)
	}, nil
}

// values tells the kind of a column, and what appends a value that is not null; nil for a type that has none.
func values(col arrow.Array) (kind byte, appendValue func([]byte, int) []byte) {
	switch a := col.(type) {
	case *array.Boolean:
		return kindBoolean, func(dst []byte, i int) []byte {
			if a.Value(i) {
				return append(dst, 1)
			}
			return append(dst, 0)
		}
	case *array.Int8:
		return kindByte, integer(a.Int8Values())
	case *array.Int16:
		return kindShort, integer(a.Int16Values())
	case *array.Int32:
		return kindInteger, integer(a.Int32Values())
	case *array.Int64:
		return kindLong, integer(a.Int64Values())
	case *array.Date32:
		return kindDate, integer(a.Date32Values())
	case *array.Timestamp:
		return timestamp(a)
	case *array.Float32:
		return kindFloat, func(dst []byte, i int) []byte {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(normal(float64(a.Value(i))))))
		}
	case *array.Float64:
		return kindDouble, func(dst []byte, i int) []byte {
			return binary.LittleEndian.AppendUint64(dst, math.Float64bits(normal(a.Value(i))))
		}
	case *array.Decimal128:
		scale := byte(a.DataType().(*arrow.Decimal128Type).Scale)
		return kindDecimal, func(dst []byte, i int) []byte {
			v := a.Value(i)
			dst = binary.LittleEndian.AppendUint64(append(dst, scale), v.LowBits())
			return binary.LittleEndian.AppendUint64(dst, uint64(v.HighBits()))
		}
	case array.StringLike:
		return kindString, sized(a.Value)
	case *array.Binary:
		return kindBinary, sized(a.Value)
	case *array.LargeBinary:
		return kindBinary, sized(a.Value)
	}
	return 0, nil
}

// timestamp takes microseconds, in which Delta counts.
func timestamp(a *array.Timestamp) (kind byte, appendValue func([]byte, int) []byte) {
	t := a.DataType().(*arrow.TimestampType)
	switch {
	case t.Unit != arrow.Microsecond:
		return 0, nil
	case t.TimeZone == "":
		return kindTimestampNTZ, integer(a.TimestampValues())
	}
	return kindTimestamp, integer(a.TimestampValues())
}

func integer[T ~int8 | ~int16 | ~int32 | ~int64](values []T) func([]byte, int) []byte {
	return func(dst []byte, i int) []byte {
		return binary.LittleEndian.AppendUint64(dst, uint64(int64(values[i])))
	}
}

func sized[T string | []byte](value func(int) T) func([]byte, int) []byte {
	return func(dst []byte, i int) []byte {
		v := value(i)
		return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
	}
}

// normal is one number for all that are equal: zero has no sign, and there is one NaN.
func normal(v float64) float64 {
	switch {
	case v != v:
		return math.NaN()
	case v == 0:
		return 0
	}
	return v
}
