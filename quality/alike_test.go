package quality_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/quality"
)

// bags is a source without a key and the table that follows it, in a model like world: rows that are alike come and go.
type bags struct {
	rng     *rand.Rand
	log     []bagChange
	counts  map[string]int // at the end of the log
	ended   int
	applied int
	next    uint64
	source  []row
	table   []row
}

type bagChange struct {
	value string
	goes  bool
}

var hotValues = []string{"a", "b", "c"}

func newBags(seed uint64) *bags {
	w := &bags{rng: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	for _, value := range append([]string{"cold", "cool"}, hotValues...) {
		for range 3 {
			w.write(bagChange{value, false})
		}
	}
	w.end(len(w.log))
	w.apply(len(w.log))
	return w
}

func (w *bags) write(c bagChange) {
	if w.counts[c.value]++; c.goes {
		w.counts[c.value] -= 2
	}
	w.log = append(w.log, c)
}

func (w *bags) mark() uint64 { w.next++; return w.next }

// take takes one of the rows with the value away, whichever.
func (w *bags) take(from []row, value string) []row {
	var at []int
	for i, r := range from {
		if r.value == value {
			at = append(at, i)
		}
	}
	i := at[w.rng.IntN(len(at))]
	return slices.Delete(from, i, i+1)
}

func (w *bags) end(upto int) {
	for ; w.ended < upto; w.ended++ {
		if c := w.log[w.ended]; c.goes {
			w.source = w.take(w.source, c.value)
		} else {
			w.source = append(w.source, row{c.value, w.mark()})
		}
	}
}

// apply commits changes to the table at once, as a mirror does: a row that goes is one that came with the commit, if there is one.
func (w *bags) apply(upto int) {
	came := map[string]int{}
	for ; w.applied < upto; w.applied++ {
		switch c := w.log[w.applied]; {
		case !c.goes:
			came[c.value]++
		case came[c.value] > 0:
			came[c.value]--
		default:
			w.table = w.take(w.table, c.value)
		}
	}
	for value, n := range came {
		for range n {
			w.table = append(w.table, row{value, w.mark()})
		}
	}
}

func (w *bags) pass() {
	for range w.rng.IntN(6) {
		c := bagChange{hotValues[w.rng.IntN(len(hotValues))], w.rng.IntN(2) == 0}
		if !c.goes || w.counts[c.value] > 0 {
			w.write(c)
		}
	}
	w.end(w.ended + w.rng.IntN(len(w.log)-w.ended+1))
	w.apply(w.applied + w.rng.IntN(len(w.log)-w.applied+1))
	if w.rng.IntN(6) == 0 { // upkeep
		for i := range w.table {
			w.table[i].mark = w.mark()
		}
	}
}

var bagSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "v", Type: arrow.BinaryTypes.String}}, nil)

func (w *bags) hand(of []row, each func(quality.Rows) error) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, bagSchema)
	defer b.Release()
	var marks []uint64
	for _, r := range of {
		b.Field(0).AppendNull()
		b.Field(1).(*array.StringBuilder).Append(r.value)
		marks = append(marks, r.mark)
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	return each(quality.Rows{Batch: batch, Marks: marks})
}

func (w *bags) Key() []string     { return nil }
func (w *bags) Columns() []string { return []string{"n", "v"} }

func (w *bags) Scan(_ context.Context, _ float64, _ uint64, each func(quality.Rows) error) (quality.Coverage, error) {
	w.pass()
	return quality.Coverage{}, w.hand(w.source, each)
}

func (w *bags) Look(_ context.Context, _ [][]string, each func(quality.Rows) error) (int64, bool, error) {
	w.pass()
	settled := w.rng.IntN(3) > 0
	if settled {
		w.end(max(w.ended, w.applied))
	}
	return int64(w.ended), settled, w.hand(w.source, each)
}

// bagTable is the table of the model.
type bagTable struct{ *bags }

func (c bagTable) Read(_ context.Context, least int64, _ func(arrow.RecordBatch) ([]bool, error), each func(quality.Rows) error) (
	quality.View, error) {
	c.pass()
	c.apply(max(c.applied, int(least)))
	return quality.View{Version: int64(c.applied), Position: int64(c.applied)}, c.hand(c.table, each)
}

func TestVerify_RowsThatAreAlike_NoFalseAlarm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	looked := int64(0)
	for n := range uint64(400) {
		w := newBags(seed + n)
		r, err := quality.Verify(t.Context(), w, bagTable{w}, &quality.Options{Wait: 10 * time.Millisecond})
		if err != nil || !r.Equal() {
			t.Fatalf("model %d: got %v, %v, wanted no difference", n, r, err)
		}
		looked += r.Rechecked
	}
	if looked < 200 {
		t.Errorf("only %d contents were looked at again: the model does not do its work", looked)
	}
}

func TestVerify_RowsThatAreAlikeAreWrong_CountedAndNamed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := range uint64(100) {
		w := newBags(seed + n)
		w.table = w.take(w.take(w.table, "cold"), "cold")
		for _, value := range []string{"cool", "cool", "cool", "new"} {
			w.table = append(w.table, row{value, w.mark()})
		}
		r, err := quality.Verify(t.Context(), w, bagTable{w}, &quality.Options{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range r.Differences {
			got = append(got, fmt.Sprintf("%s %d %v", d.Class, d.Rows, d.Key))
		}
		slices.Sort(got)
		want := []string{"extra 1 [NULL new]", "extra 3 [NULL cool]", "missing 2 [NULL cold]"}
		if !slices.Equal(got, want) || r.Counts[quality.Extra] != 4 || r.Counts[quality.Missing] != 2 {
			t.Fatalf("model %d: got %v %v, wanted %v", n, got, r.Counts, want)
		}
	}
}
