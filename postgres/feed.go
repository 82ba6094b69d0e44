package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// feed is what comes of one table: rows that were decoded and not yet returned by Next.
type feed struct {
	name  string    // of the table that they are for
	of    [2]string // schema and name of the table in the source
	load  *load     // its history; nil: all of that is returned
	begun bool      // the table had nothing before
	fills []*load   // of columns that were added
	read  []*load   // fills that were returned whole, and may not be held downstream yet
	whose uint32    // OID of the table that this is the history of
	oid   uint32    // the table's, as the log said last; 0: it has not
	lane  freshet.Lane
	after int64     // up to here everything was returned, or is held downstream
	level time.Time // when it was brought to after
	skip  bool      // its rows are read again later: those of now are dropped
	anew  bool      // it is read again: its table downstream may have got columns since it was described
	early bool      // a column was to become wider that its table downstream gets with rows which are not committed yet
	aside bool      // it is held back downstream for an error of its own

	table  *Table // as the log described it last; nil: not yet
	schema *arrow.Schema
	given  []arrow.Field // the columns that rows of this run had: the table in Delta has them only with the commit of these
	rows   *rows
	misfit *freshet.RejectError // why no row can be one of the table in Delta: of one that is set aside; nil: they can

	before  int // rows that were taken together last: so many may come again
	kinds   []freshet.Kind
	seqs    []int64
	stamps  []freshet.Stamp
	places  []int32
	covered []int64       // by chunks of the history, 0: by none
	covers  *freshet.Lane // that are the lane's; nil: none is covered
	rejects []freshet.Reject
	bytes   int64
	newest  int64 // when the last of them was committed, in microseconds
	readAt  time.Time
	place   int32 // of the next row in the transaction that ends at placed
	placed  int64
	parted  bool // a part of the present transaction was returned
	hides   bool // changes were left out since the batch before, for rows that are still to be read

	stated   int64 // rows that were told to stand behind the log at statedAt, and are no changes of it
	statedAt int64
}

// sourceName is the table in the source, as people write it.
func (f *feed) sourceName() string { return f.of[0] + "." + f.of[1] }

// empty reports whether nothing waits to be returned.
func (f *feed) empty() bool { return len(f.seqs)+len(f.rejects) == 0 && !f.parted }

// origin is the change that rows are of.
type origin struct {
	*transaction
	tx      string
	ordinal int64
	at      time.Time // when it came
}

// stamp is what the log tells of the change.
func (o *origin) stamp() freshet.Stamp {
	return freshet.Stamp{Tx: o.tx, Ordinal: o.ordinal, Committed: o.time}
}

// change takes the rows of one change, less those that belong to rows of the table's history that are still to be returned:
// what is left of an update then is a delete, or an insert.
func (f *feed) change(m *pgoutput.Message, o *origin) {
	var before, after left
	if f.load != nil && f.load.oid == f.oid {
		before, after = f.load.sides(m, o.transaction)
		f.hides = f.hides || before != (left{}) || after != (left{})
	}
	known := m.Old
	if m.OldKey {
		known = nil
	}
	switch {
	case before.out && (after.out || m.Kind == pgoutput.Delete):
	case m.Kind == pgoutput.Insert || before.out:
		f.row(freshet.Insert, m.New, known, false, o, after)
	case m.Kind == pgoutput.Delete || after.out:
		f.row(freshet.Delete, m.Old, nil, m.OldKey, o, before)
	case m.Kind == pgoutput.Update:
		if m.Old != nil {
			f.row(freshet.UpdatePreimage, m.Old, nil, m.OldKey, o, before)
		}
		f.row(freshet.UpdatePostimage, m.New, known, false, o, after)
	}
}

// row appends one row. What the log left out of it is taken from known, the whole row before, if there is one. Of a row of
// which only the key was sent all else is null and means nothing. A value that cannot be makes the row a reject.
func (f *feed) row(kind freshet.Kind, row, known pgoutput.Tuple, onlyKey bool, o *origin, side left) {
	place := f.next(o)
	if f.misfit != nil {
		f.reject(place, kind, f.misfit, f.raw(row, known, onlyKey), o)
		return
	}
	f.rows.begin()
	if err := f.decode(row, known, onlyKey); err != nil {
		f.rows.undo()
		f.reject(place, kind, err, f.raw(row, known, onlyKey), o)
		return
	}
	f.ended(kind, place, o, side)
}

// ended ends a row.
func (f *feed) ended(kind freshet.Kind, place int32, o *origin, side left) {
	f.rows.end()
	if n := f.before; f.seqs == nil && n > 0 {
		f.kinds, f.seqs, f.stamps = make([]freshet.Kind, 0, n), make([]int64, 0, n), make([]freshet.Stamp, 0, n)
		f.covered, f.places = make([]int64, 0, n), make([]int32, 0, n)
	}
	f.kinds = append(f.kinds, kind)
	f.seqs = append(f.seqs, int64(o.end))
	f.stamps = append(f.stamps, o.stamp())
	f.places = append(f.places, place)
	f.covered = append(f.covered, side.covered)
	if side.covered > 0 {
		f.covers = &f.load.lane
	}
}

// next is the place of the next row in its transaction.
func (f *feed) next(o *origin) int32 {
	if f.placed != int64(o.end) {
		f.placed, f.place = int64(o.end), 0
	}
	f.place++
	f.newest, f.readAt = o.time, earlier(f.readAt, o.at)
	return f.place - 1
}

func (f *feed) decode(row, known pgoutput.Tuple, onlyKey bool) error {
	if len(row) != len(f.table.Columns) {
		return &freshet.RejectError{Code: freshet.CodeMalformed, Offset: -1,
			Message: fmt.Sprintf("found %d values, wanted the %d of the table", len(row), len(f.table.Columns))}
	}
	for i, v := range row {
		if v.Kind == pgoutput.Unchanged && i < len(known) {
			v = known[i]
		}
		switch {
		case v.Kind == pgoutput.Unchanged || onlyKey && !f.table.Columns[i].Key:
			f.rows.unsent(i)
		case v.Kind == pgoutput.Null:
			f.rows.null(i)
		case v.Kind == pgoutput.Binary:
			return &freshet.RejectError{Code: freshet.CodeMalformed, Path: f.table.Columns[i].Name, Offset: -1,
				Message: "found a binary value, wanted text"}
		default:
			f.bytes += int64(len(v.Data))
			if err := f.rows.text(i, v.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// reject sends a row, or a TRUNCATE, to quarantine.
func (f *feed) reject(place int32, kind freshet.Kind, err error, raw []byte, o *origin) {
	change := freshet.Change{Kind: kind, Stamp: o.stamp()}
	r := freshet.Reject{Seq: int64(o.end), Row: place, Code: freshet.CodeMalformed, Message: err.Error(), Step: "decode",
		Record: freshet.Record{Raw: raw, Headers: change.Headers(), Time: time.UnixMicro(o.time).UTC(), TimeKind: -1}}
	var why *freshet.RejectError
	if errors.As(err, &why) {
		r.Code = why.Code
	}
	f.rejects = append(f.rejects, r)
}

// raw is a row as JSON: the text of each value that was sent, or is known of the row before, by its column; see rows.told.
func (f *feed) raw(row, known pgoutput.Tuple, onlyKey bool) []byte {
	values := map[string]any{}
	for i, v := range row {
		if v.Kind == pgoutput.Unchanged && i < len(known) {
			v = known[i]
		}
		if i >= len(f.table.Columns) || v.Kind == pgoutput.Unchanged || onlyKey && !f.table.Columns[i].Key {
			continue
		}
		told, ok := f.rows.told(i, v.Data)
		if v.Kind == pgoutput.Null {
			told = nil
		}
		if ok {
			values[f.table.Columns[i].Name] = told
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil
	}
	return text
}

// truncated takes what took all rows out of the table without naming them.
func (f *feed) truncated(policy Policy, how string, o *origin) error {
	switch policy {
	case Fail:
		return f.emptied(how, f.lane.Position(int64(o.end)))
	case Keep:
		f.reject(f.next(o), freshet.Truncate, f.stay(how), []byte(f.sourceName()+" was "+how), o)
		return nil
	}
	place := f.next(o)
	for i := range f.table.Columns {
		f.rows.unsent(i)
	}
	f.ended(freshet.Truncate, place, o, left{})
	return nil
}

// emptied is the error where that is to end the run.
func (f *feed) emptied(how, at string) error {
	return &freshet.Error{Code: freshet.CodeTruncated, Class: freshet.ClassInput, Place: at,
		Msg: fmt.Sprintf("the table %s was %s, and its policy is to stop", f.sourceName(), how),
		Fix: "let ddl.truncate be apply, so that all rows go, or keep, so that they stay"}
}

// stay says that the rows stay in spite of it.
func (f *feed) stay(how string) *freshet.RejectError {
	return &freshet.RejectError{Code: freshet.CodeTruncated, Offset: -1,
		Message: fmt.Sprintf("%s was %s: its rows stay", f.sourceName(), how)}
}

// take returns what waits as a batch up to last. unfinished: there is more of last.
func (f *feed) take(last int64, unfinished bool) *freshet.Batch {
	b := &freshet.Batch{Table: f.name, Lane: f.lane, After: f.after, Last: last, Rejects: f.rejects, Bytes: f.bytes,
		ReadAt: f.readAt, Unfinished: unfinished}
	if f.load != nil {
		at := freshet.Place{Lane: f.load.lane, Seq: wholeHistory}
		if f.hides {
			at.Seq = f.load.done
		}
		b.Beside = []freshet.Place{at}
	}
	if f.newest != 0 {
		b.Newest = time.UnixMicro(f.newest).UTC()
	}
	if len(f.seqs) > 0 {
		b.Rows, b.Unsent = f.rows.take()
		b.Kinds, b.Seqs, b.Stamps, b.Places = f.kinds, f.seqs, f.stamps, f.places
		if f.covers != nil {
			b.Covered, b.CoveredBy = f.covered, *f.covers
		}
	}
	f.before = len(f.seqs)
	f.kinds, f.seqs, f.stamps, f.covered, f.covers, f.places = nil, nil, nil, nil, nil, nil
	f.rejects, f.bytes, f.newest, f.readAt = nil, 0, 0, time.Time{}
	f.after, f.parted, f.hides, f.level = last, unfinished, false, time.Now()
	if b.ReadAt.IsZero() {
		b.ReadAt = f.level
	}
	return b
}

// lossy tells of values that were not taken as they are.
func (f *feed) lossy(observer func(table, column string, values int64)) {
	if f.rows == nil {
		return
	}
	counts := map[string]int64{}
	f.rows.nulled(counts)
	lossy(observer, f.name, counts)
}

func lossy(observer func(table, column string, values int64), table string, counts map[string]int64) {
	if observer == nil {
		return
	}
	for column, n := range counts {
		observer(table, column, n)
	}
}

// drop forgets what waits.
func (f *feed) drop() {
	if f.hides = false; f.empty() {
		return
	}
	b := f.take(f.after, false)
	b.Release()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// describe takes a description of the table, which came with the log if it is heard, or is of the catalog. Rows that wait are of
// the one before: they must have been taken.
func (f *feed) describe(ctx context.Context, s *Source, rel *pgoutput.Rel, heard bool) error {
	t := &Table{OID: rel.OID, Schema: rel.Schema, Name: rel.Name, Identity: Identity(rel.Identity)}
	for _, c := range rel.Columns {
		t.Columns = append(t.Columns, Column{Name: c.Name, Type: c.Type, Modifier: c.Modifier, Key: c.Key,
			Unique: slices.Contains(s.Key(f.name), columnName(c.Name))})
	}
	if err := s.learnTypes(ctx, t); err != nil {
		return err
	}
	if err := s.learnDimensions(ctx, f, t); err != nil {
		return err
	}
	var misfit *freshet.RejectError
	if f.aside {
		var err error
		if misfit, err = s.spare(ctx, f, t); err != nil {
			return err
		}
	}
	left, err := s.reshape(ctx, f, t, heard)
	if err != nil {
		return err
	}
	schema, err := s.shape(ctx, f, t, left)
	if err != nil {
		return err
	}
	rows, err := newRows(s.types, t, schema)
	if err != nil {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.String(),
			Msg: "the rows do not fit the table " + f.name, Err: err,
			Fix: "write to another table, or load this one again"}
	}
	if heard {
		f.give(schema.Fields()...)
	}
	f.table, f.schema, f.rows, f.misfit = t, schema, rows, misfit
	f.anew = f.anew && !heard
	return nil
}

// give notes columns that rows have from now on. A type that is wider than that of rows before it makes those be read again, and
// they have it then, too.
func (f *feed) give(fields ...arrow.Field) {
	for _, field := range fields {
		if i := slices.IndexFunc(f.given, func(g arrow.Field) bool { return strings.EqualFold(g.Name, field.Name) }); i >= 0 {
			f.given[i] = field
			continue
		}
		f.given = append(f.given, field)
	}
}

// known are the columns of the table in Delta, and those that it gets with rows that are not committed yet; nil: there is none.
func (s *Source) known(ctx context.Context, f *feed) (*arrow.Schema, error) {
	have, err := s.down.Schema(ctx, f.name)
	if err != nil || have == nil {
		return nil, err
	}
	return f.withGiven(have), nil
}

// withGiven are the columns of the table in Delta, and those that it gets with rows that are not committed yet.
func (f *feed) withGiven(known *arrow.Schema) *arrow.Schema {
	fields := known.Fields()
	for _, g := range f.given {
		if indexOf(known, g.Name) < 0 {
			fields = append(fields, g)
		}
	}
	meta := known.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// shape has the target make its table for rows of this one, or check that it takes them, and returns the columns that they
// become; those in left are left out.
func (s *Source) shape(ctx context.Context, f *feed, t *Table, left map[string]bool) (*arrow.Schema, error) {
	schema, err := s.columns(ctx, f, t, left)
	if err != nil {
		return nil, err
	}
	if err := s.down.Ensure(ctx, f.name, schema); err != nil {
		return nil, err
	}
	return s.columns(ctx, f, t, left)
}

// columns are those that rows of the table have, of the types that its Delta table has, less those left out.
func (s *Source) columns(ctx context.Context, f *feed, t *Table, left map[string]bool) (*arrow.Schema, error) {
	known, err := s.known(ctx, f)
	if err != nil {
		return nil, err
	}
	schema, err := s.types.fit(t, known)
	if err != nil {
		return nil, unfit(t, err)
	}
	fields := slices.DeleteFunc(schema.Fields(), func(field arrow.Field) bool { return left[field.Name] })
	return arrow.NewSchema(fields, nil), nil
}

func unfit(t *Table, err error) error {
	return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.String(),
		Msg: "the table cannot become one of Delta", Err: err,
		Fix: "give the column another name in the source, drop it, or leave it out of the publication"}
}

// described reports whether the description says what is known already.
func (f *feed) described(rel *pgoutput.Rel) bool {
	if f.table == nil || f.table.OID != rel.OID || f.table.Identity != Identity(rel.Identity) {
		return false
	}
	return slices.EqualFunc(f.table.Columns, rel.Columns, func(a Column, b pgoutput.Column) bool {
		return a.Name == b.Name && a.Type == b.Type && a.Modifier == b.Modifier && a.Key == b.Key
	})
}
