package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// History says how the rows are loaded that are in tables already. The zero value of each field means its default.
type History struct {
	// Skip has only what happens from now on returned. A table whose loading has begun is loaded to its end.
	Skip bool
	// Address is that of a standby of the server, from which rows are read: it is waited for while it is behind what the log has told.
	// Default: the server itself.
	Address string
	// Parallel is how many connections read at most. It begins with one, and one is added whenever chunks come without
	// trouble. Default 4.
	Parallel int
	// ChunkRows bounds the rows that one transaction reads. Default 200,000; fewer where rows are large.
	ChunkRows int64
	// RowsPerSecond bounds how fast rows are read, over all connections. Default 0: no bound.
	RowsPerSecond int64
	// MaxAge is how long one transaction may last: a table without a key is read in one. Default 1 h.
	MaxAge time.Duration
	// NoFill leaves null, in rows that were there, what columns have that were added to a table since. Else they are read again for
	// that: each is returned as an update.
	NoFill bool
}

// The sizes of chunks: the first of a table is small, and tells how many bytes its rows have.
const (
	firstRows  = 5_000
	chunkBytes = 4 << 20
)

// slow is how long the server may take to begin a transaction until it counts as busy.
const slow = 250 * time.Millisecond

// manyHidden is of how many transactions it is remembered that changes were left out before the server is asked which are
// behind us.
const manyHidden = 100_000

// history loads the rows that are in tables already, while the stream goes on: chunk by chunk, in short transactions. Each has
// a watermark, by which it and the stream are put together:
//
//	plan: bookmark ─▶ open: watermark ─▶ read: parts ─▶ the stream comes to ─▶ parts are returned ─▶ the stream is past
//	of the next chunk                    (goroutine)    what it does not see,    as one seq, not      the watermark: the
//	(goroutine)                                         and waits                yet finished         seq is finished
//
// Since the seq is finished only then, the commit that has the chunk has the stream up to its watermark, too: what that sees
// is in the table once, whatever ends the process in between.
type history struct {
	s     *Source
	loads []*load // those with a key first
	news  chan struct{}
	life  context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup

	limit  int // connections in use at once
	good   int // chunks since the limit was changed
	notYet time.Time

	identity string // of the database whose log is read

	mu   sync.Mutex
	idle []*pgconn.PgConn
}

func newHistory(s *Source) *history {
	h := &history{s: s, news: make(chan struct{}, 1), limit: 1}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// add begins the history of a feed's table.
func (h *history) add(f *feed, oid uint32) {
	f.load = &load{feed: f, oid: oid, lane: h.laneOf(f, oid), rows: min(firstRows, h.s.o.History.ChunkRows), hidden: map[uint32]pgoutput.LSN{}}
	h.loads, h.identity = append(h.loads, f.load), f.lane.OriginID
}

// remove ends the history of the load.
func (h *history) remove(l *load) {
	h.withdraw(l)
	if l.fill {
		l.feed.read = append(l.feed.read, l)
	}
}

// withdraw has it as if the load had not been added.
func (h *history) withdraw(l *load) {
	l.reset()
	if l.fill {
		l.feed.fills = slices.DeleteFunc(l.feed.fills, func(other *load) bool { return other == l })
	} else {
		l.feed.load = nil
	}
	h.loads = slices.DeleteFunc(h.loads, func(other *load) bool { return other == l })
}

// over reports whether there is nothing left to load, but of tables that are set aside and cannot be.
func (h *history) over() bool {
	return !slices.ContainsFunc(h.loads, func(l *load) bool { return !l.waits })
}

// poke has Next look again.
func (h *history) poke() {
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// holds reports whether the transaction has to wait until rows are returned that do not show it.
func (h *history) holds(a arrival) bool {
	return a.transaction != nil && slices.ContainsFunc(h.loads, func(l *load) bool { return l.holds(a.transaction) })
}

// doubt has rows read again of which nobody knows whether they show the transaction, which is let pass. Only a standby leaves that
// open, and only of what committed in the moment when the rows began to be read.
func (h *history) doubt(ctx context.Context, a arrival) error {
	for _, l := range slices.Clone(h.loads) {
		if l.doubts(a.transaction) {
			if err := h.failed(ctx, l, errUnsettled); err != nil {
				return err
			}
		}
	}
	return nil
}

// step takes a step of the history if there is one to take: it returns rows, finishes a chunk, or begins the next.
func (h *history) step(ctx context.Context) (acted bool, err error) {
	for _, l := range h.loads {
		if acted, err := h.advance(ctx, l); acted || err != nil {
			return acted, err
		}
	}
	for _, l := range slices.Clone(h.loads) {
		for l.plan != nil || h.used() < h.limit {
			if more, err := h.begin(ctx, l); err != nil {
				return false, err
			} else if !more {
				break
			}
		}
	}
	return false, nil
}

// used is how many connections read, or are about to.
func (h *history) used() (n int) {
	for _, l := range h.loads {
		if n += len(l.windows); l.plan != nil {
			n++
		}
	}
	return n
}

// advance returns rows of the first chunk that is being read, or finishes it.
func (h *history) advance(ctx context.Context, l *load) (bool, error) {
	if l.ended {
		h.finish(l)
		return true, nil
	}
	if len(l.windows) == 0 {
		return false, nil
	}
	w := l.windows[0]
	if w.returned {
		if h.past(w) {
			return true, h.close(ctx, w)
		}
		if h.crossed(l) {
			return true, h.failed(ctx, l, errUnsettled)
		}
		return false, nil
	}
	if !h.due(w) {
		if h.stuck(w) {
			return true, h.failed(ctx, l, errUnsettled)
		}
		return false, nil
	}
	if w.seen.replay != nil {
		w.seen.replay.closed = true
	}
	if !w.begun {
		if err := h.precede(w); err != nil {
			return true, h.s.setAside(ctx, l.feed, err)
		}
	}
	select {
	case p, more := <-w.parts:
		if more {
			lossy(h.s.o.Observer.Lossy, l.feed.name, p.lossy)
			h.s.ready = append(h.s.ready, w.batch(p))
			return true, nil
		}
	default:
		return false, nil
	}
	if w.err != nil {
		return false, h.failed(ctx, l, w.err)
	}
	w.returned = true
	return true, nil
}

// due reports whether the stream has come to where the rows of the window belong: to its watermark, or before that to a
// transaction that it does not see.
func (h *history) due(w *window) bool {
	next := h.s.upcoming()
	return w.closed() || h.s.reached >= w.high || next != nil && w.seen.sight(next) == unseen
}

// stuckAfter is how long the log may not go on until rows are read again that do not tell whether they show what comes next.
const stuckAfter = time.Second

// stuck reports whether the log does not go on behind the place at which the rows of the window were read, and must.
func (h *history) stuck(w *window) bool {
	return !w.seen.exact() && h.s.next == nil && h.s.reached >= logEnd(w.seen.replay.after) && time.Since(w.opened) > stuckAfter
}

// past reports whether the stream has taken all that the watermark may see.
func (h *history) past(w *window) bool {
	next := h.s.upcoming()
	return w.closed() || h.s.reached >= w.high || next != nil && next.end > w.high
}

// crossed reports whether the stream cannot get past the first window's watermark, since its next transaction waits for the rows
// of one behind it. That transaction was in the log when both were opened, and not visible yet: what is behind the first is
// opened again, when it is.
func (h *history) crossed(l *load) bool {
	next := h.s.upcoming()
	return next != nil && l.holds(next)
}

// close finishes the first chunk of the load, behind the stream up to here.
func (h *history) close(ctx context.Context, w *window) error {
	l := w.load
	h.s.level(l.feed)
	after := w.seq
	if !w.begun {
		after--
	}
	h.s.ready = append(h.s.ready, l.batch(after, w.seq))
	l.windows = l.windows[1:]
	l.spare = append(l.spare, w.into)
	l.done, l.upto, l.ended, l.strikes = w.seq, w.upto, w.upto == nil, 0
	l.read += int64(w.place)
	h.adapt(l, w)
	h.observe(l, false)
	return h.s.down.Unmark(ctx, l.feed.name, l.marks(), l.mark(w.seq-keptMarks))
}

// keptMarks is how many chunks may be done and not committed: their bookmarks are not deleted.
const keptMarks = 1000

// finish ends the history of a table all of whose chunks are done.
func (h *history) finish(l *load) {
	h.s.ready = append(h.s.ready, l.batch(l.done, wholeHistory))
	h.observe(l, true)
	what := "loaded"
	switch {
	case l.again:
		what = "loaded again"
	case l.fill:
		what = "read rows again for new columns"
	}
	h.s.o.Log.Info(what, "table", l.feed.name, "rows", l.read)
	h.remove(l)
}

// adapt chooses the size of the next chunk, and how many connections may read.
func (h *history) adapt(l *load, w *window) {
	o := &h.s.o.History
	took := time.Since(w.opened)
	rows := l.rows * 2
	if w.place > 0 {
		rows = min(rows, chunkBytes/max(1, w.bytes/int64(w.place)))
	}
	l.rows = max(1, min(rows, o.ChunkRows))
	if o.RowsPerSecond > 0 {
		pause := time.Duration(float64(w.place) / float64(o.RowsPerSecond) * float64(time.Second))
		h.notYet = later(h.notYet, w.opened).Add(pause)
	}
	if h.good++; h.good >= 2*h.limit && took < time.Minute {
		h.limit, h.good = min(h.limit+1, o.Parallel), 0
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ease halves the connections that may read.
func (h *history) ease() { h.limit, h.good = max(1, h.limit/2), 0 }

// observe tells how far the loading of a table is.
func (h *history) observe(l *load, done bool) {
	if h.s.o.Observer.Loading == nil {
		return
	}
	of := int64(-1)
	if l.table != nil {
		of = l.table.Rows
	}
	h.s.o.Observer.Loading(freshet.Loading{Table: l.feed.name, Rows: l.read, Of: of, Done: done})
}

// failed puts off the chunks that are being read and are not returned. Errors: those that waiting does not help against.
func (h *history) failed(ctx context.Context, l *load, err error) error {
	for i, w := range l.windows {
		if !w.returned {
			for _, lost := range l.windows[i:] {
				lost.drop()
			}
			l.windows = l.windows[:i]
			break
		}
	}
	if l.plan != nil {
		l.plan.drop()
		l.plan = nil
	}
	var said *pgconn.PgError
	var known *freshet.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errReshaped), errors.As(err, &said) && said.Code == "42703": // undefined_column
		l.table = nil
	case errors.As(err, &said) && said.Code == "42P01": // undefined_table
		h.s.o.Log.Warn("the table is gone: the rest of it is not loaded", "table", l.feed.name)
		h.remove(l)
		return nil
	case errors.As(err, &said) && said.Code == "42501":
		return h.s.ailing(fmt.Errorf("load %s: %w", l.feed.name, err))
	case errors.As(err, &known) && known.Code != freshet.CodeSourceUnreachable:
		if err := h.s.setAside(ctx, l.feed, err); err != nil {
			return err
		}
		l.waits = true
	}
	pause := min(30*time.Second, 10*time.Millisecond<<min(l.strikes, 12))
	l.strikes++
	l.retry = time.Now().Add(pause)
	if !errors.Is(err, errUnsettled) || l.strikes > 8 {
		h.ease()
		h.s.o.Log.Warn("loading goes on later", "table", l.feed.name, "error", err, "pause", pause)
	}
	return nil
}

// wait is how long nothing but news is to be waited for; 0: for ever.
func (h *history) wait() (pause time.Duration) {
	soonest := func(d time.Duration) {
		if d = max(d, time.Millisecond); pause == 0 || d < pause {
			pause = d
		}
	}
	for _, l := range h.loads {
		if len(l.windows) > 0 && h.s.reached < l.windows[0].high {
			h.s.stream.ask()
			soonest(askEvery)
		}
		if time.Now().Before(l.retry) {
			soonest(time.Until(l.retry))
		}
	}
	if time.Now().Before(h.notYet) && len(h.loads) > 0 {
		soonest(time.Until(h.notYet))
	}
	return pause
}

// askEvery is how often the server is asked how far it has sent the log while a chunk waits for that.
const askEvery = 20 * time.Millisecond

// take returns a connection that nobody uses, or opens one.
func (h *history) take(ctx context.Context) (*pgconn.PgConn, error) {
	h.mu.Lock()
	n := len(h.idle)
	var conn *pgconn.PgConn
	if n > 0 {
		conn, h.idle = h.idle[n-1], h.idle[:n-1]
	}
	h.mu.Unlock()
	if conn != nil && !conn.IsClosed() {
		return conn, nil
	}
	if h.s.o.History.Address == "" {
		return dial(ctx, h.s.address, false)
	}
	return h.dialReplica(ctx)
}

// dialReplica connects to the standby that rows are to be read from. Errors: those of dial; CodeOriginChanged for one of another
// cluster or database.
func (h *history) dialReplica(ctx context.Context) (*pgconn.PgConn, error) {
	conn, err := dial(ctx, h.s.o.History.Address, false)
	if err != nil {
		return nil, err
	}
	found, err := query(ctx, conn, "select system_identifier || '/' || d.oid from pg_catalog.pg_control_system(), "+
		"pg_catalog.pg_database d where d.datname = pg_catalog.current_database()")
	if err == nil {
		if got, want := string(found[0][0]), h.identity; got != want {
			err = &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: "history.url",
				Msg: fmt.Sprintf("it is another database than the one whose log is read: its identity is %s, and that of the other %s", got, want),
				Fix: "name a standby of the server at url"}
		}
	}
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// noReplica says that rows were to be read from a standby, and a primary answers: it may have been promoted, and then has other rows.
func (h *history) noReplica() error {
	return &freshet.Error{Code: freshet.CodeTimeline, Class: freshet.ClassInput, Place: "history.url",
		Msg: "the server is no standby: it may have been promoted, and then its rows are not those that the log tells of",
		Fix: "name a standby of the server at url, or leave history.url out"}
}

// giveBack keeps a connection for later, unless it is in a transaction still.
func (h *history) giveBack(conn *pgconn.PgConn) {
	if conn == nil || conn.IsClosed() {
		return
	}
	if conn.TxStatus() != 'I' || h.life.Err() != nil {
		_ = conn.Close(context.Background())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, conn)
}

// stop ends all reading.
func (h *history) stop() {
	h.end()
	for _, l := range h.loads {
		l.reset()
	}
	h.wg.Wait()
	for _, conn := range h.idle {
		_ = conn.Close(context.Background())
	}
	h.idle = nil
}
