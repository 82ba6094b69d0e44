package interop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rivalFirstID is the first id of the rows that another engine writes; those below are ours.
const rivalFirstID = 1_000_000_000

// rival is another engine that writes to a table of ours with columns id and s, and what of it must be there. It touches
// only rows that it appended. Whether it committed is not its word: each attempt carries a mark, and the log is searched.
type rival struct {
	t      *testing.T
	engine *engine
	table  string // as the engine knows it: a folder or s3://…
	folder string // where that is on this machine

	mine              map[int64]string
	next              int64
	turn              int
	seen              int64 // the first version of the log that was not looked at
	commits, failures int
}

func newRival(t *testing.T, e *engine, table, folder string) *rival {
	t.Helper()
	r := &rival{t: t, engine: e, table: table, folder: folder, mine: map[int64]string{}, next: rivalFirstID}
	if _, err := os.Stat(filepath.Join(folder, "_delta_log")); err != nil {
		e.must(t, request{Do: "create", Table: table})
	}
	return r
}

// do has the engine append ten rows, update or delete up to ten, merge some of both, overwrite the table with ten, or optimize
// it; it reports whether that was committed.
func (r *rival) do(op string) bool {
	r.t.Helper()
	r.turn++
	q := request{Do: op, Table: r.table, Mark: fmt.Sprintf("rival %d of %d", r.turn, os.Getpid())}
	switch op {
	case "append", "overwrite":
		q.Rows = map[int64]string{}
		for range 10 {
			q.Rows[r.next] = fmt.Sprintf("rival %d", r.next)
			r.next++
		}
	case "merge":
		q.Rows = map[int64]string{}
		for i, id := range slices.Sorted(maps.Keys(r.mine)) {
			if (i+r.turn)%5 == 0 && len(q.Rows) < 5 {
				q.Rows[id] = fmt.Sprintf("rival %d of turn %d", id, r.turn)
			}
		}
		for range 5 {
			q.Rows[r.next] = fmt.Sprintf("rival %d", r.next)
			r.next++
		}
	case "update", "delete":
		for i, id := range slices.Sorted(maps.Keys(r.mine)) {
			if (i+r.turn)%5 == 0 && len(q.IDs) < 10 {
				q.IDs = append(q.IDs, id)
			}
		}
		if len(q.IDs) == 0 {
			return false
		}
	}
	a := r.engine.ask(q)
	committed := r.committed(q.Mark)
	if committed != (a.Error == "") && (op != "optimize" || a.Error != "") { // an OPTIMIZE may find nothing to do
		r.t.Errorf("%s, %s: committed is %v, and it says: %q", r.engine.name, op, committed, a.Error)
	}
	if a.Error != "" {
		r.failures++
		r.t.Logf("%s, %s gives up: %s", r.engine.name, op, a.Error)
	}
	if committed {
		r.commits++
		r.apply(q)
	}
	return committed
}

func (r *rival) apply(q request) {
	switch q.Do {
	case "append", "merge":
		maps.Copy(r.mine, q.Rows)
	case "overwrite":
		r.mine = q.Rows
	case "update":
		for _, id := range q.IDs {
			r.mine[id] += "+"
		}
	case "delete":
		for _, id := range q.IDs {
			delete(r.mine, id)
		}
	}
}

// committed looks for the mark in the commits that it has not seen yet.
func (r *rival) committed(mark string) (found bool) {
	r.t.Helper()
	quoted, err := json.Marshal(mark)
	if err != nil {
		r.t.Fatal(err)
	}
	for ; ; r.seen++ {
		text, err := os.ReadFile(filepath.Join(r.folder, "_delta_log", fmt.Sprintf("%020d.json", r.seen)))
		if err != nil {
			return found
		}
		found = found || strings.Contains(string(text), string(quoted))
	}
}
