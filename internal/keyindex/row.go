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

// The canonical bytes of a whole row are those of its values that are not null, each behind the name of its column, in the order of
// these names. So a column that is null everywhere, as one that was just added, changes no fingerprint. Unlike in a key, two
// values are the same only if nobody can tell them apart: zeroes have a sign. All NaNs are one. Nested values are written as
// how many there are, then each behind a byte that says whether it is there.

// nestedKinds begin nested values; see kindBoolean.
const (
	kindStruct = iota + 0x40
	kindList
	kindMap
)

// AppendRows appends the fingerprint of each whole row to dst. names are those of the columns, each once; the index need not have
// any of these in its key. Errors: a type that Delta does not have.
func (h *Hasher) AppendRows(dst []Fingerprint, names []string, columns []arrow.Array) ([]Fingerprint, error) {
	if len(names) != len(columns) || len(columns) == 0 {
		return dst, fmt.Errorf("hash rows: found %d names and %d columns", len(names), len(columns))
	}
	type rowColumn struct {
		name  string
		array arrow.Array
		value func([]byte, int) []byte
	}
	all := make([]rowColumn, len(columns))
	for i, c := range columns {
		if c.Len() != columns[0].Len() {
			return dst, fmt.Errorf("hash rows: column %q has %d rows, column %q has %d", names[i], c.Len(), names[0], columns[0].Len())
		}
		value := exact(c)
		if value == nil {
			return dst, fmt.Errorf("hash rows: column %q is of type %s, which no table has", names[i], c.DataType())
		}
		all[i] = rowColumn{names[i], c, value}
	}
	slices.SortFunc(all, func(a, b rowColumn) int { return cmp.Compare(a.name, b.name) })
	var row []byte
	for i := range columns[0].Len() {
		row = row[:0]
		for _, c := range all {
			if c.array.IsNull(i) {
				continue
			}
			row = append(binary.AppendUvarint(row, uint64(len(c.name))), c.name...)
			row = c.value(row, i)
		}
		dst = append(dst, h.secret.sum(row))
	}
	return dst, nil
}

// exact returns what appends a value that is not null, its kind first; nil for a type that has none.
func exact(col arrow.Array) func([]byte, int) []byte {
	switch a := col.(type) {
	case *array.Float32:
		return func(dst []byte, i int) []byte {
			return binary.LittleEndian.AppendUint32(append(dst, kindFloat), math.Float32bits(float32(oneNaN(float64(a.Value(i))))))
		}
	case *array.Float64:
		return func(dst []byte, i int) []byte {
			return binary.LittleEndian.AppendUint64(append(dst, kindDouble), math.Float64bits(oneNaN(a.Value(i))))
		}
	case *array.Struct:
		fields := make([]func([]byte, int) []byte, a.NumField())
		for i := range fields {
			if fields[i] = orNull(a.Field(i)); fields[i] == nil {
				return nil
			}
		}
		return func(dst []byte, i int) []byte {
			dst = binary.AppendUvarint(append(dst, kindStruct), uint64(len(fields)))
			for _, field := range fields {
				dst = field(dst, i)
			}
			return dst
		}
	case *array.Map:
		return listed(kindMap, a, orNull(a.Keys()), orNull(a.Items()))
	case array.ListLike:
		return listed(kindList, a, orNull(a.ListValues()))
	}
	kind, value := values(col)
	if value == nil {
		return nil
	}
	return func(dst []byte, i int) []byte { return value(append(dst, kind), i) }
}

// listed appends the elements of a list, each of several parts; nil when one of these has a type that has no values.
func listed(kind byte, a array.ListLike, parts ...func([]byte, int) []byte) func([]byte, int) []byte {
	for _, part := range parts {
		if part == nil {
			return nil
		}
	}
	return func(dst []byte, i int) []byte {
		from, to := a.ValueOffsets(i)
		dst = binary.AppendUvarint(append(dst, kind), uint64(to-from))
		for at := int(from); at < int(to); at++ {
			for _, part := range parts {
				dst = part(dst, at)
			}
		}
		return dst
	}
}

// orNull is exact of values that may be null.
func orNull(col arrow.Array) func([]byte, int) []byte {
	value := exact(col)
	if value == nil {
		return nil
	}
	return func(dst []byte, i int) []byte {
		if col.IsNull(i) {
			return append(dst, kindNull)
		}
		return value(dst, i)
	}
}

// oneNaN is the number, or the one that stands for all that are none.
func oneNaN(v float64) float64 {
	if v != v {
		return math.NaN()
	}
	return v
}

// Numbered is the fingerprint of the row that is the nth, from 0 on, of rows that are alike: of this fingerprint. Like those of
// two keys, those of two rows never meet by chance, since they could only if two random words of 128 bits had one certain distance.
func (f Fingerprint) Numbered(n int64) Fingerprint {
	return Fingerprint{Hi: f.Hi + uint64(n)*0x9E3779B97F4A7C15, Lo: f.Lo + uint64(n)*0xBF58476D1CE4E5B9}
}
