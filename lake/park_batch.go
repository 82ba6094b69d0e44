package lake

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
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
//	rows      the batch's columns, then those of recordFields and changeFields of which there is something to tell; how many are the
//	          batch's is metadata, and so is Batch.Behind, where there is one (park_rows.go)
//	rejects   recordFields and rejectFields; none where there are no rejects
//
// Streams of before have all of ours, with nulls where there is nothing to tell, and do not say how many are the batch's.
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

// toStream makes a stream of one record batch, behind the CRC-32C of its bytes, little-endian.
func toStream(rec arrow.RecordBatch) ([]byte, error) {
	var out bytes.Buffer
	err := writeStream(&out, rec)
	return out.Bytes(), err
}

// writeStream is toStream into a buffer, which it empties first.
func writeStream(out *bytes.Buffer, rec arrow.RecordBatch) error {
	out.Reset()
	out.Write(make([]byte, crc32.Size))
	w := ipc.NewWriter(out, ipc.WithSchema(rec.Schema()))
	err := errors.Join(w.Write(rec), w.Close())
	data := out.Bytes()
	binary.LittleEndian.PutUint32(data, crc32.Checksum(data[crc32.Size:], castagnoli))
	return err
}

// columnsKey is what the metadata calls the number of columns that are not ours.
const columnsKey = "columns"

// isOurs reports whether the fields behind the first are of ours, in their order: all of them, unless the stream tells which are not.
func isOurs(s *arrow.Schema, ours []arrow.Field) (first int, ok bool) {
	fields := s.Fields()
	same := func(a, b arrow.Field) bool { return a.Name == b.Name && arrow.TypeEqual(a.Type, b.Type) }
	text, told := s.Metadata().GetValue(columnsKey)
	if !told {
		first = len(fields) - len(ours)
		return first, first >= 0 && slices.EqualFunc(fields[first:], ours, same)
	}
	first, err := strconv.Atoi(text)
	if err != nil || first < 0 || first > len(fields) {
		return 0, false
	}
	for _, f := range fields[first:] {
		for len(ours) > 0 && !same(f, ours[0]) {
			ours = ours[1:]
		}
		if len(ours) == 0 {
			return 0, false
		}
		ours = ours[1:]
	}
	return first, true
}

// fromStream has take read the one record batch of the stream, whose columns behind the first must be ours. Errors: bytes that are
// something else. The reader of Arrow streams believes every length that it finds, so what is not as it was written never
// comes to it.
func fromStream(data []byte, ours []arrow.Field, take func(rec arrow.RecordBatch, first int)) error {
	return readStream(data, ours, func(rec arrow.RecordBatch, first int) error {
		if err := array.ValidateRecordFull(rec); err != nil {
			return err
		}
		take(rec, first)
		return nil
	})
}

// readStream is fromStream without a look at what the columns have in them.
func readStream(data []byte, ours []arrow.Field, take func(rec arrow.RecordBatch, first int) error) (err error) {
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
	first, ok := isOurs(in.Schema(), ours)
	if !ok {
		return fmt.Errorf("found the columns %v, wanted those of a parked batch", in.Schema())
	}
	if !in.Next() {
		return errors.Join(errors.New("found no rows, wanted some"), in.Err())
	}
	return take(in.RecordBatch(), first)
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
