package keyindex

import "testing"

func TestDueMerge_Sizes_NewestOfOneSize(t *testing.T) {
	const k, m = 1000, 1_000_000
	for _, c := range []struct {
		name  string
		sizes []uint64
		want  int
	}{
		{"none", nil, 0},
		{"one", []uint64{100 * m}, 0},
		{"three small ones", []uint64{k, k, k, 100 * m}, 0},
		{"four small ones", []uint64{k, k, k, k, 100 * m}, 4},
		{"four small ones on larger ones", []uint64{k, k, k, k, 100 * k, 100 * k, 100 * m}, 4},
		{"four larger ones below small ones", []uint64{k, 100 * k, 100 * k, 100 * k, 100 * k, 100 * m}, 5},
		{"sizes that grow", []uint64{k, 10 * k, 100 * k, m, 10 * m, 100 * m}, 0},
		{"a large one on smaller ones", []uint64{10 * m, k, k, k, k, 100 * m}, 0},
		{"a third of the oldest", []uint64{4 * m, 10 * m}, 2},
		{"few on an empty table", []uint64{10, 10}, 2},
	} {
		if got := dueMerge(c.sizes); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	var many []uint64
	for range mergeMost {
		many = append(many, m)
		many = append(many, 0)[:len(many)]
	}
	if got := dueMerge(append([]uint64{50 * m}, append(many, 1000*m)...)); got != mergeMost+1 {
		t.Errorf("many runs: got %d, want all but the oldest", got)
	}
}

// Whatever comes, merges keep the runs few and rewrite an entry only so often.
func TestDueMerge_StreamOfChanges_FewRunsAndFewRewrites(t *testing.T) {
	sizes := []uint64{100_000_000}
	var written, changed uint64
	for range 20_000 {
		sizes = append([]uint64{2_000}, sizes...)
		changed += 2_000
		for n := dueMerge(sizes); n > 0; n = dueMerge(sizes) {
			var sum uint64
			for _, s := range sizes[:n] {
				sum += s
			}
			if n == len(sizes) {
				sum = 100_000_000
			}
			written += sum
			sizes = append([]uint64{sum}, sizes[n:]...)
		}
		if len(sizes) > mergeMost {
			t.Fatalf("got %d runs", len(sizes))
		}
	}
	if factor := float64(written) / float64(changed); factor > 12 {
		t.Errorf("got each entry written %.1f times, want at most 12", factor)
	}
}
