package freshet

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
)

// MoreColumns is a key of the metadata of the schema that Downstream.Schema returns and Format.Infer takes as known. It
// says which columns the source may have that the table does not show under their own names, because a step keeps them
// from it: "*" for any, or their names, one a line.
const MoreColumns = "freshet:more_columns"

// Format turns the payloads of a source into columns: JSON, raw bytes, and whatever a registry describes. It is safe for
// concurrent use; the decoders it makes are not.
type Format interface {
	// Infer returns the columns that these payloads have, which does not depend on their order. Columns of known keep their types.
	// Payloads that cannot be read at all are passed over. It is nil when nothing can be said yet.
	Infer(payloads []Payload, known *arrow.Schema) (*arrow.Schema, error)

	// NewDecoder returns a decoder into these columns.
	NewDecoder(schema *arrow.Schema) (Decoder, error)
}

// Payload is what a format decodes of a record.
type Payload struct {
	Key   []byte // nil when there is none
	Value []byte // nil when there is none
}

// Decoded is what a decoder has appended since its last Flush. It is the receiver's.
type Decoded struct {
	Rows   arrow.RecordBatch // never nil
	Kinds  []Kind            // one a row; nil: the format knows no changes, all rows are inserts
	Unsent *Mask             // nil: all was sent
	Stamps []Stamp           // one a row; nil: the records do not say
}

// Decoder appends records to columns. Used by one goroutine.
type Decoder interface {
	// Append decodes one payload and appends its rows (one, for most formats; the two images of an update follow each
	// other, the one before it first). The payload is not retained.
	// Errors: *RejectError, and then nothing of the record was appended; ErrNewFields, likewise, when the record has
	// fields that the schema lacks and the format is to add: the source widens the schema by Widen and appends again
	// to a decoder of the wider one; ErrFull, likewise, when the rows so far must be flushed first.
	Append(p Payload) (rows int, err error)

	// Len is the number of rows appended since the last Flush.
	Len() int

	// Flush returns what was appended since the last Flush and begins anew.
	Flush() Decoded

	// Release gives up its memory.
	Release()
}

// RejectError says why a record cannot be taken.
type RejectError struct {
	Code    Code
	Path    string // where in the record: "items[2].price"; "" for the whole
	Offset  int    // byte within the payload, or the key; -1 when it has no place
	InKey   bool   // it is the record's key that cannot be read, and not its payload
	Message string // found and wanted
}

// Error is the message with its place: `items[2].price at byte 41: found "x", wanted a decimal(10,2)`, or
// `id at byte 6 of the record's key: …`.
func (e *RejectError) Error() string { return rejectText(e) }

// Widen returns the columns of known with the new fields of those payloads that a decoder into known takes but for such
// fields: a record that goes to quarantine makes no column. It returns known when there is nothing to add. Errors: those of
// the format.
func Widen(f Format, known *arrow.Schema, payloads []Payload) (*arrow.Schema, error) {
	d, err := f.NewDecoder(known)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	taken := make([]Payload, 0, len(payloads))
	for _, p := range payloads {
		_, err := d.Append(p)
		if errors.Is(err, ErrFull) && d.Len() > 0 {
			d.Flush().Rows.Release()
			_, err = d.Append(p)
		}
		var no *RejectError
		switch {
		case errors.As(err, &no):
			continue
		case err != nil && !errors.Is(err, ErrNewFields):
			return nil, err
		}
		taken = append(taken, p)
	}
	wider, err := f.Infer(taken, known)
	if wider == nil {
		wider = known
	}
	return wider, err
}
