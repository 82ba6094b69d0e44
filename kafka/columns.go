package kafka

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// fields are the columns that are wanted, in their order. All are nullable, as columns of a table usually
// are.
func (c Columns) fields() []arrow.Field {
	key := arrow.DataType(arrow.BinaryTypes.Binary)
	if c.KeyAsText {
		key = arrow.BinaryTypes.String
	}
	all := []arrow.Field{
		{Name: c.Topic, Type: arrow.BinaryTypes.String},
		{Name: c.Partition, Type: arrow.PrimitiveTypes.Int32},
		{Name: c.Offset, Type: arrow.PrimitiveTypes.Int64},
		{Name: c.Timestamp, Type: arrow.FixedWidthTypes.Timestamp_us},
		{Name: c.TimestampType, Type: arrow.PrimitiveTypes.Int32},
		{Name: c.Key, Type: key},
		{Name: c.Headers, Type: freshet.HeadersType()},
	}
	wanted := all[:0]
	for _, f := range all {
		if f.Name != "" {
			f.Nullable = true
			wanted = append(wanted, f)
		}
	}
	return wanted
}

// named returns the column of this name, ignoring case as Delta tables do.
func (c Columns) named(name string) (arrow.Field, bool) {
	for _, f := range c.fields() {
		if strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return arrow.Field{}, false
}

// collision returns an error when a decoded column has the name of one of ours.
func (c Columns) collision(decoded *arrow.Schema) error {
	for _, f := range decoded.Fields() {
		if ours, ok := c.named(f.Name); ok {
			return &freshet.Error{
				Code: freshet.CodeBadValue, Class: freshet.ClassInput,
				Msg: fmt.Sprintf("the column %q that tells where a row came from has the name of the records' field %q",
					ours.Name, f.Name),
				Fix: "give the column another name in the source's settings",
			}
		}
	}
	return nil
}

// without returns the schema less our columns. Errors: one of ours is there with another type.
func (c Columns) without(schema *arrow.Schema) (*arrow.Schema, error) {
	if schema == nil {
		return nil, nil
	}
	var rest []arrow.Field
	for _, f := range schema.Fields() {
		ours, ok := c.named(f.Name)
		if !ok {
			rest = append(rest, f)
			continue
		}
		if !sameType(ours.Type, f.Type) {
			return nil, &freshet.Error{
				Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput,
				Msg: fmt.Sprintf("the table's column %q is %s, wanted %s for what the source writes there",
					f.Name, f.Type, ours.Type),
				Fix: "give the column another name in the source's settings",
			}
		}
	}
	meta := schema.Metadata()
	return arrow.NewSchema(rest, &meta), nil
}

// notOurs returns the schema less fields that have the name of one of our columns. They cannot be added to a
// table that is there: records that have them become rejects.
func (c Columns) notOurs(decoded *arrow.Schema) *arrow.Schema {
	fields := slices.DeleteFunc(decoded.Fields(), func(f arrow.Field) bool {
		_, ours := c.named(f.Name)
		return ours
	})
	meta := decoded.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// sameType compares what a value is, not the names of a list's elements nor what may be null.
func sameType(a, b arrow.DataType) bool {
	switch a := a.(type) {
	case *arrow.ListType:
		b, ok := b.(*arrow.ListType)
		return ok && sameType(a.Elem(), b.Elem())
	case *arrow.StructType:
		b, ok := b.(*arrow.StructType)
		if !ok || a.NumFields() != b.NumFields() {
			return false
		}
		for i, f := range a.Fields() {
			if f.Name != b.Field(i).Name || !sameType(f.Type, b.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return arrow.TypeEqual(a, b)
}

// with returns the schema and our columns.
func (c Columns) with(decoded *arrow.Schema) *arrow.Schema {
	meta := decoded.Metadata()
	return arrow.NewSchema(append(decoded.Fields(), c.fields()...), &meta)
}

// arrays builds our columns of these records, one record a row.
func (c Columns) arrays(rows []*kgo.Record) []arrow.Array {
	var arrays []arrow.Array
	for _, col := range []struct {
		name  string
		build func([]*kgo.Record) arrow.Array
	}{
		{c.Topic, topics}, {c.Partition, partitions}, {c.Offset, offsets}, {c.Timestamp, timestamps},
		{c.TimestampType, timestampTypes}, {c.Key, c.keys}, {c.Headers, headers},
	} {
		if col.name != "" {
			arrays = append(arrays, col.build(rows))
		}
	}
	return arrays
}

func topics(rows []*kgo.Record) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(len(rows))
	b.ReserveData(len(rows) * len(rows[0].Topic))
	for _, r := range rows {
		b.Append(r.Topic)
	}
	return b.NewArray()
}

func partitions(rows []*kgo.Record) arrow.Array {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(len(rows))
	for _, r := range rows {
		b.UnsafeAppend(r.Partition)
	}
	return b.NewArray()
}

func offsets(rows []*kgo.Record) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(len(rows))
	for _, r := range rows {
		b.UnsafeAppend(r.Offset)
	}
	return b.NewArray()
}

func timestamps(rows []*kgo.Record) arrow.Array {
	kind := arrow.FixedWidthTypes.Timestamp_us.(*arrow.TimestampType)
	b := array.NewTimestampBuilder(memory.DefaultAllocator, kind)
	defer b.Release()
	b.Reserve(len(rows))
	for _, r := range rows {
		if hasTime(r) {
			b.UnsafeAppend(arrow.Timestamp(r.Timestamp.UnixMicro()))
		} else {
			b.UnsafeAppendBoolToBitmap(false)
		}
	}
	return b.NewArray()
}

// hasTime reports whether the record has a timestamp. On the wire -1 says that it has none.
func hasTime(r *kgo.Record) bool { return r.Timestamp.UnixMilli() != -1 }

func timestampTypes(rows []*kgo.Record) arrow.Array {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(len(rows))
	for _, r := range rows {
		b.UnsafeAppend(int32(r.Attrs.TimestampType()))
	}
	return b.NewArray()
}

func (c Columns) keys(rows []*kgo.Record) arrow.Array {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
	var built array.Builder = b
	if c.KeyAsText {
		text := array.NewStringBuilder(memory.DefaultAllocator)
		b.Release()
		b, built = text.BinaryBuilder, text
	}
	defer built.Release()
	b.Reserve(len(rows))
	for _, r := range rows {
		if r.Key == nil {
			b.AppendNull()
		} else {
			b.Append(r.Key)
		}
	}
	return built.NewArray()
}

func headers(rows []*kgo.Record) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, freshet.HeadersType()).(*array.ListBuilder)
	defer b.Release()
	var of []freshet.Header
	for _, r := range rows {
		of = appendHeaders(of[:0], r)
		freshet.AppendHeaders(b, of)
	}
	return b.NewArray()
}

func appendHeaders(to []freshet.Header, r *kgo.Record) []freshet.Header {
	for _, h := range r.Headers {
		to = append(to, freshet.Header{Key: h.Key, Value: h.Value})
	}
	return to
}
