package lake

import (
	"context"
	"maps"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// Parked is what waits of a table that is held back, or has not taken it up yet.
type Parked struct {
	Rows   int64     // with rejects
	Bytes  int64     // before they are compressed
	Oldest time.Time // when the oldest was parked; zero when nothing waits
	Over   time.Time // since when nothing more is kept, since it was too much; zero: it is kept
}

// ReadParked returns what waits, in the parking table at the root of parked, for the table at the root of main. Where either
// is not there, nothing waits. cuts opens the cuts table of a marker. Errors: *freshet.Error with CodeSchemaMismatch when the first is
// another table.
func ReadParked(ctx context.Context, parked, main store.Store, app string, cuts func(CutMarker) (store.Store, error)) (*Parked, error) {
	l := newParkLog(app, parked.URL(), parked, defaultEngine)
	snap, err := l.look(ctx)
	if snap == nil || err != nil {
		return &Parked{}, explain(l.name, err)
	}
	table := &companion{name: main.URL(), st: main, engine: defaultEngine}
	has, err := table.look(ctx)
	if has == nil || err != nil {
		return &Parked{}, explain(table.name, err)
	}
	holds := []AppProgress{appProgress(has, app, map[string]bool{})}
	if err := AddCuts(ctx, main, holds, cuts); err != nil {
		return nil, err
	}
	at := l.standing(snap, holds[0].Lanes)
	maps.DeleteFunc(at, func(lane freshet.Lane, seq int64) bool { v, _ := snap.Txn(form{app, true}.lane(lane)); return v <= seq })
	all, err := l.beyond(ctx, snap, at)
	if err != nil {
		return nil, explain(l.name, err)
	}
	all, _ = adjoining(all, at)
	lag := lagOf(all)
	out := &Parked{Rows: lag.rows, Bytes: lag.bytes, Oldest: lag.oldest}
	if over, _ := snap.Txn(overTxn(app)); over != 0 {
		out.Over = time.Unix(over, 0).UTC()
	}
	return out, nil
}

// standing is where another table of the app stands, whose lanes these are, in those that the parking table knows, as that names them.
func (l *parkLog) standing(snap *delta.Snapshot, lanes []LaneProgress) freshet.Progress {
	at, f := freshet.Progress{}, form{l.app, true}
	for _, lane := range lanes {
		for _, origin := range parkedOrigins(f, snap, lane.Lane) {
			known := freshet.Lane{Origin: origin, OriginID: f.identityIn(snap, origin), Name: lane.Lane.Name}
			if _, ok := snap.Txn(f.lane(known)); ok {
				at[known] = lane.Seq
			}
		}
	}
	return at
}
