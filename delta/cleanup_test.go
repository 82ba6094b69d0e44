package delta_test

import (
	"bytes"
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
	"github.com/freshet-io/freshet/store/storetest"
)

const day = 24 * time.Hour

// pass lets time go by in the bubble of a test.
func pass(d time.Duration) { <-time.After(d) }

// keys are the names in the log.
func keys(t *testing.T, st store.Store) (list []string) {
	t.Helper()
	for o, err := range st.List(context.Background(), "_delta_log/", "") {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimPrefix(o.Key, "_delta_log/"))
	}
	return list
}

// snappy adds what lets a table be used in a bubble: the coders of zstd are shared by a whole process, and a
// bubble must not use what another has made.
func snappy(properties map[string]string) map[string]string {
	all := map[string]string{"delta.parquet.compression.codec": "snappy"}
	maps.Copy(all, properties)
	return all
}

// yearOfDays makes a table with a commit a day, and a checkpoint every fifth.
func yearOfDays(t *testing.T, st store.Store, days int, properties map[string]string,
) (*delta.Table, []string) {
	table := create(t, st, snappy(properties))
	var all []string
	for i := range days {
		pass(day)
		all = append(all, fmt.Sprint("f", i))
		appendFiles(t, table, all[i])
		if (i+1)%5 == 0 {
			if err := table.Checkpoint(context.Background(), snapshot(t, table)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return table, all
}

func TestCleanLog_DefaultRetention_KeepsThirtyDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, all := yearOfDays(t, st, 52, nil)
		would, err := table.CleanLog(context.Background(), &delta.CleanOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		before := len(keys(t, st))
		n, err := table.CleanLog(context.Background(), nil)
		if err != nil || n == 0 || n != would || len(keys(t, st)) != before-n {
			t.Fatalf("deleted %d, %v; the dry run said %d", n, err, would)
		}
		fresh := open(t, st)
		expectNames(t, snapshot(t, fresh), all...)
		// Commits of the last 30 days begin with version 22; the checkpoint before is of version 20.
		if got := keys(t, st)[0]; got != "00000000000000000020.checkpoint.parquet" {
			t.Errorf("the log begins with %s", got)
		}
		for v := int64(20); v <= 52; v++ {
			snap, err := fresh.SnapshotAt(context.Background(), v)
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, snap, all[:v]...)
		}
		_, err = fresh.SnapshotAt(context.Background(), 19)
		var wrong *delta.VersionError
		if !errors.As(err, &wrong) || wrong.First != 20 || wrong.Last != 52 {
			t.Errorf("version 19: got %v, want a VersionError that names 20 to 52", err)
		}
		if n, err := table.CleanLog(context.Background(), nil); n != 0 || err != nil {
			t.Errorf("the second time: deleted %d, %v", n, err)
		}
	})
}

func TestCleanLog_KeepFrom_KeepsThatVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, all := yearOfDays(t, st, 52, nil)
		keep := int64(12)
		if _, err := table.CleanLog(context.Background(), &delta.CleanOptions{KeepFrom: &keep}); err != nil {
			t.Fatal(err)
		}
		snap, err := open(t, st).SnapshotAt(context.Background(), keep)
		if err != nil {
			t.Fatal(err)
		}
		expectNames(t, snap, all[:keep]...)
		if got := keys(t, st)[0]; got != "00000000000000000010.checkpoint.parquet" {
			t.Errorf("the log begins with %s", got)
		}
	})
}

func TestCleanLog_KeepVersions_StandAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, all := yearOfDays(t, st, 52, nil)
		if _, err := table.CleanLog(context.Background(), &delta.CleanOptions{KeepVersions: []int64{5, 15}}); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, st)
		for _, v := range []int64{5, 15, 20, 30} {
			snap, err := fresh.SnapshotAt(context.Background(), v)
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, snap, all[:v]...)
		}
		for _, v := range []int64{4, 7, 12} {
			if _, err := fresh.SnapshotAt(context.Background(), v); !errors.Is(err, delta.ErrVersionNotFound) {
				t.Errorf("version %d: got %v, want ErrVersionNotFound", v, err)
			}
		}
		at := time.Now().Add(-43 * day) // of version 9
		if _, err := fresh.SnapshotAsOf(context.Background(), at); !errors.Is(err, delta.ErrVersionNotFound) {
			t.Errorf("a time between versions that were kept: got %v, want ErrVersionNotFound", err)
		}
		expectNames(t, snapshot(t, fresh), all...)
	})
}

func TestCleanLog_KeepVersionWithoutCheckpoint_KeepsAllFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, all := yearOfDays(t, st, 52, nil)
		if _, err := table.CleanLog(context.Background(), &delta.CleanOptions{KeepVersions: []int64{5, 12}}); err != nil {
			t.Fatal(err)
		}
		for _, v := range []int64{5, 10, 11, 12, 13} {
			snap, err := open(t, st).SnapshotAt(context.Background(), v)
			if err != nil {
				t.Fatal(err)
			}
			expectNames(t, snap, all[:v]...)
		}
	})
}

func TestCleanLog_BrokenCheckpoint_IsNotReliedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, all := yearOfDays(t, st, 52, nil)
		key := "_delta_log/00000000000000000020.checkpoint.parquet"
		data, err := st.Get(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Put(context.Background(), key, bytes.Clone(data[:len(data)/2])); err != nil {
			t.Fatal(err)
		}
		if _, err := table.CleanLog(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if got := keys(t, st)[0]; got != "00000000000000000015.checkpoint.parquet" {
			t.Errorf("the log begins with %s", got)
		}
		snap, err := open(t, st).SnapshotAt(context.Background(), 21)
		if err != nil {
			t.Fatal(err)
		}
		expectNames(t, snap, all[:21]...)
	})
}

func TestCleanLog_NoCheckpoint_DeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table := create(t, st, snappy(nil))
		for i := range 4 {
			pass(20 * day)
			appendFiles(t, table, fmt.Sprint(i))
		}
		if n, err := table.CleanLog(context.Background(), nil); n != 0 || err != nil {
			t.Errorf("deleted %d, %v", n, err)
		}
	})
}

func TestCleanLog_UnreadableRetention_DeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table, _ := yearOfDays(t, st, 52, nil)
		tx := table.Begin(snapshot(t, table), nil) // another writer, since SetProperties refuses it
		m := snapshot(t, table).Metadata().Clone()
		m.Configuration["delta.logRetentionDuration"] = "interval 1 month"
		tx.SetMetadata(m)
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, err := table.CleanLog(context.Background(), nil)
		if err == nil || !strings.Contains(err.Error(), "interval 1 month") {
			t.Errorf("got %v, want an error that names the value", err)
		}
	})
}

func TestMaybeCheckpoint_Year_LogStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table := create(t, st, snappy(nil))
		snap := snapshot(t, table)
		for range 400 {
			pass(day)
			snap = appendFiles(t, table, fmt.Sprint("f", snap.Version())).Snapshot
			if _, err := table.MaybeCheckpoint(context.Background(), snap, nil); err != nil {
				t.Fatal(err)
			}
		}
		left := slices.DeleteFunc(keys(t, st), func(key string) bool { return strings.HasSuffix(key, ".crc") })
		if len(left) > 60 {
			t.Errorf("the log has %d files beside checksums", len(left))
		}
		if n := len(names(t, snapshot(t, open(t, st)))); n != 400 {
			t.Errorf("the table has %d files, want 400", n)
		}
	})
}

func TestSnapshot_LogCleanedMeanwhile_IsNotTakenForTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMem()
		table := create(t, st, snappy(map[string]string{"delta.logRetentionDuration": "interval 1 day"}))
		sleeper := open(t, st)
		old := snapshot(t, sleeper)
		var all []string
		for i := range 10 {
			pass(day)
			all = append(all, fmt.Sprint("f", i))
			appendFiles(t, table, all[i])
			if _, err := table.MaybeCheckpoint(context.Background(), snapshot(t, table),
				&delta.CheckpointPolicy{MinCommits: 2, MaxCommits: 2}); err != nil {
				t.Fatal(err)
			}
		}
		if slices.Contains(keys(t, st), "00000000000000000001.json") {
			t.Fatal("version 1 was not cleaned away")
		}
		tx := sleeper.Begin(old, nil)
		tx.Add(someFile("late"))
		tx.ExpectTxn("app", 0, false)
		tx.AddTxn("app", 1)
		result, err := tx.Commit(context.Background())
		if err != nil || result.Version != 11 {
			t.Errorf("a commit on the old snapshot: got version %d, %v, want 11", result.Version, err)
		}
		expectNames(t, snapshot(t, sleeper), append(all, "late")...)
	})
}

func TestCommit_OutageWhileLogIsCleaned_LandsBehindTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, st := context.Background(), store.NewMem()
		other := create(t, st, snappy(map[string]string{"delta.logRetentionDuration": "interval 1 day"}))
		var all []string
		meanwhile := func() {
			for i := range 4 {
				pass(day)
				all = append(all, fmt.Sprint("f", i))
				appendFiles(t, other, all[i])
				if err := other.Checkpoint(ctx, snapshot(t, other)); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := other.CleanLog(ctx, nil); n == 0 || err != nil {
				t.Fatalf("cleaned %d, %v", n, err)
			}
		}
		down := false
		table := open(t, storetest.NewFaulty(st, func(op storetest.Op, _ string, _ int) storetest.Fault {
			if down || op != storetest.OpPutIfAbsent {
				return storetest.Fault{}
			}
			down = true
			meanwhile()
			return storetest.Fault{Kind: storetest.ErrorBefore}
		}))
		tx := table.Begin(snapshot(t, table), &delta.TransactionOptions{Deadline: 30 * day})
		tx.Add(someFile("late"))
		result, err := tx.Commit(ctx)
		if err != nil || result.Version != 5 {
			t.Errorf("got version %d, %v, want 5", result.Version, err)
		}
		expectNames(t, snapshot(t, open(t, st)), append(all, "late")...)
	})
}

func TestCommit_OldSnapshot_IsConfirmedByAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := storetest.NewFaulty(store.NewMem(), nil)
		table := create(t, faulty, nil)
		snap := snapshot(t, table)
		for age, listings := range map[time.Duration]int{9 * time.Minute: 0, 11 * time.Minute: 1} {
			pass(age)
			before := faulty.Count(storetest.OpList)
			tx := table.Begin(snap, nil)
			tx.Add(someFile(age.String()))
			result, err := tx.Commit(context.Background())
			if err != nil || result.Retries != 0 {
				t.Fatalf("%+v, %v", result, err)
			}
			if got := faulty.Count(storetest.OpList) - before; got != listings {
				t.Errorf("a snapshot %v old: got %d listings, want %d", age, got, listings)
			}
			snap = result.Snapshot
		}
	})
}

func TestCleanLog_Sidecars_StayWhileACheckpointNamesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, st := context.Background(), store.NewMem()
		table := create(t, st, snappy(map[string]string{"delta.feature.v2Checkpoint": "supported"}))
		put := func(name string, data []byte) {
			if err := st.Put(ctx, "_delta_log/"+name, data); err != nil {
				t.Fatal(err)
			}
		}
		appendFiles(t, table, "a")
		checkpoint(t, table)
		data, err := st.Get(ctx, "_delta_log/00000000000000000001.checkpoint.parquet")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"used.parquet", "left-over.parquet"} {
			put("_sidecars/"+name, data)
		}
		pass(10 * day)
		appendFiles(t, table, "b")
		// A V2 checkpoint of version 2 in JSON, whose files are in the sidecar and in one line of its own.
		first, err := st.Get(ctx, "_delta_log/00000000000000000000.json")
		if err != nil {
			t.Fatal(err)
		}
		second, err := st.Get(ctx, "_delta_log/00000000000000000002.json")
		if err != nil {
			t.Fatal(err)
		}
		v2 := fmt.Sprintf("{\"checkpointMetadata\":{\"version\":2}}\n%s%s", first, second) +
			fmt.Sprintf(`{"sidecar":{"path":"used.parquet","sizeInBytes":%d,"modificationTime":1}}`, len(data))
		put("00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", []byte(v2))
		pass(60 * day)
		appendFiles(t, table, "c")
		if n, err := table.CleanLog(ctx, nil); err != nil || n != 6 { // two commits, their checksums, a checkpoint and a sidecar
			t.Errorf("deleted %d, %v, want 6", n, err)
		}
		left := keys(t, st)
		if !slices.Contains(left, "_sidecars/used.parquet") ||
			slices.Contains(left, "_sidecars/left-over.parquet") {
			t.Errorf("what is left: %v", left)
		}
		snap := snapshot(t, open(t, st))
		if snap.CheckpointVersion() != 2 {
			t.Errorf("checkpoint: got %d, want 2", snap.CheckpointVersion())
		}
		expectNames(t, snap, "a", "b", "c")
	})
}

// A feature that was dropped has readers of the time before fear the log: commits go before the checkpoints that hide
// it from them, whenever the process dies.
func TestCleanLog_CheckpointProtection_CommitsGoBeforeCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, st := context.Background(), store.NewMem()
		table, all := yearOfDays(t, st, 12, map[string]string{"delta.feature.deletionVectors": "supported"})
		if _, err := table.DropFeature(ctx, "deletionVectors", &delta.AlterOptions{Upgrade: true}); err != nil {
			t.Fatal(err)
		}
		dropped := snapshot(t, table).Version()
		for i := range 45 {
			pass(day)
			all = append(all, fmt.Sprint("g", i))
			appendFiles(t, table, all[len(all)-1])
			if i == 3 {
				if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
					t.Fatal(err)
				}
			}
		}
		kept, err := table.CleanLog(ctx, &delta.CleanOptions{DryRun: true, KeepVersions: []int64{5}})
		if err != nil {
			t.Fatal(err)
		}
		would, err := table.CleanLog(ctx, &delta.CleanOptions{DryRun: true})
		if err != nil || would <= kept {
			t.Fatalf("would delete %d, %d with a version to keep, %v", would, kept, err)
		}
		for n := 1; ; n++ {
			inner := copyOf(t, st)
			broken := storetest.NewFaulty(inner, storetest.CrashAt(n, true))
			if handle, err := delta.Open(ctx, broken, nil); err == nil {
				_, _ = handle.CleanLog(ctx, nil) // it dies somewhere
			}
			first := ""
			for _, k := range keys(t, inner) {
				if strings.HasSuffix(k, ".json") && !strings.Contains(k, "checkpoint") {
					first = k
					break
				}
			}
			if commit := fmt.Sprintf("%020d.json", dropped); first < commit && !slices.Contains(keys(t, inner),
				fmt.Sprintf("%020d.checkpoint.parquet", dropped)) {
				t.Fatalf("crash at call %d: the checkpoint of the drop is gone, and %s is there", n, first)
			}
			expectNames(t, snapshot(t, open(t, inner)), all...)
			if !broken.Crashed() {
				break
			}
		}
		if n, err := table.CleanLog(ctx, nil); err != nil || n != would {
			t.Fatalf("deleted %d, %v; the dry run said %d", n, err, would)
		}
		if _, err := table.DropFeature(ctx, "checkpointProtection", nil); err != nil {
			t.Error(err)
		}
	})
}
