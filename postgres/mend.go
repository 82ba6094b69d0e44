package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// The prefixes of messages in the log about rows that are to be read again: which, and that they were.
const (
	mendPrefix   = "freshet.mend"
	mendedPrefix = "freshet.mended"
)

// The bounds of one request, and of what waits: what is beyond is left out, and may be asked for again.
const (
	mendKeys    = 500     // in a request
	mendBytes   = 1 << 20 // of a request
	mendID      = 64
	mendColumns = 32      // of a key
	mendRows    = 8 << 20 // bytes of the rows of a request
	mendsAtOnce = 16
)

// MendKey is a key whose row is to be read again. See Original.Mend.
type MendKey struct {
	Values []string `json:"values"`         // as the server writes them
	Held   bool     `json:"held,omitempty"` // the table has a row of it
	// Mark is the transaction that made the row what it was when it was found that the table's is another: of a row that changed since,
	// the change is still to come. 0: whichever.
	Mark uint64 `json:"mark,omitempty"`
}

// mendRequest is the content of the messages in the log that ask for rows, and that tell that they were read.
type mendRequest struct {
	ID      string    `json:"id"`
	Table   string    `json:"table"`   // schema.table
	Columns []string  `json:"columns"` // of the key
	Keys    []MendKey `json:"keys"`
}

func parseMendRequest(b []byte) (*mendRequest, error) {
	var r mendRequest
	if len(b) > mendBytes {
		return nil, fmt.Errorf("found %d bytes, wanted at most %d", len(b), mendBytes)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("found %.100q, wanted keys of rows to be read again: %w", b, err)
	}
	if len(r.ID) == 0 || len(r.ID) > mendID {
		return nil, fmt.Errorf("found an id of %d bytes, wanted 1 to %d", len(r.ID), mendID)
	}
	if n := len(r.Columns); n == 0 || n > mendColumns || len(r.Keys) == 0 || len(r.Keys) > mendKeys {
		return nil, fmt.Errorf("found %d keys of %d columns, wanted at most %d of at most %d", len(r.Keys), n, mendKeys, mendColumns)
	}
	for _, k := range r.Keys {
		if len(k.Values) != len(r.Columns) {
			return nil, fmt.Errorf("found a key of %d values, wanted %d", len(k.Values), len(r.Columns))
		}
	}
	return &r, nil
}

// mend is rows of a table that are read again, while the stream goes on, to take the place of what the table has of their keys:
//
//	log:   … request ──── changes ──── message ────▶
//	             │                         ▲   │
//	             └▶ settle, read the rows ─┘   └▶ rows, less those whose keys a change had meanwhile
//
// The reader waits until it sees all that the log tells of before the request, and the message comes into the log behind all that it
// has seen. So a row of whose key no change came in between is, where the message stands, what was read; a row that is not there,
// is not there. A change that did come has brought its row by itself.
//
// A process that ends behind the message may leave a table that holds it, and one beside that does not. Another process, which
// reads the message again, returns the rows at the same place: as they are by then, which the changes that follow make of them anyway.
type mend struct {
	mendRequest
	text  string // the request
	feed  *feed
	whose uint32 // the feed's, when it was asked for

	// Of the source's goroutine.
	touched map[string]bool // keys that changes came of
	lost    bool            // the table was emptied or altered
	key     []int           // the key's columns in the rows of the log,
	of      *Table          // as it describes this

	// Of the reader, until done is closed.
	done  chan struct{}
	table *catalogTable
	names []string // of the columns that were read
	rows  []mendRow
	err   error
}

// mendRow is what was read of a key: its values, as the server writes them, and those of the row; nil: there is none.
type mendRow struct {
	key    [][]byte
	held   bool
	values [][]byte // nil ones are null
}

// mends are those that are under way, by their ids.
type mends struct {
	all     map[string]*mend
	over    map[string]bool // that were returned, or given up: the newest
	order   []string        // of these
	reading sync.Mutex      // one reads at once
}

// mendsOver is how many are remembered that are over.
const mendsOver = 1000

// end takes one out.
func (a *mends) end(id string) {
	delete(a.all, id)
	if a.over[id] {
		return
	}
	a.over[id] = true
	if a.order = append(a.order, id); len(a.order) > mendsOver {
		delete(a.over, a.order[0])
		a.order = a.order[1:]
	}
}

// mendsAsked takes requests that came with the log.
func (s *Source) mendsAsked(requests []string) {
	for _, text := range requests {
		if r := s.mendOf(mendPrefix, text); r != nil && !s.mends.over[r.ID] && s.mends.all[r.ID] == nil {
			s.beginMend(r, text)
		}
	}
}

// mendOf is a request of a message; nil: it is none.
func (s *Source) mendOf(prefix, text string) *mendRequest {
	r, err := parseMendRequest([]byte(text))
	if err != nil {
		s.o.Log.Warn("a message in the log is left out", "prefix", prefix, "error", err)
		return nil
	}
	return r
}

// beginMend begins to read rows again; nil: they are not read now.
func (s *Source) beginMend(r *mendRequest, text string) *mend {
	f := s.feeds[r.Table]
	s.mends.forget()
	if f == nil || f.skip || f.load != nil || len(s.mends.all) >= mendsAtOnce {
		s.o.Log.Debug("rows are not read again now", "table", r.Table, "keys", len(r.Keys))
		return nil
	}
	m := &mend{mendRequest: *r, text: text, feed: f, whose: f.whose, touched: map[string]bool{}, done: make(chan struct{})}
	s.mends.all[m.ID] = m
	s.history.wg.Go(func() {
		defer close(m.done)
		s.mends.reading.Lock()
		defer s.mends.reading.Unlock()
		m.err = s.readMend(s.history.life, m)
	})
	return m
}

// forget forgets what could not be read.
func (a *mends) forget() {
	for id, m := range a.all {
		select {
		case <-m.done:
			if m.err != nil {
				a.end(id)
			}
		default:
		}
	}
}

// touch notes that a change came of keys of the feed.
func (a *mends) touch(f *feed, c *pgoutput.Message) {
	for _, m := range a.all {
		if m.feed == f {
			m.touch(c.New, c.Old)
			m.touch(c.Old, nil)
		}
	}
}

// lose gives up what was asked of the feed.
func (a *mends) lose(f *feed) {
	for _, m := range a.all {
		m.lost = m.lost || m.feed == f
	}
}

// touch notes the key of a row of the log, which has what was not sent of it from known.
func (m *mend) touch(row, known pgoutput.Tuple) {
	if row == nil || m.lost {
		return
	}
	if m.of != m.feed.table {
		m.of, m.key = m.feed.table, m.key[:0]
		for _, name := range m.Columns {
			m.key = append(m.key, slices.IndexFunc(m.of.Columns, func(c Column) bool { return c.Name == name }))
		}
	}
	key := make([][]byte, len(m.key))
	for i, at := range m.key {
		switch {
		case at >= 0 && at < len(row) && row[at].Kind == pgoutput.Text:
			key[i] = row[at].Data
		case at >= 0 && at < len(known) && known[at].Kind == pgoutput.Text:
			key[i] = known[at].Data
		default: // it may be any key
			m.lost = true
			return
		}
	}
	m.touched[joinValues(key)] = true
}

// joinValues is one text for a list of values, another for each.
func joinValues(values [][]byte) string {
	var b []byte
	for _, v := range values {
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	return string(b)
}

// mendsRead returns the rows, as changes of a transaction, that its messages say were read: by this process, or by another one of
// which a part was lost, before this one began to read the log.
func (s *Source) mendsRead(ctx context.Context, requests []string, o *origin) error {
	for _, text := range requests {
		r := s.mendOf(mendedPrefix, text)
		if r == nil || s.mends.over[r.ID] {
			continue
		}
		m := s.mends.all[r.ID]
		if m == nil && o.end <= s.server.flushed {
			m = s.beginMend(r, text)
		}
		if m == nil {
			continue
		}
		select {
		case <-m.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.replace(ctx, m, o); err != nil {
			return err
		}
		s.mends.end(r.ID)
	}
	return nil
}

// replace returns the rows of a mend as changes.
func (s *Source) replace(ctx context.Context, m *mend, o *origin) error {
	f := m.feed
	if m.err != nil || m.lost || f.whose != m.whose || f.skip || f.load != nil || f.after >= int64(o.end) {
		return nil
	}
	if f.table == nil { // the log has not described it
		if err := f.describe(ctx, s, relationOf(&m.table.Table), false); err != nil {
			return err
		}
		defer func() { f.table = nil }() // it may tell of another moment
	}
	columns := make([]int, len(f.table.Columns))
	for i, c := range f.table.Columns {
		if columns[i] = slices.Index(m.names, c.Name); columns[i] < 0 {
			return nil
		}
	}
	mended, before := 0, f.bytes
	for _, r := range m.rows {
		if m.touched[joinValues(r.key)] || r.values == nil && !r.held {
			continue
		}
		kind, row := r.change(columns, func(i int) int { return slices.Index(m.Columns, f.table.Columns[i].Name) })
		f.row(kind, row, nil, false, o, left{})
		s.waiting++
		o.ordinal++
		mended++
	}
	s.bytes += f.bytes - before
	s.o.Log.Info("rows were read again", "table", f.name, "rows", mended, "asked", len(m.Keys))
	return nil
}

// change is what makes the table have the row, of these columns of what was read; keyAt says which value of the key a column has.
func (r *mendRow) change(columns []int, keyAt func(i int) int) (freshet.Kind, pgoutput.Tuple) {
	row := make(pgoutput.Tuple, len(columns))
	for i, at := range columns {
		switch {
		case r.values == nil:
			row[i].Kind = pgoutput.Unchanged
			if k := keyAt(i); k >= 0 {
				row[i] = pgoutput.Value{Kind: pgoutput.Text, Data: r.key[k]}
			}
		case r.values[at] == nil:
			row[i].Kind = pgoutput.Null
		default:
			row[i] = pgoutput.Value{Kind: pgoutput.Text, Data: r.values[at]}
		}
	}
	switch {
	case r.values == nil:
		return freshet.Delete, row
	case r.held:
		return freshet.UpdatePostimage, row
	}
	return freshet.Insert, row
}

// readMend reads the rows, and says in the log that they were read. It is a goroutine of the history's.
func (s *Source) readMend(ctx context.Context, m *mend) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("rows could not be read again", "table", m.Table, "error", err)
		}
	}()
	conn, err := s.history.take(ctx)
	if err != nil {
		return err
	}
	defer func() { s.history.giveBack(conn) }()
	if m.table, err = s.mendTable(ctx, conn, m); err != nil {
		return err
	}
	shape := shapeOf(&m.table.Table)
	if p, err := readPublication(ctx, conn, s.o.Publication, serverVersion(conn)); err != nil {
		return err
	} else if p != nil {
		p.restrict(m.table)
	}
	settled, err := settle(ctx, conn)
	if err != nil {
		return err
	}
	if !settled {
		return errUnsettled
	}
	if _, err := openWindow(ctx, conn, m.table, shape, 0); err != nil {
		return err
	}
	if err := m.read(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "commit").ReadAll(); err != nil {
		return err
	}
	return emit(ctx, conn, mendedPrefix, m.text)
}

// mendTable is the table as the catalog has it.
func (s *Source) mendTable(ctx context.Context, conn *pgconn.PgConn, m *mend) (*catalogTable, error) {
	found, err := readTables(ctx, conn, []string{m.Table})
	if err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].OID != m.whose {
		return nil, fmt.Errorf("%s: the table was dropped, or made again", m.Table)
	}
	return found[0], nil
}

// emit writes a message into the log, as a transaction.
func emit(ctx context.Context, conn *pgconn.PgConn, prefix, content string) error {
	if _, err := query(ctx, conn, "select pg_logical_emit_message(true, $1, $2)", prefix, content); err != nil {
		return fmt.Errorf("write a message to the log: %w", err)
	}
	return nil
}

// read reads the rows of the keys that were asked for.
func (m *mend) read(ctx context.Context, conn *pgconn.PgConn) error {
	sql, err := m.query(ctx, conn)
	if err != nil {
		return err
	}
	results := conn.Exec(ctx, sql)
	size := 0
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			values := rows.Values()
			for _, v := range values {
				size += len(v)
			}
			if size > mendRows {
				continue // it is asked for again
			}
			m.take(values)
		}
		if _, err := rows.Close(); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}

// take takes what was read of a key: its number, the mark of its row, the key, and the row.
func (m *mend) take(values [][]byte) {
	at := number(values[0])
	r := mendRow{held: m.Keys[at].Held}
	if mark := m.Keys[at].Mark; mark != 0 && values[1] != nil && uint64(number(values[1])) != mark {
		return
	}
	copied := make([][]byte, len(values)-2)
	for i, v := range values[2:] {
		copied[i] = slices.Clone(v)
	}
	r.key = copied[:len(m.Columns)]
	if values[1] != nil {
		r.values = copied[len(m.Columns):]
	}
	m.rows = append(m.rows, r)
}

// query asks for the rows of the keys: one a key, also of those that have none. Keys are turned into the types of their columns and
// back, so that they are written as the log writes them.
func (m *mend) query(ctx context.Context, conn *pgconn.PgConn) (string, error) {
	found, err := query(ctx, conn, fmt.Sprintf("select attname, pg_catalog.format_type(atttypid, atttypmod) "+
		"from pg_catalog.pg_attribute where attrelid = %d and attnum > 0 and not attisdropped", m.table.OID))
	if err != nil {
		return "", err
	}
	types := map[string]string{}
	for _, r := range found {
		types[string(r[0])] = string(r[1])
	}
	var keys, names, same strings.Builder
	for i, name := range m.Columns {
		if types[name] == "" {
			return "", fmt.Errorf("%s: found no column %q", m.Table, name)
		}
		fmt.Fprintf(&names, ", freshet_k%d", i)
		fmt.Fprintf(&same, " and t.%s = freshet_k%d", quoteName(name), i)
	}
	for n, k := range m.Keys {
		fmt.Fprintf(&keys, "%s(%d", []string{"", ", "}[min(n, 1)], n)
		for i, name := range m.Columns {
			fmt.Fprintf(&keys, ", %s::%s", quoteText(k.Values[i]), types[name])
		}
		keys.WriteString(")")
	}
	if f := m.table.Filter; f != "" {
		fmt.Fprintf(&same, " and (%s)", f)
	}
	columns := ""
	for _, c := range m.table.Columns {
		m.names = append(m.names, c.Name)
		columns += ", t." + quoteName(c.Name)
	}
	return fmt.Sprintf("select freshet_n, t.xmin%[1]s%[2]s from (values %[3]s) freshet_keys(freshet_n%[1]s) "+
		"left join %[4]s t on true%[5]s", names.String(), columns, keys.String(), m.table.from(), same.String()), nil
}

// Mend asks the pipeline, by messages in the log, to read the rows of these keys again and to return them as changes, of a key that has
// no row a delete. It does not wait for that. Of keys that change at that moment, or whose rows are too many bytes, nothing
// comes: they may be asked for again. Errors: CodeUnavailable for servers before PostgreSQL 14, whose log brings no messages.
func (r *Original) Mend(ctx context.Context, keys []MendKey) error {
	if v := r.of.server.version; v < 140000 {
		return &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: r.table.String(),
			Msg: "PostgreSQL before 14 cannot ask a pipeline to read rows again", Fix: "load the table again"}
	}
	for part := range slices.Chunk(keys, mendKeys) {
		text, err := json.Marshal(mendRequest{ID: rand.Text(), Table: r.table.String(), Columns: r.key, Keys: part})
		if err != nil {
			return err
		}
		if len(text) > mendBytes && len(part) > 1 {
			half := len(part) / 2
			if err := errors.Join(r.Mend(ctx, part[:half]), r.Mend(ctx, part[half:])); err != nil {
				return err
			}
			continue
		}
		if err := emit(ctx, r.of.conn, mendPrefix, string(text)); err != nil {
			return err
		}
	}
	return nil
}
