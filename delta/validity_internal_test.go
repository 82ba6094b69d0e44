package delta

import (
	"math/rand/v2"
	"testing"
)

func TestValidity_RandomLevels_ABitForEachThatIsAtLeastDef(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		most := []int{1, 2, 5, 127, 128, 250}[r.IntN(6)]
		levels := make([]uint8, r.IntN(40))
		for i := range levels {
			levels[i] = uint8(r.IntN(most + 1))
		}
		def := uint8(r.IntN(most + 1))
		bits := validity(levels, def).Bytes()
		for i, l := range levels {
			if got, want := bits[i>>3]>>(i&7)&1 == 1, l >= def; got != want {
				t.Fatalf("seed %d: got %t for level %d of %v at %d, want %t", seed, got, i, levels, def, want)
			}
		}
	}
}
