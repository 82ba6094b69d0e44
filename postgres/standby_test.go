package postgres

import (
	"bufio"
	"bytes"
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// node is a server that a test started itself.
type node struct {
	dir     string
	address string // of the database shop
}

// script runs the project's script for PostgreSQL servers and returns what it prints.
func script(t *testing.T, args ...string) string {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.Command(filepath.Join("..", "interop", "servers", "postgres"), args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("postgres %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return out.String()
}

// node starts a server; of: the folder of the one that it is a standby of, or "".
func startNode(t *testing.T, version, of string, settings ...string) *node {
	t.Helper()
	n := &node{dir: t.TempDir()}
	args := []string{"start", n.dir, "--version", version, "--port", "0"}
	if of != "" {
		args = []string{"standby", n.dir, of, "--port", "0"}
	}
	t.Cleanup(func() { script(t, "stop", n.dir, "--kill") })
	n.is(t, script(t, append(args, settings...)...))
	return n
}

// is takes the address from what the script prints.
func (n *node) is(t *testing.T, env string) {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(env)); lines.Scan(); {
		if text, is := strings.CutPrefix(lines.Text(), "POSTGRES_URL='"); is {
			of, err := url.Parse(strings.TrimSuffix(text, "'"))
			if err != nil {
				t.Fatal(err)
			}
			of.Path = "/shop"
			n.address = of.String()
			return
		}
	}
	t.Fatalf("got no address in %q", env)
}

func (n *node) kill(t *testing.T)    { t.Helper(); script(t, "stop", n.dir, "--kill") }
func (n *node) restart(t *testing.T) { t.Helper(); script(t, "start", n.dir) }
func (n *node) promote(t *testing.T) { t.Helper(); script(t, "promote", n.dir) }

// replayed waits until the standby has all that the primary has.
func replayed(t *testing.T, primary, standby *pgconn.PgConn) {
	t.Helper()
	at := answer(t, primary, "select pg_current_wal_flush_lsn()")
	eventually(t, standby, "select pg_last_wal_replay_lsn() >= '"+at+"'")
}

// answer is the first value that a statement returns.
func answer(t *testing.T, conn *pgconn.PgConn, sql string) string {
	t.Helper()
	found, err := query(t.Context(), conn, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return string(found[0][0])
}

// eventually asks until the answer is true.
func eventually(t *testing.T, conn *pgconn.PgConn, sql string) {
	t.Helper()
	for until := time.Now().Add(deadline); answer(t, conn, sql) != "t"; {
		if time.Now().After(until) {
			t.Fatalf("%s: it never was", sql)
		}
		answer(t, conn, "select pg_sleep(0.01)")
	}
}

// pair starts a primary and a standby of it, whose slots are copied when it is asked for that.
func pair(t *testing.T) (primary, standby *node) {
	t.Helper()
	if os.Getenv("POSTGRES_URLS") == "" {
		t.Skip("POSTGRES_URLS names no server; see interop/README.md")
	}
	primary = startNode(t, "18", "")
	admin := connect(t, strings.Replace(primary.address, "/shop", "/postgres", 1))
	do(t, admin, "create database shop")
	do(t, connect(t, primary.address), mirroredDDL+fill)
	return primary, startNode(t, "18", primary.dir)
}

// A standby is read, and then promoted: servers are slow to start, so that one pair does for all.
func TestStandby_ReadThenPromoted_TablesEqualOrNamed(t *testing.T) {
	primary, standby := pair(t)
	quick, all := follower(t, standby.address, "quick"), follower(t, standby.address, "all")
	t.Run("read", func(t *testing.T) { standbyIsRead(t, primary, standby, quick, all) })
	t.Run("table comes late", func(t *testing.T) { tableComesLate(t, primary, all) })
	t.Run("promoted", func(t *testing.T) { standbyIsPromoted(t, primary, standby, quick) })
}

// follower is a mirror with a slot of its own.
func follower(t *testing.T, address, slot string) *mirror {
	t.Helper()
	m := newMirror(t, address)
	m.options.Slot, m.options.Publication, m.options.History.ChunkRows = slot, "shop", 500
	return m
}

// A standby is read like a primary, log and rows, and rows alone can be read from it while the log is the primary's; both while random
// transactions go on. What a standby cannot do says so.
func standbyIsRead(t *testing.T, primary, standby *node, quick, all *mirror) {
	up, down := connect(t, primary.address), connect(t, standby.address)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	all.fails(t, freshet.CodeSourceRefused, "a standby answers, which cannot make it")
	rows := follower(t, primary.address, "rows")
	rows.options.History.Address = standby.address
	wait := churnAll(t, primary.address, seed, 30)
	rows.append(t)
	wait()
	rows.append(t)
	rows.playedBack(t, up, "rows of the standby")

	quick.options.Tables = []string{"public.quiet"}
	hurried(t, primary, func() error { return quick.pipeline(quick.source(t, true), lake.Mirror).Run(t.Context()) })
	// Not while random transactions go on: decoding fails for good then more often than not, see docs/postgres.md on "could not map filenode".
	other := connect(t, standby.address)
	hurried(t, primary, func() error {
		_, err := query(t.Context(), other, "select pg_create_logical_replication_slot('all', 'pgoutput')")
		return err
	})
	wait = churnAll(t, primary.address, seed+1, 30)
	all.append(t)
	wait()
	replayed(t, up, down)
	all.append(t)
	all.playedBack(t, up, "all of the standby")

	log := follower(t, standby.address, "log")
	log.log = true
	log.options.History.Address = primary.address
	log.options.Slot = "all"
	log.fails(t, freshet.CodeTimeline, "no standby")
}

// hurried runs what makes a slot on a standby, and has the primary tell what runs, for which that waits.
func hurried(t *testing.T, primary *node, makes func() error) {
	t.Helper()
	conn := connect(t, primary.address)
	made := make(chan error, 1)
	go func() { made <- makes() }()
	for {
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			do(t, conn, "select pg_log_standby_snapshot(), pg_sleep(0.05)")
		}
	}
}

// append appends every change up to the end of the log of now, while that goes on.
func (m *mirror) append(t *testing.T) {
	t.Helper()
	if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
		unlessUndecodable(t, err)
		t.Fatal(err)
	}
}

// playedBack wants the changes that were appended to make up the tables, each once.
func (m *mirror) playedBack(t *testing.T, source *pgconn.PgConn, when string) {
	t.Helper()
	for table, columns := range mirrored {
		sameRows(t, when+": "+table, m.playBack(t, table, columns), truth(t, source, table, columns...))
	}
}

// A table comes to the publication while a transaction is open that has written to it before, so that the log does not tell of that: its rows
// are read once the transaction has ended. Its number is above those that a standby's snapshot knows.
func tableComesLate(t *testing.T, primary *node, all *mirror) {
	up, publishing, writing := connect(t, primary.address), connect(t, primary.address), connect(t, primary.address)
	do(t, up, "create table public.late (id int primary key)")
	loading, loaded, ticks := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	all.options.WatchEvery = 10 * time.Millisecond
	all.options.Observer = freshet.Observer{
		Loading: func(l freshet.Loading) {
			told := map[bool]chan struct{}{false: loading, true: loaded}[l.Done]
			select {
			case told <- struct{}{}:
			default:
			}
		},
		Held: func(freshet.Held) {
			select {
			case ticks <- struct{}{}:
			default:
			}
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- all.pipeline(all.source(t, false), lake.Append).Run(ctx) }()
	wait := func(what string, told <-chan struct{}) {
		t.Helper()
		select {
		case <-told:
		case err := <-done:
			t.Fatalf("ended with %v, want %s", err, what)
		}
	}
	wait("the slot watched", ticks)
	do(t, publishing, "begin; alter publication shop add table public.late")
	do(t, writing, "begin; insert into public.late values (1)")
	do(t, publishing, "commit")
	wait("the table loading", loading)
	for range 50 {
		wait("the slot watched", ticks)
	}
	select {
	case <-loaded:
		t.Error("the table was loaded, want the open transaction waited for")
	default:
	}
	do(t, writing, "commit")
	wait("the table loaded", loaded)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	sameRows(t, "late", all.rows(t, "public_late", "id"), []string{"|1"})
}

// After a failover the pipeline goes on where the promoted standby has all that the tables hold, and stops where it has not, and where
// the former primary answers again. One that reads from the standby goes on, though it ends before it would have noticed by itself.
func standbyIsPromoted(t *testing.T, primary, standby *node, quick *mirror) {
	up := connect(t, primary.address)
	level, ahead := follower(t, primary.address, "level"), follower(t, primary.address, "ahead")
	noSlot := follower(t, primary.address, "no_slot")
	do(t, up, "select pg_create_logical_replication_slot('no_slot', 'pgoutput')") // not for failover
	for _, m := range []*mirror{level, ahead, noSlot} {
		m.catchUp(t)
	}
	do(t, up, "insert into public.keyed (id, n) values (-1, 1); select pg_log_standby_snapshot()")
	level.catchUp(t)
	ahead.catchUp(t)
	down := connect(t, standby.address)
	for _, slot := range []string{"level", "ahead"} {
		for until := time.Now().Add(deadline); ; {
			if time.Now().After(until) {
				t.Fatalf("the slot %s was never copied", slot)
			}
			replayed(t, up, down)
			do(t, down, "select pg_sync_replication_slots()")
			if answer(t, down, "select count(*) from pg_replication_slots where slot_name = '"+slot+"' and synced and not temporary") == "1" {
				break
			}
			do(t, up, "insert into public.quiet select coalesce(max(id), 0) + 1 from public.quiet; select pg_log_standby_snapshot()")
			level.catchUp(t)
			ahead.catchUp(t)
		}
	}
	copied := follower(t, standby.address, "level")
	copied.fails(t, freshet.CodeSourceRefused, "as a copy of the primary's")

	standby.kill(t)
	do(t, up, "insert into public.keyed (id, n) values (-2, 2)") // which the standby never has
	ahead.catchUp(t)
	primary.kill(t)
	standby.restart(t)
	down = connect(t, standby.address)
	end := quick.running(t)
	eventually(t, down, "select active from pg_replication_slots where slot_name = 'quick'")
	standby.promote(t)
	eventually(t, down, "select not pg_is_in_recovery()")
	do(t, down, "insert into public.quiet values (-1)")
	for until := time.Now().Add(deadline); !slices.Contains(quick.rows(t, "public_quiet", "id"), "|-1"); {
		if time.Now().After(until) {
			t.Fatalf("the row behind the promotion never came; it ended with %v", end())
		}
		answer(t, down, "select pg_sleep(0.01)")
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	quick.catchUp(t)
	sameRows(t, "quiet", quick.rows(t, "public_quiet", "id"), truth(t, down, "quiet", "id"))
	do(t, down, "insert into public.keyed (id, n) values (-3, 3); insert into public.toast select -g, 1, repeat('x', 9000) from generate_series(1, 200) g")
	for _, m := range []*mirror{level, ahead, noSlot} {
		m.address = standby.address
	}
	ahead.fails(t, freshet.CodeTimeline, "has lost transactions")
	noSlot.fails(t, freshet.CodeSlotLost, "no such slot")
	level.catchUp(t)
	level.check(t, "after the failover")
	do(t, down, "delete from public.toast where id < 0")
	level.catchUp(t)
	level.check(t, "on the new timeline")

	primary.restart(t)
	level.address = primary.address
	level.fails(t, freshet.CodeTimeline, "does not go back to")
}
