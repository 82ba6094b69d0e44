package lake_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// mended takes all entries but those whose seq is still among the bad.
func mended(bad ...int64) lake.Retake {
	return func(_ context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
		b := &freshet.Batch{Table: "t"}
		rows := array.NewRecordBuilder(memory.DefaultAllocator, freshettest.Schema())
		defer rows.Release()
		for i, e := range entries {
			still := false
			for _, seq := range bad {
				still = still || e.Seq == seq
			}
			if still {
				b.Rejects = append(b.Rejects,
					freshet.Reject{Seq: int64(i), Code: freshet.CodeWrongType, Message: "still"})
				continue
			}
			rows.Field(0).(*array.StringBuilder).Append(e.Lane.String())
			rows.Field(1).(*array.Int64Builder).Append(e.Seq)
			b.Seqs = append(b.Seqs, int64(i))
		}
		if len(b.Seqs) > 0 {
			b.Rows = rows.NewRecordBatch()
		}
		return b, nil
	}
}

// rejected is a world whose table has the rows 0 to 9 of a lane but 2, 5 and 8, which are in quarantine.
func rejected(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	a := w.target(nil)
	must(t, a.Open(t.Context()))
	start(t, a, freshet.Progress{lane0: -1})
	commit(t, a, batch(lane0, -1, 9, 2, 5, 8))
	must(t, a.Close(t.Context()))
	return w
}

func TestReplay_SomeMended_RowsLandAndRestStaysOpen(t *testing.T) {
	w := rejected(t)
	done, err := w.running(t, nil).Replay(t.Context(), "t", nil, mended(5))
	must(t, err)
	if done.Entries != 2 || done.Rows != 2 || len(done.Still) != 1 ||
		done.Still[0].Code != freshet.CodeWrongType {
		t.Errorf("got %+v, want 2 taken and 1 with the new reason", done)
	}
	want := map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 6, 7, 8, 9}}
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"), want)
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {5}})
	done, err = w.running(t, nil).Replay(t.Context(), "t", nil, mended(5))
	must(t, err)
	if done.Entries != 0 || done.Version != -1 {
		t.Errorf("again: got %+v, want nothing taken", done)
	}
	freshettest.CheckOnce(t, "rows, again", w.rows(t, "t"), want)
}

func TestReplay_Chosen_OnlyThose(t *testing.T) {
	w := rejected(t)
	done, err := w.running(t, nil).Replay(t.Context(), "t", &lake.Filter{IDs: []string{"o[0]@5"}}, mended())
	must(t, err)
	if done.Entries != 1 {
		t.Errorf("got %d entries, want 1", done.Entries)
	}
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {2, 8}})
}

func TestReplay_LargePayloads_FewAtATime(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	b := batch(lane0, -1, 9, 2, 5, 8)
	for i := range b.Rejects {
		b.Rejects[i].Raw = make([]byte, 20<<20)
	}
	commit(t, a, b)
	var counts []int
	all := mended(5)
	retake := func(ctx context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
		counts = append(counts, len(entries))
		return all(ctx, entries)
	}
	done, err := w.running(t, nil).Replay(t.Context(), "t", nil, retake)
	must(t, err)
	if !slices.Equal(counts, []int{2, 1}) || done.Entries != 2 || len(done.Still) != 1 {
		t.Errorf("got %d taken and %d left, %v at a time; want 2 and 1, [2 1]", done.Entries, len(done.Still), counts)
	}
	for _, e := range done.Still {
		if e.Raw != nil {
			t.Errorf("%s keeps its payload", e.ID())
		}
	}
}

func TestReplay_CrashAtEveryStoreCall_EachOnce(t *testing.T) {
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := rejected(t)
			m := &mortal{w: w, at: at, after: after}
			_, err := lake.NewTarget(m.open, app, nil).Replay(t.Context(), "t", nil, mended())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			_, err = w.running(t, nil).Replay(t.Context(), "t", nil, mended())
			must(t, err)
			when := fmt.Sprintf("crash at call %d, after it: %v", at, after)
			all := map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
			freshettest.CheckOnce(t, when+": rows", w.rows(t, "t"), all)
			freshettest.CheckOnce(t, when+": rejects", w.rejects(t, "t"), nil)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// One process sleeps in the put of its replay; another one replays, some or nothing; the first wakes up.
func TestReplay_FrozenInCommit_EachOnce(t *testing.T) {
	for name, bad := range map[string][]int64{"other takes some": {5}, "other takes nothing": {2, 5, 8}} {
		t.Run(name, func(t *testing.T) {
			w := rejected(t)
			frozen, thaw := make(chan struct{}), make(chan struct{})
			var once sync.Once
			slow := lake.NewTarget(func(table string) (store.Store, error) {
				return storetest.NewFaulty(w.store(table), func(op storetest.Op, _ string, _ int) storetest.Fault {
					if table != "t" || op != storetest.OpPutIfAbsent {
						return storetest.Fault{}
					}
					once.Do(func() { close(frozen) })
					return storetest.Fault{Kind: storetest.Slow, Release: thaw}
				}), nil
			}, app, nil)
			result := make(chan error, 1)
			go func() {
				_, err := slow.Replay(t.Context(), "t", nil, mended())
				result <- err
			}()
			<-frozen
			done, err := w.running(t, nil).Replay(t.Context(), "t", nil, mended(bad...))
			must(t, err)
			if done.Entries != 3-len(bad) {
				t.Errorf("got %d entries, want %d", done.Entries, 3-len(bad))
			}
			close(thaw)
			must(t, <-result)
			all := map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
			freshettest.CheckOnce(t, "rows", w.rows(t, "t"), all)
			freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), nil)
		})
	}
}

func TestQuarantine_Drop_ClosedAndListedOnRequest(t *testing.T) {
	w := rejected(t)
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	n, err := q.Drop(t.Context(), &lake.Filter{IDs: []string{"o[0]@2", "o[0]@8"}})
	must(t, err)
	if n != 2 {
		t.Errorf("got %d dropped, want 2", n)
	}
	count := func(f *lake.Filter) (open, closed int) {
		for e, err := range q.Entries(t.Context(), f) {
			must(t, err)
			if e.Open {
				open++
			} else {
				closed++
			}
		}
		return open, closed
	}
	if open, closed := count(nil); open != 1 || closed != 0 {
		t.Errorf("got %d open and %d closed, want 1 and 0", open, closed)
	}
	if open, closed := count(&lake.Filter{Closed: true, Code: freshet.CodeMalformed}); open != 1 || closed != 2 {
		t.Errorf("got %d open and %d closed of all, want 1 and 2", open, closed)
	}
	if open, closed := count(&lake.Filter{Code: freshet.CodeNull}); open != 0 || closed != 0 {
		t.Errorf("got %d open and %d closed of another code, want none", open, closed)
	}
	done, err := w.running(t, nil).Replay(t.Context(), "t", nil, mended())
	must(t, err)
	if done.Entries != 1 {
		t.Errorf("got %d replayed, want the one that was not dropped", done.Entries)
	}
}

func TestQuarantine_Get_AllThatIsKnown(t *testing.T) {
	w := rejected(t)
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	e, err := q.Get(t.Context(), "o[0]@5")
	must(t, err)
	if e.App != app || e.Table != "t" || e.Lane != lane0 ||
		e.Code != freshet.CodeMalformed || e.Step != "decode" ||
		e.Message != "bad on purpose" || string(e.Raw) != "bad" || e.QuarantinedAt.IsZero() || e.ID() != "o[0]@5" {
		t.Errorf("got %+v", e)
	}
	_, err = q.Get(t.Context(), "o[0]@4")
	wantCode(t, err, freshet.CodeBadValue)
	_, err = q.Get(t.Context(), "nonsense")
	wantCode(t, err, freshet.CodeBadValue)
	_, err = lake.OpenQuarantine(t.Context(), w.store("none"), "")
	wantCode(t, err, freshet.CodeNoTable)
}

// What was rejected before a crash and is taken when it is read again is closed in quarantine.
func TestQuarantine_TakenAfterCrash_Closed(t *testing.T) {
	w := newWorld()
	start(t, w.running(t, nil), freshet.Progress{lane0: -1})
	m := &mortal{w: w}
	dying := lake.NewTarget(m.open, app, nil)
	start(t, dying, freshet.Progress{lane0: -1})
	c := sealed(t, dying, batch(lane0, -1, 9, 2, 5))
	_, err := lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane0: 0}, nil)
	must(t, err)
	_, err = c.Run(t.Context()) // the rejects land, the rows do not
	wantStale(t, err)
	_, err = lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane0: -1}, nil)
	must(t, err)
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {2, 5}})
	next := w.running(t, nil)
	start(t, next, freshet.Progress{lane0: -1})
	commit(t, next, batch(lane0, -1, 3))
	commit(t, next, batch(lane0, 3, 12, 5, 11))
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {5, 11}})
}
