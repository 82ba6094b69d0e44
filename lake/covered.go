package lake

import (
	"slices"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// uncover drops the rows that a table gets with a seq of another lane, of which it holds all up to held: those of a later one.
// What is left of an update of which one image is dropped is a delete, or an insert.
func uncover(b *freshet.Batch, held int64) {
	if b.Covered == nil {
		return
	}
	covered := b.Covered
	b.Covered = nil
	dropped := func(row int) bool { return row >= 0 && row < len(covered) && covered[row] > held }
	var spans []expr.Span
	kinds := slices.Clone(b.Kinds)
	for row := range covered {
		if dropped(row) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].To == row {
			spans[n-1].To++
		} else {
			spans = append(spans, expr.Span{From: row, To: row + 1})
		}
		switch {
		case kinds == nil:
		case kinds[row] == freshet.UpdatePreimage && dropped(row+1) && kinds[row+1] == freshet.UpdatePostimage:
			kinds[row] = freshet.Delete
		case kinds[row] == freshet.UpdatePostimage && dropped(row-1) && kinds[row-1] == freshet.UpdatePreimage:
			kinds[row] = freshet.Insert
		}
	}
	if expr.CountRows(spans) == len(covered) {
		return
	}
	b.Kinds, b.Seqs, b.Stamps = kinds, slices.Clone(b.Seqs), slices.Clone(b.Stamps)
	b.Places, b.Records = slices.Clone(b.Places), slices.Clone(b.Records)
	if len(spans) == 0 {
		b.Thin(nil, expr.Bounds(spans))
		return
	}
	b.Thin(expr.TakeBatch(b.Rows, spans), expr.Bounds(spans))
}
