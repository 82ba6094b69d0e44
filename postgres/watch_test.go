package postgres

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// lines keeps what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A pipeline that does not keep up is told of before the server gives its slot up, and by how much.
func TestWatch_LogRunsOut_ToldInTime(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		do(t, conn, "alter system set max_slot_wal_keep_size = '48MB'")
		do(t, conn, "select pg_reload_conf()")
		defer func() {
			do(t, conn, "alter system reset max_slot_wal_keep_size")
			do(t, conn, "select pg_reload_conf()")
		}()
		m := newMirror(t, address)
		m.catchUp(t)
		var log lines
		told := make(chan freshet.Held, 10_000)
		m.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		m.options.WatchEvery = 10 * time.Millisecond
		m.options.Observer.Held = func(h freshet.Held) {
			select {
			case told <- h:
			default:
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		first := <-told
		if first.Safe < 0 || first.Retained < 0 {
			t.Errorf("got %+v, want a bound", first)
		}
		for range 3 { // of no table, and so nothing is confirmed for a while
			do(t, conn, "select pg_logical_emit_message(false, 'test', repeat('x', 12 << 20))")
		}
		for h := first; !short(h); {
			select {
			case h = <-told:
			case <-ctx.Done():
				t.Fatalf("got %+v at last, want little left; the log:\n%s", h, log.String())
			}
		}
		for !strings.Contains(log.String(), "about to give up the slot") && ctx.Err() == nil {
			<-told
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "about to give up the slot") {
			t.Errorf("got the log %s, want a warning", log.String())
		}
	})
}
