package freshet_test

import (
	"math/rand/v2"
	"testing"

	"github.com/freshet-io/freshet"
)

func TestMask_RowsPickedAndPutThroughBytes_MarksTheSame(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, columns := range []int{1, 63, 64, 65, 130} {
		const rows = 40
		m := freshet.NewMask(columns)
		for range 60 {
			m.Mark(r.IntN(rows/2), r.IntN(columns)) // the others have no marks, nor memory for them
		}
		var picked []int32
		for row := range int32(rows) {
			if r.IntN(2) == 0 {
				picked = append(picked, row)
			}
		}
		some := m.Pick(picked)
		again := freshet.NewMask(columns)
		bytes, width := m.Bytes(rows), m.RowBytes()
		if len(bytes) != rows*width {
			t.Fatalf("got %d bytes of %d rows, want %d each", len(bytes), rows, width)
		}
		for row := range rows {
			again.MarkBytes(row, bytes[row*width:(row+1)*width])
		}
		for n, row := range picked {
			for c := range columns {
				if got, want := some.Has(n, c), m.Has(int(row), c); got != want {
					t.Fatalf("%d columns: picked row %d, column %d: got %v, want %v", columns, row, c, got, want)
				}
			}
		}
		for row := range rows {
			for c := range columns {
				if got, want := again.Has(row, c), m.Has(row, c); got != want {
					t.Fatalf("%d columns: row %d, column %d through bytes: got %v, want %v", columns, row, c, got, want)
				}
			}
		}
	}
	if got := freshet.NewMask(3).Pick([]int32{0, 5}); got != nil {
		t.Errorf("got %v of a mask without marks, want nil", got)
	}
}
