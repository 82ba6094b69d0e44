package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func v2Table(t *testing.T, st store.Store) *delta.Table {
	t.Helper()
	table := create(t, st, map[string]string{"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"})
	appendFiles(t, table, "a", "b", "c")
	tx := table.Begin(snapshot(t, table), nil)
	tx.Remove(delta.Remove{Path: "day=2026-01-31/b", DataChange: true})
	tx.AddTxn("app", 7)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return table
}

// logKeys are the keys below the log's folder that have all of these parts.
func logKeys(t *testing.T, st store.Store, parts ...string) (found []string) {
	t.Helper()
	for o, err := range st.List(context.Background(), "_delta_log/", "") {
		if err != nil {
			t.Fatal(err)
		}
		all := true
		for _, p := range parts {
			all = all && strings.Contains(o.Key, p)
		}
		if all {
			found = append(found, o.Key)
		}
	}
	return found
}

func TestCheckpoint_PolicyV2_ManifestAndSidecars(t *testing.T) {
	st := store.NewMem()
	table := v2Table(t, st)
	checkpoint(t, table)
	manifests, sidecars := logKeys(t, st, ".checkpoint.", ".json"), logKeys(t, st, "_sidecars/")
	if len(manifests) != 1 || len(sidecars) != 1 || len(logKeys(t, st, ".checkpoint.parquet")) != 0 {
		t.Fatalf("got manifests %v and sidecars %v, want one of each", manifests, sidecars)
	}
	var hint struct {
		Version      int64
		V2Checkpoint struct{ Path string }
	}
	data, err := st.Get(context.Background(), "_delta_log/_last_checkpoint")
	if err == nil {
		err = json.Unmarshal(data, &hint)
	}
	if err != nil || hint.Version != 2 || "_delta_log/"+hint.V2Checkpoint.Path != manifests[0] {
		t.Errorf("_last_checkpoint: got %s, %v, want one that names %s", data, err, manifests[0])
	}
	for _, key := range logKeys(t, st, "0.json") { // what is left must come from the checkpoint
		if key == manifests[0] { // whose random name may end so, too
			continue
		}
		if err := st.Delete(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	snap := snapshot(t, open(t, st))
	expectNames(t, snap, "a", "c")
	if v, ok := snap.Txn("app"); !ok || v != 7 || snap.CheckpointVersion() != 2 {
		t.Errorf("got progress %d, %v from checkpoint %d, want 7 from 2", v, ok, snap.CheckpointVersion())
	}
}

func TestCheckpoint_PolicyV2Again_GoesOnFromTheLast(t *testing.T) {
	st := store.NewMem()
	table := v2Table(t, st)
	want := []string{"a", "c"}
	for i := range 3 {
		name := fmt.Sprint("more", i)
		appendFiles(t, table, name)
		want = append(want, name)
		checkpoint(t, table)
		checkpoint(t, table)
	}
	if n := len(logKeys(t, st, ".checkpoint.")); n != 3 {
		t.Errorf("got %d checkpoints of three versions", n)
	}
	expectNames(t, snapshot(t, open(t, st)), want...)
}

func TestCheckpoint_PolicyV2CrashAnywhere_TableIsWhole(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			inner := store.NewMem()
			v2Table(t, inner)
			faulty := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			if table, err := delta.Open(context.Background(), faulty, nil); err == nil {
				if snap, err := table.Snapshot(context.Background()); err == nil {
					err = table.Checkpoint(context.Background(), snap)
					if err == nil && faulty.Crashed() && !after {
						t.Errorf("call %d: the checkpoint succeeded after the crash", n)
					}
				}
			}
			table := open(t, inner)
			expectNames(t, snapshot(t, table), "a", "c")
			appendFiles(t, table, "d")
			checkpoint(t, table)
			expectNames(t, snapshot(t, open(t, inner)), "a", "c", "d")
			if !faulty.Crashed() {
				break
			}
		}
	}
}

// TestFiles_SidecarMissingOrBroken_OlderCheckpointAndCommitsTellThem has a checkpoint that names a whole sidecar, of the
// files that an older checkpoint has, and one that cannot be read.
func TestFiles_SidecarMissingOrBroken_OlderCheckpointAndCommitsTellThem(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(st store.Store, key string) error{
		"missing": func(store.Store, string) error { return nil },
		"cut off": func(st store.Store, key string) error { return st.Put(ctx, key, []byte("PAR1")) },
	} {
		for _, later := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				st := store.NewMem()
				table := v2Table(t, st)
				checkpoint(t, table)
				manifest, err := st.Get(ctx, logKeys(t, st, ".checkpoint.", ".json")[0])
				if err != nil {
					t.Fatal(err)
				}
				appendFiles(t, table, "d", "e") // version 3
				text := strings.Replace(string(manifest), `"version":2`, `"version":3`, 1) +
					`{"sidecar":{"path":"gone.parquet","sizeInBytes":4,"modificationTime":0}}` + "\n"
				key := "_delta_log/00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
				if err := errors.Join(st.Put(ctx, key, []byte(text)), damage(st, "_delta_log/_sidecars/gone.parquet")); err != nil {
					t.Fatal(err)
				}
				want := []string{"a", "c", "d", "e"}
				if later {
					appendFiles(t, open(t, st), "f")
					want = append(want, "f")
				}
				for _, name := range want { // the check looks for them
					f := someFile(name)
					if err := st.Put(ctx, f.Path, make([]byte, f.Size)); err != nil {
						t.Fatal(err)
					}
				}
				fresh := open(t, st)
				if v := snapshot(t, fresh).CheckpointVersion(); v != 3 {
					t.Fatalf("got a snapshot of checkpoint %d, want 3", v)
				}
				expectNames(t, snapshot(t, fresh), want...)
				r, err := fresh.Check(ctx, &delta.CheckOptions{Fix: true})
				if err != nil || len(r.Findings) != 1 || r.Findings[0].Kind != delta.FindingCheckpoint || r.Fixed != 1 {
					t.Errorf("got %+v, %v, want the checkpoint found and fixed", r, err)
				}
				for _, v := range []string{"2", "3"} { // so that it is the checkpoint which tells
					if err := st.Delete(ctx, "_delta_log/0000000000000000000"+v+".json"); err != nil {
						t.Fatal(err)
					}
				}
				expectNames(t, snapshot(t, open(t, st)), want...)
			})
		}
	}
}
