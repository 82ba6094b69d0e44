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

// next is what is told next.
func next(ctx context.Context, t *testing.T, told <-chan freshet.Held) freshet.Held {
	t.Helper()
	select {
	case h := <-told:
		return h
	case <-ctx.Done():
		t.Fatal("nothing is told any more, want little left")
		return freshet.Held{}
	}
}

// What the server keeps counts as growing over some readings, and where it has no bound of its own that of the disk is it.
func TestWatch_Readings_GrowthAndTimeLeft(t *testing.T) {
	w := &watch{o: &Options{Slot: "s", LogDisk: 100 << 20}}
	at := time.Now()
	for n := range 5 {
		w.past = append(w.past, reading{at: at.Add(time.Duration(n) * 30 * time.Second), retained: int64(n) << 20, safe: 96 << 20, disk: true})
	}
	h := w.held()
	if h.PerSecond != 4<<20/120 || h.Left.Round(time.Minute) != 48*time.Minute || !h.Disk {
		t.Errorf("got %+v, want 34952 bytes a second and 48 minutes", h)
	}
	if !short(h, true) || short(h, false) {
		t.Errorf("got short %v by its growth and %v without, want it by its growth alone", short(h, true), short(h, false))
	}
	w.past = append(w.past[:1], reading{at: at.Add(time.Minute), retained: 0, safe: 96 << 20})
	if h := w.held(); h.PerSecond != 0 || h.Left != 0 || short(h, true) {
		t.Errorf("got %+v, want a slot that keeps up", h)
	}
}

// A pipeline that does not keep up is told of before the server gives its slot up, and by how much.
func TestWatch_LogRunsOut_ToldInTime(t *testing.T) {
	onOwnServers(t, "48MB", func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
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
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		first := next(ctx, t, told)
		if first.Safe < 0 || first.Retained < 0 {
			t.Errorf("got %+v, want a bound", first)
		}
		for h := first; !short(h, false); {
			before := h.Retained
			do(t, conn, "select pg_logical_emit_message(false, 'test', repeat('x', 4 << 20))") // of no table, and so not confirmed at once
			for ; h.Retained <= before; h = next(ctx, t, told) {
			}
		}
		for !strings.Contains(log.String(), "about to give up the slot") {
			next(ctx, t, told)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
