package quality

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/internal/pgtext"
)

// reader reads rows of either side: their keys as text, and hashes of their values, which are the same for the same values. One
// goroutine uses it.
type reader struct {
	seed    maphash.Seed
	second  maphash.Seed
	names   []string // of all columns that are compared
	keys    []string // of those of the key
	alike   bool     // there is no key, and keys are all columns: rows that are the same have a key of their own
	columns []arrow.Array
	key     []arrow.Array
	scratch []byte
}

func newReader(o Origin) *reader {
	r := &reader{seed: maphash.MakeSeed(), second: maphash.MakeSeed(), names: o.Columns(), keys: o.Key()}
	if r.alike = len(r.keys) == 0; r.alike {
		r.keys = r.names
	}
	return r
}

// bind takes up a batch with all columns that are compared.
func (r *reader) bind(batch arrow.RecordBatch) (err error) {
	if r.columns, err = columnsOf(batch, r.names, r.columns[:0]); err != nil {
		return err
	}
	return r.bindKey(batch)
}

// bindKey takes up a batch of which only the key counts.
func (r *reader) bindKey(batch arrow.RecordBatch) (err error) {
	r.key, err = columnsOf(batch, r.keys, r.key[:0])
	return err
}

func columnsOf(batch arrow.RecordBatch, names []string, into []arrow.Array) ([]arrow.Array, error) {
	for _, name := range names {
		at := -1
		for i, f := range batch.Schema().Fields() {
			if strings.EqualFold(f.Name, name) {
				at = i
			}
		}
		if at < 0 {
			return nil, columnError(name)
		}
		into = append(into, batch.Column(at))
	}
	return into, nil
}

// keyOf is the key of a row, as the source writes its values; ok is false when one is null. Without a key it is a hash of 128 bits of all
// values.
func (r *reader) keyOf(row int) (key []string, ok bool, err error) {
	if r.alike {
		content, err := r.content(row)
		return []string{content}, true, err
	}
	key = make([]string, len(r.key))
	for i, column := range r.key {
		if column.IsNull(row) {
			return key, false, nil
		}
		if key[i], err = pgtext.Of(column, row); err != nil {
			return nil, false, fmt.Errorf("column %s of the key: %w", r.keys[i], err)
		}
	}
	return key, true, nil
}

// content is a hash of the values of the key's columns, nulls among them.
func (r *reader) content(row int) (_ string, err error) {
	r.scratch = r.scratch[:0]
	for i, column := range r.key {
		if r.scratch, err = appendValue(r.scratch, column, row); err != nil {
			return "", fmt.Errorf("column %s: %w", r.keys[i], err)
		}
	}
	sum := binary.LittleEndian.AppendUint64(nil, maphash.Bytes(r.seed, r.scratch))
	return string(binary.LittleEndian.AppendUint64(sum, maphash.Bytes(r.second, r.scratch))), nil
}

// values are those of a row, for people.
func (r *reader) values(row int) []string {
	all := make([]string, len(r.columns))
	for i, column := range r.columns {
		var err error
		if all[i], err = pgtext.Of(column, row); err != nil || column.IsNull(row) {
			all[i] = strings.Clone(column.ValueStr(row))
		}
		if column.IsNull(row) {
			all[i] = "NULL"
		}
	}
	return all
}

// choose tells of each row of these columns of the key whether it is covered.
func (r *reader) choose(keys arrow.RecordBatch, covers func(key []string) bool) ([]bool, error) {
	if err := r.bindKey(keys); err != nil {
		return nil, err
	}
	chosen := make([]bool, keys.NumRows())
	for row := range chosen {
		key, whole, err := r.keyOf(row)
		if err != nil {
			return nil, err
		}
		chosen[row] = !whole || covers(key)
	}
	return chosen, nil
}

// KeyText is a value of a key as PostgreSQL writes it. Errors: a type that keys cannot have.
func KeyText(column arrow.Array, row int) (string, error) { return pgtext.Of(column, row) }

// Same reports whether two values are the same, of arrays of one type. Errors: a type whose values cannot be compared.
func Same(a arrow.Array, i int, b arrow.Array, j int) (bool, error) {
	x, err := appendValue(nil, a, i)
	if err != nil {
		return false, err
	}
	y, err := appendValue(nil, b, j)
	return bytes.Equal(x, y), err
}

// joinKey is a key as one text, for which splitKey gives it back.
func joinKey(key []string) string {
	var b []byte
	for _, v := range key {
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	return string(b)
}

func splitKey(joined string) (key []string) {
	for b := []byte(joined); len(b) > 0; {
		length, n := binary.Uvarint(b)
		key, b = append(key, string(b[n:n+int(length)])), b[n+int(length):]
	}
	return key
}

// hash is a hash of the values of a row, and how many bytes these are.
func (r *reader) hash(row int) (hash uint64, size int, err error) {
	r.scratch = r.scratch[:0]
	for i, column := range r.columns {
		if r.scratch, err = appendValue(r.scratch, column, row); err != nil {
			return 0, 0, fmt.Errorf("column %s: %w", r.names[i], err)
		}
	}
	return maphash.Bytes(r.seed, r.scratch), len(r.scratch), nil
}

// hashes are hashes of each value of a row.
func (r *reader) hashes(row int) ([]uint64, error) {
	all := make([]uint64, len(r.columns))
	for i, column := range r.columns {
		value, err := appendValue(r.scratch[:0], column, row)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", r.names[i], err)
		}
		r.scratch = value
		all[i] = maphash.Bytes(r.seed, value)
	}
	return all, nil
}

// appendValue appends a value so that those of two arrays of one type are the same when what is appended is: 0 for a null, else 1
// and the value, with its length where that differs.
func appendValue(b []byte, column arrow.Array, row int) ([]byte, error) {
	if column.IsNull(row) {
		return append(b, 0), nil
	}
	b = append(b, 1)
	switch c := column.(type) {
	case *array.Boolean:
		if c.Value(row) {
			return append(b, 1), nil
		}
		return append(b, 0), nil
	case *array.Int8:
		return append(b, byte(c.Value(row))), nil
	case *array.Int16:
		return binary.LittleEndian.AppendUint16(b, uint16(c.Value(row))), nil
	case *array.Int32:
		return binary.LittleEndian.AppendUint32(b, uint32(c.Value(row))), nil
	case *array.Int64:
		return binary.LittleEndian.AppendUint64(b, uint64(c.Value(row))), nil
	case *array.Date32:
		return binary.LittleEndian.AppendUint32(b, uint32(c.Value(row))), nil
	case *array.Timestamp:
		return binary.LittleEndian.AppendUint64(b, uint64(c.Value(row))), nil
	case *array.Float32:
		return binary.LittleEndian.AppendUint64(b, floatBits(float64(c.Value(row)))), nil
	case *array.Float64:
		return binary.LittleEndian.AppendUint64(b, floatBits(c.Value(row))), nil
	case *array.Decimal128:
		v := c.Value(row)
		b = binary.LittleEndian.AppendUint64(b, v.LowBits())
		return binary.LittleEndian.AppendUint64(b, uint64(v.HighBits())), nil
	case *array.String:
		return appendBytes(b, c.Value(row)), nil
	case *array.Binary:
		return appendBytes(b, string(c.Value(row))), nil
	}
	return appendNested(b, column, row)
}

func appendBytes(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// floatBits are the bits of a number, one and the same for all that are none.
func floatBits(v float64) uint64 {
	if v != v {
		return math.MaxUint64
	}
	return math.Float64bits(v)
}

// appendNested is appendValue for lists, maps and structs.
func appendNested(b []byte, column arrow.Array, row int) (_ []byte, err error) {
	switch c := column.(type) {
	case *array.Struct:
		for i := range c.NumField() {
			if b, err = appendValue(b, c.Field(i), row); err != nil {
				return b, err
			}
		}
		return b, nil
	case *array.Map:
		from, to := c.ValueOffsets(row)
		b = binary.AppendUvarint(b, uint64(to-from))
		for i := int(from); i < int(to) && err == nil; i++ {
			if b, err = appendValue(b, c.Keys(), i); err == nil {
				b, err = appendValue(b, c.Items(), i)
			}
		}
		return b, err
	case array.ListLike:
		from, to := c.ValueOffsets(row)
		b = binary.AppendUvarint(b, uint64(to-from))
		for i := int(from); i < int(to) && err == nil; i++ {
			b, err = appendValue(b, c.ListValues(), i)
		}
		return b, err
	}
	return b, fmt.Errorf("found the type %s, which cannot be compared", column.DataType())
}
