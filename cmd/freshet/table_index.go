package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

func (c *cli) tableIndex() *cobra.Command {
	return group("index", "Look after the key indexes of a table",
		`Look after key indexes: the modes with a key, and append with dedupe, know from one, on local disk, where the row of each
key lies. It is a cache that a pipeline brings forward and makes anew by itself; these commands are for looking into one,
and for making one before the pipeline that needs it starts.`,
		c.tableIndexDescribe(), c.tableIndexRebuild(), c.tableIndexCheck())
}

// indexFlags say which index is meant.
type indexFlags struct{ o lake.IndexOptions }

func (f *indexFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.o.App, "app", "", "whose index (default: the only one there is)")
	fs.StringVar(&f.o.Dir, "index-dir", "", "the folder of key indexes, as index_dir of the pipeline (default: in the "+
		"user's cache folder)")
}

func (f *indexFlags) addColumns(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.o.Key, "key", nil, "the columns of the key (default: those that the index has)")
	fs.StringSliceVar(&f.o.SequenceBy, "sequence-by", nil, "the columns that order the changes of a key, as sequence_by of "+
		"the pipeline")
}

// readIndex does what reads a whole table for its index, and shows how many rows that were.
func readIndex[T any](ctx context.Context, c *cli, table, output string, f *indexFlags,
	work func(context.Context, store.Store, string, *lake.IndexOptions) (T, error)) (done T, err error) {
	if err := checkOutput(output); err != nil {
		return done, err
	}
	st, err := c.indexStore(ctx, table)
	if err != nil {
		return done, err
	}
	show, clear := c.line()
	defer clear()
	o := f.o
	o.Progress = func(rows int64) { show("reading: %s", plural(rows, "row")) }
	done, err = work(ctx, st, table, &o)
	return done, tableError(table, err)
}

func (c *cli) indexStore(ctx context.Context, name string) (store.Store, error) {
	st, err := c.tableStore(ctx, name)
	return st, tableError(name, err)
}

func (c *cli) tableIndexDescribe() *cobra.Command {
	var f indexFlags
	var output string
	cmd := &cobra.Command{
		Use:     "describe TABLE",
		Aliases: []string{"show"},
		Short:   "Where a table's key indexes lie, and what they show",
		Long: `Print the key indexes of a table that lie on this machine, by app: where, the version of the table that each shows and the
one the table is at, its key, and what it takes on disk. An entry is a key; superseded entries count until they are
merged away. A pipeline may have it open meanwhile.

An index that lags behind the table is brought forward by the pipeline when it starts; one with a fault is made anew.`,
		Example: `  freshet table index describe silver.accounts
  freshet table index describe ./lake/accounts --index-dir ./index -o json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			st, err := c.indexStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := lake.DescribeIndexes(cmd.Context(), st, args[0], &f.o)
			if err != nil {
				return tableError(args[0], err)
			}
			if len(all) == 0 {
				c.say("%s has no key index here: a pipeline makes one with its first commit", args[0])
			}
			if len(all) == 1 {
				return c.describe(output, indexRecord(&all[0]))
			}
			var records []record
			for i := range all {
				records = append(records, indexRecord(&all[i]))
			}
			return c.list(output, records)
		},
	}
	f.add(cmd)
	c.outputFlag(cmd, &output)
	return cmd
}

func indexRecord(d *lake.IndexInfo) record {
	var runs []string
	for _, r := range d.Runs {
		runs = append(runs, fmt.Sprintf("%s: %s entries, %s", r.Name, number(int64(r.Entries)),
			bytesText(int64(r.SizeBytes))))
	}
	version := any(nil)
	if d.Version >= 0 {
		version = d.Version
	}
	perEntry := any(nil)
	if d.Entries > 0 {
		perEntry = float64(d.SizeBytes*10/d.Entries) / 10
	}
	return record{
		{name: "app", value: d.App},
		{name: "dir", value: d.Dir, text: shownPath(d.Dir)},
		{name: "table_id", value: d.Table, wide: true},
		{name: "key", value: orEmpty(d.Key), text: keyText(d)},
		{name: "window", value: windowText(d.Window), wide: true},
		{name: "sequence_bytes", value: d.SequenceBytes, wide: true},
		{name: "version", value: version, right: true},
		{name: "table_version", value: d.TableVersion, right: true},
		{name: "files", value: d.Files, right: true, wide: true},
		{name: "entries", value: d.Entries, text: number(int64(d.Entries)), right: true},
		{name: "size_bytes", value: d.SizeBytes, text: bytesText(int64(d.SizeBytes)), right: true},
		{name: "bytes_an_entry", value: perEntry, right: true, wide: true},
		{name: "runs", value: orEmpty(runs), text: orDash(strings.Join(runs, "\n")), wide: true},
		{name: "fault", value: optional(d.Fault)},
	}
}

// windowText says of which rows an index of a table that takes no record twice is; nil of others.
func windowText(d *lake.DedupeOptions) any {
	if d == nil {
		return nil
	}
	return fmt.Sprintf("%s within %v", d.Time, d.Within)
}

func (c *cli) tableIndexRebuild() *cobra.Command {
	var f indexFlags
	var output string
	cmd := &cobra.Command{
		Use:   "rebuild TABLE",
		Short: "Make a table's key index anew",
		Long: `Make the key index of a table anew from the key columns of all its rows, some two million a second and processor. A
pipeline does that by itself when it finds none, or one that is damaged; this is for having it ready before.

The key is taken from the index that is there; without one, name it as the pipeline has it. The index does not say which
columns its sequences are of: name these where the pipeline has sequence_by.

A pipeline that runs holds its index: stop it first.`,
		Example: `  freshet table index rebuild silver.accounts
  freshet table index rebuild ./lake/accounts --app silver.accounts --key account_id --sequence-by updated_at`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readIndex(cmd.Context(), c, args[0], output, &f, lake.RebuildIndex)
			if err != nil {
				return err
			}
			if output != "" {
				return c.describe(output, indexRecord(d))
			}
			c.say("✓ %s, version %d: an index of %s, %s", args[0], d.Version, plural(int64(d.Entries), "key"),
				bytesText(int64(d.SizeBytes)))
			return nil
		},
	}
	f.add(cmd)
	f.addColumns(cmd)
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) tableIndexCheck() *cobra.Command {
	var f indexFlags
	var output string
	var limit int
	cmd := &cobra.Command{
		Use:   "check TABLE",
		Short: "Compare a key index with its table, key by key",
		Long: `Compare a key index with the table at the version that it shows: every row's key is looked up, and of every key of the index
the row is looked for. Sequences are compared where --sequence-by names their columns.

missing: a row whose key the index lacks. extra: a key that no row has. place: a key whose row lies elsewhere. sequence:
another one than the row has. damaged: the index cannot be read. For all of these "freshet table index rebuild" is the
remedy. duplicate: two rows of the table have one key, and the table is to be mended.

A pipeline that runs holds its index: stop it first. Exit code 4 when something is wrong.`,
		Example: `  freshet table index check silver.accounts
  freshet table index check ./lake/accounts --sequence-by updated_at -o jsonl`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := readIndex(cmd.Context(), c, args[0], output, &f, lake.CheckIndex)
			if err != nil {
				return err
			}
			return c.indexChecked(args[0], r, output, limit)
		},
	}
	f.add(cmd)
	f.addColumns(cmd)
	cmd.Flags().IntVar(&limit, "limit", 1000, "how many faults are listed")
	c.outputFlag(cmd, &output)
	return cmd
}

// indexChecked prints what a check has found.
func (c *cli) indexChecked(name string, r *lake.IndexReport, output string, limit int) error {
	var records []record
	for _, f := range r.Faults[:min(limit, len(r.Faults))] {
		row := any(nil)
		if f.File != "" {
			row = f.Row
		}
		records = append(records, record{{name: "kind", value: f.Kind}, {name: "file", value: optional(f.File)},
			{name: "row", value: row, right: true}, {name: "detail", value: f.Text}})
	}
	if err := c.list(output, records); err != nil {
		return err
	}
	if len(r.Faults) == 0 {
		sequences := ""
		if r.Sequences {
			sequences = ", with their sequences"
		}
		c.say("✓ the index of %s is right at version %d: %s, %s%s", name, r.Version, plural(r.Keys, "key"),
			plural(r.Rows, "row"), sequences)
		return nil
	}
	more := ""
	if r.More {
		more = ", and the rest was not looked at"
	}
	c.say("the index of %s at version %d: %s%s", name, r.Version, plural(int64(len(r.Faults)), "fault"), more)
	return &exitError{4}
}

// keyText is what an index tells rows apart by.
func keyText(d *lake.IndexInfo) string {
	if d.Rows {
		return "none: whole rows"
	}
	return orDash(strings.Join(d.Key, ", "))
}
