package lake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// gatheredWeight is what a byte of gathered rows counts for: while they gather, one commit before them is written, and one waits.
const gatheredWeight = 3

// writing is the half of a table that only the goroutine that writes touches: what is written and not sealed.
type writing struct {
	schema *delta.Schema    // of the files that are written; nil: to be asked of the table
	meta   *delta.Metadata  // of the table, as the files' columns would make it
	from   map[string]int64 // marks of identity columns before what is written
	proto  *delta.Protocol
	last   *arrow.Schema // of the batch before, which fits schema

	clustered []string // the table's clustering columns

	misfits int
	unsure  bool // the table may have changed since it was seen

	files    context.Context // of the files that are written; nil: that of the call
	endFiles context.CancelCauseFunc

	keyed     *gathered // of a keyed table, in the place of writers
	writer    *delta.Writer
	generated []string        // the names of its generated columns
	full      []*delta.Writer // with narrower schemas, before the batches' columns grew
	lanes     map[freshet.Lane]*stretch
	steady    map[freshet.Lane]bool // lanes that nobody else may have moved; whether something depends on what they show
	rejects   *rejectWriter         // nil: none
	rows      int64
	late      freshet.Day // the first day that was over when rows of it came; 0: none
}

// stretch is the part of a lane that is written and not sealed.
type stretch struct{ after, last int64 }

// Write takes the batch. Rows with null where the table allows none become rejects.
func (a *Target) Write(ctx context.Context, b *freshet.Batch) (rejected int64, err error) {
	ours := true // until the batch waits with others
	defer func() {
		if ours {
			b.Release()
		}
	}()
	uncover(b, 0)
	t, err := a.table(b.Table)
	if err != nil {
		return 0, err
	}
	defer func() { err = t.failed(ctx, err) }()
	switch parks, err := t.park.takes(); {
	case err != nil:
		return 0, err
	case parks:
		ours = false
		return 0, t.park.write(ctx, b)
	}
	files, calm := t.hurry(ctx)
	defer func() { err = calm(err) }()
	before := len(b.Rejects)
	switch {
	case b.NumRows() == 0:
	case t.opts.gathers():
		if err := t.gatherRows(files, b); err != nil {
			return 0, err
		}
		ours = false
	default:
		if err := t.writeRows(files, newCauses(b)); err != nil {
			return 0, err
		}
	}
	if err := t.writeRejects(files, b); err != nil {
		return 0, explain(t.quarantine.name, err)
	}
	t.late = earlier(t.late, b.Late)
	if t.lanes == nil {
		t.lanes = map[freshet.Lane]*stretch{}
	}
	if s, ok := t.lanes[b.Lane]; ok {
		s.last = b.Last
	} else {
		t.lanes[b.Lane] = &stretch{b.After, b.Last}
	}
	for _, at := range b.Beside {
		if t.steady == nil {
			t.steady = map[freshet.Lane]bool{}
		}
		t.steady[at.Lane] = t.steady[at.Lane] || at.Seq < loadedWhole
	}
	return int64(len(b.Rejects) - before), nil
}

// gatherRows keeps the batch until the commit, which finds out what its rows do to the table.
func (t *table) gatherRows(ctx context.Context, b *freshet.Batch) error {
	if err := t.accept(ctx, b.Rows.Schema()); err != nil {
		return err
	}
	if t.keyed == nil {
		t.keyed = &gathered{}
	}
	if err := t.spill(t.keyed); err != nil {
		return err
	}
	rows := t.keyed.rows
	key, sequence := t.key(), t.opts.Key.SequenceBy
	switch {
	case t.opts.Dedupe != nil: // whatever a row tells of, it has its time
		key, sequence = t.opts.Dedupe.columns(), nil
	case t.opts.Mode == SCD2: // a delete without a sequence says nothing of when
		key, sequence = slices.Concat(key, sequence), nil
	}
	if at := lastTruncate(b); at >= 0 && t.opts.empties() {
		t.keyed.empty(b, at)
	}
	if err := t.keyed.gather(b, t.required(key, sequence)); err != nil {
		return err
	}
	t.rows += t.keyed.rows - rows
	return nil
}

// writeRows writes the rows of a batch, with the columns that the target fills.
func (t *table) writeRows(ctx context.Context, c *causes) error {
	if err := t.accept(ctx, c.Rows.Schema()); err != nil {
		return err
	}
	t.fillRows(c)
	if t.writer == nil {
		w, err := delta.NewWriter(t.st, t.meta, t.proto, &delta.WriterOptions{
			TargetFileBytes: t.opts.TargetFileBytes, MemoryBytes: t.opts.MemoryBytes, Buffers: &t.a.buffers,
			ClusteredBy: t.clustered,
		})
		if err != nil {
			return explain(t.name, err)
		}
		if len(t.full) == 0 {
			t.from = t.meta.HighWater()
		}
		schema, err := t.meta.Schema()
		if err != nil {
			return explain(t.name, err)
		}
		t.writer, t.generated = w, nil
		for i := range schema.Fields {
			if schema.Fields[i].Generated() {
				t.generated = append(t.generated, schema.Fields[i].Name)
			}
		}
	}
	return t.writeSpan(ctx, c.Batch, 0, c.NumRows())
}

// given leaves out generated columns that are null in all rows: a record that does not have such a field comes with null,
// and the table computes what it must be. It retains what it returns.
func (t *table) given(rows arrow.RecordBatch) arrow.RecordBatch {
	var fields []arrow.Field
	var columns []arrow.Array
	if len(t.generated) == 0 {
		rows.Retain()
		return rows
	}
	for i, f := range rows.Schema().Fields() {
		same := func(name string) bool { return strings.EqualFold(name, f.Name) }
		if c := rows.Column(i); c.NullN() < c.Len() || !slices.ContainsFunc(t.generated, same) {
			fields, columns = append(fields, f), append(columns, c)
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rows.NumRows())
}

// writeSpan writes the rows [from, to) of the batch. A row that has null where the table allows none, a value that the
// column cannot hold, or that breaks a constraint, becomes a reject; it is found by halves, since most batches have none.
func (t *table) writeSpan(ctx context.Context, b *freshet.Batch, from, to int) error {
	rows := b.Rows
	if from > 0 || to < b.NumRows() {
		rows = b.Rows.NewSlice(int64(from), int64(to))
		defer rows.Release()
	}
	rows = t.given(rows)
	defer rows.Release()
	err := t.writer.Write(ctx, rows)
	var mismatch *delta.SchemaMismatchError
	code, why, refused := refusedRow(err)
	switch {
	case err == nil:
		t.rows += int64(to - from)
		return nil
	case errors.As(err, &mismatch):
		return t.misfit(err)
	case !refused:
		return explain(t.name, err)
	case to-from == 1:
		b.Rejects = append(b.Rejects, rowReject(b, from, code, why))
		return nil
	}
	middle := (from + to) / 2
	if err := t.writeSpan(ctx, b, from, middle); err != nil {
		return err
	}
	return t.writeSpan(ctx, b, middle, to)
}

// refusedRow is what a table finds wrong with a row of a batch, if that is what the error says.
func refusedRow(err error) (code freshet.Code, why string, ok bool) {
	var null *delta.NullError
	var value *delta.ValueError
	var broken *delta.ConstraintError
	switch {
	case errors.As(err, &null):
		return freshet.CodeNull,
			fmt.Sprintf("column %q: found %s, wanted a value: the table's column is NOT NULL", null.Column, null.Found()), true
	case errors.As(err, &value):
		return freshet.CodeOutOfRange, fmt.Sprintf("column %q: found %s, wanted %s", value.Column, value.Found, value.Wanted), true
	case errors.As(err, &broken):
		return freshet.CodeConstraint, broken.Reason(), true
	}
	return "", "", false
}

// rowReject is the row as a reject. Without the record that it came from, the row itself, as JSON, is kept.
func rowReject(b *freshet.Batch, row int, code freshet.Code, why string) freshet.Reject {
	r := b.RejectRow(row, code, "write", why)
	for i := row - 1; b.Places == nil && i >= 0 && b.Seqs[i] == r.Seq; i-- {
		r.Row++
	}
	if b.Records != nil {
		return r
	}
	r.Raw = freshet.RowJSON(b.Rows, row)
	return r
}
