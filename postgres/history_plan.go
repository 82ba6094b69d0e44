package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// plan is where the next chunk of a table ends, while it is found out and until the chunk is opened.
type plan struct {
	end    context.CancelFunc
	done   chan struct{}
	give   func(*pgconn.PgConn)
	chunk  chunk
	conn   *pgconn.PgConn // for the chunk
	err    error
	wanted int64 // rows
}

// ready reports whether the plan is made, or could not be.
func (p *plan) ready() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// drop gives the plan up.
func (p *plan) drop() {
	p.end()
	<-p.done
	p.give(p.conn)
	p.conn = nil
}

// lookAgain is look where rows are read again from where the table stands: an outage is waited out.
func (h *history) lookAgain(ctx context.Context, l *load) error {
	for {
		err := h.look(ctx, l)
		var known *freshet.Error
		if !errors.As(err, &known) || known.Code != freshet.CodeSourceUnreachable {
			return err
		}
		if err := h.s.outage(ctx, "look at "+l.feed.sourceName()+" in the catalog", err); err != nil {
			return err
		}
	}
}

// look looks at a table whose loading begins, or which has changed.
func (h *history) look(ctx context.Context, l *load) error {
	conn, err := h.s.ask(ctx)
	if err != nil {
		return err
	}
	t, shape, err := h.s.catalogued(ctx, conn, l)
	if err != nil || t == nil {
		return err
	}
	key, err := h.s.types.keyColumns(ctx, conn, t)
	if err != nil {
		return h.s.ailing(err)
	}
	if err := h.ground(ctx, conn, l); err != nil {
		return err
	}
	if err := h.s.learnTypes(ctx, &t.Table); err != nil {
		return err
	}
	if l.feed.aside {
		if misfit, err := h.s.spare(ctx, l.feed, &t.Table); err != nil || misfit != nil {
			return cmp.Or(err, unfit(&t.Table, misfit))
		}
	}
	left, err := h.s.reshape(ctx, l.feed, &t.Table, false)
	if err != nil {
		return err
	}
	schema, err := h.s.shape(ctx, l.feed, &t.Table, left)
	if err != nil {
		return err
	}
	l.table, l.shape, l.key, l.schema, l.of, l.waits = t, shape, key, schema, nil, false
	h.observe(l, false)
	slices.SortStableFunc(h.loads, func(a, b *load) int { return rank(a) - rank(b) })
	return nil
}

// ground finds out which transactions must have ended before rows are read: those of which the log may not tell all, and, if
// the server has commits wait for a standby while the log tells of them already, those that were under way when a process
// before left them to rows that were still to be read. Those with the highest numbers are no part of a snapshot yet; by the age of the
// first number that a transaction can have, 3, it is known which is given next, on a standby, too.
func (h *history) ground(ctx context.Context, conn *pgconn.PgConn, l *load) error {
	found, err := query(ctx, conn, "select txid_snapshot_xmax(txid_current_snapshot()), "+
		"current_setting('synchronous_standby_names') <> '', age('3'::xid)")
	if err != nil {
		return h.s.ailing(err)
	}
	if l.late || l.resumed && found[0][1][0] == 't' {
		l.settled = max(l.settled, nextAbove(uint64(number(found[0][0])), number(found[0][2])))
	}
	l.late, l.resumed = false, false
	return nil
}

// nextAbove is the number that a transaction is given next, by the age of the number 3, where a snapshot of the same moment ends at xmax.
func nextAbove(xmax uint64, age int64) uint64 {
	next := uint32(age) + 3
	return xmax + uint64(max(0, int32(next-uint32(xmax))))
}

// rank has tables without a key last: while one of them is read, the stream waits.
func rank(l *load) int {
	if l.table != nil && l.key == nil {
		return 1
	}
	return 0
}

// catalogued is the load's table with the columns that are published, and the shape of all its columns; nil: it is gone.
func (s *Source) catalogued(ctx context.Context, conn *pgconn.PgConn, l *load) (*catalogTable, string, error) {
	schema, name := l.feed.of[0], l.feed.of[1]
	found, err := readTables(ctx, conn, []string{schema + "." + name})
	if err != nil {
		return nil, "", s.ailing(err)
	}
	at := slices.IndexFunc(found, func(t *catalogTable) bool { return t.OID == l.oid })
	if at < 0 {
		return nil, "", nil
	}
	p, err := readPublication(ctx, conn, s.o.Publication, s.server.version)
	if err != nil {
		return nil, "", s.ailing(err)
	}
	t := found[at]
	shape := shapeOf(&t.Table)
	if p != nil {
		p.restrict(t)
	}
	return t, shape, nil
}

// begin takes the next step towards a chunk of the load, and reports whether there was one.
func (h *history) begin(ctx context.Context, l *load) (more bool, err error) {
	if now := time.Now(); now.Before(l.retry) || now.Before(h.notYet) || l.feed.skip || l.fill && l.feed.load != nil {
		return false, nil
	}
	if l.table == nil {
		if err := h.look(ctx, l); err != nil {
			return false, h.failed(ctx, l, err)
		}
		if l.table == nil {
			h.remove(l)
			return false, nil
		}
	}
	if len(l.hidden) > manyHidden {
		if err := h.forget(ctx, l); err != nil {
			return false, h.failed(ctx, l, err)
		}
	}
	if l.key == nil && slices.ContainsFunc(h.loads, func(other *load) bool { return other != l && len(other.windows) > 0 }) {
		return false, nil
	}
	if l.plan == nil {
		next, ok := l.next()
		if ok {
			h.plan(l, next)
		}
		return ok, nil
	}
	if !l.plan.ready() {
		return false, nil
	}
	if l.plan.err != nil {
		return false, h.failed(ctx, l, l.plan.err)
	}
	if err := h.open(ctx, l); err != nil {
		return false, h.failed(ctx, l, err)
	}
	return true, nil
}

// plan finds out, beside the stream, where a chunk ends.
func (h *history) plan(l *load, next chunk) {
	ctx, end := context.WithCancel(h.life)
	p := &plan{end: end, done: make(chan struct{}), give: h.giveBack, chunk: next, wanted: l.rows}
	l.plan = p
	table, mark, key, from := l.feed.name, l.mark(next.seq), l.key, l.table.from()
	names, feed, seal := l.keyNames(), l.feed, h.s.sealer(l.feed)
	h.wg.Go(func() {
		defer h.poke()
		defer close(p.done)
		if p.conn, p.err = h.take(ctx); p.err != nil {
			return
		}
		p.err = p.find(ctx, key, from, func(m *chunkMark) (*chunkMark, error) {
			var text []byte
			if m != nil {
				m.Key = names
				text, _ = json.Marshal(m)
				if seal != nil {
					text = seal.Seal(text)
				}
			}
			kept, err := h.s.down.Bookmark(ctx, table, mark, text)
			if kept == nil || err != nil {
				return nil, err
			}
			return h.s.parseMark(feed, kept)
		})
	})
}

// find finds where the chunk ends: where the bookmark says, or else so many rows behind where it begins. keep keeps a bookmark
// and returns the one that is kept.
func (p *plan) find(ctx context.Context, key []keyColumn, from string,
	keep func(*chunkMark) (*chunkMark, error)) error {
	kept, err := keep(nil)
	if err != nil {
		return err
	}
	if kept == nil {
		m := &chunkMark{Rows: p.chunk.rows + p.wanted}
		if key != nil {
			found, err := query(ctx, p.conn, boundQuery(from, key, p.chunk.after, p.wanted))
			if err != nil {
				return fmt.Errorf("find the next rows of %s: %w", from, err)
			}
			if len(found) > 0 {
				for _, v := range found[0] {
					m.Upto = append(m.Upto, string(v))
				}
			}
		}
		if kept, err = keep(m); err != nil {
			return err
		}
	}
	p.chunk.upto, p.chunk.rows = kept.Upto, kept.Rows
	return nil
}

// open opens the window of the planned chunk, and has its rows read.
func (h *history) open(ctx context.Context, l *load) error {
	p := l.plan
	began := time.Now()
	need := max(h.s.position, pgoutput.LSN(l.feed.after)) // what was left out is before that
	mark, err := openWindow(ctx, p.conn, l.table, l.shape, need)
	if err == nil && mark.seen.replay == nil && h.s.o.History.Address != "" {
		err = h.noReplica()
	}
	if err == nil {
		err = l.settle(&mark.seen)
	}
	if errors.Is(err, errUnsettled) && l.strikes < 8 { // soon: the plan is kept
		if _, e := p.conn.Exec(ctx, "rollback").ReadAll(); e != nil {
			return e
		}
		l.retry = time.Now().Add(time.Millisecond << l.strikes)
		l.strikes++
		return nil
	}
	if err != nil {
		return err
	}
	if time.Since(began) > slow {
		h.ease()
	}
	r, err := l.collector(h.s.types)
	if err != nil {
		return err
	}
	reading, end := context.WithTimeout(h.life, h.s.o.History.MaxAge)
	w := &window{load: l, chunk: p.chunk, watermark: *mark, parts: make(chan *part, partsAhead), end: end, opened: began,
		into: r}
	l.windows = append(l.windows, w)
	if l.began.IsZero() {
		l.began = began
	}
	conn := p.conn
	l.plan = nil
	where := w.where(l.key)
	if f := l.table.Filter; f != "" && where != "" {
		where += " and (" + f + ")"
	} else if f != "" {
		where = f
	}
	sql := selectOf(&l.table.Table, l.table.from(), where)
	h.wg.Go(func() {
		defer end()
		w.read(reading, h, conn, sql)
	})
	return nil
}

// forget asks the server which of the transactions have ended of which something was left out.
func (h *history) forget(ctx context.Context, l *load) error {
	conn, err := h.s.ask(ctx)
	if err != nil {
		return err
	}
	before, err := awaitReplay(ctx, conn, 0)
	if err != nil {
		return err
	}
	found, err := query(ctx, conn, "select txid_current_snapshot()")
	if err != nil {
		return err
	}
	v, err := parseVisibility(found[0][0])
	if err != nil {
		return err
	}
	if before > 0 {
		v.replay = &replay{before: before, after: before}
	}
	if err := l.settle(&v); !errors.Is(err, errUnsettled) {
		return err
	}
	return nil
}
