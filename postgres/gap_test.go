package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// fails runs the pipeline and wants it to end with this code, and words.
func (m *mirror) fails(t *testing.T, code freshet.Code, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	err := m.pipeline(m.source(t, true), lake.Mirror).Run(ctx)
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Msg, words) {
		t.Errorf("got %v, want an error of code %s with %q", err, code, words)
	}
}

// A server that was told to keep little log gives the slot up, which is told beforehand by Problem, and by its name afterwards; the
// tables stay as they are.
func TestSlot_LogRemoved_ToldAndNamed(t *testing.T) {
	onOwnServers(t, "48MB", func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		state := func() *SlotState {
			t.Helper()
			s, err := ReadSlot(t.Context(), address, &m.options, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first := state()
		if first.Problem() != "" || first.Active || first.Safe < 0 || len(first.Tables) != 4 || first.End == 0 {
			t.Errorf("got %+v, want a slot that nothing is wrong with, and the tables", first)
		}
		told := first
		for n := 0; told.Lost == ""; n++ {
			if n > 40 {
				t.Fatalf("got %+v, want the slot lost", told)
			}
			do(t, conn, "select pg_logical_emit_message(false, 'test', repeat('x', 4 << 20)); checkpoint")
			now := state()
			if now.Lost != "" && told.Problem() == "" {
				t.Errorf("got %+v just before the slot was lost, want it told", told)
			}
			told = now
		}
		if !strings.Contains(told.Problem(), "lost") {
			t.Errorf("got the problem %q, want it to say that the slot is lost", told.Problem())
		}
		m.fails(t, freshet.CodeSlotLost, "invalidated")
	})
}

// Whatever makes the log have a hole stops the pipeline, each by its name, and the tables stay as they are.
func TestSlot_Gaps_EachNamed(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.keyed (id, n) values (1, 1)")
		m.catchUp(t)
		slot := quoteText(m.options.Slot)

		do(t, conn, "insert into public.keyed (id, n) values (2, 2)")
		do(t, conn, "select pg_replication_slot_advance("+slot+", pg_current_wal_lsn())")
		m.fails(t, freshet.CodeSlotMoved, "the changes between are gone")

		do(t, conn, "select pg_drop_replication_slot("+slot+")")
		m.fails(t, freshet.CodeSlotLost, "no such slot")

		do(t, conn, "select pg_create_logical_replication_slot("+slot+", 'test_decoding')")
		m.fails(t, freshet.CodeBadValue, `plugin "test_decoding"`)
		do(t, conn, "select pg_drop_replication_slot("+slot+")")

		do(t, conn, "select pg_create_logical_replication_slot("+slot+", 'pgoutput')")
		m.fails(t, freshet.CodeSlotMoved, "the changes between are gone")
		if got := m.rows(t, "public_keyed", "id"); len(got) != 1 {
			t.Errorf("got the rows %v, want those before the gap", got)
		}
	})
}

func TestSlot_InUse_HolderNamed(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		do(t, connect(t, address), mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		ctx, cancel := context.WithCancel(t.Context())
		first := m.source(t, false)
		done := make(chan error, 1)
		go func() { done <- m.pipeline(first, lake.Mirror).Run(ctx) }()
		watch := connect(t, address)
		for active := false; !active; {
			select {
			case err := <-done:
				t.Fatalf("the first ended with %v", err)
			default:
			}
			r, err := query(t.Context(), watch, "select active from pg_replication_slots where slot_name = $1", m.options.Slot)
			if err != nil {
				t.Fatal(err)
			}
			active = string(r[0][0]) == "t"
		}
		second := newMirror(t, address)
		second.options.Patience = 100 * time.Millisecond
		second.fails(t, freshet.CodeSourceRefused, "in use by process")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// One transaction that is far larger than the memory for it, sent in parts by the server, with a savepoint undone in it: one
// commit of each table, all of it, and nothing of it before.
func TestStream_HugeTransaction_OneCommitATable(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.options.MemoryBytes = 1 << 20
		run := func() {
			if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		run()
		do(t, conn, `begin; insert into public.keyed (id, n, v) select g, 1, repeat('x', 100) from generate_series(1, 150000) g;
insert into public.quiet select generate_series(1, 10);
savepoint a; update public.keyed set n = 2 where id <= 70000; rollback to a; delete from public.keyed where id > 149000; commit`)
		run()
		if got := m.commitsOfRows(t, "public_keyed"); got != 1 {
			t.Errorf("got %d commits with rows, want 1", got)
		}
		rows := m.rows(t, "public_keyed", lake.ChangeTypeColumn)
		kinds := map[string]int{}
		for _, r := range rows {
			kinds[r]++
		}
		if kinds["|insert"] != 150000 || kinds["|delete"] != 1000 || len(rows) != 151000 {
			t.Errorf("got %v, want 150000 inserts and 1000 deletes", kinds)
		}
	})
}

// commitsOfRows is how many commits have brought rows into a table: those of nothing but progress are others.
func (m *mirror) commitsOfRows(t *testing.T, table string) (n int) {
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
	for lc, err := range d.Commits(t.Context(), 0, snap.Version()) {
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(lc.Actions, func(a delta.Action) bool { return a.Add != nil }) {
			n++
		}
	}
	return n
}
