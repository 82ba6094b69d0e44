package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// walsender is a server that sends what another one sent once, as that would again: from the place that is confirmed or asked for,
// whichever is later, whole transactions that commit behind it, with each table described once a connection. Of the catalog it knows
// what the messages say.
type walsender struct {
	t       *testing.T
	version string // of the server: 15.4
	script  []scripted
	begins  pgoutput.LSN    // where the slot begins
	ends    pgoutput.LSN    // where the log does
	tables  []*pgoutput.Rel // each as it was first

	mu        sync.Mutex
	random    *rand.Rand
	confirmed pgoutput.LSN
	cuts      []int // how many messages of the script each next connection gets before it is cut; none: all

	conns map[net.Conn]bool

	asked func(sql string) (rows [][]string, is bool) // answers in its place, where it is one; nil: none

	met chan struct{} // has one when a connection was cut since it was taken last
}

// scripted is one message of the script.
type scripted struct {
	payload []byte
	at      pgoutput.LSN // of the commit of its transaction; always: it has none
	tables  []uint32     // that must have been described
	stream  uint32       // the sub-transaction, within a stream; 0: it is not in one
}

// always is behind every place: the server sends it again each time.
const always = ^pgoutput.LSN(0)

// newWalsender knows the messages, which address serves until the end of the test.
func newWalsender(t *testing.T, version string, payloads [][]byte, random *rand.Rand) *walsender {
	t.Helper()
	w := &walsender{t: t, version: version, random: random, conns: map[net.Conn]bool{},
		met: make(chan struct{}, 1)}
	w.learn(payloads)
	w.confirmed = w.begins
	return w
}

// learn reads the script: to which commit a message belongs is said only behind it.
func (w *walsender) learn(payloads [][]byte) {
	w.t.Helper()
	var d pgoutput.Decoder
	open := map[uint32][]int{} // messages of transactions; 0: of the one that is sent whole
	part := uint32(0)          // the one of whose parts this is
	for i, raw := range payloads {
		m, err := d.Decode(raw)
		if err != nil {
			w.t.Fatalf("message %d: %v", i, err)
		}
		one := scripted{payload: raw, at: always}
		of := part
		switch m.Kind {
		case pgoutput.StreamStart:
			of, part = m.XID, m.XID
		case pgoutput.StreamStop:
			part = 0
		case pgoutput.StreamCommit, pgoutput.StreamAbort:
			of = m.XID
		case pgoutput.Relation:
			w.describe(m.Rel)
		case pgoutput.Insert, pgoutput.Update, pgoutput.Delete:
			one.tables = []uint32{m.Table}
		case pgoutput.Truncate:
			one.tables = slices.Clone(m.Tables)
		}
		if part != 0 && m.Kind != pgoutput.StreamStart {
			one.stream = m.XID
		}
		w.script = append(w.script, one)
		open[of] = append(open[of], i)
		if m.Kind == pgoutput.Commit || m.Kind == pgoutput.StreamCommit {
			w.commit(open[of], m)
			delete(open, of)
		}
	}
}

// commit notes the commit of these messages of the script.
func (w *walsender) commit(script []int, m *pgoutput.Message) {
	if w.begins == 0 {
		w.begins = m.LSN - 8
	}
	w.ends = m.End
	for _, i := range script {
		w.script[i].at = m.LSN
	}
}

// describe notes a table that the catalog has.
func (w *walsender) describe(rel *pgoutput.Rel) {
	if !slices.ContainsFunc(w.tables, func(known *pgoutput.Rel) bool { return known.OID == rel.OID }) {
		w.tables = append(w.tables, rel)
	}
}

// address serves from now on.
func (w *walsender) address() string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var all sync.WaitGroup
	w.t.Cleanup(func() {
		_ = l.Close()
		w.hangUp()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.conns[conn] = true
			w.mu.Unlock()
			all.Go(func() { w.serve(conn) })
		}
	})
	return "postgres://freshet@" + l.Addr().String() + "/shop?sslmode=disable"
}

// hangUp ends all connections.
func (w *walsender) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// serve answers one connection until it is hung up or cut.
func (w *walsender) serve(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for name, value := range settings() {
		b.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: w.version})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	var sql, about string
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			if from, is := strings.CutPrefix(m.String, "START_REPLICATION SLOT "); is {
				w.replicate(conn, b, from)
				return
			}
			w.answer(b, m.String, "")
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Parse:
			sql = m.Query
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			about = string(bytes.Join(m.Parameters, nil))
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			w.answer(b, sql, about)
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// answer answers a question about the catalog, whose parameters are about something.
func (w *walsender) answer(b *pgproto3.Backend, sql, about string) {
	rows := w.rows(sql, about)
	for i := range rows { // what else is asked for is null
		rows[i] = append(rows[i], make([]string, 4)...)
	}
	if len(rows) > 0 {
		described := &pgproto3.RowDescription{}
		for range rows[0] {
			described.Fields = append(described.Fields, pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: 25})
		}
		b.Send(described)
	}
	for _, row := range rows {
		data := &pgproto3.DataRow{}
		for _, v := range row {
			if v == "" {
				data.Values = append(data.Values, nil)
				continue
			}
			data.Values = append(data.Values, []byte(v))
		}
		b.Send(data)
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "SELECT %d", len(rows))})
}

// rows answers by what the statement is about; "" is a null.
func (w *walsender) rows(sql, about string) (rows [][]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked != nil {
		if rows, is := w.asked(sql); is {
			return rows
		}
	}
	is := func(words string) bool { return strings.Contains(sql, words) }
	var major, minor int
	_, _ = fmt.Sscanf(w.version, "%d.%d", &major, &minor)
	switch {
	case is("IDENTIFY_SYSTEM"):
		return [][]string{{"7000000000000000001", "1", w.ends.String(), "shop"}}
	case is("server_version_num"):
		return [][]string{{"5", fmt.Sprint(major*10_000 + minor), "f", "2026-11-30 00:00:00+00"}}
	case is("confirmed_flush_lsn"):
		return [][]string{{"pgoutput", "shop", w.confirmed.String(), "reserved", "", w.begins.String(), "f"}}
	case is("pg_publication where"):
		return [][]string{{"t", "t", "t", "t", "t", "n", "", "t"}}
	}
	for _, rel := range w.tables {
		oid := fmt.Sprint(rel.OID)
		switch {
		case is("p.tablename is not null"):
			rows = append(rows, []string{rel.Schema, rel.Name, oid, "t", "1"})
		case is("select c.oid, coalesce("): // since when the publication has them
			rows = append(rows, []string{oid, "1"})
		case is("pg_publication_tables where"):
			rows = append(rows, []string{rel.Schema, rel.Name, "", ""})
		case is("c.reltuples::int8, c.relispartition"):
			rows = append(rows, []string{oid, rel.Schema, rel.Name, string(rel.Identity), "r", "p", "0", "f", "t", "t", ""})
		case is("a.attndims") && strings.Contains(about, oid):
			for i, c := range rel.Columns {
				key := map[bool]string{true: "t", false: "f"}[c.Key]
				rows = append(rows, []string{oid, c.Name, fmt.Sprint(c.Type), fmt.Sprint(c.Modifier), "f", "", "0", "-1", key,
					fmt.Sprint(i + 1), "f"})
			}
		}
	}
	return rows
}

// replicate sends the script, up to where the connection is to be cut, while it hears what is confirmed.
func (w *walsender) replicate(conn net.Conn, b *pgproto3.Backend, command string) {
	_, place, _ := strings.Cut(command, "LOGICAL ")
	place, _, _ = strings.Cut(place, " ")
	from, err := pgoutput.ParseLSN(place)
	if err != nil {
		w.t.Errorf("START_REPLICATION: %v", err)
		return
	}
	w.mu.Lock()
	from = max(from, w.confirmed)
	upto := len(w.script)
	if len(w.cuts) > 0 {
		upto, w.cuts = w.cuts[0], w.cuts[1:]
	}
	random := rand.New(rand.NewPCG(w.random.Uint64(), 1))
	w.mu.Unlock()
	b.Send(&pgproto3.CopyBothResponse{})
	if w.send(b, random, from, upto) != nil {
		return
	}
	if upto < len(w.script) {
		defer func() {
			select {
			case w.met <- struct{}{}:
			default:
			}
		}()
		if random.IntN(2) == 0 { // within a message
			part, err := (&pgproto3.CopyData{Data: xlogData(w.script[upto].payload)}).Encode(nil)
			if err == nil {
				_, _ = conn.Write(part[:1+random.IntN(len(part)-1)])
			}
		}
		return
	}
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.CopyData:
			w.heard(m.Data)
			b.Send(&pgproto3.CopyData{Data: keepalive(w.ends)})
			err = b.Flush()
		case *pgproto3.CopyDone:
			b.Send(&pgproto3.CopyDone{})
			err = b.Flush()
		case *pgproto3.Terminate:
			return
		}
		if err != nil {
			return
		}
	}
}

// send sends the messages of the script up to one of them, with a keepalive here and there.
func (w *walsender) send(b *pgproto3.Backend, random *rand.Rand, from pgoutput.LSN, upto int) error {
	var d pgoutput.Decoder
	latest, told := map[uint32][]byte{}, map[uint32]bool{}
	sent := from
	for i, one := range w.script[:upto] {
		m, err := d.Decode(one.payload)
		if err != nil {
			return err
		}
		if m.Kind == pgoutput.Relation {
			skip := 1
			if one.stream != 0 {
				skip = 5
			}
			latest[m.Table], told[m.Table] = one.payload[skip:], one.at >= from
		}
		if one.at < from {
			continue
		}
		for _, table := range one.tables {
			if told[table] {
				continue
			}
			told[table] = true
			b.Send(&pgproto3.CopyData{Data: xlogData(relation(latest[table], one.stream))})
		}
		b.Send(&pgproto3.CopyData{Data: xlogData(one.payload)})
		if m.Kind == pgoutput.Commit || m.Kind == pgoutput.StreamCommit {
			sent = m.End
		}
		if random.IntN(8) == 0 {
			b.Send(&pgproto3.CopyData{Data: keepalive(sent)})
		}
		if i%64 == 63 {
			if err := b.Flush(); err != nil {
				return err
			}
		}
	}
	if upto == len(w.script) {
		b.Send(&pgproto3.CopyData{Data: keepalive(w.ends)})
	}
	return b.Flush()
}

// heard takes a status update. Source: "Standby status update".
func (w *walsender) heard(data []byte) {
	if len(data) != 34 || data[0] != 'r' {
		w.t.Errorf("got %q, want a status update", data)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.confirmed = max(w.confirmed, pgoutput.LSN(binary.BigEndian.Uint64(data[9:])))
}

func xlogData(payload []byte) []byte {
	return append(append([]byte{'w'}, make([]byte, 24)...), payload...)
}

func keepalive(at pgoutput.LSN) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{'k'}, uint64(at)), make([]byte, 9)...)
}

// relation is the description of a table, as it stands in a stream of the transaction, or outside of one.
func relation(body []byte, stream uint32) []byte {
	if stream == 0 {
		return append([]byte{'R'}, body...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{'R'}, stream), body...)
}
