package interop_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// database is one of a test's own, on a real server.
type database struct {
	t    *testing.T
	url  *url.URL
	name string
	conn *pgconn.PgConn
}

// onPostgres runs a test on each server that POSTGRES_URLS names, in a database of its own that is dropped at the end.
func onPostgres(t *testing.T, name string, test func(t *testing.T, db *database)) {
	addresses := strings.Fields(os.Getenv("POSTGRES_URLS"))
	if len(addresses) == 0 {
		t.Skip("needs a real PostgreSQL server: POSTGRES_URLS names none (interop/README.md)")
	}
	for _, address := range addresses {
		admin := dialPostgres(t, address)
		t.Run("PostgreSQL "+admin.conn.ParameterStatus("server_version"), func(t *testing.T) {
			admin.drop(name)
			admin.do("create database " + name)
			t.Cleanup(func() { dialPostgres(t, address).drop(name) })
			of, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			of.Path = "/" + name
			test(t, dialPostgres(t, of.String()))
		})
	}
}

func dialPostgres(t *testing.T, address string) *database {
	t.Helper()
	of, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgconn.Connect(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &database{t: t, url: of, name: strings.TrimPrefix(of.Path, "/"), conn: conn}
}

// drop drops a database, if there is one, with its slots. Connections that were hung up may be in it, or read from a slot of it, for a while.
func (db *database) drop(name string) {
	db.t.Helper()
	waitUntil(db.t, patience, "the database "+name+" is dropped", func() bool {
		_, err := db.conn.Exec(context.Background(), "drop database if exists "+name+" with (force)").ReadAll()
		var said *pgconn.PgError
		if err != nil && !(errors.As(err, &said) && said.Code == "55006") { // it is in use
			db.t.Fatal(err)
		}
		return err == nil
	})
}

// do runs statements and returns the rows of the last, a line each, with | between the values.
func (db *database) do(sql string) (rows []string) {
	db.t.Helper()
	results, err := db.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	if len(results) == 0 {
		return nil
	}
	for _, r := range results[len(results)-1].Rows {
		values := make([]string, len(r))
		for i, v := range r {
			values[i] = string(v)
		}
		rows = append(rows, strings.Join(values, "|"))
	}
	return rows
}

// withPassword is the address with a password, which the server does not ask for.
func (db *database) withPassword(password string) string {
	of := *db.url
	of.User = url.UserPassword(of.User.Username(), password)
	return of.String()
}

// command runs freshet to its end and returns what it said.
func command(t *testing.T, code int, env []string, args ...string) string {
	t.Helper()
	p := start(t, env, args...)
	if got := p.exit(patience); got != code {
		t.Fatalf("freshet %s: got exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, p.out.String())
	}
	return p.out.String()
}

const shopDDL = `create schema sales;
create table public.customers (id bigint primary key, name text, since timestamptz);
create table public.notes (at int, note text);
create table public."two
lines: {x: 1}" (id int primary key, "${HOME}" text);
create unlogged table public.scratch (id int primary key);
create table public.indexed (id int not null unique, v text);
create table sales.orders (id int, line int, total numeric(10,2), tags text[], primary key (id, line));
insert into public.customers values (1, 'a', '2024-02-29'), (2, 'b', 'infinity');
insert into sales.orders values (1, 1, 2.5, '{x}'), (1, 2, 3, null);
insert into public."two
lines: {x: 1}" values (1, 'y'); analyze`

// What init writes of a database is a good file without the password, which runs as it is; what it says of the server is what
// check says.
func TestInit_FromADatabase_PipelineRuns(t *testing.T) {
	onPostgres(t, "init_shop", func(t *testing.T, db *database) {
		db.do(shopDDL)
		dir := filepath.Join(t.TempDir(), "shop")
		secret := "pa:ss@{w}ord"
		env := []string{"INIT_SHOP_URL=" + db.withPassword(secret)}
		said := command(t, 0, nil, "init", dir, "--from", db.withPassword(secret))
		file := filepath.Join(dir, "pipelines", "init_shop.yaml")
		text := readText(t, file)
		for _, want := range []string{`- "public.*"`, `- "sales.*"`, "sales.orders  key id, line, 2 rows",
			"public.notes  LEFT OUT: no primary key", "public.scratch  LEFT OUT",
			`ALTER TABLE "public"."indexed" REPLICA IDENTITY USING INDEX "indexed_id_key";`, `ALTER TABLE "public"."scratch" SET LOGGED;`,
			"numeric(10,2) becomes decimal(10,2): NaN becomes null\n#     sales.orders.total\n",
			"the slot and the publication freshet_bronze_init_shop."} {
			if !strings.Contains(text, want) {
				t.Errorf("got the file\n%s\nwant %q in it", text, want)
			}
		}
		if strings.Contains(text+said, "ord") && regexp.MustCompile(`pa(:|%3A)ss`).MatchString(text+said) {
			t.Errorf("got the password in\n%s\n%s", text, said)
		}
		command(t, 0, env, "lint", dir, "--strict")
		command(t, 4, env, "check", dir, "--strict")
		var checked struct {
			OK      bool
			Summary map[string]int
		}
		if err := json.Unmarshal([]byte(command(t, 0, env, "check", dir, "-o", "json", "-q")), &checked); err != nil {
			t.Fatal(err)
		}
		warns := 3 // of tables that are left out
		if db.conn.ParameterStatus("server_version") < "14" {
			warns++ // such a server is not mended any more
		}
		if !checked.OK || checked.Summary["blocks"] != 0 || checked.Summary["warns"] != warns || checked.Summary["notes"] < 4 {
			t.Errorf("got %+v, want nothing that blocks, and the three tables that are left out", checked)
		}
		command(t, 0, env, "run", dir, "--until-caught-up")
		db.do("update sales.orders set total = 9 where line = 2; delete from public.customers where id = 2")
		command(t, 0, env, "run", dir, "--until-caught-up")
		table := func(name string) string {
			return command(t, 0, nil, "table", "read", filepath.Join(dir, "lake", name), "-q")
		}
		if got := table("bronze/sales_orders"); !strings.Contains(got, `"total":"9.00"`) || strings.Count(got, "\n") != 2 {
			t.Errorf("got the mirror %s, want two rows, one with 9.00", got)
		}
		if got := table("bronze_changes/public_customers"); strings.Count(got, `"insert"`) != 2 || !strings.Contains(got, `"delete"`) {
			t.Errorf("got the changes %s, want two inserts and a delete", got)
		}
		if got := table("bronze/public_two_lines___x__1_"); !strings.Contains(got, `"y"`) {
			t.Errorf("got %s, want the row of the table with two lines in its name", got)
		}

		left := func() string {
			return strings.Join(db.do("select slot_name from pg_replication_slots where database = current_database() union all "+
				"select pubname from pg_publication"), " ")
		}
		both := "freshet_bronze_init_shop freshet_bronze_init_shop"
		command(t, 0, env, "pipeline", "delete", file, "--dry-run")
		if said := command(t, 2, env, "pipeline", "delete", file); !strings.Contains(said, "will be dropped, for good") || left() != both {
			t.Errorf("got %s and %s, want a question, and both there", said, left())
		}
		command(t, 0, env, "pipeline", "delete", file, "--yes")
		if left() != "" {
			t.Errorf("got %s, want neither slot nor publication", left())
		}
		if said := command(t, 2, env, "run", dir, "--until-caught-up"); !strings.Contains(said, "FRE-2106") {
			t.Errorf("got %s, want a gap", said)
		}
	})
}

// Nothing that is there is written over, and the flags choose tables.
func TestInit_Again_OnlyWhatIsNew(t *testing.T) {
	onPostgres(t, "init_again", func(t *testing.T, db *database) {
		db.do(shopDDL)
		dir := t.TempDir()
		command(t, 0, nil, "init", dir)
		project := readText(t, filepath.Join(dir, "freshet.yaml"))
		command(t, 0, nil, "init", dir, "--from", db.url.String(), "--schema", "sales", "--table", "public.customers")
		file := filepath.Join(dir, "pipelines", "init_again.yaml")
		text := readText(t, file)
		if !strings.Contains(text, "- \"sales.*\"\n      - \"public.customers\"\n") || strings.Contains(text, "public.notes") {
			t.Errorf("got\n%s\nwant the tables that were chosen", text)
		}
		if !strings.Contains(text, "${INIT_AGAIN_URL:-"+db.url.String()+"}") {
			t.Errorf("got\n%s\nwant the address, which has no password", text)
		}
		if err := os.WriteFile(file, []byte("# mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if said := command(t, 2, nil, "init", dir, "--from", db.url.String()); !strings.Contains(said, "exists already") {
			t.Errorf("got %s, want a refusal", said)
		}
		if got := readText(t, file); got != "# mine\n" {
			t.Errorf("got %s, want the file as it was", got)
		}
		command(t, 0, nil, "init", dir, "--from", db.url.String(), "--force")
		if got := readText(t, filepath.Join(dir, "freshet.yaml")); got != project || readText(t, file) == "# mine\n" {
			t.Errorf("got the project\n%s\nwant it as it was, and the pipeline anew", got)
		}
		if said := command(t, 2, nil, "init", dir, "--from", db.url.String(), "--table", "public.none", "--force"); !strings.Contains(said,
			"no table is selected") {
			t.Errorf("got %s, want that nothing is selected", said)
		}
	})
}

func readText(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
