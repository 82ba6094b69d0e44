package format

import (
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// columnsOf is how many columns a type takes: a struct as many as its fields, an array as its elements, all others one.
func columnsOf(t arrow.DataType) int {
	switch t := t.(type) {
	case *arrow.StructType:
		return columnsIn(t.Fields())
	case *arrow.ListType:
		return columnsOf(t.Elem())
	case *arrow.MapType:
		return columnsOf(t.ItemType())
	}
	return 1
}

func columnsIn(fields []arrow.Field) int {
	n := 0
	for _, f := range fields {
		n += columnsOf(f.Type)
	}
	return n
}

// within returns those of the fields, in their order, that room has columns for, and takes these from room. Fields of few
// columns go first, lest an object that is used as a map, with thousands of keys, takes the room of all others; of the
// last one there may be a part.
func within(fields []arrow.Field, room *int) []arrow.Field {
	if n := columnsIn(fields); n <= *room {
		*room -= n
		return fields
	}
	bySize := make([]int, len(fields))
	for i := range bySize {
		bySize[i] = i
	}
	slices.SortStableFunc(bySize, func(a, b int) int {
		return cmp.Compare(columnsOf(fields[a].Type), columnsOf(fields[b].Type))
	})
	fitting := slices.Clone(fields)
	for _, i := range bySize {
		fitting[i].Type = withinType(fields[i].Type, room)
	}
	return slices.DeleteFunc(fitting, func(f arrow.Field) bool { return f.Type == nil })
}

// withinType is within for one type; nil when there is no room for any of it.
func withinType(t arrow.DataType, room *int) arrow.DataType {
	switch {
	case columnsOf(t) <= *room:
		*room -= columnsOf(t)
		return t
	case *room <= 0:
		return nil
	}
	switch t := t.(type) {
	case *arrow.StructType:
		return arrow.StructOf(within(t.Fields(), room)...)
	case *arrow.ListType:
		element := t.ElemField()
		element.Type = withinType(element.Type, room)
		return arrow.ListOfField(element)
	}
	return nil
}
