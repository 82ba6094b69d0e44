package postgres

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// gate is before a server. Shut, it cuts connections and lets none through.
type gate struct {
	server string
	mu     sync.Mutex
	shut   bool
	conns  map[net.Conn]bool
}

// newGate is open, until the end of the test; address is the server's through it.
func newGate(t *testing.T, of string) (g *gate, address string) {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	g = &gate{server: u.Host, conns: map[net.Conn]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		g.set(true)
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { g.serve(client) })
		}
	})
	u.Host = l.Addr().String()
	return g, u.String()
}

func (g *gate) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", g.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !g.note(client, true) {
		return
	}
	defer g.note(client, false)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

// note notes a connection, or that it is over, and reports whether the gate is open.
func (g *gate) note(conn net.Conn, is bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.conns, conn); is && !g.shut {
		g.conns[conn] = true
	}
	return !g.shut
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for conn := range g.conns {
			_ = conn.Close()
		}
	}
}

// copy is another copy of the pipeline, into the same tables.
func (m *mirror) copy(t *testing.T, address string) *mirror {
	t.Helper()
	other := newMirror(t, m.address)
	other.address, other.mu, other.stores, other.options = address, m.mu, m.stores, m.options
	return other
}

// follows waits until a row of the table keyed is there.
func (m *mirror) follows(t *testing.T, id int) {
	t.Helper()
	conn := connect(t, m.address)
	for until := time.Now().Add(deadline); ; {
		for _, row := range m.rows(t, "public_keyed", "id") {
			if row == fmt.Sprintf("|%d", id) {
				return
			}
		}
		if time.Now().After(until) {
			t.Fatalf("the row %d never came", id)
		}
		answer(t, conn, "select pg_sleep(0.02)")
	}
}

// A copy of a pipeline loses its slot to another one, which brings tables and slot further, and gets it back: it goes on behind that.
func TestSlot_LostToAnotherCopyAndBack_GoesOn(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		g, through := newGate(t, address)
		end := m.copy(t, through).running(t)
		do(t, conn, "insert into public.keyed (id) values (1)")
		m.follows(t, 1)
		slot := "from pg_replication_slots where slot_name = " + quoteText(m.options.Slot)
		for id := 2; id < 10; id += 2 {
			g.set(true)
			do(t, conn, fmt.Sprintf("insert into public.keyed (id) values (%d)", id))
			at := answer(t, conn, "select pg_current_wal_insert_lsn()")
			for answer(t, conn, "select confirmed_flush_lsn >= '"+at+"' "+slot) != "t" {
				do(t, conn, fmt.Sprintf("insert into public.quiet select coalesce(max(id), 0) + 1 from public.quiet; "+
					"update public.keyed set n = 1 where id = %d; insert into public.toast (id) select coalesce(max(id), 0) + 1 from public.toast; "+
					"insert into public.whole (id) select coalesce(max(id), 0) + 1 from public.whole", id))
				m.catchUp(t)
			}
			g.set(false)
			do(t, conn, fmt.Sprintf("insert into public.keyed (id) values (%d)", id+1))
			m.follows(t, id+1)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		m.check(t, "after both")
	})
}

// Two copies take turns at random, while tables are loaded and random transactions go on: each change is there once.
func TestSlot_CopiesTakeTurns_EachChangeOnce(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := seedOf(t)
		rng := rand.New(rand.NewPCG(seed, 7))
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 200
		g, through := newGate(t, address)
		wait := churnAll(t, address, seed, 60)
		one := m.copy(t, through)
		begun := make(chan struct{}, 1)
		one.options.Observer.Loading = func(freshet.Loading) {
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- one.pipeline(one.source(t, false), lake.Append).Run(ctx) }()
		select {
		case <-begun:
		case err := <-done:
			t.Fatal(err)
		}
		for range 5 {
			<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
			g.set(true)
			m.append(t)
			g.set(false)
		}
		wait()
		cancel()
		if err := <-done; err != nil {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		m.append(t)
		m.playedBack(t, conn, "after both")
	})
}
