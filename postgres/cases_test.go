package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Cases that the suites of other tools have (Debezium, Estuary, PeerDB, Redpanda Connect, Supabase ETL), and no other test here.

// labels are the values of the column v, in the source and in the mirror.
func (m *mirror) labels(t *testing.T, sourced, table string) (got, want []string) {
	t.Helper()
	rows, err := query(t.Context(), connect(t, m.address), "select '|' || v from public."+sourced)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		want = append(want, string(r[0]))
	}
	slices.Sort(want)
	return m.rows(t, table, "v"), want
}

// Tables are loaded in chunks by keys of every type that a key may have, or at once where only the server can put them in order, and
// each row is found again by its key.
func TestHistory_KeysOfEachType_LoadedAndFollowed(t *testing.T) {
	types := []struct{ name, sql, value string }{
		{"small", "smallint", "g - 20"}, {"int", "int", "(g - 20) * 100000"}, {"big", "bigint", "(g - 20) * 100000000000"},
		{"number", "numeric", "(g - 20) / 8.0"}, {"decimal", "numeric(20, 4)", "(g - 20) / 8.0"},
		{"plain", `text collate "C"`, "chr(33 + g * 7) || 'ä'"}, {"padded", `char(8) collate "C"`, "repeat('b', g % 8) || chr(97 + g % 26)"},
		{"words", `varchar(20) collate "en-x-icu"`, "chr(65 + g) || lower(chr(65 + g))"},
		{"uuid", "uuid", "md5(g::text)::uuid"}, {"date", "date", "date '0001-01-01' + g * 100000"},
		{"stamp", "timestamp", "timestamp '9999-12-30 12:00' + g * interval '1 hour'"},
		{"instant", "timestamptz", "timestamptz '1900-01-01' + g * interval '1 year'"}, {"time", "time", "time '00:00' + g * interval '30 min'"},
		{"span", "interval", "g * interval '1 day'"}, {"bytes", "bytea", `decode(lpad(to_hex(g * 7), 2 + 2 * (g % 3), '0'), 'hex')`},
		{"double", "double precision", "(g - 20) / 8.0"}, {"real", "real", "(g - 20) / 8.0"},
		{"oid", "oid", "g * 100000000::bigint"}, {"net", "inet", "inet '10.0.0.0' + g"}, {"bits", "bit(8)", "g::bit(8)"},
		{"mood", "public.mood", "(enum_range(null::public.mood))[1 + g]"}, {"positive", "public.positive", "1 + g"},
		{"list", "int[]", "array[g, 1]"},
	}
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		moods := make([]string, 40)
		for i := range moods {
			moods[i] = fmt.Sprintf("'%c%d'", 'z'-rune(i%26), i)
		}
		do(t, conn, "create type public.mood as enum ("+strings.Join(moods, ", ")+"); create domain public.positive as int check (value > 0)")
		for _, k := range types {
			do(t, conn, fmt.Sprintf(`create table public.by_%[1]s (k %[2]s primary key, v text);
insert into public.by_%[1]s select %[3]s, '%[1]s ' || g from generate_series(0, 19) g`, k.name, k.sql, k.value))
		}
		do(t, conn, `create table public.by_pair (a int, b text collate "C", c date, v text, primary key (b, c, a));
insert into public.by_pair select g % 3, 'b' || g % 2, date '2024-01-01' + g / 6, 'pair ' || g from generate_series(0, 39) g`)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 6
		m.catchUp(t)
		check := func(when string) {
			t.Helper()
			for _, k := range types {
				got, want := m.labels(t, "by_"+k.name, "public_by_"+k.name)
				sameRows(t, when+": "+k.name, got, want)
			}
			got, want := m.labels(t, "by_pair", "public_by_pair")
			sameRows(t, when+": a pair", got, want)
		}
		check("loaded")
		for _, k := range types {
			do(t, conn, fmt.Sprintf(`update public.by_%[1]s set v = v || ' changed' where v like '%%5';
delete from public.by_%[1]s where v like '%%7'; insert into public.by_%[1]s select %[3]s, '%[1]s ' || g from generate_series(25, 30) g`,
				k.name, k.sql, k.value))
		}
		do(t, conn, "update public.by_pair set b = 'moved', v = v || ' moved' where v like '%5'; delete from public.by_pair where v like '%7'")
		m.catchUp(t)
		check("followed")
	})
}

// Names of tables and columns that need quotes, are words of SQL, or differ in case alone from others.
func TestStream_OddNames_Mirrored(t *testing.T) {
	names := []string{"dash-ed", "select", "MixedCase", "mixedcase", "what?", "two words", `qu"ote`, "apo'strophe", "ümlaut", "dot.ted", `back\slash`,
		"$dollar", "per%cent", "a#b"}
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create schema "Odd-Schema"`)
		for _, name := range names {
			do(t, conn, fmt.Sprintf(`create table "Odd-Schema".%[1]s (%[1]s int primary key, "V a,l" text, "Order" text);
insert into "Odd-Schema".%[1]s select g, 'loaded ' || g, 'o' from generate_series(1, 9) g`, quoteName(name)))
		}
		m := newMirror(t, address)
		m.options.History.ChunkRows = 4
		m.options.Table = func(_, name string) string { // names that a file system with one case tells apart
			return fmt.Sprint("n", slices.Index(names, name))
		}
		m.catchUp(t)
		for _, name := range names {
			do(t, conn, fmt.Sprintf(`update "Odd-Schema".%[1]s set "V a,l" = 'changed' where %[1]s = 3; delete from "Odd-Schema".%[1]s where %[1]s = 4;
update "Odd-Schema".%[1]s set %[1]s = 40 where %[1]s = 5`, quoteName(name)))
		}
		m.catchUp(t)
		for i, name := range names {
			got := m.rows(t, fmt.Sprint("n", i), columnName(name), "V_a_l", "Order")
			want := []string{"|1|loaded 1|o", "|2|loaded 2|o", "|3|changed|o", "|40|loaded 5|o", "|6|loaded 6|o", "|7|loaded 7|o", "|8|loaded 8|o", "|9|loaded 9|o"}
			slices.Sort(want)
			sameRows(t, name, got, want)
		}
	})
}

// A stored generated column is in no row of the log before PostgreSQL 18: it is left out, and never null where the source has a value. From
// then on it comes as any other. Virtual ones never do.
func TestStream_GeneratedColumn_AsTheServerSendsIt(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.area (id int primary key, w int, made int generated always as (w * 2) stored, h int);
insert into public.area (id, w, h) values (1, 2, 3), (2, 4, 5)`)
		columns := []string{"id", "w", "h"}
		if serverVersion(conn) >= generates {
			do(t, conn, "alter table public.area add column seen int generated always as (w * 3) virtual")
			columns = append(columns, "made")
		}
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "update public.area set w = 7 where id = 1; insert into public.area (id, w, h) values (3, 1, 1)")
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_area", columns...), truth(t, conn, "area", columns...))
		got := m.columns(t, "public_area")
		slices.Sort(got)
		slices.Sort(columns)
		if !slices.Equal(got, columns) {
			t.Errorf("got the columns %v, want %v", got, columns)
		}
	})
}

// From PostgreSQL 18 on the server refuses updates of a table with REPLICA IDENTITY FULL to everybody as long as it is published without its
// generated columns: so those that are stored are published, and a table with virtual ones is left out.
func TestPublication_GeneratedColumnsOfFullIdentity_ApplicationsGoOn(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		if serverVersion(conn) < generates {
			t.Skip("this server does not refuse them")
		}
		make := func(name, kind string) {
			do(t, conn, fmt.Sprintf(`create table public.%[1]s (id int primary key, w int, made int generated always as (w * 2) %[2]s);
alter table public.%[1]s replica identity full; insert into public.%[1]s (id, w) values (1, 2), (2, 4)`, name, kind))
		}
		make("stored_first", "stored")
		make("virtual_first", "virtual")
		m := newMirror(t, address)
		m.options.Tables = []string{"public.*"}
		found, err := Check(t.Context(), address, &m.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := all(found); !strings.Contains(got, "warns | table public.virtual_first | found REPLICA IDENTITY FULL and virtual generated columns") ||
			!strings.Contains(got, `| ALTER TABLE "public"."virtual_first" REPLICA IDENTITY DEFAULT;`) {
			t.Errorf("got\n%s\nwant it to name the table with a virtual column, and the way out", got)
		}
		m.catchUp(t)
		make("stored_later", "stored")
		make("virtual_later", "virtual")
		m.catchUp(t)
		for _, name := range []string{"stored_first", "virtual_first", "stored_later", "virtual_later"} {
			do(t, conn, fmt.Sprintf("update public.%[1]s set w = 7 where id = 1; delete from public.%[1]s where id = 2", name))
		}
		m.catchUp(t)
		for _, name := range []string{"stored_first", "stored_later"} {
			sameRows(t, name, m.rows(t, "public_"+name, "id", "w", "made"), []string{"|1|7|14"})
		}
	})
}

// The key is what the log tells of a row that is gone: where an index is the replica identity, its columns, although there is a
// primary key.
func TestStream_IdentityIsAnotherIndex_RowsFoundByIt(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.coded (id int primary key, code text not null, part int not null, v text, unique (code, part));
alter table public.coded replica identity using index coded_code_part_key;
insert into public.coded select g, 'c' || g / 2, g % 2, 'loaded ' || g from generate_series(0, 9) g`)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 3
		m.catchUp(t)
		do(t, conn, `update public.coded set id = 100 where id = 3; delete from public.coded where id = 4; update public.coded set code = 'new' where id = 5;
begin; update public.coded set id = -1 where id = 6; update public.coded set id = 6 where id = 7; update public.coded set id = 7 where id = -1; commit`)
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_coded", "id", "code", "part", "v"), truth(t, conn, "coded", "id", "code", "part", "v"))
	})
}

// Columns that come and go between two rows, or within a transaction, while large values are not sent.
func TestDDL_ColumnsComeAndGo_EachIdentity(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		identities := map[string]string{"bykey": "default", "full": "full", "byindex": "using index byindex_a_key"}
		for table, identity := range identities {
			do(t, conn, fmt.Sprintf(`create table public.%[1]s (id int primary key, a int not null unique, b int, c text, d int, e text);
alter table public.%[1]s alter c set storage external; alter table public.%[1]s replica identity %[2]s;
insert into public.%[1]s select g, g, g, repeat('x', 3000), g, 'e' from generate_series(1, 4) g`, table, identity))
		}
		m := newMirror(t, address)
		m.catchUp(t)
		for round, drop := range [][2]string{{"b", "d"}, {"e", "h0"}} {
			for table := range identities {
				do(t, conn, fmt.Sprintf(`alter table public.%[1]s add f%[4]d int, add h%[4]d text;
update public.%[1]s set f%[4]d = id where id <= 2; alter table public.%[1]s drop %[2]s; alter table public.%[1]s drop %[3]s;
begin; update public.%[1]s set f%[4]d = 7 where id = 3; alter table public.%[1]s add g%[4]d text;
update public.%[1]s set g%[4]d = 'g' where id >= 3; commit;
insert into public.%[1]s (id, a, f%[4]d, g%[4]d) values (10 + %[4]d, 10 + %[4]d, 10, 'new')`, table, drop[0], drop[1], round))
			}
			m.catchUp(t)
		}
		columns := []string{"id", "a", "c", "f0", "g0", "f1", "g1", "h1"}
		for table := range identities {
			sameRows(t, table, m.rows(t, "public_"+table, columns...), truth(t, conn, table, columns...))
		}
	})
}

// A row that comes to match the filter of the publication, or ceases to, comes and goes in the mirror.
func TestStream_RowsCrossTheFilter_ComeAndGo(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		if serverVersion(conn) < 150000 {
			t.Skip("needs row filters: PostgreSQL 15")
		}
		do(t, conn, `create table public.tenants (id int primary key, tenant int, v text); alter table public.tenants replica identity full;
insert into public.tenants select g, g % 3, 'loaded ' || g from generate_series(1, 30) g;
create publication mine for table public.tenants where (tenant = 1)`)
		m := newMirror(t, address)
		m.options.Publication, m.options.History.ChunkRows = "mine", 4
		m.catchUp(t)
		do(t, conn, `update public.tenants set tenant = 1 where id = 2; update public.tenants set tenant = 2 where id = 4;
update public.tenants set id = 100, v = 'moved' where id = 7; update public.tenants set v = 'unseen' where tenant = 0; delete from public.tenants where id = 10`)
		m.catchUp(t)
		var want []string
		for _, row := range truth(t, conn, "tenants", "id", "tenant", "v") {
			if strings.Split(row, "|")[2] == "1" {
				want = append(want, row)
			}
		}
		sameRows(t, "the table", m.rows(t, "public_tenants", "id", "tenant", "v"), want)
	})
}

// Text that is no text elsewhere: halves of surrogate pairs as escapes in JSON, numbers that no double holds, characters beyond the
// first plane, and what looks like the text of a null.
func TestStream_TextThatLooksLikeSomethingElse_Kept(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.texts (id int primary key, j json, b jsonb, v text);`)
		rows := `(%[1]d, '{"half": "\ud83d", "n": 1e400, "n": 01}', '{"big": 123456789012345678901234567890.10}', '\N'),
(%[1]d + 1, '"\\u0000"', '"a\\u00e9"', E'\\\\N\t\n\r\b\x01'), (%[1]d + 2, ' {"a" : 1 } ', '[1.50, null]', 'NULL'), (%[1]d + 3, 'null', 'null', '🌊')`
		rows = strings.ReplaceAll(rows, ", \"n\": 01", `, "n": 0.10`)
		do(t, conn, "insert into public.texts values "+fmt.Sprintf(rows, 1))
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.texts values "+fmt.Sprintf(rows, 11)+"; update public.texts set v = v || '!' where id = 2")
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_texts", "id", "j", "b", "v"), truth(t, conn, "texts", "id", "j", "b", "v"))
	})
}
