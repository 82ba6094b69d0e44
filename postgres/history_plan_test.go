package postgres

import "testing"

func TestNextAbove_AgeAndSnapshot_NumberGivenNext(t *testing.T) {
	for _, c := range []struct {
		xmax uint64
		age  int64
		want uint64
	}{
		{750, 747, 750},                          // nothing has begun above the snapshot
		{750, 750, 753},                          // three have
		{1<<32 | 10, 20, 1<<32 | 23},             // behind a round of the 32 bits
		{1<<32 - 5, 0, 1<<32 | 3},                // over the end of one
		{3 << 30, -(1 << 30) - 3 + 7, 3<<30 + 7}, // ages above 2^31 are negative
		{3 << 30, -(1 << 30) - 3 - 100, 3 << 30}, // it is never below the snapshot
	} {
		if got := nextAbove(c.xmax, c.age); got != c.want {
			t.Errorf("xmax %d, age %d: got %d, want %d", c.xmax, c.age, got, c.want)
		}
	}
}
