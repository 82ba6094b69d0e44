package lake

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// gatheredColumn is one column of all gathered rows: as the batches have it, or, where it was asked for so, as one array.
// Most columns are only copied into files, for which nothing need be put side by side.
type gatheredColumn struct {
	parts []arrow.Array // one a batch, or the whole alone
}

// whole is the column as one array, which stays the column's.
func (c *gatheredColumn) whole() (arrow.Array, error) {
	if len(c.parts) == 1 {
		return c.parts[0], nil
	}
	all, err := array.Concatenate(c.parts, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	c.replace(all)
	return all, nil
}

// replace puts another array, which becomes the column's, in its place.
func (c *gatheredColumn) replace(all arrow.Array) {
	c.release()
	c.parts = []arrow.Array{all}
}

func (c *gatheredColumn) release() {
	for _, part := range c.parts {
		part.Release()
	}
	c.parts = nil
}

// at is where the cell of a row is: an array that has it, and its place there.
func (c *changeRows) at(column int, row int32) (arrow.Array, int64) {
	parts := c.columns[column].parts
	if len(parts) == 1 {
		return parts[0], int64(row)
	}
	return parts[c.from[row]], int64(c.row[row])
}

// column is a column as one array, which stays the rows'.
func (c *changeRows) column(i int) (arrow.Array, error) { return c.columns[i].whole() }

// picked are some of the rows, in the order in which they are wanted: where they are among all, and in the batches.
type picked struct {
	spans []expr.Span
	parts []pickedPart
}

// pickedPart is what lies one behind another in the order wanted, and is of one batch.
type pickedPart struct {
	batch int32
	spans []expr.Span
}

func (c *changeRows) pick(rows []int32) *picked {
	p := &picked{spans: expr.SpansOf(rows)}
	places := make([]int32, len(rows))
	from := 0
	for i, row := range rows {
		places[i] = c.row[row]
		if i+1 == len(rows) || c.from[rows[i+1]] != c.from[row] {
			p.parts = append(p.parts, pickedPart{c.from[row], expr.SpansOf(places[from : i+1])})
			from = i + 1
		}
	}
	return p
}

// take is a column of the picked rows, the caller's.
func (c *changeRows) take(column int, p *picked) (arrow.Array, error) {
	of := c.columns[column].parts
	switch {
	case len(of) == 1:
		return takeSpans(of[0], p.spans), nil
	case len(p.parts) == 1:
		return takeSpans(of[p.parts[0].batch], p.parts[0].spans), nil
	}
	pieces := make([]arrow.Array, len(p.parts))
	for i, part := range p.parts {
		pieces[i] = takeSpans(of[part.batch], part.spans)
		defer pieces[i].Release()
	}
	return array.Concatenate(pieces, memory.DefaultAllocator)
}

// takeSpans is expr.Take without a copy of rows that lie one behind another.
func takeSpans(a arrow.Array, spans []expr.Span) arrow.Array {
	if len(spans) == 1 {
		return array.NewSlice(a, int64(spans[0].From), int64(spans[0].To))
	}
	return expr.Take(a, spans)
}
