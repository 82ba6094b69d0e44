package lake

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

func TestUncover_RowsOfLaterSeqs_DroppedAndUpdatesHalved(t *testing.T) {
	in, pre, post, del := freshet.Insert, freshet.UpdatePreimage, freshet.UpdatePostimage, freshet.Delete
	for _, c := range []struct {
		held    int64
		covered []int64
		kinds   []freshet.Kind
		rows    []int64
		left    []freshet.Kind
	}{
		{4, []int64{0, 5, 4}, []freshet.Kind{in, in, del}, []int64{0, 2}, []freshet.Kind{in, del}},
		{4, []int64{0, 5}, []freshet.Kind{pre, post}, []int64{0}, []freshet.Kind{del}},
		{4, []int64{5, 0}, []freshet.Kind{pre, post}, []int64{1}, []freshet.Kind{in}},
		{5, []int64{5, 0}, []freshet.Kind{pre, post}, []int64{0, 1}, []freshet.Kind{pre, post}},
		{0, []int64{1, 1}, []freshet.Kind{pre, post}, nil, nil},
	} {
		b := &freshet.Batch{Covered: c.covered, Kinds: c.kinds, Seqs: make([]int64, len(c.kinds))}
		rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n",
			Type: arrow.PrimitiveTypes.Int64}}, nil))
		for i := range c.kinds {
			rows.Field(0).(*array.Int64Builder).Append(int64(i))
		}
		b.Rows = rows.NewRecordBatch()
		shared := slices.Clone(c.kinds)
		uncover(b, c.held)
		var got []int64
		if b.Rows != nil {
			got = b.Rows.Column(0).(*array.Int64).Int64Values()
		}
		if !slices.Equal(got, c.rows) || !slices.Equal(b.Kinds, c.left) || len(b.Seqs) != len(c.rows) {
			t.Errorf("held %d, covered %v: got the rows %v, %v, want %v, %v", c.held, c.covered, got, b.Kinds, c.rows, c.left)
		}
		if !slices.Equal(c.kinds, shared) {
			t.Errorf("covered %v: the kinds that other batches have are changed", c.covered)
		}
		b.Release()
		rows.Release()
	}
}
