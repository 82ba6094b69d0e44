package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/spec"
)

// methodColumn says how a change was found.
const methodColumn = "_freshet_method"

// changesOptions are the flags of table changes.
type changesOptions struct {
	from, to         int64
	fromTime, toTime string
	method           string
	key, columns     []string
	where            string
	limit            int64
	output           string
	digest           bool
}

func (c *cli) tableChanges() *cobra.Command {
	o := changesOptions{from: -1, to: -1}
	cmd := &cobra.Command{
		Use:   "changes TABLE",
		Short: "The row changes between two versions of a table",
		Long: `Print the rows that each version of a range inserted, deleted and updated, version by version. Both ends count. The table
needs no change data feed, and nobody has to have planned for it.

Beside the table's columns each row has _change_type (insert, delete, update_preimage, update_postimage),
_commit_version, _commit_timestamp and _freshet_method: how the change was found.

--method auto, the default, chooses for each version: feed where the table had the change data feed on, vectors where
files were only added, removed or given deletion vectors, row-tracking where rows have ids, and else diff, which
compares the rows of the files that a version removed with those it added. The others insist on one way.

--key names the columns that identify a row: what a version deleted and inserted under one key is then an update,
whatever the method, and rows that it deleted and inserted alike are left out.

What vacuum or log cleanup have taken cannot be told any more: the error names the first version that is still whole.

--digest prints SHA256  ROWS  PATH instead, as table read does, without _commit_timestamp and _freshet_method: two
engines that read the same changes print the same.`,
		Example: `  freshet table changes ./lake/orders --from 12
  freshet table changes bronze.orders --from 12 --to 14 --key order_id --where "_change_type <> 'update_preimage'"
  freshet table changes ./lake/orders --from-time 2026-01-31 --to-time 2026-02-01T12:00:00Z -o csv
  freshet table changes ./lake/orders --from 0 --method diff --digest`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd); err != nil {
				return err
			}
			if o.digest {
				return c.printDigests(o.output, args, func(name string, take func(arrow.RecordBatch) error) error {
					return c.changes(cmd.Context(), name, &o, take)
				})
			}
			var err error
			if o.output, err = c.rowsOutput(o.output); err != nil {
				return err
			}
			return c.printRows(o.output, &o.limit, func(take func(arrow.RecordBatch) error) error {
				return c.changes(cmd.Context(), args[0], &o, take)
			})
		},
	}
	o.add(cmd)
	return cmd
}

func (o *changesOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	versionFlag(cmd, &o.from, "from", "the first version")
	versionFlag(cmd, &o.to, "to", "the last version (default: the newest)")
	f.StringVar(&o.fromTime, "from-time", "", "the first version that was committed at this time or later")
	f.StringVar(&o.toTime, "to-time", "", "the last version that was committed at this time or before")
	f.StringVar(&o.method, "method", "auto", "auto, feed, vectors, row-tracking or diff")
	f.StringSliceVar(&o.key, "key", nil, "the columns that identify a row: pair its delete and insert to an update")
	f.StringSliceVar(&o.columns, "columns", nil, "the table's columns to print (default: all)")
	f.StringVar(&o.where, "where", "", "a SQL condition; changes are printed for which it is true")
	f.Int64Var(&o.limit, "limit", 0, "how many changes at most (default: all; a table on a terminal: 40)")
	f.StringVarP(&o.output, "output", "o", "", rowsFormats)
	f.BoolVar(&o.digest, "digest", false, "print SHA256  ROWS  PATH")
}

func (o *changesOptions) validate(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	switch {
	case given("from") && given("from-time"), given("to") && given("to-time"):
		return usageError("a version and a time for the same end of the range exclude each other", "keep one of them")
	case !given("from") && !given("from-time"):
		return usageError("it is not said from which version on", "--from 0 is all that the log still holds of a table")
	case given("to") && o.from > o.to:
		return usageError(fmt.Sprintf("--from %d is after --to %d", o.from, o.to), "")
	case o.limit < 0:
		return usageError(fmt.Sprintf("--limit: found %d, wanted 0 or more", o.limit), "")
	}
	return oneOf("--method", o.method, "auto", "feed", "vectors", "row-tracking", "diff")
}

// bounds are the versions of the range; empty when no commit lies between two times.
func (o *changesOptions) bounds(ctx context.Context, t *delta.Table) (from, to int64, empty bool, err error) {
	from, to = o.from, o.to
	var since, until time.Time
	if o.fromTime != "" {
		if since, err = spec.ParseTime(o.fromTime); err != nil {
			return 0, 0, false, usageError("--from-time: "+err.Error(), "")
		}
		if from, err = t.VersionSince(ctx, since); err != nil {
			return 0, 0, false, err
		}
	}
	if o.toTime == "" {
		return from, to, false, nil
	}
	if until, err = spec.ParseTime(o.toTime); err != nil {
		return 0, 0, false, usageError("--to-time: "+err.Error(), "")
	}
	if until.Before(since) {
		return 0, 0, false, usageError("--from-time is after --to-time", "")
	}
	var late *delta.VersionError
	to, err = t.VersionAsOf(ctx, until)
	if errors.As(err, &late) && until.After(late.LastAt) {
		to, err = late.Last, nil
	}
	return from, to, err == nil && from > to && o.fromTime != "", err
}

// changes gives the changes that are wanted to take.
func (c *cli) changes(ctx context.Context, name string, o *changesOptions, take func(arrow.RecordBatch) error) error {
	t, err := c.openTable(ctx, name)
	if err != nil {
		return err
	}
	from, to, empty, err := o.bounds(ctx, t)
	if err != nil || empty {
		return tableError(name, err)
	}
	opts, err := o.read(ctx, t, to)
	if err != nil {
		return tableError(name, err)
	}
	left := o.limit
	for ch, err := range t.Changes(ctx, from, to, opts) {
		if err != nil {
			return tableError(name, err)
		}
		batch := ch.Batch
		if o.limit > 0 && batch.NumRows() > left {
			batch = ch.Batch.NewSlice(0, left)
			ch.Batch.Release()
		}
		left -= batch.NumRows()
		shown := o.label(batch, ch.Method)
		batch.Release()
		err := take(shown)
		shown.Release()
		if err != nil || o.limit > 0 && left == 0 {
			return err
		}
	}
	return nil
}

// read makes the options of the reader, of columns that the table has at the end of the range.
func (o *changesOptions) read(ctx context.Context, t *delta.Table, to int64) (*delta.ChangesOptions, error) {
	opts := &delta.ChangesOptions{Key: o.key, Columns: o.columns, Method: delta.ChangeMethod(o.method)}
	if o.method == "auto" {
		opts.Method = delta.MethodAuto
	}
	snap, err := t.Snapshot(ctx)
	if err == nil && to >= 0 && to < snap.Version() {
		snap, err = t.SnapshotAt(ctx, to)
	}
	if err != nil {
		return nil, err
	}
	if err := knownColumns("--columns", snap.Schema(), o.columns); err != nil {
		return nil, err
	}
	if err := knownColumns("--key", snap.Schema(), o.key); err != nil {
		return nil, err
	}
	if o.where != "" {
		opts.Where, err = expr.Parse(o.where)
	}
	return opts, err
}

// label adds the method to a batch; for a digest it takes out what other engines do not print.
func (o *changesOptions) label(batch arrow.RecordBatch, method delta.ChangeMethod) arrow.RecordBatch {
	fields, columns := batch.Schema().Fields(), slices.Clone(batch.Columns())
	if o.digest {
		at := slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == delta.CommitTimestampColumn })
		return array.NewRecordBatch(arrow.NewSchema(slices.Delete(slices.Clone(fields), at, at+1), nil),
			slices.Delete(columns, at, at+1), batch.NumRows())
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for range batch.NumRows() {
		b.Append(string(method))
	}
	methods := b.NewArray()
	defer methods.Release()
	schema := arrow.NewSchema(append(slices.Clone(fields), arrow.Field{Name: methodColumn, Type: methods.DataType()}), nil)
	return array.NewRecordBatch(schema, append(columns, methods), batch.NumRows())
}

// changesFault gives errors of reading changes their code and remedy; false for other errors.
func changesFault(e *freshet.Error, err error) bool {
	var gap *delta.GapError
	var schema *delta.SchemaChangeError
	var feed *delta.FeedError
	var method *delta.MethodError
	e.Class = freshet.ClassInput
	switch {
	case errors.As(err, &gap):
		e.Code, e.Msg = freshet.CodeNoVersion, fmt.Sprintf("the changes of version %d are gone: %s", gap.Version, gap.Missing)
		e.Fix = "no later version of the range is whole, either; read the rows with `freshet table read`"
		if gap.First >= 0 {
			e.Fix = fmt.Sprintf("the first version that is still whole is %d: --from %d", gap.First, gap.First)
		}
	case errors.As(err, &schema):
		e.Code = freshet.CodeSchemaMismatch
		e.Msg = fmt.Sprintf("the schema changed at version %d: %s", schema.Version, strings.Join(schema.Changes, ", "))
		e.Fix = fmt.Sprintf("read the changes in two parts: --to %d, and --from %d", schema.Version-1, schema.Version)
	case errors.As(err, &feed):
		e.Code, e.Msg = freshet.CodeUsage, fmt.Sprintf("the change data feed was off at version %d", feed.Version)
		e.Fix = "leave --method out: other ways to find the changes are taken where it was off"
	case errors.As(err, &method):
		e.Code, e.Msg = freshet.CodeUsage, fmt.Sprintf("version %d cannot be read with --method %s: %s", method.Version,
			method.Method, method.Reason)
		e.Fix = "leave --method out, or take diff"
	default:
		e.Class = 0
		return false
	}
	e.Err = nil
	return true
}
