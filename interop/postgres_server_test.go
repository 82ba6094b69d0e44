package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ownServer is a PostgreSQL server that a test may end and start as it likes.
type ownServer struct {
	t    *testing.T
	dir  string
	port int
}

// startPostgres starts a server of the major version of one of those that POSTGRES_URLS names, with these settings.
func startPostgres(t *testing.T, random *rand.Rand, settings ...string) *ownServer {
	t.Helper()
	addresses := strings.Fields(os.Getenv("POSTGRES_URLS"))
	if len(addresses) == 0 {
		t.Skip("needs a real PostgreSQL server: POSTGRES_URLS names none (interop/README.md)")
	}
	version := dialPostgres(t, addresses[random.IntN(len(addresses))]).conn.ParameterStatus("server_version")
	major, _, _ := strings.Cut(version, ".")
	s := &ownServer{t: t, dir: filepath.Join(t.TempDir(), "postgres")}
	t.Cleanup(func() { _ = s.command("stop", "--kill").Run() })
	said := s.do("start", append([]string{"--port", "0", "--version", major}, settings...)...)
	_, port, _ := strings.Cut(said, "@127.0.0.1:")
	if _, err := fmt.Sscan(strings.ReplaceAll(port, "/", " "), &s.port); err != nil {
		t.Fatalf("got no port in %q: %v", said, err)
	}
	t.Logf("PostgreSQL %s, port %d", version, s.port)
	return s
}

func (s *ownServer) command(what string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join("servers", "postgres"), append([]string{what, s.dir}, args...)...)
}

func (s *ownServer) do(what string, args ...string) (said string) {
	s.t.Helper()
	out, err := s.command(what, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("servers/postgres %s: %v\n%s", what, err, tail(string(out), 4000))
	}
	return string(out)
}

// restart ends the server, by SIGKILL or as one does, and starts it again.
func (s *ownServer) restart(kill bool) {
	s.t.Helper()
	if kill {
		s.do("stop", "--kill")
	} else {
		s.do("stop")
	}
	s.do("start")
}

// host is the host and port of the server.
func (s *ownServer) host() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// address is that of its database.
func (s *ownServer) address() string { return "postgres://postgres@" + s.host() + "/postgres" }

// wire stands between us and a server, and cuts connections.
type wire struct {
	listener net.Listener
	server   string
	open     atomic.Bool // connections get through
	still    atomic.Bool // nothing moves on those that are there

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// address is that of the database, through the wire.
func (w *wire) address(of string) string {
	return strings.Replace(of, w.server, w.listener.Addr().String(), 1)
}

// newWire forwards to the server until the end of the test.
func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, server: server, conns: map[net.Conn]bool{}}
	w.open.Store(true)
	w.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.still.Store(false)
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *wire) serve(client net.Conn) {
	defer client.Close()
	if !w.open.Load() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	w.note(client, true)
	defer w.note(client, false)
	back := make(chan struct{})
	go func() {
		defer close(back)
		w.forward(server, client)
	}()
	w.forward(client, server)
	<-back
}

func (w *wire) note(c net.Conn, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.conns, c); is {
		w.conns[c] = true
	}
}

// forward copies until either side hangs up, and hangs up on both.
func (w *wire) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for w.still.Load() {
			pause(10*time.Millisecond, nil)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut ends all connections, wherever they are.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}
