package freshet_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// cutAll runs the source into tables that cuts are recorded of, with a seal every second, until end is called.
func (s *moments) cutAll(t *testing.T, fault freshettest.Fault) (c *cutting, end func()) {
	t.Helper()
	tables := freshettest.NewTables()
	c = &cutting{Target: freshettest.NewTarget(tables, fault), tables: tables, names: s.tables}
	p := freshet.Pipeline{Name: "test", Source: s, Target: c, Options: freshet.Options{Every: time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	return c, func() {
		cancel()
		must(t, <-result)
	}
}

// levelled is a batch with which all tables have all up to last.
func levelled(table string, after, last int64) *freshet.Batch {
	b := partOf(table, after, last, 1)
	b.Level = true
	return b
}

// quietOf are the stretches of the newest cut in which nothing came, as "table (after, last]", in order.
func (c *cutting) quietOf() (all []string) {
	cuts, _ := c.recorded()
	if len(cuts) == 0 {
		return nil
	}
	for _, q := range cuts[len(cuts)-1].quiet {
		all = append(all, fmt.Sprintf("%s (%d, %d]", q.Table, q.After, q.Last))
	}
	slices.Sort(all)
	return all
}

// Tables for which nothing came stand where the others do, and the origin hears so; they are not committed.
func TestLevel_QuietTables_InTheCutAndAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b", "c")
		c, end := s.cutAll(t, nil)
		s.batches <- levelled("a", 0, 5)
		<-time.After(2 * time.Second)
		if got, want := c.quietOf(), []string{"b (0, 5]", "c (0, 5]"}; !slices.Equal(got, want) {
			t.Errorf("got %q as what is quiet, want %q", got, want)
		}
		for _, table := range s.tables {
			if got := s.ackedOf(table); got != 5 {
				t.Errorf("%s is acknowledged up to %d, want 5", table, got)
			}
		}
		if got := c.tables.Progress("b")[lane0]; got != 0 {
			t.Errorf("the quiet table was committed, up to %d", got)
		}
		s.batches <- levelled("b", 0, 9) // from where it was committed last
		<-time.After(2 * time.Second)
		if got, want := c.quietOf(), []string{"a (5, 9]", "c (0, 9]"}; !slices.Equal(got, want) {
			t.Errorf("got %q as what is quiet, want %q", got, want)
		}
		end()
	})
}

// What waits to be sealed is brought to where all tables are: else the cut behind it would have each where it changed last.
func TestLevel_TablesThatChangedAtOtherTimes_CommittedAtTheSameSeq(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		c, end := s.cutAll(t, nil)
		<-time.After(time.Second)
		s.batches <- levelled("a", 0, 5)
		s.batches <- levelled("b", 0, 7)
		more := partOf("a", 5, 9, 1) // of a moment that is not whole yet
		more.More = true
		<-time.After(2 * time.Second)
		s.batches <- more
		for _, table := range s.tables {
			if got := c.tables.Progress(table)[lane0]; got != 7 {
				t.Errorf("%s: got progress %d, want 7", table, got)
			}
		}
		end()
	})
}

// A table whose commit was lost lacks what it had, whatever was said of all tables before it was read again.
func TestLevel_TableIsReadAgain_NotBelievedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		lost := false
		c, end := s.cutAll(t, func(call string, _ int) error {
			if call == "Run" && !lost {
				lost = true
				return freshet.ErrStale
			}
			return nil
		})
		s.batches <- levelled("b", 0, 3)
		if got := <-s.rewound; got != "b" {
			t.Fatalf("%s was rewound, want b", got)
		}
		<-time.After(2 * time.Second)
		if all, _ := c.recorded(); len(c.quietOf()) != 0 || s.ackedOf("b") != 0 || s.ackedOf("a") != 0 {
			t.Errorf("got %d cuts, the last with %q quiet, and a acknowledged up to %d: b was lost", len(all), c.quietOf(), s.ackedOf("a"))
		}
		s.batches <- partOf("b", 0, 3, 1)
		s.batches <- levelled("a", 0, 8)
		<-time.After(2 * time.Second)
		if got, want := len(c.tables.Rows("b")), 1; got != want {
			t.Errorf("got %d rows of b, want %d", got, want)
		}
		if a, b := s.ackedOf("a"), s.ackedOf("b"); a != 8 || b != 8 {
			t.Errorf("acknowledged up to %d and %d, want 8", a, b)
		}
		end()
	})
}

// A batch that is queued when its table's lane is asked for is part of what the answer counts.
func TestResume_BatchesAreQueued_WrittenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		busy, free := make(chan struct{}), make(chan struct{})
		c, end := s.cutAll(t, func(call string, n int) error {
			if call == "Write" && n == 1 {
				close(busy)
				<-free
			}
			return nil
		})
		s.batches <- partOf("b", 0, 1, 1)
		<-busy
		s.batches <- partOf("a", 0, 5, 1)
		synctest.Wait()
		answered := make(chan error, 1)
		go func() {
			p, err := s.down.Resume(t.Context(), "a", []freshet.Lane{lane0})
			if err == nil && p[lane0] != 5 {
				err = fmt.Errorf("got progress %d, want 5", p[lane0])
			}
			answered <- err
		}()
		synctest.Wait()
		close(free)
		must(t, <-answered)
		s.batches <- partOf("a", 5, 6, 1)
		<-time.After(2 * time.Second)
		if got := len(c.tables.Rows("a")); got != 2 {
			t.Errorf("got %d rows of a, want 2", got)
		}
		end()
	})
}

// Without a cut nothing is known of what is quiet.
func TestLevel_NoCut_NotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		tables, end := s.run(t)
		s.batches <- levelled("a", 0, 5)
		<-time.After(2 * time.Second)
		if a, b := s.ackedOf("a"), s.ackedOf("b"); a != 5 || b != 0 || tables.Version("b") > 1 {
			t.Errorf("acknowledged up to %d and %d, want 5 and nothing", a, b)
		}
		end()
	})
}

// What is queued when a table is lost was read before it is read again, also where it is written behind that.
func TestLevel_QueuedWhenTableIsLost_NotBelieved(t *testing.T) {
	for range 40 { // in which order the pipe takes what waits for it is up to chance
		synctest.Test(t, func(t *testing.T) {
			s := newMoments("a", "b")
			sealed, lose := make(chan struct{}), make(chan struct{})
			waits := map[int]chan struct{}{4: make(chan struct{}), 8: make(chan struct{})}
			_, end := s.cutAll(t, func(call string, n int) error {
				switch {
				case call == "Run" && n == 1:
					close(sealed)
					<-lose
					return freshet.ErrStale
				case call == "Write" && waits[n] != nil:
					<-waits[n]
				}
				return nil
			})
			s.batches <- partOf("b", 0, 3, 1)
			<-sealed
			s.batches <- partOf("b", 3, 6, 1) // is dropped before it is sealed
			for seq := range int64(12) {
				s.batches <- partOf("a", seq, 1+seq, 1)
			}
			s.batches <- levelled("a", 12, 20)
			synctest.Wait()
			close(lose)
			synctest.Wait()
			close(waits[4])
			<-time.After(time.Millisecond) // then b is to be read again, unless nobody knows yet that it is lost
			close(waits[8])
			if got := <-s.rewound; got != "b" {
				t.Errorf("%s was rewound, want b", got)
			}
			s.batches <- partOf("b", 0, 3, 1)
			<-time.After(3 * time.Second)
			if got := s.ackedOf("b"); got != 3 {
				t.Errorf("b is acknowledged up to %d, want 3: what it had behind that was lost, and is to come again", got)
			}
			end()
		})
	}
}
