package freshet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// moments is a source of one lane that several tables follow. It delivers the batches that it is sent.
type moments struct {
	batches chan *freshet.Batch
	down    freshet.Downstream
	tables  []string
	rewound chan string

	mu    sync.Mutex
	acked map[string]int64 // up to where each table is acknowledged
}

func newMoments(tables ...string) *moments {
	return &moments{batches: make(chan *freshet.Batch, 16), tables: tables, rewound: make(chan string, 16), acked: map[string]int64{}}
}

// partOf is a batch of n rows of the seq last.
func partOf(table string, after, last int64, n int) *freshet.Batch {
	return partIn(memory.DefaultAllocator, table, after, last, n)
}

func partIn(m memory.Allocator, table string, after, last int64, n int) *freshet.Batch {
	b := &freshet.Batch{Table: table, Lane: lane0, After: after, Last: last}
	rows := array.NewRecordBuilder(m, freshettest.Schema())
	defer rows.Release()
	for i := range n {
		rows.Field(0).(*array.StringBuilder).Append(lane0.String())
		rows.Field(1).(*array.Int64Builder).Append(last)
		b.Seqs, b.Places = append(b.Seqs, last), append(b.Places, int32(i))
	}
	b.Rows = rows.NewRecordBatch()
	return b
}

func (s *moments) Open(ctx context.Context, down freshet.Downstream) error {
	s.down = down
	for _, table := range s.tables {
		if err := down.Ensure(ctx, table, freshettest.Schema()); err != nil {
			return err
		}
		p, err := down.Resume(ctx, table, []freshet.Lane{lane0})
		if err != nil {
			return err
		}
		if len(p) == 0 {
			if _, err := down.Start(ctx, table, freshet.Progress{lane0: 0}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *moments) Next(ctx context.Context) (*freshet.Batch, error) {
	select {
	case b := <-s.batches:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *moments) Rewind(ctx context.Context, table string) error {
	_, err := s.down.Resume(ctx, table, []freshet.Lane{lane0})
	s.rewound <- table
	return err
}

func (s *moments) Ack(_ context.Context, table string, p freshet.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked[table] = p[lane0]
	return nil
}

// ackedOf is up to where a table is acknowledged.
func (s *moments) ackedOf(table string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked[table]
}

func (s *moments) Close(context.Context) error { return nil }

// run runs the source into tables of which every row is enough for a commit, until end is called.
func (s *moments) run(t *testing.T) (tables *freshettest.Tables, end func()) {
	t.Helper()
	tables = freshettest.NewTables()
	p := freshet.Pipeline{Name: "test", Source: s, Target: freshettest.NewTarget(tables, nil),
		Options: freshet.Options{MaxRows: 1, Every: time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	return tables, func() {
		cancel()
		must(t, <-result)
	}
}

func TestRun_SeqInSeveralBatches_OneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a")
		tables, end := s.run(t)
		for i := range 3 {
			b := partOf("a", 7*int64(min(i, 1)), 7, 2)
			b.Unfinished = i < 2
			s.batches <- b
			<-time.After(time.Minute)
			if got, want := tables.Progress("a")[lane0], []int64{0, 0, 7}[i]; got != want {
				t.Errorf("after part %d: got progress %d, want %d", i, got, want)
			}
		}
		end()
		if got := len(tables.Rows("a")); got != 6 {
			t.Errorf("got %d rows, want 6", got)
		}
	})
}

func TestRun_EndsWithinSeq_NothingOfItCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a")
		tables, end := s.run(t)
		b := partOf("a", 0, 7, 2)
		b.Unfinished = true
		s.batches <- partOf("a", 0, 5, 1)
		b.After = 5
		s.batches <- b
		synctest.Wait()
		end()
		if rows, p := len(tables.Rows("a")), tables.Progress("a")[lane0]; rows != 1 || p != 5 {
			t.Errorf("got %d rows and progress %d, want 1 and 5", rows, p)
		}
	})
}

// Another table has to be committed while one stands within a seq: that one is read again, and what still comes of it from
// before has no effect.
func TestRun_SealWithinSeq_ReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		tables, end := s.run(t)
		first := partOf("a", 0, 7, 2)
		first.Unfinished = true
		held := partOf("b", 0, 7, 1)
		held.More = true
		s.batches <- held
		s.batches <- first
		synctest.Wait()
		if _, err := s.down.Resume(t.Context(), "b", []freshet.Lane{lane0}); err != nil {
			t.Fatal(err)
		}
		if got := tables.Progress("b")[lane0]; got != 7 {
			t.Errorf("got progress %d of b, want 7", got)
		}
		if got := <-s.rewound; got != "a" {
			t.Errorf("got %s rewound, want a", got)
		}
		s.batches <- partOf("a", 7, 7, 2)
		again := partOf("a", 0, 7, 2)
		again.Unfinished = true
		s.batches <- again
		s.batches <- partOf("a", 7, 7, 2)
		synctest.Wait()
		end()
		if got := len(tables.Rows("a")); got != 4 {
			t.Errorf("got %d rows of a, want 4", got)
		}
	})
}

// A source asks anew where a lane goes on while that stands within a seq: nothing of the seq is committed, and it is read again.
func TestRun_AskedAnewWithinSeq_NothingOfItCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a")
		tables, end := s.run(t)
		b := partOf("a", 5, 7, 2)
		b.Unfinished = true
		s.batches <- partOf("a", 0, 5, 1)
		s.batches <- b
		synctest.Wait()
		p, err := s.down.Resume(t.Context(), "a", []freshet.Lane{lane0})
		if err != nil || p[lane0] != 5 || len(tables.Rows("a")) != 1 {
			t.Errorf("got progress %v, error %v and %d rows, want 5 and 1", p, err, len(tables.Rows("a")))
		}
		if got := <-s.rewound; got != "a" {
			t.Errorf("got %s rewound, want a", got)
		}
		s.batches <- partOf("a", 5, 7, 3)
		synctest.Wait()
		end()
		if got := len(tables.Rows("a")); got != 4 {
			t.Errorf("got %d rows, want 4", got)
		}
	})
}

func TestRun_MoreOfTheMoment_CommittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		tables, end := s.run(t)
		b := partOf("a", 0, 7, 1)
		b.More = true
		s.batches <- b
		<-time.After(time.Minute)
		if got := tables.Progress("a")[lane0]; got != 0 {
			t.Errorf("got progress %d before the rest of the moment, want 0", got)
		}
		s.batches <- partOf("b", 0, 7, 1)
		synctest.Wait()
		for _, table := range s.tables {
			if got := tables.Progress(table)[lane0]; got != 7 {
				t.Errorf("%s: got progress %d, want 7", table, got)
			}
		}
		end()
	})
}

func TestRun_PartialBatch_CommittedWithTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		tables, end := s.run(t)
		for i := range 3 {
			b := partOf("a", int64(i), int64(i+1), 2)
			b.Partial = i < 2
			s.batches <- b
			<-time.After(time.Minute)
			if got, want := tables.Progress("a")[lane0], []int64{0, 0, 3}[i]; got != want {
				t.Errorf("after batch %d: got progress %d, want %d", i, got, want)
			}
		}
		end()
	})
}

// A run that ends in the middle commits nothing of the table that stands there.
func TestRun_EndsWithinPartial_NothingOfItCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMoments("a", "b")
		tables, end := s.run(t)
		b := partOf("a", 0, 1, 2)
		b.Partial = true
		s.batches <- b
		s.batches <- partOf("b", 0, 1, 1)
		synctest.Wait()
		end()
		if a, b := tables.Progress("a")[lane0], tables.Progress("b")[lane0]; a != 0 || b != 1 {
			t.Errorf("got progress %d of a and %d of b, want 0 and 1", a, b)
		}
	})
}

func TestBatch_Split_FreedOnceBothAreReleased(t *testing.T) {
	m := memory.NewCheckedAllocator(memory.DefaultAllocator)
	more := partIn(m, "a", 1, 5, 3)
	more.Seqs, more.Places = []int64{2, 3, 5}, nil
	more.Rejects = []freshet.Reject{{Seq: 2}, {Seq: 4}}
	head := more.Split(3)
	if head.After != 1 || head.Last != 3 || head.NumRows() != 2 || len(head.Rejects) != 1 {
		t.Errorf("the head is (%d, %d] with %d rows and %d rejects", head.After, head.Last, head.NumRows(), len(head.Rejects))
	}
	if more.After != 3 || more.Last != 5 || more.NumRows() != 1 || len(more.Rejects) != 1 || more.Rejects[0].Seq != 4 {
		t.Errorf("the rest is (%d, %d] with %d rows and %v", more.After, more.Last, more.NumRows(), more.Rejects)
	}
	head.Release()
	if got := more.Rows.Column(1).(*array.Int64).Value(0); got != 5 {
		t.Errorf("behind the head's release the rest has the value %d, want 5", got)
	}
	more.Release()
	m.AssertSize(t, 0)
}
