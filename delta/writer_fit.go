package delta

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// ValueError says that a value of a batch is none of the column's type.
type ValueError struct {
	Column        string // path of the column, its parts joined by dots
	Row           int    // of the batch, from 0; -1 below a list or map
	Found, Wanted string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("column %q, row %d: found %s, wanted %s", e.Column, e.Row, e.Found, e.Wanted)
}

// deltaTypeOf is the type that has all values of an Arrow type of which Delta has no counterpart: of unsigned integers the
// next wider one, of timestamps that in µs.
func deltaTypeOf(t arrow.DataType) (Type, bool) {
	switch t.ID() {
	case arrow.UINT8:
		return Short, true
	case arrow.UINT16:
		return Integer, true
	case arrow.UINT32:
		return Long, true
	case arrow.UINT64:
		return Decimal{Precision: 20}, true
	case arrow.TIMESTAMP:
		switch ts := t.(*arrow.TimestampType); {
		case ts.Unit == arrow.Microsecond:
			return nil, false
		case ts.TimeZone == "":
			return TimestampNTZ, true
		}
		return Timestamp, true
	}
	return nil, false
}

// fits reports whether values of an Arrow type without counterpart may be those of t. Each one is looked at: unsigned
// integers go into any column of whole numbers that they are within.
func fits(t Type, a arrow.DataType) bool {
	own, ok := deltaTypeOf(a)
	if !ok || own == t {
		return ok
	}
	d, decimal := t.(Decimal)
	whole := t == Byte || t == Short || t == Integer || t == Long || decimal && d.Scale == 0
	return whole && a.ID() != arrow.TIMESTAMP
}

// foreign reports whether a type, or one in it, has no counterpart in Delta.
func foreign(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.StructType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return foreign(f.Type) })
	case *arrow.MapType:
		return foreign(t.KeyType()) || foreign(t.ItemType())
	case arrow.ListLikeType:
		return foreign(t.Elem())
	}
	_, ok := deltaTypeOf(t)
	return ok
}

// fitter gives dense arrays the types that columns have.
type fitter struct {
	truncate bool // nanoseconds are cut to µs
}

// fit returns the array with values of the column's type, the caller's. Errors: *ValueError.
func (f fitter) fit(t Type, arr arrow.Array, path string, nested bool) (arrow.Array, error) {
	if !foreign(arr.DataType()) {
		arr.Retain()
		return arr, nil
	}
	switch t := t.(type) {
	case *Struct:
		return f.fitStruct(t, arr.(*array.Struct), path, nested)
	case *Array:
		l := arr.(*array.List)
		values, err := f.fit(t.Element, l.ListValues(), columnPath(path, "element"), true)
		if err != nil {
			return nil, err
		}
		defer values.Release()
		element := l.DataType().(*arrow.ListType).ElemField()
		element.Type = values.DataType()
		return rebuild(arrow.ListOfField(element), l.Data(), values.Data())
	case *Map:
		return f.fitMap(t, arr.(*array.Map), path)
	}
	return f.fitValues(t, arr, path, nested)
}

func (f fitter) fitStruct(t *Struct, s *array.Struct, path string, nested bool) (arrow.Array, error) {
	fields := slices.Clone(s.DataType().(*arrow.StructType).Fields())
	var children []arrow.ArrayData
	for i := range fields {
		field, _ := lookupField(t.Fields, fields[i].Name)
		child, err := f.fit(field.Type, s.Field(i), columnPath(path, field.Name), nested)
		if err != nil {
			return nil, err
		}
		defer child.Release()
		fields[i].Type, children = child.DataType(), append(children, child.Data())
	}
	// the children are those of the rows of s, wherever it begins in its memory
	var valid *memory.Buffer
	if s.NullN() > 0 {
		bits := make([]byte, bitutil.BytesForBits(int64(s.Len())))
		bitutil.CopyBitmap(s.NullBitmapBytes(), s.Data().Offset(), s.Len(), bits, 0)
		valid = memory.NewBufferBytes(bits)
	}
	data := array.NewData(arrow.StructOf(fields...), s.Len(), []*memory.Buffer{valid}, children, s.NullN(), 0)
	defer data.Release()
	return array.NewStructData(data), nil
}

func (f fitter) fitMap(t *Map, m *array.Map, path string) (arrow.Array, error) {
	keys, err := f.fit(t.Key, m.Keys(), columnPath(path, "key"), true)
	if err != nil {
		return nil, err
	}
	defer keys.Release()
	items, err := f.fit(t.Value, m.Items(), columnPath(path, "value"), true)
	if err != nil {
		return nil, err
	}
	defer items.Release()
	was := m.DataType().(*arrow.MapType)
	key, item := was.KeyField(), was.ItemField()
	key.Type, item.Type = keys.DataType(), items.DataType()
	pairs := array.NewData(arrow.StructOf(key, item), keys.Len(), []*memory.Buffer{nil},
		[]arrow.ArrayData{keys.Data(), items.Data()}, 0, 0)
	defer pairs.Release()
	return rebuild(arrow.MapOfFields(key, item), m.Data(), pairs)
}

// fitValues converts values one by one.
func (f fitter) fitValues(t Type, arr arrow.Array, path string, nested bool) (arrow.Array, error) {
	put, b := f.putter(t, arr)
	defer b.Release()
	b.Reserve(arr.Len())
	for i := range arr.Len() {
		if arr.IsNull(i) {
			b.AppendNull()
			continue
		}
		if wanted := put(i); wanted != "" {
			e := &ValueError{Column: path, Row: i, Found: arr.ValueStr(i), Wanted: wanted}
			if nested {
				e.Row = -1
			}
			return nil, e
		}
	}
	return b.NewArray(), nil
}

// putter returns what appends value i, or says what is wanted in its place.
func (f fitter) putter(t Type, arr arrow.Array) (put func(i int) (wanted string), b array.Builder) {
	b = array.NewBuilder(memory.DefaultAllocator, ArrowType(t))
	if ts, ok := arr.(*array.Timestamp); ok {
		unit := ts.DataType().(*arrow.TimestampType).Unit
		return func(i int) string {
			v, wanted := f.micros(int64(ts.Value(i)), unit)
			if wanted == "" {
				b.(*array.TimestampBuilder).Append(arrow.Timestamp(v))
			}
			return wanted
		}, b
	}
	value := unsigned(arr)
	most, digits := uint64(math.MaxInt64), 0
	var take func(v uint64)
	switch b := b.(type) {
	case *array.Int8Builder:
		most, take = math.MaxInt8, func(v uint64) { b.Append(int8(v)) }
	case *array.Int16Builder:
		most, take = math.MaxInt16, func(v uint64) { b.Append(int16(v)) }
	case *array.Int32Builder:
		most, take = math.MaxInt32, func(v uint64) { b.Append(int32(v)) }
	case *array.Int64Builder:
		take = func(v uint64) { b.Append(int64(v)) }
	case *array.Decimal128Builder:
		most, digits, take = math.MaxUint64, t.(Decimal).Precision, func(v uint64) { b.Append(decimal128.New(0, v)) }
	}
	return func(i int) string {
		v := value(i)
		if v > most || digits > 0 && digits < 20 && len(strconv.FormatUint(v, 10)) > digits {
			return "a value of " + t.String()
		}
		take(v)
		return ""
	}, b
}

// unsigned returns value i of an array of unsigned integers.
func unsigned(arr arrow.Array) func(i int) uint64 {
	switch a := arr.(type) {
	case *array.Uint8:
		return func(i int) uint64 { return uint64(a.Value(i)) }
	case *array.Uint16:
		return func(i int) uint64 { return uint64(a.Value(i)) }
	case *array.Uint32:
		return func(i int) uint64 { return uint64(a.Value(i)) }
	}
	return arr.(*array.Uint64).Value
}

// micros converts a moment to µs, or says what is wanted in its place.
func (f fitter) micros(v int64, unit arrow.TimeUnit) (us int64, wanted string) {
	scale := int64(1000)
	switch unit {
	case arrow.Nanosecond:
		if us = floorDiv(v, 1000); us*1000 != v && !f.truncate {
			return 0, "whole microseconds, which is what Delta holds"
		}
		return us, ""
	case arrow.Second:
		scale = 1_000_000
	}
	if us = v * scale; us/scale != v {
		return 0, "a moment within 64 bits of microseconds"
	}
	return us, ""
}
