package delta_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// outsideOf reaches files anywhere on disk.
func outsideOf(t *testing.T) func(context.Context, string) (store.Store, error) {
	return func(context.Context, string) (store.Store, error) { return disk(t, "/"), nil }
}

func disk(t testing.TB, path string) store.Store {
	t.Helper()
	st, err := store.NewDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestClone_DeepAndShallow_HaveTheSameRowsAndNoProgress(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	dir := t.TempDir()
	table := pointsTable(t, disk(t, filepath.Join(dir, "from here")), rng, 8, delta.CreateOptions{PartitionBy: []string{"p"},
		Properties: map[string]string{"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}})
	recordProgress(t, table, "app", 5)
	want := sortedRows(t, table)
	clones := map[string]*delta.Table{}
	for name, opts := range map[string]delta.CloneOptions{"deep": {}, "shallow": {Shallow: true},
		"progress": {Progress: true, Properties: map[string]string{"owner": "me"}}} {
		opts.Outside = outsideOf(t)
		clone, err := table.Clone(ctx, disk(t, filepath.Join(dir, name)), &opts)
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, clone, want)
		if files, vectors := countFiles(t, clone); files == 0 || vectors == 0 {
			t.Errorf("%s: %d files, %d vectors", name, files, vectors)
		}
		if _, ok := snapshot(t, clone).Txn("app"); ok != (name == "progress") {
			t.Errorf("%s has progress: %v", name, ok)
		}
		if snapshot(t, clone).Metadata().ID == snapshot(t, table).Metadata().ID {
			t.Errorf("%s has the id of the table", name)
		}
		clones[name] = clone
	}
	if got := snapshot(t, clones["progress"]).Property("owner"); got != "me" {
		t.Errorf("property: %q", got)
	}
	// A clone of the shallow one is whole by itself.
	again, err := clones["shallow"].Clone(ctx, disk(t, filepath.Join(dir, "again")), nil)
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, again, want)
	// A shallow clone goes its own way.
	deletePoints(t, clones["shallow"], rng, 1)
	appendPoints(t, clones["shallow"], rng, 70_000, 10)
	rows := sortedRows(t, clones["shallow"])
	optimize(t, clones["shallow"], nil)
	sameRows(t, clones["shallow"], rows)
	sameRows(t, table, want)
}

func TestClone_OlderVersion_HasItsRows(t *testing.T) {
	ctx := context.Background()
	table := pointsTable(t, store.NewMem(), rand.New(rand.NewPCG(seedOf(t), 0)), 5, delta.CreateOptions{})
	old, err := table.SnapshotAt(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	clone, err := table.Clone(ctx, store.NewMem(), &delta.CloneOptions{Snapshot: old})
	if err != nil {
		t.Fatal(err)
	}
	want := scanLines(t, old, nil)
	slices.Sort(want)
	sameRows(t, clone, want)
}

func TestClone_WhereATableIs_IsRefused(t *testing.T) {
	st := store.NewMem()
	create(t, st, nil)
	table := pointsTable(t, store.NewMem(), rand.New(rand.NewPCG(1, 0)), 1, delta.CreateOptions{})
	if _, err := table.Clone(context.Background(), st, nil); !errors.Is(err, delta.ErrTableExists) {
		t.Errorf("got %v", err)
	}
}

func TestClone_BrokenOff_GoesOnWhereItWas(t *testing.T) {
	ctx := context.Background()
	table := pointsTable(t, store.NewMem(), rand.New(rand.NewPCG(seedOf(t), 0)), 10, delta.CreateOptions{})
	want := sortedRows(t, table)
	inner := store.NewMem()
	for n := 1; ; n += 7 {
		broken := storetest.NewFaulty(inner, storetest.CrashAt(n, n%2 == 0))
		_, err := table.Clone(ctx, broken, &delta.CloneOptions{Concurrency: 1})
		if !broken.Crashed() {
			if err != nil && !errors.Is(err, delta.ErrTableExists) {
				t.Fatal(err)
			}
			break
		}
		if _, err := delta.Open(ctx, inner, nil); err != nil && !errors.Is(err, delta.ErrNoTable) {
			t.Fatalf("crash at call %d: %v", n, err)
		}
	}
	sameRows(t, open(t, inner), want)
}
