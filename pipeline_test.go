package freshet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/store"
)

var lane0, lane1 = freshettest.Lane(0), freshettest.Lane(1)

// rig is a pipeline from memory to memory.
type rig struct {
	origin *freshettest.Origin
	source *freshettest.Source
	tables *freshettest.Tables
	freshet.Pipeline

	mu      sync.Mutex
	stales  int
	states  []string
	retries int
	trouble map[string]bool // what was told to Retry and not to Recovered
}

func newRig(lanes int, src freshettest.SourceOptions, opts freshet.Options, fault freshettest.Fault) *rig {
	r := &rig{origin: freshettest.NewOrigin(lanes), tables: freshettest.NewTables(),
		trouble: map[string]bool{}}
	r.source = freshettest.NewSource(r.origin, src)
	opts.Observer.Stale = func(string) { r.note(func() { r.stales++ }) }
	opts.Observer.State = func(s string) { r.note(func() { r.states = append(r.states, s) }) }
	opts.Observer.Retry = func(what string, _ error) {
		r.note(func() { r.retries, r.trouble[what] = r.retries+1, true })
	}
	opts.Observer.Recovered = func(what string) { r.note(func() { delete(r.trouble, what) }) }
	r.Pipeline = freshet.Pipeline{Name: "test", Source: r.source, Options: opts,
		Target: freshettest.NewTarget(r.tables, fault)}
	return r
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// begin runs the pipeline; the function it returns ends it and returns what Run returned.
func (r *rig) begin(t *testing.T) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-result
	}
}

func (r *rig) checkAll(t *testing.T) {
	t.Helper()
	rows, rejects := r.origin.Want()
	freshettest.CheckOnce(t, "rows", r.tables.Rows("t"), rows)
	freshettest.CheckOnce(t, "rejects", r.tables.Rejects("t"), rejects)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRun_Bounded_CommitsAtEndWithoutWaiting(t *testing.T) {
	r := newRig(2, freshettest.SourceOptions{Bounded: true}, freshet.Options{Every: time.Hour}, nil)
	r.origin.Fill(20)
	must(t, r.Run(t.Context()))
	r.checkAll(t)
	if want := []string{"starting", "running", "stopping", "stopped"}; !slices.Equal(r.states, want) {
		t.Errorf("got states %v, want %v", r.states, want)
	}
}

// finisher tells when it was asked to do what it has put off, and what was committed by then.
type finisher struct {
	freshet.Target
	asked func()
}

func (f finisher) Finish(context.Context) { f.asked() }

func TestRun_CaughtUp_TargetFinishesUnlessStopped(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(2, freshettest.SourceOptions{Bounded: bounded}, freshet.Options{Every: time.Hour}, nil)
			var at []int // how many rows were committed when it was asked
			r.Target = finisher{r.Target, func() { at = append(at, len(r.tables.Rows("t"))) }}
			r.origin.Fill(20)
			end := r.begin(t)
			synctest.Wait()
			must(t, end())
			r.checkAll(t)
			if rows := len(r.tables.Rows("t")); bounded && (len(at) != 1 || at[0] != rows) {
				t.Errorf("got it asked to finish at %v rows, want once, at all of the %d", at, rows)
			}
			if !bounded && at != nil {
				t.Errorf("got it asked to finish at %v rows, want it not asked when the run is stopped", at)
			}
		})
	}
}

func TestRun_Every_CommitsInTimeFromTheFirstRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1, freshettest.SourceOptions{}, freshet.Options{Every: 10 * time.Second}, nil)
		end := r.begin(t)
		r.origin.Append(lane0, 0, freshettest.GoodRecord)
		<-time.After(time.Second) // the first commit of a run comes soon
		if got := len(r.tables.Rows("t")); got != 1 {
			t.Errorf("got %d rows after a second, want 1", got)
		}
		version := r.tables.Version("t")
		<-time.After(time.Hour)
		if got := r.tables.Version("t"); got != version {
			t.Errorf("got %d commits while nothing came, want none", got-version)
		}
		r.origin.Append(lane0, 0, freshettest.GoodRecord)
		<-time.After(6 * time.Second)
		r.origin.Append(lane0, 0, freshettest.EmptyRecord)
		<-time.After(3900 * time.Millisecond)
		if got := r.tables.Progress("t")[lane0]; got != 0 {
			t.Errorf("got progress %d before it is time, want 0", got)
		}
		<-time.After(200 * time.Millisecond)
		if got := r.tables.Progress("t")[lane0]; got != 2 {
			t.Errorf("got progress %d when it is time, want 2", got)
		}
		must(t, end())
	})
}

func TestRun_OnlyEmptyRecords_ProgressIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1, freshettest.SourceOptions{}, freshet.Options{Every: time.Second}, nil)
		end := r.begin(t)
		for range 7 {
			r.origin.Append(lane0, 0, freshettest.EmptyRecord)
		}
		<-time.After(2 * time.Second)
		if got := r.tables.Progress("t")[lane0]; got != 6 {
			t.Errorf("got progress %d, want 6", got)
		}
		must(t, end())
	})
}

func TestRun_MaxRows_CommitsAtOnce(t *testing.T) {
	r := newRig(1, freshettest.SourceOptions{Bounded: true, MaxBatch: 1},
		freshet.Options{Every: time.Hour, MaxRows: 5}, nil)
	r.origin.Fill(20)
	must(t, r.Run(t.Context()))
	if got := r.tables.Version("t"); got != 1+4 {
		t.Errorf("got %d commits, want the start and one for each 5 rows", got)
	}
}

func TestRun_ContextEnds_WhatWasReadIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(2, freshettest.SourceOptions{}, freshet.Options{Every: time.Hour}, nil)
		r.origin.Fill(50)
		end := r.begin(t)
		synctest.Wait()
		must(t, end())
		r.checkAll(t)
		if got, want := r.source.Acked("t")[lane1], int64(49); got != want {
			t.Errorf("acknowledged: got %d, want %d", got, want)
		}
	})
}

func TestRun_StoreDoesNotAnswerAtShutdown_EndsInTimeAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := freshet.Options{Every: time.Hour, ShutdownTimeout: 7 * time.Second}
		r := newRig(1, freshettest.SourceOptions{}, opts, nil)
		r.Target = hanging{r.Target}
		r.origin.Fill(5)
		end := r.begin(t)
		synctest.Wait()
		asked := time.Now()
		err := end()
		if err == nil || time.Since(asked) != 7*time.Second {
			t.Errorf("got %v after %v, want an error after 7 s", err, time.Since(asked))
		}
		if got := len(r.tables.Rows("t")); got != 0 {
			t.Errorf("got %d rows, want none", got)
		}
	})
}

// hanging is a target whose commits wait for an outage to end that does not.
type hanging struct{ freshet.Target }

func (h hanging) Seal(ctx context.Context) ([]freshet.Commit, error) {
	commits, err := h.Target.Seal(ctx)
	for i := range commits {
		commits[i] = hangingCommit{commits[i]}
	}
	return commits, err
}

type hangingCommit struct{ freshet.Commit }

func (hangingCommit) Run(ctx context.Context) (freshet.Committed, error) {
	<-ctx.Done()
	return freshet.Committed{}, ctx.Err()
}

func TestRun_CommitsHang_ReadingStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64
		opts := freshet.Options{MaxRows: 2, QueueBatches: 3, ShutdownTimeout: time.Second}
		count := func() error {
			read.Add(1)
			return nil
		}
		r := newRig(1, freshettest.SourceOptions{MaxBatch: 1, Fail: count}, opts, nil)
		r.Target = hanging{r.Target}
		r.origin.Fill(1000)
		end := r.begin(t)
		<-time.After(time.Hour)
		// Two groups of 2 rows are sealed and one waits to be; three batches are queued and one waits for the
		// queue.
		if n := read.Load(); n > 6+3+2 {
			t.Errorf("got %d batches read while nothing is committed, want at most 11", n)
		}
		if end() == nil {
			t.Error("got no error, want one about the shutdown")
		}
	})
}

func TestRun_Stale_ReadAgainAndEachOnce(t *testing.T) {
	n := 0
	opts := freshet.Options{MaxRows: 7}
	r := newRig(3, freshettest.SourceOptions{Bounded: true}, opts, func(call string, _ int) error {
		if call == "Run" {
			if n++; n%3 == 1 {
				return fmt.Errorf("%w: on purpose", freshet.ErrStale)
			}
		}
		return nil
	})
	r.origin.Fill(30)
	must(t, r.Run(t.Context()))
	r.checkAll(t)
	if r.stales == 0 || r.source.Rewinds() == 0 {
		t.Errorf("got %d stale commits and %d rewinds, want some", r.stales, r.source.Rewinds())
	}
}

func TestRun_StaleOverAndOver_PausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		r := newRig(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{}, func(call string, n int) error {
			if call == "Run" {
				runs.Add(1)
				return freshet.ErrStale
			}
			return nil
		})
		r.origin.Fill(3)
		end := r.begin(t)
		<-time.After(10 * time.Minute)
		if n := runs.Load(); n < 60 || n > 200 {
			t.Errorf("got %d attempts in ten minutes, want one in 5 to 10 seconds in the end", n)
		}
		must(t, end())
	})
}

func TestRun_WriteFailsForAMoment_ReadAgain(t *testing.T) {
	for _, call := range []string{"Write", "Seal", "Resume", "Start", "Ensure", "Schema"} {
		t.Run(call, func(t *testing.T) {
			opts := freshet.Options{MaxRows: 7}
			r := newRig(2, freshettest.SourceOptions{Bounded: true}, opts, func(c string, n int) error {
				if c == call && n <= 2 {
					return fmt.Errorf("%s: %w", c, store.ErrUnavailable)
				}
				return nil
			})
			r.origin.Fill(30)
			must(t, r.Run(t.Context()))
			r.checkAll(t)
			if r.retries != 2 || len(r.trouble) > 0 {
				t.Errorf("got %d retries, and at the end still %v, want 2 and nothing", r.retries, r.trouble)
			}
		})
	}
}

var errBroken = errors.New("broken")

func TestRun_TargetFails_ErrorReturned(t *testing.T) {
	calls := []string{"Open", "Schema", "Ensure", "Resume", "Start", "Write", "Seal", "Run", "Close"}
	for _, call := range calls {
		t.Run(call, func(t *testing.T) {
			opts := freshet.Options{MaxRows: 7}
			r := newRig(2, freshettest.SourceOptions{Bounded: true}, opts, func(c string, n int) error {
				if c == call {
					return errBroken
				}
				return nil
			})
			r.origin.Fill(30)
			if err := r.Run(t.Context()); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want %v", err, errBroken)
			}
		})
	}
}

func TestRun_SourceFails_WhatWasReadIsCommitted(t *testing.T) {
	n := 0
	r := newRig(1, freshettest.SourceOptions{MaxBatch: 1, Fail: func() error {
		if n++; n > 10 {
			return errBroken
		}
		return nil
	}}, freshet.Options{Every: time.Hour}, nil)
	r.origin.Fill(30)
	if err := r.Run(t.Context()); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	if got := r.tables.Progress("t")[lane0]; got != 9 {
		t.Errorf("got progress %d, want 9", got)
	}
}

func TestRun_LanesMove_CommittedBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := freshet.Options{Every: time.Hour}
		r := newRig(2, freshettest.SourceOptions{}, opts, nil)
		other := freshettest.NewSource(r.origin, freshettest.SourceOptions{Lanes: []freshet.Lane{}})
		second := freshet.Pipeline{Name: "second", Source: other, Options: opts,
			Target: freshettest.NewTarget(r.tables, nil)}
		r.origin.Fill(40)
		end := r.begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- second.Run(ctx) }()
		synctest.Wait()
		r.origin.Fill(3)
		synctest.Wait()
		must(t, r.source.Revoke(t.Context(), []freshet.Lane{lane1}))
		if got := r.tables.Progress("t")[lane1]; got != 42 {
			t.Errorf("got progress %d of the lane that was given up, want 42", got)
		}
		r.origin.Fill(20)
		must(t, other.Assign(t.Context(), []freshet.Lane{lane1}))
		synctest.Wait()
		must(t, end())
		cancel()
		must(t, <-ended)
		r.checkAll(t)
		if r.stales > 0 {
			t.Errorf("got %d stale commits, want none", r.stales)
		}
	})
}

func TestRun_TooManyRejects_StopsAfterCommitting(t *testing.T) {
	limit := &freshet.StopAbove{Share: 0.1, Window: time.Minute, AtLeast: 20}
	r := newRig(1, freshettest.SourceOptions{}, freshet.Options{Every: time.Hour, StopAbove: limit}, nil)
	for n := range 1000 {
		kind := freshettest.GoodRecord
		if n > 100 {
			kind = freshettest.BadRecord
		}
		r.origin.Append(lane0, 0, kind)
	}
	err := r.Run(t.Context())
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeTooManyRejects {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeTooManyRejects)
	}
	if got := r.tables.Progress("t")[lane0]; got < 105 || got > 130 {
		t.Errorf("got progress %d, want just past the share of a tenth", got)
	}
}

func TestRun_FewRejectsAtEnd_JudgedAll(t *testing.T) {
	limit := &freshet.StopAbove{Share: 0.1}
	r := newRig(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{StopAbove: limit}, nil)
	r.origin.Append(lane0, 0, freshettest.BadRecord)
	var e *freshet.Error
	if err := r.Run(t.Context()); !errors.As(err, &e) || e.Code != freshet.CodeTooManyRejects {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeTooManyRejects)
	}
	r.checkAll(t)
}

// picky is a target that accepts no row.
type picky struct{ freshet.Target }

func (p picky) Write(ctx context.Context, b *freshet.Batch) (int64, error) {
	rows := int64(b.NumRows())
	_, err := p.Target.Write(ctx, b)
	return rows, err
}

func TestRun_TargetRejectsRows_CountAsRejects(t *testing.T) {
	limit := &freshet.StopAbove{Share: 0.1, Window: time.Minute, AtLeast: 20}
	r := newRig(1, freshettest.SourceOptions{}, freshet.Options{Every: time.Hour, StopAbove: limit}, nil)
	r.Target = picky{r.Target}
	r.origin.Fill(100)
	var e *freshet.Error
	if err := r.Run(t.Context()); !errors.As(err, &e) || e.Code != freshet.CodeTooManyRejects {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeTooManyRejects)
	}
}

func TestRun_ManyTables_Each(t *testing.T) {
	table := func(l freshet.Lane) string { return "table-" + l.Name }
	r := newRig(3, freshettest.SourceOptions{Bounded: true, Table: table}, freshet.Options{MaxRows: 10}, nil)
	r.origin.Fill(25)
	must(t, r.Run(t.Context()))
	rows, _ := r.origin.Want()
	for _, l := range r.origin.Lanes() {
		want := map[string][]int64{l.String(): rows[l.String()]}
		freshettest.CheckOnce(t, table(l), r.tables.Rows(table(l)), want)
	}
}

// rename is a step that renames one column and drops rows with an odd seq.
type rename struct{ from, to string }

func (s rename) Name() string { return "rename" }

func (s rename) Plan(in *arrow.Schema) (*arrow.Schema, error) {
	fields := slices.Clone(in.Fields())
	for i := range fields {
		if fields[i].Name == s.from {
			fields[i].Name = s.to
		}
	}
	return arrow.NewSchema(fields, nil), nil
}

func (s rename) Origin(out string) (string, bool) {
	switch out {
	case s.to:
		return s.from, true
	case s.from, "new":
		return "", false
	}
	return out, true
}

func (s rename) Apply(_ context.Context, b *freshet.Batch) error {
	if b.Rows != nil && b.Rows.Schema().HasField(s.from) == (s.from == "nothing") {
		return fmt.Errorf("no column %q", s.from)
	}
	return nil
}

// schemaSpy is a source that notes what Downstream.Schema says after Ensure.
type schemaSpy struct {
	*freshettest.Source
	schema *arrow.Schema
}

func (s *schemaSpy) Open(ctx context.Context, down freshet.Downstream) error {
	if err := s.Source.Open(ctx, down); err != nil {
		return err
	}
	var err error
	s.schema, err = down.Schema(ctx, "t")
	return err
}

func TestDownstream_Schema_MappedBackThroughSteps(t *testing.T) {
	r := newRig(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{}, nil)
	spy := &schemaSpy{Source: r.source}
	r.Source, r.Steps = spy, []freshet.Step{rename{"seq", "number"}, rename{"number", "offset"}}
	must(t, r.Run(t.Context()))
	got, want := spy.schema.Fields(), freshettest.Schema().Fields()
	if !slices.EqualFunc(got, want, arrow.Field.Equal) {
		t.Errorf("got %v, want the columns of the source, %v", got, want)
	}
	again := &schemaSpy{Source: freshettest.NewSource(r.origin, freshettest.SourceOptions{Bounded: true})}
	r.Source, r.Steps = again, []freshet.Step{rename{"lane", "new"}}
	must(t, r.Run(t.Context()))
	if got := again.schema.NumFields(); got != 1 {
		t.Errorf("got %d columns, want the one that no step replaces: %s", got, again.schema)
	}
}

func TestRun_StepFails_ErrorNamesIt(t *testing.T) {
	r := newRig(1, freshettest.SourceOptions{Bounded: true}, freshet.Options{}, nil)
	r.origin.Fill(3)
	r.Steps = []freshet.Step{rename{"nothing", "x"}, rename{"absent", "x"}}
	if err := r.Run(t.Context()); err == nil {
		t.Error("got no error, want one of the step")
	}
}

// skipping is a source that loses a batch.
type skipping struct {
	*freshettest.Source
	n int
}

func (s *skipping) Next(ctx context.Context) (*freshet.Batch, error) {
	b, err := s.Source.Next(ctx)
	if s.n++; s.n == 3 && err == nil {
		b.Release()
		return s.Source.Next(ctx)
	}
	return b, err
}

func TestRun_SourceLeavesGap_InternalErrorAndNothingPastIt(t *testing.T) {
	r := newRig(1, freshettest.SourceOptions{Bounded: true, MaxBatch: 1}, freshet.Options{}, nil)
	r.origin.Fill(10)
	r.Source = &skipping{Source: r.source}
	var e *freshet.Error
	if err := r.Run(t.Context()); !errors.As(err, &e) || e.Code != freshet.CodeInternal {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeInternal)
	}
	if got := r.tables.Progress("t")[lane0]; got > 1 {
		t.Errorf("got progress %d, want at most 1", got)
	}
}

func TestRun_TargetNeverAnswers_IsAnErrorAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := func(call string, _ int) error {
			if call == "Resume" || call == "Schema" || call == "Ensure" || call == "Start" {
				return store.ErrUnavailable
			}
			return nil
		}
		r := newRig(1, freshettest.SourceOptions{}, freshet.Options{}, down)
		r.origin.Append(lane0, 0, freshettest.GoodRecord)
		began := time.Now()
		if err := r.Run(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > time.Minute {
			t.Errorf("it took %v, want between 30 s and 1 min", took)
		}
	})
}
