package lake_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// life opens a target of this policy, resumes, commits changes from a seq on, and closes it.
func policyLife(t *testing.T, w *world, dir string, deletes, before lake.Deletes, after int64, changes ...itemChange) error {
	t.Helper()
	target := w.target(&lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"},
		IndexDir: dir, Deletes: deletes, DeletesBefore: before}})
	must(t, target.Open(t.Context()))
	defer func() { must(t, target.Close(context.Background())) }()
	have, err := target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	if err != nil {
		return err
	}
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	if len(have) == 0 {
		_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
		must(t, err)
	}
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, after, changes))
	must(t, err)
	commitAll(t, target)
	return nil
}

// Each table says how it is keyed, where the source or the file gives each a key of its own.
func TestMode_KeyOfEachTable_SaidByEach(t *testing.T) {
	keys := map[string][]string{"t": {"id"}, "u": {"text", "id"}}
	w := newWorld()
	target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror,
		Key: lake.KeyOptions{Of: func(table string) []string { return keys[table] }, IndexDir: t.TempDir()}})
	for table, want := range map[string]string{"t": "mirror by id", "u": "mirror by text, id"} {
		must(t, target.Ensure(t.Context(), table, itemSchema))
		if got := w.snapshot(t, table).Property("freshet.mode"); got != want {
			t.Errorf("%s: got %q, want %q", table, got, want)
		}
	}
	if err := target.Ensure(t.Context(), "v", itemSchema); codeOf(err) != freshet.CodeBadValue {
		t.Errorf("a table without a key: got %v, want %s", err, freshet.CodeBadValue)
	}
}

func TestDeletes_OtherPolicyThanTheTables_IsRefused(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	must(t, policyLife(t, w, dir, lake.HardDeletes, "", -1, put(1, 10, 1)))
	for _, before := range []lake.Deletes{"", lake.LogDeletes} {
		err := policyLife(t, w, dir, lake.SoftDeletes, before, 0, put(2, 20, 2))
		var e *freshet.Error
		if !errors.As(err, &e) || e.Code != freshet.CodeDeletesChanged || !strings.Contains(e.Fix, "deletes_before") {
			t.Errorf("deletes_before %q: got %v, want %s that names deletes_before", before, err, freshet.CodeDeletesChanged)
		}
	}
}

func TestDeletes_SwitchThatIsConfirmed_IsInTheHistory(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	must(t, policyLife(t, w, dir, lake.HardDeletes, "", -1, put(1, 10, 1), put(2, 20, 2)))
	must(t, policyLife(t, w, dir, lake.SoftDeletes, lake.HardDeletes, 1, del(1, 3)))
	if got := w.count(t, "t", "_deleted_at IS NOT NULL"); got != 1 {
		t.Errorf("got %d rows that are marked, want 1", got)
	}
	told := false
	for e, err := range w.snapshot(t, "t").Table().History(t.Context(), 0) {
		must(t, err)
		told = told || e.Info.OperationParameters["freshet.deletesBefore"] == "hard" &&
			strings.Contains(e.Info.OperationParameters["properties"], "soft")
	}
	if !told {
		t.Error("the history does not tell of the switch")
	}
	must(t, policyLife(t, w, dir, lake.SoftDeletes, lake.HardDeletes, 2, put(3, 30, 4)))
	must(t, policyLife(t, w, dir, lake.HardDeletes, lake.SoftDeletes, 3, put(1, 11, 5), del(2, 6)))
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 11, 5).item, 3: put(3, 30, 4).item})
	if got := w.count(t, "t", "_deleted_at IS NOT NULL"); got != 0 {
		t.Errorf("got %d rows that are marked once their key came back, want none", got)
	}
}

func TestDeletes_TableWithoutAPolicy_GetsOurs(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	must(t, policyLife(t, w, dir, lake.HardDeletes, "", -1, put(1, 10, 1)))
	d, err := delta.Open(t.Context(), w.store("t"), nil)
	must(t, err)
	_, err = d.UnsetProperties(t.Context(), []string{"freshet.deletes"}, false, nil)
	must(t, err)
	must(t, policyLife(t, w, dir, lake.LogDeletes, "", 0, del(1, 2)))
	if got := w.snapshot(t, "t").Property("freshet.deletes"); got != "log" {
		t.Errorf("got the policy %q, want log", got)
	}
}

// The policy changes while a process is at work.
func TestDeletes_ChangedMeanwhile_CommitIsRefused(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Mirror})
	commit(put(1, 10, 1))
	d, err := delta.Open(t.Context(), w.store("t"), nil)
	must(t, err)
	_, err = d.SetProperties(t.Context(), map[string]string{"freshet.deletes": "soft"}, nil)
	must(t, err)
	target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"},
		IndexDir: t.TempDir(), DeletesBefore: "soft"}})
	_, err = target.Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	must(t, err)
	_, err = d.SetProperties(t.Context(), map[string]string{"freshet.deletes": "log"}, nil)
	must(t, err)
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, 0, []itemChange{del(1, 2)}))
	must(t, err)
	commits, err := target.Seal(t.Context())
	must(t, err)
	_, err = commits[0].Run(t.Context())
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeDeletesChanged {
		t.Errorf("got %v, want %s", err, freshet.CodeDeletesChanged)
	}
	commits[0].Abort()
}

// Another process has the table be of another mode while one appends to it.
func TestMode_ChangedMeanwhile_AppendIsRefused(t *testing.T) {
	w := newWorld()
	target := w.running(t, nil)
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	for seq, want := range []freshet.Code{"", freshet.CodeModeChanged, freshet.CodeModeChanged} {
		_, err = target.Write(t.Context(), itemBatch("t", keyedLane, int64(seq)-1, []itemChange{put(int64(seq), 1, 1)}))
		must(t, err)
		commits, err := target.Seal(t.Context())
		must(t, err)
		if _, err = commits[0].Run(t.Context()); codeOf(err) != want {
			t.Errorf("commit %d: got %v, want the code %q", seq, err, want)
		}
		if err != nil {
			commits[0].Abort()
			target.Discard("t")
		}
		if seq == 0 {
			_, err = w.snapshot(t, "t").Table().SetProperties(t.Context(), map[string]string{"freshet.mode": "mirror by id"}, nil)
			must(t, err)
		}
	}
	if n := w.count(t, "t", "TRUE"); n != 1 {
		t.Errorf("got %d rows, want the one from before", n)
	}
}

// resumes opens a target and resumes.
func resumes(t *testing.T, w *world, opts *lake.TargetOptions) error {
	t.Helper()
	opts.Key.IndexDir = t.TempDir()
	_, err := w.running(t, opts).Resume(t.Context(), "t", []freshet.Lane{keyedLane})
	return err
}

func TestMode_OtherThanTheTables_IsRefusedUntilItIsConfirmed(t *testing.T) {
	byID := lake.KeyOptions{Columns: []string{"id"}}
	ordered := lake.KeyOptions{Columns: []string{"id"}, SequenceBy: []string{"at"}}
	for name, opts := range map[string]lake.TargetOptions{
		"append": {}, "another mode": {Mode: lake.Upsert, Key: byID}, "an order": {Mode: lake.Upsert, Key: ordered},
		"another key": {Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			must(t, policyLife(t, w, t.TempDir(), lake.HardDeletes, "", -1, put(1, 10, 1)))
			for _, before := range []string{"", "append"} {
				opts.ModeBefore = before
				var e *freshet.Error
				if err := resumes(t, w, &opts); !errors.As(err, &e) || e.Code != freshet.CodeModeChanged ||
					!strings.Contains(e.Fix, "mode_before") || !strings.Contains(e.Fix, "mirror by id") {
					t.Errorf("mode_before %q: got %v, want %s that names mode_before and what it was", before, err, freshet.CodeModeChanged)
				}
			}
			opts.ModeBefore = "mirror by id"
			must(t, resumes(t, w, &opts))
			opts.ModeBefore = ""
			must(t, resumes(t, w, &opts))
			if !w.history(t, "freshet.modeBefore", "mirror by id") {
				t.Error("the table's history does not tell what the mode was")
			}
			var e *freshet.Error
			if err := policyLife(t, w, t.TempDir(), lake.HardDeletes, "", 0); !errors.As(err, &e) || e.Code != freshet.CodeModeChanged {
				t.Errorf("as before: got %v, want %s", err, freshet.CodeModeChanged)
			}
		})
	}
}

// history reports whether a commit of the table t has this parameter.
func (w *world) history(t *testing.T, name, value string) (told bool) {
	t.Helper()
	for e, err := range w.snapshot(t, "t").Table().History(t.Context(), 0) {
		must(t, err)
		told = told || e.Info.OperationParameters[name] == value
	}
	return told
}
