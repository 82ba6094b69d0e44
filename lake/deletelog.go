package lake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// DeletedName is where the deleted rows of a table go unless it is said otherwise: beside it, with "_deleted" behind its
// name.
func DeletedName(table string) string { return strings.TrimRight(table, "/") + "_deleted" }

// The columns that the log of deletes has behind those of its table.
var deletedColumns = []arrow.Field{
	{Name: DeletedAtColumn, Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "_deleted_app", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "_deleted_origin", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "_deleted_origin_id", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "_deleted_lane", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "_deleted_seq", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "_deleted_row", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}

// deleteLog is the table of the deleted rows of one table. It is append-only and need not exist. A row is there once, under
// its delete's lane, seq, and place among the rows of that record; it is committed before the table moves past the
// delete. So a commit first reads what is there beyond where it starts: a crash came between the two commits, or a race was
// lost. Which rows these are does not depend on how changes are put together in commits (see walk).
type deleteLog struct{ companion }

// openDeleteLog returns the log of deletes of a table, nil where there is none to be.
func (t *table) openDeleteLog() (*deleteLog, error) {
	if t.opts.Mode != Upsert && t.opts.Mode != Mirror || t.opts.Key.Deletes != LogDeletes {
		return nil, nil
	}
	name := t.opts.Key.Deleted(t.name)
	st, err := t.a.open(name)
	if err != nil {
		return nil, err
	}
	return &deleteLog{companion{name: name, st: st, engine: t.opts.EngineInfo}}, nil
}

// schema is that of the log for a table of this one.
func (l *deleteLog) schema(table *delta.Schema) (*delta.Schema, error) {
	var fields []arrow.Field
	for i := range table.Fields {
		f := &table.Fields[i]
		ours := func(c arrow.Field) bool { return strings.EqualFold(c.Name, f.Name) }
		if !slices.ContainsFunc(deletedColumns, ours) {
			fields = append(fields, arrow.Field{Name: f.Name, Type: delta.ArrowType(f.Type), Nullable: true})
		}
	}
	return delta.SchemaFromArrow(arrow.NewSchema(append(fields, deletedColumns...), nil))
}

// loggedAt is where in the source a delete is that the log has.
type loggedAt struct {
	lane freshet.Lane
	place
}

// deletion is a delete that found a row.
type deletion struct {
	at   loggedAt
	row  int32   // of the changes, which says so
	key  int     // of the upsert's keys
	puts []int32 // the changes of the key before it, downwards, until one that sent all or was the first
	base bool    // what they did not send is in the row that is stored
}

func (u *upsert) deletion(i int, row int32, puts []int32, base bool) deletion {
	c := u.cause(row)
	lane, seq := c.of.place(c.row)
	return deletion{at: loggedAt{lane, place{seq, int32(c.of.nth[c.row])}}, row: row, key: i, puts: puts, base: base}
}

// logWriter adds the rows that a commit deletes to the log.
type logWriter struct {
	log   *deleteLog
	snap  *delta.Snapshot
	tx    *delta.Transaction
	w     *delta.Writer
	have  map[freshet.Lane]map[place]bool // what the log has beyond where the commit starts
	lasts map[freshet.Lane]int64          // of what is added
}

// logDeletes writes the rows that the upsert deletes and the log has not into files of the log, which is committed before
// the table moves past them.
func (c *commit) logDeletes(ctx context.Context, w *upsertWriter) error {
	l := c.t.deleted
	if l == nil || len(w.logged) == 0 {
		return nil
	}
	if w.log == nil {
		var err error
		if w.log, err = c.beginLog(ctx, l, w.schema); err != nil {
			return explain(l.name, err)
		}
	}
	return explain(l.name, w.log.add(ctx, w.upsert))
}

// beginLog begins a commit to the log, which is made if need be.
func (c *commit) beginLog(ctx context.Context, l *deleteLog, table *delta.Schema) (*logWriter, error) {
	schema, err := l.schema(table)
	if err != nil {
		return nil, err
	}
	snap, err := l.need(ctx, delta.CreateOptions{Schema: schema, Description: "deleted rows of " + c.t.name})
	if err != nil {
		return nil, err
	}
	o := &logWriter{log: l, snap: snap, tx: snap.Table().Begin(snap, nil), lasts: map[freshet.Lane]int64{}}
	if o.have, err = l.beyond(ctx, snap, c); err != nil {
		return nil, err
	}
	meta, err := widen(o.tx, snap, schema)
	if err != nil {
		return nil, err
	}
	o.w, err = delta.NewWriter(l.st, meta, snap.Protocol(), &delta.WriterOptions{MemoryBytes: 16 << 20, RowGroupBytes: 8 << 20})
	return o, err
}

// add writes the rows that the upsert deletes and the log has not.
func (o *logWriter) add(ctx context.Context, u *upsert) error {
	fresh := slices.DeleteFunc(slices.Clone(u.logged), func(d deletion) bool { return o.have[d.at.lane][d.at.place] })
	if len(fresh) == 0 {
		return nil
	}
	for _, d := range fresh {
		if last, ok := o.lasts[d.at.lane]; !ok || d.at.seq > last {
			o.lasts[d.at.lane] = d.at.seq
		}
	}
	return u.writeDeletions(ctx, o.w, fresh)
}

// abort deletes what was written and not committed.
func (o *logWriter) abort(t *table) {
	if o != nil && o.w != nil {
		t.a.tend.abort([]*delta.Writer{o.w})
	}
}

// commit commits what was written. Errors: delta.ErrConflict when another copy has added rows of one of the lanes: what there is
// to add must be found out anew.
func (o *logWriter) commit(ctx context.Context, t *table) error {
	if o == nil || len(o.lasts) == 0 {
		return nil
	}
	adds, err := o.w.Close(ctx)
	if err != nil {
		return explain(o.log.name, err)
	}
	o.tx.Add(adds...)
	o.advance(t.a.app)
	o.tx.Operation("STREAMING UPDATE", t.streaming("Append"), map[string]string{"numAddedFiles": fmt.Sprint(len(adds)),
		"numOutputRows": fmt.Sprint(o.w.Rows()), "numRemovedFiles": "0"})
	o.tx.BlindAppend(true)
	done, err := o.tx.Commit(ctx)
	if err != nil && errors.Is(err, delta.ErrConflict) {
		return err
	}
	o.w = nil // it may have landed: its files stay
	if err != nil {
		return explain(o.log.name, err)
	}
	t.a.tend.checkpoint(done.Snapshot.Table(), done.Snapshot)
	return nil
}

// advance records how far the log has the lanes of what is added, if nobody else has meanwhile.
func (o *logWriter) advance(app string) {
	for lane, seq := range o.lasts {
		last, count := heldTxns(app, lane)
		expect(o.tx, o.snap, count)
		n, _ := o.snap.Txn(count)
		o.tx.AddTxn(count, n+1)
		if was, ok := o.snap.Txn(last); !ok || was < seq {
			o.tx.AddTxn(last, seq)
		}
	}
}

// beyond is what the log has of the lanes of the commit beyond where that starts.
func (l *deleteLog) beyond(ctx context.Context, snap *delta.Snapshot, c *commit) (map[freshet.Lane]map[place]bool, error) {
	have := map[freshet.Lane]map[place]bool{}
	for lane, s := range c.lanes {
		last, _ := heldTxns(c.t.a.app, lane)
		if v, known := snap.Txn(last); !known || v <= s.after {
			continue
		}
		have[lane] = map[place]bool{}
		if err := l.read(ctx, snap, c.t.a.app, lane, s.after, have[lane]); err != nil {
			return nil, err
		}
	}
	return have, nil
}

// read notes what the log has of a lane after a seq.
func (l *deleteLog) read(ctx context.Context, snap *delta.Snapshot, app string, lane freshet.Lane, after int64,
	have map[place]bool) error {
	where, err := expr.Parse(fmt.Sprintf("_deleted_app = %s AND _deleted_origin = %s AND _deleted_origin_id = %s AND "+
		"_deleted_lane = %s", quote(app), quote(lane.Origin), quote(lane.OriginID), quote(lane.Name)))
	if err != nil {
		return err
	}
	opts := &delta.ScanOptions{Columns: []string{"_deleted_seq", "_deleted_row"}, Where: where}
	for rec, err := range snap.Scan(ctx, opts) {
		if err != nil {
			return err
		}
		seqs, rows := rec.Column(0).(*array.Int64), rec.Column(1).(*array.Int64)
		for i := range seqs.Len() {
			if seq := seqs.Value(i); seq > after {
				have[place{seq, int32(rows.Value(i))}] = true
			}
		}
		rec.Release()
	}
	return nil
}

// writeDeletions writes rows of the log: those that the table has, and those that the commit never brings to it because it
// deletes them again.
func (u *upsert) writeDeletions(ctx context.Context, w *delta.Writer, all []deletion) error {
	var stored, passed []deletion
	for _, d := range all {
		if len(d.puts) == 0 {
			stored = append(stored, d)
		} else {
			passed = append(passed, d)
		}
	}
	if len(stored) > 0 {
		keys := make([]int, len(stored))
		for i, d := range stored {
			keys[i] = d.key
		}
		rows := expr.TakeBatch(u.stored.rows, expr.SpansOf(u.storedOf(keys)))
		defer rows.Release()
		if err := u.writeLogged(ctx, w, rows, stored); err != nil {
			return err
		}
	}
	if len(passed) == 0 {
		return nil
	}
	rows, err := u.passedRows(passed)
	if err != nil {
		return err
	}
	defer rows.Release()
	return u.writeLogged(ctx, w, rows, passed)
}

// writeLogged writes rows with what the log says of their deletes.
func (u *upsert) writeLogged(ctx context.Context, w *delta.Writer, rows arrow.RecordBatch, of []deletion) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(deletedColumns, nil))
	defer b.Release()
	for _, d := range of {
		c := u.cause(d.row)
		c.kind = freshet.Delete
		fillDeletedAt(b.Field(0), c)
		for i, text := range []string{u.t.a.app, d.at.lane.Origin, d.at.lane.OriginID, d.at.lane.Name} {
			b.Field(1 + i).(*array.StringBuilder).Append(text)
		}
		b.Field(5).(*array.Int64Builder).Append(d.at.seq)
		b.Field(6).(*array.Int64Builder).Append(int64(d.at.row))
	}
	more := b.NewRecordBatch()
	defer more.Release()
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range rows.Schema().Fields() {
		ours := func(c arrow.Field) bool { return strings.EqualFold(c.Name, f.Name) }
		if !slices.ContainsFunc(deletedColumns, ours) {
			f.Nullable = true
			fields, columns = append(fields, f), append(columns, rows.Column(i))
		}
	}
	whole := array.NewRecordBatch(arrow.NewSchema(append(fields, deletedColumns...), nil),
		append(columns, more.Columns()...), rows.NumRows())
	defer whole.Release()
	return w.Write(ctx, whole)
}

// passedRows are the rows of keys before these deletions, all of which changes of the commit have made.
func (u *upsert) passedRows(all []deletion) (arrow.RecordBatch, error) {
	puts := make([]put, len(all))
	for n, d := range all {
		puts[n] = put{&keyChange{key: u.keys[d.key].key, last: d.puts[0], few: &keyRest{older: d.puts[1:]}}, noRow}
		if u.stored != nil && d.base {
			puts[n].stored = u.stored.of[d.key]
		}
	}
	return u.assemble(puts)
}
