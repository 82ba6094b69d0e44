package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// Rows that did not send all columns, of keys that the table has not, wait in quarantine (CodePartialRow) until their key
// comes:
//
//	quarantine                       a commit of the main table           afterwards
//	rejected, with the change ─────▶ the key's row comes, or is there:
//	                                 replaying #n  ─▶  commit, txn #n ─▶  replayed, n settled
//
// The last three are those of a replay (replay.go), and as safe: whoever finds n under way asks the main table whether
// it landed, and if it did not, sees to it that it never will.
type waitingRow struct {
	app, table string
	lane       freshet.Lane
	at         place
	kind       freshet.Kind
	stamp      freshet.Stamp
	record     freshet.Record    // its time alone
	sent       arrow.RecordBatch // one row of the columns that were sent
	whole      bool              // it did send all, and is being replayed
}

// entry is the row's entry in quarantine.
func (r *waitingRow) entry() *Entry {
	return &Entry{App: r.app, Table: r.table, Lane: r.lane, Reject: freshet.Reject{Seq: r.at.seq, Row: r.at.row}}
}

// maxWaiting bounds the rows that are looked at with each commit. Those beyond stay in quarantine, for a replay.
const maxWaiting = 50_000

// waiting are rows that wait, as batches that a commit can put beside its own. A nil one is empty. The goroutine that
// commits owns it.
type waiting struct {
	rows    []*waitingRow
	batches []*freshet.Batch // of all rows, in the order of rows; nil when they are to be made
}

func (w *waiting) empty() bool { return w == nil || len(w.rows) == 0 }

func (w *waiting) add(rows ...*waitingRow) {
	for _, r := range rows {
		if len(w.rows) == maxWaiting {
			r.sent.Release()
			continue
		}
		w.rows = append(w.rows, r)
	}
	w.unmake()
}

// drop takes rows out for which gone is true.
func (w *waiting) drop(gone map[*waitingRow]bool) {
	w.unmake()
	w.rows = slices.DeleteFunc(w.rows, func(r *waitingRow) bool {
		if gone[r] {
			r.sent.Release()
		}
		return gone[r]
	})
}

func (w *waiting) unmake() {
	for _, b := range w.batches {
		b.Release()
	}
	w.batches = nil
}

func (w *waiting) release() {
	if w == nil {
		return
	}
	w.unmake()
	for _, r := range w.rows {
		r.sent.Release()
	}
	w.rows = nil
}

// make makes the batches: rows of one lane that sent the same columns are one.
func (w *waiting) make() error {
	if w.batches != nil {
		return nil
	}
	slices.SortStableFunc(w.rows, func(a, b *waitingRow) int {
		return cmp.Or(cmp.Compare(a.lane.Origin, b.lane.Origin), cmp.Compare(a.lane.OriginID, b.lane.OriginID),
			cmp.Compare(a.lane.Name, b.lane.Name), cmp.Compare(a.at.seq, b.at.seq), cmp.Compare(a.at.row, b.at.row))
	})
	for from := 0; from < len(w.rows); {
		to := from + 1
		for to < len(w.rows) && w.rows[to].lane == w.rows[from].lane &&
			w.rows[to].sent.Schema().Equal(w.rows[from].sent.Schema()) {
			to++
		}
		b, err := waitingBatch(w.rows[from:to])
		if err != nil {
			w.unmake()
			return err
		}
		w.batches = append(w.batches, b)
		from = to
	}
	return nil
}

func waitingBatch(rows []*waitingRow) (*freshet.Batch, error) {
	first, last := rows[0], rows[len(rows)-1]
	b := &freshet.Batch{Table: first.table, Lane: first.lane, After: first.at.seq - 1, Last: last.at.seq}
	parts := make([]arrow.RecordBatch, len(rows))
	for i, r := range rows {
		parts[i] = r.sent
		b.Kinds, b.Seqs = append(b.Kinds, r.kind), append(b.Seqs, r.at.seq)
		b.Stamps, b.Records = append(b.Stamps, r.stamp), append(b.Records, &r.record)
	}
	var err error
	b.Rows, err = expr.ConcatBatches(parts)
	return b, err
}

// The change of a row that waits, as quarantine keeps it: a stream, with its checksum, as those of a parked batch (park_batch.go),
// of one row of the columns that were sent, whose schema says the rest.
const (
	changeKind      = "kind"
	changeTx        = "tx"
	changeOrdinal   = "ordinal"
	changeCommitted = "committed"
)

// encode is the change for quarantine.
func (r *waitingRow) encode() ([]byte, error) {
	meta := arrow.NewMetadata([]string{changeKind, changeTx, changeOrdinal, changeCommitted}, []string{
		strconv.Itoa(int(r.kind)), r.stamp.Tx, strconv.FormatInt(r.stamp.Ordinal, 10),
		strconv.FormatInt(r.stamp.Committed, 10)})
	rec := array.NewRecordBatch(arrow.NewSchema(r.sent.Schema().Fields(), &meta), r.sent.Columns(), 1)
	defer rec.Release()
	return toStream(rec)
}

// decode takes the change from what encode wrote. Errors: bytes that are something else.
func (r *waitingRow) decode(data []byte) error {
	var fault error
	err := fromStream(data, nil, func(rec arrow.RecordBatch, _ int) { fault = r.take(rec) })
	return errors.Join(err, fault)
}

// take takes the change from the row.
func (r *waitingRow) take(rec arrow.RecordBatch) error {
	if rec.NumRows() != 1 || rec.NumCols() == 0 {
		return fmt.Errorf("found %d rows of %d columns, wanted one of some", rec.NumRows(), rec.NumCols())
	}
	var err error
	meta := rec.Schema().Metadata()
	number := func(name string) int64 {
		text, _ := meta.GetValue(name)
		n, e := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, e)
		return n
	}
	kind := number(changeKind)
	if err == nil && (kind < 0 || kind > int64(freshet.Delete)) {
		err = fmt.Errorf("found kind %d", kind)
	}
	r.kind = freshet.Kind(kind)
	r.stamp.Tx, _ = meta.GetValue(changeTx)
	r.stamp.Ordinal, r.stamp.Committed = number(changeOrdinal), number(changeCommitted)
	if err == nil {
		r.sent = array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields(), nil), rec.Columns(), 1)
	}
	return err
}

// fits reports whether the table has all columns of the change, of types that take its values.
func (r *waitingRow) fits(schema *delta.Schema) bool {
	for i, f := range r.sent.Schema().Fields() {
		to, _ := schema.Lookup(f.Name)
		if to == nil {
			return false
		}
		c, err := to.Conform(r.sent.Column(i))
		if err != nil {
			return false
		}
		c.Release()
	}
	return true
}

// loadWaiting reads from quarantine what waits, after it has settled what was under way.
func (t *table) loadWaiting(ctx context.Context) error {
	t.waits.release()
	t.waits = nil
	main, snap, err := t.recover(ctx)
	if err != nil {
		return err
	}
	w := &waiting{}
	if snap != nil {
		filter := &Filter{App: t.a.app, Table: t.name, Code: freshet.CodePartialRow}
		err = scanEntries(ctx, snap, filter, func(e *Entry, _ error) bool {
			// What the main table is not past will be read again.
			if seq, ok := main.Txn(t.a.form().lane(e.Lane)); !ok || e.Seq > seq || len(w.rows) == maxWaiting {
				return len(w.rows) < maxWaiting
			}
			r := &waitingRow{app: e.App, table: e.Table, lane: e.Lane, at: place{e.Seq, e.Row},
				record: freshet.Record{Time: e.Time, TimeKind: e.TimeKind}}
			if e.change == nil || r.decode(e.change) != nil {
				return true // an older version put it there, or it is damaged: a replay takes its payload
			}
			if !r.fits(main.Schema()) {
				r.sent.Release()
				return true
			}
			w.add(r)
			return true
		})
	}
	if err != nil {
		w.release()
		return explain(t.quarantine.name, err)
	}
	t.waits = w
	return nil
}
