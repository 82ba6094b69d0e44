package lake

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

// A parked batch is two Arrow streams of one record batch each, with a checksum, so that it comes back as it was, whatever
// its types:
//
//	rows      the batch's columns, then those of recordFields and changeFields; with Batch.Behind as metadata, where there is one
//	rejects   recordFields and rejectFields; none where there are no rejects
//
// The columns of a batch are told from ours by their number.
var (
	recordFields = []arrow.Field{
		{Name: "seq", Type: arrow.PrimitiveTypes.Int64},
		{Name: "kept", Type: arrow.FixedWidthTypes.Boolean}, // whether the record is there
		{Name: "raw", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "key", Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: "time", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, // in nanoseconds
		{Name: "time_kind", Type: arrow.PrimitiveTypes.Int32},
		{Name: "headers", Type: freshet.HeadersType(), Nullable: true},
	}
	changeFields = []arrow.Field{
		{Name: "place", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, // null in all rows: no places
		{Name: "kind", Type: arrow.PrimitiveTypes.Uint8, Nullable: true},  // null in all rows: all are inserts
		{Name: "unsent", Type: arrow.BinaryTypes.Binary, Nullable: true},  // a bit a column, the lowest first
		{Name: "tx", Type: arrow.BinaryTypes.String, Nullable: true},      // null in all rows: no stamps
		{Name: "ordinal", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "committed", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}
	rejectFields = []arrow.Field{
		{Name: "row", Type: arrow.PrimitiveTypes.Int32},
		{Name: "code", Type: arrow.BinaryTypes.String},
		{Name: "message", Type: arrow.BinaryTypes.String},
		{Name: "step", Type: arrow.BinaryTypes.String},
	}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRows are the rows of the batch with all that is known of them; nil when it has none.
func encodeRows(b *freshet.Batch) ([]byte, error) {
	if b.NumRows() == 0 {
		return nil, nil
	}
	more := slices.Concat(recordFields, changeFields)
	rb := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(more, nil))
	defer rb.Release()
	for row := range b.NumRows() {
		var record *freshet.Record
		if b.Records != nil {
			r := b.Records[row].Record()
			record = &r
		}
		appendRecord(rb, b.Seqs[row], record)
		appendChange(rb, len(recordFields), b, row)
	}
	ours := rb.NewRecordBatch()
	defer ours.Release()
	behind, err := encodeBehind(b.Behind)
	if err != nil {
		return nil, err
	}
	schema := arrow.NewSchema(append(slices.Clone(b.Rows.Schema().Fields()), more...), behind)
	whole := array.NewRecordBatch(schema, append(slices.Clone(b.Rows.Columns()), ours.Columns()...), int64(b.NumRows()))
	defer whole.Release()
	return toStream(whole)
}

// behindKey is what the metadata calls Batch.Behind, which is JSON in it.
const behindKey = "behind"

func encodeBehind(at *freshet.Place) (*arrow.Metadata, error) {
	if at == nil {
		return nil, nil
	}
	text, err := json.Marshal(at)
	meta := arrow.NewMetadata([]string{behindKey}, []string{string(text)})
	return &meta, err
}

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

// encodeRejects are the rejects of the batch; nil when it has none.
func encodeRejects(b *freshet.Batch) ([]byte, error) {
	if len(b.Rejects) == 0 {
		return nil, nil
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(slices.Concat(recordFields, rejectFields), nil))
	defer rb.Release()
	at := len(recordFields)
	for i := range b.Rejects {
		r := &b.Rejects[i]
		appendRecord(rb, r.Seq, &r.Record)
		rb.Field(at).(*array.Int32Builder).Append(r.Row)
		for k, text := range []string{string(r.Code), r.Message, r.Step} {
			rb.Field(at + 1 + k).(*array.StringBuilder).Append(text)
		}
	}
	rec := rb.NewRecordBatch()
	defer rec.Release()
	return toStream(rec)
}

func appendRecord(rb *array.RecordBuilder, seq int64, r *freshet.Record) {
	rb.Field(0).(*array.Int64Builder).Append(seq)
	rb.Field(1).(*array.BooleanBuilder).Append(r != nil)
	if r == nil {
		r = &freshet.Record{}
	}
	for i, data := range [][]byte{r.Raw, r.Key} {
		if data == nil {
			rb.Field(2 + i).AppendNull()
		} else {
			rb.Field(2 + i).(*array.BinaryBuilder).Append(data)
		}
	}
	if r.Time.IsZero() {
		rb.Field(4).AppendNull()
	} else {
		rb.Field(4).(*array.Int64Builder).Append(r.Time.UnixNano())
	}
	rb.Field(5).(*array.Int32Builder).Append(r.TimeKind)
	freshet.AppendHeaders(rb.Field(6).(*array.ListBuilder), r.Headers)
}

func appendChange(rb *array.RecordBuilder, at int, b *freshet.Batch, row int) {
	if b.Places == nil {
		rb.Field(at).AppendNull()
	} else {
		rb.Field(at).(*array.Int32Builder).Append(b.Places[row])
	}
	at++
	if b.Kinds == nil {
		rb.Field(at).AppendNull()
	} else {
		rb.Field(at).(*array.Uint8Builder).Append(uint8(b.Kinds[row]))
	}
	if !b.Unsent.Any(row) {
		rb.Field(at + 1).AppendNull()
	} else {
		bits := make([]byte, (b.Rows.NumCols()+7)/8)
		for c := range int(b.Rows.NumCols()) {
			if b.Unsent.Has(row, c) {
				bits[c/8] |= 1 << (c % 8)
			}
		}
		rb.Field(at + 1).(*array.BinaryBuilder).Append(bits)
	}
	if b.Stamps == nil {
		for i := range 3 {
			rb.Field(at + 2 + i).AppendNull()
		}
		return
	}
	rb.Field(at + 2).(*array.StringBuilder).Append(b.Stamps[row].Tx)
	rb.Field(at + 3).(*array.Int64Builder).Append(b.Stamps[row].Ordinal)
	rb.Field(at + 4).(*array.Int64Builder).Append(b.Stamps[row].Committed)
}

// toStream makes a stream of one record batch, behind the CRC-32C of its bytes, little-endian.
func toStream(rec arrow.RecordBatch) ([]byte, error) {
	var out bytes.Buffer
	out.Write(make([]byte, crc32.Size))
	w := ipc.NewWriter(&out, ipc.WithSchema(rec.Schema()))
	err := errors.Join(w.Write(rec), w.Close())
	data := out.Bytes()
	binary.LittleEndian.PutUint32(data, crc32.Checksum(data[crc32.Size:], castagnoli))
	return data, err
}

// fromStream has take read the one record batch of the stream, whose last columns must be ours. Errors: bytes that are
// something else. The reader of Arrow streams believes every length that it finds, so what is not as it was written never
// comes to it.
func fromStream(data []byte, ours []arrow.Field, take func(rec arrow.RecordBatch, first int)) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("no Arrow stream: %v", fault)
		}
	}()
	if len(data) < crc32.Size {
		return fmt.Errorf("found %d bytes, wanted a checksum and an Arrow stream", len(data))
	}
	want := binary.LittleEndian.Uint32(data)
	if data = data[crc32.Size:]; crc32.Checksum(data, castagnoli) != want {
		return errors.New("the checksum is not that of the bytes: they are not as they were written")
	}
	in, err := ipc.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer in.Release()
	fields := in.Schema().Fields()
	first := len(fields) - len(ours)
	if first < 0 || !slices.EqualFunc(fields[first:], ours, func(a, b arrow.Field) bool {
		return a.Name == b.Name && arrow.TypeEqual(a.Type, b.Type)
	}) {
		return fmt.Errorf("found the columns %v, wanted those of a parked batch", in.Schema())
	}
	if !in.Next() {
		return errors.Join(errors.New("found no rows, wanted some"), in.Err())
	}
	if err := array.ValidateRecordFull(in.RecordBatch()); err != nil {
		return err
	}
	take(in.RecordBatch(), first)
	return nil
}

// decodeRows puts what encodeRows made into the batch.
func decodeRows(data []byte, b *freshet.Batch) error {
	return fromStream(data, slices.Concat(recordFields, changeFields), func(rec arrow.RecordBatch, first int) {
		n := int(rec.NumRows())
		places, kinds := rec.Column(first+7).(*array.Int32), rec.Column(first+8).(*array.Uint8)
		unsent, tx := rec.Column(first+9).(*array.Binary), rec.Column(first+10).(*array.String)
		ordinal, committed := rec.Column(first+11).(*array.Int64), rec.Column(first+12).(*array.Int64)
		for row := range n {
			seq, record := keptRecord(rec, first, row)
			b.Seqs = append(b.Seqs, seq)
			if record != nil {
				b.Records = append(b.Records, record)
			}
			if !places.IsNull(row) {
				b.Places = append(b.Places, places.Value(row))
			}
			if !kinds.IsNull(row) {
				b.Kinds = append(b.Kinds, freshet.Kind(min(kinds.Value(row), uint8(freshet.Truncate))))
			}
			if !tx.IsNull(row) {
				b.Stamps = append(b.Stamps, freshet.Stamp{Tx: strings.Clone(tx.Value(row)), Ordinal: ordinal.Value(row),
					Committed: committed.Value(row)})
			}
			if unsent.IsNull(row) {
				continue
			}
			if b.Unsent == nil {
				b.Unsent = freshet.NewMask(first)
			}
			for c := range first {
				if unsent.Value(row)[c/8]&(1<<(c%8)) != 0 {
					b.Unsent.Mark(row, c)
				}
			}
		}
		for _, list := range []int{len(b.Records), len(b.Kinds), len(b.Stamps), len(b.Places)} {
			if list != 0 && list != n {
				panic("what is known of some rows is missing of others")
			}
		}
		behind, err := decodeBehind(rec.Schema().Metadata())
		if err != nil {
			panic(err)
		}
		b.Behind = behind
		b.Rows = array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[:first], nil), rec.Columns()[:first], int64(n))
	})
}

// decodeRejects puts what encodeRejects made into the batch.
func decodeRejects(data []byte, b *freshet.Batch) error {
	return fromStream(data, slices.Concat(recordFields, rejectFields), func(rec arrow.RecordBatch, first int) {
		text := func(c, row int) string { return rec.Column(first + c).(*array.String).Value(row) }
		for row := range int(rec.NumRows()) {
			r := freshet.Reject{Row: rec.Column(first + 7).(*array.Int32).Value(row), Code: freshet.Code(text(8, row)),
				Message: text(9, row), Step: text(10, row)}
			seq, record := keptRecord(rec, first, row)
			if r.Seq = seq; record != nil {
				r.Record = *record
			}
			b.Rejects = append(b.Rejects, r)
		}
	})
}

// keptRecord is a row's seq and a copy of its record, nil when that was not kept.
func keptRecord(rec arrow.RecordBatch, first, row int) (int64, *freshet.Record) {
	seq := rec.Column(first).(*array.Int64).Value(row)
	if !rec.Column(first + 1).(*array.Boolean).Value(row) {
		return seq, nil
	}
	r := freshet.Record{TimeKind: rec.Column(first + 5).(*array.Int32).Value(row)}
	for c, into := range map[int]*[]byte{2: &r.Raw, 3: &r.Key} {
		if data := rec.Column(first + c).(*array.Binary); !data.IsNull(row) {
			*into = append([]byte{}, data.Value(row)...)
		}
	}
	if at := rec.Column(first + 4).(*array.Int64); !at.IsNull(row) {
		r.Time = time.Unix(0, at.Value(row)).UTC()
	}
	if headers := rec.Column(first + 6).(*array.List); !headers.IsNull(row) {
		from, to := headers.ValueOffsets(row)
		e := headers.ListValues().(*array.Struct)
		key, value := e.Field(0).(*array.String), e.Field(1).(*array.Binary)
		for i := int(from); i < int(to); i++ {
			h := freshet.Header{Key: string([]byte(key.Value(i)))}
			if !value.IsNull(i) {
				h.Value = append([]byte{}, value.Value(i)...)
			}
			r.Headers = append(r.Headers, h)
		}
	}
	return seq, &r
}
