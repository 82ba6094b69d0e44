package freshet

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Record is a record of a source as it came: what quarantine keeps of one that could not be taken.
type Record struct {
	Raw     []byte    // the payload; nil when there is none
	Key     []byte    // nil when there is none
	Headers []Header  // in their order
	Time    time.Time // zero when unknown
	// TimeKind says whose clock Time is, in the source's numbers: Kafka has 0 for the producer's and 1 for the
	// broker's. -1: unknown. Without Time it means nothing.
	TimeKind int32
}

// Header is one of the labels that a record bears beside its payload. A key may come more than once.
type Header struct {
	Key   string
	Value []byte // nil when there is none
}

// RecordRef leads to the record that a row came from.
type RecordRef interface {
	// Record returns the record. Its bytes may hold those of others in memory: whoever keeps it for longer than the batch clones it.
	Record() Record
}

// Record returns r, which leads to itself.
func (r *Record) Record() Record { return *r }

// Clone returns a copy that shares no memory.
func (r Record) Clone() Record {
	r.Raw, r.Key, r.Headers = bytes.Clone(r.Raw), bytes.Clone(r.Key), slices.Clone(r.Headers)
	for i, h := range r.Headers {
		r.Headers[i] = Header{strings.Clone(h.Key), bytes.Clone(h.Value)}
	}
	return r
}

// HeadersType is the type of a column of headers: array<struct<key: string, value: binary>>.
func HeadersType() arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Nullable: true, Type: arrow.StructOf(
		arrow.Field{Name: "key", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true},
	)})
}

// AppendHeaders appends headers to a builder of HeadersType: null when there are none. In a key, what is not
// UTF-8 is replaced.
func AppendHeaders(b *array.ListBuilder, headers []Header) {
	b.Append(len(headers) > 0)
	element := b.ValueBuilder().(*array.StructBuilder)
	key := element.FieldBuilder(0).(*array.StringBuilder)
	value := element.FieldBuilder(1).(*array.BinaryBuilder)
	for _, h := range headers {
		element.Append(true)
		key.Append(strings.ToValidUTF8(h.Key, "\uFFFD"))
		if h.Value == nil {
			value.AppendNull()
		} else {
			value.Append(h.Value)
		}
	}
}
