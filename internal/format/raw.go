package format

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// RawColumn is the one column of the raw format: binary, null for a payload that is nil.
const RawColumn = "value"

// Raw is the format of bytes that land as they came. Nothing in it can be rejected, nothing is unpacked or
// limited; the zero value is ready. It implements freshet.Format.
type Raw struct{}

// Infer returns the one column RawColumn. It does not look at the payloads, nor at other columns of a table: those stay
// null.
func (Raw) Infer([]freshet.Payload, *arrow.Schema) (*arrow.Schema, error) {
	return arrow.NewSchema([]arrow.Field{{Name: RawColumn, Type: arrow.BinaryTypes.Binary, Nullable: true}}, nil), nil
}

// NewDecoder returns a decoder into the column RawColumn, which must be the only one, binary and nullable.
func (Raw) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	if schema.NumFields() != 1 || schema.Field(0).Name != RawColumn ||
		schema.Field(0).Type.ID() != arrow.BINARY || !schema.Field(0).Nullable {
		return nil, fmt.Errorf("raw format: found the columns %v, wanted one nullable binary column %q",
			schema.Fields(), RawColumn)
	}
	return &rawDecoder{schema: schema, values: column.NewText(column.Validity{})}, nil
}

type rawDecoder struct {
	schema *arrow.Schema
	values *column.Text
}

func (d *rawDecoder) Append(p freshet.Payload) (int, error) {
	payload := p.Value
	if d.Len() > 0 && len(d.values.Data)+len(payload) > flushBytes {
		return 0, freshet.ErrFull
	}
	if payload == nil {
		d.values.AppendNull()
	} else {
		d.values.Append(payload)
	}
	return 1, nil
}

func (d *rawDecoder) Len() int { return d.values.Rows() }

func (d *rawDecoder) Flush() freshet.Decoded {
	rows := d.Len()
	data := d.values.Take(arrow.BinaryTypes.Binary)
	defer data.Release()
	column := array.MakeFromData(data)
	defer column.Release()
	return freshet.Decoded{Rows: array.NewRecordBatch(d.schema, []arrow.Array{column}, int64(rows))}
}

func (d *rawDecoder) Release() { d.values = column.NewText(column.Validity{}) }
