package freshettest

import (
	"fmt"
	"slices"
	"testing"
)

// CheckOnce fails the test unless the rows are exactly those wanted, each once, and in the order of each
// lane.
func CheckOnce(t *testing.T, what string, got []Row, want map[string][]int64) {
	t.Helper()
	lanes := map[string][]int64{}
	for _, r := range got {
		lanes[r.Lane] = append(lanes[r.Lane], r.Seq)
	}
	for lane, seqs := range want {
		if !slices.Equal(lanes[lane], seqs) {
			t.Errorf("%s of %s: %s", what, lane, difference(lanes[lane], seqs))
		}
	}
	for lane, seqs := range lanes {
		if _, ok := want[lane]; !ok {
			t.Errorf("%s of %s: got %v, want none", what, lane, seqs)
		}
	}
}

// difference tells how two lists differ, at the first place.
func difference(got, want []int64) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("got %d, then nothing, want %d next (of %d)", len(got), want[i], len(want))
		case i >= len(want):
			return fmt.Sprintf("got %d after all %d that are wanted", got[i], len(want))
		case got[i] != want[i]:
			return fmt.Sprintf("got %d at place %d, want %d", got[i], i, want[i])
		}
	}
	return "equal"
}
