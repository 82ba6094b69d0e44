package delta

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// keyColumns makes two columns of random keys, few of them distinct, some null.
func keyColumns(r *rand.Rand, n int, second bool) []arrow.Array {
	a := array.NewInt64Builder(memory.DefaultAllocator)
	b := array.NewStringBuilder(memory.DefaultAllocator)
	for range n {
		if r.IntN(10) == 0 {
			a.AppendNull()
		} else {
			a.Append(int64(r.IntN(n)) << r.IntN(40))
		}
		if r.IntN(10) == 0 {
			b.AppendNull()
		} else {
			b.Append(fmt.Sprint(r.IntN(5)))
		}
	}
	if second {
		return []arrow.Array{a.NewArray(), b.NewArray()}
	}
	return []arrow.Array{a.NewArray()}
}

func TestKeyIndex_RandomKeys_PairsOfTheNestedLoop(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		two, nulls := seed%2 == 1, seed%3 == 0
		source, target := keyColumns(r, 1+r.IntN(300), two), keyColumns(r, 1+r.IntN(300), two)
		var types []arrow.DataType
		safe := make([]bool, len(source))
		for i, c := range source {
			types = append(types, c.DataType())
			safe[i] = nulls
		}
		x := newKeyIndex(newKeyCoder(types, safe), source, source[0].Len())
		var p pairs
		x.probe(target, target[0].Len(), &p)
		var got, want [][2]int
		for i := range p.target {
			got = append(got, [2]int{int(p.target[i]), int(p.source[i])})
		}
		for i := range target[0].Len() {
			for j := range source[0].Len() {
				if sameKey(target, source, i, j, nulls) {
					want = append(want, [2]int{i, j})
				}
			}
		}
		slices.SortFunc(got, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		if !slices.IsSorted(p.target) || !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %d pairs, want %d, ascending", seed, len(got), len(want))
		}
	}
}

func sameKey(a, b []arrow.Array, i, j int, nulls bool) bool {
	for n := range a {
		if a[n].IsNull(i) || b[n].IsNull(j) {
			if !nulls || a[n].IsNull(i) != b[n].IsNull(j) {
				return false
			}
			continue
		}
		if a[n].ValueStr(i) != b[n].ValueStr(j) {
			return false
		}
	}
	return true
}

func TestFloatKey_NaNsAndZeros_OneEach(t *testing.T) {
	other := math.Float64frombits(0x7ff8000000000123)
	if floatKey(math.NaN()) != floatKey(other) || floatKey(0) != floatKey(math.Copysign(0, -1)) ||
		floatKey(1) == floatKey(-1) {
		t.Error("NaNs are one key, zeros are one key, others differ")
	}
}
