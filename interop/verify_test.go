package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const verifiedDDL = `create table public.t (id int primary key, v text, n int);
create table public.u (a int, b text, v text, primary key (a, b));
insert into public.t select g, 'v' || g, 0 from generate_series(1, 4000) g;
insert into public.u select g, 'b' || g, 'v' from generate_series(1, 500) g; analyze`

// verified is a pipeline that mirrors a database, which another process compares with it.
type verified struct {
	*database
	dir, file string
}

func newVerified(t *testing.T, db *database, more string) *verified {
	v := &verified{database: db, dir: t.TempDir()}
	v.file = filepath.Join(v.dir, "p.yaml")
	text := fmt.Sprintf(`pipeline: shop
source:
  postgres: {url: "%s", tables: ["public.*"]}
target:
  delta: {path: "%s/{table}", mode: mirror, commit: {every: 200ms}, index_dir: "%[2]s/index"%s
`, db.url, v.dir, more)
	if err := os.WriteFile(v.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *verified) table(name string) string { return filepath.Join(v.dir, name) }

// run runs the pipeline until its tables are loaded, and on.
func (v *verified) run(args ...string) *process {
	v.t.Helper()
	return start(v.t, nil, append([]string{"run", v.file, "--progress", "off"}, args...)...)
}

// load has all tables loaded, and the process end.
func (v *verified) load() {
	v.t.Helper()
	command(v.t, 0, nil, "run", v.file, "--until-caught-up", "--progress", "off")
}

// verify compares the tables, and returns what is said.
func (v *verified) verify(code int, args ...string) string {
	v.t.Helper()
	return command(v.t, code, nil, append([]string{"verify", v.file}, args...)...)
}

// tamper makes rows of t wrong that no writer changes: one of each class that the log can mend.
func (v *verified) tamper() {
	v.t.Helper()
	command(v.t, 0, nil, "table", "delete", v.table("t"), "--where", "id = 3001")
	command(v.t, 0, nil, "table", "update", v.table("t"), "--set", "v = 'forged'", "--where", "id = 3002")
	command(v.t, 0, nil, "table", "update", v.table("t"), "--set", "id = 9003", "--where", "id = 3003")
}

// write has a writer change rows of t up to 1000 until done is called.
func (v *verified) write() (done func()) {
	conn, stop, over := dialPostgres(v.t, v.url.String()).conn, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				change(conn, n)
			}
		}
	}()
	return func() { close(stop); <-over }
}

func change(conn *pgconn.PgConn, n int) {
	_, _ = conn.Exec(context.Background(), fmt.Sprintf(`begin; update public.t set n = n + 1 where id %% 97 = %d and id < 1000;
delete from public.t where id = %d; insert into public.t values (%[2]d, 'again', %d) on conflict do nothing;
update public.u set v = md5(v) where a = %d; commit`, n%97, 1+n%900, n, 1+n%500)).ReadAll()
}

// What the command says of tables that are right, that somebody has changed, that are mended, and that do not go on, while rows change.
func TestVerify_CommandBesideARunningPipeline_TellsTheTruth(t *testing.T) {
	onPostgres(t, "verify_shop", func(t *testing.T, db *database) {
		if db.conn.ParameterStatus("server_version") < "14" {
			t.Skip("PostgreSQL before 14 cannot ask a pipeline to read rows again")
		}
		db.do(verifiedDDL)
		v := newVerified(t, db, "}")
		v.load()
		p := v.run()
		done := v.write()
		for range 4 {
			if said := v.verify(0); strings.Count(said, "equals public.") != 2 {
				t.Fatalf("got %s, want that both tables equal their source", said)
			}
		}
		if said := v.verify(0, "--sample", "10%", "--table", v.table("u")); strings.Count(said, "equals public.") != 1 {
			t.Errorf("got %s, want one table", said)
		}
		v.verify(2, "--table", v.table("none"))
		v.verify(2, "--sample", "0%")

		v.tamper()
		said := v.verify(4, "--table", v.table("t"))
		for _, want := range []string{"missing    3001", "different  3002  v", "missing    3003", "extra      9003",
			"differs from public.t: 2 missing, 1 extra, 1 different"} {
			if !strings.Contains(said, want) {
				t.Errorf("got %s, want %q in it", said, want)
			}
		}
		var told []struct {
			Equal  bool
			Counts map[string]int64
			Mended int64
		}
		if err := json.Unmarshal([]byte(command(t, 0, nil, "verify", v.file, "--repair", "--table", v.table("t"), "-o", "json", "-q")),
			&told); err != nil || len(told) != 1 || told[0].Equal || told[0].Counts["missing"] != 2 || told[0].Mended != 4 {
			t.Errorf("got %+v, %v, want four differences that are mended", told, err)
		}
		v.verify(0)
		done()

		// killed at any moment it leaves nothing: neither here nor on the server
		temporary := t.TempDir()
		for n := range 3 {
			killed := start(t, []string{"TMPDIR=" + temporary}, "verify", v.file)
			pause(time.Duration(30+60*n)*time.Millisecond, killed.done)
			killed.kill()
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("got %v, %v in the folder for temporary files, want nothing", left, err)
		}
		v.verify(0)

		p.kill()
		db.do("update public.t set v = 'later' where id = 5")
		if said := v.verify(3, "--wait", "1s"); !strings.Contains(said, "FRE-4009") {
			t.Errorf("got %s, want that the pipeline does not go on", said)
		}
		v.run()
		v.verify(0)
	})
}

// Rows that are kept as deleted are none of the source's: they are no difference; one that is marked and should not be is.
func TestVerify_SoftDeletes_MarkedRowsAreNone(t *testing.T) {
	onPostgres(t, "verify_soft", func(t *testing.T, db *database) {
		if db.conn.ParameterStatus("server_version") < "14" {
			t.Skip("PostgreSQL before 14 cannot ask a pipeline to read rows again")
		}
		db.do(verifiedDDL)
		v := newVerified(t, db, ", deletes: soft}")
		v.load()
		v.run()
		db.do("delete from public.t where id between 100 and 199")
		v.verify(0)
		command(t, 0, nil, "table", "update", v.table("t"), "--set", "_deleted_at = TIMESTAMP '2024-01-01 00:00:00Z'", "--where",
			"id = 7")
		if said := v.verify(4); !strings.Contains(said, "missing    7") {
			t.Errorf("got %s, want that 7 is missing", said)
		}
		v.verify(0, "--repair")
		v.verify(0)
	})
}

// A pipeline with verify compares its tables by itself, keeps what it found, and is loud about what differs.
func TestVerify_EverySecond_FoundKeptAndLoud(t *testing.T) {
	onPostgres(t, "verify_often", func(t *testing.T, db *database) {
		if db.conn.ParameterStatus("server_version") < "14" {
			t.Skip("PostgreSQL before 14 cannot ask a pipeline to read rows again")
		}
		db.do(verifiedDDL)
		v := newVerified(t, db, "}\nverify: {every: 1s, sample: 100%, rows_per_second: 1000000, cost: 100%}")
		v.load()
		v.tamper()
		p := v.run("--http", "127.0.0.1:0")
		served := regexp.MustCompile(`http://[^/]+/metrics`)
		metrics := func() string {
			response, err := http.Get(served.FindString(p.out.String()))
			if err != nil {
				return err.Error()
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			return string(body)
		}
		described := func() string { return command(t, 0, nil, "pipeline", "describe", v.file) }
		waitUntil(t, patience, "the metrics tell of two rows that are missing", func() bool {
			return strings.Contains(metrics(), `class="missing",namespace="default",pipeline="shop",table="`+v.table("t")+`"} 2`)
		})
		waitUntil(t, patience, "describe tells of both tables", func() bool {
			said := described()
			return strings.Contains(said, "DIFFERS: 2 missing, 1 extra, 1 different") && strings.Contains(said, "equal to its source")
		})
		if said := p.out.String(); !strings.Contains(said, "a table differs from its source") || !strings.Contains(said, "--repair") {
			t.Errorf("got %s, want an error that names the remedy", said)
		}
		v.verify(0, "--repair")
		waitUntil(t, patience, "nothing differs any more", func() bool { return !strings.Contains(described(), "DIFFERS") })
		kept := command(t, 0, nil, "table", "read", v.dir+"/shop_verified", "-q")
		if strings.Count(kept, `"missing 3001"`) == 0 || !strings.Contains(kept, `"rows":4000`) {
			t.Errorf("got %s, want the keys that differed, and how many rows were compared", kept)
		}
	})
}

// A slot that is gone is made anew, and the process that runs the pipeline repairs what was missed, by itself: it is killed
// meanwhile, and told that there is nothing to renew before and afterwards.
func TestRenew_SlotDropped_MissedRowsAreRepaired(t *testing.T) {
	onPostgres(t, "verify_renew", func(t *testing.T, db *database) {
		if db.conn.ParameterStatus("server_version") < "14" {
			t.Skip("the log of PostgreSQL before 14 brings no messages")
		}
		db.do(verifiedDDL)
		v := newVerified(t, db, `, changelog: "`+filepath.Join(t.TempDir(), "log")+`/{table}"}`)
		v.load()
		command(t, 2, nil, "pipeline", "renew", v.file, "--yes")
		db.do("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()")
		db.do(`delete from public.t where id % 400 = 1; update public.t set v = 'missed' where id % 400 = 2;
insert into public.t select g, 'missed', 0 from generate_series(5001, 5010) g; update public.u set b = 'moved' where a = 7`)
		if said := command(t, 2, nil, "run", v.file, "--until-caught-up"); !strings.Contains(said, "FRE-2106") ||
			!strings.Contains(said, "freshet pipeline renew") {
			t.Errorf("got %s, want a gap that names the way on", said)
		}
		command(t, 0, nil, "pipeline", "renew", v.file, "--yes")
		described := func() string { return command(t, 0, nil, "pipeline", "describe", v.file) }
		if said := described(); !strings.Contains(said, "is lost, and not all is repaired yet") {
			t.Errorf("got %s, want the hole", said)
		}
		done := v.write()
		p := v.run()
		pause(time.Second, p.done)
		p.kill()
		p = v.run()
		waitUntil(t, patience, "the hole is repaired", func() bool { return !strings.Contains(described(), "is lost") })
		done()
		if said := v.verify(0); strings.Count(said, "equals public.") != 2 {
			t.Errorf("got %s, want that both tables equal their source", said)
		}
		for _, want := range []string{`source +public.t, at verify_renew\[0\]@\d+: id=5001 v=missed n=0`, `change_log +id=5001.*_change_type=insert`,
			`versions +\d+ +\S+ +insert by`, `present +id=5001 v=missed`} {
			if said := command(t, 0, nil, "trace", v.file, "--table", v.table("t"), "--key", "5001"); !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("got %s, want %s in it", said, want)
			}
		}
		p.kill()
		command(t, 2, nil, "pipeline", "renew", v.file, "--yes")
	})
}
