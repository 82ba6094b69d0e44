package transform

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// badRows are the rows of a batch that failed, with the first fault of each. The zero value has none.
type badRows struct {
	faults map[int]string
}

func (b *badRows) add(faults []expr.RowError, column string) {
	for _, f := range faults {
		if b.faults == nil {
			b.faults = map[int]string{}
		}
		if _, ok := b.faults[f.Row]; ok {
			continue
		}
		b.faults[f.Row] = f.Err.Error()
		if column != "" {
			b.faults[f.Row] = fmt.Sprintf("column %q: %v", column, f.Err)
		}
	}
}

// reject takes the bad rows out of the batch and adds them to its rejects.
func reject(b *freshet.Batch, step string, bad badRows) {
	if len(bad.faults) == 0 {
		return
	}
	addRejects(b, step, bad)
	var good []expr.Span
	from := 0
	for _, row := range append(bad.rows(), b.NumRows()) {
		if row > from {
			good = append(good, expr.Span{From: from, To: row})
		}
		from = row + 1
	}
	keep(b, good)
}

func (b *badRows) rows() []int {
	rows := make([]int, 0, len(b.faults))
	for row := range b.faults {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows
}

// addRejects adds the bad rows to the rejects, which stay in the order of their seqs.
func addRejects(b *freshet.Batch, step string, bad badRows) {
	if len(bad.faults) == 0 {
		return
	}
	taken := map[[2]int64]bool{}
	for _, r := range b.Rejects {
		taken[[2]int64{r.Seq, int64(r.Row)}] = true
	}
	for _, row := range bad.rows() {
		r := b.RejectRow(row, freshet.CodeStepFault, step, bad.faults[row])
		if b.Places == nil {
			r.Row = rowNumber(b.Seqs, row, taken)
		}
		b.Rejects = append(b.Rejects, r)
	}
	slices.SortStableFunc(b.Rejects, func(x, y freshet.Reject) int {
		return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.Row, y.Row))
	})
}

// rowNumber numbers a row within its record, so that no two rejects of a record have the same number: from
// how many rows of the record stand before it, the first number that is free. Steps before may have taken
// rows out; replays number alike.
func rowNumber(seqs []int64, row int, taken map[[2]int64]bool) int32 {
	n := int64(0)
	for row-int(n)-1 >= 0 && seqs[row-int(n)-1] == seqs[row] {
		n++
	}
	for taken[[2]int64{seqs[row], n}] {
		n++
	}
	taken[[2]int64{seqs[row], n}] = true
	return int32(n)
}

// keep leaves the rows of the spans in the batch.
func keep(b *freshet.Batch, spans []expr.Span) {
	rows := expr.CountRows(spans)
	if rows == b.NumRows() {
		return
	}
	var some arrow.RecordBatch
	if rows > 0 {
		some = expr.TakeBatch(b.Rows, spans)
	}
	b.Thin(some, expr.Bounds(spans))
}
