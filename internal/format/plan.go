package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet/internal/column"
)

// kind is how values of a column are read.
type kind uint8

const (
	kindBool kind = iota
	kindByte
	kindShort
	kindInt
	kindLong
	kindFloat
	kindDouble
	kindDecimal
	kindString
	kindJSON // a string that holds JSON text
	kindBinary
	kindDate
	kindTimestamp
	kindTimestampNTZ
	kindVoid
	kindStruct
	kindList
	kindMap

	kindWire    // a value in a form of Kafka Connect's, of a column of the kind plain
	kindCapture // a value that tells of the record
	kindImage   // a row of the root within a record
)

// node is one column, or one field, element, key or value within: what it takes to read it, and where it
// goes.
type node struct {
	kind     kind
	plain    kind // what kind is where values have no form of their own
	nullable bool
	store    column.Column
	typeName string // for messages: "decimal(10,2)"

	precision, scale int // of a decimal

	dateText uint64 // of timestamps: the last date's first eight bytes,
	dateRest uint16 // its last two,
	dateUs   int64  // and its start in µs

	fields *fieldTable // of a struct
	first  *node       // the element of a list, the key of a map, the column that a captured value goes to, too
	second *node       // the value of a map

	wire     wire   // of kindWire
	slot     slot   // of kindCapture and kindImage
	fallback []byte // the JSON text of the value where an object has none; nil: null
}

// fieldTable is the fields of a struct, found by name.
type fieldTable struct {
	list   []field
	exact  map[string]int
	folded map[string]int // by lower case, as Delta compares names
	start  int            // the field that the last object began with
	object uint64         // counts the objects that were read
	given  uint64         // what object was when fields got values that go before those of the object now read
	loose  bool           // other fields are passed over
	other  uint64         // what object was when there last were such
}

// nothingGiven is no value of fieldTable.object.
const nothingGiven = 1<<64 - 1

type field struct {
	quoted string // as it stands in JSON text without spaces: "name":, "" if it would have escapes
	head   uint64 // the first eight bytes of quoted, little-endian, if there are so many,
	tail   uint64 // and the last eight
	name   string
	node   *node
	follow int    // the field that followed it last time; len(list) if none has
	object uint64 // the object that had it last
}

// planStruct plans the fields of a struct, or of the whole record.
func planStruct(fields []arrow.Field, path string) (*node, error) {
	table := &fieldTable{exact: map[string]int{}, folded: map[string]int{}, given: nothingGiven}
	store := &column.Structs{}
	var faults []error
	for _, f := range fields {
		child, err := planField(f, join(path, f.Name))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if other, taken := table.folded[strings.ToLower(f.Name)]; taken {
			faults = append(faults, fmt.Errorf("columns %q and %q: names must differ in more than case",
				join(path, table.list[other].name), join(path, f.Name)))
			continue
		}
		table.add(f.Name, child)
		store.Fields = append(store.Fields, child.store)
	}
	return &node{kind: kindStruct, plain: kindStruct, typeName: "a struct", store: store, fields: table}, errors.Join(faults...)
}

// add adds a field.
func (t *fieldTable) add(name string, n *node) {
	at := len(t.list)
	t.exact[name], t.folded[strings.ToLower(name)] = at, at
	t.list = append(t.list, newField(name, n, at+1))
}

// find returns the field of that name, or else of one that differs in case; nil if there is none.
func (t *fieldTable) find(name []byte) *field {
	at, ok := t.exact[string(name)]
	if !ok {
		at, ok = t.fold(name)
	}
	if !ok {
		return nil
	}
	return &t.list[at]
}

func newField(name string, n *node, follow int) field {
	f := field{quoted: quoted(name), name: name, node: n, follow: follow}
	if size := len(f.quoted); size >= 8 {
		f.head = binary.LittleEndian.Uint64([]byte(f.quoted))
		f.tail = binary.LittleEndian.Uint64([]byte(f.quoted[size-8:]))
	}
	return f
}

// fold returns the field whose name is the key but for its case.
func (t *fieldTable) fold(key []byte) (at int, ok bool) {
	if isLower(key) {
		at, ok = t.folded[string(key)]
		return at, ok
	}
	at, ok = t.folded[strings.ToLower(string(key))]
	return at, ok
}

// isLower reports whether the key is certainly its own lower case.
func isLower(key []byte) bool {
	for _, c := range key {
		if c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}

// quoted is how a name stands in JSON text without spaces and needless escapes; "" for one that needs
// escapes.
func quoted(name string) string {
	if end, _ := plainEnd([]byte(name), 0); end != len(name) || !utf8.ValidString(name) {
		return ""
	}
	return `"` + name + `":`
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func planField(f arrow.Field, path string) (*node, error) {
	n, err := planType(f.Type, path, column.Validity{Required: !f.Nullable})
	if err != nil {
		return nil, err
	}
	n.nullable = f.Nullable
	if _, marked := f.Metadata.GetValue(jsonTextKey); marked && n.kind == kindString {
		n.kind, n.typeName = kindJSON, "any value"
	}
	n.plain = n.kind
	return n, nil
}

func planType(t arrow.DataType, path string, v column.Validity) (*node, error) {
	switch t := t.(type) {
	case *arrow.StructType:
		n, err := planStruct(t.Fields(), path)
		n.store.(*column.Structs).Validity = v
		return n, err
	case *arrow.ListType:
		element, err := planField(t.ElemField(), join(path, "element"))
		if err != nil {
			return nil, err
		}
		return &node{kind: kindList, typeName: "an array", store: column.NewLists(v, element.store), first: element}, nil
	case *arrow.MapType:
		key, err1 := planField(t.KeyField(), join(path, "key"))
		value, err2 := planField(t.ItemField(), join(path, "value"))
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if key.fields != nil || key.first != nil {
			return nil, fmt.Errorf("column %q: found a map whose keys are %s, wanted keys of an atomic type",
				path, key.typeName)
		}
		return &node{kind: kindMap, typeName: "a map", store: column.NewLists(v, key.store, value.store),
			first: key, second: value}, nil
	case *arrow.Decimal128Type:
		return &node{kind: kindDecimal, typeName: fmt.Sprintf("a decimal(%d,%d)", t.Precision, t.Scale),
			store: &column.Fixed[decimal128.Num]{Validity: v}, precision: int(t.Precision), scale: int(t.Scale)}, nil
	case *arrow.TimestampType:
		n := &node{kind: kindTimestamp, typeName: "a timestamp", store: &column.Fixed[int64]{Validity: v}}
		rememberDate(n, []byte("1970-01-01"))
		if t.TimeZone == "" {
			n.kind, n.typeName = kindTimestampNTZ, "a timestamp without zone"
		}
		if t.Unit == arrow.Microsecond {
			return n, nil
		}
	}
	if n := planPrimitive(t.ID(), v); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("column %q: found the Arrow type %s, wanted one that Delta has", path, t)
}

func planPrimitive(id arrow.Type, v column.Validity) *node {
	switch id {
	case arrow.BOOL:
		return &node{kind: kindBool, typeName: "a boolean", store: &column.Bools{Validity: v}}
	case arrow.INT8:
		return &node{kind: kindByte, typeName: "a byte (-128 to 127)", store: &column.Fixed[int8]{Validity: v}}
	case arrow.INT16:
		return &node{kind: kindShort, typeName: "a short (-32768 to 32767)", store: &column.Fixed[int16]{Validity: v}}
	case arrow.INT32:
		return &node{kind: kindInt, typeName: "an integer of 32 bits", store: &column.Fixed[int32]{Validity: v}}
	case arrow.INT64:
		return &node{kind: kindLong, typeName: "a long of 64 bits", store: &column.Fixed[int64]{Validity: v}}
	case arrow.FLOAT32:
		return &node{kind: kindFloat, typeName: "a float", store: &column.Fixed[float32]{Validity: v}}
	case arrow.FLOAT64:
		return &node{kind: kindDouble, typeName: "a double", store: &column.Fixed[float64]{Validity: v}}
	case arrow.STRING:
		return &node{kind: kindString, typeName: "a string", store: column.NewText(v)}
	case arrow.BINARY:
		return &node{kind: kindBinary, typeName: "a binary in base64", store: column.NewText(v)}
	case arrow.DATE32:
		return &node{kind: kindDate, typeName: "a date", store: &column.Fixed[int32]{Validity: v}}
	case arrow.NULL:
		return &node{kind: kindVoid, typeName: "nothing but null", store: &column.Void{}}
	}
	return nil
}
