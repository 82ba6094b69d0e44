package parquet_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// TestWriter_PlacesInADictionary_SameFileAsTexts writes the same rows as texts and as places in dictionaries.
func TestWriter_PlacesInADictionary_SameFileAsTexts(t *testing.T) {
	for _, distinct := range []int{1, 50, 60_000} {
		t.Run(fmt.Sprint(distinct), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, uint64(distinct)))
			var texts, coded []arrow.Array
			for range 4 {
				a, b := sameTexts(t, r, distinct, 10_000)
				texts, coded = append(texts, a, a), append(coded, b, b)
			}
			if want, got := fileOf(t, texts), fileOf(t, coded); !bytes.Equal(got, want) {
				t.Errorf("got another file of %d bytes, want that of %d bytes", len(got), len(want))
			}
		})
	}
}

// sameTexts returns n rows, one in ten null, as texts and as places in a dictionary whose order is random.
func sameTexts(t *testing.T, r *rand.Rand, distinct, n int) (texts, coded arrow.Array) {
	t.Helper()
	values, plain := array.NewStringBuilder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	places := array.NewInt32Builder(memory.DefaultAllocator)
	word := func(i int) string { return fmt.Sprintf("%.*s%d", i%20, "some text before the number", i) }
	order := r.Perm(distinct)
	for _, i := range order {
		values.Append(word(i))
	}
	for range n {
		if at := r.IntN(distinct * 10 / 9); at < distinct {
			places.Append(int32(at))
			plain.Append(word(order[at]))
		} else {
			places.AppendNull()
			plain.AppendNull()
		}
	}
	kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	return plain.NewArray(), array.NewDictionaryArray(kind, places.NewArray(), values.NewArray())
}

func fileOf(t *testing.T, arrays []arrow.Array) []byte {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewWriter(&out, []parquet.Column{{Name: "a", Kind: parquet.String, Nullable: true}}, nil)
	for i, a := range arrays {
		if err := w.Append([]arrow.Array{a}, parquet.AllRows(a.Len())); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			if err := w.FlushRowGroup(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestWriter_FlippedBit_FailsTheChecksumOfItsPage flips bits of pages that another implementation then reads.
func TestWriter_FlippedBit_FailsTheChecksumOfItsPage(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	texts, _ := sameTexts(t, r, 3000, 10_000)
	data := fileOf(t, []arrow.Array{texts, texts})
	for range 50 {
		flipped := bytes.Clone(data)
		flipped[200+r.IntN(len(data)-1000)] ^= 1 << r.IntN(8)
		if err := readAll(flipped); err == nil {
			t.Error("a flipped bit was not noticed")
		}
	}
}
