package lake_test

import (
	"context"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// historyLane is the history of the table of keyedLane.
var historyLane = freshet.Lane{Origin: "orders", OriginID: "a", Name: "16385"}

// reading is a chunk of a history that was read when the log was at a seq, with more than that many rows read there before.
func reading(chunk, log, before int64, rows ...itemChange) *freshet.Batch {
	b := itemBatch("t", historyLane, chunk-1, rows)
	b.Last, b.Behind = chunk, &freshet.Place{Lane: keyedLane, Seq: log}
	for i := range b.Seqs {
		b.Seqs[i], b.Places = chunk, append(b.Places, int32(i))
		b.Stamps = append(b.Stamps, freshet.Stamp{Ordinal: freshet.ReadOrdinals + before + int64(i), Committed: 1})
	}
	return b
}

// A process dies between the commits of the table, which refuses a row, and of its log. The chunk is read again for the log alone, and its rows
// have other change columns then. A replay does not add the row to the log again, but one that the log has not.
func TestReplay_HistoryReadAgainForTheLogAlone_LoggedOnce(t *testing.T) {
	good, bad := itemChange{freshet.Insert, whole(1, 1, "a", 1).item}, itemChange{freshet.Insert, whole(2, -1, "b", 1).item}
	later := whole(2, 5, "c", 2)
	changed := itemBatch("t", keyedLane, 14, []itemChange{later})
	changed.After = -1
	for name, c := range map[string]struct {
		again *freshet.Batch
		want  int64
	}{
		"the log has it of the other reading":      {reading(1, 20, 7, good, bad), 1},
		"it had been deleted":                      {reading(1, 20, 7, good), 1},
		"the log has a change of it, and not it":   {changed, 2},
		"the log has what was read of it before":   {reading(1, 5, 7, good, bad), 2},
		"the log has an update that was read then": {reading(1, 20, 7, good, later), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			opts := keyedBy(t.TempDir())
			begin := func(target freshet.Target) freshet.Target {
				must(t, target.Open(t.Context()))
				must(t, target.Ensure(t.Context(), "t", itemSchema))
				lanes := []freshet.Lane{keyedLane, historyLane}
				have, err := target.Resume(t.Context(), "t", lanes)
				must(t, err)
				if len(have) == 0 {
					_, err = target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, historyLane: 0})
					must(t, err)
				}
				return target
			}
			must(t, begin(logged(w.open, opts)).Close(t.Context()))
			_, err := w.snapshot(t, "t").Table().AddConstraint(t.Context(), "whole", "n >= 0", &delta.AlterOptions{Upgrade: true})
			must(t, err)
			alone := begin(w.target(opts))
			_, err = alone.Write(t.Context(), reading(1, 10, 0, good, bad))
			must(t, err)
			runAll(t, alone)
			must(t, alone.Close(t.Context()))
			both := begin(logged(w.open, opts))
			_, err = both.Write(t.Context(), c.again)
			must(t, err)
			runAll(t, both)
			if c.again.Lane == keyedLane {
				_, err = lake.SetProgress(t.Context(), w.store("t_log"), app, freshet.Progress{historyLane: 1}, nil)
				must(t, err)
			}
			must(t, both.Close(t.Context()))
			retake := func(_ context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
				b := itemBatch("t", historyLane, -1, []itemChange{whole(2, 9, "b", 1)})
				change, ok := freshet.ChangeOf(entries[0].Headers)
				if len(entries) != 1 || !ok || change.Behind == nil {
					t.Errorf("got %d entries, the first %+v; want one that was read", len(entries), change)
				}
				b.Kinds[0], b.Stamps, b.Places = change.Kind, []freshet.Stamp{change.Stamp}, []int32{entries[0].Row}
				return b, nil
			}
			replay := logged(w.open, opts)
			defer func() { must(t, replay.Close(context.Background())) }()
			done, err := replay.Replay(t.Context(), "t", nil, retake)
			must(t, err)
			if done.Entries != 1 || w.count(t, "t", "id = 2") != 1 {
				t.Errorf("got %+v, want the row taken", done)
			}
			if n := w.count(t, "t_log", "id = 2"); n != c.want {
				t.Errorf("got %d rows of it in the log, want %d: %v", n, c.want,
					w.texts(t, "t_log", "id", "n", "_change_type", "_commit_version", "_ordinal"))
			}
		})
	}
}

// A chunk is read again after a crash between quarantine and table: where a step refused one row there, it may refuse another now, or one
// that stands elsewhere.
func TestQuarantine_HistoryReadAgain_HasTheRowsOfNow(t *testing.T) {
	w := newWorld()
	chunk := func(log int64, raw ...string) *freshet.Batch {
		at := &freshet.Place{Lane: lane0, Seq: log}
		b := &freshet.Batch{Table: "t", Lane: lane1, After: 0, Last: 1, Behind: at}
		for i, text := range raw {
			change := freshet.Change{Stamp: freshet.Stamp{Ordinal: freshet.ReadOrdinals + int64(i)}, Behind: at}
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: 1, Row: int32(i), Code: freshet.CodeNull, Step: "share", Message: "no",
				Record: freshet.Record{Raw: []byte(text), Headers: change.Headers(), TimeKind: -1}})
		}
		return b
	}
	first := w.running(t, nil)
	start(t, first, freshet.Progress{lane0: 9, lane1: 0})
	c := sealed(t, first, chunk(10, "a", "gone", "b"))
	_, err := lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane1: -1}, nil)
	must(t, err)
	_, err = c.Run(t.Context()) // the rejects land, the rows do not
	wantStale(t, err)
	_, err = lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane1: 0}, nil)
	must(t, err)
	next := w.running(t, nil)
	start(t, next, freshet.Progress{lane0: 9, lane1: 0})
	commit(t, next, chunk(20, "a", "b"))
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	open := map[string]int64{}
	for e, err := range q.Entries(t.Context(), nil) {
		must(t, err)
		change, _ := freshet.ChangeOf(e.Headers)
		open[string(e.Raw)] = change.Behind.Seq
	}
	if len(open) != 2 || open["a"] != 20 || open["b"] != 20 {
		t.Errorf("got %v open, want a and b as they were read at 20", open)
	}
	closed := 0
	for e, err := range q.Entries(t.Context(), &lake.Filter{Closed: true}) {
		must(t, err)
		if !e.Open {
			closed++
		}
	}
	if closed != 3 {
		t.Errorf("got %d closed, want the 3 of the first reading", closed)
	}
}
