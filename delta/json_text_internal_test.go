package delta

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestJSONText_RandomStrings_AsEncodingJSON checks strings in which marks stand at all places of words and blocks, with room for
// all of them and without.
func TestJSONText_RandomStrings_AsEncodingJSON(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	parts := []string{`\"`, `\\`, `\/`, `\n`, `\u00e9`, `\ud83d\ude00`, "#", "]", `\"##`, "é", "\u2028", "a", "b", "{", ":", "12345678", "\x7f"}
	for range 20_000 {
		var text strings.Builder
		for range rng.IntN(40) {
			text.WriteString(parts[min(rng.IntN(2*len(parts)), len(parts)-1)])
			text.WriteString(strings.Repeat("x", max(rng.IntN(24)-12, 0)))
		}
		quoted := `"` + text.String() + `"`
		var want string
		if err := json.Unmarshal([]byte(quoted), &want); err != nil {
			t.Fatal(err)
		}
		for _, behind := range []string{"", "\n" + strings.Repeat(" ", 20), "\n" + strings.Repeat(`"`, 100)} {
			r := &jsonReader{data: []byte(quoted + behind)}
			got, err := r.packed()
			if err != nil || got != want || r.pos != len(quoted) {
				t.Fatalf("%s: got %q up to %d, %v; want %q", quoted, got, r.pos, err, want)
			}
			r = &jsonReader{data: []byte(quoted + behind)}
			if again, err := r.text(); err != nil || string(again) != want {
				t.Fatalf("%s: got %q, %v; want %q", quoted, again, err, want)
			}
			r = &jsonReader{data: []byte(quoted + behind)}
			if err := r.skip(); err != nil || r.pos != len(quoted) {
				t.Fatalf("%s: passed over up to %d, %v", quoted, r.pos, err)
			}
		}
	}
}

func TestJSONText_CutShort_IsAnError(t *testing.T) {
	const whole = `"0123456\"89\\ab\u00e9cd\"ef\"0123456789"`
	for n := range len(whole) {
		r := &jsonReader{data: []byte(whole[:n])}
		if got, err := r.packed(); err == nil {
			t.Errorf("%s: got %q, want an error", whole[:n], got)
		}
	}
}
