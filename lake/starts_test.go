package lake_test

import (
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// folder is what is kept for a table that is still to be made.
func (w *world) folder(t *testing.T) (keys []string) {
	t.Helper()
	for o, err := range w.store("t").List(t.Context(), "_freshet/", "") {
		must(t, err)
		keys = append(keys, o.Key)
	}
	return keys
}

func TestStart_NoTableYet_KeptUntilItIsMade(t *testing.T) {
	w := newWorld()
	p, err := w.running(t, nil).Start(t.Context(), "t", freshet.Progress{lane0: 41})
	must(t, err)
	if p[lane0] != 41 || len(w.folder(t)) != 1 {
		t.Fatalf("got %v and the objects %q, want the start, kept", p, w.folder(t))
	}
	next := w.running(t, nil)
	p, err = next.Start(t.Context(), "t", freshet.Progress{lane0: 99, lane1: 7})
	must(t, err)
	if p[lane0] != 41 || p[lane1] != 7 {
		t.Errorf("got %v, want what was kept first", p)
	}
	last := w.running(t, nil) // it resumes, and starts nothing itself
	p, err = last.Resume(t.Context(), "t", []freshet.Lane{lane0, lane1})
	must(t, err)
	if p[lane0] != 41 || p[lane1] != 7 {
		t.Errorf("got %v, want what was kept", p)
	}
	must(t, last.Ensure(t.Context(), "t", freshettest.Schema()))
	if v := w.snapshot(t, "t").Version(); v != 0 || len(w.folder(t)) != 0 {
		t.Errorf("got version %d and the objects %q, want one commit with all starts, and nothing kept", v, w.folder(t))
	}
	p, err = w.running(t, nil).Resume(t.Context(), "t", []freshet.Lane{lane0, lane1})
	must(t, err)
	if p[lane0] != 41 || p[lane1] != 7 {
		t.Errorf("got %v of the table, want what was kept", p)
	}
}

func TestStart_TopicRemadeBeforeThereIsATable_StartsAnew(t *testing.T) {
	w := newWorld()
	old, remade := freshet.Lane{Origin: "o", OriginID: "old", Name: "0"}, freshet.Lane{Origin: "o", OriginID: "new", Name: "0"}
	_, err := w.running(t, nil).Start(t.Context(), "t", freshet.Progress{old: 41})
	must(t, err)
	a := w.running(t, nil)
	p, err := a.Resume(t.Context(), "t", []freshet.Lane{remade})
	must(t, err)
	if len(p) != 0 {
		t.Errorf("got %v of the topic that was made again, want nothing", p)
	}
	_, err = a.Start(t.Context(), "t", freshet.Progress{remade: 2})
	must(t, err)
	must(t, a.Ensure(t.Context(), "t", freshettest.Schema()))
	p, err = w.running(t, nil).Resume(t.Context(), "t", []freshet.Lane{remade})
	must(t, err)
	if p[remade] != 2 {
		t.Errorf("got %v, want the start of the topic as it is now", p)
	}
}

func TestStart_KeptObjectIsDamaged_NamesIt(t *testing.T) {
	w := newWorld()
	_, err := w.running(t, nil).Start(t.Context(), "t", freshet.Progress{lane0: 41})
	must(t, err)
	key := w.folder(t)[0]
	must(t, w.store("t").Put(t.Context(), key, []byte("{")))
	_, err = w.running(t, nil).Resume(t.Context(), "t", []freshet.Lane{lane0})
	wantCode(t, err, freshet.CodeCorrupt)
	if !strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want the object's name", err)
	}
}
