package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

const partsDDL = `
create table public.parts (id int, place text, n int, primary key (id)) partition by range (id);
create table public.parts_a partition of public.parts for values from (0) to (1000);
create table public.parts_b partition of public.parts for values from (1000) to (2000);
create table public.parts_c (id int not null, n int, place text, primary key (id));
create table public.parts_d partition of public.parts for values from (3000) to (4000);
insert into public.parts select g, 'x', 0 from generate_series(0, 1999) g;
insert into public.parts select g, 'x', 0 from generate_series(3000, 3099) g;
create table public.base (id int primary key, v text);
create table public.derived (extra int, primary key (id)) inherits (public.base);
insert into public.base select g, 'base' from generate_series(1, 300) g;
insert into public.derived select g, 'derived', g from generate_series(200, 700) g;`

// A partitioned table is one, or each of its partitions is, as the publication says; one that inherits is one of its own, and its rows
// are not its parent's. Partitions are attached and detached, and rows move among them, while tables are loaded.
func TestHistory_PartitionsAndHeirs_LoadedAsPublished(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, partsDDL)
		root, leaves := newMirror(t, address), newMirror(t, address)
		root.options.Slot = "r" + root.options.Slot[1:]
		root.options.Tables = []string{"public.parts", "public.base", "public.derived"}
		leaves.options.Slot = "l" + leaves.options.Slot[1:]
		leaves.options.Publication = "leaves"
		do(t, conn, "create publication leaves for table public.parts, only public.base")
		mirrors := []*mirror{root, leaves}
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		done := make(chan error, len(mirrors))
		for _, m := range mirrors {
			m.options.History.ChunkRows = 40
			go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		}
		for n := range 40 {
			do(t, conn, fmt.Sprintf("update public.parts set n = %[1]d where id %% 40 = %[1]d; delete from public.parts where id = 1900 + %[1]d; update public.parts set id = 1900 + id where id = %[1]d; "+
				"delete from public.parts where id = %[1]d + 1950; insert into public.parts values (%[1]d + 1950, 'again', 1) on conflict do nothing; "+
				"update only public.base set v = 'changed' where id = %[1]d; update public.derived set extra = -1 where id = %[1]d + 300", n))
			if n == 15 {
				do(t, conn, "alter table public.parts attach partition public.parts_c for values from (2000) to (3000)")
				do(t, conn, "alter table public.parts detach partition public.parts_d")
			}
			if n >= 15 {
				do(t, conn, fmt.Sprintf("insert into public.parts values (%d, 'attached', 1)", 2000+n))
			}
		}
		cancel()
		for range mirrors {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range mirrors {
			m.catchUp(t)
			sameRows(t, "base", m.rows(t, "public_base", "id", "v"), onlyRows(t, address, "base", "id", "v"))
		}
		sameRows(t, "derived", root.rows(t, "public_derived", "id", "v", "extra"), truth(t, conn, "derived", "id", "v", "extra"))
		sameRows(t, "parts", slices.DeleteFunc(root.rows(t, "public_parts", "id", "place", "n"), detached),
			slices.DeleteFunc(truth(t, conn, "parts", "id", "place", "n"), detached))
		for _, leaf := range []string{"parts_a", "parts_b", "parts_c"} {
			sameRows(t, leaf, leaves.rows(t, "public_"+leaf, "id", "place", "n"), truth(t, conn, leaf, "id", "place", "n"))
		}
		if _, both := leaves.stores["public_parts"]; both {
			t.Error("got the partitioned table beside its partitions, want those alone")
		}
	})
}

// detached reports whether a row is of the partition that was detached: the log does not say that its rows are gone.
func detached(row string) bool {
	var id int
	_, _ = fmt.Sscanf(row, "|%d|", &id)
	return id >= 3000
}

// onlyRows are the rows of a table itself, without those of tables that inherit from it.
func onlyRows(t *testing.T, address, table string, columns ...string) []string {
	t.Helper()
	conn := connect(t, address)
	do(t, conn, "create or replace view public.bare_"+table+" as select * from only public."+table)
	return truth(t, conn, "bare_"+table, columns...)
}

// The server ends the connection just as it is asked whether a partition is a table of its own: it is asked again, and the partition is none.
func TestPartitions_ConnectionLostWhileAsked_NoTableOfItsOwn(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.measured (id int primary key, v text) partition by range (id);
create table public.measured_low partition of public.measured for values from (0) to (100); insert into public.measured values (1, 'a')`)
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed = []string{"public.*"}, true
		m.catchUp(t)
		b := &between{t: t, when: "from pg_catalog.pg_publication_tables where", shots: &atomic.Int64{}}
		m.address = b.address(address)
		end := m.running(t)
		eventually(t, conn, "select count(*) = 1 from pg_replication_slots where slot_name = "+quoteText(m.options.Slot)+" and active")
		b.shots.Store(1)
		do(t, conn, "insert into public.measured values (2, 'b')")
		for until := time.Now().Add(deadline); !slices.Contains(m.rows(t, "public_measured", "id"), "|2"); {
			if time.Now().After(until) {
				t.Fatalf("the row never came; it ended with %v", end())
			}
			answer(t, conn, "select pg_sleep(0.01)")
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if got := b.met.Load(); got != 1 {
			t.Errorf("got %d connections that were ended, want 1", got)
		}
		st, err := m.open("public_measured_low")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := delta.Open(t.Context(), st, nil); !errors.Is(err, delta.ErrNoTable) {
			t.Errorf("got %v, want no table of the partition's own", err)
		}
	})
}

// A table of its own that becomes a partition of one that is read as a whole stays as it is downstream, and its rows are the other's from then on,
// whether the pipeline runs meanwhile or not. When it is a table again, what happened to it in between is a gap.
func TestPartitions_TableIsAttached_PipelineGoesOn(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.whole_one (id int primary key, v text) partition by range (id);
create table public.first_part partition of public.whole_one for values from (0) to (100); insert into public.whole_one values (1, 'a');
create table public.second_part (id int primary key, v text); insert into public.second_part values (101, 'own');
create table public.third_part (id int primary key, v text); insert into public.third_part values (201, 'own')`)
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed = []string{"public.*"}, true
		m.catchUp(t)
		var log lines
		m.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		m.options.WatchEvery = 10 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		do(t, conn, "alter table public.whole_one attach partition public.second_part for values from (100) to (200); insert into public.whole_one values (102, 'b')")
		for !strings.Contains(log.String(), "became a partition") || !slices.Contains(m.rows(t, "public_whole_one", "id"), "|102") {
			select {
			case err := <-done:
				t.Fatalf("ended with %v, wanted it to go on", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		do(t, conn, "alter table public.whole_one attach partition public.third_part for values from (200) to (300); insert into public.whole_one values (202, 'c'); update public.whole_one set v = 'moved' where id in (1, 102)")
		m.catchUp(t)
		m.catchUp(t)
		sameRows(t, "the whole", m.rows(t, "public_whole_one", "id", "v"), []string{"|102|moved", "|1|moved", "|202|c"})
		sameRows(t, "the second", m.rows(t, "public_second_part", "id", "v"), []string{"|101|own"})
		sameRows(t, "the third", m.rows(t, "public_third_part", "id", "v"), []string{"|201|own"})
		for range 3 { // the slot goes on without the third
			do(t, conn, "update public.whole_one set v = 'moved again' where id = 1; update public.whole_one set v = 'moved' where id = 1")
			m.catchUp(t)
		}
		do(t, conn, "alter table public.whole_one detach partition public.third_part")
		m.fails(t, freshet.CodeGap, "public.third_part")
	})
}
