package freshet

import (
	"slices"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// Kind says what happened to a row.
type Kind uint8

// The first four kinds of change are Delta's own values of _change_type. A Truncate is a row of which nothing was sent: all
// rows that the table has are gone.
const (
	Insert Kind = iota
	UpdatePreimage
	UpdatePostimage
	Delete
	Truncate
)

// String returns Delta's word: "insert", "update_preimage", "update_postimage", "delete"; or "truncate".
func (k Kind) String() string {
	return [...]string{"insert", "update_preimage", "update_postimage", "delete", "truncate"}[k]
}

// Batch is all that a source read of one lane for one table between two seqs. Every record with a seq in (After, Last]
// is in Rows, in Rejects, or was dropped for good (a filter, a tombstone): committing the batch moves the lane's
// progress to Last, also when there are no rows at all.
//
// A batch belongs to whoever holds it: passing it on passes the duty to call Release.
type Batch struct {
	Table string // the table its rows are for, as the source's route named it
	Lane  Lane
	After int64 // the lane's progress before this batch: exclusive
	Last  int64 // the last seq it holds: inclusive

	Rows    arrow.RecordBatch // the columns; nil when there are no rows
	Kinds   []Kind            // one a row; nil when all are inserts
	Unsent  *Mask             // cells that the source did not send; nil: it sent all
	Stamps  []Stamp           // one a row; nil when the source does not say
	Seqs    []int64           // one a row, ascending
	Places  []int32           // one a row: its place within its seq, ascending there; nil: counted from 0 in this batch
	Records []RecordRef       // one a row: what it came from; nil when the source keeps none

	// Covered says, one a row, with which seq of the lane CoveredBy a table gets the row that the change led to; 0: with none.
	// A table that held that seq when its lanes were resumed takes the change, others drop it. nil: none is covered.
	Covered   []int64
	CoveredBy Lane

	// Beside are lanes of the table on which this batch depends: what theirs behind these seqs show, it leaves out, or overrides. It is
	// committed only if nobody else has moved them since they were resumed: what another has shown may be older than what was left
	// out, or newer than this. Places behind which nothing comes say that the lanes are still read, and that nothing was left out.
	Beside []Place

	// Behind is where the rows stand among the changes of several lanes, for whoever puts these in order: behind a seq of another
	// lane. nil: each at its own seq.
	Behind *Place

	Rejects []Reject // records that could not be taken, by seq

	// Unfinished says that there is more of Last, the only seq that the batch has: in the lane's next batch, whose After and
	// Last are this Last, and so on until one that is not Unfinished. The table is not committed in between.
	Unfinished bool
	// Partial says that the table is not to be committed behind this batch, but behind a later one of it, of whatever lane, that
	// is not Partial: rows of one transaction of the origin are in several lanes.
	Partial bool
	// More says that the origin's moment at which this batch ends is shown only with the source's next batch, of whatever
	// table: nothing is committed in between unless it must be, and then no cut is recorded.
	More bool
	// Level says that with this batch, and those before it, each table that the source reads the lane for has all up to Last: of one of
	// which no batch came, nothing has changed up to there. It is not said while a table is to be read again (Rewind), nor in a batch
	// that was read before that was asked for. A source that says it asks Downstream from the goroutine that calls it alone.
	Level bool

	// Late is the first day that was over when rows of it came: the pipe sets it, where days are opened again. 0: none.
	Late Day

	Bytes  int64     // bytes of payload that were read for it
	Newest time.Time // the origin's newest timestamp among its records; zero when unknown
	ReadAt time.Time // when the first of its records was received
}

// Place is a seq of a lane.
type Place struct {
	Lane Lane
	Seq  int64
}

// Stamp is what an origin tells of a change beside its row: the same on every replay.
type Stamp struct {
	Tx        string // the origin's transaction; "" unknown
	Ordinal   int64  // the place of the change within its transaction, from 0 on; -1 unknown
	Committed int64  // when the origin committed it, in microseconds since 1970 UTC; 0 unknown
}

// ReadOrdinals is from where on the ordinals are, up to twice that, of rows that were read and are no changes of a log (Batch.Behind): behind
// those of a transaction.
const ReadOrdinals = 1 << 39

// NumRows is the number of rows, not counting rejects.
func (b *Batch) NumRows() int {
	if b.Rows == nil {
		return 0
	}
	return int(b.Rows.NumRows())
}

// MemoryBytes is about what the batch takes in memory: its rows with what is known of them, and the payload where records are kept
// or there are no rows.
func (b *Batch) MemoryBytes() int64 {
	if b.Rows == nil {
		return b.Bytes
	}
	n := int64(8*len(b.Seqs)+len(b.Kinds)+4*len(b.Places)+8*len(b.Covered)) + b.Unsent.bytes()
	for i := range b.Stamps {
		n += int64(unsafe.Sizeof(b.Stamps[i])) + int64(len(b.Stamps[i].Tx))
	}
	for _, c := range b.Rows.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	if b.Records != nil {
		n += b.Bytes + keptRecord*int64(len(b.Records))
	}
	return n
}

// keptRecord is about what it takes to find a record, and the little that there is of it beside the payload.
const keptRecord = 48

// SetPlaces sets Places where a seq has several rows, of which the batch has all.
func (b *Batch) SetPlaces() {
	for row := 1; row < len(b.Seqs); row++ {
		if b.Seqs[row] != b.Seqs[row-1] {
			continue
		}
		if b.Places == nil {
			b.Places = make([]int32, len(b.Seqs))
		}
		b.Places[row] = b.Places[row-1] + 1
	}
}

// Split takes what is up to and with seq, which is in [After, Last), out of the batch and returns it; the batch then begins behind
// it. Both are to be released.
func (b *Batch) Split(seq int64) *Batch {
	head := *b
	head.Rejects = slices.Clone(b.Rejects)
	if b.Rows != nil {
		b.Rows.Retain()
	}
	rows, bytes := b.NumRows(), b.Bytes
	head.until(seq)
	b.Cut(seq)
	head.Bytes = bytes * int64(head.NumRows()) / int64(max(rows, 1))
	b.Bytes = bytes - head.Bytes
	return &head
}

// Release gives up rows and records. The batch must not be used afterwards.
func (b *Batch) Release() {
	if b.Rows != nil {
		b.Rows.Release()
		b.Rows = nil
	}
	b.Records = nil
}

// Reject is one record, or one row of a record, that could not be decoded, typed or accepted. It goes to quarantine.
type Reject struct {
	Seq     int64  // the record's seq in the batch's lane
	Row     int32  // the row within the record, 0 when the record holds one
	Code    Code   // the reason, stable: "FRE-3004"
	Message string // the reason for a person: path, found, wanted
	Step    string // where: "decode", or the step's name
	Record         // as far as it is known; its memory is the reject's own
}

// RejectRow returns a reject of a row that was decoded, with a copy of the record that it came from, if the batch keeps
// records; else what is known of its change, as headers. Its Row is that of Places, 0 without. The row stays in the batch.
func (b *Batch) RejectRow(row int, code Code, step, message string) Reject {
	r := Reject{Seq: b.Seqs[row], Code: code, Message: message, Step: step}
	if b.Places != nil {
		r.Row = b.Places[row]
	}
	if b.Records != nil {
		r.Record = b.Records[row].Record().Clone()
		return r
	}
	if c, ok := b.change(row); ok {
		r.Headers, r.TimeKind = c.Headers(), -1
		if c.Stamp.Committed != 0 {
			r.Time = time.UnixMicro(c.Stamp.Committed).UTC()
		}
	}
	return r
}
