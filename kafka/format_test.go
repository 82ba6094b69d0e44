package kafka_test

import (
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet"
)

// pairs is a format of records like "n=1 color=red": a column of bigint or string for each key. "!" is
// malformed.
type pairs struct{}

func (pairs) Infer(payloads []freshet.Payload, known *arrow.Schema) (*arrow.Schema, error) {
	var fields []arrow.Field
	at := map[string]int{}
	if known != nil {
		for _, f := range known.Fields() {
			at[f.Name] = len(fields)
			fields = append(fields, f)
		}
	}
	fixed := len(fields)
	for _, payload := range payloads {
		p := payload.Value
		if string(p) == "!" {
			continue
		}
		for pair := range strings.FieldsSeq(string(p)) {
			key, value, _ := strings.Cut(pair, "=")
			kind := arrow.DataType(arrow.PrimitiveTypes.Int64)
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				kind = arrow.BinaryTypes.String
			}
			i, ok := at[key]
			if !ok {
				at[key] = len(fields)
				fields = append(fields, arrow.Field{Name: key, Type: kind, Nullable: true})
			} else if i >= fixed && kind == arrow.BinaryTypes.String {
				fields[i].Type = kind
			}
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return arrow.NewSchema(fields, nil), nil
}

func (pairs) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	return &pairsDecoder{array.NewRecordBuilder(memory.DefaultAllocator, schema), 0}, nil
}

type pairsDecoder struct {
	b *array.RecordBuilder
	n int
}

func (d *pairsDecoder) Append(p freshet.Payload) (int, error) {
	payload := p.Value
	if string(payload) == "!" {
		return 0, &freshet.RejectError{Code: freshet.CodeMalformed, Offset: -1, Message: "found !"}
	}
	values, wider := map[string]string{}, false
	for pair := range strings.FieldsSeq(string(payload)) {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
		wider = wider || !d.b.Schema().HasField(key)
	}
	for _, f := range d.b.Schema().Fields() {
		if v, ok := values[f.Name]; ok && f.Type.ID() == arrow.INT64 {
			if _, err := strconv.ParseInt(v, 10, 64); err != nil {
				return 0, &freshet.RejectError{Code: freshet.CodeWrongType, Path: f.Name, Offset: -1,
					Message: "no number"}
			}
		}
	}
	if wider {
		return 0, freshet.ErrNewFields
	}
	for i, f := range d.b.Schema().Fields() {
		v, ok := values[f.Name]
		switch b := d.b.Field(i).(type) {
		case *array.Int64Builder:
			if n, err := strconv.ParseInt(v, 10, 64); ok && err == nil {
				b.Append(n)
				continue
			}
			b.AppendNull()
		case *array.StringBuilder:
			if ok {
				b.Append(v)
				continue
			}
			b.AppendNull()
		}
	}
	d.n++
	return 1, nil
}

func (d *pairsDecoder) Len() int { return d.n }

func (d *pairsDecoder) Flush() freshet.Decoded {
	d.n = 0
	return freshet.Decoded{Rows: d.b.NewRecordBatch()}
}

func (d *pairsDecoder) Release() { d.b.Release() }

// numbers are the columns of records like "n=1".
var numbers = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
