package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// The bounds of what Next returns at once: of a transaction that is larger, parts.
const (
	momentBytes = 4 << 20
	momentRows  = 32 << 10
)

// Source reads the log of a database. It implements freshet.Source; make one with NewSource, use it for one run.
type Source struct {
	address string
	o       Options
	down    freshet.Downstream

	types     *typeMap
	catalog   *pgconn.PgConn // for questions; nil: none is open
	server    *server
	stream    *stream // nil: it is to be begun
	contested bool    // another connection had the slot since the stream was begun last
	confirmed atomic.Uint64
	vouched   pgoutput.LSN      // of a standby: up to here its log is that of the timeline that is noted
	unwatch   func()            // ends the watch; nil: it has not begun
	notices   chan notice       // of the watch
	notice    *notice           // of these, one that is not done with
	members   map[string]member // the tables of the publication when it was opened
	since     map[string]string // what the publication had tables by, by their OIDs, when it was asked last
	until     pgoutput.LSN      // bounded: where it ends; else 0

	history *history
	mends   mends

	feeds    map[string]*feed // by the name of the table in the source
	coming   map[string]*feed // likewise: those that have not appeared whole
	order    []*feed          // the same, by that name
	outside  map[string]error // why tables are not read, by their names in the source
	opened   bool
	byOID    map[uint32]*feed
	position pgoutput.LSN // everything that committed up to here was taken from the stream
	reached  pgoutput.LSN // likewise; it goes on while transactions are under way
	uneven   int64        // where one of the tables was when the stream began, and others were not; 0: they are level, or were told to be
	next     *arrival     // a transaction that waits for rows of the history, or what is not done with
	moment   *transactionReader
	current  origin
	size     int64 // of the moment's transaction, in the stream's room
	parted   bool  // a part of it was returned
	again    bool  // a table is to be read again: the stream is to begin anew
	waiting  int   // changes in feeds since they were emptied, at least
	bytes    int64 // of the messages of these
	ready    []*freshet.Batch
	failures int // of connections, since something came
	broken   broken

	mu      sync.Mutex
	durable map[string]int64    // what each table holds: the smallest is confirmed
	holding int                 // tables that hold nothing past what is confirmed; 0: they are to be counted
	keys    map[string][]string // the primary key of each table, by the name of the table that its rows go to
}

// NewSource returns a source of the database at the address, a URL or a list of KEY=VALUE as libpq has them. Errors: all
// faults of the options, joined.
func NewSource(address string, o *Options) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Source{address: address, o: o.withDefaults(), feeds: map[string]*feed{}, coming: map[string]*feed{},
		byOID: map[uint32]*feed{}, outside: map[string]error{}, durable: map[string]int64{}, keys: map[string][]string{}, notices: make(chan notice)}
	s.types = newTypeMap(s.o.Types)
	s.history, s.mends.all, s.mends.over = newHistory(s), map[string]*mend{}, map[string]bool{}
	return s, nil
}

// Key is the key of the table that rows go to: the columns of the primary key in the source, or else of the index that is its
// replica identity; empty, and not nil: it has none; nil: it is not read. It is known before Downstream hears of the table. Safe for concurrent
// use.
func (s *Source) Key(table string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[table]
}

// Next returns the next batch. See freshet.Source.
func (s *Source) Next(ctx context.Context) (*freshet.Batch, error) {
	for {
		if len(s.ready) > 0 {
			b := s.ready[0]
			s.ready = s.ready[1:]
			return b, nil
		}
		if err := s.advance(ctx); err != nil {
			return nil, err
		}
	}
}

// advance takes the next step: decodes more of a transaction, or takes the next one from the stream. ctx may end in the midst of it,
// since a table is to be read again, and the next call goes on: whatever was begun is not done with before it has succeeded.
func (s *Source) advance(ctx context.Context) error {
	switch {
	case s.moment != nil:
		return s.decode(ctx)
	case s.again && s.stream != nil:
		s.hangUp()
		return nil
	case s.stream == nil:
		return s.begin(ctx)
	}
	select {
	case n := <-s.notices:
		s.notice = &n
	default:
	}
	if s.notice != nil {
		return s.noticed(ctx, s.notice)
	}
	if acted, err := s.history.step(ctx); acted || err != nil {
		return err
	}
	if s.until > 0 && s.position >= s.until && s.history.over() {
		return s.finish()
	}
	if s.next != nil {
		if a := *s.next; !s.history.holds(a) {
			return s.arrived(ctx, a, true)
		}
	} else {
		select {
		case a, ok := <-s.stream.arrivals:
			return s.arrived(ctx, a, ok)
		default:
		}
	}
	if s.emit() {
		return nil
	}
	return s.wait(ctx)
}

// wait waits for the stream or the history.
func (s *Source) wait(ctx context.Context) error {
	arrivals := s.stream.arrivals
	if s.next != nil {
		arrivals = nil
	}
	var pause <-chan time.Time
	if d := s.history.wait(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		pause = t.C
	}
	select {
	case a, ok := <-arrivals:
		return s.arrived(ctx, a, ok)
	case n := <-s.notices:
		s.notice = &n
	case <-s.history.news:
	case <-pause:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// hangUp ends the stream. No transaction may be under way.
func (s *Source) hangUp() {
	if s.next != nil {
		s.stream.release(*s.next)
		s.next = nil
	}
	s.stream.stop()
	s.stream = nil
}

// finish brings all tables to the end of a bounded source.
func (s *Source) finish() error {
	if s.take(0, nil) {
		return nil
	}
	return io.EOF
}

// arrived takes what came from the stream; ok is false at its end.
func (s *Source) arrived(ctx context.Context, a arrival, ok bool) error {
	if !ok {
		return s.interrupted(ctx)
	}
	s.next = &a
	if vouched, err := s.vouch(ctx, max(a.upto, a.reached)); err != nil || !vouched {
		return err
	}
	s.failures = 0
	if a.transaction == nil || a.transaction.changes.size == 0 {
		return s.heard(ctx, a)
	}
	if s.history.holds(a) {
		return nil
	}
	if err := s.history.doubt(ctx, a); err != nil {
		return err
	}
	if s.bytes > 0 && (a.transaction.tables || s.bytes+a.transaction.changes.size > momentBytes) {
		s.emit() // a transaction that may come in parts is alone in them
	}
	if err := s.history.readRanks(a.transaction); err != nil {
		return err
	}
	r, err := a.transaction.reader()
	if err != nil {
		return err
	}
	s.moment, s.size, s.next = r, a.size, nil
	s.current = origin{transaction: a.transaction, tx: strconv.FormatUint(uint64(a.transaction.xid), 10), at: a.at}
	return nil
}

// upcoming is the transaction that waits; nil: none does.
func (s *Source) upcoming() *transaction {
	if s.next == nil {
		return nil
	}
	return s.next.transaction
}

// heard takes a place of the log, or a transaction that has nothing but messages.
func (s *Source) heard(ctx context.Context, a arrival) error {
	t := a.transaction
	if t != nil {
		o := origin{transaction: t, tx: strconv.FormatUint(uint64(t.xid), 10), at: a.at}
		if err := s.mendsRead(ctx, t.messages.read, &o); err != nil {
			return err
		}
	}
	s.next = nil
	s.stream.release(a)
	s.position, s.reached = max(s.position, a.upto), max(s.reached, a.upto, a.reached)
	if s.bytes == 0 || s.bytes >= momentBytes {
		s.emit()
	}
	if t != nil {
		s.levelAsked(t.messages.level)
		s.mendsAsked(t.messages.mend)
	}
	return nil
}

// decode decodes the present transaction, up to its end or until there is enough for a batch.
func (s *Source) decode(ctx context.Context) error {
	for {
		m, err := s.moment.next()
		if errors.Is(err, io.EOF) {
			return s.end()
		}
		if err != nil {
			return err
		}
		if err := s.change(ctx, m); err != nil {
			s.moment.again()
			return err
		}
		if len(s.ready) > 0 {
			return nil
		}
	}
}

// end ends the present transaction.
func (s *Source) end() error {
	t := s.moment.transaction
	s.position, s.reached, s.moment = t.end, max(s.reached, t.end), nil
	s.bytes += t.changes.size
	s.stream.release(arrival{transaction: t, size: s.size})
	if s.bytes >= momentBytes || s.waiting >= momentRows || s.parted {
		s.emit()
	}
	return nil
}

// change takes one message of the present transaction.
func (s *Source) change(ctx context.Context, m *pgoutput.Message) error {
	switch m.Kind {
	case pgoutput.Relation:
		return s.describe(ctx, m.Rel)
	case pgoutput.Truncate:
		for _, oid := range m.Tables {
			f, err := s.feedOf(oid)
			if err != nil {
				return err
			}
			if f != nil {
				s.mends.lose(f)
			}
			if s.wants(f) {
				err := f.truncated(s.policies(f).Truncate, "emptied by TRUNCATE", &s.current)
				if err := s.setAside(ctx, f, err); err != nil {
					return err
				}
				s.waiting++
			}
		}
		s.current.ordinal++
		return nil
	}
	f, err := s.feedOf(m.Table)
	if err != nil {
		return err
	}
	if f != nil {
		s.mends.touch(f, m)
	}
	if s.wants(f) {
		if f.load != nil {
			if err := f.load.rank(ctx, s, m, s.current.transaction); err != nil {
				return err
			}
		}
		if err := s.complete(ctx, f, m); err != nil {
			return err
		}
		f.change(m, &s.current)
		s.waiting++
		if (f.bytes >= momentBytes || len(f.seqs) >= momentRows) && s.alone() {
			s.part(f)
		}
	}
	s.current.ordinal++
	return nil
}

// alone reports whether nothing waits but of the present transaction, so that it may come in parts.
func (s *Source) alone() bool { return s.bytes == 0 }

// feedOf is the feed of a table that the log has described; nil: the table is not read.
func (s *Source) feedOf(oid uint32) (*feed, error) {
	f, described := s.byOID[oid]
	if !described {
		return nil, fmt.Errorf("%w: a change of table %d, which was never described", pgoutput.ErrMalformed, oid)
	}
	return f, nil
}

// wants reports whether rows of the present transaction are wanted: they are of a table that is read, and not held already.
func (s *Source) wants(f *feed) bool {
	return f != nil && !f.skip && (f.after < int64(s.current.end) || f.parted)
}

// describe takes the description of a table.
func (s *Source) describe(ctx context.Context, rel *pgoutput.Rel) error {
	if !selected(s.o.Tables, rel.Schema, rel.Name) || s.outside[rel.Schema+"."+rel.Name] != nil {
		s.byOID[rel.OID] = nil
		return nil
	}
	f := s.feeds[rel.Schema+"."+rel.Name]
	if f == nil {
		read, err := s.learnKey(ctx, rel)
		if err != nil || !read {
			s.byOID[rel.OID] = nil
			return err
		}
		if f, err = s.appear(ctx, &Table{OID: rel.OID, Schema: rel.Schema, Name: rel.Name}, s.position, true); err != nil {
			return err
		}
	}
	s.byOID[rel.OID] = f
	return s.setAside(ctx, f, s.described(ctx, f, rel))
}

// described takes the description of the feed's table.
func (s *Source) described(ctx context.Context, f *feed, rel *pgoutput.Rel) error {
	if err := s.became(ctx, f, rel); err != nil {
		return err
	}
	if f.early {
		return s.ahead(ctx, f)
	}
	if f.described(rel) && !f.anew {
		return nil
	}
	if f.table != nil {
		s.mends.lose(f)
	}
	if !f.empty() {
		s.part(f)
	}
	if f.whose != rel.OID {
		if err := s.other(ctx, f, rel.OID); err != nil {
			return err
		}
	}
	err := f.describe(ctx, s, rel, true)
	if f.early {
		return s.ahead(ctx, f)
	}
	return err
}

// ahead has a table read again whose columns the log has made wider before they were committed: as wide from the first row on, or, of those
// that were committed meanwhile, once the table's column is.
func (s *Source) ahead(ctx context.Context, f *feed) error {
	if err := s.reread(ctx, f); err != nil {
		return err
	}
	f.early = false
	return nil
}

// part returns what waits of a feed while its transaction goes on.
func (s *Source) part(f *feed) {
	s.parted = true
	f.lossy(s.o.Observer.Lossy)
	b := f.take(int64(s.current.end), true)
	b.More = true
	s.ready = append(s.ready, b)
}

// emit makes everything that waits ready to be returned, and reports whether there was any. Once the stream has come to where one of the
// tables was when it began, and others were not, it tells of all, though nothing may have changed.
func (s *Source) emit() bool {
	var behind *feed
	if s.uneven > 0 && int64(s.position) >= s.uneven {
		s.uneven = 0
		for _, f := range s.order {
			if behind == nil || f.after < behind.after {
				behind = f
			}
		}
	}
	return s.take(levelBytes, behind)
}

// levelAsked brings those tables to the position that a message in the log names.
func (s *Source) levelAsked(tables []string) {
	for _, table := range tables {
		if f := s.feeds[table]; f != nil {
			s.level(f)
		}
	}
}

// level brings a feed, with all that waits, to the position.
func (s *Source) level(f *feed) { s.take(levelBytes, f) }

// take makes what waits ready to be returned, also of tables of which nothing changed and that are behind by more than so many
// bytes of the log, or are also to be brought there: together the batches show all tables at the position, and say so of those that
// have none. It reports whether there were any.
func (s *Source) take(behind int64, also *feed) bool {
	before, level := len(s.ready), true
	for _, f := range s.order {
		level = level && !f.skip
		wanted := !f.skip && (f.hides || s.late(f, behind)) || f == also && f.after < int64(s.position)
		if f.empty() && !wanted {
			continue
		}
		f.lossy(s.o.Observer.Lossy)
		b := f.take(int64(s.position), false)
		b.More = true
		s.ready = append(s.ready, b)
	}
	s.waiting, s.bytes, s.parted = 0, 0, false
	if len(s.ready) == before {
		return false
	}
	last := s.ready[len(s.ready)-1]
	last.More, last.Level = false, level
	return true
}

// interrupted takes the end of a stream.
func (s *Source) interrupted(ctx context.Context) error {
	err := s.stream.err
	s.hangUp()
	var known *freshet.Error
	var said *pgconn.PgError
	switch {
	case errors.As(err, &known) || errors.Is(err, pgoutput.ErrMalformed):
		return err
	case errors.As(err, &said) && strings.HasPrefix(said.Code, "42"): // the publication is gone, a right
		return s.ailing(err)
	case errors.As(err, &said) && s.broken.again(said, s.position):
		return undecodable(s.o.Slot, s.position, said)
	}
	return s.outage(ctx, "read the log of "+s.server.database, err)
}

// outage waits a while, longer from time to time, and tells of it.
func (s *Source) outage(ctx context.Context, what string, err error) error {
	if s.o.Observer.Retry != nil {
		s.o.Observer.Retry(what, err)
	}
	s.o.Log.Warn("trying again", "what", what, "error", err)
	pause := min(30*time.Second, s.o.RetryAfter<<min(s.failures, 10))
	s.failures++
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var _ freshet.Source = (*Source)(nil)
