package keyindex_test

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// rowHash is the fingerprint of a row of columns with one value each.
func rowHash(t *testing.T, h *keyindex.Hasher, names []string, columns ...arrow.Array) keyindex.Fingerprint {
	t.Helper()
	got, err := h.AppendRows(nil, names, columns)
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

// lists is an array with one list; nil is a null in it.
func lists(t *testing.T, values ...any) arrow.Array {
	t.Helper()
	b := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64)
	defer b.Release()
	b.Append(true)
	for _, v := range values {
		if v == nil {
			b.ValueBuilder().AppendNull()
			continue
		}
		b.ValueBuilder().(*array.Int64Builder).Append(v.(int64))
	}
	return b.NewArray()
}

func TestHasher_WholeRows_SameOnlyWhereNobodyCanTellThemApart(t *testing.T) {
	h := newHasher(t, 1, false)
	double, text, long := arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	one := func(name string, c arrow.Array) keyindex.Fingerprint { return rowHash(t, h, []string{name}, c) }
	nan := math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)
	same := [][2]keyindex.Fingerprint{
		{one("a", column(t, double, math.NaN())), one("a", column(t, double, nan))},
		{one("a", column(t, long, int64(1))), rowHash(t, h, []string{"a", "b"}, column(t, long, int64(1)), column(t, text, nil))},
		{rowHash(t, h, []string{"a", "b"}, column(t, long, int64(1)), column(t, long, int64(2))),
			rowHash(t, h, []string{"b", "a"}, column(t, long, int64(2)), column(t, long, int64(1)))},
	}
	for i, p := range same {
		if p[0] != p[1] {
			t.Errorf("pair %d: got other fingerprints, want one", i)
		}
	}
	all := []keyindex.Fingerprint{
		one("a", column(t, double, 0.0)), one("a", column(t, double, math.Copysign(0, -1))), one("a", column(t, double, math.NaN())),
		one("a", column(t, double, nil)), one("a", column(t, text, "")), one("a", column(t, text, "a")), one("b", column(t, text, "a")),
		one("a", column(t, long, int64(0))), one("a", lists(t)), one("a", lists(t, nil)), one("a", lists(t, int64(0))),
		one("a", lists(t, int64(0), nil)), one("a", lists(t, nil, int64(0))),
	}
	seen := map[keyindex.Fingerprint]int{}
	for i, f := range all {
		if other, is := seen[f]; is {
			t.Errorf("rows %d and %d: got one fingerprint, want two", other, i)
		}
		seen[f] = i
	}
	if _, err := h.AppendRows(nil, []string{"a"}, []arrow.Array{array.NewNull(1)}); err == nil {
		t.Error("a column without a type: got no error")
	}
	if _, err := h.AppendRows(nil, nil, nil); err == nil {
		t.Error("no columns: got no error")
	}
}

func TestFingerprint_Numbered_ZeroIsItselfOthersSpread(t *testing.T) {
	f := keyindex.Fingerprint{Hi: 1, Lo: 2}
	if f.Numbered(0) != f {
		t.Errorf("got %v, want %v", f.Numbered(0), f)
	}
	parts := map[uint64]int{}
	for n := range int64(4096) {
		parts[f.Numbered(n).Hi>>56]++
	}
	for part, n := range parts {
		if n > 64 { // a 256th is 16
			t.Errorf("part %d: got %d of 4096, want about a 256th", part, n)
		}
	}
}
