package lake_test

import (
	"encoding/json"
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// What waits above a delete is of a later row of its key, which an insert below that delete is not.
func TestWaiting_InsertBelowTheTombstone_CompletesNothing(t *testing.T) {
	w, commit := keyedTable(t, sequenced(lake.HardDeletes))
	commit(del(1, 10))
	commit(patch(1, 7, 11))
	commit(put(1, 1, 9))
	compareItems(t, w.items(t, "t"), map[int64]item{})
	if open := len(w.rejects(t, "t")); open != 1 {
		t.Errorf("got %d in quarantine, want the one that waits", open)
	}
	commit(put(1, 2, 10)) // later in the lane than the delete, so above it
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 7, 11).item})
}

// A row that a soft delete has marked is gone: what it was is no part of what comes after.
func TestWaiting_RowIsMarkedAsDeleted_PartialChangeWaits(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.SoftDeletes}})
	commit(put(1, 10, 1))
	commit(del(1, 2))
	commit(patch(1, 11, 3))
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 1).item})
	if open := len(w.rejects(t, "t")); open != 1 {
		t.Errorf("got %d in quarantine, want the one that waits", open)
	}
}

// Rows that nothing tells apart take only themselves out, and not what came of their key before.
func TestUpsert_TieAboveAnotherChangeOfTheCommit_ThatOneLands(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	must(t, tell(t.Context(), w.target(keyedBy(dir, "at")), nil))
	target := w.running(t, keyedBy(dir, "at"))
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1, otherLane: -1})
	must(t, err)
	for _, b := range []*freshet.Batch{itemBatch("t", keyedLane, -1, []itemChange{put(1, 10, 3), put(1, 11, 5)}),
		itemBatch("t", otherLane, -1, []itemChange{put(1, 12, 5)})} {
		_, err := target.Write(t.Context(), b)
		must(t, err)
	}
	commitAll(t, target)
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 3).item})
	_, err = target.Write(t.Context(), itemBatch("t", otherLane, 0, []itemChange{put(1, 13, 3)}))
	must(t, err)
	commitAll(t, target)
	sameTexts(t, "what quarantine says", w.texts(t, lake.QuarantineName("t"), "message"), []string{
		"message=id 1, at 3: found another row of this key and sequence, which the table has, that says something else; " +
			"wanted one that orders them",
		"message=id 1, at 5: found another row of this key and sequence, which came as orders[0]@1, that says something " +
			"else; wanted one that orders them",
		"message=id 1, at 5: found another row of this key and sequence, which came as orders[1]@0, that says something " +
			"else; wanted one that orders them",
	})
}

// A row that the table does not take goes to quarantine, and the others of its key and commit are applied without it.
func TestUpsert_RowThatTheTableRefuses_OthersOfItsKeyLand(t *testing.T) {
	for name, c := range map[string]struct {
		deletes lake.Deletes
		changes []itemChange
		want    map[int64]item
	}{
		"an update before it": {lake.HardDeletes, []itemChange{put(1, 11, 2), put(1, -5, 3)}, map[int64]item{1: put(1, 11, 2).item}},
		"a delete after it":   {lake.SoftDeletes, []itemChange{put(1, -5, 2), del(1, 3)}, map[int64]item{1: put(1, 10, 1).item}},
		"a delete before it":  {lake.HardDeletes, []itemChange{del(1, 2), put(1, -5, 3)}, map[int64]item{}},
		"nothing":             {lake.HardDeletes, []itemChange{put(1, -5, 3)}, map[int64]item{1: put(1, 10, 1).item}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			_, err := delta.Create(t.Context(), w.store("t"), &delta.CreateOptions{Schema: &delta.Schema{Fields: []delta.Field{
				{Name: "id", Type: delta.Long, Nullable: true}, {Name: "n", Type: delta.Long, Nullable: true},
				{Name: "text", Type: delta.String, Nullable: true}, {Name: "at", Type: delta.Long, Nullable: true},
				{Name: lake.DeletedAtColumn, Type: delta.Timestamp, Nullable: true, Metadata: json.RawMessage(`{}`)}}},
				Properties: map[string]string{"delta.constraints.plus": "n > 0", "delta.enableDeletionVectors": "true"}})
			must(t, err)
			target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"},
				Deletes: c.deletes, IndexDir: t.TempDir()}})
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err = target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			for after, changes := range [][]itemChange{{put(1, 10, 1)}, c.changes} {
				_, err := target.Write(t.Context(), itemBatch("t", keyedLane, int64(after)-1, changes))
				must(t, err)
				commitAll(t, target)
			}
			compareItems(t, w.items(t, "t"), c.want)
			if open := len(w.rejects(t, "t")); open != 1 {
				t.Errorf("got %d in quarantine, want the one that the table refuses", open)
			}
			deleted := int64(0)
			if c.deletes == lake.SoftDeletes {
				deleted = 1
			}
			if got := w.count(t, "t", "_deleted_at IS NOT NULL"); got != deleted {
				t.Errorf("got %d rows that are marked as deleted, want %d", got, deleted)
			}
		})
	}
}
