package parquet

import (
	"encoding/binary"
	"slices"

	"github.com/freshet-io/freshet/expr"
)

// Rows are picked out of pages whose levels and indices are all decoded when that is less work than to begin anew behind
// each row that is left out: when runs of rows have on average less than shortRuns rows, or, where most rows are wanted,
// less than longRuns.
const (
	shortRuns = 8
	longRuns  = 512
)

// Scattered reports whether these of n rows are better picked than read run by run.
func Scattered(rows []expr.Span, n int) bool {
	if len(rows) < 2 {
		return false
	}
	return len(rows)*shortRuns > n || len(rows)*longRuns > n && 2*expr.CountRows(rows) > n
}

// entries are a part of the open page, of which some are read.
type entries struct {
	slots  int         // that are read
	defs   []uint8     // of these, a level each; nil when MaxDef is 0
	of     int         // values that the part has
	values []expr.Span // those that are read, counted from the first of the part
	n      int         // values that are read
}

// rowsOf are those of the next m rows that are read, counted from the first of the m.
func (r *ColumnReader) rowsOf(m int) []expr.Span {
	if r.picked == nil {
		r.c.Room.rows = append(r.c.Room.rows[:0], expr.Span{To: m})
		return r.c.Room.rows
	}
	end := r.done + m
	n, _ := slices.BinarySearchFunc(r.picked, end, func(s expr.Span, end int) int { return s.From - end })
	rows := slices.Grow(r.c.Room.rows[:0], n)[:n]
	r.c.Room.rows = rows
	for i, s := range r.picked[:n] {
		rows[i] = expr.Span{From: s.From - r.done, To: s.To - r.done}
	}
	if n > 0 {
		rows[0].From = max(rows[0].From, 0)
		if rows[n-1].To > m {
			rows[n-1].To = m
			n-- // the rest of it is read later
		}
		r.picked = r.picked[n:]
	}
	return rows
}

// pick chooses those of entries outside of lists that are in rows, and moves their levels to the front. valid is how many
// have a value.
func (r *ColumnReader) pick(defs []uint8, valid int, rows []expr.Span) entries {
	if valid == len(defs) { // the levels are all the same
		n := expr.CountRows(rows)
		return entries{slots: n, defs: defs[:n], of: valid, values: rows, n: n}
	}
	values := r.valuesIn(rows, defs)
	defs = moveRows(defs, rows)
	return entries{slots: len(defs), defs: defs, of: valid, values: values, n: expr.CountRows(values)}
}

// valuesIn is which of the values among entries are in rows.
func (r *ColumnReader) valuesIn(rows []expr.Span, defs []uint8) []expr.Span {
	values := r.c.Room.values[:0]
	most := uint8(r.c.MaxDef)
	at, value := 0, 0
	for _, s := range rows {
		for _, d := range defs[at:s.From] {
			if d == most {
				value++
			}
		}
		from := value
		for _, d := range defs[s.From:s.To] {
			if d == most {
				value++
			}
		}
		if at = s.To; from < value {
			values = append(values, expr.Span{From: from, To: value})
		}
	}
	r.c.Room.values = values
	return values
}

// moveRows moves rows to the front. Runs are mostly short, and a loop is faster than many small copies.
func moveRows[T uint8 | uint32](all []T, rows []expr.Span) []T {
	at := 0
	for _, s := range rows {
		in := all[s.From:s.To]
		out := all[at : at+len(in)]
		if len(in) > 16 {
			copy(out, in)
		} else {
			for i, x := range in {
				out[i] = x
			}
		}
		at += len(in)
	}
	return all[:at]
}

// copyRows fills dst with rows of src, width bytes each.
func copyRows(dst, src []byte, rows []expr.Span, width int) {
	at := 0
	for _, s := range rows {
		in := src[s.From*width : s.To*width]
		out := dst[at : at+len(in)]
		at += len(in)
		switch {
		case width == 8 && len(in) <= 64:
			for i := 0; i < len(in); i += 8 {
				binary.LittleEndian.PutUint64(out[i:], binary.LittleEndian.Uint64(in[i:]))
			}
		case width == 4 && len(in) <= 64:
			for i := 0; i < len(in); i += 4 {
				binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(in[i:]))
			}
		default:
			copy(out, in)
		}
	}
}
