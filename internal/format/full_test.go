package format_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// Small records that unpack to much must not gather in one batch, nor end the run.
func TestAppend_MoreThanABatchMayHold_IsFullAndGoesOnAfterAFlush(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 40<<20)
	asJSON := append(append([]byte(`{"s":"`), text...), `"}`...)
	jsonFormat, err := format.NewJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	column := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	rawColumn, err := format.Raw{}.Infer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		format  freshet.Format
		schema  *arrow.Schema
		payload []byte
	}{{"json", jsonFormat, column, asJSON}, {"raw", format.Raw{}, rawColumn, text}} {
		t.Run(c.name, func(t *testing.T) {
			d, err := c.format.NewDecoder(c.schema)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Release()
			if _, err := d.Append(freshet.Payload{Value: c.payload}); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Append(freshet.Payload{Value: c.payload}); !errors.Is(err, freshet.ErrFull) {
				t.Fatalf("got %v, want ErrFull", err)
			}
			if got := d.Len(); got != 1 {
				t.Errorf("got %d rows after ErrFull, want 1", got)
			}
			d.Flush().Rows.Release()
			if rows, err := d.Append(freshet.Payload{Value: c.payload}); rows != 1 || err != nil {
				t.Errorf("after a flush: got %d rows, %v", rows, err)
			}
		})
	}
}
