package lake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// SCD2 keeps the history of each key: a row for each time in which it was so. Times of one key do not overlap; the one that
// lasts has null for its end, and is the only one that is current.
//
//	columns of the source | valid_from | valid_to | is_current | LastSaidColumn | AlsoSaidColumn
const SCD2 Mode = "scd2"

// Columns of a history in which it keeps what its rows do not show, so that what comes late finds its place.
const (
	// LastSaidColumn is, in the newest row of each key, the greatest sequence of what the source said of it; else null.
	LastSaidColumn = "_last_said"
	// AlsoSaidColumn are the sequences of what the source said and what began no row, the greatest PeriodOptions.Repeats of
	// them: within the row's time, that it is so; after its end, that there is no such row.
	AlsoSaidColumn = "_also_said"
)

// PeriodOptions say what a history is of, and name its columns. The zero value of each field means its default.
type PeriodOptions struct {
	// Track are the columns whose changes begin a row. What changes others alone changes the row. Default: all but Ignore.
	Track []string
	// Ignore are columns whose changes begin no row. Default: none.
	Ignore []string
	// Repeats is how many sequences AlsoSaidColumn keeps in a row, the greatest. Default 100.
	Repeats int

	From    string // of the type of the sequence: when the row began to be so, inclusive. Default "valid_from"
	To      string // of the same type: when it ended, exclusive; null: it has not. Default "valid_to"
	Current string // boolean: that it has not. Default "is_current"
}

func (o *PeriodOptions) setDefaults() {
	if o.Repeats == 0 {
		o.Repeats = 100
	}
	for _, f := range []struct {
		name *string
		def  string
	}{{&o.From, "valid_from"}, {&o.To, "valid_to"}, {&o.Current, "is_current"}} {
		if *f.name == "" {
			*f.name = f.def
		}
	}
}

// tracks reports whether a change of the column begins a row.
func (o *PeriodOptions) tracks(column string) bool {
	return (len(o.Track) == 0 || containsFold(o.Track, column)) && !containsFold(o.Ignore, column)
}

// text tells of the columns that are tracked, as TargetOptions.modeText has it.
func (o *PeriodOptions) text() string {
	switch {
	case len(o.Track) > 0:
		return ", tracking " + strings.Join(o.Track, ", ")
	case len(o.Ignore) > 0:
		return ", ignoring " + strings.Join(o.Ignore, ", ")
	}
	return ""
}

// fills are the columns of a history. Their type may be nil: that of the sequence.
func (o *PeriodOptions) fills(sequence arrow.DataType) []fill {
	also := sequence
	if sequence != nil {
		also = arrow.ListOf(sequence)
	}
	return []fill{{o.From, sequence, nil}, {o.To, sequence, nil}, {o.Current, arrow.FixedWidthTypes.Boolean, nil},
		{LastSaidColumn, sequence, nil}, {AlsoSaidColumn, also, nil}}
}

// sequenceType is the type of what orders a history; nil where a column of the source does.
func (o *TargetOptions) sequenceType() arrow.DataType {
	if len(o.Key.SequenceBy) > 0 {
		return nil
	}
	return arrow.FixedWidthTypes.Timestamp_us
}

// sequenced gives the column of a history the type that it has with rows of these columns; nil when they lack the sequence.
func (o *TargetOptions) sequenced(f fill, rows *delta.Schema) fill {
	sequence, _ := rows.Lookup(o.Key.SequenceBy[0])
	if sequence == nil {
		return f
	}
	f.typ = delta.ArrowType(sequence.Type)
	if f.name == AlsoSaidColumn {
		f.typ = arrow.ListOf(f.typ)
	}
	return f
}

// checkHistory finds options that a history cannot have.
func (o *TargetOptions) checkHistory(fault func(format string, args ...any)) {
	p := &o.Periods
	if o.Mode != SCD2 {
		if len(p.Track)+len(p.Ignore) > 0 {
			fault("history: found track or ignore, and mode %s keeps no history", o.Mode)
		}
		return
	}
	if len(p.Track) > 0 && len(p.Ignore) > 0 {
		fault("history: found both track and ignore, wanted one of them")
	}
	if p.Repeats < 1 {
		fault("history: found %d repeats, wanted at least 1", p.Repeats)
	}
	for _, c := range slices.Concat(p.Track, p.Ignore) {
		if containsFold(slices.Concat(o.Key.Columns, o.Key.SequenceBy), c) {
			fault("history: the column %q is of the key or the sequence, which are not tracked", c)
		}
	}
	if len(o.Key.SequenceBy) > 1 {
		fault("sequence_by: found %d columns, wanted one: it is what mode scd2 says rows were valid from", len(o.Key.SequenceBy))
	}
	if d := o.Key.Deletes; d != HardDeletes && d != IgnoreDeletes {
		fault("deletes: found %s, wanted hard (the row's time ends) or ignore in mode scd2", d)
	}
}

// suitsHistory refuses a table that the mode would spoil: rows that are no history, or a history, where a key has one row.
// Errors: *freshet.Error with CodeSchemaMismatch.
func (t *table) suitsHistory(ctx context.Context, snap *delta.Snapshot) error {
	if snap == nil {
		return nil
	}
	o := &t.opts
	lacks := func(name string) bool {
		f, _ := snap.Schema().Lookup(name)
		return f == nil
	}
	refuse := func(msg, fix string) error {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name, Msg: msg, Fix: fix}
	}
	if o.Mode != SCD2 {
		if !o.Mode.keyed() || lacks(LastSaidColumn) || lacks(AlsoSaidColumn) {
			return nil
		}
		return refuse(fmt.Sprintf("the table is a history, which mode scd2 made, and mode %s would leave one row a key of it",
			o.Mode), "set the mode to scd2, or write to another table")
	}
	var missing []string
	for _, f := range o.Periods.fills(nil) {
		if lacks(f.name) {
			missing = append(missing, f.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, err := range snap.Files(ctx, nil) {
		if err != nil {
			return explain(t.name, err)
		}
		return refuse(fmt.Sprintf("the table has rows and no column %s: it is no history with such columns",
			strings.Join(missing, ", ")), "write to another table, or name the history's columns as it has them: history")
	}
	return nil
}

// containsFold reports whether a name is among others, its case ignored.
func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// orderColumns are those by which the index of the table orders changes.
func (o *KeyOptions) orderColumns(table *delta.Schema) []string {
	if f, _ := table.Lookup(LastSaidColumn); f != nil {
		return []string{LastSaidColumn} // a history
	}
	return o.SequenceBy
}

// newest are those of the rows that the index has: of a history, the newest row of each key. It is the caller's.
func (r *rowIndex) newest(rows delta.FileRows) delta.FileRows {
	if !slices.Equal(r.columns[r.keys:], []string{LastSaidColumn}) {
		rows.Batch.Retain()
		return rows
	}
	last := rows.Batch.Column(r.keys)
	var in []int32
	var at []int64
	for i := range last.Len() {
		if last.IsValid(i) {
			in, at = append(in, int32(i)), append(at, rows.Rows[i])
		}
	}
	return delta.FileRows{File: rows.File, Rows: at, Batch: expr.TakeBatch(rows.Batch, expr.SpansOf(in))}
}
