package delta

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// part is the rows of a batch that go to one partition.
type part struct {
	values []*string // one a partition column; nil is null
	rows   []int32
}

// splitter groups the rows of batches by their partition values. Its buffers live from call to call.
type splitter struct {
	types []Type
	codes []uint32 // of each row: the number of its group, in the order of first appearance
	rows  []int32
}

// split returns the groups of n rows, each with its rows in order. They are valid until the next call.
func (s *splitter) split(columns []arrow.Array, n int) []part {
	if cap(s.codes) < n {
		s.codes, s.rows = make([]uint32, n), make([]int32, n)
	}
	codes := s.codes[:n]
	clear(codes)
	groups := uint32(1)
	for _, c := range columns {
		groups = refine(codes, c)
	}
	return s.bucket(columns, codes, int(groups))
}

// bucket sorts the rows by code, by counting.
func (s *splitter) bucket(columns []arrow.Array, codes []uint32, groups int) []part {
	ends := make([]int32, groups+1)
	for _, c := range codes {
		ends[c+1]++
	}
	for i := range groups {
		ends[i+1] += ends[i]
	}
	rows := s.rows[:len(codes)]
	next := append([]int32(nil), ends[:groups]...)
	for i, c := range codes {
		rows[next[c]] = int32(i)
		next[c]++
	}
	parts := make([]part, 0, groups)
	for g := range groups {
		p := part{rows: rows[ends[g]:ends[g+1]], values: make([]*string, len(columns))}
		if len(p.rows) == 0 {
			continue
		}
		for i, c := range columns {
			p.values[i] = formatPartition(s.types[i], c, int(p.rows[0]))
		}
		parts = append(parts, p)
	}
	return parts
}

// refine splits the groups of codes by the values of one column and returns the number of groups there are then.
func refine(codes []uint32, arr arrow.Array) uint32 {
	switch a := arr.(type) {
	case nil:
		return renumber(codes, a, func(int) int64 { return 0 })
	case *array.Boolean:
		return renumber(codes, a, func(i int) bool { return a.Value(i) })
	case *array.Int8:
		return renumber(codes, a, func(i int) int8 { return a.Value(i) })
	case *array.Int16:
		return renumber(codes, a, func(i int) int16 { return a.Value(i) })
	case *array.Int32:
		return renumber(codes, a, func(i int) int32 { return a.Value(i) })
	case *array.Int64:
		return renumber(codes, a, func(i int) int64 { return a.Value(i) })
	case *array.Date32:
		return renumber(codes, a, func(i int) arrow.Date32 { return a.Value(i) })
	case *array.Timestamp:
		return renumber(codes, a, func(i int) arrow.Timestamp { return a.Value(i) })
	case *array.String:
		return renumber(codes, a, a.Value)
	case *array.LargeString:
		return renumber(codes, a, a.Value)
	}
	return renumber(codes, arr, func(i int) string { return strings.Clone(arr.ValueStr(i)) })
}

// renumber gives each pair of an old code and a value a code of its own. Runs of equal pairs cost no look-up.
func renumber[T comparable](codes []uint32, arr arrow.Array, value func(int) T) uint32 {
	type key struct {
		code uint32
		null bool
		v    T
	}
	seen := make(map[key]uint32)
	var last key
	var code uint32
	nulls := arr != nil && arr.NullN() > 0
	for i, old := range codes {
		k := key{code: old}
		if nulls && arr.IsNull(i) {
			k.null = true
		} else {
			k.v = value(i)
		}
		if i == 0 || k != last {
			c, ok := seen[k]
			if !ok {
				c = uint32(len(seen))
				seen[k] = c
			}
			last, code = k, c
		}
		codes[i] = code
	}
	return uint32(len(seen))
}
