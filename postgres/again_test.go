package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/quality"
)

// alikeDDL are tables without a key, whose rows are alike more often than not.
const alikeDDL = `
create table public.loose (a int, x double precision, n numeric, t text, l int[]);
alter table public.loose replica identity full;
create table public.large (a int, big text);
alter table public.large alter big set storage external, replica identity full;
create table public.parted (a int, v text) partition by list (a);
create table public.parted_0 partition of public.parted for values in (0, 1);
create table public.parted_1 partition of public.parted default;
alter table public.parted replica identity full; alter table public.parted_0 replica identity full;
alter table public.parted_1 replica identity full;
`

// alike are those tables, with how their columns are compared: as text that is the same on both sides.
var alike = map[string][]string{"loose": {"a", "x", "n", "t", "to_json(l)"}, "large": {"a", "md5(big)"}, "parted": {"a", "v"}}

// alikeRow are values of a random row of few.
func alikeRow(rng *rand.Rand, table string) string {
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	switch table {
	case "loose":
		return strings.Join([]string{one("null", "1", "2"), one("'NaN'", "0", "'-0'", "1e-3", "null"), one("1.5", "1.50", "'NaN'", "null"),
			one("''", "'x'", "null"), one("'{}'", "'{1,null}'", "null")}, ", ")
	case "large":
		return one("1", "2") + ", " + one("repeat('x', 9000)", "repeat(md5('y'), 400)", "null", "'short'")
	}
	return one("0", "1", "2", "null") + ", " + one("'x'", "'y'", "null")
}

// churnAlike changes those tables over three connections, a number of transactions each; what it returns waits for their end.
func churnAlike(t *testing.T, address string, seed uint64, transactions int) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for n := range uint64(3) {
		conn, rng := connect(t, address), rand.New(rand.NewPCG(seed, n))
		wg.Go(func() {
			for range transactions {
				_, _ = conn.Exec(context.Background(), alikeTransaction(rng)).ReadAll() // some end in deadlocks
				if conn.TxStatus() != 'I' {
					_, _ = conn.Exec(context.Background(), "rollback").ReadAll()
				}
			}
		})
	}
	return wg.Wait
}

func alikeTransaction(rng *rand.Rand) string {
	if rng.IntN(60) == 0 {
		return "truncate public." + []string{"loose", "large", "parted"}[rng.IntN(3)]
	}
	statements := []string{"begin"}
	for range 1 + rng.IntN(4) {
		table := []string{"loose", "loose", "large", "parted"}[rng.IntN(4)]
		some := fmt.Sprintf("(tableoid, ctid) in (select tableoid, ctid from public.%s order by random() limit %d)", table, 1+rng.IntN(3))
		sql := fmt.Sprintf("insert into public.%s select %s from generate_series(1, %d)", table, alikeRow(rng, table), 1+rng.IntN(6))
		switch rng.IntN(5) {
		case 0:
			sql = fmt.Sprintf("delete from public.%s where %s", table, some)
		case 1:
			sql = fmt.Sprintf("update public.%s set a = %d where %s", table, rng.IntN(3), some)
		case 2:
			sql = fmt.Sprintf("update public.%s set a = a where %s", table, some)
		case 3:
			sql = "savepoint s; " + sql + "; " + []string{"rollback to s", "release s"}[rng.IntN(2)]
		}
		statements = append(statements, sql)
	}
	return strings.Join(append(statements, []string{"commit", "commit", "commit", "rollback"}[rng.IntN(4)]), "; ")
}

func newAlike(t *testing.T, address string) *mirror {
	t.Helper()
	m := newMirror(t, address)
	m.options.Tables, m.options.Keyed, m.options.Alike, m.log = []string{"public.*"}, true, true, true
	return m
}

// checkAlike wants the tables, and what their change logs lead to, to be those of the database.
func (m *mirror) checkAlike(t *testing.T, conn *pgconn.PgConn, tables map[string][]string) {
	t.Helper()
	for table, columns := range tables {
		names := make([]string, len(columns))
		exact := slices.Clone(columns)
		for i, c := range columns {
			names[i] = strings.TrimSuffix(c[strings.IndexByte(c, '(')+1:], ")")
			if strings.HasPrefix(c, "md5(") {
				exact[i] = names[i]
			}
		}
		want := truth(t, conn, table, exact...)
		sameRows(t, table, m.rows(t, "public_"+table, names...), want)
		sameRows(t, table+"_log", m.playAlike(t, table+"_log", names), want)
		quarantine := lake.QuarantineName("public_" + table)
		if st, err := m.open(quarantine); err != nil {
			t.Fatal(err)
		} else if _, err := delta.Open(t.Context(), st, nil); err == nil {
			t.Errorf("%s: %v went to quarantine", table, m.values(t, quarantine, "event", "code", "message"))
		}
	}
}

// playAlike applies the changes of a log of a table without a key, and returns the rows that are left.
func (m *mirror) playAlike(t *testing.T, table string, columns []string) (rows []string) {
	t.Helper()
	all := m.values(t, "public_"+table, append([]string{lake.CommitVersionColumn, lake.OrdinalColumn, lake.ChangeTypeColumn,
		lake.CommittedAtColumn}, columns...)...)
	number := func(s string) (n int) { _, _ = fmt.Sscan(s, &n); return n }
	slices.SortStableFunc(all, func(a, b []string) int {
		return cmp.Or(cmp.Compare(number(a[0]), number(b[0])), cmp.Compare(number(a[1]), number(b[1])), -cmp.Compare(a[2], b[2]))
	})
	left := map[string]int{}
	for _, c := range all {
		row := "|" + strings.Join(c[4:], "|")
		switch c[2] {
		case "truncate":
			clear(left)
		case "delete", "update_preimage":
			if left[row]--; left[row] < 0 {
				t.Fatalf("%s: %v takes a row away that is not there", table, c)
			}
		default:
			left[row]++
		}
	}
	for row, n := range left {
		rows = append(rows, slices.Repeat([]string{row}, n)...)
	}
	slices.Sort(rows)
	return rows
}

// Rows that are alike come, change and go while the tables are loaded, and the pipeline is killed and ended meanwhile.
func TestAlike_ChurnAndCuts_TablesEqualTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, alikeDDL)
		churnAlike(t, address, seed, 60)()
		do(t, conn, "insert into public.loose select 7, 7 from generate_series(1, 5000)")
		m := newAlike(t, address)
		m.disturbed(t, seed, lake.Mirror, churnAlike(t, address, seed+1, 120))
		do(t, conn, "delete from public.loose where ctid in (select ctid from public.loose where a = 7 limit 1234)")
		m.catchUp(t)
		m.checkAlike(t, conn, alike)
	})
}

// Where the values of rows that are there change without a word of the log the table is loaded again.
func TestAlike_TableChanges_EachRowIsStillFound(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, alikeDDL+"insert into public.parted select g % 3, 'x' from generate_series(1, 900) g")
		m := newAlike(t, address)
		m.catchUp(t)
		few := "delete from public.parted where ctid in (select ctid from public.parted where a = 1 limit 10); "
		steps := []struct {
			sql     string
			columns []string
			again   bool
		}{
			{"alter table public.parted add b text; insert into public.parted values (1, 'x', 'b')", []string{"a", "v", "b"}, false},
			{"alter table public.parted add c int default 5; insert into public.parted values (1, 'x', 'b', 6)", []string{"a", "v", "b", "c"}, true},
			{"alter table public.parted rename v to w; insert into public.parted values (2, 'y', 'b', 6)", []string{"a", "w", "b", "c"}, true},
			{"alter table public.parted alter c type bigint using c * 10; insert into public.parted values (2, 'y', 'b', 70)",
				[]string{"a", "w", "b", "c"}, true},
			{"alter table public.parted drop b; insert into public.parted values (0, 'y', 70)", []string{"a", "w", "c"}, false},
		}
		for i, s := range steps {
			before := m.count("public_parted")
			do(t, conn, s.sql+"; "+few)
			m.catchUp(t)
			do(t, conn, few)
			m.catchUp(t)
			m.checkAlike(t, conn, map[string][]string{"parted": s.columns})
			if got := m.truncates(t) > i-1 && s.again; s.again && !got {
				t.Errorf("%s: the table was not loaded again (%d objects before)", s.sql, before)
			}
		}
		if got, want := m.truncates(t), 3; got != want {
			t.Errorf("the table was loaded again %d times, want %d", got, want)
		}
	})
}

// truncates is how often the log says that all rows of the table parted go.
func (m *mirror) truncates(t *testing.T) (n int) {
	t.Helper()
	for _, c := range m.values(t, "public_parted_log", lake.ChangeTypeColumn) {
		if c[0] == "truncate" {
			n++
		}
	}
	return n
}

// Tables change while they are loaded, and loaded again, and the pipeline is killed.
func TestAlike_TableChangesAndCuts_TableEqualsTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, alikeDDL)
		churnAlike(t, address, seed, 60)()
		m := newAlike(t, address)
		wait := churnAlike(t, address, seed+1, 120)
		done := make(chan struct{})
		go func() {
			defer close(done)
			altering := connect(t, address)
			for n := range 6 {
				_, _ = altering.Exec(context.Background(), fmt.Sprintf("set lock_timeout = '1s'; alter table public.loose add c%d int default %d", n, n%2)).ReadAll()
				<-time.After(300 * time.Millisecond)
			}
		}()
		m.disturbed(t, seed, lake.Mirror, wait)
		<-done
		do(t, conn, "alter table public.loose add last int default 1; insert into public.loose (a) values (77)")
		m.catchUp(t)
		tables := map[string][]string{"loose": append(slices.Clone(alike["loose"]), "last"), "large": alike["large"], "parted": alike["parted"]}
		m.checkAlike(t, conn, tables)
	})
}

// A table without a key of which the log does not tell whole rows is never read: a pattern leaves it out, and a name is an error that has
// the SQL, which mends it.
func TestAlike_NoFullIdentity_RefusedWithTheSQL(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.good (id int primary key); insert into public.good values (1);
create table public.bare (a int); create table public.nothing (a int); alter table public.nothing replica identity nothing;
create table public.half (a int) partition by list (a); create table public.half_0 partition of public.half default;
alter table public.half replica identity full`)
		m := newAlike(t, address)
		m.catchUp(t)
		p, err := readPublication(t.Context(), conn, m.options.Slot, serverVersion(conn))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Tables) != 1 {
			t.Errorf("got %v in the publication, want the table with a key alone", p.Tables)
		}
		do(t, conn, "insert into public.bare values (1), (1); insert into public.nothing values (1); insert into public.half values (1), (1)")
		for table, sql := range map[string]string{"bare": `ALTER TABLE "public"."bare" REPLICA IDENTITY FULL;`,
			"nothing": `ALTER TABLE "public"."nothing" REPLICA IDENTITY FULL;`, "half": `ALTER TABLE "public"."half_0" REPLICA IDENTITY FULL;`} {
			do(t, conn, "alter publication "+quoteName(m.options.Slot)+" add table public."+table)
			m.options.Tables = []string{"public.good", "public." + table}
			m.fails(t, freshet.CodeBadValue, "no REPLICA IDENTITY FULL")
			found, err := Check(t.Context(), address, &m.options)
			if err != nil {
				t.Fatal(err)
			}
			if text := all(found); !strings.Contains(text, "blocks | table public."+table) || !strings.Contains(text, sql) {
				t.Errorf("got %s, want the fix %s", text, sql)
			}
			do(t, conn, sql)
			m.catchUp(t)
			sameRows(t, table, m.rows(t, "public_"+table, "a"), truth(t, conn, table, "a"))
		}
		m.options.Tables = []string{"public.good", "public.half"}
		do(t, conn, "alter table public.half replica identity default; insert into public.half values (5)")
		m.fails(t, freshet.CodeBadValue, "no REPLICA IDENTITY FULL")
		m.options.Tables = []string{"public.*"} // it is not left out quietly
		m.fails(t, freshet.CodeBadValue, "no REPLICA IDENTITY FULL")
	})
}

// Rows that are alike are counted on both sides while both change; what is too much or missing is found, and nothing else.
func TestAlike_Compared_CountsDiffer(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, alikeDDL+"insert into public.loose select 7, '-0', 1.50, 'x', '{1,2}' from generate_series(1, 50)")
		m := newAlike(t, address)
		m.catchUp(t)
		m.runs(t)
		wait := churnAlike(t, address, seed, 150)
		for range 3 {
			for table := range alike {
				if r := m.verify(t, table, &quality.Options{Wait: 10 * time.Second}); !r.Equal() {
					t.Errorf("%s, while it changes: got %v %v, want no difference", table, r.Counts, r.Differences)
				}
			}
		}
		wait()
		do(t, conn, "insert into public.parted select 2, 'kept' from generate_series(1, 5)")
		if r := m.verify(t, "parted", &quality.Options{}); !r.Equal() || r.Undecided > 0 {
			t.Errorf("got %v, %d undecided, want no difference", r.Differences, r.Undecided)
		}
		st, err := m.open("public_parted")
		if err != nil {
			t.Fatal(err)
		}
		d, err := delta.Open(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		where, err := expr.Parse("v = 'kept'")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Delete(t.Context(), where, nil); err != nil {
			t.Fatal(err)
		}
		r := m.verify(t, "parted", &quality.Options{})
		if got := r.Counts[quality.Missing]; got != 5 || r.Found() != 5 || len(r.Differences) != 1 ||
			!slices.Equal(r.Differences[0].Key, []string{"2", "kept"}) || r.Differences[0].Rows != 5 {
			t.Errorf("got %v %v, want 5 missing rows of (2, kept)", r.Counts, r.Differences)
		}
	})
}
