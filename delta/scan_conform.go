package delta

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func lowerName(f *Field) string { return strings.ToLower(f.Name) }

// conform gives an array of a file the type of the table's field: fields of structs are found by the mapping, those
// that the file lacks are null, and narrower types of the past are widened. The result is the caller's. Errors: a type
// that cannot hold what the file has.
func (m mapping) conform(f *Field, arr arrow.Array, path string) (arrow.Array, error) {
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	want := ArrowType(f.Type)
	if arr.DataType().ID() == arrow.NULL {
		return nullArray(want, arr.Len()), nil
	}
	switch t := f.Type.(type) {
	case *Struct:
		return m.conformStruct(t.Fields, want, arr, path)
	case *Array:
		list, ok := arr.(*array.List)
		if !ok {
			return nil, typeFault(path, arr, t)
		}
		element := Field{Name: "element", Type: t.Element, Metadata: f.Metadata}
		values, err := m.conform(&element, list.ListValues(), columnPath(path, "element"))
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return rebuild(want, arr.Data(), values.Data())
	case *Map:
		return m.conformMap(t, want, arr, path)
	}
	if f.Type == Variant {
		return conformVariant(arr, path)
	}
	out, err := castPrimitive(arr, f.Type)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", path, err)
	}
	return out, nil
}

func typeFault(path string, arr arrow.Array, want Type) error {
	return fmt.Errorf("column %q: the file holds %s, wanted %s", path, arr.DataType(), want)
}

// rebuild returns an array of type t with the validity and offsets of d and other children.
func rebuild(t arrow.DataType, d arrow.ArrayData, children ...arrow.ArrayData) (arrow.Array, error) {
	data := array.NewData(t, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data), nil
}

func (m mapping) conformStruct(fields []Field, want arrow.DataType, arr arrow.Array, path string) (arrow.Array, error) {
	s, ok := arr.(*array.Struct)
	if !ok {
		return nil, fmt.Errorf("column %q: the file holds %s, wanted a struct", path, arr.DataType())
	}
	have := s.DataType().(*arrow.StructType).Fields()
	d := s.Data()
	children := make([]arrow.ArrayData, len(fields))
	for i := range fields {
		var child arrow.Array
		if at := m.find(have, &fields[i]); at < 0 {
			child = nullArray(ArrowType(fields[i].Type), d.Offset()+d.Len())
		} else {
			raw := array.MakeFromData(d.Children()[at])
			var err error
			child, err = m.conform(&fields[i], raw, columnPath(path, fields[i].Name))
			raw.Release()
			if err != nil {
				return nil, err
			}
		}
		defer child.Release()
		children[i] = child.Data()
	}
	return rebuild(retyped(want.(*arrow.StructType), children), d, children...)
}

// retyped is the type with the types that its children have: they are other ones where texts are coded.
func retyped(want *arrow.StructType, children []arrow.ArrayData) arrow.DataType {
	fields := want.Fields()
	for i, child := range children {
		fields[i].Type = child.DataType()
	}
	return arrow.StructOf(fields...)
}

func (m mapping) conformMap(t *Map, want arrow.DataType, arr arrow.Array, path string) (arrow.Array, error) {
	mp, ok := arr.(*array.Map)
	if !ok {
		return nil, typeFault(path, arr, t)
	}
	keys, err := m.conform(&Field{Name: "key", Type: t.Key}, mp.Keys(), columnPath(path, "key"))
	if err != nil {
		return nil, err
	}
	defer keys.Release()
	items, err := m.conform(&Field{Name: "value", Type: t.Value}, mp.Items(), columnPath(path, "value"))
	if err != nil {
		return nil, err
	}
	defer items.Release()
	entries := array.NewData(want.(*arrow.MapType).Elem(), keys.Len(), []*memory.Buffer{nil},
		[]arrow.ArrayData{keys.Data(), items.Data()}, 0, 0)
	defer entries.Release()
	return rebuild(want, mp.Data(), entries)
}

// nullArray returns n nulls of any type.
func nullArray(t arrow.DataType, n int) arrow.Array {
	if t.ID() == arrow.NULL {
		return array.NewNull(n)
	}
	return array.MakeArrayOfNull(memory.DefaultAllocator, t, n)
}
