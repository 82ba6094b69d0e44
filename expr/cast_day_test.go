package expr_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

func TestCast_TimestampToDate_FloorOfEachWhateverTheOrder(t *testing.T) {
	const seed, day = 11, int64(86_400_000_000)
	r := rand.New(rand.NewPCG(seed, seed))
	times := []int64{0, -1, day - 1, day, -day, -day - 1, 1_767_225_600_000_000, math.MinInt64, math.MaxInt64, -3}
	for range 500 {
		times = append(times, times[r.IntN(10)]^r.Int64N(2))
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "t", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, at := range times {
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(at))
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	e, err := expr.Parse("CAST(t AS date)")
	if err != nil {
		t.Fatal(err)
	}
	bound, err := e.Bind(schema)
	if err != nil {
		t.Fatal(err)
	}
	got, err := bound.Eval(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	for i, at := range times {
		want := at / day
		if at%day < 0 {
			want--
		}
		if have := int64(got.(*array.Date32).Value(i)); have != want {
			t.Fatalf("seed %d, row %d: the day of %d: got %d, want %d", seed, i, at, have, want)
		}
	}
}
