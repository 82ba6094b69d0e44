package delta_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// The texts of commits are read into the same memory again and again; what was made of them stays as it was.
func TestFiles_ManyCommitsOnDisk_TextsStayWhole(t *testing.T) {
	ctx := context.Background()
	disk, err := store.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	table, err := delta.Create(ctx, disk, &delta.CreateOptions{Schema: fields("l", delta.Long)})
	if err != nil {
		t.Fatal(err)
	}
	const commits = 40
	want := map[string]string{}
	for i := range commits {
		tx := table.Begin(snapshot(t, table), nil)
		for j := range 1 + i*7%5 { // of any length
			path, stats := fmt.Sprintf("f%d-%d", i, j), fmt.Sprintf(`{"numRecords":%d,"minValues":{"l":%d}}`, i*1000, j)
			want[path] = stats
			tx.Add(delta.Add{Path: path, PartitionValues: map[string]*string{}, Size: 1, Stats: stats, DataChange: true})
		}
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var all []*delta.Add
	for a, err := range snapshot(t, open(t, disk)).Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	if len(all) != len(want) {
		t.Errorf("got %d files, want %d", len(all), len(want))
	}
	for _, a := range all {
		if want[a.Path] != a.Stats {
			t.Errorf("%s: got %s, want %s", a.Path, a.Stats, want[a.Path])
		}
	}
}
