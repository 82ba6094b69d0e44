package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// newestCut is the newest cut of the mirror; nil: there is none yet.
func (m *mirror) newestCut(t *testing.T) *lake.Cut {
	t.Helper()
	log := m.cutsTable(t)
	if log == nil {
		return nil
	}
	c, err := log.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *mirror) cutsTable(t *testing.T) *lake.Cuts {
	t.Helper()
	st, err := m.open("cuts")
	if err != nil {
		t.Fatal(err)
	}
	log, err := lake.OpenCuts(t.Context(), st)
	var known *freshet.Error
	if errors.As(err, &known) && known.Code == freshet.CodeNoTable {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// logSeq is where a cut stands in the log.
func logSeq(c *lake.Cut) int64 {
	for _, l := range c.Lanes {
		if l.Lane.Name == logLane {
			return l.Seq
		}
	}
	return 0
}

// version is that of the Delta table.
func (m *mirror) version(t *testing.T, table string) int64 {
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
	return snap.Version()
}

// rowsAt is how many rows a table has in a cut.
func (m *mirror) rowsAt(t *testing.T, c *lake.Cut, table string) (n int64) {
	t.Helper()
	st, err := m.open(table)
	if err != nil {
		t.Fatal(err)
	}
	d, err := delta.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range c.Tables {
		if of.Name != table {
			continue
		}
		snap, err := d.SnapshotAt(t.Context(), of.Version)
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"id"}}) {
			if err != nil {
				t.Fatal(err)
			}
			n += rec.NumRows()
			rec.Release()
		}
		return n
	}
	t.Fatalf("cut %d does not show %s", c.Number, table)
	return 0
}

const quietTables = 5

// logEnds is where the log ended behind each of some transactions of the table busy.
func logEnds(t *testing.T, conn *pgconn.PgConn, from, n int) (ends []int64) {
	t.Helper()
	for id := from; id < from+n; id++ {
		do(t, conn, fmt.Sprintf("insert into public.busy values (%d)", id))
		at, err := pgoutput.ParseLSN(answer(t, conn, "select pg_current_wal_insert_lsn()"))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int64(at))
	}
	return ends
}

// One table changes and the others do not: cuts and the slot follow it, each cut shows what had been committed by then, the
// others get no versions, and a process that takes over finds that they hold as much.
func TestLevel_OneTableChanges_CutsAndSlotFollow(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.busy (id bigint primary key)")
		for n := range quietTables {
			do(t, conn, fmt.Sprintf("create table public.quiet%d (id bigint primary key); insert into public.quiet%[1]d values (1)", n))
		}
		m := newMirror(t, address)
		m.catchUp(t)
		before := map[string]int64{}
		for n := range quietTables {
			table := fmt.Sprintf("public_quiet%d", n)
			before[table] = m.version(t, table)
		}
		end := m.running(t)
		var ends []int64
		slot := "select (confirmed_flush_lsn - '0/0')::bigint > %d from pg_replication_slots where slot_name = " + quoteText(m.options.Slot)
		for range 5 {
			ends = append(ends, logEnds(t, conn, len(ends)+1, 4)...)
			last := ends[len(ends)-2] // before the last transaction ends
			for try := 0; ; try++ {
				c := m.newestCut(t)
				if c != nil && logSeq(c) > last && answer(t, conn, fmt.Sprintf(slot, last)) == "t" {
					break
				}
				if try > 1500 {
					t.Fatalf("the newest cut stands at %d and the slot at %s, want both behind %d", logSeq(c),
						answer(t, conn, "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = "+quoteText(m.options.Slot)), last)
				}
				answer(t, conn, "select pg_sleep(0.02)")
			}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		for table, was := range before {
			if got := m.version(t, table); got != was {
				t.Errorf("%s is at version %d, want %d as before: nothing came for it", table, got, was)
			}
		}
		m.checkBusy(t, ends)
		do(t, conn, "insert into public.quiet3 values (2)")
		m.catchUp(t)
		sameRows(t, "the table that was quiet", m.rows(t, "public_quiet3", "id"), truth(t, conn, "quiet3", "id"))
		sameRows(t, "the other", m.rows(t, "public_busy", "id"), truth(t, conn, "busy", "id"))
	})
}

// checkBusy makes sure that each cut shows as many rows of the table busy as had been committed by then.
func (m *mirror) checkBusy(t *testing.T, ends []int64) {
	t.Helper()
	all, err := m.cutsTable(t).List(t.Context(), &lake.CutFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		least, most := int64(0), int64(0)
		for i, end := range ends {
			if end <= logSeq(c) {
				least++
			}
			if i == 0 || ends[i-1] < logSeq(c) {
				most++
			}
		}
		if got := m.rowsAt(t, c, "public_busy"); got < least || got > most {
			t.Errorf("cut %d, at %d, shows %d rows, want between %d and %d", c.Number, logSeq(c), got, least, most)
		}
	}
}
