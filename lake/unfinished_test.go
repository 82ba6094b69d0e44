package lake_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

// parts are the seq last in two batches: two rows and a reject, then a reject and a row.
func parts(after, last int64) []*freshet.Batch {
	first, second := batch(lane0, last-1, last), batch(lane0, last-1, last)
	first.After, first.Unfinished = after, true
	first.Rejects = []freshet.Reject{{Seq: last, Row: 1, Code: freshet.CodeMalformed}}
	first.Places = []int32{0}
	second.After, second.Places = last, []int32{3}
	second.Rejects = []freshet.Reject{{Seq: last, Row: 2, Code: freshet.CodeMalformed}}
	return []*freshet.Batch{first, second}
}

// The log's part of a group, which holds all of the seq already, takes none of its batches; the table takes all.
func TestGroup_SeqInSeveralBatches_EachPartTakesAllOrNone(t *testing.T) {
	w := newWorld()
	g := logged(w.open, nil)
	start(t, g, freshet.Progress{lane0: -1})
	var commits []freshet.Commit
	for _, b := range parts(-1, 4) {
		must(t, write(t, g, b))
	}
	commits, err := g.Seal(t.Context())
	must(t, err)
	for _, c := range commits {
		_, err := c.Run(t.Context())
		must(t, err)
	}
	want := map[string][]int64{lane0.String(): {4, 4}}
	freshettest.CheckOnce(t, "the table", w.rows(t, "t"), want)
	freshettest.CheckOnce(t, "its log", w.rows(t, logOf("t")), want)

	behind := w.running(t, nil)
	if _, err := lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane0: -1}, nil); err != nil {
		t.Fatal(err)
	}
	must(t, behind.Close(t.Context()))
	again := logged(w.open, nil)
	start(t, again, freshet.Progress{lane0: -1})
	for _, b := range parts(-1, 4) {
		must(t, write(t, again, b))
	}
	commits, err = again.Seal(t.Context())
	must(t, err)
	for _, c := range commits {
		_, err := c.Run(t.Context())
		must(t, err)
	}
	freshettest.CheckOnce(t, "its log, read again", w.rows(t, logOf("t")), want)
	if got := len(w.rows(t, "t")); got != 4 {
		t.Errorf("the table, set back: got %d rows, want 4", got)
	}
}

// A crash between quarantine and table: the rejects of a seq in several batches are known again one by one.
func TestWrite_SeqInSeveralBatchesAfterCrash_RejectsOnce(t *testing.T) {
	w := newWorld()
	first := w.running(t, nil)
	start(t, first, freshet.Progress{lane0: -1})
	c := sealed(t, first, parts(-1, 4)...)
	if _, err := lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane0: 0}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context()); err == nil {
		t.Fatal("got no error of a commit whose lane another has moved")
	}
	second := w.running(t, nil)
	start(t, second, freshet.Progress{lane0: -1})
	commit(t, second, parts(0, 4)...)
	freshettest.CheckOnce(t, "rejects", w.rejects(t, "t"), map[string][]int64{lane0.String(): {4, 4}})
	if n := w.count(t, lake.QuarantineName("t"), "event <> 'rejected'"); n != 0 {
		t.Errorf("got %d events that take rejects back, want none", n)
	}
	freshettest.CheckOnce(t, "rows", w.rows(t, "t"), map[string][]int64{lane0.String(): {4, 4}})
}
