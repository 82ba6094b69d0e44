package interop_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Tables without a key, whose rows are alike more often than not, by the commands that repair tables.

// heldAlikeDDL has the tables of heldDDL, of which a has no key.
const heldAlikeDDL = `create table public.a (id int, v text); alter table public.a replica identity full;
create table public.b (id int primary key, v text);
insert into public.a select g % 40, 'a' || g % 3 from generate_series(1, 3000) g;
insert into public.b select g, 'b' || g from generate_series(1, 300) g`

// alikeWriter changes the table a until done is called.
func (h *held) alikeWriter() (done func()) {
	stop, over := make(chan struct{}), make(chan struct{})
	writer := dialPostgres(h.t, h.db.url.String())
	some := func(n int) string {
		return fmt.Sprintf("ctid in (select ctid from public.a order by random() limit %d)", n)
	}
	go func() {
		defer close(over)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			writer.do(fmt.Sprintf("begin; update public.a set v = 'a%d' where %s; delete from public.a where %s; "+
				"insert into public.a select %[4]d %% 40, 'a' || g %% 2 from generate_series(1, 4) g; commit", n%4, some(3), some(4), n))
		}
	}()
	return func() { close(stop); <-over }
}

// makesAlike are the rows that the change log of a table without a key makes, in the order that it says of itself.
func (h *held) makesAlike(table string) (rows []string) {
	h.t.Helper()
	type change struct {
		ID      *int    `json:"id"`
		V       *string `json:"v"`
		Kind    string  `json:"_change_type"`
		Version int64   `json:"_commit_version"`
		Ordinal int64   `json:"_ordinal"`
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
	slices.SortStableFunc(all, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Ordinal, b.Ordinal), -cmp.Compare(a.Kind, b.Kind))
	})
	left := map[string]int{}
	for _, c := range all {
		if c.Kind == "truncate" {
			clear(left)
			continue
		}
		row := fmt.Sprintf(`{"id":%d,"v":"%s"}`, *c.ID, *c.V)
		switch c.Kind {
		case "delete", "update_preimage":
			left[row]--
		default:
			left[row]++
		}
	}
	for row, n := range left {
		if n < 0 { // it takes a row away that is not there
			row, n = "without "+row, -n
		}
		rows = append(rows, slices.Repeat([]string{row}, n)...)
	}
	slices.Sort(rows)
	return rows
}

// A table without a key is loaded again while it changes: its rows, of which somebody has taken some, and brought some twice, are those of
// the source then. Its change log tells that, but was never told of what somebody did: what it makes is not the table any more. Killed, it
// goes on where it was.
func TestPostgres_ResyncWithoutAKey_EqualsItsSource(t *testing.T) {
	onPostgres(t, "alike_resync", func(t *testing.T, db *database) {
		h := newHeldOf(t, db, heldAlikeDDL, "")
		table := filepath.Join(h.dir, "lake", "l", "a")
		p := h.run()
		h.follows("a")
		db.do("alter table public.a add w int default 1; insert into public.a values (1, 'a1', 2)") // it is loaded again by itself
		h.follows("a")
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
		command(t, 0, nil, "table", "delete", table, "--where", "id % 7 = 0")
		command(t, 0, nil, "table", "update", table, "--set", "id = 1", "--where", "id = 2")
		p = h.run()
		done := h.alikeWriter()
		first := start(t, nil, "pipeline", "resync", h.file(), "--table", "l.a", "--yes", "--progress", "off")
		waitUntil(t, patience, "the copy has begun", func() bool {
			found, _ := filepath.Glob(filepath.Join(table, "resync-1", "*.parquet"))
			return len(found) > 0 || ended(first)
		})
		first.kill()
		h.pipeline("resync", h.file(), "--table", "l.a", "--yes", "--progress", "off", "--why", "rows were lost")
		done()
		h.follows("a")
		if log := command(t, 0, nil, "table", "read", filepath.Join(h.dir, "lake", "l", "a_log"), "-q", "--columns", "_change_type,_source_tx"); !strings.Contains(log, `"_source_tx":"resync-1"`) {
			t.Error("the change log was not told")
		}
		if slots := db.do("select slot_name from pg_replication_slots where database = current_database()"); len(slots) != 1 {
			t.Errorf("got the slots %v, want that of the pipeline alone", slots)
		}
		db.do("delete from public.a where id = 3; update public.a set v = 'behind' where id % 11 = 0")
		h.follows("a")
		if said := command(t, 0, nil, "verify", h.file()); strings.Count(said, "equals public.") != 2 {
			t.Errorf("got %s, want that both tables equal their source", said)
		}
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
	})
}

// Where the log has a hole, a table without a key counts as holding all up to its end: what it lacks is found, and told with the command that
// loads it again, and once that is done there is no hole any more.
func TestPostgres_RenewWithoutAKey_ToldAndLoadedAgain(t *testing.T) {
	onPostgres(t, "alike_renew", func(t *testing.T, db *database) {
		if db.conn.ParameterStatus("server_version") < "14" {
			t.Skip("the log of PostgreSQL before 14 brings no messages")
		}
		h := newHeldOf(t, db, heldAlikeDDL, "")
		command(t, 0, nil, "run", h.file(), "--until-caught-up", "--progress", "off")
		db.do("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()")
		db.do("delete from public.a where ctid in (select ctid from public.a where id = 5 limit 3); insert into public.a values (7, 'missed'), (7, 'missed'); " +
			"update public.b set v = 'missed' where id = 9")
		if said := command(t, 2, nil, "run", h.file(), "--until-caught-up"); !strings.Contains(said, "FRE-2106") {
			t.Errorf("got %s, want a gap", said)
		}
		h.pipeline("renew", h.file(), "--yes")
		described := func() string { return h.pipeline("describe", h.file()) }
		if said := described(); !strings.Contains(said, "is lost, and not all is repaired yet") {
			t.Errorf("got %s, want the hole", said)
		}
		p := h.run()
		waitUntil(t, patience, "the remedy is told", func() bool {
			if ended(p) {
				t.Fatalf("it ended:\n%s", tail(p.out.String(), 4000))
			}
			return regexp.MustCompile(`freshet pipeline resync \S+ --table l\.a\b`).MatchString(p.out.String())
		})
		h.follows("b")
		if said := described(); !strings.Contains(said, "is lost, and not all is repaired yet") {
			t.Errorf("got %s, want the hole still, as a differs", said)
		}
		h.pipeline("resync", h.file(), "--table", "l.a", "--yes", "--progress", "off")
		h.follows("a")
		p.kill() // one that begins compares at once
		p = h.run()
		waitUntil(t, patience, "there is no hole any more", func() bool { return !strings.Contains(described(), "is lost") })
		if said := command(t, 0, nil, "verify", h.file()); strings.Count(said, "equals public.") != 2 {
			t.Errorf("got %s, want that both tables equal their source", said)
		}
		waitUntil(t, patience, "the change log makes the table", func() bool { return slices.Equal(h.makesAlike("a"), h.truth("a")) })
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
	})
}
