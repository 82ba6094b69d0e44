package delta

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// matchModel is what a matcher has to tell, as plainly as can be: of each key how many rows of each content and side are
// left, and how many of each side are paired.
func matchModel(rows []matchRow) (left map[string]int, pairs map[fingerprint]int) {
	left, pairs = map[string]int{}, map[fingerprint]int{}
	net := map[fingerprint]map[uint64]int{}
	for _, r := range rows {
		if net[r.key] == nil {
			net[r.key] = map[uint64]int{}
		}
		if s, _, _ := placeParts(r.place); s == deleted {
			net[r.key][r.content]--
		} else {
			net[r.key][r.content]++
		}
	}
	for key, contents := range net {
		var sides [2]int
		for content, n := range contents {
			if n != 0 {
				left[fmt.Sprint(key, content, n > 0)] = max(n, -n)
				sides[min(max(n, 0), 1)] += max(n, -n)
			}
		}
		if n := min(sides[0], sides[1]); n > 0 {
			pairs[key] = n
		}
	}
	return left, pairs
}

func TestRowMatcher_RandomRows_AsTheModelInMemoryAndAside(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows := make([]matchRow, r.IntN(6000))
		for i := range rows {
			key := fingerprint{r.Uint64N(uint64(1 + len(rows)/3)), 7}
			rows[i] = matchRow{key, r.Uint64N(3), placeOf(side(r.IntN(2)), r.IntN(3), int64(i))}
		}
		m := newRowMatcher(int64(r.IntN(2))*matchRowBytes*1500+1, t.TempDir())
		for _, row := range rows {
			if err := m.add(row); err != nil {
				t.Fatal(err)
			}
		}
		left, pairs := map[string]int{}, map[fingerprint]int{}
		sides := map[fingerprint]int{}
		err := m.finish(func(place uint64, paired bool) {
			s, _, row := placeParts(place)
			if rows[row].place != place {
				t.Fatalf("seed %d: row %d came back as %x, was %x", seed, row, place, rows[row].place)
			}
			left[fmt.Sprint(rows[row].key, rows[row].content, s == inserted)]++
			if paired && s == deleted {
				pairs[rows[row].key]++
			} else if paired {
				sides[rows[row].key]++
			}
		})
		m.close()
		if err != nil {
			t.Fatal(err)
		}
		wantLeft, wantPairs := matchModel(rows)
		if !mapsEqual(left, wantLeft) || !mapsEqual(pairs, wantPairs) || !mapsEqual(sides, wantPairs) {
			t.Errorf("seed %d: got %d left and %d pairs, want %d and %d", seed, len(left), len(pairs), len(wantLeft),
				len(wantPairs))
		}
	}
}

func mapsEqual[K comparable](a, b map[K]int) bool {
	for k := range b {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

// hashSchema has a column of every type.
func hashSchema() *arrow.Schema {
	var fields []Field
	inner := &Struct{Fields: []Field{{Name: "x", Type: Integer, Nullable: true}, {Name: "y", Type: String, Nullable: true}}}
	for i, typ := range []Type{Boolean, Byte, Short, Integer, Long, Float, Double, Decimal{9, 2}, String, Binary, Date,
		Timestamp, TimestampNTZ, Variant, inner, &Array{Element: inner, ContainsNull: true},
		&Map{Key: String, Value: &Array{Element: Long, ContainsNull: true}, ValueContainsNull: true}, Void} {
		fields = append(fields, Field{Name: fmt.Sprint("c", i), Type: typ, Nullable: true})
	}
	return (&Schema{Fields: fields}).Arrow()
}

const hashRows = `[
	{},
	{"c0":false}, {"c0":true}, {"c1":0}, {"c1":-1}, {"c2":0}, {"c3":0}, {"c4":0}, {"c4":1}, {"c4":-1},
	{"c5":0}, {"c5":1.5}, {"c6":0}, {"c6":-0.0}, {"c6":1.5}, {"c7":"0"}, {"c7":"0.01"}, {"c7":"-0.01"},
	{"c8":""}, {"c8":"a"}, {"c8":"ab"}, {"c9":""}, {"c9":"YQ=="}, {"c8":"a","c9":"YQ=="}, {"c10":"1970-01-01"},
	{"c11":"1970-01-01T00:00:00Z"}, {"c11":"1970-01-01T00:00:01Z"}, {"c12":"1970-01-01 00:00:00"},
	{"c13":{"metadata":"AQ==","value":"AA=="}}, {"c13":{"metadata":"AA==","value":"AQ=="}},
	{"c14":{}}, {"c14":{"x":0}}, {"c14":{"y":""}}, {"c14":{"x":1,"y":"a"}}, {"c15":[]}, {"c15":[null]}, {"c15":[{}]},
	{"c15":[{"x":1},{}]}, {"c15":[{},{"x":1}]}, {"c15":[null,null]},
	{"c16":[]}, {"c16":[{"key":"a","value":null}]}, {"c16":[{"key":"a","value":[]}]},
	{"c16":[{"key":"a","value":[1]}]}, {"c16":[{"key":"a","value":[1]},{"key":"b","value":[]}]},
	{"c16":[{"key":"a","value":[]},{"key":"b","value":[1]}]}]`

func TestRowHasher_RowsOfEveryType_DifferentOnesDiffer(t *testing.T) {
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, hashSchema(), strings.NewReader(hashRows))
	if err != nil {
		t.Fatal(err)
	}
	h := newRowHasher()
	all := h.rows(rec.Columns(), int(rec.NumRows()))
	for i := range all {
		for k := range i {
			if all[i] == all[k] && i != 13 { // JSON has no -0
				t.Errorf("rows %d and %d are taken for alike", k, i)
			}
		}
		from := int64(max(i-2, 0))
		slice := rec.NewSlice(from, int64(len(all)))
		if got := h.rows(slice.Columns(), int(slice.NumRows())); !slices.Equal(got, all[from:]) {
			t.Fatalf("a slice from row %d on has other fingerprints", from)
		}
	}
	if other := newRowHasher().rows(rec.Columns(), len(all)); other[0] == all[0] || other[8] == all[8] {
		t.Error("two hashers agree: fingerprints can be foreseen")
	}
}

func TestRowHasher_Floats_NaNsAreAlikeAndZeroesAreNot(t *testing.T) {
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{math.NaN(), math.Float64frombits(0xfff8000000000123), 0, math.Copysign(0, -1), math.Inf(1)}, nil)
	f := newRowHasher().rows([]arrow.Array{b.NewArray()}, 5)
	if f[0] != f[1] || f[2] == f[3] || f[0] == f[4] {
		t.Errorf("got %x", f)
	}
}
