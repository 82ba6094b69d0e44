package freshet_test

import (
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// A row that is of the next day in its zone, and of the same in UTC, opens the next day.
func TestDays_Zone_BeginsAtItsMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east := time.FixedZone("east", 5*60*60)
		r, c := newCutting(1, freshettest.SourceOptions{TellEnds: true}, freshet.Options{Every: time.Second,
			Days: &freshet.Days{Wait: time.Hour, Zone: east}}, nil, "t")
		midnight := day.Start().Add(-5 * time.Hour)
		for _, at := range []time.Duration{-time.Minute, time.Minute, 23 * time.Hour} {
			r.origin.AppendAt(lane0, 0, freshettest.GoodRecord, midnight.Add(at))
		}
		end := r.begin(t)
		<-time.After(10 * time.Second)
		_, ends := c.recorded()
		if len(ends) != 2 || ends[0].opens != day-1 || ends[1].opens != day || ends[1].rows["t"] != 1 {
			t.Errorf("got %v, want the day before, with one row, and the day", ends)
		}
		must(t, end())
		r.checkAll(t)
	})
}
