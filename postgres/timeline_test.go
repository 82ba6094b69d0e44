package postgres

import (
	"maps"
	"testing"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

func TestTimelines_HistoryFile_PlacesOfForks(t *testing.T) {
	got, err := parseTimelines([]byte("1\t0/3000158\tno recovery target specified\n\n# a remark\n2\t1/A0\tbefore 2026-01-01\n"))
	want := map[string]pgoutput.LSN{"1": 0x3000158, "2": 1<<32 | 0xA0}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"x\t0/1\twhy", "1", "1\tnowhere\twhy"} {
		if got, err := parseTimelines([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func FuzzTimelines(f *testing.F) {
	f.Add([]byte("1\t0/3000158\tno recovery target specified\n2\t0/4000000\tx\n"))
	f.Add([]byte("#\n1 2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		left, err := parseTimelines(text)
		if err != nil && left != nil {
			t.Errorf("got %v beside %v", left, err)
		}
	})
}
