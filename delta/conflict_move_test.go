package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

var withVectors = map[string]string{"delta.enableDeletionVectors": "true"}

// TestDML_CompactionWinsTheRace_RowsAreFoundAgain has a compaction land between each operation and its commit.
func TestDML_CompactionWinsTheRace_RowsAreFoundAgain(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(*delta.Table) (*delta.DMLResult, error)
		want []string
	}{
		"delete": {func(table *delta.Table) (*delta.DMLResult, error) {
			return table.Delete(context.Background(), parse(t, "id IN (1, 4)"), nil)
		}, []string{`{"id":3,"n":3}`, `{"id":5,"n":5}`, `{"id":6,"n":6}`}},
		"update": {func(table *delta.Table) (*delta.DMLResult, error) {
			return table.Update(context.Background(), set(t, "n", "n * 10"), parse(t, "id IN (3, 6)"), nil)
		}, []string{`{"id":1,"n":1}`, `{"id":3,"n":30}`, `{"id":4,"n":4}`, `{"id":5,"n":5}`, `{"id":6,"n":60}`}},
		"merge": {func(table *delta.Table) (*delta.DMLResult, error) {
			return table.Merge(context.Background(), sourceWith(t, keyed(), `[{"id":4,"n":0},{"id":7,"n":7}]`), upsert(t), nil)
		}, []string{`{"id":1,"n":1}`, `{"id":3,"n":3}`, `{"id":4,"n":0}`, `{"id":5,"n":5}`, `{"id":6,"n":6}`, `{"id":7,"n":7}`}},
	} {
		t.Run(name, func(t *testing.T) {
			st := store.NewMem()
			table := tableWith(t, st, keyed(), `[{"id":1,"n":1},{"id":2,"n":2},{"id":3,"n":3}]`, withVectors)
			write(t, table, keyed(), `[{"id":4,"n":4},{"id":5,"n":5}]`, nil)
			write(t, table, keyed(), `[{"id":6,"n":6}]`, nil)
			if _, err := table.Delete(context.Background(), parse(t, "id = 2"), nil); err != nil {
				t.Fatal(err)
			}
			raced := storetest.NewFaulty(st, compactBeforeCommit(t, st))
			r, err := c.run(open(t, raced))
			if err != nil || r.Retries != 1 || r.Moved == 0 {
				t.Fatalf("got %v and %+v, want one lost race and rows found again", err, r)
			}
			wantRows(t, table, c.want...)
		})
	}
}

// compactBeforeCommit is a rule that never fails, and has the table compacted before the first commit.
func compactBeforeCommit(t *testing.T, st store.Store) storetest.Rule {
	done := false
	return func(op storetest.Op, key string, _ int) storetest.Fault {
		if op == storetest.OpPutIfAbsent && strings.HasPrefix(key, "_delta_log/") && !done {
			done = true
			if r, err := open(t, st).Optimize(context.Background(), nil); err != nil || r.Commits != 1 {
				t.Errorf("optimize: got %v and %+v, want a commit", err, r)
			}
		}
		return storetest.Fault{}
	}
}

// TestDeleteRows_CompactionThatHadToHideRows_FoundAgain has three meet: the compaction read the files before a deletion
// that it then carried over, and a third deletion is of the files before both.
func TestDeleteRows_CompactionThatHadToHideRows_FoundAgain(t *testing.T) {
	d := newDuel(t, withVectors)
	rewrite := open(t, d.st).Begin(d.snap, nil)
	rewrite.Rewrite(d.compaction())
	d.first.DeleteRows(d.files[0], bitmapOf(0, 4))
	if _, err := d.first.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := rewrite.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	d.second.DeleteRows(d.files[0], bitmapOf(5))
	d.second.DeleteRows(d.files[1], bitmapOf(3))
	done, err := d.second.Commit(context.Background())
	if err != nil || done.Moved != 2 {
		t.Fatalf("got %v and %+v, want rows of two files moved", err, done)
	}
	if got, want := d.ids(), slices.Concat(spanOf(1, 4), spanOf(6, 13), spanOf(14, 20)); !slices.Equal(got, want) {
		t.Errorf("got ids %v, want %v", got, want)
	}
}

// TestDeleteRows_NoteThatDoesNotAgree_IsNotBelieved spoils what a compaction says of where rows went.
func TestDeleteRows_NoteThatDoesNotAgree_IsNotBelieved(t *testing.T) {
	for name, spoil := range map[string]func(note string) string{
		"nothing":            func(string) string { return "" },
		"no JSON":            func(note string) string { return note[:len(note)-1] },
		"another kind":       func(string) string { return `{\"rewrites\":[{\"from\":7}]}` },
		"a row too many":     func(note string) string { return strings.Replace(note, `\"rows\":9`, `\"rows\":10`, 1) },
		"fewer than none":    func(note string) string { return strings.Replace(note, `\"rows\":9`, `\"rows\":-9`, 1) },
		"no vector":          func(note string) string { return strings.Replace(note, `deletionVector`, `vector`, 1) },
		"a vector not there": func(note string) string { return strings.Replace(note, `\"offset\":1`, `\"offset\":2`, 1) },
		"rows of the other file": func(note string) string {
			note = strings.Replace(note, `\"rows\":9`, `\"rows\":8`, 1)
			return strings.Replace(note, `\"rows\":10`, `\"rows\":11`, 1)
		},
		"another new file": func(note string) string {
			return strings.Replace(note, `\"to\":[{\"path\":\"`, `\"to\":[{\"path\":\"x`, 1)
		},
		"fewer rows in it":    func(note string) string { return strings.Replace(note, `\"rows\":19`, `\"rows\":18`, 1) },
		"no new file":         func(note string) string { return note[:strings.Index(note, `\"to\"`)] + `\"to\":[]}]}` },
		"files of other name": func(note string) string { return strings.ReplaceAll(note, `\"path\":\"`, `\"path\":\"x`) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuel(t, withVectors)
			d.first.DeleteRows(d.files[0], bitmapOf(1))
			if _, err := d.first.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			d.second.DeleteRows(d.files[0], bitmapOf(5))
			if _, err := open(t, d.st).Optimize(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			spoilNote(t, d.st, snapshot(t, open(t, d.st)).Version(), spoil)
			var conflict *delta.ConflictError
			if _, err := d.second.Commit(context.Background()); !errors.As(err, &conflict) ||
				conflict.Kind != delta.ConflictDelete {
				t.Errorf("got %v, want a conflict over a file that was rewritten", err)
			}
		})
	}
}

// spoilNote changes what the commit of a version says of where rows went, as it stands in its JSON.
func spoilNote(t *testing.T, st store.Store, version int64, spoil func(string) string) {
	t.Helper()
	key := fmt.Sprintf("_delta_log/%020d.json", version)
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), `"freshet.rewrites":"`)
	end := strings.Index(rest, `}"`) + 1
	if !found || end == 0 {
		t.Fatalf("version %d has no note: %s", version, data)
	}
	spoiled := spoil(rest[:end])
	if spoiled == rest[:end] {
		t.Fatalf("the note was not spoiled: %s", spoiled)
	}
	if err := st.Put(context.Background(), key, []byte(before+`"freshet.rewrites":"`+spoiled+rest[end:])); err != nil {
		t.Fatal(err)
	}
}
