package delta

import (
	"math"
	"math/bits"
	"testing"
)

// TestHilbert_EveryPoint_OnceAndBesideItsNeighbour walks the curves of some spaces from end to end.
func TestHilbert_EveryPoint_OnceAndBesideItsNeighbour(t *testing.T) {
	for _, space := range []struct{ dims, bits int }{{1, 8}, {2, 6}, {3, 4}, {4, 3}, {5, 2}} {
		side := 1 << space.bits
		points := make([][]uint32, 1<<(space.dims*space.bits))
		for n := range points {
			p := make([]uint32, space.dims)
			for i, rest := 0, n; i < space.dims; i, rest = i+1, rest/side {
				p[i] = uint32(rest % side)
			}
			point := append([]uint32(nil), p...)
			at := hilbert(point, space.bits)
			if at >= uint64(len(points)) || points[at] != nil {
				t.Fatalf("%+v: point %v has place %d, which another has, too", space, p, at)
			}
			points[at] = p
		}
		for i := 1; i < len(points); i++ {
			steps := 0
			for d := range space.dims {
				diff := int(points[i][d]) - int(points[i-1][d])
				steps += max(diff, -diff)
			}
			if steps != 1 {
				t.Fatalf("%+v: from %v to %v at place %d", space, points[i-1], points[i], i)
			}
		}
	}
}

func TestZOrder_CoordinatesWithMoreBits_InterleaveFromTheTop(t *testing.T) {
	if got, want := zorder([]uint32{0b11, 0b00}, 2), uint64(0b1010); got != want {
		t.Errorf("got %04b, want %04b", got, want)
	}
	if got := zorder([]uint32{1<<12 - 1, 1<<12 - 1, 1<<12 - 1}, 12); bits.OnesCount64(got) != 36 {
		t.Errorf("got %b", got)
	}
}

func TestSortKeys_NumbersOfAllSigns_KeepTheirOrder(t *testing.T) {
	last := uint64(0)
	for i, v := range []float64{-1e300, -2, -1e-300, 0, 1e-300, 0.5, 3e8} {
		if k := floating(v); i > 0 && k <= last {
			t.Errorf("%g sorts before the one before", v)
		} else {
			last = k
		}
	}
	if negative := math.Copysign(0, -1); floating(negative) != floating(0) || signed(-1) >= signed(0) {
		t.Error("zeros or signs")
	}
}
