package transform

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// reads returns the columns of the schema that an expression reads.
func reads(e *expr.Expr, in *arrow.Schema) []int {
	var columns []int
	for _, name := range e.Names() {
		for i, f := range in.Fields() {
			if strings.EqualFold(f.Name, name[0]) {
				columns = append(columns, i)
			}
		}
	}
	return columns
}

// anyUnsent reports whether one of the columns was not sent in the row.
func anyUnsent(m *freshet.Mask, row int, columns []int) bool {
	for _, c := range columns {
		if m.Has(row, c) {
			return true
		}
	}
	return false
}

// unsentOut is the mask after a step whose column i is made of the columns from[i]: what is made of a value that was
// not sent was not sent either.
func unsentOut(m *freshet.Mask, rows int, from [][]int) *freshet.Mask {
	if m == nil {
		return nil
	}
	out, marked := freshet.NewMask(len(from)), false
	for row := range rows {
		if !m.Any(row) {
			continue
		}
		for i, columns := range from {
			if anyUnsent(m, row, columns) {
				out.Mark(row, i)
				marked = true
			}
		}
	}
	if !marked {
		return nil
	}
	return out
}
