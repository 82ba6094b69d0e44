package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// Every change of a table is in order with its rows: those before it have the old form, those behind it the new one, also within
// a transaction, and whether the pipeline runs then or not.
func TestDDL_ByDefault_NewAndWiderColumnsAppliedOthersKept(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.shape (id int primary key, a int, b varchar(5), c numeric(6, 2))")
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.shape values (1, 1, 'b1', 1.5)")
		m.catchUp(t)
		do(t, conn, `insert into public.shape values (2, 2, 'b2', 2.5);
begin; insert into public.shape values (3, 3, 'b3', 3.5);
alter table public.shape add d text default 'old', alter id type bigint, alter a type bigint, alter c type numeric(12, 4);
insert into public.shape values (5000000004, 5000000004, 'b4', 12345678.4444, 'd4'); commit;
alter table public.shape alter b type text; insert into public.shape values (5, 5, 'longer than five', 5, 'd5');
alter table public.shape drop b; insert into public.shape values (6, 6, 6, 'd6'); update public.shape set a = 22 where id = 2;
alter table public.shape rename d to e; insert into public.shape values (7, 7, 7, 'e7');
alter table public.shape alter a type text; insert into public.shape values (8, 'many', 8, 'e8'), (9, '9', 9, 'e9')`)
		m.catchUp(t)
		want := []string{ // e has the values of d, which is its former name
			"|1|1|b1|1.5|(null)|old", "|2|22|b2|2.5|old|old", "|3|3|b3|3.5|(null)|old",
			"|5000000004|5000000004|b4|12345678.4444|d4|d4", "|5|5|longer than five|5|d5|d5",
			"|6|6|(null)|6|d6|d6", "|7|7|(null)|7|(null)|e7", "|9|9|(null)|9|(null)|e9",
		}
		slices.Sort(want)
		sameRows(t, "the table", m.rows(t, "public_shape", "id", "a", "b", "c", "d", "e"), want)
		if got := m.rows(t, lake.QuarantineName("public_shape"), "code"); !slices.Equal(got, []string{"|FRE-3004", "|FRE-3004"}) {
			t.Errorf("quarantine: got %v, want the row whose a is a word, as it came and as it was read again", got)
		}
	})
}

func TestDDL_PolicyIsToStop_StopsBeforeTheChange(t *testing.T) {
	cases := []struct{ name, statement, words string }{
		{"add", "add d int", "the new column d"},
		{"widen", "alter a type bigint", "the column a, whose int32 became int64"},
		{"drop", "drop b", "the column b, which is gone"},
		{"rename", "rename b to z", "the column b, which is called z now"},
		{"narrow", "alter a type text", "the column a, whose type int32 does not hold utf8"},
		{"truncate", "", "emptied by TRUNCATE"},
	}
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		for _, c := range cases {
			do(t, conn, "drop table if exists public.strict; create table public.strict (id int primary key, a int, b text)")
			m := newMirror(t, address)
			m.options.Slot = m.options.Slot[:40] + "_" + m.options.Slot[len(m.options.Slot)-6:] + "_" + c.name
			m.options.Tables = []string{"public.strict"}
			m.catchUp(t)
			do(t, conn, "insert into public.strict values (1, 1, 'x')")
			m.catchUp(t)
			stop := Fail
			m.options.TableDDL = map[string]DDL{"public.strict": {Add: stop, Widen: stop, Drop: stop, Rename: stop, Narrow: stop,
				Truncate: stop}}
			statement, code := "alter table public.strict "+c.statement, freshet.CodeTableChanged
			if c.statement == "" {
				statement, code = "truncate public.strict", freshet.CodeTruncated
			}
			do(t, conn, "insert into public.strict values (2, 2, 'y'); "+statement+"; insert into public.strict (id) values (3)")
			m.fails(t, code, c.words)
			m.fails(t, code, c.words[:5]) // and again: nothing was passed over
			if got := m.rows(t, "public_strict", "id"); len(got) > 2 {
				t.Errorf("%s: got the rows %v, want none of behind the change", c.name, got)
			}
			m.options.TableDDL = nil
			m.catchUp(t)
			if got := m.rows(t, "public_strict", "id"); got[len(got)-1] != "|3" {
				t.Errorf("%s, by default: got the rows %v, want also what came behind the change", c.name, got)
			}
			do(t, conn, "select pg_drop_replication_slot("+quoteText(m.options.Slot)+"); drop publication "+m.options.Slot)
		}
	})
}

func TestDDL_KeepNewColumnsAndTypes_TableStays(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.fixed (id int primary key, a int)")
		m := newMirror(t, address)
		m.options.DDL = DDL{Add: Keep, Widen: Keep}
		m.catchUp(t)
		do(t, conn, `alter table public.fixed add b text, alter a type bigint;
insert into public.fixed values (1, 1, 'x'), (2, 5000000000, 'y')`)
		m.catchUp(t)
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_fixed", "id", "a"), []string{"|1|1"})
		if n := len(m.rows(t, lake.QuarantineName("public_fixed"), "code")); n != 1 {
			t.Errorf("got %d rows in quarantine, want that whose a is too large", n)
		}
	})
}

func TestDDL_TableMadeAnew_RowsOfBeforeGo(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.again (id int primary key, a int);
create publication every for all tables`)
		m := newMirror(t, address)
		m.options.Publication = "every"
		m.catchUp(t)
		do(t, conn, `insert into public.again values (1, 1), (2, 2); drop table public.again;
create table public.again (id int primary key, b text); insert into public.again values (2, 'two'), (3, 'three');
create table public.later (id int primary key); insert into public.later values (7)`)
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_again", "id", "a", "b"), []string{"|2|(null)|two", "|3|(null)|three"})
		sameRows(t, "a new one", m.rows(t, "public_later", "id"), []string{"|7"})
	})
}

func TestTruncate_OfSeveralTables_AllRowsOfBeforeGo(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, `insert into public.keyed (id, n) select g, 1 from generate_series(1, 500) g; insert into public.quiet values (1)`)
		m.catchUp(t)
		do(t, conn, `begin; insert into public.keyed (id, n) values (1000, 1); truncate public.keyed, public.quiet;
insert into public.keyed (id, n) values (7, 7); savepoint a; truncate public.keyed; rollback to a;
insert into public.keyed (id, n) values (8, 8); commit; update public.keyed set n = 9 where id = 8`)
		m.catchUp(t)
		sameRows(t, "keyed", m.rows(t, "public_keyed", "id", "n"), []string{"|7|7", "|8|9"})
		sameRows(t, "quiet", m.rows(t, "public_quiet", "id"), nil)
	})
}

func TestTruncate_Keep_QuarantineTells(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.options.DDL.Truncate = Keep
		m.catchUp(t)
		do(t, conn, "insert into public.keyed (id, n) values (1, 1); truncate public.keyed, public.quiet")
		m.catchUp(t)
		for table, want := range map[string]int{"public_keyed": 1, "public_quiet": 1} {
			if got := m.rows(t, lake.QuarantineName(table), "code", "row"); len(got) != want || !strings.Contains(got[0], "FRE-3016") {
				t.Errorf("quarantine of %s: got %v, want the TRUNCATE", table, got)
			}
		}
		sameRows(t, "the table", m.rows(t, "public_keyed", "id"), []string{"|1"})
	})
}

func TestTruncate_OfAChangeLog_RowTells(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		run := func() {
			if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		run()
		do(t, conn, "insert into public.keyed (id) values (1); truncate public.keyed; insert into public.keyed (id) values (1)")
		run()
		sameRows(t, "the log", m.rows(t, "public_keyed", lake.ChangeTypeColumn, "id", "n"),
			[]string{"|insert|1|(null)", "|insert|1|(null)", "|truncate|(null)|(null)"})
	})
}
