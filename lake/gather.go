package lake

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// gathered is what waits of a keyed table to be committed. Its batches stay whole until then: rows that turn out to be
// unacceptable go to quarantine with their records.
type gathered struct {
	spilled *spilled // what does not fit into memory, and comes first; nil: nothing
	batches []*freshet.Batch
	rows    int64
	bytes   int64    // of memory
	empties bool     // all rows that the table has go first
	columns []string // those that the source has, as the batch that came last says
}

// gatheredBytes is how much is gathered in memory unless it is said otherwise: beyond it, rows are spilled. The commit before may
// have as much, and commits of transactions that are not large have less.
const gatheredBytes = 32 << 20

// besideBytes is about what is known of a row beside its values takes, and what a commit finds out of it: deletes have little else.
const besideBytes = 128

// empty takes a Truncate, the row of this place in the batch: what came before says nothing any more.
func (g *gathered) empty(b *freshet.Batch, row int) {
	g.release()
	g.empties = true
	b.Slice(row+1, b.NumRows())
}

// lastTruncate is the place of the batch's last Truncate, -1: it has none.
func lastTruncate(b *freshet.Batch) int {
	for row, kind := range slices.Backward(b.Kinds) {
		if kind == freshet.Truncate {
			return row
		}
	}
	return -1
}

// requiredColumn is one in which rows must have a value: it is part of the key, or of the sequence.
type requiredColumn struct {
	name      string
	sequence  bool // a delete need not have been sent with it: its place in the lane orders it
	partition bool // an empty text is null in it
}

// looked are the columns by which changes are told apart and ordered.
func (t *table) looked() []string {
	switch {
	case t.opts.Dedupe != nil:
		return t.opts.Dedupe.columns()
	case t.opts.multiset(t.name):
		return t.index.given
	}
	return slices.Concat(t.key(), t.opts.Key.SequenceBy)
}

// required are the columns of the key and of the sequence, as the table has them.
func (t *table) required(key, sequence []string) []requiredColumn {
	var all []requiredColumn
	for i, name := range slices.Concat(key, sequence) {
		all = append(all, requiredColumn{name, i >= len(key), containsFold(t.meta.PartitionColumns, name)})
	}
	return all
}

// gather takes the rows of the batch, which is g's from then on. Rows that lack a value in a required column become rejects.
func (g *gathered) gather(b *freshet.Batch, required []requiredColumn) error {
	bad := map[int]string{}
	for _, r := range required {
		c := columnNamed(b.Rows.Schema(), r.name)
		if c < 0 {
			return &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: b.Table,
				Msg: fmt.Sprintf("the rows lack the key or sequence column %q: found %s", r.name,
					fieldNames(b.Rows.Schema())),
				Fix: "derive it in a step, or name a column that is there"}
		}
		r.lacking(b, c, bad)
	}
	for row := range b.NumRows() {
		why, is := bad[row]
		switch {
		case b.Kinds != nil && b.Kinds[row] == freshet.Truncate:
			bad[row] = truncateText
			b.Rejects = append(b.Rejects, rowReject(b, row, freshet.CodeTruncated, truncateText))
		case is:
			b.Rejects = append(b.Rejects, rowReject(b, row, freshet.CodeNull, why))
		}
	}
	g.columns = make([]string, b.Rows.NumCols())
	for i, f := range b.Rows.Schema().Fields() {
		g.columns[i] = f.Name
	}
	g.batches = append(g.batches, b)
	g.rows += int64(b.NumRows() - len(bad))
	g.bytes += b.MemoryBytes()
	return nil
}

// lacking notes the rows that have no value in the column, which is at c in the batch.
func (r *requiredColumn) lacking(b *freshet.Batch, c int, bad map[int]string) {
	column := b.Rows.Column(c)
	texts, _ := column.(array.BinaryLike)
	if !r.partition {
		texts = nil
	}
	if column.NullN() == 0 && texts == nil {
		return
	}
	for row := range column.Len() {
		var found string
		switch {
		case r.sequence && b.Kinds != nil && b.Kinds[row] == freshet.Delete, bad[row] != "":
		case column.IsNull(row):
			found = "null"
		case texts != nil && texts.ValueLen(row) == 0:
			found = "an empty text, which is null in a partition column"
		}
		if found != "" {
			bad[row] = fmt.Sprintf("column %q: found %s, wanted a value: it is part of the key or of the sequence", r.name, found)
		}
	}
}

// truncateText says why a table does not take a Truncate.
const truncateText = "the table was emptied in the source, and its rows stay: only mode mirror with hard deletes empties it"

// size is what the rows take in memory, or would.
func (g *gathered) size() int64 {
	n := g.bytes + g.rows*besideBytes
	if g.spilled != nil {
		n += g.spilled.memory
	}
	return n
}

func (g *gathered) release() {
	releaseBatches(g.batches)
	g.spilled.close()
	*g = gathered{}
}

// columnNamed is the place of a column, its case ignored; -1 when there is none.
func columnNamed(s *arrow.Schema, name string) int {
	for i := range s.NumFields() {
		if strings.EqualFold(s.Field(i).Name, name) {
			return i
		}
	}
	return -1
}

func fieldNames(s *arrow.Schema) string {
	names := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// changeRows are all gathered rows side by side, in the order in which they came.
type changeRows struct {
	schema  *arrow.Schema    // the table's columns that a batch has, with the table's types
	columns []gatheredColumn // of these
	kinds   []freshet.Kind
	from    []int32 // the batch of each row
	row     []int32 // the row's place in it
	unsent  *freshet.Mask
	batches []*freshet.Batch
	own     []*freshet.Batch // of batches: those that go with the rows
	waits   *waiting         // of which the first rows are; nil: none
	empties bool             // all rows that the table has go first
	whole   map[int32]bool   // rows that are whole though they were not sent so
	divided bool             // they are a share of a commit's: what it skips was left out
}

// union puts the gathered rows side by side, in the columns of the table, with the values that it will have. Those that are
// looked at row by row are one array each from then on.
func (g *gathered) union(table *delta.Schema, partitions, looked []string) (*changeRows, error) {
	all := &changeRows{batches: g.batches, empties: g.empties}
	var of []*delta.Field
	var fields []arrow.Field
	for i := range table.Fields {
		f := &table.Fields[i]
		if f.Generated() {
			continue // the table computes it
		}
		for _, b := range g.batches {
			if columnNamed(b.Rows.Schema(), f.Name) >= 0 {
				of = append(of, f) // nullable: what was not sent is null
				fields = append(fields, arrow.Field{Name: f.Name, Type: delta.ArrowType(f.Type), Nullable: true})
				break
			}
		}
	}
	all.schema = arrow.NewSchema(fields, nil)
	for i, b := range g.batches {
		all.note(i, b)
	}
	for _, f := range of {
		c, err := g.column(f, containsFold(partitions, f.Name))
		all.columns = append(all.columns, c)
		if err == nil && containsFold(looked, f.Name) {
			_, err = all.columns[len(all.columns)-1].whole()
		}
		if err != nil {
			all.release()
			return nil, err
		}
	}
	return all, nil
}

// note adds what is known of the rows of a batch beside their values.
func (c *changeRows) note(i int, b *freshet.Batch) {
	first := len(c.from)
	c.kinds = slices.Grow(c.kinds, b.NumRows())
	c.from = slices.Grow(c.from, b.NumRows())
	c.row = slices.Grow(c.row, b.NumRows())
	for row := range b.NumRows() {
		kind := freshet.UpdatePostimage
		if b.Kinds != nil {
			kind = b.Kinds[row]
		}
		c.kinds = append(c.kinds, kind)
		c.from = append(c.from, int32(i))
		c.row = append(c.row, int32(row))
	}
	for to, f := range c.schema.Fields() {
		at := columnNamed(b.Rows.Schema(), f.Name)
		if b.Unsent == nil && at >= 0 {
			continue
		}
		for row := range b.NumRows() {
			if at >= 0 && !b.Unsent.Has(row, at) {
				continue
			}
			if c.unsent == nil {
				c.unsent = freshet.NewMask(c.schema.NumFields())
			}
			c.unsent.Mark(first+row, to)
		}
	}
}

// column is one column of all batches, null where a batch has not got it, which is to be released whatever the error.
func (g *gathered) column(f *delta.Field, partition bool) (c gatheredColumn, err error) {
	for _, b := range g.batches {
		at := columnNamed(b.Rows.Schema(), f.Name)
		var part arrow.Array
		if at < 0 {
			part = array.MakeArrayOfNull(memory.DefaultAllocator, delta.ArrowType(f.Type), b.NumRows())
		} else if part, err = f.Conform(b.Rows.Column(at)); err != nil {
			return c, err
		}
		if partition {
			part = emptyAsNull(part)
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

// emptyAsNull is the column, which it takes, with null for each empty text.
func emptyAsNull(c arrow.Array) arrow.Array {
	texts, ok := c.(array.BinaryLike)
	if !ok {
		return c
	}
	from, nulls := c.Data().Offset(), 0
	valid := make([]byte, bitutil.BytesForBits(int64(from+c.Len())))
	for row := range c.Len() {
		if c.IsNull(row) || texts.ValueLen(row) == 0 {
			nulls++
		} else {
			bitutil.SetBit(valid, from+row)
		}
	}
	if nulls == c.NullN() {
		return c
	}
	defer c.Release()
	buffers := slices.Clone(c.Data().Buffers())
	buffers[0] = memory.NewBufferBytes(valid)
	data := array.NewData(c.DataType(), c.Len(), buffers, nil, nulls, from)
	defer data.Release()
	return array.MakeFromData(data)
}

func (c *changeRows) release() {
	for i := range c.columns {
		c.columns[i].release()
	}
	releaseBatches(c.own)
	c.columns, c.own = nil, nil
}

// named are the columns of these names, which union was told are looked at.
func (c *changeRows) named(names []string) []arrow.Array {
	out := make([]arrow.Array, len(names))
	for i, name := range names {
		out[i] = c.columns[columnNamed(c.schema, name)].parts[0]
	}
	return out
}

// returned reports whether the row comes out of quarantine: those are the first.
func (c *changeRows) returned(row int32) bool { return row < c.first() }

// first is the first row that does not come out of quarantine.
func (c *changeRows) first() int32 {
	if c.waits == nil {
		return 0
	}
	return int32(len(c.waits.rows))
}

// partial reports whether the row is a part of one: cells were not sent although its source has such a column.
func (c *changeRows) partial(row int32) bool {
	if c.returned(row) {
		return !c.waits.rows[row].whole
	}
	return !c.whole[row] && c.batches[c.from[row]].Unsent.Any(int(c.row[row]))
}

// seq is the seq of the row's record in its lane.
func (c *changeRows) seq(row int32) int64 { return c.batches[c.from[row]].Seqs[c.row[row]] }

// lane is the lane that the row came by.
func (c *changeRows) lane(row int32) freshet.Lane { return c.batches[c.from[row]].Lane }

// removes reports whether the row says that its key is gone. The old image of an update that changed the key does.
func (c *changeRows) removes(row int32) bool {
	return c.kinds[row] == freshet.Delete || c.kinds[row] == freshet.UpdatePreimage
}
