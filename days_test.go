package freshet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// cutting is a target in memory that records cuts: how many rows each table had.
type cutting struct {
	*freshettest.Target
	tables *freshettest.Tables
	names  []string
	fail   error

	mu   sync.Mutex
	cuts []cut
	open freshet.Day
}

type cut struct {
	rows   map[string]int
	opens  freshet.Day
	lanes  map[string][]freshet.Lane
	newest time.Time
	quiet  []freshet.Quiet
}

func (c *cutting) Cut(_ context.Context, m freshet.Moment) (*freshet.Recorded, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return nil, c.fail
	}
	made := cut{rows: map[string]int{}, opens: m.Opens, lanes: m.Lanes, newest: m.Newest, quiet: m.Quiet}
	for _, name := range c.names {
		made.rows[name] = len(c.tables.Rows(name))
	}
	c.cuts = append(c.cuts, made)
	c.open = max(c.open, m.Opens)
	return &freshet.Recorded{Quiet: m.Quiet}, nil
}

func (c *cutting) OpenDay(context.Context) (freshet.Day, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, nil
}

// recorded are the cuts so far; ends are those that opened a day.
func (c *cutting) recorded() (all, ends []cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.cuts {
		if one.opens != 0 {
			ends = append(ends, one)
		}
	}
	return append([]cut(nil), c.cuts...), ends
}

// newCutting is a rig whose target records cuts.
func newCutting(lanes int, src freshettest.SourceOptions, opts freshet.Options, fault freshettest.Fault,
	tables ...string) (*rig, *cutting) {
	r := newRig(lanes, src, opts, fault)
	c := &cutting{Target: freshettest.NewTarget(r.tables, fault), tables: r.tables, names: tables}
	r.Target = c
	return r, c
}

// add appends a row of the day to the lane.
func (r *rig) add(l freshet.Lane, day freshet.Day) {
	r.origin.AppendAt(l, 0, freshettest.GoodRecord, day.Start().Add(time.Hour))
}

var day = freshet.DayOf(time.Date(1999, 12, 20, 0, 0, 0, 0, time.UTC)) // before the clock of a bubble

func TestDays_QuietLane_IsWaitedForAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(2, freshettest.SourceOptions{}, freshet.Options{Every: time.Second,
			Days: &freshet.Days{Wait: time.Minute}}, nil, "t")
		end := r.begin(t)
		r.add(lane0, day)
		r.add(lane1, day)
		<-time.After(2 * time.Second) // every lane has told its first day
		if _, ends := c.recorded(); len(ends) != 1 || ends[0].opens != day || ends[0].rows["t"] != 0 {
			t.Fatalf("got %v, want a cut that opens the first day, before its rows", ends)
		}
		r.add(lane0, day+1)
		<-time.After(50 * time.Second)
		if got := len(r.tables.Rows("t")); got != 2 {
			t.Errorf("got %d rows while the quiet lane is waited for, want those of the first day", got)
		}
		<-time.After(15 * time.Second)
		if _, ends := c.recorded(); len(ends) != 2 || ends[1].opens != day+1 || ends[1].rows["t"] != 2 {
			t.Fatalf("got %v, want the first day closed with its 2 rows", ends)
		}
		r.add(lane1, day) // late
		<-time.After(2 * time.Second)
		if got := len(r.tables.Rows("t")); got != 4 {
			t.Errorf("got %d rows, want also that of the next day and the late one", got)
		}
		must(t, end())
		r.checkAll(t)
	})
}

func TestDays_BatchReachesIntoTheNextDay_CutTellsTheNewestTimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(1, freshettest.SourceOptions{}, freshet.Options{Every: time.Second,
			Days: &freshet.Days{Wait: time.Minute}}, nil, "t")
		r.add(lane0, day)
		r.add(lane0, day)
		r.add(lane0, day+1)
		end := r.begin(t)
		<-time.After(3 * time.Minute)
		_, ends := c.recorded()
		if len(ends) != 2 || ends[1].rows["t"] != 2 {
			t.Fatalf("got %v, want the first day closed with its 2 rows", ends)
		}
		if got, next := ends[1].newest, (day + 1).Start(); !got.Before(next) {
			t.Errorf("got %v as the newest time at the end of the day before %v", got, next)
		}
		must(t, end())
	})
}

func TestDays_LaneAtItsEnd_IsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(2, freshettest.SourceOptions{TellEnds: true}, freshet.Options{Every: time.Second,
			Days: &freshet.Days{Wait: time.Hour}}, nil, "t")
		for d := range freshet.Day(5) {
			r.add(lane0, day+d)
		}
		end := r.begin(t)
		<-time.After(10 * time.Second)
		if _, ends := c.recorded(); len(ends) != 5 {
			t.Errorf("got %d days opened in ten seconds, want 5: the other lane is at its end", len(ends))
		}
		must(t, end())
		r.checkAll(t)
	})
}

func TestDays_LaneBehind_IsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(2, freshettest.SourceOptions{}, freshet.Options{Every: time.Second,
			Days: &freshet.Days{Wait: time.Minute}}, nil, "t")
		end := r.begin(t)
		r.add(lane0, day)
		r.add(lane1, day)
		<-time.After(2 * time.Second)
		r.add(lane0, day+1)
		for range 10 {
			<-time.After(30 * time.Second)
			r.add(lane1, day)
		}
		if _, ends := c.recorded(); len(ends) != 1 {
			t.Fatalf("got %v, want the day open as long as a lane has rows of it", ends)
		}
		r.add(lane1, day+1)
		<-time.After(2 * time.Second)
		if _, ends := c.recorded(); len(ends) != 2 || ends[1].rows["t"] != 12 {
			t.Fatalf("got %v, want the day closed with 12 rows", ends)
		}
		must(t, end())
		r.checkAll(t)
	})
}

// starter is a source that records where all lanes begin, also those that another process reads.
type starter struct {
	*freshettest.Source
	all freshet.Progress
}

func (s starter) Open(ctx context.Context, down freshet.Downstream) error {
	if err := s.Source.Open(ctx, down); err != nil {
		return err
	}
	_, err := down.Start(ctx, "t", s.all)
	return err
}

func TestDays_StartsOfLanesThatAnotherReads_AreNotTakenForLanesOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(2, freshettest.SourceOptions{TellEnds: true, Lanes: []freshet.Lane{lane0}},
			freshet.Options{Every: time.Second, Days: &freshet.Days{Wait: time.Minute}}, nil, "t")
		r.Source = starter{r.source, freshet.Progress{lane0: -1, lane1: -1}}
		end := r.begin(t)
		r.add(lane0, day)
		<-time.After(2 * time.Minute)
		_, ends := c.recorded()
		if len(ends) != 1 || !slices.Equal(ends[0].lanes["t"], []freshet.Lane{lane0}) {
			t.Errorf("got %v, want one day opened by a process that says it reads %s alone", ends, lane0)
		}
		must(t, end())
	})
}

func TestDays_TimeAheadOfTheClock_IsNotBelieved(t *testing.T) {
	r, c := newCutting(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{Days: &freshet.Days{}}, nil, "t")
	r.add(lane0, day)
	r.add(lane0, freshet.DayOf(time.Now())+9)
	r.add(lane0, day+1)
	must(t, r.Run(t.Context()))
	_, ends := c.recorded()
	if len(ends) != 2 || ends[1].opens != day+1 || ends[1].rows["t"] != 2 {
		t.Errorf("got %v, want the row ahead of the clock in the first day", ends)
	}
}

// Of one group the commit of one table is stale, and that of the other lands: no cut shows the one without the other.
func TestCut_TableFellBehind_WaitsUntilItIsLevel(t *testing.T) {
	for stale := 1; stale <= 2; stale++ {
		perLane := func(l freshet.Lane) string { return "t" + l.Name }
		fault := func(call string, n int) error {
			if call == "Run" && n == stale {
				return freshet.ErrStale
			}
			return nil
		}
		r, c := newCutting(2, freshettest.SourceOptions{Bounded: true, Table: perLane, MaxBatch: 1},
			freshet.Options{Every: time.Hour}, fault, "t0", "t1")
		r.origin.Fill(6)
		must(t, r.Run(t.Context()))
		all, _ := c.recorded()
		if len(all) == 0 {
			t.Fatal("got no cut")
		}
		for _, one := range all {
			if one.rows["t0"] != one.rows["t1"] {
				t.Errorf("stale at %d: got a cut of %v, want as many rows of each", stale, one.rows)
			}
		}
	}
}

func TestCut_Fails_EndsTheRun(t *testing.T) {
	r, c := newCutting(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{}, nil, "t")
	c.fail = errors.New("no cuts today")
	r.origin.Fill(1)
	if err := r.Run(t.Context()); !errors.Is(err, c.fail) {
		t.Errorf("got %v, want the failure of the cut", err)
	}
}

// What a process before left without its cut gets it though nothing comes.
func TestCut_NothingComes_IsLookedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(1, freshettest.SourceOptions{}, freshet.Options{Every: 10 * time.Second}, nil, "t")
		end := r.begin(t)
		<-time.After(time.Hour)
		if all, _ := c.recorded(); len(all) != 1 {
			t.Errorf("got %d cuts looked for, want 1", len(all))
		}
		must(t, end())
	})
}

func TestParseDay_Text_OrAnError(t *testing.T) {
	got, err := freshet.ParseDay("2026-11-29")
	if err != nil || got.String() != "2026-11-29" || freshet.DayOf(got.Start()) != got {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "yesterday", "2026-02-30", "1970-01-01", "0001-01-01", "2026-11-29T00:00:00Z"} {
		if got, err := freshet.ParseDay(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
	if d := freshet.DayOf(time.Time{}); d != 0 {
		t.Errorf("the zero time: got %s", fmt.Sprint(int32(d)))
	}
}
