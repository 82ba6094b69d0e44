package delta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// leaf walks one leaf column of a row group, batch by batch and in these entry by entry: a value, a null, or
// an empty or null list.
type leaf struct {
	column *schema.Column
	path   []string
	stored parquet.Physical
	maxDef uint8
	maxRep int16
	slots  uint8 // see slotLevel

	reader *parquet.ColumnReader
	batch  parquet.Values
	at     int // the entry of the batch that is next
	slot   int // the place of its value, if it has one
}

func newLeaf(c *schema.Column) *leaf {
	return &leaf{column: c, path: c.ColumnPath(), stored: parquet.Physical(c.PhysicalType()),
		maxDef: uint8(c.MaxDefinitionLevel()), maxRep: c.MaxRepetitionLevel(), slots: uint8(slotLevel(c))}
}

// openLeaves opens columns of a row group, whose bytes are fetched together. room is what they share.
func openLeaves(f *parquetFile, group int, columns []int, room *parquet.Room) ([]*leaf, error) {
	meta := f.RowGroup(group).MetaData()
	var parts []span
	for _, c := range columns {
		p, err := chunkSpan(f, meta, c)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	if err := f.src.hold(parts); err != nil {
		return nil, err
	}
	leaves := make([]*leaf, len(columns))
	for i, c := range columns {
		l := newLeaf(f.MetaData().Schema.Column(c))
		var err error
		if l.reader, err = f.openColumn(meta, c, room); err != nil {
			return nil, fmt.Errorf("column %s: %w", l.column.Path(), err)
		}
		leaves[i] = l
	}
	return leaves, nil
}

// load passes over the next n rows, and makes those of them in rows the batch.
func (l *leaf) load(n int, rows []expr.Span) (err error) {
	if l.batch, err = l.reader.Read(n, rows); err != nil {
		return fmt.Errorf("column %s: %w", l.column.Path(), err)
	}
	l.at, l.slot = 0, 0
	return nil
}

// loadAll is load of all leaves.
func loadAll(leaves []*leaf, n int, rows []expr.Span) error {
	for _, l := range leaves {
		if err := l.load(n, rows); err != nil {
			return err
		}
	}
	return nil
}

// readersOf are the readers of leaves.
func readersOf(leaves []*leaf) []*parquet.ColumnReader {
	readers := make([]*parquet.ColumnReader, len(leaves))
	for i, l := range leaves {
		readers[i] = l.reader
	}
	return readers
}

// next takes the next entry of the batch. It returns the index of its value, -1 when it has none.
func (l *leaf) next() int {
	def := l.maxDef
	if l.batch.Defs != nil {
		def = l.batch.Defs[l.at]
	}
	l.at++
	if def < l.slots {
		return -1
	}
	l.slot++
	if def < l.maxDef {
		return -1
	}
	return l.slot - 1
}

var errShortColumn = errors.New("a column has fewer rows than the file's footer says")

// record calls entry for each entry of the next row of a repeated column.
func (l *leaf) record(entry func(value int) error) error {
	reps := l.batch.Reps
	if l.at >= len(reps) {
		return errShortColumn
	}
	for first := true; l.at < len(reps) && (first || reps[l.at] > 0); first = false {
		if err := entry(l.next()); err != nil {
			return err
		}
	}
	return nil
}

var errLeafType = errors.New("a column of the checkpoint has an unexpected type")

// int is an integer of 32 or 64 bits.
func (l *leaf) int(value int) (int64, error) {
	switch l.stored {
	case parquet.PhysicalInt64:
		return int64(binary.LittleEndian.Uint64(l.batch.Fixed[8*value:])), nil
	case parquet.PhysicalInt32:
		return int64(int32(binary.LittleEndian.Uint32(l.batch.Fixed[4*value:]))), nil
	}
	return 0, errLeafType
}

func (l *leaf) bool(value int) (bool, error) {
	if l.stored != parquet.PhysicalBoolean {
		return false, errLeafType
	}
	return l.batch.Fixed[value] != 0, nil
}

// text is a part of the batch, which nobody writes to.
func (l *leaf) text(value int) ([]byte, error) {
	if l.stored != parquet.PhysicalBytes {
		return nil, errLeafType
	}
	return l.bytes(value), nil
}

func (l *leaf) bytes(value int) []byte {
	return l.batch.Data[l.batch.Offsets[value]:l.batch.Offsets[value+1]]
}

// fixed are the bytes of a value of fixed width.
func (l *leaf) fixed(value int) []byte {
	width := l.stored.Width(l.column.TypeLength())
	return l.batch.Fixed[value*width : (value+1)*width]
}
