package delta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// columnReader reads a column of a row group, or a part of one, into Arrow arrays. The types are those that the Arrow
// library would give, but INT96 is µs, and extension types are what they are stored as.
type columnReader struct {
	field    *arrow.Field
	levels   file.LevelInfo
	leaf     *parquet.ColumnReader
	stored   parquet.Physical // of a leaf
	children []*columnReader  // of a struct, those that are wanted; of a list or map, its element
	lists    bool             // it is one, or has some below it
	slots    int64            // entries of a leaf in the row group
	text     int64            // bytes of the pages of a column of texts

	texts      *array.Data // the dictionary that coded texts are places in
	textsFirst *int32      // what tells it from others
}

// entries are the levels of one leaf below a column: what tells its nulls and lists. Both are nil where all is there.
type entries struct{ defs, reps []uint8 }

var errUneven = errors.New("columns of one struct differ in how many values they have")

// openColumn opens the readers of the leaves; children without wanted leaves are left out, nil when none is wanted.
func (r *fileReader) openColumn(f *pqarrow.SchemaField, leaves map[int]bool, meta *metadata.RowGroupMetaData,
) (*columnReader, error) {
	c := &columnReader{field: f.Field, levels: f.LevelInfo}
	c.lists = c.isList()
	if f.IsLeaf() {
		if !leaves[f.ColIndex] {
			return nil, nil
		}
		return c, r.openLeaf(c, f, meta)
	}
	for i := range f.Children {
		child, err := r.openColumn(&f.Children[i], leaves, meta)
		if err != nil {
			return nil, err
		}
		if child != nil {
			c.children = append(c.children, child)
			c.lists = c.lists || child.lists
		}
	}
	if len(c.children) == 0 {
		return nil, nil
	}
	return c, nil
}

func (r *fileReader) openLeaf(c *columnReader, f *pqarrow.SchemaField, meta *metadata.RowGroupMetaData) error {
	chunk, err := meta.ColumnChunk(f.ColIndex)
	if err != nil {
		return err
	}
	column := r.file.MetaData().Schema.Column(f.ColIndex)
	c.stored, c.slots = parquet.Physical(column.PhysicalType()), chunk.NumValues()
	if c.stored == parquet.PhysicalBytes {
		c.text = max(chunk.TotalUncompressedSize(), 0)
	}
	if err := c.check(column.TypeLength()); err != nil {
		return err
	}
	if c.leaf, err = r.file.openColumn(meta, f.ColIndex, r.room); err == nil && r.coded {
		c.leaf.Code()
	}
	return err
}

// bytesOfRow is what a row takes in memory on average over a row group of so many rows.
func (c *columnReader) bytesOfRow(rows int64) int64 {
	if c.leaf != nil {
		return max(c.slots/max(rows, 1), 1)*int64(c.leaf.SlotBytes()) + c.text/max(rows, 1)
	}
	n := int64(0)
	for _, child := range c.children {
		n += child.bytesOfRow(rows)
	}
	return n
}

// appendReaders appends the readers of the column's leaves.
func (c *columnReader) appendReaders(readers []*parquet.ColumnReader) []*parquet.ColumnReader {
	if c.leaf != nil {
		return append(readers, c.leaf)
	}
	for _, child := range c.children {
		readers = child.appendReaders(readers)
	}
	return readers
}

func (c *columnReader) held() int {
	if c.leaf != nil {
		return c.leaf.Held()
	}
	n := 0
	for _, child := range c.children {
		n += child.held()
	}
	return n
}

func (c *columnReader) release() {
	if c.leaf != nil {
		c.leaf.Release()
	}
	for _, child := range c.children {
		child.release()
	}
}

// pass passes over the next n rows.
func (c *columnReader) pass(n int) {
	if c.leaf != nil {
		c.leaf.Pass(n)
	}
	for _, child := range c.children {
		child.pass(n)
	}
}

// read passes over the next n rows and returns those of them in rows, with the entries of one leaf, which are valid until
// the next read.
func (c *columnReader) read(n int, rows []expr.Span) (arrow.Array, entries, error) {
	if c.leaf != nil {
		v, err := c.leaf.Read(n, rows)
		if err != nil {
			return nil, entries{}, err
		}
		arr, err := c.array(&v)
		return arr, entries{v.Defs, v.Reps}, err
	}
	children := make([]arrow.Array, 0, len(c.children))
	defer func() {
		for _, child := range children {
			child.Release()
		}
	}()
	var e entries
	for _, child := range c.children {
		arr, its, err := child.read(n, rows)
		if err != nil {
			return nil, entries{}, err
		}
		if children, e = append(children, arr), its; arr.Len() != children[0].Len() {
			return nil, entries{}, errUneven
		}
	}
	if c.isList() {
		arr, err := c.list(children[0], e)
		return arr, e, err
	}
	arr, err := c.structure(children, e)
	return arr, e, err
}

func (c *columnReader) isList() bool {
	id := storageOf(c.field.Type).ID()
	return id == arrow.LIST || id == arrow.MAP
}

func storageOf(t arrow.DataType) arrow.DataType {
	if ext, ok := t.(arrow.ExtensionType); ok {
		return ext.StorageType()
	}
	return t
}

// structure makes a struct of its children.
func (c *columnReader) structure(children []arrow.Array, e entries) (arrow.Array, error) {
	fields, data := c.fields(children)
	buffers := []*memory.Buffer{nil}
	n, nulls := children[0].Len(), 0
	if e.defs != nil {
		slots := e.slots(c.levels.RepLevel, c.levels.RepeatedAncestorDefLevel)
		if len(slots) != n {
			return nil, errUneven
		}
		if nulls = countBelow(slots, uint8(c.levels.DefLevel)); nulls > 0 {
			buffers[0] = validity(slots, uint8(c.levels.DefLevel))
		}
	}
	d := array.NewData(arrow.StructOf(fields...), n, buffers, data, nulls, 0)
	defer d.Release()
	return array.NewStructData(d), nil
}

func (c *columnReader) fields(children []arrow.Array) ([]arrow.Field, []arrow.ArrayData) {
	fields, data := make([]arrow.Field, len(children)), make([]arrow.ArrayData, len(children))
	for i, child := range children {
		fields[i], data[i] = *c.children[i].field, child.Data()
		fields[i].Type = child.DataType()
	}
	return fields, data
}

// slots are the definition levels of entries that are places of an array at these levels, rather than lie deeper in one
// or say that a list around it has none.
func (e entries) slots(rep, from int16) []uint8 {
	if e.reps == nil {
		return e.defs
	}
	out := make([]uint8, 0, len(e.defs))
	for i, d := range e.defs {
		if int16(e.reps[i]) <= rep && int16(d) >= from {
			out = append(out, d)
		}
	}
	return out
}

// list makes a list, or a map, of its elements.
func (c *columnReader) list(elements arrow.Array, e entries) (arrow.Array, error) {
	l := &c.levels // of elements; the list itself is there one level below
	var lists []uint8
	var offsets []int32
	n := int32(0)
	for i, d := range e.defs {
		if int16(e.reps[i]) < l.RepLevel && int16(d) >= l.RepeatedAncestorDefLevel {
			lists, offsets = append(lists, d), append(offsets, n)
		}
		if int16(e.reps[i]) <= l.RepLevel && int16(d) >= l.DefLevel {
			n++
		}
	}
	if int(n) != elements.Len() {
		return nil, errUneven
	}
	offsets = append(offsets, n)
	var valid *memory.Buffer
	nulls := countBelow(lists, uint8(l.DefLevel-1))
	if nulls > 0 {
		valid = validity(lists, uint8(l.DefLevel-1))
	}
	element := *c.children[0].field
	element.Type = elements.DataType()
	var t arrow.DataType = arrow.ListOfField(element)
	if storageOf(c.field.Type).ID() == arrow.MAP {
		pair, ok := element.Type.(*arrow.StructType)
		if !ok || pair.NumFields() != 2 {
			return nil, fmt.Errorf("a map of %s, wanted of keys and values", element.Type)
		}
		t = arrow.MapOfFields(pair.Field(0), pair.Field(1))
	}
	d := array.NewData(t, len(lists), []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))},
		[]arrow.ArrayData{elements.Data()}, nulls, 0)
	defer d.Release()
	return array.MakeFromData(d), nil
}

func countBelow(levels []uint8, def uint8) (n int) {
	for _, l := range levels {
		if l < def {
			n++
		}
	}
	return n
}

// validity has a bit for each level that is at least def.
func validity(levels []uint8, def uint8) *memory.Buffer {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	bits := make([]byte, bitutil.BytesForBits(int64(len(levels))))
	i := 0
	for ; i+8 <= len(levels) && def < 128; i += 8 { // eight at a time, as long as none is above 127
		word := binary.LittleEndian.Uint64(levels[i:])
		if word&high != 0 {
			break
		}
		reached := ((word | high) - uint64(def)*ones) & high >> 7 // a byte is 1 where its level is at least def
		bits[i>>3] = byte(reached * 0x0102040810204080 >> 56)     // which brings these bits together
	}
	for ; i < len(levels); i++ {
		if levels[i] >= def {
			bits[i>>3] |= 1 << (i & 7)
		}
	}
	return memory.NewBufferBytes(bits)
}
