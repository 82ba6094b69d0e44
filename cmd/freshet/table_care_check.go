package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

func (c *cli) tableCheck() *cobra.Command {
	var a at
	var o delta.CheckOptions
	var output string
	cmd := &cobra.Command{
		Use:   "check TABLE",
		Short: "Look for damage",
		Long: `Look for damage: whether the log is whole, and whether each file of the table is there with its size. --deep reads all
files: whether they can be read and hold as many rows as the log says, whether statistics and deletion vectors tell
the truth, whether row ids are given once, and whether the change feed agrees with the files.

--fix does what is safe: it takes files that are not there out of the table, with the rows that were in them, and writes a
new checkpoint in the place of a broken one; it deletes a checksum that no reader believes. Nothing else is touched.

Exit code 4 when there is an error among the findings that was not fixed.`,
		Example: `  freshet table check ./lake/orders --deep
  freshet table check bronze.orders -o jsonl | jq -r 'select(.severity == "error").path'
  freshet table check ./lake/orders --fix`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if o.Fix && (a.version >= 0 || a.asOf != "") {
				return usageError("--fix is for the newest version", "leave out --version and --as-of")
			}
			return c.check(cmd.Context(), args[0], a, &o, output)
		},
	}
	f := cmd.Flags()
	a.add(cmd)
	f.BoolVar(&o.Deep, "deep", false, "read all files")
	f.BoolVar(&o.Fix, "fix", false, "take missing files out of the table, replace broken checkpoints")
	f.IntVar(&o.MaxFindings, "limit", 0, "how many findings are listed (default 1000)")
	c.outputFlag(cmd, &output)
	return cmd
}

func (c *cli) check(ctx context.Context, name string, a at, o *delta.CheckOptions, output string) error {
	show, clear := c.line()
	o.Progress = func(done, of int64) { show("reading: %s of %s", number(done), plural(of, "file")) }
	r, err := c.checked(ctx, name, a, o)
	clear()
	if err != nil {
		return changeError(name, err)
	}
	var records []record
	for _, f := range r.Findings {
		version := any(nil)
		if f.Version >= 0 {
			version = f.Version
		}
		records = append(records, record{{name: "kind", value: f.Kind}, {name: "severity", value: string(f.Severity)},
			{name: "path", value: optional(f.Path)}, {name: "version", value: version, right: true},
			{name: "detail", value: f.Detail}, {name: "remedy", value: optional(f.Remedy), wide: true}})
	}
	if err := c.list(output, records); err != nil {
		return err
	}
	rows := ""
	if r.Rows >= 0 {
		rows = ", " + plural(r.Rows, "row")
	}
	fixed := ""
	if r.Fixed > 0 {
		fixed = ", " + number(r.Fixed) + " fixed"
	}
	if r.Errors == 0 && r.Warnings == 0 {
		c.say("✓ %s, version %d: no damage in %s, %s%s", name, r.Version, plural(r.Files, "file"), bytesText(r.Bytes), rows)
		return nil
	}
	c.say("%s, version %d: %s, %s%s in %s, %s%s", name, r.Version, plural(r.Errors, "error"),
		plural(r.Warnings, "warning"), fixed, plural(r.Files, "file"), bytesText(r.Bytes), rows)
	if r.Unfixed > 0 {
		return &exitError{4}
	}
	return nil
}

// checked checks a table at the version that is wanted; the newest also where it cannot be opened.
func (c *cli) checked(ctx context.Context, name string, a at, o *delta.CheckOptions) (*delta.CheckReport, error) {
	if a.version >= 0 || a.asOf != "" {
		snap, err := c.snapshot(ctx, name, a)
		if err != nil {
			return nil, err
		}
		o.Snapshot = snap
		return snap.Table().Check(ctx, o)
	}
	st, err := c.tableStore(ctx, name)
	if err != nil {
		return nil, err
	}
	return delta.Check(ctx, st, openOptions(), o)
}

func (c *cli) tableCompat() *cobra.Command {
	var a at
	var output string
	cmd := &cobra.Command{
		Use:   "compat TABLE",
		Short: "Which engines can read and write a table, and why not",
		Long: `Tell which engines can read and write a table as it is, and which of its features are in the way of the others. It goes by
the table's protocol, and by what engines are known to stumble over besides; "unknown" is what neither their
documents nor a test say. -o json has the sources. Of the newest version it tells this also where freshet cannot read
the table itself.`,
		Example: `  freshet table compat ./lake/orders
  freshet table compat bronze.orders -o json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			engines, err := c.engines(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			var records []record
			for _, s := range engines {
				records = append(records, record{{name: "engine", value: s.Engine}, {name: "version", value: s.Version},
					{name: "read", value: string(s.Read)}, {name: "write", value: string(s.Write)},
					{name: "why", value: orEmpty(s.Reasons), text: orDash(strings.Join(s.Reasons, "; "))},
					{name: "source", value: s.Source, wide: true}})
			}
			return c.list(output, records)
		},
	}
	a.add(cmd)
	c.outputFlag(cmd, &output)
	return cmd
}

// engines are those that can use the table, and those that cannot.
func (c *cli) engines(ctx context.Context, name string, a at) ([]delta.EngineSupport, error) {
	if a.version >= 0 || a.asOf != "" {
		snap, err := c.snapshot(ctx, name, a)
		if err != nil {
			return nil, err
		}
		return snap.Compatibility(), nil
	}
	st, err := c.tableStore(ctx, name)
	if err != nil {
		return nil, err
	}
	engines, err := delta.Compatibility(ctx, st, nil)
	return engines, tableError(name, err)
}
