package parquet

import "strings"

// lastLogical is the greatest number that parquet.thrift gives to a logical type (GEOGRAPHY); 9 is not in use.
const lastLogical = 18

// NewerType looks for a column whose logical type this package's readers are too old to know: by its number in the union
// LogicalType, or by that of its unit of time. It returns the column's path and the number of the type; ok is false when
// there is none, or when the bytes, FileMetaData, are none. Spec: parquet.thrift, SchemaElement.
func NewerType(meta []byte) (column string, number int16, ok bool) {
	r := &thriftReader{b: meta}
	var open []int // children that are still to come, of each group around the element
	var path []string
	_ = r.fields(func(id int16, kind byte) error {
		if ok || id != 2 || kind != typeList {
			return r.skip(kind)
		}
		return r.structs(func() error {
			e, err := readElement(r)
			if err != nil || ok {
				return err
			}
			for len(open) > 0 && open[len(open)-1] == 0 {
				open, path = open[:len(open)-1], path[:len(path)-1]
			}
			if len(open) > 0 {
				open[len(open)-1]--
			}
			path = append(path, e.name)
			if e.newer {
				column, number, ok = strings.Join(path[1:], "."), e.logical, true
			}
			open = append(open, e.children)
			return nil
		})
	})
	return column, number, ok
}

// schemaElement is what of SchemaElement tells whether its type is known.
type schemaElement struct {
	name     string
	children int
	logical  int16
	newer    bool // logical, or its unit, is none that is known
}

func readElement(r *thriftReader) (e schemaElement, err error) {
	err = r.fields(func(id int16, kind byte) error {
		switch {
		case kind == typeBinary && id == 4:
			e.name = string(r.bytes(int(min(r.uvarint(), uint64(len(r.b))))))
		case kind == typeI32 && id == 5:
			e.children = max(r.int32(), 0)
		case kind == typeStruct && id == 10:
			return r.fields(func(id int16, kind byte) error {
				e.logical = id
				if e.newer = id < 1 || id == 9 || id > lastLogical; (id == 7 || id == 8) && kind == typeStruct {
					return e.timeUnit(r)
				}
				return r.skip(kind)
			})
		default:
			return r.skip(kind)
		}
		return r.err
	})
	return e, err
}

// timeUnit reads TimeType or TimestampType, whose second field is a union of three units.
func (e *schemaElement) timeUnit(r *thriftReader) error {
	return r.fields(func(id int16, kind byte) error {
		if id != 2 || kind != typeStruct {
			return r.skip(kind)
		}
		return r.fields(func(id int16, kind byte) error {
			e.newer = id < 1 || id > 3
			return r.skip(kind)
		})
	})
}

// structs calls element for each element of a list of structs; element must consume it.
func (r *thriftReader) structs(element func() error) error {
	head := r.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = r.uvarint()
	}
	if head&15 != typeStruct {
		return errHeader
	}
	for ; n > 0 && r.err == nil; n-- {
		if err := element(); err != nil {
			return err
		}
	}
	return r.err
}
