package expr

import (
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// DenseType is the type of the array that Dense makes of one of type t: the same values, one after another. Dictionaries
// and runs become their values; strings, binaries and lists get 32-bit offsets; narrow decimals get 128 bits; an
// extension becomes its storage, unless that is nested. All other types stay what they are.
func DenseType(t arrow.DataType) arrow.DataType {
	var dense arrow.DataType
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return DenseType(t.ValueType)
	case *arrow.RunEndEncodedType:
		return DenseType(t.Encoded())
	case *arrow.LargeStringType, *arrow.StringViewType:
		return typeString
	case *arrow.LargeBinaryType, *arrow.BinaryViewType, *arrow.FixedSizeBinaryType:
		return typeBinary
	case *arrow.Decimal32Type:
		return decimalType(t.Precision, t.Scale)
	case *arrow.Decimal64Type:
		return decimalType(t.Precision, t.Scale)
	case arrow.ExtensionType:
		if _, nested := t.StorageType().(arrow.NestedType); nested {
			return t
		}
		return DenseType(t.StorageType())
	case *arrow.MapType:
		m := arrow.MapOfFields(denseField(t.KeyField()), denseField(t.ItemField()))
		m.KeysSorted = t.KeysSorted
		dense = m
	case arrow.ListLikeType:
		dense = arrow.ListOfField(denseField(t.ElemField()))
	case *arrow.StructType:
		fields := make([]arrow.Field, t.NumFields())
		for i, f := range t.Fields() {
			fields[i] = denseField(f)
		}
		dense = arrow.StructOf(fields...)
	}
	if dense == nil || arrow.TypeEqual(dense, t) {
		return t
	}
	return dense
}

func denseField(f arrow.Field) arrow.Field {
	f.Type = DenseType(f.Type)
	return f
}

// DenseSchema is the schema of the batches that DenseBatch makes of those of s.
func DenseSchema(s *arrow.Schema) *arrow.Schema {
	fields := s.Fields()
	if !slices.ContainsFunc(fields, func(f arrow.Field) bool { return DenseType(f.Type) != f.Type }) {
		return s
	}
	for i, f := range fields {
		fields[i] = denseField(f)
	}
	meta := s.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// DenseBatch is the batch with each column as Dense makes it. The result is the caller's. Errors: as Dense.
func DenseBatch(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	schema := DenseSchema(rec.Schema())
	if schema == rec.Schema() {
		rec.Retain()
		return rec, nil
	}
	columns := make([]arrow.Array, 0, rec.NumCols())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for _, c := range rec.Columns() {
		d, err := Dense(c)
		if err != nil {
			return nil, err
		}
		columns = append(columns, d)
	}
	return array.NewRecordBatch(schema, columns, rec.NumRows()), nil
}

// Dense is the array as one of DenseType; the array itself, retained, when it is one. The result is the caller's. Errors:
// strings, or elements of lists, of more than 2 GiB.
func Dense(arr arrow.Array) (arrow.Array, error) {
	t := DenseType(arr.DataType())
	if arrow.TypeEqual(t, arr.DataType()) {
		arr.Retain()
		return arr, nil
	}
	switch a := arr.(type) {
	case array.ExtensionArray:
		return Dense(a.Storage())
	case *array.Dictionary:
		return denseValues(a.Dictionary(), a, a.GetValueIndex)
	case *array.RunEndEncoded:
		return denseValues(a.Values(), a, a.GetPhysicalIndex)
	case *array.LargeString, *array.LargeBinary:
		return denseOffsets(t, arr)
	case *array.StringView:
		return denseBytes(t, a, func(i int) []byte { return []byte(a.Value(i)) })
	case *array.BinaryView:
		return denseBytes(t, a, a.Value)
	case *array.FixedSizeBinary:
		return denseBytes(t, a, a.Value)
	case *array.Decimal32:
		return denseDecimals(t, a, func(i int) int64 { return int64(a.Value(i)) }), nil
	case *array.Decimal64:
		return denseDecimals(t, a, func(i int) int64 { return int64(a.Value(i)) }), nil
	case *array.Struct:
		return denseChildren(t, a.Data())
	case *array.Map:
		return denseChildren(t, a.Data())
	case *array.List:
		return denseChildren(t, a.Data())
	}
	return denseList(t, arr.(array.ListLike))
}

// denseValues is the value that each row of an array refers to by its place.
func denseValues(values arrow.Array, arr arrow.Array, place func(row int) int) (arrow.Array, error) {
	values, err := Dense(values)
	if err != nil {
		return nil, err
	}
	defer values.Release()
	sizes := sizesOf(values)
	total := 0
	spans := make([]Span, arr.Len())
	for i := range spans {
		if spans[i] = nullRow; arr.IsNull(i) {
			continue
		}
		at := place(i)
		spans[i] = Span{at, at + 1}
		if total += sizes(at); total > math.MaxInt32 {
			return nil, errTooLarge
		}
	}
	return Take(values, spans), nil
}

// sizesOf tells what a value adds to what 32-bit offsets count.
func sizesOf(values arrow.Array) func(int) int {
	switch v := values.(type) {
	case *array.String:
		return v.ValueLen
	case *array.Binary:
		return v.ValueLen
	case array.ListLike:
		return func(i int) int {
			from, to := v.ValueOffsets(i)
			return int(to - from)
		}
	}
	return func(int) int { return 0 }
}

// denseOffsets is large strings or binaries with 32-bit offsets into the same bytes.
func denseOffsets(t arrow.DataType, arr arrow.Array) (arrow.Array, error) {
	d := arr.Data()
	offsets, first, last, err := narrowOffsets(d)
	if err != nil {
		return nil, err
	}
	var data *memory.Buffer
	if b := d.Buffers()[2]; b != nil {
		data = memory.SliceBuffer(b, int(first), int(last-first))
		defer data.Release()
	}
	return denseData(t, arr, []*memory.Buffer{offsets, data}), nil
}

// narrowOffsets are the 64-bit offsets of the rows, from 0, in 32 bits, and what they went from and to.
func narrowOffsets(d arrow.ArrayData) (offsets *memory.Buffer, first, last int64, err error) {
	out := make([]int32, d.Len()+1)
	if d.Len() > 0 {
		in := arrow.Int64Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
		first, last = in[0], in[d.Len()]
		if last-first > math.MaxInt32 {
			return nil, 0, 0, errTooLarge
		}
		for i, o := range in {
			out[i] = int32(o - first)
		}
	}
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(out)), first, last, nil
}

// denseData is an array with the validity of another and values of its own.
func denseData(t arrow.DataType, arr arrow.Array, values []*memory.Buffer, children ...arrow.ArrayData) arrow.Array {
	buffers := []*memory.Buffer{nil}
	if arr.NullN() > 0 {
		buffers[0] = bitsOf(arr.NullBitmapBytes(), arr.Data().Offset(), arr.Len()).buffer()
	}
	data := array.NewData(t, arr.Len(), append(buffers, values...), children, arr.NullN(), 0)
	defer data.Release()
	return array.MakeFromData(data)
}

func denseBytes(t arrow.DataType, arr arrow.Array, value func(int) []byte) (arrow.Array, error) {
	offsets := make([]int32, arr.Len()+1)
	var data []byte
	for i := range arr.Len() {
		if arr.IsValid(i) {
			data = append(data, value(i)...)
		}
		if len(data) > math.MaxInt32 {
			return nil, errTooLarge
		}
		offsets[i+1] = int32(len(data))
	}
	return denseData(t, arr, []*memory.Buffer{memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)),
		memory.NewBufferBytes(data)}), nil
}

func denseDecimals(t arrow.DataType, arr arrow.Array, value func(int) int64) arrow.Array {
	out := make([]decimal128.Num, arr.Len())
	for i := range out {
		if arr.IsValid(i) {
			out[i] = decimal128.FromI64(value(i))
		}
	}
	values := memory.NewBufferBytes(arrow.Decimal128Traits.CastToBytes(out))
	return denseData(t, arr, []*memory.Buffer{values})
}

// denseChildren is a struct, map or list that differs in its children only.
func denseChildren(t arrow.DataType, d arrow.ArrayData) (arrow.Array, error) {
	var children []arrow.ArrayData
	for _, c := range d.Children() {
		arr := array.MakeFromData(c)
		defer arr.Release()
		dense, err := Dense(arr)
		if err != nil {
			return nil, err
		}
		defer dense.Release()
		children = append(children, dense.Data())
	}
	data := array.NewData(t, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data), nil
}

// denseList is a list of another layout: its elements row by row, without those that no row has.
func denseList(t arrow.DataType, list array.ListLike) (arrow.Array, error) {
	elements, err := Dense(list.ListValues())
	if err != nil {
		return nil, err
	}
	defer elements.Release()
	offsets := make([]int32, list.Len()+1)
	spans := make([]Span, 0, list.Len())
	total := 0
	for i := range list.Len() {
		if list.IsValid(i) {
			from, to := list.ValueOffsets(i)
			spans = append(spans, Span{int(from), int(to)})
			total += int(to - from)
		}
		if total > math.MaxInt32 {
			return nil, errTooLarge
		}
		offsets[i+1] = int32(total)
	}
	taken := Take(elements, spans)
	defer taken.Release()
	buffer := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
	return denseData(t, list, []*memory.Buffer{buffer}, taken.Data()), nil
}
