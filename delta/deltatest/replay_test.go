package deltatest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/delta/deltatest"
	"github.com/freshet-io/freshet/store"
)

func TestReplay_TableOfPackageDelta_AgreesWithIt(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: &delta.Schema{Fields: []delta.Field{
		{Name: "id", Type: delta.Long, Nullable: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		snap, err := table.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx := table.Begin(snap, nil)
		tx.Add(delta.Add{Path: fmt.Sprintf("a%%20%d", i), Size: int64(i), DataChange: true})
		if i%3 == 2 {
			tx.Remove(delta.Remove{Path: fmt.Sprintf("a %d", i-1), DataChange: true})
		}
		tx.AddTxn(fmt.Sprint("app-", i%4), int64(i))
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	state, err := deltatest.Replay(ctx, st)
	if err != nil {
		t.Fatal(err)
	}
	if state.Version != snap.Version() || len(state.Commits) != 21 || len(state.Txns) != 4 {
		t.Errorf("got version %d, %d commits, progress %v", state.Version, len(state.Commits), state.Txns)
	}
	for app, version := range state.Txns {
		if got, _ := snap.Txn(app); got != version {
			t.Errorf("progress of %s: got %d, want %d", app, got, version)
		}
	}
	n := 0
	for a, err := range snap.Files(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if f, ok := state.Files[fmt.Sprint("a ", a.Size)]; !ok || f.Path != a.Path {
			t.Errorf("%s is not in the replay", a.Path)
		}
	}
	if n != len(state.Files) {
		t.Errorf("got %d files, want %d", n, len(state.Files))
	}
}
