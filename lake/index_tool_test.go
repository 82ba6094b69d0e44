package lake_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/lake"
)

// indexed is a keyed table of n items, whose pipeline has stopped, and the options that find its index.
func indexed(t *testing.T, w *world, n int) *lake.IndexOptions {
	t.Helper()
	dir := t.TempDir()
	target := w.target(&lake.TargetOptions{Mode: lake.Upsert,
		Key: lake.KeyOptions{Columns: []string{"id"}, SequenceBy: []string{"at"}, IndexDir: dir}})
	must(t, target.Open(t.Context()))
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	var changes []itemChange
	for i := range n {
		changes = append(changes, itemChange{freshet.UpdatePostimage, item{id: int64(i), n: ptr(int64(i)), text: ptr("a"), at: 1}})
	}
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, changes))
	must(t, err)
	commitAll(t, target)
	must(t, target.Close(context.Background()))
	return &lake.IndexOptions{Dir: dir}
}

// touch makes a new version of the table that changes no row.
func (w *world) touch(t *testing.T, table string) int64 {
	t.Helper()
	done, err := w.snapshot(t, table).Table().SetProperties(t.Context(), map[string]string{"note": "touched"}, nil)
	must(t, err)
	return done.Version
}

// spoil changes the index without the table.
func spoil(t *testing.T, d *lake.IndexInfo, version int64, how func(x *keyindex.Index, c *keyindex.Change)) {
	t.Helper()
	info, err := keyindex.Inspect(d.Dir)
	must(t, err)
	x, err := keyindex.Open(d.Dir, info.Identity)
	must(t, err)
	defer x.Close()
	c, err := x.Begin(version)
	must(t, err)
	how(x, c)
	_, err = c.Commit(t.Context())
	must(t, err)
}

// entryAt is the key whose row lies there.
func entryAt(t *testing.T, x *keyindex.Index, row int64) (found keyindex.Fingerprint, path string) {
	t.Helper()
	must(t, x.Entries(t.Context(), func(key keyindex.Fingerprint, at keyindex.Position, _ []byte) error {
		if at.Row == row {
			found = key
			path, _ = x.Path(at.File)
		}
		return nil
	}))
	return found, path
}

func TestIndexTool_AfterAStream_DescribedAndRight(t *testing.T) {
	w := newWorld()
	o := indexed(t, w, 10)
	all, err := lake.DescribeIndexes(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if len(all) != 1 || all[0].App != app || all[0].Entries != 10 || all[0].Version != all[0].TableVersion ||
		!slices.Equal(all[0].Key, []string{"id"}) || all[0].SequenceBytes != 8 || all[0].Fault != "" {
		t.Errorf("got %+v", all)
	}
	o.SequenceBy = []string{"at"}
	r, err := lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if r.Rows != 10 || r.Keys != 10 || !r.Sequences || len(r.Faults) > 0 {
		t.Errorf("got %+v", r)
	}
}

func TestIndexTool_SpoiledIndex_EachFaultNamedAndRebuiltRight(t *testing.T) {
	w := newWorld()
	o := indexed(t, w, 10)
	all, err := lake.DescribeIndexes(t.Context(), w.store("t"), "t", o)
	must(t, err)
	spoil(t, &all[0], w.touch(t, "t"), func(x *keyindex.Index, c *keyindex.Change) {
		first, path := entryAt(t, x, 0)
		second, _ := entryAt(t, x, 1)
		third, _ := entryAt(t, x, 2)
		must(t, c.Delete([]keyindex.Fingerprint{first}))
		must(t, c.Add(path, []keyindex.Fingerprint{second, third, {Hi: 1, Lo: 2}}, []int64{7, 2, 99}, make([]byte, 3*20)))
	})
	o.SequenceBy = []string{"at"}
	r, err := lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	var kinds []string
	for _, f := range r.Faults {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	want := []string{lake.IndexExtra, lake.IndexMissing, lake.IndexPlace, lake.IndexSequence}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	read := int64(0)
	o.Progress = func(rows int64) { read = rows }
	d, err := lake.RebuildIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if d.Entries != 10 || read != 10 {
		t.Errorf("got %d entries of %d rows, want 10", d.Entries, read)
	}
	r, err = lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if len(r.Faults) > 0 {
		t.Errorf("after the rebuild: got %v, want no faults", r.Faults)
	}
}

func TestIndexTool_SequencesWithoutColumns_NotRebuilt(t *testing.T) {
	w := newWorld()
	_, err := lake.RebuildIndex(t.Context(), w.store("t"), "t", indexed(t, w, 3))
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeBadValue {
		t.Errorf("got %v, want CodeBadValue", err)
	}
}

func TestIndexTool_IndexInUse_ErrorSaysSo(t *testing.T) {
	w := newWorld()
	o := indexed(t, w, 3)
	all, err := lake.DescribeIndexes(t.Context(), w.store("t"), "t", o)
	must(t, err)
	info, err := keyindex.Inspect(all[0].Dir)
	must(t, err)
	x, err := keyindex.Open(all[0].Dir, info.Identity)
	must(t, err)
	defer x.Close()
	o.SequenceBy = []string{"at"}
	var e *freshet.Error
	if _, err := lake.CheckIndex(t.Context(), w.store("t"), "t", o); !errors.As(err, &e) || e.Code != freshet.CodeConflict {
		t.Errorf("check: got %v, want CodeConflict", err)
	}
	if _, err := lake.RebuildIndex(t.Context(), w.store("t"), "t", o); !errors.As(err, &e) || e.Code != freshet.CodeConflict {
		t.Errorf("rebuild: got %v, want CodeConflict", err)
	}
	if _, err := lake.DescribeIndexes(t.Context(), w.store("t"), "t", o); err != nil {
		t.Errorf("describe: got %v, want none", err)
	}
}

// The index of a table that takes no record twice is of the rows within the window, and is checked as such.
func TestIndexTool_IndexOfAWindow_CheckedAndRebuilt(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	events := []event{{1, 0}, {2, 10}, {1, 20}, {3, 200}, {4, 210}, {3, 215}, {5, 240}}
	must(t, runEvents(t, w.open, dir, events, 2))
	o := &lake.IndexOptions{Dir: dir}
	r, err := lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if d := r.Window; d == nil || d.Time != "at" || d.Within.Hours() != 1 || !slices.Equal(r.Key, []string{"id"}) {
		t.Errorf("got the key %v and the window %+v, want id, and at within an hour", r.Key, d)
	}
	if len(r.Faults) > 0 {
		t.Errorf("got the faults %+v, want none", r.Faults)
	}
	spoil(t, &r.IndexInfo, w.touch(t, "t"), func(x *keyindex.Index, c *keyindex.Change) {
		x.Entries(t.Context(), func(key keyindex.Fingerprint, at keyindex.Position, _ []byte) error {
			return c.Delete([]keyindex.Fingerprint{key})
		})
		c.Note(x.Note())
	})
	r, err = lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if len(r.Faults) != 3 || r.Faults[0].Kind != lake.IndexMissing {
		t.Errorf("got the faults %+v, want the three rows within the window missing", r.Faults)
	}
	_, err = lake.RebuildIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	r, err = lake.CheckIndex(t.Context(), w.store("t"), "t", o)
	must(t, err)
	if len(r.Faults) > 0 {
		t.Errorf("made anew: got the faults %+v, want none", r.Faults)
	}
}
