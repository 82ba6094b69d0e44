package lake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

// encodeRows are the rows of the batch with all that is known of them, as a stream; nil when it has none.
func encodeRows(b *freshet.Batch) ([]byte, error) {
	if b.NumRows() == 0 {
		return nil, nil
	}
	var out bytes.Buffer
	err := writeTold(&out, b)
	return out.Bytes(), err
}

// writeTold is encodeRows of a batch that has rows, into a buffer, which it empties first.
func writeTold(out *bytes.Buffer, b *freshet.Batch) error {
	c := &toldColumns{}
	defer c.release()
	c.tell(b)
	names, values := []string{columnsKey}, []string{strconv.Itoa(int(b.Rows.NumCols()))}
	if b.Behind != nil {
		text, err := json.Marshal(b.Behind)
		if err != nil {
			return err
		}
		names, values = append(names, behindKey), append(values, string(text))
	}
	meta := arrow.NewMetadata(names, values)
	schema := arrow.NewSchema(append(slices.Clone(b.Rows.Schema().Fields()), c.fields...), &meta)
	whole := array.NewRecordBatch(schema, append(slices.Clone(b.Rows.Columns()), c.columns...), int64(b.NumRows()))
	defer whole.Release()
	return writeStream(out, whole)
}

// behindKey is what the metadata calls Batch.Behind, which is JSON in it.
const behindKey = "behind"

func decodeBehind(meta arrow.Metadata) (*freshet.Place, error) {
	text, ok := meta.GetValue(behindKey)
	if !ok {
		return nil, nil
	}
	at := &freshet.Place{}
	if err := json.Unmarshal([]byte(text), at); err != nil {
		return nil, fmt.Errorf("found %.100q, wanted a place: %w", text, err)
	}
	return at, nil
}

// toldColumns are what is known of the rows of a batch beside their values, as columns.
type toldColumns struct {
	fields  []arrow.Field
	columns []arrow.Array
}

func (c *toldColumns) release() {
	for _, column := range c.columns {
		column.Release()
	}
}

func (c *toldColumns) add(f arrow.Field, data arrow.ArrayData) {
	c.fields, c.columns = append(c.fields, f), append(c.columns, array.MakeFromData(data))
	data.Release()
}

// fixed adds a column of values that are all there.
func (c *toldColumns) fixed(f arrow.Field, rows int, values []byte) {
	c.add(f, array.NewData(f.Type, rows, []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0))
}

// texts adds a column of texts that are all there, which end at these places of the values.
func (c *toldColumns) texts(f arrow.Field, rows int, ends []int32, values []byte) {
	c.add(f, array.NewData(f.Type, rows, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends)),
		memory.NewBufferBytes(values)}, nil, 0, 0))
}

// tell makes the columns of what there is to tell, in the order of recordFields and changeFields.
func (c *toldColumns) tell(b *freshet.Batch) {
	n := b.NumRows()
	if b.Records == nil {
		c.fixed(recordFields[0], n, arrow.Int64Traits.CastToBytes(b.Seqs))
	} else {
		c.records(b)
	}
	if b.Places != nil {
		c.fixed(changeFields[0], n, arrow.Int32Traits.CastToBytes(b.Places))
	}
	if b.Kinds != nil {
		kinds := make([]byte, n)
		for row, k := range b.Kinds {
			kinds[row] = byte(k)
		}
		c.fixed(changeFields[1], n, kinds)
	}
	if b.Unsent != nil {
		width := b.Unsent.RowBytes()
		ends := make([]int32, n+1)
		for i := range ends {
			ends[i] = int32(i * width)
		}
		c.texts(changeFields[2], n, ends, b.Unsent.Bytes(n))
	}
	if b.Stamps != nil {
		c.stamps(b)
	}
}

// records makes the columns of recordFields.
func (c *toldColumns) records(b *freshet.Batch) {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(recordFields, nil))
	defer rb.Release()
	for row := range b.NumRows() {
		r := b.Records[row].Record()
		appendRecord(rb, b.Seqs[row], &r)
	}
	rec := rb.NewRecordBatch()
	defer rec.Release()
	for i, column := range rec.Columns() {
		column.Retain()
		c.fields, c.columns = append(c.fields, recordFields[i]), append(c.columns, column)
	}
}

func (c *toldColumns) stamps(b *freshet.Batch) {
	n := b.NumRows()
	ends, ordinals, committed := make([]int32, 1, n+1), make([]int64, n), make([]int64, n)
	var names []byte
	for row := range b.Stamps {
		s := &b.Stamps[row]
		names = append(names, s.Tx...)
		ends = append(ends, int32(len(names)))
		ordinals[row], committed[row] = s.Ordinal, s.Committed
	}
	c.texts(changeFields[3], n, ends, names)
	c.fixed(changeFields[4], n, arrow.Int64Traits.CastToBytes(ordinals))
	c.fixed(changeFields[5], n, arrow.Int64Traits.CastToBytes(committed))
}

// decodeRows puts what encodeRows made into the batch.
func decodeRows(data []byte, b *freshet.Batch) error {
	return fromStream(data, slices.Concat(recordFields, changeFields), func(rec arrow.RecordBatch, first int) {
		takeRows(rec, first, b)
	})
}

// takeRows puts the rows of a stream, with what is told of them behind their first columns, into the batch. It panics where
// that is told of some rows alone.
func takeRows(rec arrow.RecordBatch, first int, b *freshet.Batch) {
	n := int(rec.NumRows())
	told := map[string]arrow.Array{}
	for i, f := range rec.Schema().Fields()[first:] {
		told[f.Name] = rec.Column(first + i)
	}
	seqs, ok := told["seq"].(*array.Int64)
	if !ok || seqs.NullN() > 0 {
		panic("seqs are missing")
	}
	b.Seqs = slices.Clone(seqs.Int64Values())
	if told["kept"] != nil {
		takeRecords(rec, first, b)
	}
	if places, ok := told["place"].(*array.Int32); ok && allOrNone(places) {
		b.Places = slices.Clone(places.Int32Values())
	}
	if kinds, ok := told["kind"].(*array.Uint8); ok && allOrNone(kinds) {
		b.Kinds = make([]freshet.Kind, n)
		for row, k := range kinds.Uint8Values() {
			b.Kinds[row] = freshet.Kind(min(k, uint8(freshet.Truncate)))
		}
	}
	if unsent, ok := told["unsent"].(*array.Binary); ok {
		for row := range n {
			if unsent.IsNull(row) {
				continue
			}
			if b.Unsent == nil {
				b.Unsent = freshet.NewMask(first)
			}
			b.Unsent.MarkBytes(row, unsent.Value(row))
		}
	}
	if tx, ok := told["tx"].(*array.String); ok && allOrNone(tx) {
		takeStamps(tx, told["ordinal"].(*array.Int64), told["committed"].(*array.Int64), b)
	}
	meta := rec.Schema().Metadata()
	behind, err := decodeBehind(meta)
	if err != nil {
		panic(err)
	}
	b.Behind = behind
	b.Rows = array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[:first], nil), rec.Columns()[:first], int64(n))
}

// allOrNone reports whether something is told of the rows. It panics where that is told of some.
func allOrNone(column arrow.Array) bool {
	switch column.NullN() {
	case 0:
		return true
	case column.Len():
		return false
	}
	panic("what is known of some rows is missing of others")
}

// takeRecords takes copies of the records of the rows, if they were kept.
func takeRecords(rec arrow.RecordBatch, first int, b *freshet.Batch) {
	for row := range int(rec.NumRows()) {
		if _, record := keptRecord(rec, first, row); record != nil {
			b.Records = append(b.Records, record)
		}
	}
	if n := len(b.Records); n != 0 && n != int(rec.NumRows()) {
		panic("the records of some rows are missing")
	}
}

func takeStamps(tx *array.String, ordinals, committed *array.Int64, b *freshet.Batch) {
	b.Stamps = make([]freshet.Stamp, tx.Len())
	var last string // the rows of a transaction follow each other
	for row := range b.Stamps {
		if name := tx.Value(row); name != last {
			last = strings.Clone(name)
		}
		b.Stamps[row] = freshet.Stamp{Tx: last, Ordinal: ordinals.Value(row), Committed: committed.Value(row)}
	}
}
