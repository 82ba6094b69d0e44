// Package format turns the payloads of a source into Arrow columns: JSON, straight from the bytes to typed
// columns, and raw bytes. Both are freshet.Formats.
//
//	f, err := format.NewJSON(&format.Options{NewFields: format.Rescue})
//	schema, err := f.Infer(sample, nil)
//	d, err := f.NewDecoder(schema)
//	rows, err := d.Append(freshet.Payload{Value: payload}) // *freshet.RejectError: nothing of the record was appended
//	batch := d.Flush().Rows
//
// Guarantees: a record is taken as a whole or not at all, and why not is a code, a byte and a path. A value
// lands as it is or is rejected: numbers never pass through a float on the way to a column that is none,
// nothing becomes null that was not null. The two roundings there are: a fraction takes the nearest value of
// a float or double column, and what is finer than a microsecond is cut off (floored) in a timestamp column.
// Inference does not depend on the order of the records. Text that is not strict JSON (RFC 8259), is no
// UTF-8, has a key twice in an object or a lone surrogate is rejected, also where the value is not wanted.
//
// How JSON values meet column types (text is a JSON string; space around text is ignored unless the column is
// a string):
//
//	boolean          true, false; 1, 0; text: true false t f yes no y n 1 0, in any case
//	integers         numbers without a fraction, so 5, 5.0 and 5e2; text holding such a number
//	float, double    numbers, whole ones if they survive; text holding a number, NaN, Infinity or -Infinity
//	decimal(p,s)     numbers that need no rounding; text holding such a number
//	string           text; numbers, booleans, objects and arrays as their JSON text, byte for byte
//	binary           text in base64, standard or URL alphabet, padded or not
//	date             text YYYY-MM-DD, also with slashes; a time of day only if it is midnight
//	timestamp        text: RFC 3339 and its relatives (space for T, no seconds, +0200, date alone), UTC where
//	                 there is no zone; numbers if Options.EpochUnit says what they count
//	timestamp_ntz    the same without a zone, or with Z, or with an offset of zero
//	struct           objects; a field's name matches exactly, or else ignoring case, as Delta's columns do
//	map              objects
//	array            arrays
//
// Null, or no value, is null where the column allows it, and else a reject.
//
// Non-goals: JSON that stretches over several payloads, comments and other dialects; columns of Arrow types
// that Delta does not have.
package format

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// NewFields says what becomes of a field of a record that has no column, unless it is null, which is as good
// as absent.
type NewFields string

// The policies for new fields.
const (
	Add    NewFields = "add"    // it becomes a column: Append returns freshet.ErrNewFields
	Rescue NewFields = "rescue" // it is kept, under its path, in the JSON text of the column RescuedColumn
	Ignore NewFields = "ignore" // it is dropped
	Fail   NewFields = "fail"   // the record is rejected
)

// RescuedColumn is the string column that holds, for NewFields Rescue, a JSON object of all that has no
// column, and null where there is nothing such. Objects keep their keys; in arrays, elements with nothing to
// rescue are null.
const RescuedColumn = "_rescued"

// EpochUnit is what a number counts that stands where a timestamp is wanted: units since
// 1970-01-01T00:00:00Z.
type EpochUnit string

// The units of epoch numbers.
const (
	NoEpoch EpochUnit = ""   // such numbers are rejected, since their unit cannot be known
	Seconds EpochUnit = "s"  // may have fractions
	Millis  EpochUnit = "ms" // may have fractions
	Micros  EpochUnit = "us"
)

// Options are the settings of a format. The zero value, or nil, is the default.
type Options struct {
	NewFields NewFields // default Add
	EpochUnit EpochUnit // default NoEpoch
	Gzip      bool      // payloads that begin as gzip does are unpacked first; default false
	MaxDepth  int       // objects and arrays within each other, the record counts as one; default 64
	MaxBytes  int       // size of a payload, unpacked, in bytes; default 64 MiB
	// MaxColumns is up to how many columns are inferred and added; fields of structs count, and not the
	// structs. Default 1000.
	MaxColumns int
}

const (
	defaultDepth   = 64
	defaultBytes   = 64 << 20
	defaultColumns = 1000
	mostColumns    = 100_000
	maxBytes       = 256 << 20 // so that the offsets of a column's text, which are int32, cannot run over
)

// Validate reports all faults of the options. Nil is valid.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	switch o.NewFields {
	case "", Add, Rescue, Ignore, Fail:
	default:
		faults = append(faults, fmt.Errorf("new_fields: found %q, wanted add, rescue, ignore or fail", o.NewFields))
	}
	switch o.EpochUnit {
	case NoEpoch, Seconds, Millis, Micros:
	default:
		faults = append(faults, fmt.Errorf("epoch unit: found %q, wanted s, ms or us", o.EpochUnit))
	}
	if o.MaxDepth < 0 || o.MaxDepth > 10_000 {
		faults = append(faults, fmt.Errorf("depth of a record: found %d, wanted 1 to 10000", o.MaxDepth))
	}
	if o.MaxBytes < 0 || o.MaxBytes > maxBytes {
		faults = append(faults, fmt.Errorf("size of a payload: found %d bytes, wanted 1 to %d", o.MaxBytes, maxBytes))
	}
	if o.MaxColumns < 0 || o.MaxColumns > mostColumns {
		faults = append(faults, fmt.Errorf("number of columns: found %d, wanted 1 to %d", o.MaxColumns, mostColumns))
	}
	return errors.Join(faults...)
}

// JSON is the format of records that are one JSON object each (RFC 8259, UTF-8). It implements
// freshet.Format.
type JSON struct {
	opts Options
}

// NewJSON returns the JSON format. Errors: those of Options.Validate.
func NewJSON(o *Options) (*JSON, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	f := &JSON{}
	if o != nil {
		f.opts = *o
	}
	if f.opts.NewFields == "" {
		f.opts.NewFields = Add
	}
	if f.opts.MaxDepth == 0 {
		f.opts.MaxDepth = defaultDepth
	}
	if f.opts.MaxBytes == 0 {
		f.opts.MaxBytes = defaultBytes
	}
	if f.opts.MaxColumns == 0 {
		f.opts.MaxColumns = defaultColumns
	}
	return f, nil
}

// jsonTextKey is the key of a field's Arrow metadata that marks a column of JSON text.
const jsonTextKey = "freshet:json"

// JSONText returns the field of a string column that holds any value as its JSON text, byte for byte: text
// keeps its quotes. (An ordinary string column holds text without them.)
func JSONText(name string, nullable bool) arrow.Field {
	return arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: nullable,
		Metadata: arrow.NewMetadata([]string{jsonTextKey}, []string{"true"})}
}

// nameable reports whether a Delta table without column mapping can have a column of this name. Spec: "Column
// Mapping".
func nameable(name []byte) bool {
	for _, c := range name {
		switch c {
		case ' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '=':
			return false
		}
	}
	return len(name) > 0
}

var (
	_ freshet.Format = (*JSON)(nil)
	_ freshet.Format = Raw{}
)
