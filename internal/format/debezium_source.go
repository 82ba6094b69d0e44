package format

import (
	"maps"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// sourceColumn is what a column can tell of a change's source. It is null where the connector does not say.
type sourceColumn struct {
	t    arrow.DataType
	slot slot
	text func(r *debeziumReader) []byte        // of a string column: the value; nil: what is in the slot
	long func(r *debeziumReader) (int64, bool) // of another
}

var sourceColumns = map[string]sourceColumn{
	"op":              {t: arrow.BinaryTypes.String, slot: slotOp},
	"db":              {t: arrow.BinaryTypes.String, slot: slotDB},
	"schema":          {t: arrow.BinaryTypes.String, slot: slotSchema},
	"table":           {t: arrow.BinaryTypes.String, slot: slotTable},
	"snapshot":        {t: arrow.BinaryTypes.String, slot: slotSnapshot},
	"tx":              {t: arrow.BinaryTypes.String, text: (*debeziumReader).tx},
	"ts":              {t: arrow.FixedWidthTypes.Timestamp_us, long: (*debeziumReader).committed},
	"lsn":             {t: arrow.PrimitiveTypes.Int64, slot: slotLSN},
	"gtid":            {t: arrow.BinaryTypes.String, slot: slotGTID},
	"file":            {t: arrow.BinaryTypes.String, slot: slotFile},
	"file_number":     {t: arrow.PrimitiveTypes.Int64, long: (*debeziumReader).fileNumber},
	"pos":             {t: arrow.PrimitiveTypes.Int64, slot: slotPos},
	"row":             {t: arrow.PrimitiveTypes.Int64, slot: slotRow},
	"scn":             {t: arrow.PrimitiveTypes.Int64, slot: slotSCN},
	"commit_scn":      {t: arrow.PrimitiveTypes.Int64, slot: slotCommitSCN},
	"change_lsn":      {t: arrow.BinaryTypes.String, slot: slotChangeLSN},
	"commit_lsn":      {t: arrow.BinaryTypes.String, slot: slotCommitLSN},
	"event_serial_no": {t: arrow.PrimitiveTypes.Int64, slot: slotSerial},
}

// SourceColumns returns what DebeziumOptions.Source can name, in order. The columns have these names behind
// an underscore. To order changes take lsn of PostgreSQL; file_number, pos and row of MySQL and MariaDB, as
// the names of files do not sort; scn of Oracle. SQL Server's are texts that sort: commit_lsn, change_lsn.
func SourceColumns() []string { return slices.Sorted(maps.Keys(sourceColumns)) }

// SourceField returns the column that tells something of the source.
func SourceField(name string) (f arrow.Field, ok bool) {
	c, ok := sourceColumns[name]
	return arrow.Field{Name: "_" + name, Type: c.t, Nullable: true}, ok
}

func (c sourceColumn) store() column.Column {
	if c.t.ID() == arrow.STRING {
		return column.NewText(column.Validity{})
	}
	return &column.Fixed[int64]{}
}

// sourceStore is a column of the source while it is filled.
type sourceStore struct {
	sourceColumn
	into column.Column
}

// append appends what the record at hand has.
func (s *sourceStore) append(r *debeziumReader) {
	if store, ok := s.into.(*column.Text); ok {
		var v []byte
		if s.text != nil {
			v = s.text(r)
		} else {
			v = r.word(s.slot)
		}
		if v == nil {
			store.AppendNull()
		} else {
			store.Append(v)
		}
		return
	}
	store := s.into.(*column.Fixed[int64])
	v, ok := int64(0), false
	if s.long != nil {
		v, ok = s.long(r)
	} else {
		v, ok = r.whole(s.slot)
	}
	if ok {
		store.Append(v)
	} else {
		store.AppendNull()
	}
}

// whole returns a captured whole number.
func (d *jsonDecoder) whole(s slot) (int64, bool) {
	w := d.word(s)
	if len(w) == 0 {
		return 0, false
	}
	if v, end := quickInt(w, 0); end == len(w) {
		return v, true
	}
	v, err := strconv.ParseInt(string(w), 10, 64)
	return v, err == nil
}

// tx returns the origin's transaction: PostgreSQL's and Oracle's number, MySQL's GTID, SQL Server's commit, or
// what Debezium itself calls it; nil where there is none.
func (r *debeziumReader) tx() []byte {
	for _, s := range []slot{slotTx, slotGTID, slotCommitLSN, slotTxID} {
		if w := r.word(s); len(w) > 0 {
			return w
		}
	}
	return nil
}

// committed returns when the origin committed the change, in microseconds since 1970.
func (r *debeziumReader) committed() (int64, bool) {
	if v, ok := r.whole(slotMicros); ok {
		return v, true
	}
	if v, ok := r.whole(slotNanos); ok {
		return floorDiv(v, 1000), true
	}
	v, ok := r.whole(slotMillis)
	return v * 1000, ok && v*1000/1000 == v
}

// fileNumber returns the number at the end of the name of MySQL's log.
func (r *debeziumReader) fileNumber() (int64, bool) {
	name := r.word(slotFile)
	first := len(name)
	for first > 0 && name[first-1]-'0' <= 9 {
		first--
	}
	v, err := strconv.ParseInt(string(name[first:]), 10, 64)
	return v, err == nil
}

// stamp returns what the record at hand tells beside its rows.
func (r *debeziumReader) stamp() freshet.Stamp {
	s := freshet.Stamp{Ordinal: -1}
	if tx := r.tx(); string(tx) != r.lastTx {
		r.lastTx = string(tx)
	}
	s.Tx = r.lastTx
	if order, ok := r.whole(slotTxOrder); ok && order > 0 {
		s.Ordinal = order - 1
	}
	s.Committed, _ = r.committed()
	return s
}
