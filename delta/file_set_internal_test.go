package delta

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestFileSet_RandomFiles_AsAMap(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, room := range []int{0, 1, 5000} {
		var set fileSet
		if set.has(fileKey{}) {
			t.Fatal("the zero value holds a file")
		}
		set.open(room)
		there := map[fileKey]bool{}
		for range 10_000 {
			key := fileKey{path: fmt.Sprint(rng.IntN(3000)), dv: []string{"", "u1"}[rng.IntN(2)]}
			if got := set.has(key); got != there[key] {
				t.Fatalf("room for %d: has %v: got %v", room, key, got)
			}
			if rng.IntN(2) == 0 {
				if got := set.add(set.hash(key)); got == there[key] {
					t.Fatalf("room for %d: add %v: got %v", room, key, got)
				}
				there[key] = true
			}
		}
	}
}
