package postgres

import (
	"fmt"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// transaction is what one transaction changed: the messages that the server sent of it.
type transaction struct {
	changes
	xid      uint32
	begun    pgoutput.LSN // where the record of its commit begins
	end      pgoutput.LSN // behind its commit: the seq of its changes
	time     int64        // of the commit, in microseconds since 1970
	streamed bool         // it was sent while it was open: each message says its sub-transaction
	aborted  map[uint32]bool
	tables   bool     // it has descriptions of tables
	messages messages // for us
	last     uint32   // table that was changed
	touched  map[uint32]struct{}
}

// touch notes that a table was changed.
func (t *transaction) touch(oid uint32) {
	if oid == t.last {
		return
	}
	if t.touched == nil {
		t.touched = map[uint32]struct{}{}
	}
	t.last, t.touched[oid] = oid, struct{}{}
}

// messages is what the messages of a transaction say to the source.
type messages struct {
	level []string // tables that are to be brought to its end
	mend  []string // rows that are to be read again, and
	read  []string // by their ids, such as were
}

// hear takes a message.
func (s *messages) hear(prefix, content string) {
	switch prefix {
	case levelPrefix:
		s.level = append(s.level, content)
	case mendPrefix:
		s.mend = append(s.mend, content)
	case mendedPrefix:
		s.read = append(s.read, content)
	}
}

// assembler makes transactions of messages, whichever way the server sends them: whole when they are committed, or in parts
// while they are open, which alternate with those of others. Used by one goroutine.
type assembler struct {
	decoder pgoutput.Decoder
	whole   *transaction            // between Begin and Commit
	open    map[uint32]*transaction // sent in parts
	part    *transaction            // the one of whose parts this is
	held    int64                   // bytes in memory of all that are not committed
	most    int64                   // of them, before the largest is spilled
	dir     string
	private bool // what is spilled is encrypted
}

func newAssembler(memoryBytes int64, dir string) *assembler {
	return &assembler{open: map[uint32]*transaction{}, most: memoryBytes, dir: dir}
}

// idle reports whether no transaction is under way.
func (a *assembler) idle() bool { return a.whole == nil && len(a.open) == 0 }

// take takes one message, and returns the transaction that it commits, if it does. Errors: pgoutput.ErrMalformed, those of the
// folder for large ones.
func (a *assembler) take(payload []byte) (*transaction, error) {
	m, err := a.decoder.Skim(payload)
	if err != nil {
		return nil, err
	}
	switch m.Kind {
	case pgoutput.Begin:
		a.whole = &transaction{xid: m.XID}
	case pgoutput.Commit:
		t := a.whole
		if t == nil {
			return nil, fmt.Errorf("%w: a commit without its begin", pgoutput.ErrMalformed)
		}
		a.whole = nil
		return a.committed(t, m), nil
	case pgoutput.StreamStart:
		if a.open[m.XID] == nil {
			a.open[m.XID] = &transaction{xid: m.XID, streamed: true, aborted: map[uint32]bool{}}
		}
		a.part = a.open[m.XID]
	case pgoutput.StreamStop:
		a.part = nil
	case pgoutput.StreamCommit:
		t := a.open[m.XID]
		if t == nil {
			t = &transaction{xid: m.XID, streamed: true}
		}
		delete(a.open, m.XID)
		return a.committed(t, m), nil
	case pgoutput.StreamAbort:
		a.abort(m)
	case pgoutput.Relation, pgoutput.Insert, pgoutput.Update, pgoutput.Delete, pgoutput.Truncate:
		return nil, a.add(payload, m)
	case pgoutput.Emitted:
		if t := a.whole; t != nil && m.Transactional {
			t.messages.hear(string(m.Name), string(m.Content))
		}
	case pgoutput.Origin, pgoutput.Type:
	default:
		return nil, fmt.Errorf("%w: kind %q, which the slot was not asked for", pgoutput.ErrMalformed, m.Kind)
	}
	return nil, nil
}

func (a *assembler) committed(t *transaction, m *pgoutput.Message) *transaction {
	t.begun, t.end, t.time = m.LSN, m.End, m.Time
	a.held -= t.held
	return t
}

// abort drops the whole transaction, or what one of its sub-transactions did. The server does not describe a table again that
// it described in a sub-transaction which was undone: descriptions stay.
func (a *assembler) abort(m *pgoutput.Message) {
	t := a.open[m.XID]
	switch {
	case t == nil:
	case m.Sub != m.XID:
		t.aborted[m.Sub] = true
	default:
		a.held -= t.held
		t.drop()
		delete(a.open, m.XID)
	}
}

func (a *assembler) add(payload []byte, m *pgoutput.Message) error {
	t := a.part
	if t == nil {
		t = a.whole
	}
	if t == nil {
		return fmt.Errorf("%w: a change outside of a transaction", pgoutput.ErrMalformed)
	}
	switch m.Kind {
	case pgoutput.Relation:
		t.tables = true
	case pgoutput.Truncate:
		for _, oid := range m.Tables {
			t.touch(oid)
		}
	default:
		t.touch(m.Table)
	}
	before := t.held
	if err := t.add(payload); err != nil {
		return err
	}
	a.held += t.held - before
	if a.held <= a.most {
		return nil
	}
	return a.spill()
}

// spill writes the largest transaction out.
func (a *assembler) spill() error {
	largest := a.whole
	for _, t := range a.open {
		if largest == nil || t.held > largest.held {
			largest = t
		}
	}
	a.held -= largest.held
	return largest.spill(a.dir, a.private)
}

// drop gives up all that is not committed.
func (a *assembler) drop() {
	for _, t := range a.open {
		t.drop()
	}
	if a.whole != nil {
		a.whole.drop()
	}
}

// transactionReader yields the messages of a committed transaction that count. A Message lasts until the next call.
type transactionReader struct {
	*transaction
	messages *changesReader
	decoder  pgoutput.Decoder
	last     *pgoutput.Message // that next returned
	undone   bool              // next returns it once more
}

func (t *transaction) reader() (*transactionReader, error) {
	messages, err := t.read()
	return &transactionReader{transaction: t, messages: messages}, err
}

// again has next return once more what it returned last, which lasts until then.
func (r *transactionReader) again() { r.undone = true }

// next returns the next message. io.EOF: there is none.
func (r *transactionReader) next() (*pgoutput.Message, error) {
	if r.undone {
		r.undone = false
		return r.last, nil
	}
	for {
		payload, err := r.messages.next()
		if err != nil {
			return nil, err
		}
		m, err := r.decoder.DecodeChange(payload, r.streamed)
		if err != nil || m.Kind == pgoutput.Relation || !r.aborted[m.XID] {
			r.last = m
			return m, err
		}
	}
}
