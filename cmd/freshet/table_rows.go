package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// rowsOptions are the flags of commands that change rows.
type rowsOptions struct {
	method string
	reason string
	dryRun bool
	output string
}

func (o *rowsOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.method, "method", "auto", "how rows leave a file: vectors marks them in a deletion vector, rewrite "+
		"writes the file anew, auto does what the table's properties say")
	f.StringVar(&o.reason, "reason", "", "why; noted in the table's history")
	f.BoolVar(&o.dryRun, "dry-run", false, "find what would change, and write nothing")
	resultOutput(cmd, &o.output)
}

func (o *rowsOptions) validate() error {
	return errors.Join(oneOf("--method", o.method, "auto", "vectors", "rewrite"), checkOutput(o.output))
}

// changeRows runs a command that changes rows of a table, shows how far it is and prints what it did.
func (c *cli) changeRows(ctx context.Context, name string, o *rowsOptions,
	change func(*delta.Table, *delta.DMLOptions) (*delta.DMLResult, error)) error {
	if err := o.validate(); err != nil {
		return err
	}
	t, err := c.openToWrite(ctx, name, o.dryRun)
	if err != nil {
		return err
	}
	meter, clear := c.stepMeter()
	opts := &delta.DMLOptions{UserMetadata: o.reason, Progress: meter}
	if o.method != "auto" {
		rewrite := o.method == "rewrite"
		opts.CopyOnWrite = &rewrite
	}
	done, err := change(t, opts)
	clear()
	if err != nil {
		return changeError(name, err)
	}
	return c.printRowsDone(name, o, done)
}

// openToWrite opens a table whose commits name this program; in a dry run nothing reaches its store.
func (c *cli) openToWrite(ctx context.Context, name string, dryRun bool) (*delta.Table, error) {
	st, err := c.tableStore(ctx, name)
	if err != nil {
		return nil, err
	}
	if dryRun {
		st = newDryStore(st)
	}
	t, err := delta.Open(ctx, st, openOptions())
	return t, tableError(name, err)
}

func engineInfo() string { return delta.DefaultEngineInfo + "/" + buildVersion }

// stepMeter shows on a terminal how far an operation is. clear takes the line away.
func (c *cli) stepMeter() (meter func(delta.DMLProgress), clear func()) {
	show, clear := c.line()
	return func(p delta.DMLProgress) {
		show("%s: %s of %s", p.Step, number(int64(p.FilesDone)), plural(p.FilesTotal, "file"))
	}, clear
}

func (c *cli) printRowsDone(name string, o *rowsOptions, r *delta.DMLResult) error {
	if o.output != "" {
		return c.describe(o.output, record{
			{name: "version", value: r.Version}, {name: "committed", value: r.Committed && !o.dryRun},
			{name: "dry_run", value: o.dryRun},
			{name: "rows_inserted", value: r.Inserted}, {name: "rows_updated", value: r.Updated},
			{name: "rows_deleted", value: r.Deleted}, {name: "rows_copied", value: r.Copied},
			{name: "files_added", value: r.FilesAdded}, {name: "files_removed", value: r.FilesRemoved},
			{name: "files_marked", value: r.FilesMarked}, {name: "change_files", value: r.ChangeFiles},
			{name: "bytes_added", value: r.BytesAdded, text: bytesText(r.BytesAdded)},
			{name: "bytes_removed", value: r.BytesRemoved, text: bytesText(r.BytesRemoved)},
			{name: "retries", value: r.Retries},
		})
	}
	var parts []string
	for _, p := range []struct {
		n    int64
		verb string
	}{{r.Inserted, "inserted"}, {r.Updated, "updated"}, {r.Deleted, "deleted"}} {
		if p.n > 0 {
			parts = append(parts, plural(p.n, "row")+" "+p.verb)
		}
	}
	if len(parts) == 0 {
		parts = []string{"no rows counted"}
	}
	parts = append(parts, fmt.Sprintf("%s added, %d removed, %d marked", plural(r.FilesAdded, "file"), r.FilesRemoved,
		r.FilesMarked))
	switch what := strings.Join(parts, ", "); {
	case !r.Committed:
		c.say("✓ %s: nothing to do, version %d stays", name, r.Version)
	case o.dryRun:
		c.say("✓ %s would be at version %d: %s", name, r.Version, what)
	default:
		c.say("✓ %s is at version %d: %s", name, r.Version, what)
	}
	return nil
}

// condition is the condition of a command that must not take all rows by mistake.
func condition(where string, all bool, verb string) (*expr.Expr, error) {
	switch {
	case where == "" && !all:
		return nil, usageError("--where is missing", "--all "+verb+" every row")
	case where != "" && all:
		return nil, usageError("--where and --all exclude each other", "keep one of them")
	case all:
		return nil, nil
	}
	return parseExpr("--where", where)
}

// parseExpr reads an expression that a flag holds.
func parseExpr(flag, text string) (*expr.Expr, error) {
	e, err := expr.Parse(text)
	var fault *expr.Error
	if errors.As(err, &fault) {
		return nil, &freshet.Error{Code: exprCode(fault), Class: freshet.ClassInput, Place: flag, Msg: fault.Error()}
	}
	return e, err
}

func (c *cli) tableDelete() *cobra.Command {
	var o rowsOptions
	var where string
	var all bool
	cmd := &cobra.Command{
		Use:   "delete TABLE --where CONDITION",
		Short: "Delete rows of a table",
		Long: `Delete the rows for which a SQL condition is true, in one commit. Rows for which it is null stay.

Where the table has delta.enableDeletionVectors = true, rows are marked as deleted and files stay as they are; else the
files are written anew without them. The rows stay in older versions until those are vacuumed.

When another writer changes the same rows meanwhile, the command begins again on the newest version.`,
		Example: `  freshet table delete ./lake/orders --where "state = 'cancelled' AND day < DATE '2025-01-01'"
  freshet table delete ./lake/orders --where "customer_id = 4711" --dry-run
  freshet table delete s3://acme/lake/staging --all -o json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := condition(where, all, "deletes")
			if err != nil {
				return err
			}
			return c.changeRows(cmd.Context(), args[0], &o, func(t *delta.Table, opts *delta.DMLOptions) (*delta.DMLResult,
				error) {
				return t.Delete(cmd.Context(), e, opts)
			})
		},
	}
	cmd.Flags().StringVar(&where, "where", "", "a SQL condition; rows are deleted for which it is true")
	cmd.Flags().BoolVar(&all, "all", false, "delete every row")
	o.add(cmd)
	return cmd
}

func (c *cli) tableUpdate() *cobra.Command {
	var o rowsOptions
	var where string
	var sets []string
	var all bool
	cmd := &cobra.Command{
		Use:   "update TABLE --set COLUMN=EXPRESSION --where CONDITION",
		Short: "Give columns of rows new values",
		Long: `Give columns of the rows for which a SQL condition is true new values, in one commit. DEFAULT stands for what the
column has where an insert leaves it out.

All values are computed from the row as it was. A field within a struct is named by its path (address.city). Generated
columns follow. What the table demands of its rows is checked; one that does not fit fails the command.`,
		Example: `  freshet table update ./lake/orders --set "state = 'paid'" --where "id IN (17, 18)"
  freshet table update ./lake/orders --set "price = price * 2" --set "note = NULL" --where "currency = 'XAU'"
  freshet table update ./lake/orders --set "day = CAST(ts AS DATE)" --all --dry-run`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(sets) == 0 {
				return usageError("--set is missing", "name a column and its new value: --set \"state = 'paid'\"")
			}
			var set []delta.Assignment
			for _, text := range sets {
				more, err := assignments("--set", text)
				if err != nil {
					return err
				}
				set = append(set, more...)
			}
			e, err := condition(where, all, "updates")
			if err != nil {
				return err
			}
			return c.changeRows(cmd.Context(), args[0], &o, func(t *delta.Table, opts *delta.DMLOptions) (*delta.DMLResult,
				error) {
				if err := assignable(cmd.Context(), t, set); err != nil {
					return nil, err
				}
				return t.Update(cmd.Context(), set, e, opts)
			})
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "COLUMN = EXPRESSION, several with commas between; may be repeated")
	cmd.Flags().StringVar(&where, "where", "", "a SQL condition; rows are updated for which it is true")
	cmd.Flags().BoolVar(&all, "all", false, "update every row")
	o.add(cmd)
	return cmd
}

// assignable is an error that names the first assigned column that the table does not have.
func assignable(ctx context.Context, t *delta.Table, set []delta.Assignment) error {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, a := range set {
		if strings.Contains(a.Column, "`") {
			continue
		}
		column, _, _ := strings.Cut(a.Column, ".")
		if err := knownColumns("--set", snap.Schema(), []string{column}); err != nil {
			return err
		}
	}
	return nil
}

// assignments reads `a = 1, b.c = upper(d)`.
func assignments(flag, text string) ([]delta.Assignment, error) {
	var all []delta.Assignment
	for _, part := range splitSQL(text, ',') {
		sides := splitSQL(part, '=')
		if len(sides) < 2 || strings.TrimSpace(sides[0]) == "" {
			return nil, usageError(fmt.Sprintf("%s: found %q, wanted COLUMN = EXPRESSION", flag, strings.TrimSpace(part)), "")
		}
		a := delta.Assignment{Column: strings.TrimSpace(sides[0])}
		value := strings.TrimSpace(part[len(sides[0])+1:])
		if a.Default = strings.EqualFold(value, "default"); !a.Default {
			var err error
			if a.Value, err = parseExpr(flag, value); err != nil {
				return nil, err
			}
		}
		all = append(all, a)
	}
	return all, nil
}
