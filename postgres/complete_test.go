package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lake"
)

// A row gets a key of the rows that are loaded already, from one of those that are not, and its large value is not sent: nothing
// downstream has it.
func TestComplete_KeyMovesWhileLoaded_LargeValueIsThere(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.moving (id bigint primary key, v text, big text); alter table public.moving alter big set storage external;
insert into public.moving select g, 'v', repeat(md5(g::text), 100) from generate_series(1, 3000) g`)
		m := newMirror(t, address)
		m.log = true
		m.options.History.ChunkRows, m.options.History.RowsPerSecond = 100, 300
		m.whileReading(t, 50, "v", func() {
			do(t, conn, `update public.moving set id = -1 where id = 2990; update public.moving set id = -2 where id = 2991;
update public.moving set id = -3, v = 'again' where id = -2; update public.moving set id = -4 where id = 2992; delete from public.moving where id = -4`)
		})
		m.options.History.RowsPerSecond = 0
		m.catchUp(t)
		columns := []string{"id", "v", "big"}
		sameRows(t, "the table", m.rows(t, "public_moving", columns...), truth(t, conn, "moving", columns...))
		sameRows(t, "the log", m.playBack(t, "moving_log", columns), truth(t, conn, "moving", columns...))
	})
}

// The same of a column that was added, with a large value in each row: rows that were not read again yet do not have it downstream.
func TestComplete_KeyMovesWhileReadAgain_AddedValueIsThere(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.moving (id bigint primary key, v text);
insert into public.moving select g, 'v' from generate_series(1, 3000) g`)
		m := newMirror(t, address)
		m.log = true
		m.catchUp(t)
		m.options.History.ChunkRows, m.options.History.RowsPerSecond = 100, 300
		do(t, conn, `create function public.large() returns text language sql volatile as $$ select string_agg(md5(random()::text || g), '') from generate_series(1, 200) g $$;
alter table public.moving add big text default public.large();
insert into public.moving values (4000, 'new')`)
		m.whileReading(t, 50, "big", func() {
			do(t, conn, "update public.moving set id = -1 where id = 2990")
		})
		m.options.History.RowsPerSecond = 0
		m.catchUp(t)
		columns := []string{"id", "v", "big"}
		sameRows(t, "the table", m.rows(t, "public_moving", columns...), truth(t, conn, "moving", columns...))
		sameRows(t, "the log", m.playBack(t, "moving_log", columns), truth(t, conn, "moving", columns...))
	})
}

// whileReading runs the pipeline and does something once so many rows of the table have a column, and ends it a while after.
func (m *mirror) whileReading(t *testing.T, rows int, column string, do func()) {
	t.Helper()
	read := func() (n int) {
		if m.count("public_moving") == 0 || !slices.Contains(m.columns(t, "public_moving"), column) {
			return 0
		}
		for _, row := range m.rows(t, "public_moving", column) {
			if row != "|(null)" {
				n++
			}
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
	for read() < rows {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	do()
	<-time.After(500 * time.Millisecond)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
