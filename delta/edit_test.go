package delta_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// What is left of a rewritten file may be all of the table: places are told of the rows that Write wrote, and no others are kept.
func TestEdit_FilesAreRewritten_PlacesOfWrittenRowsAlone(t *testing.T) {
	s, rows := fields("id", delta.Long), make([]string, 500)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":%d}`, i)
	}
	snap := tableOf(t, store.NewMem(), s, nil, batchOf(t, s, "["+strings.Join(rows, ",")+"]"))
	copies := true
	e, err := snap.Edit(nil, &delta.DMLOptions{CopyOnWrite: &copies})
	if err != nil {
		t.Fatal(err)
	}
	for add, err := range snap.Files(t.Context(), &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		e.Replace(e.Lose(*add), []int64{3})
	}
	written, err := e.Write(t.Context(), batchOf(t, s, `[{"id":1003},{"id":1004}]`), 1)
	if err != nil {
		t.Fatal(err)
	}
	written.Release()
	done, err := e.Commit(t.Context(), delta.EditCommit{Operation: "MERGE"})
	if err != nil {
		t.Fatal(err)
	}
	if done.Copied != 499 || len(done.Places) != 2 || done.Places[1] != (delta.Place{File: 0, Row: 1}) {
		t.Errorf("got %d copied and the places %v, want 499, and those of the two that were written", done.Copied, done.Places)
	}
}
