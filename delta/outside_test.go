package delta_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// cloneOf makes a table in folder whose one file is that of another table, by the path given.
func cloneOf(t *testing.T, folder, path string, snap *delta.Snapshot) store.Store {
	t.Helper()
	st, err := store.NewDisk(folder)
	if err != nil {
		t.Fatal(err)
	}
	clone := tableOf(t, st, snap.Schema(), nil)
	tx := clone.Table().Begin(clone, nil)
	for add, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		add.Path = strings.ReplaceAll(path, "FILE", add.Path)
		tx.Add(*add)
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestScan_FilesOfAnotherTable_ReachedOnlyWhereAllowed(t *testing.T) {
	root := t.TempDir()
	origin, err := store.NewDisk(filepath.Join(root, "origin"))
	if err != nil {
		t.Fatal(err)
	}
	rows := narrowBatch(10, 0)
	schema, err := delta.SchemaFromArrow(rows.Schema())
	if err != nil {
		t.Fatal(err)
	}
	snap := tableOf(t, origin, schema, nil, rows)
	want, _, err := digestOf(snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{
		"file://" + root + "/origin/FILE", "file:" + root + "/origin/FILE", root + "/origin/FILE", "../origin/FILE",
	} {
		clone := cloneOf(t, filepath.Join(root, string(rune('a'+i))), path, snap)
		for _, allowed := range []bool{false, true} {
			opts := &delta.OpenOptions{}
			if allowed {
				opts.Outside = func(_ context.Context, url string) (store.Store, error) {
					if !strings.HasPrefix(url, origin.URL()+"/") {
						return nil, errors.New("not allowed")
					}
					return origin, nil
				}
			}
			table, err := delta.Open(context.Background(), clone, opts)
			if err != nil {
				t.Fatal(err)
			}
			snap, err := table.Snapshot(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := digestOf(snap, nil)
			switch {
			case !allowed && !errors.Is(err, delta.ErrUnsupportedFeature):
				t.Errorf("%s: got %v, want a refusal", path, err)
			case allowed && (err != nil || got != want):
				t.Errorf("%s: got %s, %v; want %s", path, got, err, want)
			}
		}
	}
}

func TestScan_OutsideStoreThatDoesNotHoldTheFile_IsRefused(t *testing.T) {
	root := t.TempDir()
	rows := narrowBatch(10, 0)
	schema, err := delta.SchemaFromArrow(rows.Schema())
	if err != nil {
		t.Fatal(err)
	}
	snap := tableOf(t, store.NewMem(), schema, nil, rows)
	clone := cloneOf(t, filepath.Join(root, "clone"), "../../etc/passwd", snap)
	other, err := store.NewDisk(filepath.Join(root, "other"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := delta.Open(context.Background(), clone, &delta.OpenOptions{
		Outside: func(context.Context, string) (store.Store, error) { return other, nil }})
	if err != nil {
		t.Fatal(err)
	}
	snap, err = table.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := digestOf(snap, nil); err == nil || !strings.Contains(err.Error(), "does not hold it") {
		t.Errorf("got %v, want a refusal", err)
	}
}
