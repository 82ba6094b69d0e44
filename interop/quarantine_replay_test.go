package interop_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const refusedDDL = `create table public.t (id int primary key, d date, big text, n int);
alter table public.t alter big set storage external;
create table public.w (id int primary key, d date, n int);
alter table public.w replica identity full;
insert into public.t select g, case when g % 10 = 0 then 'infinity'::date else date '2024-01-01' + g end, 'b' || g, 0 from generate_series(1, 200) g;
insert into public.w select g, date '2024-01-01' + g, 0 from generate_series(1, 50) g`

// refused is a pipeline that refuses dates without end, and later does not.
type refused struct {
	*database
	dir, file string
	form      string
}

func newRefused(t *testing.T, db *database, target string) *refused {
	r := &refused{database: db, dir: t.TempDir()}
	r.file = filepath.Join(r.dir, "p.yaml")
	r.form = fmt.Sprintf(`pipeline: shop
source:
  postgres: {url: "%s", tables: ["public.*"], beyond: BEYOND}
STEPS
target:
  delta: {path: "%s/{table}", commit: {every: 200ms}, index_dir: "%[2]s/index", %s}
quarantine: {table: "%[2]s/quarantine"}
`, db.url, r.dir, target)
	return r
}

// write writes the pipeline's file.
func (r *refused) write(beyond, steps string) {
	r.t.Helper()
	text := strings.NewReplacer("BEYOND", beyond, "STEPS\n", steps).Replace(r.form)
	if err := os.WriteFile(r.file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *refused) table(name string) string { return filepath.Join(r.dir, name) }

func (r *refused) catchUp() {
	r.t.Helper()
	command(r.t, 0, nil, "run", r.file, "--until-caught-up", "--progress", "off")
}

func (r *refused) replay(code int, args ...string) string {
	r.t.Helper()
	return command(r.t, code, nil, append([]string{"quarantine", "replay", r.file}, args...)...)
}

// open is how many records are in quarantine still.
func (r *refused) open() int {
	r.t.Helper()
	out := command(r.t, 0, nil, "quarantine", "list", r.file, "--limit", "0", "-o", "jsonl", "-q")
	return strings.Count(out, `"id"`)
}

// rows are the rows of a Delta table as JSON.
func (r *refused) rows(table string, args ...string) []map[string]any {
	r.t.Helper()
	out := command(r.t, 0, nil, append([]string{"table", "read", r.table(table), "-o", "jsonl", "-q"}, args...)...)
	var all []map[string]any
	for line := range strings.Lines(out) {
		row := map[string]any{}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		all = append(all, row)
	}
	return all
}

// changes are the changes that the log has of a key, in order.
func (r *refused) changes(log string, id int) (all []string) {
	r.t.Helper()
	rows := r.rows(log, "--where", fmt.Sprintf("id = %d", id))
	slices.SortFunc(rows, func(a, b map[string]any) int {
		for _, c := range []string{"_commit_version", "_ordinal"} {
			if x, y := a[c].(float64), b[c].(float64); x != y {
				return int(x - y)
			}
		}
		return 0
	})
	for _, row := range rows {
		all = append(all, fmt.Sprintf("%v d=%v n=%v", row["_change_type"], row["d"], row["n"]))
	}
	return all
}

// Rows that a mirror has refused are taken once its file is mended: those that the source has still as they were. What newer
// changes made of others stays, what is gone stays gone, and the change log has each change once.
func TestQuarantineReplay_RowsOfADatabase_NewerChangesStay(t *testing.T) {
	onPostgres(t, "replay_mirror", func(t *testing.T, db *database) {
		db.do(refusedDDL)
		r := newRefused(t, db, `mode: mirror, changelog: "`+t.TempDir()+`/{table}_log"`)
		log := strings.TrimSuffix(r.form[strings.Index(r.form, `changelog: "`)+len(`changelog: "`):], "\n")
		log = log[:strings.Index(log, "/{table}_log")]
		r.write("null", "")
		db.do("update public.w set d = 'infinity' where id = 40")
		r.catchUp()
		command(t, 0, nil, "table", "delete", r.table("t"), "--where", "id % 10 = 0") // as if they had been refused
		r.write("reject", "")
		db.do(`insert into public.t values (1001, 'infinity', 'b', 1), (1002, 'infinity', 'b', 1), (1003, 'infinity', 'b', 1)`)
		db.do(`update public.t set d = '2025-05-05', n = 2 where id = 1002; delete from public.t where id = 1003`)
		db.do(`update public.t set d = 'infinity', n = 1 where id in (4, 5, 6)`)
		db.do(`update public.t set d = '2025-05-05', n = 2 where id = 5`)
		db.do(`update public.t set n = 2 where id = 6`)
		db.do(`begin; insert into public.t values (1007, 'infinity', 'b', 1); update public.t set n = 2 where id = 1007; commit`)
		db.do(`insert into public.t values (1008, 'infinity', repeat(md5('x'), 400), 1)`)
		db.do(`update public.t set d = '2025-05-05', n = 2 where id = 1008`) // leaves big out: it waits for the row
		db.do(`delete from public.w where id = 40`)                          // the log has the row before, which cannot be
		db.do(`insert into public.t values (1009, 'infinity', 'b', 1); delete from public.t where id = 1009; insert into public.t values (1009, '2025-01-01', 'c', 3)`)
		r.catchUp()
		if n := r.open(); n < 12 {
			t.Fatalf("got %d records in quarantine, wanted those that cannot be", n)
		}
		if said := r.replay(4); !strings.Contains(said, "cannot be taken still") {
			t.Errorf("got %s, wanted that nothing was mended", said)
		}
		r.write("null", "")
		p := start(t, nil, "run", r.file, "--progress", "off")
		said := r.replay(0)
		if !strings.Contains(said, "newer changes") {
			t.Errorf("got %s, wanted how many records newer changes have passed", said)
		}
		if n := r.open(); n != 0 {
			t.Errorf("got %d records in quarantine still, wanted none: %s", n, command(t, 0, nil, "quarantine", "list", r.file))
		}
		if again := r.replay(0); !strings.Contains(again, "nothing in quarantine is open") {
			t.Errorf("got %s, wanted nothing left to take", again)
		}
		for id, want := range map[int]string{4: "<nil> 1", 5: "2025-05-05 2", 6: "<nil> 2", 1001: "<nil> 1", 1002: "2025-05-05 2", 1003: "",
			1007: "<nil> 2", 1008: "2025-05-05 2", 1009: "2025-01-01 3"} {
			got := ""
			if rows := r.rows("t", "--where", fmt.Sprintf("id = %d", id)); len(rows) > 0 {
				got = fmt.Sprintf("%v %v", rows[0]["d"], rows[0]["n"])
			}
			if got != want {
				t.Errorf("row %d: got %q, want %q", id, got, want)
			}
		}
		if rows := r.rows("w", "--where", "id = 40"); len(rows) > 0 {
			t.Errorf("got the row %v, whose delete was refused, wanted none", rows)
		}
		r.dir, db.t = log, t
		for id, want := range map[int][]string{
			1002: {"insert d=<nil> n=1", "update_postimage d=2025-05-05 n=2"},
			1003: {"insert d=<nil> n=1", "delete d=<nil> n=<nil>"},
			1007: {"insert d=<nil> n=1", "update_postimage d=<nil> n=2"},
			1009: {"insert d=<nil> n=1", "delete d=<nil> n=<nil>", "insert d=2025-01-01 n=3"},
		} {
			if got := r.changes("t_log", id); !slices.Equal(got, want) {
				t.Errorf("the log of %d: got %v, want %v", id, got, want)
			}
		}
		p.kill()
	})
}

// While rows are changed, refused and taken again, by replays that are killed, each row becomes what the source has.
func TestQuarantineReplay_UnderLoadAndKilled_TablesEqualTheSource(t *testing.T) {
	onPostgres(t, "replay_load", func(t *testing.T, db *database) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		db.do(refusedDDL)
		r := newRefused(t, db, "mode: mirror")
		r.write("reject", "")
		r.catchUp()
		p := start(t, nil, "run", r.file, "--progress", "off")
		conn, stop, over := dialPostgres(t, db.url.String()).conn, make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id, d := 1+n*7%60, []string{"'infinity'", "date '2024-01-01' + " + fmt.Sprint(n%99)}[n*5/3%2]
				_, _ = conn.Exec(t.Context(), fmt.Sprintf(`update public.t set d = %s, n = %d where id = %d; update public.w set d = %[1]s, n = %[2]d where id = %[3]d %% 50 + 1;
delete from public.t where id = %d; insert into public.t values (%[4]d, %[1]s, repeat(md5('%[2]d'), 200), %[2]d) on conflict do nothing`, d, n, id, 1+n%30)).ReadAll()
			}
		}()
		mended := filepath.Join(r.dir, "mended.yaml")
		for range 4 {
			r.write("null", "")
			text, err := os.ReadFile(r.file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(mended, text, 0o644); err != nil {
				t.Fatal(err)
			}
			killed := start(t, nil, "quarantine", "replay", mended)
			pause(time.Duration(50+rng.IntN(700))*time.Millisecond, killed.done)
			killed.kill()
		}
		close(stop)
		<-over
		p.kill()
		r.write("null", "")
		r.catchUp()
		r.replay(0)
		if n := r.open(); n != 0 {
			t.Errorf("got %d records in quarantine still, wanted none", n)
		}
		p = start(t, nil, "run", r.file, "--progress", "off")
		if said := command(t, 0, nil, "verify", r.file); strings.Count(said, "equals public.") != 2 {
			t.Errorf("got %s, wanted that both tables equal their source", said)
		}
		p.kill()
	})
}

// Rows that a step or a rule of the table has refused are in quarantine whole, and are taken once that is mended: into a mirror, and
// into a table of changes.
func TestQuarantineReplay_RefusedByAStepOrARule_Taken(t *testing.T) {
	for mode, target := range map[string]string{"mirror": "mode: mirror", "append": "mode: append, change_columns: all"} {
		onPostgres(t, "replay_steps_"+mode, func(t *testing.T, db *database) {
			db.do("create table public.s (id int primary key, n int, v text); insert into public.s select g, g, 'v' from generate_series(1, 20) g")
			r := newRefused(t, db, target)
			r.write("null", "steps:\n  - derive: {share: \"100 / n\"}\n")
			r.catchUp()
			command(t, 0, nil, "table", "constraint", "add", r.table("s"), "small", "n < 1000", "--upgrade")
			db.do("insert into public.s values (101, 0, 'zero'), (102, 5000, 'large'); update public.s set n = 0 where id = 7; insert into public.s values (103, 0, 'gone')")
			db.do("update public.s set v = 'changed' where id = 7; delete from public.s where id = 103")
			r.catchUp()
			if n, want := r.open(), map[string]int{"mirror": 5, "append": 6}[mode]; n != want {
				t.Fatalf("got %d records in quarantine, want %d: %s", n, want, command(t, 0, nil, "quarantine", "list", r.file))
			}
			if said := command(t, 0, nil, "quarantine", "list", r.file, "-o", "jsonl", "-q"); strings.Contains(said, `"raw":null`) {
				t.Errorf("got %s, wanted the rows of all", said)
			}
			command(t, 0, nil, "table", "constraint", "drop", r.table("s"), "small")
			r.write("null", "steps:\n  - derive: {share: \"CASE WHEN n = 0 THEN 0 ELSE 100 / n END\"}\n")
			r.catchUp()
			r.replay(0)
			if n := r.open(); n != 0 {
				t.Errorf("got %d records in quarantine still, want none", n)
			}
			want := map[string]map[int]int{"mirror": {7: 1, 101: 1, 102: 1, 103: 0}, "append": {7: 3, 101: 1, 102: 1, 103: 2}}[mode]
			for id, n := range want {
				rows := r.rows("s", "--where", fmt.Sprintf("id = %d", id))
				if len(rows) != n {
					t.Errorf("row %d: got %v, want %d rows", id, rows, n)
				}
				for _, row := range rows {
					if row["share"] == nil && row["_change_type"] != "delete" {
						t.Errorf("row %d: got %v, wanted what the step makes", id, row)
					}
				}
			}
		})
	}
}
