package delta_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func manifests(t *testing.T, st store.Store) map[string]string {
	t.Helper()
	found := map[string]string{}
	for o, err := range st.List(context.Background(), "_symlink_format_manifest/", "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := st.Get(context.Background(), o.Key)
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimPrefix(o.Key, "_symlink_format_manifest/")] = string(data)
	}
	return found
}

func TestGenerateManifest_Partitions_OneEachAndNoneOfThoseThatAreGone(t *testing.T) {
	ctx := context.Background()
	st := disk(t, t.TempDir())
	s := fields("id", delta.Long, "p", delta.String)
	table := tableOf(t, st, s, []string{"p"}, batchOf(t, s, `[{"id":1,"p":"a"},{"id":2,"p":"b c"}]`)).Table()
	if n, err := table.GenerateManifest(ctx); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	found := manifests(t, st)
	lines := found["p=b c/manifest"]
	if len(found) != 2 || !strings.HasPrefix(lines, "file:///") || !strings.Contains(lines, "/p=b c/part-") {
		t.Fatalf("%q", found)
	}
	tx := table.Begin(snapshot(t, table), nil)
	for a, err := range snapshot(t, table).Files(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if *a.PartitionValues["p"] == "a" {
			tx.Remove(a.Remove())
		}
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := table.GenerateManifest(ctx); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	if found := manifests(t, st); len(found) != 1 {
		t.Errorf("%q", found)
	}
}

func TestGenerateManifest_DeletionVectors_AreRefused(t *testing.T) {
	table := pointsTable(t, store.NewMem(), rand.New(rand.NewPCG(3, 0)), 4, delta.CreateOptions{})
	if _, err := table.GenerateManifest(context.Background()); !errors.Is(err, delta.ErrDeletionVectors) {
		t.Errorf("got %v", err)
	}
}
