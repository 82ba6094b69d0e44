package postgres

import (
	"testing"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

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

// Of a transaction of which nobody knows whether a chunk shows it, the chunk is read again, if it changed the table, and otherwise not.
func TestHistory_NobodyKnows_ChunkIsReadAgain(t *testing.T) {
	for _, oid := range []uint32{7, 8} {
		s := &Source{}
		s.history = newHistory(s)
		ended, parts := false, make(chan *part)
		close(parts)
		l := &load{feed: &feed{}, oid: 7}
		seen := visibility{xmin: 10, xmax: 20, replay: &replay{before: 1000, after: 2000}}
		l.windows = []*window{{load: l, watermark: watermark{seen: seen, high: 2100}, parts: parts, end: func() { ended = true }}}
		s.history.loads = []*load{l}
		change := &transaction{xid: 15, begun: 1500, end: 1600}
		change.touch(oid)
		if s.history.holds(arrival{transaction: change}) {
			t.Errorf("table %d: the transaction waits, want it to pass", oid)
		}
		if err := s.history.doubt(t.Context(), arrival{transaction: change}); err != nil {
			t.Fatal(err)
		}
		if again := len(l.windows) == 0 && ended; again != (oid == l.oid) {
			t.Errorf("table %d: read again: %v, want it for table %d alone", oid, again, l.oid)
		}
	}
}
