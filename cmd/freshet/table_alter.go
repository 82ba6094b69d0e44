package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// alterOptions are the flags of commands that change what a table is.
type alterOptions struct {
	upgrade bool
	reason  string
	dryRun  bool
}

func (o *alterOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.upgrade, "upgrade", false, "give the table the features that this needs; readers and writers that do not "+
		"know them can then no longer use it")
	f.StringVar(&o.reason, "reason", "", "why; noted in the table's history")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, and write nothing")
}

// alter changes what a table is, and says at which version it is then.
func (c *cli) alter(ctx context.Context, name string, o *alterOptions,
	change func(*delta.Table, *delta.AlterOptions) (delta.CommitResult, error)) error {
	t, err := c.openToWrite(ctx, name, o.dryRun)
	if err != nil {
		return err
	}
	before, err := t.Snapshot(ctx)
	if err != nil {
		return tableError(name, err)
	}
	done, err := change(t, &delta.AlterOptions{Upgrade: o.upgrade, UserMetadata: o.reason})
	switch {
	case err != nil:
		return alterError(name, err)
	case done.Version <= before.Version():
		c.say("✓ %s: nothing to do, version %d stays", name, before.Version())
	case o.dryRun:
		c.say("✓ %s would be at version %d", name, done.Version)
	default:
		c.say("✓ %s is at version %d", name, done.Version)
	}
	return nil
}

func alterError(name string, err error) error {
	told := rowsError(name, err)
	var e *freshet.Error
	if errors.As(told, &e) && e.Fix == "" && strings.Contains(e.Msg, "allow the upgrade") {
		e.Fix = "--upgrade allows it"
	}
	return told
}

// alterCommand is a command whose arguments after TABLE say what becomes of the table.
func (c *cli) alterCommand(cmd *cobra.Command, least, most int, wanted string,
	change func(ctx context.Context, args []string) (alteration, error)) *cobra.Command {
	var o alterOptions
	cmd.Args = args(least, most, wanted)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		do, err := change(cmd.Context(), args[1:])
		if err != nil {
			return err
		}
		return c.alter(cmd.Context(), args[0], &o, do)
	}
	o.add(cmd)
	return cmd
}

// alteration changes what a table is.
type alteration = func(*delta.Table, *delta.AlterOptions) (delta.CommitResult, error)

func (c *cli) propertySet() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "set TABLE NAME=VALUE…",
		Short: "Set properties of a table",
		Long: `Set properties of a table in one commit. delta.feature.NAME=supported gives the table a feature of the protocol, and
delta.columnMapping.mode=name begins to map columns, so that they can be renamed and dropped.`,
		Example: `  freshet table property set ./lake/orders delta.enableChangeDataFeed=true --upgrade
  freshet table property set ./lake/orders 'delta.logRetentionDuration=interval 7 days' owner=sales`,
	}, 2, -1, "TABLE and at least one NAME=VALUE", func(ctx context.Context, args []string) (alteration, error) {
		properties, err := propertyFlags(args)
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.SetProperties(ctx, properties, o)
		}, err
	})
}

func (c *cli) propertyUnset() *cobra.Command {
	var ifExists bool
	cmd := c.alterCommand(&cobra.Command{
		Use:   "unset TABLE NAME…",
		Short: "Take properties of a table away",
		Long:  "Take properties of a table away, so that their defaults hold again.",
		Example: `  freshet table property unset ./lake/orders owner
  freshet table property unset ./lake/orders delta.checkpointInterval --if-exists`,
	}, 2, -1, "TABLE and at least one NAME", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.UnsetProperties(ctx, args, ifExists, o)
		}, nil
	})
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "pass over properties that are not set")
	return cmd
}

func (c *cli) constraintAdd() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "add TABLE NAME EXPRESSION",
		Short: "Demand something of every row",
		Long: `Add a CHECK constraint, an expression in Spark's SQL that must be true of every row from now on. The rows that are there
are checked first: one that breaks it fails the command.`,
		Example: `  freshet table constraint add ./lake/orders positive 'price > 0' --upgrade
  freshet table constraint add ./lake/orders known "state IN ('new', 'paid')" --dry-run`,
	}, 3, 3, "TABLE, NAME and EXPRESSION", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.AddConstraint(ctx, args[0], args[1], o)
		}, nil
	})
}

func (c *cli) constraintDrop() *cobra.Command {
	var ifExists bool
	cmd := c.alterCommand(&cobra.Command{
		Use:   "drop TABLE NAME",
		Short: "Demand it no longer",
		Long:  "Take a CHECK constraint away.",
		Example: `  freshet table constraint drop ./lake/orders positive
  freshet table constraint drop ./lake/orders positive --if-exists --reason 'refunds are negative'`,
	}, 2, 2, "TABLE and NAME", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.DropConstraint(ctx, args[0], ifExists, o)
		}, nil
	})
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none of this name")
	return cmd
}

func (c *cli) columnAdd() *cobra.Command {
	var parent, after string
	var first bool
	cmd := c.alterCommand(&cobra.Command{
		Use:   "add TABLE COLUMNS",
		Short: "Add columns",
		Long: `Add columns, given as in table create: NAME TYPE, then perhaps COMMENT 'TEXT'. The rows that are there have null in
them; no file is written anew. --in adds fields to a struct.`,
		Example: `  freshet table column add ./lake/orders "note STRING COMMENT 'of the customer', paid_at TIMESTAMP"
  freshet table column add ./lake/orders 'zip STRING' --in address --after city`,
	}, 2, 2, "TABLE and COLUMNS", func(ctx context.Context, args []string) (alteration, error) {
		fields, err := columnDefinitions("COLUMNS", args[0])
		columns := make([]delta.NewColumn, len(fields))
		for i, f := range fields {
			columns[i] = delta.NewColumn{Parent: parent, Field: f, After: after, First: first && i == 0}
			if i > 0 && (first || after != "") {
				columns[i].After = fields[i-1].Name
			}
		}
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.AddColumns(ctx, columns, o)
		}, err
	})
	cmd.Flags().StringVar(&parent, "in", "", "the struct that gets them as fields, by its path")
	cmd.Flags().StringVar(&after, "after", "", "the column that they come after (default: the last)")
	cmd.Flags().BoolVar(&first, "first", false, "they come before all others")
	cmd.MarkFlagsMutuallyExclusive("after", "first")
	return cmd
}

func (c *cli) columnRename() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "rename TABLE COLUMN NAME",
		Short: "Give a column another name",
		Long: `Give a column, or a field of a struct by its path, another name. Files stay as they are, so that the table must map its
columns: table property set TABLE delta.columnMapping.mode=name --upgrade.`,
		Example: `  freshet table column rename ./lake/orders prize price
  freshet table column rename ./lake/orders address.zip postcode`,
	}, 3, 3, "TABLE, COLUMN and its new NAME", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.RenameColumn(ctx, args[0], args[1], o)
		}, nil
	})
}

func (c *cli) columnDrop() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "drop TABLE COLUMN…",
		Short: "Take columns away",
		Long: `Take columns, or fields of structs by their paths, away. Files stay as they are, so that the table must map its
columns: table property set TABLE delta.columnMapping.mode=name --upgrade. The values stay in the files until these are
written anew.`,
		Example: `  freshet table column drop ./lake/orders note
  freshet table column drop ./lake/orders note address.zip --dry-run`,
	}, 2, -1, "TABLE and at least one COLUMN", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.DropColumns(ctx, args, o)
		}, nil
	})
}

func (c *cli) columnWiden() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "widen TABLE COLUMN TYPE",
		Short: "Give a column a wider type",
		Long: `Give a column a type that holds all values of the old one: int to bigint, float to double, a decimal with more digits,
date to timestamp_ntz. Files stay as they are, so that the table must allow it: table property set TABLE
delta.enableTypeWidening=true --upgrade.`,
		Example: `  freshet table column widen ./lake/orders quantity BIGINT
  freshet table column widen ./lake/orders price 'DECIMAL(20,2)'`,
	}, 3, 3, "TABLE, COLUMN and TYPE", func(ctx context.Context, args []string) (alteration, error) {
		fields, err := columnDefinitions("TYPE", "type "+args[1])
		if err == nil && len(fields) != 1 {
			err = usageError(fmt.Sprintf("TYPE: found %q, wanted one type", args[1]), "")
		}
		if err != nil {
			return nil, err
		}
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.ChangeColumn(ctx, args[0], delta.ColumnChange{Type: fields[0].Type}, o)
		}, nil
	})
}
