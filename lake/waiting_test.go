package lake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store/storetest"
)

var otherLane = freshet.Lane{Origin: "orders", OriginID: "a", Name: "1"}

// whole is a change that sends all columns; patch one that does not send text.
func whole(id, n int64, text string, at int64) itemChange {
	return itemChange{freshet.UpdatePostimage, item{id: id, n: ptr(n), text: ptr(text), at: at}}
}

func patch(id, n, at int64) itemChange {
	return itemChange{freshet.UpdatePostimage, item{id: id, n: ptr(n), at: at}}
}

// said is a batch of a stream of commits.
type said struct {
	lane    freshet.Lane
	changes []itemChange
}

// tell is tellTable of the table t.
func tell(ctx context.Context, target *lake.Target, all []said) error {
	return tellTable(ctx, target, "t", all)
}

// tellTable commits what is said from where the table stands, one commit a batch, in a process of its own.
func tellTable(ctx context.Context, target *lake.Target, table string, all []said) (err error) {
	defer func() { err = errors.Join(err, target.Close(context.WithoutCancel(ctx))) }()
	if err := target.Open(ctx); err != nil {
		return err
	}
	if err := target.Ensure(ctx, table, itemSchema); err != nil {
		return err
	}
	at, err := target.Start(ctx, table, freshet.Progress{keyedLane: -1, otherLane: -1})
	if err != nil {
		return err
	}
	next := freshet.Progress{keyedLane: -1, otherLane: -1}
	for _, s := range all {
		after := next[s.lane]
		next[s.lane] += int64(len(s.changes))
		if at[s.lane] > after {
			continue
		}
		if _, err := target.Write(ctx, itemBatch(table, s.lane, after, s.changes)); err != nil {
			return err
		}
		commits, err := target.Seal(ctx)
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func keyedBy(dir string, sequence ...string) *lake.TargetOptions {
	mode := lake.Mirror
	if sequence != nil {
		mode = lake.Upsert
	}
	return &lake.TargetOptions{Mode: mode, Key: lake.KeyOptions{Columns: []string{"id"}, SequenceBy: sequence, IndexDir: dir}}
}

func TestWaiting_KeyComes_RowsThatStandBehindItAreApplied(t *testing.T) {
	one := keyedLane
	cases := []struct {
		name     string
		sequence []string
		all      []said
		want     string
		open     int
	}{
		{"below by sequence", []string{"at"}, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{whole(1, 1, "a", 3)}}},
			"1: 7 a at 5", 0},
		{"above by sequence", []string{"at"}, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{whole(1, 1, "a", 9)}}},
			"1: 1 a at 9", 0},
		{"between two", []string{"at"}, []said{{one, []itemChange{patch(1, 7, 5), patch(1, 8, 2)}},
			{one, []itemChange{whole(1, 1, "a", 4)}}}, "1: 7 a at 5", 0},
		{"later in the lane", nil, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{whole(1, 1, "a", 6)}}},
			"1: 1 a at 6", 0},
		{"by another lane", nil, []said{{one, []itemChange{patch(1, 7, 5)}}, {otherLane, []itemChange{whole(1, 1, "a", 3)}}},
			"1: 7 a at 5", 0},
		{"two patches make no row", nil, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{patch(1, 8, 6)}}}, "", 2},
		{"another key", nil, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{whole(2, 1, "a", 6)}}},
			"2: 1 a at 6", 1},
		{"its delete", nil, []said{{one, []itemChange{patch(1, 7, 5)}}, {one, []itemChange{{freshet.Delete, item{id: 1, at: 6}}}}},
			"", 0},
	}
	for _, c := range cases {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %v", c.name, restarts), func(t *testing.T) {
				w, dir := newWorld(), t.TempDir()
				if restarts {
					must(t, tell(t.Context(), w.target(keyedBy(dir, c.sequence...)), c.all[:1]))
				}
				must(t, tell(t.Context(), w.target(keyedBy(dir, c.sequence...)), c.all))
				got := ""
				for _, it := range w.items(t, "t") {
					got += it.String()
				}
				if open := len(w.rejects(t, "t")); got != c.want || open != c.open {
					t.Errorf("got %q and %d in quarantine, want %q and %d", got, open, c.want, c.open)
				}
			})
		}
	}
}

// What a killed process had under way is taken once, whatever the store call at which it died.
func TestWaiting_CrashAtEveryStoreCall_EachReleasedOnce(t *testing.T) {
	all := []said{
		{keyedLane, []itemChange{patch(1, 7, 5), patch(2, 8, 5)}},
		{otherLane, []itemChange{whole(1, 1, "a", 3)}},
		{otherLane, []itemChange{whole(1, 2, "b", 9), whole(2, 1, "c", 3)}},
	}
	want := map[int64]item{1: whole(1, 2, "b", 9).item, 2: whole(2, 8, "c", 5).item}
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld()
			m := &mortal{w: w, at: at, after: after}
			err := tell(t.Context(), lake.NewTarget(m.open, app, keyedBy(t.TempDir())), all)
			if !m.dead {
				must(t, err)
				compareItems(t, w.items(t, "t"), want)
				t.Logf("%d calls", at-1)
				return
			}
			if err != nil && !errors.Is(err, storetest.ErrCrashed) {
				t.Fatalf("crash at call %d, after it: %v: got %v", at, after, err)
			}
			must(t, tell(t.Context(), w.target(keyedBy(t.TempDir())), all))
			if open := w.rejects(t, "t"); len(open) > 0 {
				t.Errorf("crash at call %d, after it: %v: got %v in quarantine, want none", at, after, open)
			}
			compareItems(t, w.items(t, "t"), want)
		}
	}
}

func TestReplay_KeyedTable_ChangesTheRowAndAddsNone(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	must(t, tell(t.Context(), w.target(keyedBy(dir)), []said{{keyedLane, []itemChange{patch(1, 7, 5), patch(2, 9, 5)}}}))
	again := func(_ context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
		var changes []itemChange
		for _, e := range entries {
			if e.Seq == 0 {
				changes = append(changes, whole(1, 5, "mended", 5), whole(1, 6, "mended", 5))
			} else {
				changes = append(changes, patch(2, 9, 5))
			}
		}
		b := itemBatch("t", entries[0].Lane, -1, changes)
		b.Seqs = nil
		for i, e := range entries {
			b.Seqs = append(b.Seqs, int64(i))
			if e.Seq == 0 {
				b.Seqs = append(b.Seqs, int64(i))
			}
		}
		return b, nil
	}
	target := w.running(t, keyedBy(dir))
	done, err := target.Replay(t.Context(), "t", nil, again)
	must(t, err)
	if done.Entries != 1 || len(done.Still) != 1 || done.Still[0].Code != freshet.CodePartialRow {
		t.Errorf("got %+v, want one taken and one still a part", done)
	}
	compareItems(t, w.items(t, "t"), map[int64]item{1: whole(1, 6, "mended", 5).item})
	if open := len(w.rejects(t, "t")); open != 1 {
		t.Errorf("got %d open, want 1", open)
	}
}
