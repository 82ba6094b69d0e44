package lake_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// rejectedBoth is rejected with a change log beside the table.
func rejectedBoth(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	g := logged(w.open, nil)
	must(t, g.Open(t.Context()))
	start(t, g, freshet.Progress{lane0: -1})
	_, err := g.Write(t.Context(), batch(lane0, -1, 9, 2, 5, 8))
	must(t, err)
	runAll(t, g)
	must(t, g.Close(t.Context()))
	return w
}

// What a replay takes is in the table and in its change log, each once, wherever it is killed.
func TestReplay_GroupCrashAtEveryStoreCall_EachOnceInBoth(t *testing.T) {
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := rejectedBoth(t)
			m := &mortal{w: w, at: at, after: after}
			_, err := logged(m.open, nil).Replay(t.Context(), "t", nil, mended())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			done, err := logged(w.open, nil).Replay(t.Context(), "t", nil, mended())
			must(t, err)
			when := fmt.Sprintf("crash at call %d, after it: %v (%+v)", at, after, done)
			all := map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
			freshettest.CheckOnce(t, when+": rows", w.rows(t, "t"), all)
			freshettest.CheckOnce(t, when+": the log's rows", w.rows(t, logOf("t")), all)
			freshettest.CheckOnce(t, when+": rejects", w.rejects(t, "t"), nil)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// A row that the table alone refused is in the log already.
func TestReplay_GroupRowThatOnlyTheTableRefused_LoggedOnce(t *testing.T) {
	w := newWorld()
	opts := &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: t.TempDir()}}
	g := begun(t, w, opts)
	_, err := g.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{
		{freshet.Insert, item{1, ptr(int64(5)), ptr("a"), 1}}, {freshet.UpdatePostimage, item{2, nil, ptr("b"), 2}}}))
	must(t, err)
	runAll(t, g)
	if n := w.count(t, "t_log", "TRUE"); n != 2 {
		t.Fatalf("got %d rows in the log, want both", n)
	}
	whole := func(_ context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
		b := itemBatch("t", keyedLane, -1, []itemChange{{freshet.Insert, item{2, ptr(int64(6)), ptr("b"), 2}}})
		return b, nil
	}
	replay := logged(w.open, opts)
	defer func() { must(t, replay.Close(context.Background())) }()
	done, err := replay.Replay(t.Context(), "t", nil, whole)
	must(t, err)
	if done.Entries != 1 || w.count(t, "t", "id = 2 AND n = 6") != 1 {
		t.Errorf("got %+v, want the row in the table", done)
	}
	if n := w.count(t, "t_log", "TRUE"); n != 2 {
		t.Errorf("got %d rows in the log, want 2", n)
	}
}

// A record that is not behind the table's progress will be read again: a replay leaves it alone.
func TestReplay_TableNotPastTheRecord_LeftToThePipeline(t *testing.T) {
	w := rejectedBoth(t)
	_, err := lake.SetProgress(t.Context(), w.store(logOf("t")), app, freshet.Progress{lane0: 4}, nil)
	must(t, err)
	done, err := logged(w.open, nil).Replay(t.Context(), "t", nil, mended())
	must(t, err)
	if done.Entries != 1 || len(done.Still) != 2 {
		t.Errorf("got %+v, want the record 2 taken, and 5 and 8 left", done)
	}
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {5, 8}})
}

var pairSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// pair are two rows of one record, of which the table refuses a negative one.
func pair(seq int64, old, now *int64) *freshet.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	for _, v := range []*int64{old, now} {
		if v == nil {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Int64Builder).Append(*v)
		}
	}
	batch := &freshet.Batch{Table: "t", Lane: lane0, After: -1, Last: seq, Seqs: []int64{seq, seq}, Rows: b.NewRecordBatch(),
		Kinds: []freshet.Kind{freshet.UpdatePreimage, freshet.UpdatePostimage}}
	batch.SetPlaces()
	return batch
}

// Of a record that became two rows one was taken and one refused: a replay takes that one, and not the first again.
func TestReplay_OneRowOfARecord_OnlyThatOne(t *testing.T) {
	w := newWorld()
	opts := &lake.TargetOptions{ChangeColumns: []string{lake.ChangeTypeColumn}}
	a := w.running(t, opts)
	_, err := a.Start(t.Context(), "t", freshet.Progress{lane0: -1})
	must(t, err)
	must(t, a.Ensure(t.Context(), "t", pairSchema))
	_, err = a.Write(t.Context(), pair(0, ptr(int64(1)), nil))
	must(t, err)
	commitAll(t, a)
	retake := func(context.Context, []*lake.Entry) (*freshet.Batch, error) {
		return pair(0, ptr(int64(1)), ptr(int64(2))), nil
	}
	done, err := w.running(t, opts).Replay(t.Context(), "t", nil, retake)
	must(t, err)
	if done.Entries != 1 || done.Rows != 1 {
		t.Errorf("got %+v, want one row", done)
	}
	sameTexts(t, "rows", w.texts(t, "t", "n", lake.ChangeTypeColumn),
		[]string{"n=1 _change_type=update_preimage", "n=2 _change_type=update_postimage"})
}

// A record that becomes two rows, of which the table refuses one still, is not taken by half.
func TestReplay_RecordOfTwoRowsHalfRefused_NothingOfItTaken(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	_, err := a.Start(t.Context(), "t", freshet.Progress{lane0: -1})
	must(t, err)
	must(t, a.Ensure(t.Context(), "t", pairSchema))
	bad := &freshet.Batch{Table: "t", Lane: lane0, After: -1, Last: 0,
		Rejects: []freshet.Reject{{Seq: 0, Code: freshet.CodeMalformed, Step: "decode", Message: "no"}}}
	_, err = a.Write(t.Context(), bad)
	must(t, err)
	commitAll(t, a)
	for range 2 {
		retake := func(context.Context, []*lake.Entry) (*freshet.Batch, error) { return pair(0, ptr(int64(1)), nil), nil }
		done, err := w.running(t, nil).Replay(t.Context(), "t", nil, retake)
		must(t, err)
		if done.Entries != 0 || len(done.Still) != 1 || done.Still[0].Code != freshet.CodeNull {
			t.Errorf("got %+v, want the record left with its new reason", done)
		}
		if n := w.count(t, "t", "TRUE"); n != 0 {
			t.Errorf("got %d rows, want none", n)
		}
	}
}
