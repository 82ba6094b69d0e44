package pgoutput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed says that the bytes are no message of pgoutput.
var ErrMalformed = errors.New("not a message of pgoutput")

// since2000 is 2000-01-01, from which PostgreSQL counts, in microseconds since 1970.
const since2000 = 946_684_800_000_000

// Decoder decodes the messages of one connection in their order: within a stream they have another form. The zero value is
// ready. Used by one goroutine.
type Decoder struct {
	streaming bool
	message   Message
	first     Tuple // memory of the tuples
	second    Tuple
	tables    []uint32
}

// Decode returns the message, which lasts until the next Decode and points into payload. Errors: ErrMalformed.
func (d *Decoder) Decode(payload []byte) (*Message, error) {
	m, err := d.decode(payload, d.streaming)
	if err != nil {
		return nil, err
	}
	switch m.Kind {
	case StreamStart:
		d.streaming = true
	case StreamStop:
		d.streaming = false
	}
	return m, nil
}

// Skim is Decode, but of a change of a row it tells the transaction and the table alone: for who keeps the payload, and has
// DecodeChange decode it later. Errors: ErrMalformed.
func (d *Decoder) Skim(payload []byte) (*Message, error) {
	if len(payload) == 0 {
		return d.Decode(payload)
	}
	m := Message{Kind: Kind(payload[0])}
	if m.Kind != Insert && m.Kind != Update && m.Kind != Delete {
		return d.Decode(payload)
	}
	r := reader{rest: payload[1:]}
	if d.streaming {
		m.XID = r.uint32()
	}
	m.Table = r.uint32()
	if r.fault != "" {
		return nil, fmt.Errorf("%w: kind %q: %s", ErrMalformed, m.Kind, r.fault)
	}
	d.message = m
	return &d.message, nil
}

// Streaming reports whether the last message was one within a stream, or began it.
func (d *Decoder) Streaming() bool { return d.streaming }

// DecodeChange decodes a message out of its order, one that was decoded before and kept: streamed says whether it came
// within a stream. Errors: ErrMalformed.
func (d *Decoder) DecodeChange(payload []byte, streamed bool) (*Message, error) {
	return d.decode(payload, streamed)
}

func (d *Decoder) decode(payload []byte, streamed bool) (*Message, error) {
	if len(payload) == 0 {
		return nil, fmt.Errorf("%w: no bytes", ErrMalformed)
	}
	d.message = Message{Kind: Kind(payload[0])}
	m := &d.message
	r := reader{rest: payload[1:]}
	switch m.Kind {
	case Relation, Type, Insert, Update, Delete, Truncate, Emitted:
		if streamed {
			m.XID = r.uint32()
		}
		d.change(m, &r)
	case StreamStart:
		m.XID = r.uint32()
		m.First = r.byte() == 1
	case StreamStop:
	default:
		d.end(m, &r)
	}
	switch {
	case r.fault != "":
		return nil, fmt.Errorf("%w: kind %q: %s", ErrMalformed, m.Kind, r.fault)
	case len(r.rest) > 0:
		return nil, fmt.Errorf("%w: kind %q: %d bytes behind its end", ErrMalformed, m.Kind, len(r.rest))
	}
	return m, nil
}

// end decodes what begins, ends or prepares a transaction.
func (d *Decoder) end(m *Message, r *reader) {
	switch m.Kind {
	case Begin:
		m.LSN, m.Time, m.XID = r.lsn(), r.time(), r.uint32()
	case Commit:
		r.byte()
		m.LSN, m.End, m.Time = r.lsn(), r.lsn(), r.time()
	case Origin:
		m.LSN, m.Name = r.lsn(), r.text()
	case StreamCommit:
		m.XID = r.uint32()
		r.byte()
		m.LSN, m.End, m.Time = r.lsn(), r.lsn(), r.time()
	case StreamAbort:
		m.XID, m.Sub = r.uint32(), r.uint32()
		if len(r.rest) > 0 { // version 4 with parallel streaming
			m.LSN, m.Time = r.lsn(), r.time()
		}
	case BeginPrepare:
		m.LSN, m.End, m.Time, m.XID, m.GID = r.lsn(), r.lsn(), r.time(), r.uint32(), r.text()
	case Prepare, CommitPrepared, StreamPrepare:
		r.byte()
		m.LSN, m.End, m.Time, m.XID, m.GID = r.lsn(), r.lsn(), r.time(), r.uint32(), r.text()
	case RollbackPrepared:
		r.byte()
		m.LSN, m.End = r.lsn(), r.lsn()
		r.time() // of the prepare
		m.Time, m.XID, m.GID = r.time(), r.uint32(), r.text()
	default:
		r.fail("no such kind")
	}
}

// change decodes what a transaction consists of.
func (d *Decoder) change(m *Message, r *reader) {
	switch m.Kind {
	case Relation:
		m.Rel = r.relation()
		m.Table = m.Rel.OID
	case Type:
		m.Table = r.uint32()
		r.text()
		m.Name = r.text()
	case Insert:
		m.Table = r.uint32()
		d.newRow(m, r, r.byte())
	case Update:
		m.Table = r.uint32()
		next := r.byte()
		if next == 'K' || next == 'O' {
			d.oldRow(m, r, next)
			next = r.byte()
		}
		d.newRow(m, r, next)
	case Delete:
		m.Table = r.uint32()
		d.oldRow(m, r, r.byte())
	case Truncate:
		d.truncate(m, r)
	case Emitted:
		m.Transactional = r.byte()&1 == 1
		m.LSN, m.Name = r.lsn(), r.text()
		m.Content = r.bytes(int64(r.uint32()))
	}
}

func (d *Decoder) oldRow(m *Message, r *reader, mark byte) {
	if mark != 'K' && mark != 'O' {
		r.fail("an old row is wanted")
		return
	}
	m.OldKey = mark == 'K'
	d.first = r.tuple(d.first)
	m.Old = d.first
}

func (d *Decoder) newRow(m *Message, r *reader, mark byte) {
	if mark != 'N' {
		r.fail("a new row is wanted")
		return
	}
	d.second = r.tuple(d.second)
	m.New = d.second
}

func (d *Decoder) truncate(m *Message, r *reader) {
	n := r.uint32()
	options := r.byte()
	m.Cascade, m.Restart = options&1 != 0, options&2 != 0
	if int64(n)*4 > int64(len(r.rest)) {
		r.fail("fewer tables than said")
		return
	}
	d.tables = d.tables[:0]
	for range n {
		d.tables = append(d.tables, r.uint32())
	}
	m.Tables = d.tables
}

// reader takes a message apart. After the first fault it yields zeroes.
type reader struct {
	rest  []byte
	fault string
}

func (r *reader) fail(fault string) {
	if r.fault == "" {
		r.fault = fault
	}
	r.rest = nil
}

// bytes are the next n bytes.
func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.rest)) || n < 0 {
		r.fail("it ends too soon")
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("it ends too soon")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) lsn() LSN { return LSN(r.uint64()) }

func (r *reader) time() int64 { return int64(r.uint64()) + since2000 }

// text is the bytes up to the next zero, which is taken too.
func (r *reader) text() []byte {
	i := bytes.IndexByte(r.rest, 0)
	if i < 0 {
		r.fail("a text without an end")
		return nil
	}
	b := r.rest[:i:i]
	r.rest = r.rest[i+1:]
	return b
}

func (r *reader) relation() *Rel {
	rel := &Rel{OID: r.uint32(), Schema: string(r.text()), Name: string(r.text()), Identity: r.byte()}
	if rel.Schema == "" {
		rel.Schema = "pg_catalog"
	}
	for range r.uint16() {
		if r.fault != "" {
			break
		}
		c := Column{Key: r.byte()&1 == 1, Name: string(r.text()), Type: r.uint32(), Modifier: int32(r.uint32())}
		rel.Columns = append(rel.Columns, c)
	}
	return rel
}

// tuple reads a row into the memory of t.
func (r *reader) tuple(t Tuple) Tuple {
	t = t[:0]
	for range r.uint16() {
		v := Value{Kind: ValueKind(r.byte())}
		switch v.Kind {
		case Null, Unchanged:
		case Text, Binary:
			v.Data = r.bytes(int64(r.uint32()))
		default:
			r.fail("a value of a kind that there is not")
		}
		if r.fault != "" {
			break
		}
		t = append(t, v)
	}
	return t
}
