package delta

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/variant"
	"github.com/google/uuid"
)

// maxVariantDepth bounds how deep the columns nest that a variant was shredded into.
const maxVariantDepth = 100

// conformVariant makes a file's variants the pair of metadata and value. Shredded ones are put together again. Spec:
// "Variant Data Type"; Parquet's "Variant Shredding".
func conformVariant(arr arrow.Array, path string) (arrow.Array, error) {
	s, ok := arr.(*array.Struct)
	if !ok {
		return nil, typeFault(path, arr, Variant)
	}
	fields := s.DataType().(*arrow.StructType).Fields()
	children := make(map[string]arrow.Array, len(fields))
	for i, f := range fields {
		children[f.Name] = s.Field(i)
	}
	metadata, ok := children["metadata"].(*array.Binary)
	value, hasValue := children["value"].(*array.Binary)
	typed := children["typed_value"]
	if !ok || !hasValue && typed == nil || len(children) > 3 {
		return nil, typeFault(path, arr, Variant)
	}
	if typed == nil {
		at := func(name string) arrow.ArrayData {
			i, _ := s.DataType().(*arrow.StructType).FieldIdx(name)
			return s.Data().Children()[i]
		}
		return rebuild(arrowVariant, s.Data(), at("metadata"), at("value"))
	}
	whole, err := newShredded(value, typed, 0)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", path, err)
	}
	out, err := whole.unshred(s, metadata)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", path, err)
	}
	return out, nil
}

// shredded is a pair of columns that together hold variants, or one of the pair.
type shredded struct {
	value    *array.Binary // what does not have the type of typed; nil: there is no such column
	typed    arrow.Array   // nil: there is no such column
	scalar   func(b *variant.Builder, i int) error
	fields   []shreddedField // of objects
	elements *shredded       // of arrays
}

type shreddedField struct {
	name  string
	group *array.Struct
	shredded
}

func newShredded(value *array.Binary, typed arrow.Array, depth int) (shredded, error) {
	s := shredded{value: value, typed: typed}
	if depth > maxVariantDepth {
		return s, fmt.Errorf("the variants are shredded deeper than %d levels", maxVariantDepth)
	}
	switch t := typed.(type) {
	case nil:
	case *array.Struct:
		for i, f := range t.DataType().(*arrow.StructType).Fields() {
			pair, group, err := shreddedPair(t.Field(i), depth+1)
			if err != nil {
				return s, err
			}
			s.fields = append(s.fields, shreddedField{f.Name, group, pair})
		}
	case *array.List:
		pair, _, err := shreddedPair(t.ListValues(), depth+1)
		if err != nil {
			return s, err
		}
		s.elements = &pair
	default:
		if s.scalar = variantScalar(typed); s.scalar == nil {
			return s, &UnsupportedError{Feature: "variants shredded into " + typed.DataType().String()}
		}
	}
	return s, nil
}

// shreddedPair are the columns of a field or of elements.
func shreddedPair(arr arrow.Array, depth int) (shredded, *array.Struct, error) {
	group, ok := arr.(*array.Struct)
	if !ok {
		return shredded{}, nil, fmt.Errorf("variants shredded into %s, wanted a group", arr.DataType())
	}
	var value *array.Binary
	var typed arrow.Array
	for i, f := range group.DataType().(*arrow.StructType).Fields() {
		switch f.Name {
		case "value":
			if value, ok = group.Field(i).(*array.Binary); !ok {
				return shredded{}, nil, fmt.Errorf("values of variants are %s, wanted binary", f.Type)
			}
		case "typed_value":
			typed = group.Field(i)
		}
	}
	s, err := newShredded(value, typed, depth)
	return s, group, err
}

// unshred returns whole variants.
func (s *shredded) unshred(group *array.Struct, metadata *array.Binary) (arrow.Array, error) {
	b := array.NewStructBuilder(memory.DefaultAllocator, arrowVariant)
	defer b.Release()
	metas, values := b.FieldBuilder(0).(*array.BinaryBuilder), b.FieldBuilder(1).(*array.BinaryBuilder)
	for i := range group.Len() {
		if group.IsNull(i) {
			b.AppendNull()
			continue
		}
		meta, err := variant.NewMetadata(metadata.Value(i))
		if err != nil {
			return nil, err
		}
		vb := variant.NewBuilderFromMeta(meta)
		if present, err := s.append(vb, meta, i); err != nil {
			return nil, err
		} else if !present { // the specification has readers take this for a variant null
			if err := vb.AppendNull(); err != nil {
				return nil, err
			}
		}
		v, err := vb.Build()
		if err != nil {
			return nil, err
		}
		b.Append(true)
		metas.Append(v.Metadata().Bytes())
		values.Append(v.Bytes())
	}
	return b.NewArray(), nil
}

// append adds variant i; present is false, and nothing is added, when the columns have none.
func (s *shredded) append(b *variant.Builder, meta variant.Metadata, i int) (present bool, err error) {
	var value []byte
	if s.value != nil && s.value.IsValid(i) {
		value = s.value.Value(i)
	}
	if s.typed == nil || s.typed.IsNull(i) {
		if value == nil {
			return false, nil
		}
		if _, err := variant.NewWithMetadata(meta, value); err != nil {
			return false, err
		}
		return true, b.UnsafeAppendEncoded(value)
	}
	if s.fields != nil {
		return true, s.appendObject(b, meta, i, value)
	}
	if value != nil {
		return false, fmt.Errorf("a shredded variant has both a value and a typed value")
	}
	if s.elements != nil {
		return true, s.appendArray(b, meta, i)
	}
	return true, s.scalar(b, i)
}

func (s *shredded) appendObject(b *variant.Builder, meta variant.Metadata, i int, value []byte) error {
	start := b.Offset()
	entries := make([]variant.FieldEntry, 0, len(s.fields))
	for k := range s.fields {
		f := &s.fields[k]
		if f.group.IsNull(i) {
			continue
		}
		entry := b.NextField(start, f.name)
		present, err := f.append(b, meta, i)
		if err != nil {
			return err
		}
		if present {
			entries = append(entries, entry)
		}
	}
	if value != nil {
		rest, err := variant.NewWithMetadata(meta, value)
		if err != nil {
			return err
		}
		object, ok := rest.Value().(variant.ObjectValue)
		if !ok {
			return fmt.Errorf("a variant with shredded fields has a value that is no object")
		}
		for name, field := range object.Values() {
			if s.shreds(name) { // the specification forbids it; the shredded field counts
				continue
			}
			entries = append(entries, b.NextField(start, name))
			if err := b.UnsafeAppendEncoded(field.Bytes()); err != nil {
				return err
			}
		}
	}
	return b.FinishObject(start, entries)
}

func (s *shredded) shreds(name string) bool {
	for i := range s.fields {
		if s.fields[i].name == name {
			return true
		}
	}
	return false
}

func (s *shredded) appendArray(b *variant.Builder, meta variant.Metadata, i int) error {
	start := b.Offset()
	from, to := s.typed.(*array.List).ValueOffsets(i)
	offsets := make([]int, 0, to-from)
	for j := from; j < to; j++ {
		offsets = append(offsets, b.NextElement(start))
		present, err := s.elements.append(b, meta, int(j))
		if err != nil {
			return err
		}
		if !present {
			if err := b.AppendNull(); err != nil {
				return err
			}
		}
	}
	return b.FinishArray(start, offsets)
}

// variantScalar returns what appends value i of a column; nil when variants hold no values of its type.
func variantScalar(arr arrow.Array) func(b *variant.Builder, i int) error {
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	switch a := arr.(type) {
	case *array.Boolean:
		return func(b *variant.Builder, i int) error { return b.AppendBool(a.Value(i)) }
	case *array.Int8:
		return func(b *variant.Builder, i int) error { return appendExact(b, 3, uint64(a.Value(i)), 1) }
	case *array.Int16:
		return func(b *variant.Builder, i int) error { return appendExact(b, 4, uint64(a.Value(i)), 2) }
	case *array.Int32:
		return func(b *variant.Builder, i int) error { return appendExact(b, 5, uint64(a.Value(i)), 4) }
	case *array.Int64:
		return func(b *variant.Builder, i int) error { return appendExact(b, 6, uint64(a.Value(i)), 8) }
	case *array.Float32:
		return func(b *variant.Builder, i int) error { return b.AppendFloat32(a.Value(i)) }
	case *array.Float64:
		return func(b *variant.Builder, i int) error { return b.AppendFloat64(a.Value(i)) }
	case *array.String:
		return func(b *variant.Builder, i int) error { return b.AppendString(a.Value(i)) }
	case *array.Binary:
		return func(b *variant.Builder, i int) error { return b.AppendBinary(a.Value(i)) }
	case *array.Date32:
		return func(b *variant.Builder, i int) error { return b.AppendDate(a.Value(i)) }
	case *array.Time64:
		if a.DataType().(*arrow.Time64Type).Unit == arrow.Microsecond {
			return func(b *variant.Builder, i int) error { return b.AppendTimeMicro(a.Value(i)) }
		}
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType)
		if t.Unit == arrow.Microsecond || t.Unit == arrow.Nanosecond {
			return func(b *variant.Builder, i int) error {
				return b.AppendTimestamp(a.Value(i), t.Unit == arrow.Microsecond, t.TimeZone != "")
			}
		}
	case *array.FixedSizeBinary:
		if a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth == 16 {
			return func(b *variant.Builder, i int) error { return b.AppendUUID(uuid.UUID(a.Value(i))) }
		}
	case *array.Decimal128:
		return variantDecimal(a)
	}
	return nil
}

// appendExact keeps the width of the integer, which the library's own way would narrow. Parquet's "Variant Binary
// Encoding": the type's number, shifted by two bits, then the value, little endian.
func appendExact(b *variant.Builder, header byte, v uint64, width int) error {
	encoded := binary.LittleEndian.AppendUint64([]byte{header << 2}, v)
	return b.UnsafeAppendEncoded(encoded[:1+width])
}

// variantDecimal appends decimals in the width that their precision asks for.
func variantDecimal(a *array.Decimal128) func(b *variant.Builder, i int) error {
	t := a.DataType().(*arrow.Decimal128Type)
	scale := uint8(t.Scale)
	return func(b *variant.Builder, i int) error {
		v := a.Value(i)
		switch {
		case t.Precision <= 9:
			return b.AppendDecimal4(scale, decimal.Decimal32(int32(v.LowBits())))
		case t.Precision <= 18:
			return b.AppendDecimal8(scale, decimal.Decimal64(int64(v.LowBits())))
		}
		return b.AppendDecimal16(scale, v)
	}
}
