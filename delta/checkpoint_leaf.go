package delta

import (
	"errors"
	"fmt"

	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// leafBatch is how many entries of a column are decoded at once, at most.
const leafBatch = 1024

// leaf walks one leaf column of a row group, entry by entry: a value, a null, or an empty or null list.
type leaf struct {
	column *schema.Column
	path   []string
	maxDef int16
	maxRep int16

	reader     file.ColumnChunkReader
	defs, reps []int16
	at, n      int // the entry that is next, and how many are decoded
	value      int // the index of the next value among the decoded ones

	bools  []bool
	int32s []int32
	int64s []int64
	int96s []arrowparquet.Int96
	floats []float32
	double []float64
	bytes  []arrowparquet.ByteArray
	fixed  []arrowparquet.FixedLenByteArray
}

func newLeaf(c *schema.Column) *leaf {
	return &leaf{column: c, path: c.ColumnPath(), maxDef: c.MaxDefinitionLevel(), maxRep: c.MaxRepetitionLevel()}
}

// open begins to read a row group of so many rows.
func (l *leaf) open(r file.ColumnChunkReader, rows int64) {
	size := int(max(min(rows, leafBatch), 16))
	l.reader, l.defs, l.reps = r, make([]int16, size), make([]int16, size)
}

var errShortColumn = errors.New("a column has fewer rows than the file's footer says")

// more makes sure that an entry is decoded; false at the end of the row group.
func (l *leaf) more() (bool, error) {
	if l.at < l.n {
		return true, nil
	}
	total, values, err := l.decode()
	if err != nil || total == 0 {
		return false, errors.Join(err, l.reader.Err())
	}
	if l.maxDef == 0 {
		clear(l.defs[:total])
	}
	if l.maxRep == 0 {
		clear(l.reps[:total])
	}
	if err := l.check(int(total), values); err != nil {
		return false, err
	}
	l.at, l.n, l.value = 0, int(total), 0
	return true, nil
}

// check makes sure that there is a value for each entry that claims one.
func (l *leaf) check(total, values int) error {
	wanted := 0
	for _, d := range l.defs[:total] {
		if d == l.maxDef {
			wanted++
		}
	}
	if wanted != values {
		return fmt.Errorf("column %s has %d values, wanted %d", l.column.Path(), values, wanted)
	}
	return nil
}

func (l *leaf) decode() (total int64, values int, err error) {
	n := len(l.defs)
	switch r := l.reader.(type) {
	case *file.BooleanColumnChunkReader:
		l.bools = sized(l.bools, n)
		return r.ReadBatch(int64(n), l.bools, l.defs, l.reps)
	case *file.Int32ColumnChunkReader:
		l.int32s = sized(l.int32s, n)
		return r.ReadBatch(int64(n), l.int32s, l.defs, l.reps)
	case *file.Int64ColumnChunkReader:
		l.int64s = sized(l.int64s, n)
		return r.ReadBatch(int64(n), l.int64s, l.defs, l.reps)
	case *file.Int96ColumnChunkReader:
		l.int96s = sized(l.int96s, n)
		return r.ReadBatch(int64(n), l.int96s, l.defs, l.reps)
	case *file.Float32ColumnChunkReader:
		l.floats = sized(l.floats, n)
		return r.ReadBatch(int64(n), l.floats, l.defs, l.reps)
	case *file.Float64ColumnChunkReader:
		l.double = sized(l.double, n)
		return r.ReadBatch(int64(n), l.double, l.defs, l.reps)
	case *file.ByteArrayColumnChunkReader:
		// The bytes alias the page, which the next call may replace: values are used up before it.
		l.bytes = sized(l.bytes, n)
		return r.ReadBatchInPage(int64(n), l.bytes, l.defs, l.reps)
	case *file.FixedLenByteArrayColumnChunkReader:
		l.fixed = sized(l.fixed, n)
		return r.ReadBatchInPage(int64(n), l.fixed, l.defs, l.reps)
	}
	return 0, 0, fmt.Errorf("column %s has an unknown type", l.column.Path())
}

func sized[T any](s []T, n int) []T {
	if s == nil {
		return make([]T, n)
	}
	return s
}

// next takes the next entry of a column without repetition. It returns the index of its value, -1 for a null.
func (l *leaf) next() (int, error) {
	ok, err := l.more()
	if err != nil {
		return -1, err
	}
	if !ok {
		return -1, errShortColumn
	}
	return l.take(), nil
}

func (l *leaf) take() int {
	d := l.defs[l.at]
	l.at++
	if d != l.maxDef {
		return -1
	}
	l.value++
	return l.value - 1
}

// record calls entry for each entry of the next row of a repeated column, with its definition level.
func (l *leaf) record(entry func(def int16, value int) error) error {
	for first := true; ; first = false {
		ok, err := l.more()
		if err != nil {
			return err
		}
		if !ok && first {
			return errShortColumn
		}
		if !ok || !first && l.reps[l.at] == 0 {
			return nil
		}
		if first && l.reps[l.at] != 0 {
			return fmt.Errorf("column %s begins a row in the middle of a list", l.column.Path())
		}
		d := l.defs[l.at]
		if err := entry(d, l.take()); err != nil {
			return err
		}
	}
}

var errLeafType = errors.New("a column of the checkpoint has an unexpected type")

// int is an integer of 32 or 64 bits.
func (l *leaf) int(value int) (int64, error) {
	switch l.column.PhysicalType() {
	case arrowparquet.Types.Int64:
		return l.int64s[value], nil
	case arrowparquet.Types.Int32:
		return int64(l.int32s[value]), nil
	}
	return 0, errLeafType
}

func (l *leaf) bool(value int) (bool, error) {
	if l.column.PhysicalType() != arrowparquet.Types.Boolean {
		return false, errLeafType
	}
	return l.bools[value], nil
}

// text aliases the page: it must be copied before the leaf moves on.
func (l *leaf) text(value int) ([]byte, error) {
	if l.column.PhysicalType() != arrowparquet.Types.ByteArray {
		return nil, errLeafType
	}
	return l.bytes[value], nil
}
