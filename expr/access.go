package expr

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// fieldNode is a field of a struct; null where the struct is.
type fieldNode struct {
	of    node
	index int
	field arrow.Field
}

func newField(at place, of node, name string) (node, error) {
	t, ok := of.typ().(*arrow.StructType)
	if !ok {
		err := at.typeFault("there is no field %q in what is no struct", name)
		err.Found = typeName(of.typ())
		if of.typ().ID() == arrow.MAP {
			err.Hint = "a map's value is written m['key']"
		}
		return nil, err
	}
	i, err := findField(at, name, t.Fields(), "field")
	if err != nil {
		return nil, err
	}
	return &fieldNode{of, i, t.Field(i)}, nil
}

func (n *fieldNode) typ() arrow.DataType { return n.field.Type }
func (n *fieldNode) nullable() bool      { return n.field.Nullable || n.of.nullable() }

func (n *fieldNode) eval(r *run, active bitset) *vector {
	of := n.of.eval(r, active)
	v := load(of.arr.(*array.Struct).Field(n.index))
	if of.valid == nil {
		return v
	}
	return v.withValid(andBits(v.valid, of.valid))
}

// elementNode is an element of a list, from 1, or from the end for negative numbers; null where there is
// none.
type elementNode struct {
	place
	of, at node
	t      arrow.DataType
	base   int64 // the number of the first; 0 has no elements from the end
	strict bool  // one that is not there fails
}

func (n *elementNode) typ() arrow.DataType { return n.t }
func (n *elementNode) nullable() bool      { return true }

func (n *elementNode) eval(r *run, active bitset) *vector {
	of, at := n.of.eval(r, active), n.at.eval(r, active)
	list := of.arr.(array.ListLike)
	spans := make([]Span, r.rows)
	for i := range spans {
		spans[i] = nullRow
		if !of.valid.has(i) || !at.valid.has(i) {
			continue
		}
		start, end := list.ValueOffsets(i)
		element := at.int(i) + 1 - n.base
		switch {
		case element <= 0 && n.base == 0, n.strict && max(element, -element) > end-start, element == 0 && n.strict:
			if active.has(i) {
				r.fault(i, n.place, "there is no element %d: the array has %d", at.int(i), end-start)
			}
		case element > 0 && element <= end-start:
			spans[i] = Span{int(start + element - 1), int(start + element)}
		case element < 0 && -element <= end-start:
			spans[i] = Span{int(end + element), int(end + element + 1)}
		}
	}
	return load(Take(list.ListValues(), spans))
}

// valueNode is the value of a map's key; null where the map has no such key. Of equal keys the first counts.
type valueNode struct {
	of, key node
	t       arrow.DataType
}

func (n *valueNode) typ() arrow.DataType { return n.t }
func (n *valueNode) nullable() bool      { return true }

func (n *valueNode) eval(r *run, active bitset) *vector {
	of, key := n.of.eval(r, active), n.key.eval(r, active)
	list := of.arr.(array.ListLike)
	entries := list.ListValues().(*array.Struct)
	keys := load(entries.Field(0))
	same := func(at, i int) bool { return keys.int(at) == key.int(i) }
	if keys.offsets != nil {
		same = func(at, i int) bool { return bytes.Equal(keys.bytes(at), key.bytes(i)) }
	}
	spans := make([]Span, r.rows)
	for i := range spans {
		spans[i] = nullRow
		if !of.valid.has(i) || !key.valid.has(i) {
			continue
		}
		start, end := list.ValueOffsets(i)
		for at := int(start); at < int(end); at++ {
			if same(at, i) {
				spans[i] = Span{at, at + 1}
				break
			}
		}
	}
	return load(Take(entries.Field(1), spans))
}

func (b *binder) index(s *index) (node, error) {
	of, err := b.bind(s.of)
	if err != nil {
		return nil, err
	}
	at, err := b.bind(s.at)
	if err != nil {
		return nil, err
	}
	if b.spark {
		if n, err := b.sparkIndex(s, of, at); n != nil || err != nil {
			return n, err
		}
	}
	switch t := of.typ().(type) {
	case *arrow.MapType:
		return newValue(s.place, of, at, t)
	case *arrow.StructType:
		if name, ok := literalText(at); ok {
			return newField(s.place, of, name)
		}
		return nil, s.typeFault("a struct's field is named, as in s.field or s['field']")
	case arrow.ListLikeType:
		return newElement(s.place, of, at, t)
	}
	fault := s.typeFault("[] applies to arrays, maps and structs")
	fault.Found = typeName(of.typ())
	return nil, fault
}

func newElement(place place, of, at node, t arrow.ListLikeType) (node, error) {
	if kindOf(at.typ()) == kindNull {
		return nullConst(place, t.Elem()), nil
	}
	if kindOf(at.typ()) != kindInt {
		err := place.typeFault("an element's number is an integer")
		err.Found = typeName(at.typ())
		return nil, err
	}
	if c, ok := at.(*constNode); ok && !c.isNull() && c.value.int(0) == 0 {
		return nil, place.typeFault("there is no element 0; the first is [1], the last [-1]")
	}
	return &elementNode{place: place, of: of, at: at, t: t.Elem(), base: 1}, nil
}

func newValue(place place, of, key node, t *arrow.MapType) (node, error) {
	kind := kindOf(t.KeyType())
	if kind == kindBool || kind == kindFloat || kind == kindDecimal || kind == kindNested {
		return nil, place.typeFault("a map with keys of %s cannot be looked into", typeName(t.KeyType()))
	}
	same, ok, err := coerce(key, t.KeyType())
	if err != nil {
		return nil, err
	}
	if !ok && kindOf(key.typ()) != kind {
		err := place.typeFault("the key is of the wrong type")
		err.Found, err.Wanted = typeName(key.typ()), typeName(t.KeyType())
		return nil, err
	}
	return &valueNode{of, same, t.ItemType()}, nil
}
