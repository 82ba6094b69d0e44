package postgres

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// deadline is how long a test waits for what must happen; on an idle machine seconds are enough.
const deadline = 5 * time.Minute

// onServers runs a test on each server that POSTGRES_URLS names, in a database of its own that is dropped at the end.
func onServers(t *testing.T, test func(t *testing.T, address string)) {
	addresses := strings.Fields(os.Getenv("POSTGRES_URLS"))
	if len(addresses) == 0 {
		t.Skip("POSTGRES_URLS names no server; see interop/README.md")
	}
	for _, address := range addresses {
		conn := connect(t, address)
		version := conn.ParameterStatus("server_version")
		t.Run("on PostgreSQL "+version, func(t *testing.T) {
			name := "t_" + strings.ToLower(strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
					return r
				}
				return '_'
			}, t.Name()))
			name = name[:min(len(name), 63)]
			dropDatabase(t, conn, name)
			do(t, conn, "create database "+name)
			t.Cleanup(func() { dropDatabase(t, connect(t, address), name) })
			of, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			of.Path = "/" + name
			test(t, of.String())
		})
	}
}

// dropDatabase drops a database, if there is one. Connections that were hung up may be in it, or read from a slot of it, for a while.
func dropDatabase(t *testing.T, conn *pgconn.PgConn, name string) {
	t.Helper()
	for until := time.Now().Add(deadline); ; do(t, conn, "select pg_sleep(0.05)") {
		_, err := conn.Exec(context.Background(), "drop database if exists "+name+" with (force)").ReadAll()
		if err == nil {
			return
		}
		if !slotInUse(err) || time.Now().After(until) { // the code is that of a database in use, too
			t.Fatal(err)
		}
	}
}

// onOwnServers runs a test on servers of its own, of the major versions of those that POSTGRES_URLS names, which keep so much log for a slot at
// most: that holds for all slots of a server. Checkpoints come when they are asked for.
func onOwnServers(t *testing.T, keep string, test func(t *testing.T, address string)) {
	addresses := strings.Fields(os.Getenv("POSTGRES_URLS"))
	if len(addresses) == 0 {
		t.Skip("POSTGRES_URLS names no server; see interop/README.md")
	}
	for _, address := range addresses {
		major, _, _ := strings.Cut(connect(t, address).ParameterStatus("server_version"), ".")
		t.Run("on PostgreSQL "+major, func(t *testing.T) {
			n := startNode(t, major, "", "max_slot_wal_keep_size="+keep, "checkpoint_timeout=1d", "max_wal_size=4GB", "fsync=off")
			do(t, connect(t, strings.Replace(n.address, "/shop", "/postgres", 1)), "create database shop")
			test(t, n.address)
		})
	}
}

// connect connects until the end of the test.
func connect(t testing.TB, address string) *pgconn.PgConn {
	t.Helper()
	conn, err := dial(context.Background(), address, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// do runs statements.
func do(t testing.TB, conn *pgconn.PgConn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql[:min(len(sql), 200)], err)
	}
}
