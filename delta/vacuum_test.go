package delta_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// vacuumed is a table in a bubble: files a, b, c of which a was removed long ago and b just now, a deletion vector that c
// had once, and things that are in no log.
func vacuumed(t *testing.T) (store.Store, *delta.Table) {
	ctx := context.Background()
	st := store.NewMem()
	put := func(keys ...string) {
		for _, k := range keys {
			if err := st.Put(ctx, k, []byte("content of "+k)); err != nil {
				t.Fatal(err)
			}
		}
	}
	table := create(t, st, snappy(map[string]string{"delta.enableDeletionVectors": "true"}))
	put("day=2026-01-31/a", "day=2026-01-31/b", "day=2026-01-31/c", "orphan", ".hidden", "_mine/x", "_change_data/old",
		"_day=1/x", ".orphan.crc")
	appendFiles(t, table, "a", "b", "c")
	pass(day)
	remove := func(name string) {
		tx := table.Begin(snapshot(t, table), nil)
		tx.Remove(delta.Remove{Path: "day=2026-01-31/" + name, DataChange: true})
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	remove("a")
	pass(10 * day)
	put("young")
	remove("b")
	pass(time.Hour)
	return st, table
}

func dataKeys(t *testing.T, st store.Store) (list []string) {
	t.Helper()
	for o, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(o.Key, "_delta_log/") {
			list = append(list, strings.TrimPrefix(o.Key, "day=2026-01-31/"))
		}
	}
	return list
}

func TestVacuum_FilesOfEachKind_OldOnesThatNobodyNamesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		st, table := vacuumed(t)
		all := dataKeys(t, st)
		reasons := map[string]delta.VacuumReason{}
		report := func(f delta.VacuumFile) {
			if !strings.HasPrefix(f.Key, "_delta_log/") {
				reasons[strings.TrimPrefix(f.Key, "day=2026-01-31/")] = f.Reason
			}
		}
		dry, err := table.Vacuum(ctx, &delta.VacuumOptions{DryRun: true, Report: report})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]delta.VacuumReason{"a": delta.VacuumUnreferenced, "b": delta.VacuumReferenced,
			"c": delta.VacuumReferenced, "orphan": delta.VacuumUnreferenced, ".orphan.crc": delta.VacuumUnreferenced,
			".hidden": delta.VacuumHidden, "_mine/x": delta.VacuumHidden, "_change_data/old": delta.VacuumUnreferenced,
			"young": delta.VacuumYoung, "_day=1/x": delta.VacuumHidden}
		if !maps.Equal(reasons, want) || dry.Deleted != 4 || !slices.Equal(dataKeys(t, st), all) {
			t.Fatalf("dry run: %+v\n got %v\nwant %v", dry, reasons, want)
		}
		r, err := table.Vacuum(ctx, nil)
		if err != nil || r.Deleted != dry.Deleted || r.DeletedBytes != dry.DeletedBytes {
			t.Fatalf("%+v, %v", r, err)
		}
		if got := dataKeys(t, st); len(got) != len(all)-4 || slices.Contains(got, "a") {
			t.Errorf("left: %v", got)
		}
		expectNames(t, snapshot(t, table), "c")
	})
}

// A table below another one's folder is its own: whatever the outer one's log says, its files stay.
func TestVacuum_TableBelowTheFolder_IsNotTouched(t *testing.T) {
	for _, lite := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			st := store.NewMem()
			table := create(t, st, snappy(nil))
			inner := []string{"a/inner/_delta_log/00000000000000000000.json", "a/inner/p=1/x", "a/inner/y"}
			for _, key := range append([]string{"a/orphan", "z/orphan"}, inner...) {
				if err := st.Put(ctx, key, []byte("content")); err != nil {
					t.Fatal(err)
				}
			}
			tx := table.Begin(snapshot(t, table), nil)
			tx.Remove(delta.Remove{Path: "a/inner/y", DataChange: true})
			tx.Remove(delta.Remove{Path: "z/orphan", DataChange: true})
			if _, err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			pass(30 * day)
			reasons := map[string]delta.VacuumReason{}
			r, err := table.Vacuum(ctx, &delta.VacuumOptions{Lite: lite, LogCommits: true,
				Report: func(f delta.VacuumFile) { reasons[f.Key] = f.Reason }})
			want := []string{"z/orphan"}
			if !lite {
				want = append(want, "a/orphan")
			}
			if err != nil || r.Deleted != int64(len(want)) || reasons["a/inner/y"] != delta.VacuumNested {
				t.Errorf("lite %v: got %+v, %v, %v, want %v deleted", lite, r, reasons, err, want)
			}
			left := dataKeys(t, st)
			for _, key := range inner {
				if !slices.Contains(left, key) {
					t.Errorf("lite %v: %s is gone", lite, key)
				}
			}
			for _, key := range want {
				if slices.Contains(left, key) {
					t.Errorf("lite %v: %s is left", lite, key)
				}
			}
		})
	}
}

func TestVacuum_KeepVersions_StayReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, table := vacuumed(t)
		_, err := table.Vacuum(context.Background(), &delta.VacuumOptions{KeepVersions: []int64{1}})
		if err != nil || !slices.Contains(dataKeys(t, st), "a") {
			t.Errorf("%v, %v", dataKeys(t, st), err)
		}
		var missing *delta.VersionError
		_, err = table.Vacuum(context.Background(), &delta.VacuumOptions{KeepVersions: []int64{99}})
		if !errors.As(err, &missing) {
			t.Errorf("got %v", err)
		}
	})
}

func TestVacuum_ShortRetention_OnlyByForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		st, table := vacuumed(t)
		if _, err := table.Vacuum(ctx, &delta.VacuumOptions{Retention: day}); !errors.Is(err, delta.ErrRetention) {
			t.Fatalf("got %v", err)
		}
		if _, err := table.Vacuum(ctx, &delta.VacuumOptions{Retention: -1, Force: true}); err != nil {
			t.Fatal(err)
		}
		if got := dataKeys(t, st); !slices.Equal(got, []string{".hidden", "_day=1/x", "_mine/x", "c"}) {
			t.Errorf("left: %v", got)
		}
	})
}

func TestVacuum_LongRetention_KeepsWhatCheckpointsHaveForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		st, table := vacuumed(t)
		if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, st).Vacuum(ctx, &delta.VacuumOptions{Retention: 20 * day}); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(dataKeys(t, st), "a") {
			t.Error("a was removed ten days ago, and is gone under a retention of twenty")
		}
	})
}

func TestVacuum_Lite_TakesWhatTheLogNamesAndRemembersHowFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		st, table := vacuumed(t)
		r, err := table.Vacuum(ctx, &delta.VacuumOptions{Lite: true})
		if err != nil || r.Deleted != 1 || slices.Contains(dataKeys(t, st), "a") || !slices.Contains(dataKeys(t, st), "orphan") {
			t.Fatalf("%+v, %v, %v", r, err, dataKeys(t, st))
		}
		info, err := st.Get(ctx, "_delta_log/_last_vacuum_info")
		if err != nil || string(info) != `{"latestCommitVersionOutsideOfRetentionWindow":2}`+"\n" {
			t.Fatalf("%s, %v", info, err)
		}
		pass(9 * day)
		if r, err = table.Vacuum(ctx, &delta.VacuumOptions{Lite: true}); err != nil || r.Deleted != 1 {
			t.Errorf("b: %+v, %v", r, err)
		}
		// Log cleanup that was quicker than the vacuum leaves nobody who knows.
		if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
			t.Fatal(err)
		}
		for v := range 3 {
			if err := st.Delete(ctx, fmt.Sprintf("_delta_log/%020d.json", v)); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Delete(ctx, "_delta_log/_last_vacuum_info"); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, st).Vacuum(ctx, &delta.VacuumOptions{Lite: true}); err == nil || !strings.Contains(err.Error(), "full vacuum") {
			t.Errorf("got %v", err)
		}
	})
}

func TestVacuum_LogCommits_TellStartAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		_, table := vacuumed(t)
		if _, err := table.Vacuum(ctx, &delta.VacuumOptions{LogCommits: true}); err != nil {
			t.Fatal(err)
		}
		var operations []string
		for e, err := range table.History(ctx, 2) {
			if err != nil {
				t.Fatal(err)
			}
			operations = append(operations, e.Info.Operation+" "+e.Info.OperationMetrics["numFilesToDelete"]+
				e.Info.OperationMetrics["numDeletedFiles"])
		}
		if !slices.Equal(operations, []string{"VACUUM END 4", "VACUUM START 4"}) {
			t.Errorf("%q", operations)
		}
	})
}
