package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

var eventSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "seq", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}, nil)

// event is a record of a table that takes none twice: at is in minutes.
type event struct{ id, at int64 }

func eventBatch(after int64, events []event) *freshet.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, eventSchema)
	defer b.Release()
	batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: after, Last: after + int64(len(events))}
	for i, e := range events {
		seq := after + 1 + int64(i)
		b.Field(0).(*array.Int64Builder).Append(e.id)
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(e.at * 60_000_000))
		b.Field(2).(*array.Int64Builder).Append(seq)
		batch.Seqs = append(batch.Seqs, seq)
	}
	batch.Rows = b.NewRecordBatch()
	return batch
}

// takenEvents is what the table must have: the seqs of the events, which were given in this order, that are not there yet.
func takenEvents(events []event, within int64) (taken []int64) {
	var rows []event
	var newest int64 = -1 << 40
	for seq, e := range events {
		twice := slices.ContainsFunc(rows, func(r event) bool {
			return r.id == e.id && r.at >= newest-within && max(r.at, e.at)-min(r.at, e.at) < within
		})
		if !twice {
			rows, taken, newest = append(rows, e), append(taken, int64(seq)), max(newest, e.at)
		}
	}
	return taken
}

func (w *world) eventSeqs(t *testing.T) (seqs []int64) {
	t.Helper()
	for rec, err := range w.snapshot(t, "t").Scan(t.Context(), &delta.ScanOptions{Columns: []string{"seq"}}) {
		must(t, err)
		seqs = append(seqs, rec.Column(0).(*array.Int64).Int64Values()...)
		rec.Release()
	}
	slices.Sort(seqs)
	return seqs
}

// runEvents is a life of a process that takes events from where the table stands, so many a commit.
func runEvents(t *testing.T, open lake.Opener, dir string, events []event, each int) (err error) {
	t.Helper()
	target := lake.NewTarget(open, app, &lake.TargetOptions{Key: lake.KeyOptions{IndexDir: dir},
		Dedupe: &lake.DedupeOptions{Key: []string{"id"}, Within: time.Hour, Time: "at"}})
	defer func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = errors.Join(err, target.Close(ctx))
	}()
	if err := errors.Join(target.Open(t.Context()), target.Ensure(t.Context(), "t", eventSchema)); err != nil {
		return err
	}
	have, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	if err != nil {
		return err
	}
	if _, known := have[keyedLane]; !known {
		if have, err = target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1}); err != nil {
			return err
		}
	}
	for last := have[keyedLane]; last+1 < int64(len(events)); {
		n := min(last+1+int64(each), int64(len(events)))
		if _, err := target.Write(t.Context(), eventBatch(last, events[last+1:n])); err != nil {
			return err
		}
		last = n - 1
		commits, err := target.Seal(t.Context())
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(t.Context()); err != nil {
				c.Abort()
				return err
			}
		}
	}
	return nil
}

func randomEvents(seed uint64, n int) []event {
	r := rand.New(rand.NewPCG(seed, 4))
	events := make([]event, n)
	now := int64(-100)
	for i := range events {
		now += r.Int64N(12)
		events[i] = event{r.Int64N(5), now - r.Int64N(90)}
	}
	return events
}

func TestDedupe_CommitsOfAnySize_TakeTheSame(t *testing.T) {
	for seed := range uint64(4) {
		events := randomEvents(seed, 150)
		want := fmt.Sprint(takenEvents(events, 60))
		for _, each := range []int{1, 7, 150} {
			w, dir := newWorld(), t.TempDir()
			must(t, runEvents(t, w.open, dir, events[:60], each))
			if each == 7 {
				must(t, os.RemoveAll(dir)) // which is read again from what reaches into the window
			}
			must(t, runEvents(t, w.open, dir, events, each))
			if got := fmt.Sprint(w.eventSeqs(t)); got != want {
				t.Errorf("seed %d, %d events a commit: got %v, want %v", seed, each, got, want)
			}
		}
	}
}

func TestDedupe_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	t.Parallel()
	const seed = 3
	t.Logf("seed %d", seed)
	events := randomEvents(seed, 30)
	want := fmt.Sprint(takenEvents(events, 60))
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w, dir := newWorld(), t.TempDir()
			m := &mortal{w: w, at: at, after: after}
			err := runEvents(t, m.open, dir, events, 7)
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			if at%3 == 0 {
				must(t, os.RemoveAll(dir))
			}
			must(t, runEvents(t, w.open, dir, events, 11))
			if got := fmt.Sprint(w.eventSeqs(t)); got != want {
				t.Fatalf("crash at call %d, after it: %v: got %v, want %v", at, after, got, want)
			}
		}
	}
}

func TestDedupe_Duplicates_AreCountedInTheHistory(t *testing.T) {
	w := newWorld()
	must(t, runEvents(t, w.open, t.TempDir(), []event{{1, 0}, {1, 59}, {2, 10}, {1, 60}, {2, 10}}, 5))
	if got := fmt.Sprint(w.eventSeqs(t)); got != "[0 2 3]" {
		t.Errorf("got the events %v, want 0, 2 and 3", got)
	}
	for e, err := range w.snapshot(t, "t").Table().History(t.Context(), 1) {
		must(t, err)
		if got := e.Info.OperationParameters["freshet.duplicates"]; got != "2" {
			t.Errorf("got %q duplicates in the history, want 2", got)
		}
	}
}
