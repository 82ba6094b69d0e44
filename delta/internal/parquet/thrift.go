package parquet

import "encoding/binary"

// thrift appends the compact protocol of Apache Thrift. Fields of a struct come in ascending order of their ids.
type thrift struct {
	b    []byte
	last int16
}

// The compact protocol's type codes.
const (
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeStruct = 12
)

func (t *thrift) field(id int16, kind byte) {
	if d := id - t.last; d > 0 && d <= 15 {
		t.b = append(t.b, byte(d)<<4|kind)
	} else {
		t.b = append(t.b, kind)
		t.b = binary.AppendVarint(t.b, int64(id))
	}
	t.last = id
}

func (t *thrift) int(id int16, v int64, kind byte) {
	t.field(id, kind)
	t.b = binary.AppendVarint(t.b, v)
}

func (t *thrift) i32(id int16, v int64) { t.int(id, v, typeI32) }

func (t *thrift) i64(id int16, v int64) { t.int(id, v, typeI64) }

func (t *thrift) i8(id int16, v byte) {
	t.field(id, typeByte)
	t.b = append(t.b, v)
}

func (t *thrift) bool(id int16, v bool) {
	if v {
		t.field(id, typeTrue)
	} else {
		t.field(id, typeFalse)
	}
}

func (t *thrift) bytes(id int16, v []byte) {
	t.field(id, typeBinary)
	t.b = binary.AppendUvarint(t.b, uint64(len(v)))
	t.b = append(t.b, v...)
}

func (t *thrift) string(id int16, v string) { t.bytes(id, []byte(v)) }

// group writes a struct-valued field.
func (t *thrift) group(id int16, body func()) {
	t.field(id, typeStruct)
	t.element(body)
	t.last = id
}

// element writes a struct without a field header: the outermost, or an element of a list.
func (t *thrift) element(body func()) {
	t.last = 0
	body()
	t.b = append(t.b, 0)
}

// list begins a list-valued field; its n elements follow.
func (t *thrift) list(id int16, kind byte, n int) {
	t.field(id, typeList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind)
		return
	}
	t.b = append(t.b, 0xf0|kind)
	t.b = binary.AppendUvarint(t.b, uint64(n))
}
