// Package pgoutput reads the messages of PostgreSQL's logical replication plugin pgoutput, of its protocol versions 1 to 4:
// values as text or binary, transactions streamed while they are open, two-phase commits.
//
//	d := pgoutput.Decoder{}
//	m, err := d.Decode(payload) // of one XLogData
//
// Nothing is copied: a message and what it points to last until the next Decode, and as long as the payload. A damaged
// message is an error, and never a panic, nor more memory than it has bytes. Source: "Logical Replication Message Formats".
package pgoutput

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a message tells, in the letters of the protocol.
type Kind byte

// The kinds of messages.
const (
	Begin            Kind = 'B'
	Commit           Kind = 'C'
	Origin           Kind = 'O'
	Relation         Kind = 'R'
	Type             Kind = 'Y'
	Insert           Kind = 'I'
	Update           Kind = 'U'
	Delete           Kind = 'D'
	Truncate         Kind = 'T'
	Emitted          Kind = 'M' // by pg_logical_emit_message
	StreamStart      Kind = 'S'
	StreamStop       Kind = 'E'
	StreamCommit     Kind = 'c'
	StreamAbort      Kind = 'A'
	BeginPrepare     Kind = 'b'
	Prepare          Kind = 'P'
	CommitPrepared   Kind = 'K'
	RollbackPrepared Kind = 'r'
	StreamPrepare    Kind = 'p'
)

// LSN is a place in the log.
type LSN uint64

// String is the LSN as PostgreSQL writes it: "0/16B3748".
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// ParseLSN reads an LSN as PostgreSQL writes it.
func ParseLSN(s string) (LSN, error) {
	left, right, _ := strings.Cut(s, "/")
	high, errHigh := strconv.ParseUint(left, 16, 32)
	low, errLow := strconv.ParseUint(right, 16, 32)
	if errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("found %q, wanted a place in the log such as 0/16B3748", s)
	}
	return LSN(high<<32 | low), nil
}

// Message is one message. Which fields count depends on its kind; all others are zero.
type Message struct {
	Kind Kind
	// XID is the transaction: of Begin, and all that end or prepare one; of StreamStart and StreamAbort the transaction at
	// the top. Within a stream also that of each change, there that of the sub-transaction; else 0.
	XID uint32
	Sub uint32 // StreamAbort: the sub-transaction, or XID for all of it

	// LSN is where the commit, prepare or rollback stands; of Begin where the commit will; of Emitted where the message
	// does; of Origin where the commit stood in the origin; of StreamAbort, where the server says it, the abort.
	LSN  LSN
	End  LSN   // behind LSN's record: the next one begins there; of RollbackPrepared, behind the rollback's
	Time int64 // of commit, prepare or abort, in microseconds since 1970 UTC

	First bool   // StreamStart: the first part of this transaction
	GID   []byte // of the two-phase messages

	Rel     *Rel   // Relation: it is the receiver's and is not reused
	Table   uint32 // OID: of the changes
	Old     Tuple  // Update, Delete: the row before, nil: not sent
	OldKey  bool   // Old has only the columns of the replica identity; others are null and mean nothing
	New     Tuple  // Insert, Update: the row after
	Tables  []uint32
	Cascade bool // Truncate
	Restart bool // Truncate: with RESTART IDENTITY

	Transactional bool   // Emitted
	Name          []byte // Emitted: the prefix; Origin, Type: the name
	Content       []byte // Emitted
}

// Rel is a table as a Relation message describes it.
type Rel struct {
	OID      uint32
	Schema   string
	Name     string
	Identity byte // pg_class.relreplident
	Columns  []Column
}

// Column is a column of a Rel.
type Column struct {
	Key      bool // it is part of the replica identity
	Name     string
	Type     uint32
	Modifier int32
}

// Tuple is a row, one value a column of its Rel.
type Tuple []Value

// ValueKind is how a value is sent, in the letters of the protocol.
type ValueKind byte

// The kinds of values.
const (
	Null      ValueKind = 'n'
	Unchanged ValueKind = 'u' // not sent: a large value that the update did not touch
	Text      ValueKind = 't'
	Binary    ValueKind = 'b'
)

// Value is one value of a row.
type Value struct {
	Kind ValueKind
	Data []byte // of Text and Binary
}
