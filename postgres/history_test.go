package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// fill has tables hold rows before anything is set up, of the keys that churns then change, and of others.
const fill = `
insert into public.keyed (id, n, v) select g, 0, repeat(md5(g::text), g % 40) from generate_series(0, 2999) g;
insert into public.toast select g, 0, repeat(md5(g::text), 200), 'v' from generate_series(0, 2999, 7) g;
insert into public.whole select g, 0, repeat(md5(g::text), 200), 'v' from generate_series(0, 2999, 5) g;`

func TestHistory_QuietTables_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		do(t, connect(t, address), mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 500
		m.catchUp(t)
		m.check(t, "loaded")
		m.catchUp(t)
		m.check(t, "loaded and followed")
	})
}

// The rows of a chunk that has more than a part holds are in several batches of one seq.
func TestHistory_ChunksOfManyParts_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		do(t, connect(t, address), mirroredDDL+fill+`
update public.keyed set v = repeat(md5(id::text), 400); update public.toast set big = repeat(md5(id::text), 2000)`)
		m := newMirror(t, address)
		m.catchUp(t)
		m.check(t, "loaded")
	})
}

// Tables are loaded while random transactions change them, and the pipeline dies and the server ends connections at random.
func TestHistory_ChurnAndCuts_TablesEqualTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		do(t, connect(t, address), mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 100
		m.disturb(t, seed, lake.Mirror)
		m.catchUp(t)
		m.check(t, "at the end")
		for round := range 2 {
			churnAll(t, address, seed+uint64(round), 40)()
			m.catchUp(t)
			m.check(t, fmt.Sprintf("round %d", round))
		}
	})
}

// What is appended is each row once as it was first read, and each change since once: played back, every insert finds its key
// free, every update and delete finds its row, and the rows are those of the source.
func TestHistory_ChurnAndCuts_ChangesPlayedBackEqualTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 100
		m.disturb(t, seed, lake.Append)
		if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		for table, columns := range mirrored {
			sameRows(t, table, m.playBack(t, table, columns), truth(t, conn, table, columns...))
		}
	})
}

// A transaction can be in the log and not visible yet when two chunks of a table are opened: it comes before the place that the
// first one waits for, and behind the rows of the second, which come after the first one is finished.
func TestHistory_UnseenByTwoChunks_SecondIsOpenedAgain(t *testing.T) {
	s := &Source{next: &arrival{transaction: &transaction{xid: 15, end: 50}}}
	s.history = newHistory(s)
	ended, parts := false, make(chan *part)
	close(parts)
	seen := visibility{xmin: 15, xmax: 20, running: map[uint64]struct{}{15: {}}}
	l := &load{feed: &feed{}}
	l.windows = []*window{{load: l, watermark: watermark{seen: seen, high: 100}, returned: true},
		{load: l, watermark: watermark{seen: seen, high: 110}, parts: parts, end: func() { ended = true }}}
	s.history.loads = []*load{l}
	acted, err := s.history.step(t.Context())
	if err != nil || !acted || !ended || len(l.windows) != 1 || s.history.holds(*s.next) {
		t.Errorf("got %v, %v, the second ended: %v, %d windows, which hold the transaction: %v; wanted it to go on", acted, err, ended,
			len(l.windows), s.history.holds(*s.next))
	}
}

// Without a key that can be put in order a table is read at once: what is appended of it is its rows, and what happened since.
func TestHistory_NoKey_EachRowOnce(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.plain (id bigint, v text); alter table public.plain replica identity full;
insert into public.plain select g % 700, repeat('x', g % 50) from generate_series(1, 20000) g;
create table public.words (id text collate "en-x-icu" primary key, v text); insert into public.words
select 'w' || g, 'v' from generate_series(1, 3000) g`)
		m := newMirror(t, address)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Append).Run(ctx) }()
		for n := range 60 {
			do(t, conn, fmt.Sprintf(`insert into public.plain select %[1]d, 'new' from generate_series(1, 20);
delete from public.plain where id = %[1]d and v = 'new'; insert into public.words values ('x%[1]d', 'new')`, n))
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		sameRows(t, "words", m.playBack(t, "words", []string{"id", "v"}), truth(t, conn, "words", "id", "v"))
		left := map[string]int{}
		for _, c := range m.values(t, "public_plain", lake.ChangeTypeColumn, "id", "v") {
			row := "|" + c[1] + "|" + c[2]
			if left[row]++; c[0] == "delete" {
				left[row] -= 2
			}
		}
		for _, row := range truth(t, conn, "plain", "id", "v") {
			left[row]--
		}
		for row, n := range left {
			if n != 0 {
				t.Fatalf("%s is there %d times more than in the source", row, n)
			}
		}
	})
}

// Tables that are made while the stream goes on, and one that is made again, are loaded with what they had before the log told
// of them.
func TestHistory_TablesComeLater_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.first (id bigint primary key, v text)")
		m := newMirror(t, address)
		m.catchUp(t)
		publication := quoteName(m.options.Slot)
		do(t, conn, `create table public.second (id bigint primary key, v text);
insert into public.second select g, 'old' from generate_series(1, 3000) g;
drop table public.first; create table public.first (id bigint primary key, v text);
insert into public.first select g, 'again' from generate_series(1, 2000) g;
alter publication `+publication+` add table public.second, public.first;
insert into public.second values (0, 'new'); update public.first set v = 'changed' where id = 7`)
		m.catchUp(t)
		for _, table := range []string{"first", "second"} {
			sameRows(t, table, m.rows(t, "public_"+table, "id", "v"), truth(t, conn, table, "id", "v"))
		}
	})
}

// Tables and their change logs are committed one after the other: whichever a process leaves behind gets what it lacks, and
// the other nothing twice.
func TestHistory_ChurnAndCuts_ChangeLogsBesideEqualToo(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows, m.log = 100, true
		m.disturb(t, seed, lake.Mirror)
		m.catchUp(t)
		m.check(t, "at the end")
		for table, columns := range mirrored {
			sameRows(t, table, m.playBack(t, table+"_log", columns), truth(t, conn, table, columns...))
		}
	})
}

// The same while tables, or their change logs, are held back again and again, and take up what was parked before or beside the stream:
// chunks, and what the stream leaves out for them, come to the table in the order in which they were read.
func TestHistory_ChurnCutsAndParked_TablesAndLogsEqualTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows, m.log = 100, true
		rng := rand.New(rand.NewPCG(seed, 7))
		m.park = func() *lake.ParkOptions {
			o := &lake.ParkOptions{Held: map[string]bool{}, TailBytes: []int64{-1, 1, 1000}[rng.IntN(3)]}
			for table := range mirrored {
				o.Held["public_"+table] = rng.IntN(2) == 0
				o.Held["public_"+table+"_log"] = rng.IntN(2) == 0
			}
			return o
		}
		m.disturb(t, seed, lake.Mirror)
		m.park = func() *lake.ParkOptions { return &lake.ParkOptions{TailBytes: -1} }
		m.catchUp(t)
		m.check(t, "at the end")
		for table, columns := range mirrored {
			sameRows(t, table, m.playBack(t, table+"_log", columns), truth(t, conn, table, columns...))
		}
	})
}

// disturb runs the pipeline while random transactions go on, and kills it, ends it, or connections of its, at random.
func (m *mirror) disturb(t *testing.T, seed uint64, mode lake.Mode) {
	t.Helper()
	m.disturbed(t, seed, mode, churnAll(t, m.address, seed, 150))
}

// disturbed is disturb while something goes on that wait waits for.
func (m *mirror) disturbed(t *testing.T, seed uint64, mode lake.Mode, wait func()) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	conn := connect(t, m.address)
	for range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), mode).Run(ctx) }()
		<-time.After(time.Duration(rng.IntN(300)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			do(t, conn, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and "+
				"pid <> pg_backend_pid() and (query like 'START_REPLICATION%' or query like 'copy%' or query like 'begin iso%')")
			<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
		}
		killed := rng.IntN(3) > 0
		if killed {
			m.left.Store(1 + int64(rng.IntN(60)))
			<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil && !(killed && errors.Is(err, store.ErrPermission)) {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		m.left.Store(-1)
	}
	wait()
}

// playBack applies the changes that the table holds, and returns the rows that are left. The first column is the key.
func (m *mirror) playBack(t *testing.T, table string, columns []string) (rows []string) {
	t.Helper()
	return m.playBackBy(t, table, 1, columns)
}

// playBackBy is playBack where the first so many columns are the key.
func (m *mirror) playBackBy(t *testing.T, table string, keys int, columns []string) (rows []string) {
	t.Helper()
	all := m.values(t, "public_"+table, append([]string{lake.CommitVersionColumn, lake.OrdinalColumn, lake.ChangeTypeColumn,
		"_unsent"}, columns...)...)
	order := func(s string) (n int) { _, _ = fmt.Sscan(s, &n); return n }
	slices.SortStableFunc(all, func(a, b []string) int {
		return cmp.Or(cmp.Compare(order(a[0]), order(b[0])), cmp.Compare(order(a[1]), order(b[1])), -cmp.Compare(a[2], b[2]))
	})
	state, moved := map[string][]string{}, []string(nil)
	for _, c := range all {
		kind, unsent, row := c[2], c[3], c[4:]
		key := strings.Join(row[:keys], "|")
		old := state[key]
		switch {
		case kind == "truncate":
			clear(state)
		case !m.torn && (kind == "insert" && old != nil || kind != "insert" && kind != "update_postimage" && old == nil ||
			kind == "update_postimage" && old == nil && moved == nil):
			t.Fatalf("%s: %v finds the row %v", table, c, old)
		case kind == "delete":
			delete(state, key)
		case kind == "update_preimage":
			moved = old
			delete(state, key)
		default:
			if moved != nil {
				old, moved = moved, nil
			}
			row = slices.Clone(row)
			for i, name := range columns {
				if strings.Contains(unsent, `"`+name+`"`) && old != nil {
					row[i] = old[i]
				}
			}
			state[key] = row
		}
	}
	for _, row := range state {
		rows = append(rows, "|"+strings.Join(row, "|"))
	}
	slices.Sort(rows)
	return rows
}
