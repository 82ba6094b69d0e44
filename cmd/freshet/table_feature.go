package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

func (c *cli) tableFeature() *cobra.Command {
	return group("feature", "What the users of a table must understand",
		`Look at the table features of the protocol that readers and writers of a table must know, add to them and drop some.
Freshet adds none unless it is asked to.`,
		c.featureList(), c.featureAdd(), c.featureDrop())
}

func (c *cli) featureList() *cobra.Command {
	return c.listing("features", "What the users of a table must understand",
		`List the features of a table's protocol, and whether those who read it must know them or only those who write. Old
protocols imply features by their version.`,
		`  freshet table feature list ./lake/orders
  freshet table feature list bronze.orders -o name`, featureRecords)
}

func featureRecords(s *delta.Snapshot) (records []record) {
	p := s.Protocol()
	for _, name := range slices.Sorted(slices.Values(p.Features())) {
		needed := "writers"
		if slices.Contains(p.ReaderFeatures, name) || name == "columnMapping" && p.MinReaderVersion >= 2 {
			needed = "readers and writers"
		}
		given := "by name"
		if !slices.Contains(p.WriterFeatures, name) {
			given = "by version"
		}
		records = append(records, record{{name: "name", value: name}, {name: "known_to", value: needed},
			{name: "given", value: given}})
	}
	return records
}

func (c *cli) featureAdd() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "add TABLE FEATURE…",
		Short: "Give a table features",
		Long: `Give a table features of the protocol by name, with those that they need. Engines that do not know them can then no
longer use the table; table compat tells which can. Most features only do something together with a property
(table property set TABLE delta.enableDeletionVectors=true --upgrade sets both).`,
		Example: `  freshet table feature add ./lake/orders deletionVectors
  freshet table feature add ./lake/orders v2Checkpoint vacuumProtocolCheck --dry-run`,
	}, 2, -1, "TABLE and at least one FEATURE", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.UpgradeProtocol(ctx, args, o)
		}, nil
	})
}

func (c *cli) featureDrop() *cobra.Command {
	return c.alterCommand(&cobra.Command{
		Use:   "drop TABLE FEATURE",
		Short: "Take a feature away, so that more engines can use a table",
		Long: `Take a feature away that a table no longer uses, so that engines can use the table that do not know it. What uses it must
be gone before: the error says what does. Deletion vectors go by table optimize --max-deleted 0.0000001 once
delta.enableDeletionVectors is unset.

Two features are taken out of the files themselves, in the commit that drops them: of columnMapping all files are written
again, under the names that columns have now; of typeWidening those that have a column in an earlier type. Rows and their
ids stay as they are.

Older versions go on needing a feature of readers. A checkpoint is written, so that readers of newer ones never come upon
them, and the feature checkpointProtection keeps others from cleaning the log in part; --upgrade allows it.`,
		Example: `  freshet table feature drop ./lake/orders checkConstraints
  freshet table feature drop ./lake/orders columnMapping --upgrade
  freshet table property unset ./lake/orders delta.enableDeletionVectors &&
    freshet table optimize ./lake/orders --max-deleted 0.0000001 &&
    freshet table feature drop ./lake/orders deletionVectors --upgrade`,
	}, 2, 2, "TABLE and FEATURE", func(ctx context.Context, args []string) (alteration, error) {
		return func(t *delta.Table, o *delta.AlterOptions) (delta.CommitResult, error) {
			return t.DropFeature(ctx, args[0], o)
		}, nil
	})
}
