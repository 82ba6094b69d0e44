package lake

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// ParkedName is where the changes of a table that is held back are kept unless it is said otherwise: beside it, with
// "_parked" behind its name.
func ParkedName(table string) string { return strings.TrimRight(table, "/") + "_parked" }

// parkedSchema is that of a parking table: a row is a batch, or several without rows or rejects, of one lane.
var parkedSchema = arrow.NewSchema([]arrow.Field{
	{Name: "app", Type: arrow.BinaryTypes.String},
	{Name: "origin", Type: arrow.BinaryTypes.String},
	{Name: "origin_id", Type: arrow.BinaryTypes.String},
	{Name: "lane", Type: arrow.BinaryTypes.String},
	{Name: "after", Type: arrow.PrimitiveTypes.Int64}, // the seq before its first
	{Name: "last", Type: arrow.PrimitiveTypes.Int64},  // its last seq
	{Name: "part", Type: arrow.PrimitiveTypes.Int64},  // of the seq last, of which several batches have some; from 0 on
	{Name: "row_count", Type: arrow.PrimitiveTypes.Int64},
	{Name: "reject_count", Type: arrow.PrimitiveTypes.Int64},
	{Name: "byte_count", Type: arrow.PrimitiveTypes.Int64},        // of the two columns behind
	{Name: "parked_at", Type: arrow.FixedWidthTypes.Timestamp_us}, // the same in all of a commit
	optional("rows", arrow.BinaryTypes.Binary),
	optional("rejects", arrow.BinaryTypes.Binary),
	optional("nth", arrow.PrimitiveTypes.Int64),        // the batch's place among those of its commit
	optional("partial", arrow.FixedWidthTypes.Boolean), // Batch.Partial
	optional("beside", arrow.BinaryTypes.String),       // Batch.Beside as JSON; null: there is none
}, nil)

// parkedPlaces is how many columns tell of a parked batch, before those that hold it, and parkedOnce how many a parking table has
// always had.
const parkedPlaces, parkedOnce = 11, 13

// parkedStats are the columns by which files are left out.
const parkedStats = "app,origin,origin_id,lane,after,last,parked_at"

// parkLog is the parking table of one table. It need not exist. Its progress, under the app of the pipeline, is up to where
// changes of each lane went there; it holds them without a hole from where the table itself stands on, unless
// there were too many (overTxn). What it holds of a lane is proved by its rows, which adjoin each other, and not
// by its progress.
type parkLog struct {
	fixedTable
	app string
}

func newParkLog(app, name string, st store.Store, engine string) *parkLog {
	return &parkLog{app: app, fixedTable: fixedTable{companion: companion{name: name, st: st, engine: engine},
		columns: parkedSchema, always: parkedOnce, stats: parkedStats, what: "parked changes",
		description: "changes of a table that is held back",
		fix:         "move it away: changes of a table that is held back are kept under this name"}}
}

// overTxn is the txn of a parking table that says since when, in seconds since 1970, changes are not kept; 0: they are.
func overTxn(app string) string { return app + "#over" }

// parkedRow is a batch as a row of the parking table.
func parkedRow(app string, b *freshet.Batch, p parked, rows, rejects []byte) (arrow.RecordBatch, error) {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, parkedSchema)
	defer rb.Release()
	for i, s := range []string{app, b.Lane.Origin, b.Lane.OriginID, b.Lane.Name} {
		rb.Field(i).(*array.StringBuilder).Append(s)
	}
	for i, n := range []int64{b.After, b.Last, p.part, int64(b.NumRows()), int64(len(b.Rejects)), int64(len(rows) + len(rejects))} {
		rb.Field(4 + i).(*array.Int64Builder).Append(n)
	}
	rb.Field(10).(*array.TimestampBuilder).Append(arrow.Timestamp(p.at.UnixMicro()))
	for i, data := range [][]byte{rows, rejects} {
		if data == nil {
			rb.Field(11 + i).AppendNull()
		} else {
			rb.Field(11 + i).(*array.BinaryBuilder).Append(data)
		}
	}
	rb.Field(13).(*array.Int64Builder).Append(p.nth)
	rb.Field(14).(*array.BooleanBuilder).Append(b.Partial)
	if len(b.Beside) == 0 {
		rb.Field(15).AppendNull()
		return rb.NewRecordBatch(), nil
	}
	beside, err := json.Marshal(b.Beside)
	rb.Field(15).(*array.StringBuilder).Append(string(beside))
	return rb.NewRecordBatch(), err
}

// parked is a row of the parking table, without what it holds.
type parked struct {
	lane        freshet.Lane
	after, last int64
	part        int64
	rows, bytes int64 // rows with rejects
	at          time.Time
	nth         int64
	partial     bool
	beside      []freshet.Place
}

// beyond are the parked batches behind where the table stands in these lanes, as they came.
func (l *parkLog) beyond(ctx context.Context, snap *delta.Snapshot, at freshet.Progress) ([]parked, error) {
	if len(at) == 0 {
		return nil, nil
	}
	var spans []parked
	for lane, seq := range at {
		spans = append(spans, parked{lane: lane, after: seq, last: math.MaxInt64})
	}
	var all []parked
	err := l.scan(ctx, snap, spans, false, func(rec arrow.RecordBatch, i int) error {
		p, err := l.parkedAt(rec, i)
		all = append(all, p)
		return err
	})
	slices.SortFunc(all, parked.compare)
	return all, err
}

// bound are these lanes, and all that what is parked binds to them: a batch of the one leaves out what is behind a seq of the
// other (Batch.Beside), so that neither may be taken up without the other.
func (l *parkLog) bound(ctx context.Context, snap *delta.Snapshot, lanes []freshet.Lane) ([]freshet.Lane, error) {
	if have, _ := snap.Schema().Lookup("beside"); have == nil {
		return lanes, nil
	}
	var pairs [][2]freshet.Lane
	err := l.scanWhere(ctx, snap, fmt.Sprintf("app = %s AND beside IS NOT NULL", quote(l.app)), false, func(rec arrow.RecordBatch, i int) error {
		p, err := l.parkedAt(rec, i)
		for _, at := range p.beside {
			if pair := [2]freshet.Lane{p.lane, at.Lane}; !slices.Contains(pairs, pair) {
				pairs = append(pairs, pair)
			}
		}
		return err
	})
	all := slices.Clone(lanes)
	for n := 0; n < len(all); n++ {
		for _, pair := range pairs {
			for i, lane := range pair {
				if lane == all[n] && !slices.Contains(all, pair[1-i]) {
					all = append(all, pair[1-i])
				}
			}
		}
	}
	return all, err
}

func (l *parkLog) parkedAt(rec arrow.RecordBatch, i int) (p parked, err error) {
	text := func(c int) string { return strings.Clone(rec.Column(c).(*array.String).Value(i)) }
	number := func(c int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
	p = parked{lane: freshet.Lane{Origin: text(1), OriginID: text(2), Name: text(3)}, after: number(4),
		last: number(5), part: number(6), rows: number(7) + number(8), bytes: number(9), at: timeAt(rec.Column(10), i)}
	for c, f := range rec.Schema().Fields() {
		if rec.Column(c).IsNull(i) {
			continue
		}
		switch f.Name {
		case "nth":
			p.nth = number(c)
		case "partial":
			p.partial = rec.Column(c).(*array.Boolean).Value(i)
		case "beside":
			if e := json.Unmarshal([]byte(text(c)), &p.beside); e != nil {
				err = l.corrupt(p, e)
			}
		}
	}
	return p, err
}

func (l *parkLog) corrupt(p parked, err error) error {
	return &freshet.Error{Code: freshet.CodeCorrupt, Class: freshet.ClassFailure, Place: l.name, Err: err,
		Msg: fmt.Sprintf("what was parked of %s up to %d cannot be read", p.lane, p.last),
		Fix: "restore the table to a version that can be read, or load the table again: `freshet pipeline resync`"}
}

// compare puts batches in the order in which they came; those of one commit that does not say it, by seq.
func (p parked) compare(o parked) int {
	return cmp.Or(p.at.Compare(o.at), cmp.Compare(p.nth, o.nth), cmp.Compare(p.last, o.last), cmp.Compare(p.part, o.part))
}

// follows reports whether the batch goes on where the one before it of its lane ended, which brought that to pos.
func (p parked) follows(before parked, pos int64) bool {
	if p.part > 0 {
		return p.last == pos && before.last == pos && before.part == p.part-1 && p.at.Equal(before.at)
	}
	return p.after <= pos && pos < p.last
}

// scan yields the rows of the app that reach into one of the spans, whole or with what tells of the batches alone, in no order.
func (l *parkLog) scan(ctx context.Context, snap *delta.Snapshot, spans []parked, whole bool,
	yield func(rec arrow.RecordBatch, row int) error) error {
	var any []string
	for _, s := range spans {
		any = append(any, fmt.Sprintf("origin = %s AND origin_id = %s AND lane = %s AND last > %d AND after <= %d",
			quote(s.lane.Origin), quote(s.lane.OriginID), quote(s.lane.Name), s.after, s.last))
	}
	return l.scanWhere(ctx, snap, fmt.Sprintf("app = %s AND (%s)", quote(l.app), strings.Join(any, " OR ")), whole, yield)
}

func (l *parkLog) scanWhere(ctx context.Context, snap *delta.Snapshot, condition string, whole bool,
	yield func(rec arrow.RecordBatch, row int) error) error {
	where, err := expr.Parse(condition)
	if err != nil {
		return err
	}
	var names []string
	for i, f := range parkedSchema.Fields() {
		have, _ := snap.Schema().Lookup(f.Name)
		if i < parkedPlaces || i < parkedOnce && whole || i >= parkedOnce && have != nil {
			names = append(names, f.Name)
		}
	}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: names, Where: where}) {
		if err != nil {
			return err
		}
		for i := range int(rec.NumRows()) {
			if err := yield(rec, i); err != nil {
				rec.Release()
				return err
			}
		}
		rec.Release()
	}
	return nil
}

// parkedBatch is a parked batch with what it holds.
type parkedBatch struct {
	parked
	*freshet.Batch
}

// batches are what was parked in these spans, as it came. They are the caller's.
func (l *parkLog) batches(ctx context.Context, snap *delta.Snapshot, table string, spans []parked) (
	all []parkedBatch, err error) {
	defer func() {
		if err != nil {
			releaseAll(all)
			all = nil
		}
	}()
	err = l.scan(ctx, snap, spans, true, func(rec arrow.RecordBatch, i int) error {
		p, err := l.parkedAt(rec, i)
		if err != nil {
			return err
		}
		b := &freshet.Batch{Table: table, Lane: p.lane, After: p.after, Last: p.last, Beside: p.beside, ReadAt: p.at}
		all = append(all, parkedBatch{p, b})
		for c, decode := range map[int]func([]byte, *freshet.Batch) error{11: decodeRows, 12: decodeRejects} {
			data := rec.Column(c).(*array.Binary)
			if data.IsNull(i) {
				continue
			}
			if err := decode(slices.Clone(data.Value(i)), b); err != nil {
				return l.corrupt(p, err)
			}
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b parkedBatch) int { return a.compare(b.parked) })
	return all, err
}

func releaseAll(batches []parkedBatch) {
	for _, b := range batches {
		b.Release()
	}
}

// adjoining are those of the parked batches that follow each other from where the table stands on, and up to where that
// brings each lane.
func adjoining(all []parked, at freshet.Progress) (some []parked, to freshet.Progress) {
	to = freshet.Progress{}
	for l, seq := range at {
		to[l] = seq
	}
	before := map[freshet.Lane]parked{}
	for _, p := range all {
		if p.follows(before[p.lane], to[p.lane]) {
			some = append(some, p)
			to[p.lane], before[p.lane] = p.last, p
		}
	}
	return some, to
}
