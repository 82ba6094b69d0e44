package parquet

import "github.com/apache/arrow-go/v18/arrow"

// Repetition and converted types of parquet.thrift.
const (
	required = 0
	optional = 1
	repeated = 2

	convertedUTF8      = 0
	convertedMap       = 1
	convertedList      = 3
	convertedDecimal   = 5
	convertedDate      = 6
	convertedTimestamp = 10 // µs
	convertedInt8      = 15
	convertedInt16     = 16
)

// String is the kind in error messages.
func (k Kind) String() string {
	return [...]string{"boolean", "int8", "int16", "int32", "int64", "float", "double", "decimal", "string", "binary",
		"date", "timestamp[us]", "timestamp[us]", "struct", "list", "map"}[k]
}

// takes reports whether an array of an integer-like type may be written as this kind.
func (k Kind) takes(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INT8:
		return k == Int8
	case arrow.INT16:
		return k == Int16
	case arrow.INT32:
		return k == Int32
	case arrow.INT64:
		return k == Int64
	case arrow.DATE32:
		return k == Date
	case arrow.TIMESTAMP:
		return (k == Timestamp || k == TimestampNTZ) && t.(*arrow.TimestampType).Unit == arrow.Microsecond
	}
	return false
}

func countElements(nodes []*node) int {
	n := len(nodes)
	for _, c := range nodes {
		n += countElements(c.children)
		if c.col.Kind == List || c.col.Kind == Map {
			n++ // the repeated group between the column and its elements
		}
	}
	return n
}

// element writes the SchemaElements of the node and all below it.
func (n *node) element(t *thrift) {
	c := n.col
	repetition := int64(required)
	if c.Nullable {
		repetition = optional
	}
	t.element(func() {
		if n.leaf != nil {
			t.i32(1, int64(n.leaf.physical))
			if n.leaf.physical == PhysicalFixed {
				t.i32(2, int64(n.leaf.width))
			}
		}
		t.i32(3, repetition)
		t.string(4, c.Name)
		switch c.Kind {
		case Struct:
			t.i32(5, int64(len(c.Children)))
		case List, Map:
			t.i32(5, 1)
		}
		c.annotate(t)
	})
	if c.Kind == List || c.Kind == Map {
		t.element(func() {
			t.i32(3, repeated)
			t.string(4, map[Kind]string{List: "list", Map: "key_value"}[c.Kind])
			t.i32(5, int64(len(c.Children)))
		})
	}
	for _, child := range n.children {
		child.element(t)
	}
}

// annotate writes converted type, scale, precision, field id and logical type: fields 6 to 10.
func (c *Column) annotate(t *thrift) {
	converted := func(v int64) { t.i32(6, v) }
	fieldID := func() {
		if c.FieldID != 0 {
			t.i32(9, int64(c.FieldID))
		}
	}
	logical := func(id int16, body func()) {
		fieldID()
		t.group(10, func() { t.group(id, body) })
	}
	none := func() {}
	switch c.Kind {
	case Int8:
		converted(convertedInt8)
		logical(10, func() { t.i8(1, 8); t.bool(2, true) })
	case Int16:
		converted(convertedInt16)
		logical(10, func() { t.i8(1, 16); t.bool(2, true) })
	case Decimal:
		converted(convertedDecimal)
		t.i32(7, int64(c.Scale))
		t.i32(8, int64(c.Precision))
		logical(5, func() { t.i32(1, int64(c.Scale)); t.i32(2, int64(c.Precision)) })
	case String:
		converted(convertedUTF8)
		logical(1, none)
	case Date:
		converted(convertedDate)
		logical(6, none)
	case Timestamp:
		converted(convertedTimestamp)
		logical(8, func() { t.bool(1, true); t.group(2, func() { t.group(2, none) }) })
	case TimestampNTZ:
		logical(8, func() { t.bool(1, false); t.group(2, func() { t.group(2, none) }) })
	case List:
		converted(convertedList)
		logical(3, none)
	case Map:
		converted(convertedMap)
		logical(2, none)
	default:
		fieldID()
	}
}
