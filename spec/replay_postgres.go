package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/quality"
	"github.com/freshet-io/freshet/store"
)

// Rows of a database are in quarantine in three forms, each of which is replayed by itself:
//
//	refused by     raw
//	decoding       the text of the values that were sent, by the source's columns
//	a step         the row as it came into the steps
//	the table      the row as the steps had made it: they are not run again
//
// What a row brings to a table of changes, or to one that something orders, its own values say. A mirror is to have what the source
// has: of a key that the source has still as the entry says, it gets the source's row, and of any other nothing, since a
// newer change of it came, or is to come (lake.Present).
type retaker struct {
	original *postgres.Original
	form     rawForm
	schema   *arrow.Schema // of rows that the table refused
	steps    []freshet.Step

	keys [][]string // of each entry of the batch that was made last; nil: it has none
}

type rawForm int

const (
	rawText rawForm = iota
	rawBefore
	rawAfter
)

// formOf is the form that an entry has.
func formOf(e *lake.Entry) rawForm {
	switch e.Step {
	case "decode", "":
		return rawText
	case "write":
		return rawAfter
	}
	return rawBefore
}

// replayPostgres is Replay of a table of a database.
func (b *Builder) replayPostgres(ctx context.Context, p *Pipeline, table string, filter *lake.Filter) (total *lake.Replayed, err error) {
	steps, err := p.steps()
	if err != nil {
		return nil, err
	}
	originals, err := postgres.OpenOriginals(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, originals.Close(ctx)) }()
	total = &lake.Replayed{Version: -1}
	for form := rawText; form <= rawAfter; form++ {
		done, err := b.replayForm(ctx, p, table, filter, &retaker{form: form, steps: steps}, originals)
		if done != nil {
			total.Add(done)
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// replayForm replays the entries of one form.
func (b *Builder) replayForm(ctx context.Context, p *Pipeline, table string, filter *lake.Filter, r *retaker, originals *postgres.Originals) (
	*lake.Replayed, error) {
	opts := b.targetOptions(p, freshet.Observer{})
	if err := r.open(ctx, p, table, originals, opts); err != nil {
		return nil, err
	}
	if opts.Mode != lake.Append && len(opts.Key.Columns) == 0 {
		opts.Key.Of = func(string) []string { return r.original.Key() }
	}
	var present lake.Present
	if opts.Mode != lake.Append && len(opts.Key.SequenceBy) == 0 {
		if len(r.original.Key()) == 0 {
			return nil, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: table,
				Msg: "the table's rows have no key in the database, by which it could be asked for them",
				Fix: "load the table again: freshet pipeline resync " + p.FullName() + " --table " + table}
		}
		present = r.present
	}
	chosen := lake.Filter{}
	if filter != nil {
		chosen = *filter
	}
	chosen.Choose = func(e *lake.Entry) bool { return formOf(e) == r.form }
	target := p.tables(func(name string) (store.Store, error) { return p.Project.OpenTable(ctx, name) }, opts)
	if err := target.Open(ctx); err != nil {
		return nil, err
	}
	done, err := target.ReplayPresent(ctx, table, &chosen, r.retake, present)
	return done, errors.Join(err, target.Close(context.WithoutCancel(ctx)))
}

// open finds the table of the database, and the columns that its rows have here.
func (r *retaker) open(ctx context.Context, p *Pipeline, table string, originals *postgres.Originals, opts *lake.TargetOptions) error {
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return err
	}
	known, err := lake.ComparedSchema(ctx, st)
	if err != nil {
		return err
	}
	filled := map[string]bool{}
	for _, f := range lake.FilledColumns(opts) {
		filled[strings.ToLower(f.Name)] = true
	}
	var mine, fromSource []arrow.Field
	for _, f := range known.Fields() {
		if filled[strings.ToLower(f.Name)] {
			continue
		}
		mine = append(mine, f)
		if name, ok := origin(r.steps, f.Name); ok {
			f.Name = name
			fromSource = append(fromSource, f)
		}
	}
	r.schema = arrow.NewSchema(mine, nil)
	for _, of := range originals.Tables() {
		if p.tableOf(of[0], of[1]) != table {
			continue
		}
		if r.original != nil {
			return &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: table,
				Msg: "several tables of the database go into this one, and quarantine does not tell of which of them rows are",
				Fix: "give each its own: {schema} and {table} in the name of the target's table"}
		}
		if r.original, err = originals.Whole(ctx, of[0], of[1], arrow.NewSchema(fromSource, nil), len(r.steps) > 0); err != nil {
			return err
		}
	}
	if r.original == nil {
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: table,
			Msg: "no table of the pipeline is called so", Fix: "name tables as they are in the lake, such as bronze.public_orders"}
	}
	return nil
}

// retake makes rows of entries. See lake.Retake.
func (r *retaker) retake(ctx context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
	b := &freshet.Batch{Table: entries[0].Table, Lane: entries[0].Lane, After: -1, Last: int64(len(entries) - 1)}
	refuse := func(i int, code freshet.Code, why string) {
		e := entries[i]
		b.Rejects = append(b.Rejects, freshet.Reject{Seq: int64(i), Row: e.Row, Code: code, Message: why, Step: e.Step, Record: e.Record})
	}
	texts, changes, at := [][]byte{}, []freshet.Change{}, []int{}
	for i, e := range entries {
		change, ok := freshet.ChangeOf(e.Headers)
		switch {
		case change.Kind == freshet.Truncate && ok, e.Code == freshet.CodeTruncated:
			refuse(i, e.Code, "it tells that the table was emptied, and is no row: load the table again for that, or give it up")
			continue
		case len(e.Raw) == 0:
			refuse(i, e.Code, "quarantine has none of its values, since an older version put it there: load the table again for it, or give it up")
			continue
		case !ok:
			change = freshet.Change{Kind: freshet.UpdatePostimage, Stamp: freshet.Stamp{Ordinal: -1, Committed: e.Time.UnixMicro()}}
		}
		texts, changes, at = append(texts, e.Raw), append(changes, change), append(at, i)
	}
	of, err := r.decode(b, texts, func(n int, code freshet.Code, why string) { refuse(at[n], code, why) }, changes)
	if err != nil {
		return nil, err
	}
	for _, n := range of {
		e := entries[at[n]]
		b.Seqs, b.Places = append(b.Seqs, int64(at[n])), append(b.Places, e.Row)
		b.Kinds, b.Stamps = append(b.Kinds, changes[n].Kind), append(b.Stamps, changes[n].Stamp)
		b.Records = append(b.Records, &e.Record)
	}
	slices.SortStableFunc(b.Rejects, func(x, y freshet.Reject) int { return cmp.Compare(x.Seq, y.Seq) })
	if err := r.noteKeys(b, len(entries)); err != nil {
		b.Release()
		return nil, err
	}
	if r.form == rawAfter {
		return b, nil
	}
	return b, r.run(ctx, b)
}

// decode makes the rows of the batch, and returns of which text each is.
func (r *retaker) decode(b *freshet.Batch, texts [][]byte, refuse func(n int, code freshet.Code, why string), changes []freshet.Change) (
	of []int, err error) {
	if r.form == rawText {
		taken, err := r.original.Retake(texts)
		if err != nil {
			return nil, err
		}
		for n, why := range taken.Refused {
			refuse(n, why.Code, why.Error())
		}
		b.Rows, b.Unsent = taken.Rows, taken.Unsent
		return taken.Of, nil
	}
	schema := r.schema
	if r.form == rawBefore {
		schema = r.original.Schema()
	}
	rows, of, faults := freshet.RowsOfJSON(schema, texts)
	for n, fault := range faults {
		refuse(n, freshet.CodeMalformed, fault.Error())
	}
	b.Rows = rows
	for row, n := range of {
		for _, name := range changes[n].Unsent {
			if i := columnAt(schema, name); i >= 0 {
				if b.Unsent == nil {
					b.Unsent = freshet.NewMask(schema.NumFields())
				}
				b.Unsent.Mark(row, i)
			}
		}
	}
	return of, nil
}

// columnAt is where a column is, its case ignored; -1: nowhere.
func columnAt(schema *arrow.Schema, name string) int {
	return slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, name) })
}

// run runs the steps.
func (r *retaker) run(ctx context.Context, b *freshet.Batch) error {
	if b.NumRows() == 0 {
		return nil
	}
	for _, s := range r.steps {
		if err := s.Apply(ctx, b); err != nil {
			return fmt.Errorf("step %s: %w", s.Name(), err)
		}
	}
	return nil
}

// noteKeys notes the key of each row, as the database writes it.
func (r *retaker) noteKeys(b *freshet.Batch, entries int) error {
	r.keys = make([][]string, entries)
	if b.NumRows() == 0 || len(r.original.Key()) == 0 {
		return nil
	}
	keys, err := keysOf(b.Rows, r.original.Key())
	for row, seq := range b.Seqs {
		r.keys[seq] = keys[row]
	}
	return err
}

// keysOf are the keys of rows, nil where one is null.
func keysOf(rows arrow.RecordBatch, names []string) ([][]string, error) {
	keys := make([][]string, rows.NumRows())
	for row := range keys {
		key := make([]string, len(names))
		for i, name := range names {
			at := columnAt(rows.Schema(), name)
			if at < 0 || rows.Column(at).IsNull(row) {
				key = nil
				break
			}
			var err error
			if key[i], err = quality.KeyText(rows.Column(at), row); err != nil {
				return keys, fmt.Errorf("column %s of the key: %w", name, err)
			}
		}
		keys[row] = key
	}
	return keys, nil
}

// rowsNow are the rows that the database has of keys, as the steps make them.
type rowsNow struct {
	*freshet.Batch
	of    map[string]int // by key: the row; -1: the database has none. A key whose row cannot be taken is not there
	joins []string       // by seq of the batch
}

// present is what a mirror gets of the entries. See lake.Present.
func (r *retaker) present(ctx context.Context, entries []*lake.Entry, b *freshet.Batch) (*freshet.Batch, error) {
	now := &freshet.Batch{Table: b.Table, Lane: b.Lane, After: b.After, Last: b.Last, Rejects: slices.Clone(b.Rejects)}
	if b.NumRows() == 0 {
		return now, nil
	}
	has, err := r.ask(ctx, b)
	if err != nil {
		return nil, err
	}
	defer has.Release()
	puts, deletes := map[string]int{}, map[string]int{} // by key: the row of b that it is of, the newest
	for row, seq := range b.Seqs {
		key := joinKey(r.keys[seq])
		at, known := has.of[key]
		removes := b.Kinds[row] == freshet.Delete || b.Kinds[row] == freshet.UpdatePreimage
		switch {
		case r.keys[seq] == nil || !known:
		case removes && at < 0:
			deletes[key] = row
		case !removes && at >= 0:
			same, err := sameRow(b, row, has.Batch, at)
			if err != nil {
				return nil, err
			}
			if same {
				puts[key] = row
			}
		}
	}
	return now, r.put(now, b, has, puts, deletes)
}

// put fills the batch with the rows of now of some keys, and deletes of others.
func (r *retaker) put(now, b *freshet.Batch, has *rowsNow, puts, deletes map[string]int) error {
	rows := map[int]string{}
	for key, row := range puts {
		rows[row] = key
	}
	for _, row := range deletes {
		rows[row] = ""
	}
	fields := b.Rows.Schema().Fields()
	if len(puts) > 0 {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f arrow.Field) bool { return columnAt(has.Rows.Schema(), f.Name) < 0 })
	}
	schema := arrow.NewSchema(fields, nil)
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	for row := range b.NumRows() {
		key, is := rows[row]
		if !is {
			continue
		}
		from, at, kind := b.Rows, row, freshet.Delete
		if key != "" {
			from, at, kind = has.Rows, has.of[key], freshet.UpdatePostimage
		}
		columns := make([]arrow.Array, len(fields))
		for i, f := range fields {
			columns[i] = from.Column(columnAt(from.Schema(), f.Name))
			if c := columnAt(b.Rows.Schema(), f.Name); kind == freshet.Delete && b.Unsent.Has(row, c) {
				if now.Unsent == nil {
					now.Unsent = freshet.NewMask(len(fields))
				}
				now.Unsent.Mark(len(parts), i)
			}
		}
		whole := array.NewRecordBatch(schema, columns, from.NumRows())
		parts = append(parts, whole.NewSlice(int64(at), int64(at)+1))
		whole.Release()
		now.Seqs, now.Kinds = append(now.Seqs, b.Seqs[row]), append(now.Kinds, kind)
		now.Stamps, now.Places = append(now.Stamps, b.Stamps[row]), append(now.Places, b.Places[row])
		now.Records = append(now.Records, b.Records[row])
	}
	if len(parts) == 0 {
		return nil
	}
	var err error
	now.Rows, err = expr.ConcatBatches(parts)
	return err
}

// ask asks the database for the rows of the batch's keys, and runs the steps on them.
func (r *retaker) ask(ctx context.Context, b *freshet.Batch) (*rowsNow, error) {
	now := &rowsNow{Batch: &freshet.Batch{Table: b.Table, Lane: b.Lane, After: -1}, of: map[string]int{}}
	var keys [][]string
	for _, seq := range b.Seqs {
		if key := r.keys[seq]; key != nil {
			if _, known := now.of[joinKey(key)]; !known {
				keys = append(keys, key)
				now.of[joinKey(key)] = -1
			}
		}
	}
	if len(keys) == 0 {
		return now, nil
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	settled, err := r.original.Present(ctx, keys, func(rows postgres.OriginalRows) error {
		found, err := keysOf(rows.Batch, r.original.Key())
		if err != nil {
			return err
		}
		for row, key := range found {
			if _, asked := now.of[joinKey(key)]; !asked { // where the key is masked all rows come
				continue
			}
			delete(now.of, joinKey(key))
			if !rows.Rejected[row] {
				now.joins = append(now.joins, joinKey(key))
				parts = append(parts, rows.Batch.NewSlice(int64(row), int64(row)+1))
			}
		}
		return nil
	})
	if err == nil && !settled {
		err = &freshet.Error{Code: freshet.CodeBehind, Class: freshet.ClassEnvironment, Place: b.Table,
			Msg: "the database has transactions that are in its log and do not end: commits wait for a standby", Fix: "see that the standby answers, and run it again"}
	}
	if err != nil || len(parts) == 0 {
		return now, err
	}
	if now.Rows, err = expr.ConcatBatches(parts); err != nil {
		return now, err
	}
	for i := range now.joins {
		now.Seqs, now.Kinds = append(now.Seqs, int64(i)), append(now.Kinds, freshet.UpdatePostimage)
	}
	if err := r.run(ctx, now.Batch); err != nil {
		return now, err
	}
	for row, seq := range now.Seqs {
		now.of[now.joins[seq]] = row
	}
	return now, nil
}

// sameRow reports whether what was sent of a row is what another has.
func sameRow(b *freshet.Batch, row int, other *freshet.Batch, at int) (bool, error) {
	for i, f := range b.Rows.Schema().Fields() {
		c := columnAt(other.Rows.Schema(), f.Name)
		if c < 0 || b.Unsent.Has(row, i) {
			continue
		}
		same, err := quality.Same(b.Rows.Column(i), row, other.Rows.Column(c), at)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// joinKey is a key as one text, another for each; never empty.
func joinKey(key []string) string {
	var b strings.Builder
	for _, v := range key {
		fmt.Fprintf(&b, "%d:%s", len(v), v)
	}
	return b.String()
}
