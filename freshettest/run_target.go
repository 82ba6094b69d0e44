package freshettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

// TargetHarness is a place that targets write to.
type TargetHarness struct {
	// New returns a target that writes there, as a new process would. The suite closes it.
	New func(t *testing.T) freshet.Target
	// Rows returns the lane and seq of the rows of a table, those of one lane in the order in which they were
	// committed.
	Rows func(t *testing.T, table string) []Row
	// Rejects returns the same of what is in quarantine.
	Rejects func(t *testing.T, table string) []Row
}

// RunTarget checks every promise of freshet.Target. Each call of make returns an empty place.
func RunTarget(t *testing.T, make func(t *testing.T) TargetHarness) {
	s := targetSuite{make}
	t.Run("Schema_NoTable_Nil", s.schemaOfNothing)
	t.Run("Ensure_Again_Harmless", s.ensureAgain)
	t.Run("Resume_NoTable_Nothing", s.resumeOfNothing)
	t.Run("Start_Second_FirstHolds", s.startTwice)
	t.Run("Start_BeforeTable_HoldsAfterEnsure", s.startBeforeTable)
	t.Run("Since_Starts_TheFirst", s.since)
	t.Run("Bookmark_Second_FirstHolds", s.bookmarks)
	t.Run("Resume_OtherIdentity_OriginChanged", s.otherIdentity)
	t.Run("Commit_RowsAndRejects_InPlaceWithProgress", s.commit)
	t.Run("Commit_NoRows_ProgressMoves", s.commitNothing)
	t.Run("Seal_NothingWritten_NoCommits", s.sealNothing)
	t.Run("Discard_Written_Gone", s.discard)
	t.Run("Commit_OtherCameFirst_StaleAndNothing", s.stale)
	t.Run("Commit_OverlapInPart_StaleAndNothing", s.staleInPart)
	t.Run("Commit_SecondOnTopOfStale_Stale", s.staleInTurn)
	t.Run("Commit_OtherLanes_Both", s.otherLanes)
	t.Run("Pipeline_CrashAtEveryCall_EachOnce", s.crashes)
	t.Run("Pipeline_CopiesFight_EachOnce", s.copies)
}

type targetSuite struct {
	make func(t *testing.T) TargetHarness
}

const table = "t"

// open returns an open target, which is closed at the end of the test.
func open(t *testing.T, h TargetHarness) freshet.Target {
	t.Helper()
	target := h.New(t)
	must(t, target.Open(t.Context()))
	t.Cleanup(func() { must(t, target.Close(context.Background())) })
	return target
}

// started returns an open target whose lanes are started at -1.
func (s targetSuite) started(t *testing.T, lanes ...freshet.Lane) (TargetHarness, freshet.Target) {
	t.Helper()
	h := s.make(t)
	target := open(t, h)
	must(t, target.Ensure(t.Context(), table, Schema()))
	begin(t, target, lanes...)
	return h, target
}

func begin(t *testing.T, target freshet.Target, lanes ...freshet.Lane) {
	t.Helper()
	starts := freshet.Progress{}
	for _, l := range lanes {
		starts[l] = -1
	}
	_, err := target.Start(t.Context(), table, starts)
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns a batch of the lane's seqs (after, last], without those in bad, which are rejects.
func rowsOf(l freshet.Lane, after, last int64, bad ...int64) *freshet.Batch {
	b := &freshet.Batch{Table: table, Lane: l, After: after, Last: last, ReadAt: time.Now()}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, Schema())
	defer rows.Release()
	for seq := after + 1; seq <= last; seq++ {
		if slices.Contains(bad, seq) {
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: seq, Code: freshet.CodeMalformed, Step: "decode",
				Message: "bad on purpose", Record: freshet.Record{Raw: []byte("bad")}})
			continue
		}
		rows.Field(0).(*array.StringBuilder).Append(l.String())
		rows.Field(1).(*array.Int64Builder).Append(seq)
		b.Seqs = append(b.Seqs, seq)
	}
	if len(b.Seqs) > 0 {
		b.Rows = rows.NewRecordBatch()
	}
	return b
}

// write writes a batch whose rows are all accepted.
func write(t *testing.T, target freshet.Target, b *freshet.Batch) {
	t.Helper()
	if rejected, err := target.Write(t.Context(), b); rejected != 0 || err != nil {
		t.Fatalf("got %d rows rejected and %v, want none", rejected, err)
	}
}

// sealed writes the batches and returns the one commit that comes of them.
func sealed(t *testing.T, target freshet.Target, batches ...*freshet.Batch) freshet.Commit {
	t.Helper()
	for _, b := range batches {
		write(t, target, b)
	}
	commits, err := target.Seal(t.Context())
	must(t, err)
	if len(commits) != 1 {
		t.Fatalf("got %d commits of one table, want 1", len(commits))
	}
	return commits[0]
}

func wantStale(t *testing.T, c freshet.Commit) {
	t.Helper()
	if _, err := c.Run(t.Context()); !errors.Is(err, freshet.ErrStale) {
		t.Fatalf("got %v, want ErrStale", err)
	}
	c.Abort()
}

func wantProgress(t *testing.T, h TargetHarness, want freshet.Progress) {
	t.Helper()
	lanes := []freshet.Lane{}
	for l := range want {
		lanes = append(lanes, l)
	}
	got, err := open(t, h).Resume(t.Context(), table, lanes)
	must(t, err)
	for l, seq := range want {
		if have, ok := got[l]; !ok || have != seq {
			t.Errorf("progress of %s: got %d (there: %v), want %d", l, have, ok, seq)
		}
	}
}

// seqs are the numbers [from, to], without some.
func seqs(from, to int64, without ...int64) []int64 {
	var out []int64
	for n := from; n <= to; n++ {
		if !slices.Contains(without, n) {
			out = append(out, n)
		}
	}
	return out
}

func (s targetSuite) schemaOfNothing(t *testing.T) {
	schema, err := open(t, s.make(t)).Schema(t.Context(), table)
	if err != nil || schema != nil {
		t.Fatalf("got %v, %v, want no schema and no error", schema, err)
	}
}

func (s targetSuite) ensureAgain(t *testing.T) {
	h, target := s.started(t)
	must(t, target.Ensure(t.Context(), table, Schema()))
	must(t, open(t, h).Ensure(t.Context(), table, Schema()))
	got, err := open(t, h).Schema(t.Context(), table)
	must(t, err)
	for _, f := range Schema().Fields() {
		found, ok := got.FieldsByName(f.Name)
		if !ok || found[0].Type.ID() != f.Type.ID() {
			t.Errorf("column %s: got %v, want %v", f.Name, found, f)
		}
	}
}

func (s targetSuite) resumeOfNothing(t *testing.T) {
	p, err := open(t, s.make(t)).Resume(t.Context(), table, []freshet.Lane{Lane(0)})
	if err != nil || len(p) > 0 {
		t.Fatalf("got %v, %v, want nothing", p, err)
	}
}

func (s targetSuite) startTwice(t *testing.T) {
	h, _ := s.started(t, Lane(0))
	p, err := open(t, h).Start(t.Context(), table, freshet.Progress{Lane(0): 7, Lane(1): 9})
	must(t, err)
	if p[Lane(0)] != -1 || p[Lane(1)] != 9 {
		t.Errorf("got %v, want the first start of the first lane and the new one of the second", p)
	}
	wantProgress(t, h, freshet.Progress{Lane(0): -1, Lane(1): 9})
}

func (s targetSuite) startBeforeTable(t *testing.T) {
	h := s.make(t)
	target := open(t, h)
	starts := freshet.Progress{Lane(0): 3, Lane(1): 4}
	_, err := target.Start(t.Context(), table, starts)
	must(t, err)
	other := open(t, h)
	_, known, err := other.Since(t.Context(), table)
	must(t, err)
	if !known {
		t.Error("another process does not know the start before the table is there")
	}
	wantProgress(t, h, starts)
	p, err := other.Start(t.Context(), table, freshet.Progress{Lane(0): 9, Lane(2): 5})
	must(t, err)
	if p[Lane(0)] != 3 || p[Lane(2)] != 5 {
		t.Errorf("got %v, want the start of the one who was first", p)
	}
	must(t, target.Ensure(t.Context(), table, Schema()))
	starts[Lane(2)] = 5
	wantProgress(t, h, starts)
	must(t, other.Ensure(t.Context(), table, Schema()))
	p, err = other.Start(t.Context(), table, freshet.Progress{Lane(0): 9})
	must(t, err)
	if p[Lane(0)] != 3 {
		t.Errorf("got %v, want the start that came with the table", p)
	}
	wantProgress(t, h, starts)
}

func (s targetSuite) bookmarks(t *testing.T) {
	h := s.make(t)
	want := func(name, mark, want string) {
		t.Helper()
		var keep []byte
		if mark != "" {
			keep = []byte(mark)
		}
		got, err := open(t, h).Bookmark(t.Context(), table, name, keep)
		must(t, err)
		if string(got) != want {
			t.Errorf("bookmark %s: got %q, want %q", name, got, want)
		}
	}
	want("a/1", "", "")
	want("a/1", "x", "x")
	want("a/1", "y", "x")
	want("a/2", "z", "z")
	want("b/1", "other", "other")
	must(t, open(t, h).Unmark(t.Context(), table, "a/", "a/1"))
	want("a/1", "", "")
	want("a/2", "", "z")
	want("b/1", "", "other")
}

func (s targetSuite) since(t *testing.T) {
	began := time.Now().Add(-time.Second) // tables may tell times in milliseconds
	h := s.make(t)
	target := open(t, h)
	must(t, target.Ensure(t.Context(), table, Schema()))
	want := func(want bool) (at time.Time) {
		at, known, err := open(t, h).Since(t.Context(), table)
		must(t, err)
		if known != want {
			t.Errorf("got known %t, want %t", known, want)
		}
		return at
	}
	want(false)
	begin(t, target, Lane(0))
	first := want(true)
	if !first.IsZero() && (first.Before(began) || first.After(time.Now())) {
		t.Errorf("got the time %s, want the first start's", first)
	}
	begin(t, target, Lane(1))
	if again := want(true); !again.Equal(first) {
		t.Errorf("got the time %s after a second start, want still %s", again, first)
	}
}

func (s targetSuite) otherIdentity(t *testing.T) {
	h, _ := s.started(t, Lane(0))
	l := Lane(0)
	l.OriginID = "id-2"
	_, err := open(t, h).Resume(t.Context(), table, []freshet.Lane{l})
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeOriginChanged {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeOriginChanged)
	}
}

func (s targetSuite) commit(t *testing.T) {
	h, target := s.started(t, Lane(0), Lane(1))
	write(t, target, rowsOf(Lane(0), -1, 4, 2))
	if rows, _ := target.Pending(); rows != 5 {
		t.Errorf("got %d rows pending, want 5", rows)
	}
	c := sealed(t, target, rowsOf(Lane(1), -1, 1), rowsOf(Lane(0), 4, 6))
	if rows, _ := target.Pending(); rows != 0 {
		t.Errorf("got %d rows pending after Seal, want 0", rows)
	}
	if got := h.Rows(t, table); len(got) > 0 {
		t.Fatalf("got %d rows before the commit ran, want none", len(got))
	}
	done, err := c.Run(t.Context())
	must(t, err)
	if done.Table != table || done.Rows != 8 || done.Rejects != 1 ||
		done.Progress[Lane(0)] != 6 || done.Progress[Lane(1)] != 1 {
		t.Errorf("got %+v, want 8 rows, 1 reject and the progress 6 and 1", done)
	}
	CheckOnce(t, "rows", h.Rows(t, table),
		map[string][]int64{Lane(0).String(): seqs(0, 6, 2), Lane(1).String(): seqs(0, 1)})
	CheckOnce(t, "rejects", h.Rejects(t, table), map[string][]int64{Lane(0).String(): {2}})
	wantProgress(t, h, freshet.Progress{Lane(0): 6, Lane(1): 1})
}

func (s targetSuite) commitNothing(t *testing.T) {
	h, target := s.started(t, Lane(0))
	c := sealed(t, target, &freshet.Batch{Table: table, Lane: Lane(0), After: -1, Last: 41})
	_, err := c.Run(t.Context())
	must(t, err)
	wantProgress(t, h, freshet.Progress{Lane(0): 41})
}

func (s targetSuite) sealNothing(t *testing.T) {
	_, target := s.started(t, Lane(0))
	commits, err := target.Seal(t.Context())
	if err != nil || len(commits) > 0 {
		t.Fatalf("got %d commits, %v, want none", len(commits), err)
	}
}

func (s targetSuite) discard(t *testing.T) {
	h, target := s.started(t, Lane(0))
	write(t, target, rowsOf(Lane(0), -1, 4, 1))
	target.Discard(table)
	if rows, _ := target.Pending(); rows != 0 {
		t.Errorf("got %d rows pending after Discard, want 0", rows)
	}
	p, err := target.Resume(t.Context(), table, []freshet.Lane{Lane(0)})
	must(t, err)
	if p[Lane(0)] != -1 {
		t.Fatalf("got progress %v, want -1", p)
	}
	_, err = sealed(t, target, rowsOf(Lane(0), -1, 4, 1)).Run(t.Context())
	must(t, err)
	CheckOnce(t, "rows", h.Rows(t, table), map[string][]int64{Lane(0).String(): seqs(0, 4, 1)})
	CheckOnce(t, "rejects", h.Rejects(t, table), map[string][]int64{Lane(0).String(): {1}})
}

func (s targetSuite) stale(t *testing.T) {
	h, frozen := s.started(t, Lane(0))
	c := sealed(t, frozen, rowsOf(Lane(0), -1, 4, 3))
	other := open(t, h)
	begin(t, other, Lane(0))
	_, err := sealed(t, other, rowsOf(Lane(0), -1, 9, 3)).Run(t.Context())
	must(t, err)
	wantStale(t, c)
	CheckOnce(t, "rows", h.Rows(t, table), map[string][]int64{Lane(0).String(): seqs(0, 9, 3)})
	CheckOnce(t, "rejects", h.Rejects(t, table), map[string][]int64{Lane(0).String(): {3}})
}

func (s targetSuite) staleInPart(t *testing.T) {
	h, frozen := s.started(t, Lane(0), Lane(1))
	c := sealed(t, frozen, rowsOf(Lane(0), -1, 9), rowsOf(Lane(1), -1, 9))
	other := open(t, h)
	begin(t, other, Lane(0))
	_, err := sealed(t, other, rowsOf(Lane(0), -1, 4)).Run(t.Context())
	must(t, err)
	wantStale(t, c)
	CheckOnce(t, "rows", h.Rows(t, table), map[string][]int64{Lane(0).String(): seqs(0, 4)})
	wantProgress(t, h, freshet.Progress{Lane(0): 4, Lane(1): -1})
}

func (s targetSuite) staleInTurn(t *testing.T) {
	h, frozen := s.started(t, Lane(0))
	first := sealed(t, frozen, rowsOf(Lane(0), -1, 4))
	second := sealed(t, frozen, rowsOf(Lane(0), 4, 9))
	other := open(t, h)
	begin(t, other, Lane(0))
	_, err := sealed(t, other, rowsOf(Lane(0), -1, 2)).Run(t.Context())
	must(t, err)
	wantStale(t, first)
	wantStale(t, second)
	CheckOnce(t, "rows", h.Rows(t, table), map[string][]int64{Lane(0).String(): seqs(0, 2)})
}

func (s targetSuite) otherLanes(t *testing.T) {
	h, one := s.started(t, Lane(0), Lane(1))
	other := open(t, h)
	begin(t, other, Lane(1))
	a := sealed(t, one, rowsOf(Lane(0), -1, 4, 0))
	b := sealed(t, other, rowsOf(Lane(1), -1, 4, 0))
	_, err := b.Run(t.Context())
	must(t, err)
	_, err = a.Run(t.Context())
	must(t, err)
	want := map[string][]int64{Lane(0).String(): seqs(1, 4), Lane(1).String(): seqs(1, 4)}
	CheckOnce(t, "rows", h.Rows(t, table), want)
}

// mixed is an origin with records of every kind and holes between them.
func mixed(seed uint64, lanes, records int) *Origin {
	rng := rand.New(rand.NewPCG(seed, 2))
	o := NewOrigin(lanes)
	for _, l := range o.Lanes() {
		for range records {
			kind := RecordKind(max(0, rng.IntN(6)-3)) // two thirds are good
			o.Append(l, int64(max(0, rng.IntN(5)-3)), kind)
		}
	}
	return o
}

// pipe is a pipeline over the origin that commits often.
func pipe(o *Origin, seed uint64, target freshet.Target) (*freshet.Pipeline, *Source) {
	src := NewSource(o, SourceOptions{Seed: seed, Bounded: true})
	return &freshet.Pipeline{Name: "test", Source: src, Target: target,
		Options: freshet.Options{MaxRows: 4, QueueBatches: 2, Every: time.Hour, ShutdownTimeout: time.Minute}}, src
}

// crashes runs a pipeline that dies at its first call, its second, and so on, before and after it is carried
// out, each time followed by one that lives.
func (s targetSuite) crashes(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			h := s.make(t)
			o := mixed(seed, 2, 9)
			c := &Crash{At: at, After: after}
			p, src := pipe(o, seed, c.Target(h.New(t)))
			p.Source = c.Source(src)
			if err := p.Run(t.Context()); err != nil && !c.Dead() {
				t.Fatalf("crash at call %d, after it: %v: %v", at, after, err)
			}
			if !c.Dead() {
				return
			}
			p, _ = pipe(o, seed+1, h.New(t))
			must(t, p.Run(t.Context()))
			s.checkAll(t, fmt.Sprintf("crash at call %d, after it: %v", at, after), h, o)
		}
	}
}

func (s targetSuite) checkAll(t *testing.T, when string, h TargetHarness, o *Origin) {
	t.Helper()
	rows, rejects := o.Want()
	CheckOnce(t, when+": rows", h.Rows(t, table), rows)
	CheckOnce(t, when+": rejects", h.Rejects(t, table), rejects)
	if t.Failed() {
		t.FailNow()
	}
}

// copies runs several pipelines over the same lanes at once, some of which die on the way.
func (s targetSuite) copies(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	h := s.make(t)
	o := mixed(seed, 3, 40)
	var running sync.WaitGroup
	for range 4 {
		c := &Crash{At: rng.IntN(2) * (20 + rng.IntN(60)), After: rng.IntN(2) == 0}
		p, src := pipe(o, rng.Uint64(), c.Target(h.New(t)))
		p.Source = c.Source(src)
		running.Go(func() {
			if err := p.Run(t.Context()); err != nil && !c.Dead() {
				t.Errorf("a copy failed: %v", err)
			}
		})
	}
	running.Wait()
	p, _ := pipe(o, seed, h.New(t))
	must(t, p.Run(t.Context()))
	s.checkAll(t, "after all copies", h, o)
}
