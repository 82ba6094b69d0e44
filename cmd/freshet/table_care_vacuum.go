package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

func (c *cli) tableVacuum() *cobra.Command {
	var o delta.VacuumOptions
	var report, yes bool
	var keep []int
	var output string
	cmd := &cobra.Command{
		Use:   "vacuum TABLE",
		Short: "Delete files that no version needs any more",
		Long: `Delete files below the table's folder that neither the newest version needs nor one that was there within the retention.
Older versions cannot be read any more afterwards. Files that begin with "_" or "." are left alone, but for the change
feed's, and so are other tables below the folder, and whatever is younger than the retention: a commit may be on its way.

The retention is the table's delta.deletedFileRetentionDuration (7 days) unless --retention says otherwise; under 168 hours
it takes --force, since readers and writers that have been at it for longer lose files under their hands. --keep-version
keeps what readers of an old version need. Shallow clones of the table are not known here: they break when their files
go. What cuts name stays for as long as the pipelines that record them say, which a marker below the table's _freshet/cuts
tells: their versions can be read still, whatever --retention says.

--lite looks into the log only, which is quicker on large tables: files of writers that failed stay.
--report prints every file that was looked at as a line of JSON: key, size, modified, and reason, which is unreferenced (it
goes), referenced, young, hidden or nested.`,
		Example: `  freshet table vacuum ./lake/orders --dry-run
  freshet table vacuum bronze.orders --retention 336h --keep-version 1200
  freshet table vacuum ./lake/orders --dry-run --report | jq -r 'select(.reason == "unreferenced").key'`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if cmd.Flags().Changed("retention") && o.Retention <= 0 {
				o.Retention = -1
			}
			for _, v := range keep {
				o.KeepVersions = append(o.KeepVersions, int64(v))
			}
			if o.Force && !o.DryRun {
				if err := c.confirm(fmt.Sprintf("%s: files go that are younger than a week.", args[0]), yes); err != nil {
					return err
				}
			}
			return c.vacuum(cmd.Context(), args[0], &o, report, output)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Retention, "retention", 0, "for how long files stay, such as 336h (default: the table's)")
	f.BoolVar(&o.Force, "force", false, "allow a retention under 168h")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.IntSliceVar(&keep, "keep-version", nil, "versions that stay readable")
	f.BoolVar(&o.Lite, "lite", false, "look into the log only")
	f.BoolVar(&o.DryRun, "dry-run", false, "find what would go, and delete nothing")
	f.BoolVar(&o.LogCommits, "log-commits", false, "note start and end in the table's history, as Spark can")
	f.BoolVar(&report, "report", false, "print each file with the reason why it goes or stays, a line of JSON each")
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) vacuum(ctx context.Context, name string, o *delta.VacuumOptions, report bool, output string) error {
	t, err := c.openToWrite(ctx, name, false)
	if err != nil {
		return err
	}
	p, err := c.protection(ctx, t)
	if err != nil {
		return err
	}
	if err := p.Vacuum(ctx, t, o); err != nil {
		return err
	}
	show, clear := c.line()
	var seen int64
	var failed error
	o.Report = func(f delta.VacuumFile) {
		seen++
		show("looking: %s", plural(seen, "file"))
		if report && failed == nil {
			failed = c.list("jsonl", []record{{{name: "key", value: f.Key}, {name: "size", value: f.Size},
				{name: "modified", value: f.Modified.UTC()}, {name: "reason", value: string(f.Reason)}}})
		}
	}
	r, err := t.Vacuum(ctx, o)
	clear()
	if err = errors.Join(err, failed); err != nil {
		return changeError(name, err)
	}
	if output != "" {
		kept := map[string]int64{}
		for reason, n := range r.Kept {
			kept[string(reason)] = n
		}
		return c.describe(output, record{{name: "files_deleted", value: r.Deleted}, {name: "dry_run", value: r.DryRun},
			{name: "bytes_deleted", value: r.DeletedBytes, text: bytesText(r.DeletedBytes)}, {name: "files_kept", value: kept},
			{name: "retention_hours", value: r.Retention.Hours()}})
	}
	var kept []string
	for _, reason := range slices.Sorted(maps.Keys(r.Kept)) {
		kept = append(kept, fmt.Sprintf("%s %s", number(r.Kept[reason]), reason))
	}
	c.say("✓ %s: %s (%s) %s; kept: %s", name, plural(r.Deleted, "file"), bytesText(r.DeletedBytes),
		would(o.DryRun, "deleted", "would be deleted"), orDash(strings.Join(kept, ", ")))
	return nil
}

// protection is what of the table must stay because cuts name it.
func (c *cli) protection(ctx context.Context, t *delta.Table) (*lake.Protection, error) {
	project, err := c.openProject("", true)
	if err != nil {
		return nil, err
	}
	return lake.CutProtection(ctx, t, func(m lake.CutMarker) (store.Store, error) {
		return project.OpenTable(ctx, m.Location)
	}, time.Now())
}

func (c *cli) tableRestore() *cobra.Command {
	var a at
	var o delta.RestoreOptions
	var progress, output string
	cmd := &cobra.Command{
		Use:   "restore TABLE (--version N | --as-of TIME)",
		Short: "Take a table back to an older version",
		Long: `Make a table what it was at an older version: rows, columns and properties, in a commit of its own. It can be undone by
restoring the version before it.

Progress that pipelines keep in the table has moved on since as a rule. --progress keep leaves it: what they have written
since then does not come again. --progress rewind sets it back: they write it again, as far as their sources still have
it.`,
		Example: `  freshet table restore ./lake/orders --version 41 --dry-run
  freshet table restore bronze.orders --as-of 2026-01-31T12:00:00Z --progress rewind --reason 'bad price feed'`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.version < 0 && a.asOf == "" {
				return usageError("found neither --version nor --as-of, wanted one", "look for versions with `freshet table history`")
			}
			if err := errors.Join(checkOutput(output), oneOf("--progress", progress, "", "keep", "rewind")); err != nil {
				return err
			}
			o.Progress = delta.RestoreProgress(progress)
			return c.restore(cmd.Context(), args[0], a, &o, output)
		},
	}
	f := cmd.Flags()
	a.addAs(cmd, "the version to go back to; this or --as-of must be given")
	f.StringVar(&progress, "progress", "", "keep or rewind, what becomes of the progress of pipelines")
	f.BoolVar(&o.IgnoreMissing, "ignore-missing", false, "restore what a vacuum has left of the version")
	f.BoolVar(&o.DryRun, "dry-run", false, "find what would be done, and do nothing")
	f.StringVar(&o.UserMetadata, "reason", "", "why; noted in the table's history")
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) restore(ctx context.Context, name string, a at, o *delta.RestoreOptions, output string) error {
	snap, err := c.snapshot(ctx, name, a)
	if err != nil {
		return err
	}
	t, err := c.openToWrite(ctx, name, false)
	if err != nil {
		return err
	}
	r, err := t.Restore(ctx, snap.Version(), o)
	if errors.Is(err, delta.ErrMissingFiles) {
		return &freshet.Error{Place: name, Class: freshet.ClassInput, Code: freshet.CodeNoVersion, Msg: err.Error(),
			Fix: "choose a younger version, or give --ignore-missing"}
	}
	if err != nil {
		return changeError(name, err)
	}
	if output != "" {
		rewound := map[string]int64{}
		for _, txn := range r.Rewound {
			rewound[txn.AppID] = txn.Version
		}
		return c.describe(output, record{{name: "version", value: r.Version}, {name: "dry_run", value: o.DryRun},
			{name: "restored_version", value: snap.Version()}, {name: "files_restored", value: r.RestoredFiles},
			{name: "files_removed", value: r.RemovedFiles}, {name: "files_missing", value: r.MissingFiles},
			{name: "files", value: r.Files}, {name: "bytes", value: r.Bytes, text: bytesText(r.Bytes)},
			{name: "progress_rewound", value: rewound}})
	}
	c.say("✓ %s %s what it was at version %d: %s restored, %d removed%s", name,
		would(o.DryRun, fmt.Sprintf("is at version %d,", r.Version), "would be"), snap.Version(),
		plural(r.RestoredFiles, "file"), r.RemovedFiles, rewoundText(r.Rewound))
	return nil
}

func rewoundText(txns []delta.Txn) string {
	if len(txns) == 0 {
		return ""
	}
	return ", " + plural(len(txns), "position") + " of progress rewound"
}

func (c *cli) tableCheckpoint() *cobra.Command {
	var clean bool
	cmd := &cobra.Command{
		Use:   "checkpoint TABLE",
		Short: "Write a checkpoint of the newest version",
		Long: `Write a checkpoint of the newest version, so that readers need not go through the commits before it. Pipelines do so by
themselves. --clean-log then deletes what is older than delta.logRetentionDuration (30 days): these versions cannot
be read any more, but for those that cuts name.`,
		Example: `  freshet table checkpoint ./lake/orders
  freshet table checkpoint bronze.orders --clean-log`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.openToWrite(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			snap, err := t.Snapshot(cmd.Context())
			if err == nil {
				err = t.Checkpoint(cmd.Context(), snap)
			}
			if err != nil {
				return changeError(args[0], err)
			}
			cleaned := ""
			if clean {
				p, err := c.protection(cmd.Context(), t)
				if err != nil {
					return err
				}
				o := &delta.CleanOptions{}
				p.Clean(o)
				n, err := t.CleanLog(cmd.Context(), o)
				if err != nil {
					return changeError(args[0], err)
				}
				cleaned = ", " + plural(n, "old log file") + " deleted"
			}
			c.say("✓ %s has a checkpoint of version %d%s", args[0], snap.Version(), cleaned)
			return nil
		},
	}
	cmd.Flags().BoolVar(&clean, "clean-log", false, "delete what the log no longer needs")
	return cmd
}
