package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/quality"
)

// A column that is added gets, in rows that were there, what they have: a default that the server keeps aside, one that it wrote
// into each, or nothing. Its log tells of none.
func TestFill_ColumnsAddedWithDefaults_OldRowsHaveThem(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.grown (id bigint primary key, v text, big text);
alter table public.grown alter big set storage external;
insert into public.grown select g, 'v' || g, repeat(md5(g::text), 100) from generate_series(1, 3000) g`)
		m := newMirror(t, address)
		m.options.History.ChunkRows, m.log = 700, true
		m.catchUp(t)
		do(t, conn, `alter table public.grown add a int default 7, add b text;
update public.grown set v = 'changed' where id = 5; delete from public.grown where id = 6`)
		m.catchUp(t)
		do(t, conn, `alter table public.grown add c double precision default random(), add d timestamptz default now()`)
		m.catchUp(t) // nothing tells of it yet
		do(t, conn, `insert into public.grown values (4000, 'new', 'x', 8, 'b'); alter table public.grown alter a drop default`)
		m.catchUp(t)
		columns := []string{"id", "v", "big", "a", "b", "c"}
		sameRows(t, "the table", m.rows(t, "public_grown", columns...), truth(t, conn, "grown", columns...))
		sameRows(t, "the log", m.playBack(t, "grown_log", columns), truth(t, conn, "grown", columns...))
		if n := len(m.rows(t, "public_grown", "d")); n != 3000 || slices.Contains(m.rows(t, "public_grown", "d"), "|(null)") {
			t.Errorf("got %d rows, or one whose d is null; wanted a time in all 3000", n)
		}
	})
}

// The table is altered while it is loaded, and again and again, while transactions change it and the pipeline is ended and killed.
func TestFill_ChurnAndCuts_TableEqualsTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 100
		done := make(chan struct{})
		go func() {
			defer close(done)
			altering := connect(t, address)
			for n := range 8 {
				for _, table := range []string{"keyed", "toast", "whole"} {
					alter := fmt.Sprintf("alter table public.%s add if not exists c%d int default %d", table, n, 100+n)
					for _, err := altering.Exec(context.Background(), alter).ReadAll(); err != nil && t.Context().Err() == nil; { // a deadlock
						_, err = altering.Exec(context.Background(), alter).ReadAll()
					}
				}
				<-time.After(200 * time.Millisecond)
			}
		}()
		m.disturb(t, seed, lake.Mirror)
		<-done
		do(t, conn, "update public.keyed set n = n; update public.toast set n = n where id % 2 = 0; insert into public.whole (id) values (-77)")
		m.catchUp(t)
		m.check(t, "at the end")
		for _, table := range []string{"keyed", "toast", "whole"} {
			columns := []string{"id", "n", "c0", "c3", "c7"}
			want := truth(t, conn, table, columns...)
			sameRows(t, table, m.rows(t, "public_"+table, columns...), want)
		}
	})
}

func TestFill_KeepNewColumns_LeftOutWhileLoading(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.kept (id int primary key, v text);
insert into public.kept select g, 'v' from generate_series(1, 2000) g`)
		m := newMirror(t, address)
		m.options.History.ChunkRows, m.options.DDL = 100, DDL{Add: Keep}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		for m.count("public_kept") == 0 {
			select {
			case err := <-ended:
				t.Fatalf("ended with %v before it loaded a chunk", err)
			case <-time.After(time.Millisecond):
			}
		}
		do(t, conn, "alter table public.kept add c int default 5; insert into public.kept values (-1, 'new', 6)")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_kept", "id", "v"), truth(t, conn, "kept", "id", "v"))
		if slices.Contains(m.columns(t, "public_kept"), "c") {
			t.Error("got the column c, wanted it to be left out")
		}
	})
}

// What a table held that was dropped while nothing ran is not in that which was made in its place, whatever its log tells of either.
func TestRemade_WhileNothingRan_NoOldRows(t *testing.T) {
	cases := map[string]string{
		"nothing is told": `insert into public.other values (2)`,
		"both are told": `insert into public.again values (700, 'last'); drop table public.again;
create table public.again (id int primary key, v text); insert into public.again values (2, 'two'), (9, 'nine')`,
	}
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		for name, what := range cases {
			do(t, conn, `drop table if exists public.again, public.other; create table public.again (id int primary key, v text);
create table public.other (id int primary key); insert into public.again select g, 'old' from generate_series(1, 50) g`)
			m := newMirror(t, address)
			m.options.Slot = fmt.Sprint(m.options.Slot[:40], "_", m.options.Slot[len(m.options.Slot)-6:], "_", len(name))
			m.log = true
			m.catchUp(t)
			do(t, conn, "update public.again set v = 'older' where id < 4")
			m.catchUp(t)
			if name == "nothing is told" {
				do(t, conn, `drop table public.again; create table public.again (id int primary key, v text);
insert into public.again values (3, 'three'), (60, 'sixty')`)
			}
			do(t, conn, what)
			m.catchUp(t)
			want := truth(t, conn, "again", "id", "v")
			sameRows(t, name, m.rows(t, "public_again", "id", "v"), want)
			told := m.rows(t, "public_again_log", lake.ChangeTypeColumn)
			if !slices.Contains(told, "|truncate") {
				t.Errorf("%s: got %v in the change log, want that all rows were gone", name, told)
			}
			do(t, conn, "update public.again set v = 'changed'")
			m.catchUp(t)
			sameRows(t, name+", then changed", m.rows(t, "public_again", "id", "v"), truth(t, conn, "again", "id", "v"))
			sameRows(t, name+": the log", m.playBack(t, "again_log", []string{"id", "v"}), truth(t, conn, "again", "id", "v"))
			do(t, conn, "select pg_drop_replication_slot("+quoteText(m.options.Slot)+"); drop publication "+m.options.Slot)
		}
	})
}

// columns are those of a Delta table.
func (m *mirror) columns(t *testing.T, table string) (names []string) {
	t.Helper()
	st, err := m.open(table)
	if err != nil {
		t.Fatal(err)
	}
	d, err := delta.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := d.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range snap.Schema().Fields {
		names = append(names, f.Name)
	}
	return names
}

// count is the number of data files of a table; 0 where there is none.
func (m *mirror) count(table string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stores[table] == nil {
		return 0
	}
	n := 0
	for o, err := range m.stores[table].List(context.Background(), "", "") {
		if err == nil && len(o.Key) > 8 && o.Key[len(o.Key)-8:] == ".parquet" {
			n++
		}
	}
	return n
}

// While rows are read again for a column, under load, it is not compared, and nothing else is called wrong either; afterwards it is.
func TestVerify_WhileColumnsAreFilled_NoFalseAlarm(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill+`; create table public.wide (id bigint primary key, n int, v text);
insert into public.wide select g, g, 'v' || g from generate_series(1, 6000) g`)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 100
		m.catchUp(t)
		m.options.History.RowsPerSecond = 2000
		source := m.source(t, false)
		m.options.History.RowsPerSecond = 0 // of those that compare
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.pipeline(source, lake.Mirror).Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		wait := churnAll(t, address, seed, 150)
		for n := range 3 {
			column := fmt.Sprintf("c%d", n)
			do(t, conn, fmt.Sprintf("alter table public.wide add %s int default %d, add extra%d text; update public.wide set n = n + 1 where id %% 50 = %[2]d",
				column, n, n))
			for seen := false; ; {
				there := slices.Contains(m.columns(t, "public_wide"), column)
				r := m.verify(t, "wide", &quality.Options{Wait: 20 * time.Second, Dir: t.TempDir()})
				if !r.Equal() {
					t.Fatalf("%s: got %v, %v of %d rows, wanted no difference; %v were left out", column, r.Counts, r.Differences, r.SourceRows, m.filling)
				}
				if slices.Contains(m.filling, column) {
					seen = true
				} else if seen || there { // there, and not seen: it was filled before this looked
					break
				}
			}
		}
		wait()
		if values := m.rows(t, "public_wide", "c0", "c1", "c2"); slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "(null)") }) {
			t.Error("got a null in a column that was filled, wanted its default in all rows")
		}
		where, err := expr.Parse("id = 77")
		if err != nil {
			t.Fatal(err)
		}
		value, err := expr.Parse("99")
		if err != nil {
			t.Fatal(err)
		}
		st, err := m.open("public_wide")
		if err != nil {
			t.Fatal(err)
		}
		d, err := delta.Open(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Update(t.Context(), []delta.Assignment{{Column: "c1", Value: value}}, where, nil); err != nil {
			t.Fatal(err)
		}
		if r := m.verify(t, "wide", &quality.Options{Wait: 20 * time.Second, Dir: t.TempDir()}); r.Found() != 1 {
			t.Errorf("got %v, wanted the one row that somebody else has changed in a column that was filled", r.Counts)
		}
	})
}
