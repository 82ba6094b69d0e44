package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/semaphore"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// silence is how long a server may say nothing, although it was asked to, until it counts as gone.
const silence = 60 * time.Second

// farewell is how long a server is waited for that is told of the end.
const farewell = 2 * time.Second

// arrival is a committed transaction, or the news that there is nothing up to a place.
type arrival struct {
	transaction *transaction // nil: only the place
	upto        pgoutput.LSN // 0: transactions are under way
	reached     pgoutput.LSN // all that committed up to here has come
	size        int64        // what it holds of the room
	at          time.Time
}

// stream reads the log over one connection.
//
//	reader goroutine                                  sender goroutine
//	receive, assemble ──▶ arrivals, bounded in bytes  every while, when asked, when there is news:
//	                                                  tell the server what is received and confirmed
//
// While the reader waits for room the sender goes on: the server does not take us for dead.
type stream struct {
	o         *Options
	link      *pgconn.HijackedConn
	arrivals  chan arrival
	room      *semaphore.Weighted
	confirmed *atomic.Uint64 // what the server may forget: a place

	received atomic.Uint64
	heard    atomic.Int64 // when something came last, in nanoseconds; 0: the reader waits for room
	poke     chan struct{}
	asking   atomic.Bool // the next status is to be answered
	stopping atomic.Bool
	over     atomic.Bool // nothing comes any more
	end      context.CancelFunc
	wg       sync.WaitGroup
	err      error // why it ended, once arrivals is closed
}

// startStream has the server send the log from a place on. The connection becomes the stream's. Errors: those of the server,
// slotInUse among them.
func startStream(ctx context.Context, conn *pgconn.PgConn, o *Options, from pgoutput.LSN, version int,
	confirmed *atomic.Uint64) (*stream, error) {
	protocol := "proto_version '2', streaming 'on', messages 'on'"
	if version < 140000 {
		protocol = "proto_version '1'"
	}
	sql := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (%s, publication_names %s)", quoteName(o.Slot), from, protocol,
		quoteText(quoteName(o.Publication)))
	conn.Frontend().SendQuery(&pgproto3.Query{String: sql})
	if err := conn.Frontend().Flush(); err != nil {
		return nil, err
	}
	for {
		m, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse:
			return nil, pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyBothResponse:
			link, err := conn.Hijack()
			if err != nil {
				return nil, err
			}
			s := &stream{o: o, link: link, arrivals: make(chan arrival, 1024), room: semaphore.NewWeighted(o.MemoryBytes / 2),
				confirmed: confirmed, poke: make(chan struct{}, 1)}
			s.received.Store(uint64(from))
			s.start()
			return s, nil
		}
	}
}

func (s *stream) start() {
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.heard.Store(time.Now().UnixNano())
	s.wg.Go(func() {
		s.err = s.read(life)
		s.over.Store(true)
		close(s.arrivals)
		end()
	})
	s.wg.Go(func() { s.send(life) })
}

// stop tells the server once more what is confirmed, ends both goroutines and drops what has arrived.
func (s *stream) stop() {
	s.stopping.Store(true)
	s.end()
	// What is still on its way is read and dropped until the server hangs up: it would not read our last words otherwise.
	if s.status(false) == nil && s.link.Conn.SetReadDeadline(time.Now().Add(farewell)) == nil {
		_, _ = s.link.Conn.Write([]byte{'c', 0, 0, 0, 4, 'X', 0, 0, 0, 4}) // CopyDone, Terminate
	}
	s.wg.Wait()
	s.link.Conn.Close()
	for a := range s.arrivals {
		s.release(a)
	}
}

// release gives back what an arrival holds.
func (s *stream) release(a arrival) {
	s.room.Release(a.size)
	if a.transaction != nil {
		a.transaction.drop()
	}
}

// read is the reader goroutine. It returns why it ended.
func (s *stream) read(ctx context.Context) error {
	a := newAssembler(s.o.MemoryBytes/2, s.o.SpillDir)
	a.private = s.o.Types.Hidden != nil
	defer a.drop()
	for {
		m, err := s.link.Frontend.Receive()
		if err != nil {
			return err
		}
		s.heard.Store(time.Now().UnixNano())
		if s.stopping.Load() {
			continue
		}
		switch m := m.(type) {
		case *pgproto3.CopyData:
			arrived, err := s.message(a, m.Data)
			if err != nil {
				return err
			}
			if arrived != nil && !s.deliver(ctx, *arrived) && !s.stopping.Load() {
				return context.Cause(ctx)
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyDone:
			return errors.New("the server has ended the stream")
		}
	}
}

// message takes one message of the stream. Source: "Streaming Replication Protocol", XLogData and Primary keepalive message.
func (s *stream) message(a *assembler, data []byte) (*arrival, error) {
	switch {
	case len(data) > 25 && data[0] == 'w':
		t, err := a.take(data[25:])
		if t == nil || err != nil {
			return nil, err
		}
		s.received.Store(uint64(t.end))
		return &arrival{transaction: t, upto: t.end, at: time.Now(), size: min(t.held+256, s.o.MemoryBytes/2)}, nil
	case len(data) == 18 && data[0] == 'k':
		if data[17] == 1 {
			s.nudge()
		}
		// The server has sent all that committed before this place. While a transaction is under way it is left alone.
		upto := binary.BigEndian.Uint64(data[1:])
		switch {
		case a.idle() && upto > s.received.Load():
			s.received.Store(upto)
			return &arrival{upto: pgoutput.LSN(upto), reached: pgoutput.LSN(upto), size: 1}, nil
		case !a.idle() && a.whole == nil:
			return &arrival{reached: pgoutput.LSN(upto), size: 1}, nil
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%w: a message %q of %d bytes in the stream", pgoutput.ErrMalformed, data[:min(1, len(data))], len(data))
}

// deliver waits for room. It returns false when ctx has ended.
func (s *stream) deliver(ctx context.Context, a arrival) bool {
	s.heard.Store(0)
	defer func() { s.heard.Store(time.Now().UnixNano()) }()
	if s.room.Acquire(ctx, a.size) != nil {
		if a.transaction != nil {
			a.transaction.drop()
		}
		return false
	}
	select {
	case s.arrivals <- a:
		return true
	case <-ctx.Done():
		s.release(a)
		return false
	}
}

// nudge has the sender send at once.
func (s *stream) nudge() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// ask has the server say how far it has sent the log.
func (s *stream) ask() {
	s.asking.Store(true)
	s.nudge()
}

// send is the sender goroutine. A server that says nothing although it was asked is hung up on.
func (s *stream) send(ctx context.Context) {
	tick := time.NewTicker(s.o.StatusEvery)
	defer tick.Stop()
	for {
		ask := false
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
			ask = s.asking.Swap(false)
		case <-tick.C:
			ask = true
		}
		heard := s.heard.Load()
		gone := heard != 0 && time.Since(time.Unix(0, heard)) > max(silence, 3*s.o.StatusEvery)
		if gone || s.status(ask) != nil {
			s.link.Conn.Close() // the reader notices
			return
		}
	}
}

// status tells the server what we have received, and what it may forget; ask has it answer. Source: "Standby status update".
func (s *stream) status(ask bool) error {
	b := make([]byte, 0, 39)
	b = append(b, 'd', 0, 0, 0, 38, 'r')
	confirmed := s.confirmed.Load()
	b = binary.BigEndian.AppendUint64(b, max(s.received.Load(), confirmed))
	b = binary.BigEndian.AppendUint64(b, confirmed)
	b = binary.BigEndian.AppendUint64(b, confirmed)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMicro()-since2000))
	if ask {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	if err := s.link.Conn.SetWriteDeadline(time.Now().Add(silence)); err != nil {
		return err
	}
	_, err := s.link.Conn.Write(b)
	return err
}

// since2000 is 2000-01-01, from which the server counts, in microseconds since 1970.
const since2000 = 946_684_800_000_000
