package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// gatheredWeight is what a byte of gathered rows counts for: those of two commits before are put side by side and written, or
// wait for that, while the next ones gather.
const gatheredWeight = 10

// maxSeals is how many tables' files are closed at once.
const maxSeals = 8

// maxMisfits is how often batches of a table may have types that the table has not, before that counts as an
// error and not as a change of the table that the source has yet to learn.
const maxMisfits = 8

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
	rejects   *rejectWriter // nil: none
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
	case a.opts.gathers():
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
	if err := t.spill(); err != nil {
		return err
	}
	rows := t.keyed.rows
	key, sequence := t.key(), t.a.opts.Key.SequenceBy
	switch {
	case t.a.opts.Dedupe != nil: // whatever a row tells of, it has its time
		key, sequence = t.a.opts.Dedupe.columns(), nil
	case t.a.opts.Mode == SCD2: // a delete without a sequence says nothing of when
		key, sequence = slices.Concat(key, sequence), nil
	}
	if at := lastTruncate(b); at >= 0 && t.a.opts.empties() {
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
	t.a.fillRows(c)
	if t.writer == nil {
		w, err := delta.NewWriter(t.st, t.meta, t.proto, &delta.WriterOptions{
			TargetFileBytes: t.a.opts.TargetFileBytes, MemoryBytes: t.a.opts.MemoryBytes, Buffers: &t.a.buffers,
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
	one := b.Rows.NewSlice(int64(row), int64(row)+1)
	defer one.Release()
	if text, err := one.MarshalJSON(); err == nil && len(text) > 2 {
		r.Raw = text[1 : len(text)-1] // an array of one row
	}
	return r
}

// accept makes the files that are written take rows of this schema and what the target fills, with more columns if need be.
func (t *table) accept(ctx context.Context, rows *arrow.Schema) error {
	if t.schema != nil && t.last != nil && (t.last == rows || t.last.Equal(rows)) {
		return nil
	}
	wanted, err := delta.SchemaFromArrow(rows)
	if err != nil {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name,
			Msg: "the rows do not fit a Delta table", Err: err}
	}
	if wanted, err = t.a.withFills(t.name, wanted); err != nil {
		return err
	}
	merged, wider, err := t.fitTable(ctx, wanted)
	var mismatch *delta.SchemaMismatchError
	switch {
	case errors.As(err, &mismatch):
		return t.misfit(err)
	case err != nil:
		return err
	}
	if wider && t.writer != nil {
		if t.meta, err = t.meta.WithHighWater(t.writer.IdentityHighWater()); err != nil {
			return explain(t.name, err)
		}
		t.full = append(t.full, t.writer)
		t.writer = nil
	}
	if t.meta, err = t.meta.WithSchema(merged); err != nil {
		return t.misfit(err)
	}
	if t.schema, err = t.meta.Schema(); err != nil {
		return explain(t.name, err)
	}
	t.last, t.misfits = rows, 0
	return nil
}

// fitTable is fit with what is written already, and if that fails, with the table as it is now.
func (t *table) fitTable(ctx context.Context, rows *delta.Schema) (*delta.Schema, bool, error) {
	if err := t.learn(ctx); err != nil {
		return nil, false, err
	}
	merged, wider, err := t.fit(t.schema, rows)
	if err == nil {
		return merged, wider, nil
	}
	snap, lookErr := t.look(ctx)
	if lookErr != nil {
		return nil, false, lookErr
	}
	if snap == nil {
		return nil, false, explain(t.name, delta.ErrNoTable)
	}
	if err := t.obey(snap); err != nil {
		return nil, false, err
	}
	have := snap.Schema()
	if len(t.writers()) > 0 || t.keyed != nil && t.keyed.rows > 0 { // of what is written, the table has the columns with the commit
		if have, _, err = t.fit(have, t.schema); err != nil {
			return nil, false, err
		}
	}
	merged, _, err = t.fit(have, rows)
	return merged, true, err
}

// learn takes the schema from the table as it was last seen.
func (t *table) learn(ctx context.Context) error {
	if t.schema != nil {
		return nil
	}
	t.mu.Lock()
	snap := t.snap
	t.mu.Unlock()
	if snap == nil || t.unsure {
		t.unsure = false
		var err error
		if snap, err = t.look(ctx); err != nil {
			return err
		}
	}
	if snap == nil {
		return explain(t.name, delta.ErrNoTable)
	}
	t.schema = snap.Schema()
	return t.obey(snap)
}

// obey makes files be written as the table was last seen to want them.
func (t *table) obey(snap *delta.Snapshot) (err error) {
	t.meta, t.proto = snap.Metadata(), snap.Protocol()
	if t.clustered, err = snap.ClusteringColumns(); err != nil {
		return explain(t.name, err)
	}
	return nil
}

// fit merges the columns of rows into those of the table, and reports whether that adds any.
func (t *table) fit(have, rows *delta.Schema) (merged *delta.Schema, wider bool, err error) {
	merged, wider, err = have.Merge(rows)
	e := &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name, Err: err}
	switch {
	case err != nil:
		e.Msg = "the rows do not fit the table"
		e.Fix = "cast the column in a derive step, or write to another table"
		return nil, false, e
	case wider && t.a.opts.FixedSchema:
		e.Msg = fmt.Sprintf("the rows have columns that the table has not (%s), and its schema is fixed",
			columnNames(rows))
		e.Fix = "select the columns that the table has, or allow new ones"
		return nil, false, e
	}
	return merged, wider, nil
}

// misfit has the source read again with the types that the table has now, and gives up when that does not
// help.
func (t *table) misfit(err error) error {
	t.misfits++
	if t.misfits > maxMisfits {
		return err
	}
	t.unsure = true
	return fmt.Errorf("%w: %w", freshet.ErrStale, err)
}

// Pending is what is written and not sealed.
func (a *Target) Pending() (rows, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tables {
		rows += t.rows
		if t.rejects != nil {
			rows += t.rejects.w.Rows()
			bytes += t.rejects.w.Bytes()
		}
		for _, w := range t.writers() {
			bytes += w.Bytes()
		}
		if t.keyed != nil {
			bytes += gatheredWeight * t.keyed.bytes
		}
		parkedRows, parkedBytes := t.park.pending()
		rows, bytes = rows+parkedRows, bytes+parkedBytes
	}
	return rows, bytes
}

func (t *table) writers() []*delta.Writer {
	all := t.full[:len(t.full):len(t.full)]
	if t.writer != nil {
		all = append(all, t.writer)
	}
	return all
}

// Seal closes the files of every table that has something to commit.
func (a *Target) Seal(ctx context.Context) ([]freshet.Commit, error) {
	var mu sync.Mutex
	var commits []freshet.Commit
	var faults []error
	var closing errgroup.Group
	closing.SetLimit(maxSeals)
	for _, t := range a.known() {
		if !t.written() {
			continue
		}
		closing.Go(func() error {
			c, err := t.sealAll(ctx)
			if err != nil {
				t.discard()
				err = explain(t.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, err)
			} else {
				commits = append(commits, c)
			}
			return nil
		})
	}
	_ = closing.Wait() // faults tell
	if a.cuts != nil {
		tellGroup(commits)
	}
	return commits, errors.Join(faults...)
}

// written reports whether there is something to seal.
func (t *table) written() bool { return len(t.lanes) > 0 || t.park != nil && len(t.park.lanes) > 0 }

// sealAll is seal of what was written to the table and of what was parked of it: both, where only some of its lanes have come
// to be parked meanwhile.
func (t *table) sealAll(ctx context.Context) (freshet.Commit, error) {
	var own *commit
	if len(t.lanes) > 0 {
		var err error
		files, calm := t.hurry(ctx)
		own, err = t.seal(files)
		if err = t.failed(ctx, explain(t.name, calm(err))); err != nil {
			return nil, err
		}
	}
	parks, err := t.park.seal(ctx)
	switch {
	case err != nil && own != nil:
		own.Abort()
		return nil, err
	case err != nil:
		return nil, err
	case own != nil && parks != nil:
		return &groupCommit{table: t.name, commits: []groupMember{{parks, false}, {own, false}}}, nil
	case parks != nil:
		return parks, nil
	}
	return own, nil
}

func (t *table) seal(ctx context.Context) (*commit, error) {
	c := &commit{t: t, schema: t.schema, from: t.from, lanes: t.lanes, rows: t.rows, writers: t.writers(), keyed: t.keyed,
		late: t.late}
	for _, w := range c.writers {
		adds, err := w.Close(ctx)
		if err != nil {
			return nil, err
		}
		c.adds = append(c.adds, adds...)
	}
	if t.writer != nil {
		var err error
		if t.meta, err = t.meta.WithHighWater(t.writer.IdentityHighWater()); err != nil {
			return nil, err
		}
	}
	c.meta = t.meta
	if t.rejects != nil {
		if err := t.sealRejects(ctx, c); err != nil {
			return nil, err
		}
	}
	for _, add := range c.adds {
		c.bytes += add.Size
	}
	t.forget()
	return c, nil
}

// forget begins anew after what was written has gone elsewhere.
func (t *table) forget() {
	if t.files != nil {
		t.endFiles(nil)
		t.files = nil
	}
	t.writer, t.full, t.keyed, t.lanes, t.rejects, t.rows, t.late = nil, nil, nil, nil, nil, 0, 0
}

// Discard drops what was written of the table and not sealed.
func (a *Target) Discard(table string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.tables[table]; ok {
		t.discard()
	}
}

// discard drops what is written, and what was known of the table's schema with it.
func (t *table) discard() {
	writers := t.writers()
	if t.rejects != nil {
		writers = append(writers, t.rejects.w)
	}
	t.a.tend.abort(writers)
	if t.keyed != nil {
		t.keyed.release()
	}
	t.park.discard()
	t.forget()
	t.schema, t.last = nil, nil
}

// progress is where the lanes end.
func ends(lanes map[freshet.Lane]*stretch) freshet.Progress {
	p := make(freshet.Progress, len(lanes))
	for l, s := range lanes {
		p[l] = s.last
	}
	return maps.Clone(p)
}
