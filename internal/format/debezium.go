package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// DebeziumOptions say how a connector of Debezium's is set. The zero value, or nil, is its defaults.
type DebeziumOptions struct {
	// TrustBefore says that the rows before a change are whole: of PostgreSQL's tables with REPLICA IDENTITY
	// FULL, of MySQL's and MariaDB's with binlog_row_image=FULL. Then updates have their row before, and deletes all columns.
	// Default: of a row before nothing is used but its key, since the other columns hold made-up values.
	TrustBefore bool
	// Key names the columns of the key, for records that have no key of their own. Default: none, deletes
	// without a key are rejected, unless TrustBefore.
	Key []string
	// IgnoreTruncates drops the records that say that a table was emptied. Default: they are rejected.
	IgnoreTruncates bool
	// Flattened says that the records are rows, as the transform ExtractNewRecordState makes them.
	Flattened bool
	// Placeholder is the connector's unavailable.value.placeholder. Default "__debezium_unavailable_value".
	Placeholder string
	// SignalTable is the connector's signal.data.collection, whose rows are dropped. Default: none.
	SignalTable string
	// Source names what is told of the source in columns: see SourceColumns. Default: nothing.
	Source []string
}

// Validate reports all faults of the options. Nil is valid.
func (o *DebeziumOptions) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if _, err := newPlaceholder(o.Placeholder); err != nil {
		faults = append(faults, err)
	}
	for i, name := range o.Source {
		if !slices.Contains(SourceColumns(), name) {
			faults = append(faults, fmt.Errorf("source columns: found %q, wanted one of %s", name,
				strings.Join(SourceColumns(), ", ")))
		}
		if slices.Contains(o.Source[:i], name) {
			faults = append(faults, fmt.Errorf("source columns: found %q twice, wanted it once", name))
		}
	}
	for i, name := range o.Key {
		if name == "" || slices.Contains(o.Key[:i], name) {
			faults = append(faults, fmt.Errorf("key: found %q, wanted different columns", o.Key))
			break
		}
	}
	return errors.Join(faults...)
}

// Debezium is the format of changes as Debezium's connectors write them with Kafka Connect's JSON converter,
// with or without schemas, which is found out for each record's key and value. It implements freshet.Format.
//
// Creates and snapshot reads are inserts, updates are updates, deletes are deletes by the record's key. The
// columns are those of the row after a change; with a schema they have the types that it says, without one
// those that JSON.Infer finds. The tombstone behind a delete, heartbeats, transactions, schema changes and
// logical messages are no rows. Rows carry stamps.
//
// With schemas, and unlike JSON, values meet column types as their schema says:
//
//	Date, Timestamp…       a date, a timestamp without zone
//	ZonedTimestamp         a timestamp
//	Time…                  text HH:MM:SS, with the digits behind the second that are not 0
//	Decimal                a decimal, or text where it has more than 38 digits
//	VariableScaleDecimal   text
//	Bits                   text of 0 and 1, most significant first
//	geometries, vectors    structs and arrays, as they are
//	all others             their physical type
//
// A number in a date column is days since 1970 also without schemas.
type Debezium struct {
	json        *JSON
	opts        DebeziumOptions
	placeholder *placeholder
}

// NewDebezium returns the format. Both options may be nil. Errors: those of their Validate.
func NewDebezium(o *Options, z *DebeziumOptions) (*Debezium, error) {
	j, err := jsonOf(o, z.Validate())
	if err != nil {
		return nil, err
	}
	f := &Debezium{json: j}
	if z != nil {
		f.opts = *z
	}
	if f.opts.Placeholder == "" {
		f.opts.Placeholder = defaultPlaceholder
	}
	f.placeholder, err = newPlaceholder(f.opts.Placeholder)
	return f, err
}

// NewDecoder returns a decoder into these columns. Errors: those of JSON.NewDecoder; a column of the source of
// another type; a column of the key that is not there.
func (f *Debezium) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	r := &debeziumReader{f: f, envelope: planEnvelope(f.opts.TrustBefore)}
	apart := map[string]column.Column{}
	for _, name := range f.opts.Source {
		c := sourceColumns[name]
		at := schema.FieldIndices("_" + name)
		if len(at) != 1 || !arrow.TypeEqual(schema.Field(at[0]).Type, c.t) || !schema.Field(at[0]).Nullable {
			return nil, fmt.Errorf("source columns: found no column _%s that is a nullable %s, wanted one", name, c.t)
		}
		filled := c.store()
		apart["_"+name] = filled
		r.source = append(r.source, sourceStore{c, filled})
	}
	d, err := newDecoder(&f.json.opts, schema, apart)
	if err != nil {
		return nil, err
	}
	d.bareFloats = true
	d.changes = &changeLog{columns: schema.NumFields(), placeholder: f.placeholder}
	if r.key, err = keyPositions(d.root.fields, f.opts.Key); err != nil {
		return nil, err
	}
	if f.opts.Flattened {
		for _, p := range flattened() {
			captureIn(d.root.fields, []string{p.name}, p.slot)
		}
	}
	d.root.clearWires()
	r.jsonDecoder = d
	d.read = r.record
	return d, nil
}

var (
	_ freshet.Format = (*Changes)(nil)
	_ freshet.Format = (*Debezium)(nil)
)
