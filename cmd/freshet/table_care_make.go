package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

func (c *cli) tableClone() *cobra.Command {
	var a at
	var o delta.CloneOptions
	var properties []string
	cmd := &cobra.Command{
		Use:   "clone TABLE NEW",
		Short: "Make a table with the rows of another",
		Long: `Make the table NEW, with the columns, properties and rows of TABLE, and a history of its own. A copy that was broken off
goes on where it was when the command is given again.

--shallow copies nothing: the clone names the files of TABLE by absolute paths. Changes of either do not show in the other,
but a vacuum of TABLE breaks the clone once it takes files that TABLE itself no longer needs.

Progress of pipelines is left behind unless --progress is given: a pipeline that writes TABLE has written nothing into NEW.`,
		Example: `  freshet table clone bronze.orders ./copy
  freshet table clone s3://acme/lake/orders ./orders-before --as-of 2026-01-31T12:00:00Z
  freshet table clone bronze.orders /tmp/orders-test --shallow --property owner=me`,
		Args: args(2, 2, "TABLE and NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Properties, err = propertyFlags(properties); err != nil {
				return err
			}
			return c.clone(cmd.Context(), args[0], args[1], a, &o)
		},
	}
	f := cmd.Flags()
	a.add(cmd)
	f.BoolVar(&o.Shallow, "shallow", false, "name the files of TABLE instead of copying them")
	f.BoolVar(&o.Progress, "progress", false, "take the progress of pipelines along")
	f.StringArrayVar(&properties, "property", nil, "NAME=VALUE, a property of the clone; may be given several times")
	f.IntVar(&o.Concurrency, "parallel", 0, "files copied at once (default: four a processor)")
	return cmd
}

func (c *cli) clone(ctx context.Context, from, to string, a at, o *delta.CloneOptions) error {
	snap, err := c.snapshot(ctx, from, a)
	if err != nil {
		return err
	}
	dst, err := c.tableStore(ctx, to)
	if err != nil {
		return err
	}
	show, clear := c.line()
	var done delta.CloneProgress
	o.Snapshot, o.EngineInfo, o.Outside = snap, engineInfo(), outside
	o.Report = func(p delta.CloneProgress) {
		done = p
		show("cloning: %s of %s, %s of %s", number(p.FilesDone), plural(p.Files, "file"), bytesText(p.BytesDone),
			bytesText(p.Bytes))
	}
	_, err = snap.Table().Clone(ctx, dst, o)
	clear()
	if err != nil {
		return changeError(to, err)
	}
	how := fmt.Sprintf("%s copied", plural(done.Copied, "file"))
	if o.Shallow {
		how = fmt.Sprintf("%s of it named", plural(done.Files, "file"))
	}
	c.say("✓ %s is a clone of version %d of %s: %s, %s", to, snap.Version(), from, how, bytesText(done.Bytes))
	return nil
}

func (c *cli) tableConvert() *cobra.Command {
	var o delta.ConvertOptions
	var columns, output string
	var properties []string
	cmd := &cobra.Command{
		Use:   "convert FOLDER",
		Short: "Make a Delta table of a folder of Parquet files",
		Long: `Make a Delta table of the Parquet files in a folder, in place: only a log is written. Files end with .parquet or .parq;
other files, and names that begin with "_" or ".", are left alone.

Partition columns come from folders NAME=VALUE. Their types are found out (all integers: long; all dates: date; else string)
unless --partition-by says them. Columns that some files lack are null there; a column that has different types in
different files is an error. Statistics are taken from the files' footers.

Afterwards files must come and go through the table only.`,
		Example: `  freshet table convert ./export --dry-run
  freshet table convert s3://acme/raw/orders --partition-by 'day date, shop int'`,
		Args: args(1, 1, "one FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkOutput(output); err != nil {
				return err
			}
			if o.Properties, err = propertyFlags(properties); err != nil {
				return err
			}
			if columns != "" {
				schema, err := schemaArgument("--partition-by", columns)
				if err != nil {
					return err
				}
				o.PartitionBy = schema.Fields
			}
			return c.convert(cmd.Context(), args[0], &o, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&columns, "partition-by", "", "the partition columns with their types, such as 'day date, shop int'")
	f.StringArrayVar(&properties, "property", nil, "NAME=VALUE, a property of the table; may be given several times")
	f.StringVar(&o.Name, "name", "", "the table's name")
	f.BoolVar(&o.NoStats, "no-stats", false, "leave out statistics")
	f.BoolVar(&o.DryRun, "dry-run", false, "find out what would become of it, and write nothing")
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) convert(ctx context.Context, name string, o *delta.ConvertOptions, output string) error {
	st, err := c.tableStore(ctx, name)
	if err != nil {
		return err
	}
	show, clear := c.line()
	o.EngineInfo = engineInfo()
	o.Report = func(n int64) { show("reading footers: %s", plural(n, "file")) }
	r, err := delta.Convert(ctx, st, o)
	clear()
	if err != nil {
		return convertError(name, err)
	}
	if output != "" {
		var columns []string
		for _, f := range r.Schema.Fields {
			columns = append(columns, columnText(f))
		}
		return c.describe(output, record{{name: "dry_run", value: o.DryRun}, {name: "files", value: r.Files},
			{name: "bytes", value: r.Bytes, text: bytesText(r.Bytes)}, {name: "rows", value: r.Rows},
			{name: "columns", value: columns, text: strings.Join(columns, "\n")},
			{name: "partition_by", value: orEmpty(r.PartitionBy), text: orDash(strings.Join(r.PartitionBy, ", "))}})
	}
	c.say("✓ %s %s a Delta table of %s, %s, %s, partitioned by %s", name, would(o.DryRun, "is", "would be"),
		plural(r.Files, "file"), plural(r.Rows, "row"), plural(len(r.Schema.Fields), "column"),
		orDash(strings.Join(r.PartitionBy, ", ")))
	return nil
}

func (c *cli) tableManifest() *cobra.Command {
	return &cobra.Command{
		Use:   "manifest TABLE",
		Short: "Write symlink manifests for engines that do not know Delta",
		Long: `Write which files belong to the newest version, a file a partition below _symlink_format_manifest, for engines that read
Parquet by such manifests, as Redshift Spectrum and old versions of Presto and Athena do. They show that version until
the command is given again. A table with deletion vectors, or with column mapping, cannot be read so.`,
		Example: `  freshet table manifest s3://acme/lake/orders`,
		Args:    args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.openToWrite(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			n, err := t.GenerateManifest(cmd.Context())
			if err != nil {
				return changeError(args[0], err)
			}
			c.say("✓ %s: %s below %s/_symlink_format_manifest", args[0], plural(n, "manifest"), t.Store().URL())
			return nil
		},
	}
}
