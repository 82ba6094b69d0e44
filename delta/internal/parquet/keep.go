package parquet

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Rows are picked after all are decoded when that is less work than to begin anew behind each row that is left out: when
// runs of rows have on average less than shortRuns rows, or, where most rows are wanted, less than longRuns.
const (
	shortRuns = 8
	longRuns  = 512
)

// Scattered reports whether these of n rows are better picked after decoding all.
func Scattered(rows []Range, n int) bool {
	if len(rows) < 2 {
		return false
	}
	return len(rows)*shortRuns > n || len(rows)*longRuns > n && 2*count(rows) > n
}

func count(rows []Range) (n int) {
	for _, s := range rows {
		n += s.To - s.From
	}
	return n
}

// keep leaves in v, which are no lists, those of its rows in rows, which are counted from the row first on. They move
// within the memory that they are in, since new memory costs more than the moving, unless most of it would be left over.
func (v *Values) keep(rows []Range, first, width int, maxDef uint8) {
	all := v.Len
	v.Len = count(rows)
	switch {
	case v.Defs == nil:
	case v.Nulls == 0: // all are alike
		v.Defs = v.Defs[:v.Len]
	default:
		v.Defs, v.Nulls = moveRows(v.Defs, rows, first), 0
		for _, d := range v.Defs {
			if d != maxDef {
				v.Nulls++
			}
		}
	}
	switch {
	case v.Places != nil:
		v.Places = moveRows(v.Places, rows, first)
	case v.Offsets != nil:
		v.keepTexts(rows, first)
	case width == 4:
		v.Fixed = arrow.Uint32Traits.CastToBytes(moveRows(arrow.Uint32Traits.CastFromBytes(v.Fixed), rows, first))
	case width == 8:
		v.Fixed = arrow.Uint64Traits.CastToBytes(moveRows(arrow.Uint64Traits.CastFromBytes(v.Fixed), rows, first))
	default:
		v.keepWide(rows, first, width)
	}
	if 2*v.Len < all {
		v.Fixed, v.Data = bytes.Clone(v.Fixed), bytes.Clone(v.Data)
		v.Offsets, v.Places = slices.Clone(v.Offsets), slices.Clone(v.Places)
	}
}

// moveRows moves rows to the front. Runs are mostly short, and a loop is faster than many small copies.
func moveRows[T uint8 | int32 | uint32 | uint64](all []T, rows []Range, first int) []T {
	at := 0
	for _, s := range rows {
		in := all[s.From-first : s.To-first]
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

func (v *Values) keepWide(rows []Range, first, width int) {
	at := 0
	for _, s := range rows {
		at += copy(v.Fixed[at:], v.Fixed[(s.From-first)*width:(s.To-first)*width])
	}
	v.Fixed = v.Fixed[:at]
}

func (v *Values) keepTexts(rows []Range, first int) {
	at, size := 0, 0
	for _, s := range rows {
		from, to := v.Offsets[s.From-first], v.Offsets[s.To-first]
		shift := int32(size) - from
		ends := v.Offsets[s.From-first+1 : s.To-first+1]
		out := v.Offsets[at+1 : at+1+len(ends)]
		for i, end := range ends {
			out[i] = end + shift
		}
		at += len(ends)
		size += copy(v.Data[size:], v.Data[from:to])
	}
	v.Offsets, v.Data = v.Offsets[:at+1], v.Data[:size]
}
