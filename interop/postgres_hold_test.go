package interop_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// held is a project that mirrors two tables of a database, of which one is held back, with a change log beside each.
type held struct {
	t   *testing.T
	db  *database
	dir string
}

const heldDDL = `create table public.a (id int primary key, v text);
create table public.b (id int primary key, v text);
insert into public.a select g, 'a' || g from generate_series(1, 3000) g;
insert into public.b select g, 'b' || g from generate_series(1, 3000) g`

func newHeld(t *testing.T, db *database, more string) *held {
	return newHeldOf(t, db, heldDDL, more)
}

// newHeldOf is newHeld with other tables of these names.
func newHeldOf(t *testing.T, db *database, ddl, more string) *held {
	db.do(ddl)
	h := &held{t: t, db: db, dir: t.TempDir()}
	file := `pipeline: held
namespace: l
source:
  postgres: {url: "` + db.url.String() + `", tables: [public.a, public.b], history: {chunk_rows: 500}}
target:
  delta: {table: "l.{table}", mode: mirror, changelog: "l.{table}_log", commit: {every: 50ms}` + more + "}\n"
	for name, text := range map[string]string{"freshet.yaml": "version: 1\nproject: held\nlake: {root: ./lake}\n", "held.yaml": file} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *held) file() string { return filepath.Join(h.dir, "held.yaml") }

func (h *held) run() *process {
	return start(h.t, nil, "run", h.file(), "--control-every", "50ms", "--progress", "off")
}

func (h *held) pipeline(args ...string) string {
	h.t.Helper()
	return command(h.t, 0, nil, append([]string{"pipeline"}, args...)...)
}

// rows are those of a table of the lake, as JSON, in order; none where there is no table.
func (h *held) rows(table string) []string {
	h.t.Helper()
	p := start(h.t, nil, "table", "read", filepath.Join(h.dir, "lake", "l", table), "-q", "--columns", "id,v")
	if p.exit(patience) != 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	slices.Sort(lines)
	return lines
}

// truth are those of the table in the database.
func (h *held) truth(table string) []string {
	lines := h.db.do(`select '{"id":' || id || ',"v":"' || v || '"}' from public.` + table)
	slices.Sort(lines)
	return lines
}

func (h *held) follows(table string) {
	h.t.Helper()
	waitUntil(h.t, patience, table+" equals its source", func() bool { return slices.Equal(h.rows(table), h.truth(table)) })
}

// makes are the rows that the change log of a table makes, in the order that it says of itself.
func (h *held) makes(table string) []string {
	h.t.Helper()
	type change struct {
		ID      int    `json:"id"`
		V       string `json:"v"`
		Kind    string `json:"_change_type"`
		Version int64  `json:"_commit_version"`
		Ordinal int64  `json:"_ordinal"`
	}
	var all []change
	text := command(h.t, 0, nil, "table", "read", filepath.Join(h.dir, "lake", "l", table+"_log"), "-q", "--columns",
		"id,v,_change_type,_commit_version,_ordinal")
	for line := range strings.Lines(text) {
		var c change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			h.t.Fatalf("%s: %v", line, err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	state := map[int]string{}
	for _, c := range all {
		switch c.Kind {
		case "truncate":
			clear(state)
		case "delete":
			delete(state, c.ID)
		case "insert", "update_postimage":
			state[c.ID] = c.V
		}
	}
	rows := make([]string, 0, len(state))
	for id, v := range state {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"v":"%s"}`, id, v))
	}
	slices.Sort(rows)
	return rows
}

// told waits until the change log of a table makes it.
func (h *held) told(table string) {
	h.t.Helper()
	waitUntil(h.t, patience, "the change log makes "+table, func() bool { return slices.Equal(h.makes(table), h.truth(table)) })
}

// passed reports whether the server may forget its log up to a place.
func (h *held) passed(at string) bool {
	return h.db.do("select bool_and(confirmed_flush_lsn >= '" + at + "') from pg_replication_slots where database = current_database()")[0] == "t"
}

// One table that is paused is parked; the other goes on, and so does the slot, also when the process is killed.
func TestPause_OneTableOfADatabase_OthersAndSlotGoOn(t *testing.T) {
	onPostgres(t, "hold_pause", func(t *testing.T, db *database) {
		h := newHeld(t, db, "")
		p := h.run()
		h.follows("a")
		h.follows("b")
		if said := h.pipeline("pause", h.file(), "--table", "l.a", "--why", "test"); !strings.Contains(said, "its changes are parked") {
			t.Errorf("got %s, want that changes are parked", said)
		}
		before := h.rows("a")
		waitUntil(t, patience, "changes of a are parked", func() bool {
			db.do("update public.a set v = v || '.' where id <= 10; update public.b set v = v || '.' where id <= 10")
			return strings.Contains(h.pipeline("describe", h.file()), "l.a: ")
		})
		db.do("delete from public.a where id > 2990; insert into public.a values (0, 'new'); insert into public.b values (0, 'new')")
		h.follows("b")
		at := db.do("select pg_current_wal_lsn()")[0]
		waitUntil(t, patience, "the slot passes what is parked", func() bool {
			db.do("update public.b set v = 'x' where id = 1; update public.a set v = 'x' where id = 1")
			return h.passed(at)
		})
		if !slices.Equal(h.rows("a")[:len(before)-20], before[:len(before)-20]) && len(h.rows("a")) != len(before) {
			t.Error("the table changed while it was paused")
		}
		p.kill()
		p = h.run()
		db.do("update public.a set v = 'behind' where id = 2")
		h.pipeline("resume", h.file(), "--table", "l.a")
		h.follows("a")
		h.follows("b")
		h.told("a")
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
	})
}

// A table is loaded again while the pipeline runs and the source changes: its rows, which somebody has spoiled, are those of the source
// then, its change log is told, and nothing stays on the server. Killed, it goes on where it was.
func TestResync_OneTableOfADatabase_EqualsItAndNothingStays(t *testing.T) {
	onPostgres(t, "hold_resync", func(t *testing.T, db *database) {
		h := newHeld(t, db, "")
		p := h.run()
		h.follows("a")
		h.follows("b")
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
		command(t, 0, nil, "table", "delete", filepath.Join(h.dir, "lake", "l", "a"), "--where", "id % 7 = 0")
		p = h.run()
		stop := make(chan struct{})
		done := make(chan struct{})
		writer := dialPostgres(t, db.url.String())
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				writer.do("update public.a set v = v || '!' where id = (random() * 3000)::int; " +
					"delete from public.a where id = (random() * 3000)::int; insert into public.b select max(id) + 1, 'b' from public.b")
			}
		}()
		first := start(t, nil, "pipeline", "resync", h.file(), "--table", "l.a", "--yes", "--progress", "off")
		waitUntil(t, patience, "the copy has begun", func() bool {
			found, _ := filepath.Glob(filepath.Join(h.dir, "lake", "l", "a", "resync-1", "*.parquet"))
			return len(found) > 0
		})
		first.kill()
		if said := command(t, 2, nil, "pipeline", "delete", h.file(), "--yes"); !strings.Contains(said, "being loaded again") {
			t.Errorf("got %s, want that the pipeline cannot be deleted meanwhile", said)
		}
		h.pipeline("resync", h.file(), "--table", "l.a", "--yes", "--progress", "off", "--why", "rows were lost")
		close(stop)
		<-done
		h.follows("a")
		h.follows("b")
		if slots := db.do("select slot_name from pg_replication_slots where database = current_database()"); len(slots) != 1 {
			t.Errorf("got the slots %v, want that of the pipeline alone", slots)
		}
		if left, _ := filepath.Glob(filepath.Join(h.dir, "lake", "l", "a", "resync-1", "_delta_log", "*")); len(left) > 0 {
			t.Errorf("got %v, want nothing of the copy's log", left)
		}
		log := command(t, 0, nil, "table", "read", filepath.Join(h.dir, "lake", "l", "a_log"), "-q", "--columns", "id,_change_type,_source_tx")
		if !strings.Contains(log, `"_source_tx":"resync-1"`) {
			t.Error("the change log was not told")
		}
		db.do("update public.a set v = 'behind' where id % 11 = 0")
		h.follows("a")
		h.told("a")
		h.told("b")
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
	})
}

// A table that holds more than a database tells is not loaded again unless that may go, and a copy that is given up leaves nothing.
func TestResync_OfADatabase_RefusedOrCancelled_TableAsItWas(t *testing.T) {
	onPostgres(t, "hold_refuse", func(t *testing.T, db *database) {
		h := newHeld(t, db, ", deletes: soft")
		command(t, 0, nil, "run", h.file(), "--until-caught-up")
		db.do("delete from public.a where id = 5")
		command(t, 0, nil, "run", h.file(), "--until-caught-up")
		for _, c := range []struct{ table, words string }{{"l.a", "deleted in the source"}, {"l.nothing", "no table"}, {"", "--table"}} {
			said := command(t, 2, nil, append([]string{"pipeline", "resync", h.file(), "--yes"}, flagOf("--table", c.table)...)...)
			if !strings.Contains(said, c.words) {
				t.Errorf("%s: got %s, want %q", c.table, said, c.words)
			}
		}
		h.pipeline("resync", h.file(), "--table", "l.a", "--yes", "--from-earliest-kept", "--progress", "off")
		if n := len(h.rows("a")); n != 2999 {
			t.Errorf("got %d rows, want the 2999 that the source has", n)
		}
	})
}

func flagOf(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{name, value}
}
