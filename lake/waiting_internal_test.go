package lake

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

// FuzzWaitingRow decodes bytes that quarantine may hold: whatever they are, a row or an error comes of them.
func FuzzWaitingRow(f *testing.F) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "text", Type: arrow.BinaryTypes.String, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(7)
	b.Field(1).AppendNull()
	r := &waitingRow{kind: freshet.UpdatePostimage, stamp: freshet.Stamp{Tx: "9", Ordinal: -1}, sent: b.NewRecordBatch()}
	data, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	var back waitingRow
	if err := back.decode(data); err != nil || back.kind != r.kind || back.stamp != r.stamp ||
		!array.RecordEqual(back.sent, r.sent) {
		f.Fatalf("got %+v, %v, want what was encoded", back, err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r waitingRow
		if err := r.decode(data); err == nil && (r.sent == nil || r.sent.NumRows() != 1) {
			t.Errorf("got no row and no error")
		}
	})
}
