package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// ranks are where keys of one transaction lie among the bounds of a load, where only the server knows the order: of text in most
// languages, of enums. It is asked of many keys at once, by reading on in the transaction:
//
//	messages of the transaction ─▶ decoded ────────────▶ asked of ──▶
//	                                        known
type ranks struct {
	of     *transaction
	reader *transactionReader // of the messages that were not asked of
	bounds []bound            // ascending
	places map[int64]int      // in these, by the seq of the chunk that each is the end of
	known  map[string]int     // how many of the bounds lie before a key
	asked  [][][]byte         // keys that were read and not asked of yet; nil: none were
}

// askedTogether is how many keys the server is asked of at once.
const askedTogether = 4096

// served reports whether only the server can put keys of the table in order.
func (l *load) served() bool { return len(l.key) > 0 && !ordered(l.key) }

// within reports whether a key does not lie behind the end of a chunk.
func (l *load) within(seq int64, upto bound, values [][]byte) bool {
	if l.served() {
		return l.ranks.known[joinValues(values)] <= l.ranks.places[seq]
	}
	return upto.compare(l.key, values) <= 0
}

// rank makes sure that it is known where the keys of a change lie. After an error it may be called again. Errors: those of the transaction's
// file, and of ctx.
func (l *load) rank(ctx context.Context, s *Source, m *pgoutput.Message, t *transaction) error {
	if !l.served() || l.ended {
		return nil
	}
	if l.ranks.of != t {
		return fmt.Errorf("load %s: a transaction that was not read ahead changes it", l.feed.name)
	}
	for range 2 {
		before, after := l.keysOf(m)
		if l.ranks.has(before) && l.ranks.has(after) {
			return nil
		}
		if l.ranks.asked == nil {
			keys, err := l.readAhead()
			if err != nil {
				return err
			}
			l.ranks.asked = keys
		}
		if err := l.askRanks(ctx, s, l.ranks.asked); err != nil {
			return err
		}
		l.ranks.asked = nil
	}
	return fmt.Errorf("load %s: a transaction was read twice, and is another each time", l.feed.name)
}

func (r *ranks) has(key [][]byte) bool {
	_, known := r.known[joinValues(key)]
	return key == nil || known
}

// readRanks has the loads that the transaction concerns read ahead in it, before it is decoded.
func (h *history) readRanks(t *transaction) error {
	for _, l := range h.loads {
		if _, touched := t.touched[l.oid]; touched && l.served() && !l.ended {
			if err := l.beginRanks(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginRanks begins to read ahead in a transaction, whose changes all meet the same bounds.
func (l *load) beginRanks(t *transaction) (err error) {
	r := ranks{of: t, places: map[int64]int{}}
	add := func(seq int64, b bound) {
		if _, is := r.places[seq]; b != nil && !is {
			r.places[seq] = len(r.bounds)
			r.bounds = append(r.bounds, b)
		}
	}
	add(l.done, l.upto)
	for _, w := range l.windows {
		add(w.seq, w.upto)
	}
	for _, c := range l.ahead {
		add(c.seq, c.upto)
	}
	messages, err := t.ahead()
	r.reader = &transactionReader{transaction: t, messages: messages}
	l.ranks = r
	return err
}

// readAhead returns the next keys of the table in the transaction, up to where the log describes it anew.
func (l *load) readAhead() (keys [][][]byte, err error) {
	asked := map[string]bool{}
	take := func(key [][]byte) {
		if text := joinValues(key); key != nil && !asked[text] {
			asked[text] = true
			kept := make([][]byte, len(key))
			for i, v := range key {
				kept[i] = append([]byte{}, v...)
			}
			keys = append(keys, kept)
		}
	}
	for len(keys) < askedTogether {
		m, err := l.ranks.reader.next()
		switch {
		case errors.Is(err, io.EOF):
			return keys, nil
		case err != nil:
			return nil, err
		case m.Kind == pgoutput.Relation && m.Rel.OID == l.oid && len(keys) > 0:
			return keys, nil
		case m.Table == l.oid && (m.Kind == pgoutput.Insert || m.Kind == pgoutput.Update || m.Kind == pgoutput.Delete):
			before, after := l.keysOf(m)
			take(before)
			take(after)
		}
	}
	return keys, nil
}

// askRanks asks the server where keys lie, for as long as it takes.
func (l *load) askRanks(ctx context.Context, s *Source, keys [][][]byte) error {
	return s.asking(ctx, "ask for the order of keys of "+l.feed.name, func(conn *pgconn.PgConn) error {
		found, err := query(ctx, conn, rankQuery(l.key, l.ranks.bounds), columnsOf(l.key, keys)...)
		if err != nil {
			return err
		}
		l.ranks.known = make(map[string]int, len(keys))
		for i, r := range found {
			l.ranks.known[joinValues(keys[i])] = int(number(r[0]))
		}
		return nil
	})
}

// rankQuery asks of keys, whose columns are arrays, how many of the bounds lie before each.
func rankQuery(key []keyColumn, bounds []bound) string {
	var columns, of, names []string
	for i, k := range key {
		names = append(names, fmt.Sprintf("c%d", i))
		of = append(of, fmt.Sprintf("$%d::text[]", i+1))
		columns = append(columns, fmt.Sprintf("u.c%d::%s%s as c%[1]d", i, k.typed, k.collation))
	}
	count := "select 0"
	if len(bounds) > 0 {
		var rows []string
		for _, b := range bounds {
			var values []string
			for i, v := range b {
				values = append(values, quoteText(v)+"::"+key[i].typed+key[i].collation)
			}
			rows = append(rows, "("+strings.Join(values, ", ")+")")
		}
		all := strings.Join(names, ", ")
		count = fmt.Sprintf("select count(*) from (values %s) b(%s) where row(b.%s) < row(k.%s)", strings.Join(rows, ", "), all,
			strings.Join(names, ", b."), strings.Join(names, ", k."))
	}
	return fmt.Sprintf("select (%s) from (select %s, u.n from unnest(%s) with ordinality u(%s, n)) k order by k.n", count,
		strings.Join(columns, ", "), strings.Join(of, ", "), strings.Join(names, ", "))
}

// columnsOf are the columns of keys, each as the text of an array.
func columnsOf(key []keyColumn, keys [][][]byte) []string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	columns := make([]string, len(key))
	for i := range key {
		var b strings.Builder
		for n, k := range keys {
			if n > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			_, _ = quote.WriteString(&b, string(k[i])) // never fails
			b.WriteByte('"')
		}
		columns[i] = "{" + b.String() + "}"
	}
	return columns
}
