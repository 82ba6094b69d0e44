package lake

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// A quarantine table is append-only: what happens to an entry is another row. An entry is (origin, its
// identity, lane, seq, row); it is open when it has more rows "rejected" than others. So the order of rows
// does not matter.
const (
	eventRejected  = "rejected"  // could not be taken
	eventLanded    = "landed"    // was rejected before a crash, and was taken when it was read again
	eventReplayed  = "replayed"  // was taken by a replay
	eventDropped   = "dropped"   // a person has given it up
	eventReplaying = "replaying" // a replay is about to take it; its number tells whether that happened
)

// eventWeight is what a row of an entry adds to the number that says whether it is open.
func eventWeight(event string) int {
	switch event {
	case eventRejected:
		return 1
	case eventReplaying:
		return 0
	}
	return -1
}

var quarantineSchema = arrow.NewSchema([]arrow.Field{
	{Name: "event", Type: arrow.BinaryTypes.String},
	{Name: "app", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "table_name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "origin", Type: arrow.BinaryTypes.String},
	{Name: "origin_id", Type: arrow.BinaryTypes.String},
	{Name: "lane", Type: arrow.BinaryTypes.String},
	{Name: "seq", Type: arrow.PrimitiveTypes.Int64},
	{Name: "row", Type: arrow.PrimitiveTypes.Int32},
	{Name: "code", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "message", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "step", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "raw", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "key", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "record_time", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "quarantined_at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "replay", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	// Tables that older versions made get these with the next commit.
	{Name: "headers", Type: freshet.HeadersType(), Nullable: true},
	{Name: "record_time_kind", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "change", Type: arrow.BinaryTypes.Binary, Nullable: true}, // of a row that waits: see waitingRow.encode
}, nil)

// quarantineStats are the columns by which files are left out.
const quarantineStats = "event,app,table_name,origin,origin_id,lane,seq,code,quarantined_at,replay"

// quarantine is the quarantine table of one table. It need not exist.
type quarantine struct{ companion }

func newQuarantine(name string, st store.Store, engine string) *quarantine {
	return &quarantine{companion{name: name, st: st, engine: engine}}
}

// need returns the newest snapshot of the table, which it makes if need be.
func (q *quarantine) need(ctx context.Context) (*delta.Snapshot, error) {
	schema, err := delta.SchemaFromArrow(quarantineSchema)
	if err != nil {
		return nil, err
	}
	return q.companion.need(ctx, delta.CreateOptions{Schema: schema, Description: "records that could not be taken",
		Properties: map[string]string{"delta.dataSkippingStatsColumns": quarantineStats}})
}

// widenQuarantine has the commit add the columns that the table lacks: an older version made it. One that has a
// column of such a name and another type is a SchemaMismatchError.
func widenQuarantine(tx *delta.Transaction, snap *delta.Snapshot) error {
	schema, err := delta.SchemaFromArrow(quarantineSchema)
	if err != nil {
		return err
	}
	_, err = widen(tx, snap, schema)
	return err
}

// quarantineRows builds rows of a quarantine table.
type quarantineRows struct {
	app, table string
	now        arrow.Timestamp
	replay     int64 // the number of the replay that they belong to; 0: none
	b          *array.RecordBuilder
	n          int
}

func newQuarantineRows(app, table string) *quarantineRows {
	return &quarantineRows{app: app, table: table, now: arrow.Timestamp(time.Now().UnixMicro()),
		b: array.NewRecordBuilder(memory.DefaultAllocator, quarantineSchema)}
}

func (q *quarantineRows) release() { q.b.Release() }

func (q *quarantineRows) batch() arrow.RecordBatch { return q.b.NewRecordBatch() }

// add adds a row. Of a reject that is nothing but a place, the columns that tell of the record are null.
func (q *quarantineRows) add(event string, l freshet.Lane, r *freshet.Reject) {
	q.addChange(event, l, r, nil)
}

// addChange is add of a row that waits, with its change.
func (q *quarantineRows) addChange(event string, l freshet.Lane, r *freshet.Reject, change []byte) {
	q.n++
	for i, s := range []string{event, q.app, q.table, l.Origin, l.OriginID, l.Name} {
		q.b.Field(i).(*array.StringBuilder).Append(s)
	}
	q.b.Field(6).(*array.Int64Builder).Append(r.Seq)
	q.b.Field(7).(*array.Int32Builder).Append(r.Row)
	for i, s := range []string{string(r.Code), r.Message, r.Step} {
		text := q.b.Field(8 + i).(*array.StringBuilder)
		if s == "" {
			text.AppendNull()
		} else {
			text.Append(s)
		}
	}
	for at, raw := range map[int][]byte{11: r.Raw, 12: r.Key, 18: change} {
		bytes := q.b.Field(at).(*array.BinaryBuilder)
		if raw == nil {
			bytes.AppendNull()
		} else {
			bytes.Append(raw)
		}
	}
	at := q.b.Field(13).(*array.TimestampBuilder)
	if r.Time.IsZero() {
		at.AppendNull()
	} else {
		at.Append(arrow.Timestamp(r.Time.UnixMicro()))
	}
	q.b.Field(14).(*array.TimestampBuilder).Append(q.now)
	if q.replay == 0 {
		q.b.Field(15).AppendNull()
	} else {
		q.b.Field(15).(*array.Int64Builder).Append(q.replay)
	}
	freshet.AppendHeaders(q.b.Field(16).(*array.ListBuilder), r.Headers)
	if r.Time.IsZero() || r.TimeKind < 0 {
		q.b.Field(17).AppendNull()
	} else {
		q.b.Field(17).(*array.Int32Builder).Append(r.TimeKind)
	}
}

// quote writes a SQL string.
func quote(s string) string {
	out := make([]byte, 0, len(s)+2)
	out = append(out, '\'')
	for i := range len(s) {
		if s[i] == '\'' {
			out = append(out, '\'')
		}
		out = append(out, s[i])
	}
	return string(append(out, '\''))
}
