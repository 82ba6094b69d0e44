package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/spec"
	"github.com/freshet-io/freshet/store"
)

// careCommands look after tables: their rows stay as they are.
func (c *cli) careCommands() []*cobra.Command {
	return []*cobra.Command{c.tableOptimize(), c.tableVacuum(), c.tableRestore(), c.tableClone(), c.tableConvert(),
		c.tableCheckpoint(), c.tableCheck(), c.tableCompat(), c.tableManifest()}
}

// outside opens the store of a file that a table names by an absolute path, as shallow clones do.
func outside(ctx context.Context, url string) (store.Store, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	return spec.OpenStore(ctx, scheme+"://"+path.Dir(rest))
}

// line shows on a terminal how far an operation is, a few times a second. clear takes the line away.
func (c *cli) line() (show func(format string, args ...any), clear func()) {
	if c.quiet || !isTerminal(c.err) {
		return func(string, ...any) {}, func() {}
	}
	s := newScreen(c.err)
	var shown time.Time
	return func(format string, args ...any) {
		if now := time.Now(); now.Sub(shown) > 100*time.Millisecond {
			shown = now
			s.draw([]string{fmt.Sprintf(format, args...)})
		}
	}, func() { s.draw(nil) }
}

// would is "would " in a dry run.
func would(dryRun bool, done, undone string) string {
	if dryRun {
		return undone
	}
	return done
}

func (c *cli) tableOptimize() *cobra.Command {
	var o delta.OptimizeOptions
	var where, target, small, batch, memory, output string
	cmd := &cobra.Command{
		Use:   "optimize TABLE",
		Short: "Pack small files together, drop deleted rows, lay rows out",
		Long: `Rewrite files for the sake of readers. The rows stay as they are, and so do their ids; the commits say so, and writers of
the table are not disturbed: rows that they delete meanwhile by deletion vector stay deleted.

Small files are packed into large ones, partition by partition; files of which more than --max-deleted of the rows are
deleted are written without these. A clustered table is laid out by its clustering columns instead: files that came
since the last time, together with laid out ones that are no larger than these; --full lays out everything anew.
--zorder lays out the rows of a table that is not clustered. Rows that do not fit into --memory wait in --temp-dir.

Work is committed batch by batch. When it ends before it is done, start it again: what is committed is not done again.
Old files stay until a vacuum takes them.`,
		Example: `  freshet table optimize ./lake/orders
  freshet table optimize bronze.orders --where "day < '2026-01-31'" --dry-run
  freshet table optimize bronze.orders --quiet-for 2h
  freshet table optimize s3://acme/lake/events --zorder customer,sku --target 512MiB`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(checkOutput(output), sizeFlag("--target", target, &o.TargetFileBytes),
				sizeFlag("--small", small, &o.SmallFileBytes), sizeFlag("--batch", batch, &o.BatchBytes),
				sizeFlag("--memory", memory, &o.MemoryBytes))
			if err != nil {
				return err
			}
			if where != "" {
				if o.Where, err = expr.Parse(where); err != nil {
					return tableError(args[0], err)
				}
			}
			return c.optimize(cmd.Context(), args[0], &o, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&where, "where", "", "a SQL condition on partition columns: only these partitions")
	f.DurationVar(&o.QuietFor, "quiet-for", 0, "leave partitions alone to which files were added within this time, such as 2h")
	f.StringSliceVar(&o.ZOrderBy, "zorder", nil, "columns to lay rows out by")
	f.BoolVar(&o.Full, "full", false, "of a clustered table, lay out all files anew")
	f.StringVar(&target, "target", "", "size that files are made for (default: delta.targetFileSize, else 256MiB)")
	f.StringVar(&small, "small", "", "size below which files are packed (default: half of --target)")
	f.Float64Var(&o.MaxDeleted, "max-deleted", 0, "share of deleted rows above which a file is rewritten (default 0.05)")
	f.StringVar(&batch, "batch", "", "how much is rewritten in one commit (default 1GiB)")
	f.StringVar(&memory, "memory", "", "rows that an ordering holds in memory (default 128MiB)")
	f.StringVar(&o.SpillDir, "temp-dir", "", "where rows wait that do not fit (default: the system's)")
	f.IntVar(&o.Concurrency, "parallel", 0, "files written at once (default: the number of processors)")
	f.BoolVar(&o.DryRun, "dry-run", false, "count what would be rewritten, and write nothing")
	f.StringVar(&o.UserMetadata, "reason", "", "why; noted in the table's history")
	resultOutput(cmd, &output)
	return cmd
}

// sizeFlag reads a size like 128MiB; "" leaves it at its default.
func sizeFlag(flag, text string, into *int64) error {
	if text == "" {
		return nil
	}
	n, err := spec.ParseSize(text)
	if err != nil {
		return usageError(flag+": "+err.Error(), "")
	}
	*into = n
	return nil
}

func (c *cli) optimize(ctx context.Context, name string, o *delta.OptimizeOptions, output string) error {
	t, err := c.openToWrite(ctx, name, false)
	if err != nil {
		return err
	}
	show, clear := c.line()
	o.Progress = func(p delta.OptimizeProgress) {
		show("rewriting: %s of %s, %s of %s, %s", number(p.FilesDone), plural(p.Files, "file"), bytesText(p.BytesDone),
			bytesText(p.Bytes), plural(p.Commits, "commit"))
	}
	r, err := t.Optimize(ctx, o)
	clear()
	if err != nil {
		if r != nil && r.Commits > 0 {
			c.say("%s is at version %d: %s were rewritten before it failed", name, r.Version, plural(r.RemovedFiles, "file"))
		}
		return changeError(name, err)
	}
	if output != "" {
		return c.describe(output, record{{name: "version", value: r.Version}, {name: "dry_run", value: o.DryRun},
			{name: "commits", value: r.Commits}, {name: "files_removed", value: r.RemovedFiles},
			{name: "bytes_removed", value: r.RemovedBytes, text: bytesText(r.RemovedBytes)},
			{name: "files_added", value: r.AddedFiles},
			{name: "bytes_added", value: r.AddedBytes, text: bytesText(r.AddedBytes)}, {name: "rows", value: r.Rows},
			{name: "deleted_rows_dropped", value: r.DeletedRows}, {name: "conflicts", value: r.Conflicts}})
	}
	switch {
	case r.RemovedFiles == 0:
		c.say("✓ %s: nothing to do, version %d stays", name, r.Version)
	case o.DryRun:
		c.say("✓ %s: %s (%s) would become about %s", name, plural(r.RemovedFiles, "file"), bytesText(r.RemovedBytes),
			plural(r.AddedFiles, "file"))
	default:
		c.say("✓ %s is at version %d: %s (%s) became %s (%s)", name, r.Version, plural(r.RemovedFiles, "file"),
			bytesText(r.RemovedBytes), plural(r.AddedFiles, "file"), bytesText(r.AddedBytes))
	}
	return nil
}
