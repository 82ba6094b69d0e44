package main

import (
	"context"

	"github.com/spf13/cobra"

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
	done, err := change(t, &delta.AlterOptions{Upgrade: o.upgrade, UserMetadata: o.reason, NoCheckpoint: o.dryRun})
	switch {
	case err != nil:
		return changeError(name, err)
	case done.Version <= before.Version():
		c.say("✓ %s: nothing to do, version %d stays", name, before.Version())
	case o.dryRun:
		c.say("✓ %s would be at version %d", name, done.Version)
	default:
		c.say("✓ %s is at version %d", name, done.Version)
	}
	return nil
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
delta.columnMapping.mode=name begins to map columns, so that they can be renamed and dropped, and
delta.enableRowTracking=true gives all rows ids, which stay with them when they are moved or updated.`,
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

func (c *cli) tableCluster() *cobra.Command {
	var none bool
	cmd := c.alterCommand(&cobra.Command{
		Use:   "cluster TABLE (COLUMN… | --none)",
		Short: "Choose the columns that optimize lays rows out by",
		Long: `Cluster a table by up to four columns: table optimize then brings rows that are close in them into the same files, so that
a query that names one of them reads few. The command itself rewrites nothing: what is there is laid out by the next table
optimize --full, what comes from now on by any. Fields of structs are named by their paths.

A table with partitions cannot be clustered. Clustering needs the features clustering and domainMetadata: engines that do
not know them can read the table, and not write it.`,
		Example: `  freshet table cluster ./lake/events customer at --upgrade && freshet table optimize ./lake/events --full
  freshet table cluster ./lake/events address.city
  freshet table cluster ./lake/events --none`,
	}, 1, 5, "TABLE and one to four columns, or --none", func(ctx context.Context, args []string) (alteration, error) {
		if none != (len(args) == 0) {
			return nil, usageError("wanted columns, or --none for a table that is not to be clustered", "")
		}
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.ClusterBy(ctx, args, o)
		}, nil
	})
	cmd.Flags().BoolVar(&none, "none", false, "cluster the table no longer; files stay as they lie")
	return cmd
}
