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

// A standby's snapshot shows what committed before the log was replayed up to where it was just before, and nothing of what is behind
// where it was just after; of what committed between, only numbers may tell.
func TestVisibility_Standby_ByPlacesOfCommits(t *testing.T) {
	of := func(xid uint32, begun, end pgoutput.LSN) *transaction {
		return &transaction{xid: xid, begun: begun, end: end}
	}
	v := visibility{xmin: 10, xmax: 20, replay: &replay{before: 1000, after: 2000}}
	for _, c := range []struct {
		what string
		t    *transaction
		want sight
	}{
		{"ended long ago", of(9, 1500, 1600), seen},
		{"began later", of(20, 900, 990), unseen},
		{"replayed before", of(15, 900, 1000), seen},
		{"committed between", of(15, 1000, 1060), unknown},
		{"being replayed", of(15, 2000, 2100), unknown},
		{"being replayed, behind the header of a page", of(15, 2000+logHeader, 2100), unknown},
		{"replayed later", of(15, 2100, 2200), unseen},
	} {
		if got := v.sight(c.t); got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, got, c.want)
		}
	}
	v.replay.closed = true
	if got := v.sight(of(15, 1000, 1060)); got != unseen {
		t.Errorf("once rows were returned: got %d, want what comes then unseen", got)
	}
}
