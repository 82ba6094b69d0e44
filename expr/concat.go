package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// SpansOf are the rows of these numbers, in their order.
func SpansOf(rows []int32) []Span {
	spans := make([]Span, 0, len(rows))
	for _, row := range rows {
		if n := len(spans); n > 0 && spans[n-1].To == int(row) {
			spans[n-1].To++
			continue
		}
		spans = append(spans, Span{From: int(row), To: int(row) + 1})
	}
	return spans
}

// ConcatBatches puts batches of one schema, at least one, one after another; one alone is retained and returned. The result
// is the caller's. Errors: a column of more than 2 GiB of text.
func ConcatBatches(batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(batches) == 1 {
		batches[0].Retain()
		return batches[0], nil
	}
	columns := make([]arrow.Array, batches[0].NumCols())
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	var rows int64
	for _, b := range batches {
		rows += b.NumRows()
	}
	for i := range columns {
		parts := make([]arrow.Array, len(batches))
		for n, b := range batches {
			parts[n] = b.Column(i)
		}
		var err error
		if columns[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(batches[0].Schema(), columns, rows), nil
}
