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
