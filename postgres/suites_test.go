package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/lake"
)

// More cases that the suites of other tools have, of each of which some tool lost rows or values.

// An enum gets values, and one of them another name, between changes and within a transaction: rows have what they had when the log
// told of them, or when they were read.
func TestStream_EnumGetsValuesAndNames_RowsFollow(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create type public.state as enum ('new', 'it''s "odd", really', '');
create table public.tasks (id int primary key, s public.state, many public.state[]);
insert into public.tasks values (1, 'new', '{new}'), (2, '', array['', 'it''s "odd", really']::public.state[])`)
		m := newMirror(t, address)
		m.log = true
		m.catchUp(t)
		do(t, conn, "alter type public.state add value 'done' before 'new'; insert into public.tasks values (3, 'new', '{new}')")
		do(t, conn, "insert into public.tasks values (4, 'done', '{done,new}'); update public.tasks set s = 'done' where id = 1")
		m.catchUp(t)
		sameRows(t, "a value more", m.rows(t, "public_tasks", "id", "s"), truth(t, conn, "tasks", "id", "s"))
		do(t, conn, "alter type public.state rename value 'done' to 'finished'; update public.tasks set s = s; insert into public.tasks values (5, 'finished', null)")
		m.catchUp(t)
		sameRows(t, "another name", m.rows(t, "public_tasks", "id", "s"), truth(t, conn, "tasks", "id", "s"))
		if log := m.rows(t, "public_tasks_log", "id", "s"); !slices.Contains(log, "|4|done") || !slices.Contains(log, "|4|finished") {
			t.Errorf("got %v in the change log, wanted both names of the value", log)
		}
	})
}

// Domains over types of each kind, and over other domains, are what they are over, loaded and streamed alike.
func TestStream_Domains_AreTheirBase(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create domain public.money2 as numeric(8, 2) check (value >= 0); create domain public.price as public.money2 not null;
create domain public.doc as jsonb check (value ? 'a'); create domain public.some as int[]; create domain public.word as varchar(8);
create table public.domains (id int primary key, p public.price, d public.doc, s public.some, w public.word, many public.word[]);
insert into public.domains values (1, 1.5, '{"a": 1}', '{1,2}', 'w', '{a,NULL}')`)
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, `insert into public.domains values (2, 1.5, '{"a": 1}', '{1,2}', 'w', '{a,NULL}'); update public.domains set w = 'changed' where id = 1`)
		m.catchUp(t)
		want := []string{`|1|1.5|{"a": 1}|[1,2]|changed|["a",null]`, `|2|1.5|{"a": 1}|[1,2]|w|["a",null]`}
		sameRows(t, "domains", m.rows(t, "public_domains", "id", "p", "d", "s", "w", "many"), want)
	})
}

// Values of times that other systems do not have, loaded and streamed alike: without end, before our era, of five digits, hour 24.
func TestStream_TimesAtTheirBounds_LoadedAsStreamed(t *testing.T) {
	const values = `(%d, 'infinity', '-infinity', 'infinity', '24:00:00', '15:59:59.999999+15:59:59', '-178000000 years'),
(%d, '0044-03-15 BC', '0001-01-01 BC', '4713-01-01 BC', '00:00:00', '00:00:00-15:59:59', '1 year -1 mon 3 days -04:05:06.789'),
(%d, '5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999+00', '23:59:59.999999', '12:00:00+05:45', '00:00:00'),
(%d, '9999-12-31', '9999-12-31 23:59:59.999999', '0001-01-01 00:00:00+00', '12:00', '12:00:00+00', '1 day 24:00:00')`
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.times (id int primary key, d date, s timestamp, z timestamptz, c time, cz timetz, i interval);
insert into public.times values `+fmt.Sprintf(values, 1, 2, 3, 4))
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.times values "+fmt.Sprintf(values, 11, 12, 13, 14))
		m.catchUp(t)
		columns := []string{"d", "s", "z", "c", "cz", "i"}
		var loaded, streamed []string
		for _, row := range m.values(t, "public_times", append([]string{"id"}, columns...)...) {
			if text := strings.Join(row[1:], "|"); len(row[0]) == 1 {
				loaded = append(loaded, row[0]+"|"+text)
			} else {
				streamed = append(streamed, row[0][1:]+"|"+text)
			}
		}
		slices.Sort(loaded)
		slices.Sort(streamed)
		sameRows(t, "streamed and loaded", streamed, loaded)
		for _, want := range []string{"1|(null)|(null)|(null)|24:00:00|", "2|(null)|(null)|(null)|00:00:00|", "4|9999-12-31|9999-12-31T23:59:59.999999"} {
			if !slices.ContainsFunc(loaded, func(row string) bool { return strings.HasPrefix(row, want) }) {
				t.Errorf("got %v, wanted a row that begins with %s", loaded, want)
			}
		}
	})
}

// Arrays of other dimensions than they were declared with, with other lower bounds, empty, and with elements that look like none.
func TestStream_ArraysOfAnyShape_LoadedAsStreamed(t *testing.T) {
	const values = `(%d, '{{1,2},{3,4}}', '{"NULL",NULL,"","a,b","\"q\"","{}"}', '{{1},{2}}'), (%d, '{}', '{}', '{}'), (%d, '[0:1]={5,6}', null, '{{{1}}}'), (%d, '{7}', '{x}', '{}')`
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.lists (id int primary key, n int[], v text[], grid int[][]); insert into public.lists values "+fmt.Sprintf(values, 1, 2, 3, 4))
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.lists values "+fmt.Sprintf(values, 5, 6, 7, 8))
		m.catchUp(t)
		do(t, conn, "alter table public.lists add late int[][]; update public.lists set late = '{{9}}' where id = 1; create table public.later (id int primary key, grid int[][]); insert into public.later values (1, '{{1,2}}')")
		m.catchUp(t)
		if late := m.rows(t, "public_lists", "id", "late"); !slices.Contains(late, "|1|{{9}}") {
			t.Errorf("got %v, wanted {{9}} in the first row", late)
		}
		sameRows(t, "a table that came later", m.rows(t, "public_later", "id", "grid"), []string{"|1|{{1,2}}"})
		want := []string{`|(null)|["NULL",null,"","a,b","\"q\"","{}"]|{{1},{2}}`, "|[]|[]|{}", "|(null)|(null)|{{{1}}}", `|[7]|["x"]|{}`}
		want = append(want, want...)
		slices.Sort(want)
		sameRows(t, "the table", m.rows(t, "public_lists", "n", "v", "grid"), want)
	})
}

// Partitions of partitions are one table under their root; tables that inherit over several levels, with columns of their own, are each
// one of its own.
func TestHistory_PartitionsOfPartitionsAndHeirsOfHeirs_EachRowOnce(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.events (id int, kind text, at int, v text, primary key (id, kind, at)) partition by list (kind);
create table public.events_a partition of public.events for values in ('a') partition by range (at);
create table public.events_a1 partition of public.events_a for values from (0) to (100);
create table public.events_a2 partition of public.events_a default;
create table public.events_rest (v text, at int not null, id int not null, kind text not null, primary key (id, kind, at));
alter table public.events attach partition public.events_rest default;
create table public.person (id int primary key, name text);
create table public.worker (salary int, primary key (id)) inherits (public.person);
create table public.boss (bonus int, primary key (id)) inherits (public.worker);
insert into public.events select g, chr(97 + g % 3), g % 200, 'loaded' from generate_series(1, 900) g;
insert into public.person values (1, 'p'), (2, 'p'); insert into public.worker values (2, 'w', 20), (3, 'w', 30);
insert into public.boss values (3, 'b', 300, 3000), (4, 'b', 400, 4000)`)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 70
		m.options.Tables = []string{"public.events", "public.person", "public.worker", "public.boss"}
		m.catchUp(t)
		check := func(when string) {
			t.Helper()
			sameRows(t, when+": events", m.rows(t, "public_events", "id", "kind", "at", "v"), truth(t, conn, "events", "id", "kind", "at", "v"))
			for table, columns := range map[string][]string{"person": {"id", "name"}, "worker": {"id", "name", "salary"}, "boss": {"id", "name", "salary", "bonus"}} {
				sameRows(t, when+": "+table, m.rows(t, "public_"+table, columns...), onlyRows(t, address, table, columns...))
			}
		}
		check("loaded")
		do(t, conn, `update public.events set at = at + 100 where id % 5 = 0; update public.events set kind = 'z' where id % 7 = 0; delete from public.events where id % 11 = 0;
insert into public.events values (2000, 'q', 5, 'new'), (2001, 'a', 500, 'new'); update public.person set name = name || '!'; delete from public.worker where id = 3;
update public.boss set bonus = 1 where id = 4`)
		m.catchUp(t)
		check("followed")
	})
}

// Messages of others in the log, also ones that are large or within a transaction, change nothing and hold nothing up.
func TestStream_MessagesOfOthers_LeftOut(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.said (id int primary key, v text)")
		m := newMirror(t, address)
		m.log = true
		m.catchUp(t)
		do(t, conn, `select pg_logical_emit_message(false, 'app', 'aside'); select pg_logical_emit_message(true, '', '');
begin; insert into public.said values (1, 'a'); select pg_logical_emit_message(true, 'app', repeat('x', 1 << 20)); update public.said set v = 'b'; commit;
begin; select pg_logical_emit_message(true, 'freshet.other', 'y'); rollback; select pg_logical_emit_message(true, 'freshet.level', 'no.table')`)
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_said", "id", "v"), []string{"|1|b"})
		if log := m.rows(t, "public_said_log", lake.ChangeTypeColumn, "v"); !slices.Equal(log, []string{"|insert|a", "|update_postimage|b"}) {
			t.Errorf("got %v in the change log, wanted the two changes", log)
		}
	})
}

// Updates that change nothing, of rows with large values and of keys, leave the table as it is, and are changes in the log.
func TestStream_UpdatesThatChangeNothing_TableAsItWas(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.same (id int primary key, big text, v text); alter table public.same alter big set storage external;
insert into public.same select g, repeat('x', 3000) || g, 'v' from generate_series(1, 5) g`)
		m := newMirror(t, address)
		m.log = true
		m.catchUp(t)
		do(t, conn, "update public.same set v = v; update public.same set id = id; update public.same set big = big where id = 2; begin; update public.same set id = 100 where id = 1; update public.same set id = 1 where id = 100; commit")
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_same", "id", "big", "v"), truth(t, conn, "same", "id", "big", "v"))
		sameRows(t, "the log", m.playBack(t, "same_log", []string{"id", "big", "v"}), truth(t, conn, "same", "id", "big", "v"))
	})
}

// Columns next to each other go, at the beginning, in the middle and at the end, one by one and at once, and one comes back under its name with
// another type: the others keep their values.
func TestDDL_ColumnsBesideEachOtherGo_OthersKeepTheirs(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.many (a int, b text, id int primary key, c int, d text, e int, f text);
insert into public.many select g, 'b' || g, g, g, 'd' || g, g, 'f' || g from generate_series(1, 6) g`)
		m := newMirror(t, address)
		m.catchUp(t)
		for i, ddl := range []string{"drop a, drop b", "drop c", "drop d", "drop f, add g int"} {
			do(t, conn, fmt.Sprintf("alter table public.many %s; update public.many set e = e + 10 where id = %d; insert into public.many (id, e) values (%[3]d, %[3]d)",
				ddl, i+1, 100+i))
			m.catchUp(t)
			sameRows(t, ddl, m.rows(t, "public_many", "id", "e"), truth(t, conn, "many", "id", "e"))
		}
		kept := m.rows(t, "public_many", "id", "a", "b", "c", "d", "f")
		for _, want := range []string{"|1|1|b1|1|d1|f1", "|6|6|b6|6|d6|f6", "|100|(null)|(null)|(null)|(null)|(null)"} {
			if !slices.Contains(kept, want) {
				t.Errorf("got %v, wanted %s: what is dropped in the source stays", kept, want)
			}
		}
		do(t, conn, "alter table public.many add a text; update public.many set a = 'text' where id = 2; update public.many set a = '77' where id = 3")
		m.catchUp(t)
		if rows := m.rows(t, "public_many", "id", "a"); !slices.Contains(rows, "|3|77") || slices.Contains(rows, "|2|text") {
			t.Errorf("got %v, wanted the number that the text is, and no text in a column of numbers", rows)
		}
	})
}

// Without their history, tables have what happens from now on: a row from before comes with its first update that sends all of it, goes with
// its delete, and waits where a large value was left out.
func TestHistory_Skipped_OnlyWhatHappens(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.old (id int primary key, v text, big text); alter table public.old alter big set storage external;
insert into public.old select g, 'old', null from generate_series(1, 9) g; update public.old set big = repeat('x', 3000) where id = 5`)
		m := newMirror(t, address)
		m.options.History.Skip = true
		m.catchUp(t)
		do(t, conn, "update public.old set v = 'changed' where id in (2, 5); delete from public.old where id = 3; insert into public.old values (10, 'new', 'b')")
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_old", "id", "v"), []string{"|10|new", "|2|changed"})
		do(t, conn, "update public.old set big = 'short' where id = 5")
		m.catchUp(t)
		sameRows(t, "once it was sent whole", m.rows(t, "public_old", "id", "v", "big"), []string{"|10|new|b", "|2|changed|(null)", "|5|changed|short"})
	})
}

// A shop's transactions over nine tables with keys of several columns, as TPC-C has them, cut at random by rollbacks: all tables are
// the source's, together.
func TestStream_OrdersOfAShop_AllTablesTogether(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.warehouse (w int primary key, ytd bigint); create table public.district (w int, d int, next int, ytd bigint, primary key (d, w));
create table public.customer (w int, d int, c int, balance bigint, data text, primary key (w, d, c));
create table public.orders (w int, d int, o int, c int, carrier int, primary key (w, d, o)); create table public.new_order (w int, d int, o int, primary key (w, d, o));
create table public.order_line (w int, d int, o int, l int, item int, amount int, primary key (w, d, o, l)); create table public.stock (w int, i int, q int, primary key (w, i));
create table public.payments (id bigserial primary key, w int, d int, c int, amount int); create table public.item (i int primary key, price int);
insert into public.warehouse select g, 0 from generate_series(1, 2) g; insert into public.district select w, d, 1, 0 from generate_series(1, 2) w, generate_series(1, 3) d;
insert into public.customer select w, d, c, 0, repeat('c', 100) from generate_series(1, 2) w, generate_series(1, 3) d, generate_series(1, 20) c;
insert into public.item select g, g from generate_series(1, 50) g; insert into public.stock select w, g, 50 from generate_series(1, 2) w, generate_series(1, 50) g;
create procedure public.order_now(n int) language plpgsql as $$
declare dw int := 1 + n % 2; dd int := 1 + n % 3; o int;
begin
  update public.district set next = next + 1 where w = dw and d = dd returning next into o;
  insert into public.orders values (dw, dd, o, 1 + n % 20, null); insert into public.new_order values (dw, dd, o);
  for l in 1 .. 3 + n % 5 loop
    update public.stock set q = case when q > 9 then q - 5 else q + 91 end where w = dw and i = 1 + (n * 7 + l) % 50;
    insert into public.order_line values (dw, dd, o, l, 1 + (n * 7 + l) % 50, l);
  end loop;
end $$;
create procedure public.pay(n int) language plpgsql as $$
begin
  update public.warehouse set ytd = ytd + 5 where w = 1 + n % 2; update public.district set ytd = ytd + 5 where w = 1 + n % 2 and d = 1 + n % 3;
  update public.customer set balance = balance - 5, data = left(n || data, 100) where w = 1 + n % 2 and d = 1 + n % 3 and c = 1 + n % 20;
  insert into public.payments (w, d, c, amount) values (1 + n % 2, 1 + n % 3, 1 + n % 20, 5);
end $$;
create procedure public.deliver(n int) language plpgsql as $$
declare r record;
begin
  for r in delete from public.new_order where (w, d, o) in (select w, d, min(o) from public.new_order group by w, d) returning * loop
    update public.orders set carrier = n where w = r.w and d = r.d and o = r.o;
  end loop;
end $$;`)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 30
		m.catchUp(t)
		for n := range 120 {
			what := []string{"order_now", "pay", "order_now", "pay", "deliver"}[n%5]
			end := []string{"commit", "commit", "commit", "rollback"}[n/5%4]
			do(t, conn, fmt.Sprintf("begin; call public.%s(%d); %s", what, n, end))
			if n == 60 {
				m.catchUp(t)
			}
		}
		m.catchUp(t)
		for table, columns := range map[string][]string{"warehouse": {"w", "ytd"}, "district": {"w", "d", "next", "ytd"}, "customer": {"w", "d", "c", "balance", "data"},
			"orders": {"w", "d", "o", "c", "carrier"}, "new_order": {"w", "d", "o"}, "order_line": {"w", "d", "o", "l", "item", "amount"}, "stock": {"w", "i", "q"},
			"payments": {"id", "w", "d", "c", "amount"}, "item": {"i", "price"}} {
			sameRows(t, table, m.rows(t, "public_"+table, columns...), truth(t, conn, table, columns...))
		}
	})
}
