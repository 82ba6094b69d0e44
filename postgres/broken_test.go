package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// between stands between us and a server. What is to be said instead of the answer to a statement, it says, and hangs up.
type between struct {
	t       *testing.T
	server  string
	when    string        // of the statement
	leave   int           // bytes of the server's answer that come through before
	instead []byte        // nil: nothing, and it hangs up at once
	shots   *atomic.Int64 // how often it does so still; nil: each time
	met     atomic.Int64
}

// address is that of the server, through it.
func (b *between) address(address string) string {
	of, err := url.Parse(address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.server = of.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(client)
		}
	}()
	of.Host = l.Addr().String()
	of.RawQuery = "sslmode=disable"
	return of.String()
}

func (b *between) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", b.server)
	if err != nil {
		return
	}
	defer server.Close()
	var armed atomic.Bool
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				_ = server.Close()
				return
			}
			if bytes.Contains(buf[:n], []byte(b.when)) && (b.shots == nil || b.shots.Add(-1) >= 0) {
				armed.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if armed.Load() {
			b.met.Add(1)
			if b.instead == nil {
				return
			}
			_, _ = client.Write(append(buf[:min(n, b.leave):min(n, b.leave)], b.instead...))
			_, _ = io.Copy(io.Discard, client) // until it hangs up
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func said(t *testing.T, code, message string) []byte {
	t.Helper()
	e := &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: message}
	text, err := e.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A server that fails to decode its log, each time at the same place, is not asked for ever.
func TestStream_DecodingFailsForGood_StopsWithItsCode(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "insert into public.keyed (id) values (1)")
		const copyBoth = 8 // bytes of CopyBothResponse, with which the stream begins
		b := &between{t: t, when: "START_REPLICATION", leave: copyBoth,
			instead: said(t, "XX000", `could not map filenode "base/5/16385" to relation OID`)}
		m.address = b.address(address)
		m.fails(t, freshet.CodeUndecodable, "fails to decode its log behind ")
		if got := b.met.Load(); got != brokenTimes {
			t.Errorf("got %d attempts, want %d", got, brokenTimes)
		}
		m.address = address // it goes on where it stopped
		m.catchUp(t)
		sameRows(t, "keyed", m.rows(t, "public_keyed", "id"), []string{"|1"})
	})
}

// The server ends the connection just as a table is to be read again, of which a part is loaded: that is waited out.
func TestHistory_ConnectionLostAsItIsReadAgain_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.slow (id int primary key, v text); insert into public.slow select g, 'v' from generate_series(1, 1000) g")
		m := newMirror(t, address)
		b := &between{t: t, when: "txid_snapshot_xmax", shots: &atomic.Int64{}}
		m.address = b.address(address)
		m.options.History.ChunkRows, m.options.History.RowsPerSecond = 50, 200
		loading := make(chan struct{}, 1000)
		m.options.Observer.Loading = func(l freshet.Loading) {
			if l.Rows > 0 {
				loading <- struct{}{}
			}
		}
		end := m.running(t)
		select {
		case <-loading:
		case <-time.After(deadline):
			t.Fatalf("nothing was loaded; it ended with %v", end())
		}
		for m.count("public_slow") < 2 {
			answer(t, conn, "select pg_sleep(0.01)")
		}
		b.shots.Store(1)
		originals, err := OpenOriginals(t.Context(), address, &m.options)
		if err != nil {
			t.Fatal(err)
		}
		defer originals.Close(t.Context())
		st, err := m.open("public_slow")
		if err != nil {
			t.Fatal(err)
		}
		// Nothing happens to the table, and it is set to where the log ends: chunks that are under way were read beside an older place, and
		// are read again.
		for until := time.Now().Add(deadline); b.met.Load() == 0; {
			if time.Now().After(until) {
				t.Fatalf("the table was never looked at again; it ended with %v", end())
			}
			do(t, conn, "select pg_logical_emit_message(false, 'test', repeat('x', 10000))")
			at, err := pgoutput.ParseLSN(answer(t, conn, "select pg_current_wal_flush_lsn() from pg_sleep(0.05)"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = lake.SetProgress(t.Context(), st, "test.app", freshet.Progress{originals.Lane(): int64(at)}, &lake.SetOptions{Reason: "to be read again"})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		m.options.History.RowsPerSecond = 0
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_slow", "id", "v"), truth(t, conn, "slow", "id", "v"))
	})
}

// What stands before the server, or that a right is missing, is said as such.
func TestOpen_PoolerOrNoRight_Named(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		open := func(address string) *freshet.Error {
			t.Helper()
			m := newMirror(t, address)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			err := m.pipeline(m.source(t, true), lake.Mirror).Run(ctx)
			var e *freshet.Error
			if !errors.As(err, &e) || e.Code != freshet.CodeSourceRefused {
				t.Fatalf("got %v, want FRE-2002", err)
			}
			return e
		}
		b := &between{t: t, when: "IDENTIFY_SYSTEM",
			instead: append(said(t, "42601", `syntax error at or near "IDENTIFY_SYSTEM"`), 'Z', 0, 0, 0, 5, 'I')} // ReadyForQuery
		if e := open(b.address(address)); !strings.Contains(e.Msg, "pooler") {
			t.Errorf("got %v, want a pooler named", e)
		}
		b = &between{t: t, when: "replication", instead: said(t, "08P01", "unsupported startup parameter: replication")}
		if e := open(b.address(address)); !strings.Contains(e.Msg, "pooler: unsupported startup parameter") {
			t.Errorf("got %v, want a pooler named", e)
		}
		role := "no_right_" + slotOf(t, address)
		role = role[:min(len(role), 63)]
		do(t, conn, "drop role if exists "+role+"; create role "+role+" login")
		defer do(t, conn, "drop role "+role)
		of, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		of.User = url.User(role)
		if e := open(of.String()); e.Fix != "ALTER ROLE "+quoteName(role)+" REPLICATION;" {
			t.Errorf("got %v, want the SQL that gives the right", e)
		}
	})
}

// What the server keeps for a slot is told while nothing runs, with its bound.
func TestReadSlot_LogIsWritten_KeptAndLeft(t *testing.T) {
	onOwnServers(t, "64MB", func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		read := func() *SlotState {
			t.Helper()
			s, err := ReadSlot(t.Context(), address, &m.options, 10*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if s := read(); s.There {
			t.Errorf("got %+v before there is a slot", s)
		}
		m.catchUp(t)
		before := read()
		do(t, conn, "select pg_logical_emit_message(false, 'test', repeat('x', 20 << 20))")
		after := read()
		if grown, left := after.Retained-before.Retained, before.Safe-after.Safe; grown < 16<<20 || left < 16<<20 || after.Status != "reserved" {
			t.Errorf("got %+v after %+v, want 16 MiB and more of it kept, and less left", after, before)
		}
	})
}
