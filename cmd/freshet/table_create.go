package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// createOptions are the flags of table create.
type createOptions struct {
	schema      string
	partitionBy []string
	clusterBy   []string
	properties  []string
	comment     string
	name        string
	ifNotExists bool
	dryRun      bool
}

func (c *cli) tableCreate() *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create TABLE --schema COLUMNS",
		Short: "Make an empty table",
		Long: `Make an empty table, with the lowest protocol that its columns and properties need, so that as many engines as possible
can read it.

--schema takes columns as CREATE TABLE has them, with commas between: NAME TYPE, then perhaps NOT NULL, DEFAULT
EXPRESSION, GENERATED ALWAYS AS (EXPRESSION), GENERATED ALWAYS AS IDENTITY (START WITH 1 INCREMENT BY 1), and COMMENT
'TEXT'. A default that holds a bare NOT NULL or COMMENT goes between parentheses. Types are boolean, tinyint, smallint,
int, bigint, float, double, decimal(p,s), string, char(n), varchar(n), binary, date, timestamp, timestamp_ntz, array<…>,
map<string,…> and struct<name:type,…>. It also takes a schema in Spark's JSON, as table schema -o delta prints it, and @FILE with either.

--partition-by divides the table into folders, which suits columns of few values that queries name (day, country).
--cluster-by is for the others: table optimize then brings rows that are close in these columns into the same files, and
columns can be changed later without a rewrite of the table (table cluster). A table has one or the other.

Clustering, defaults, generated and identity columns and CHECK constraints bring table features with them, which not
every engine can write.`,
		Example: `  freshet table create ./lake/orders --schema 'id BIGINT NOT NULL, day DATE, price DECIMAL(18,2)' --partition-by day
  freshet table create s3://acme/lake/orders --schema @orders.ddl --property delta.enableDeletionVectors=true \
      --property delta.enableChangeDataFeed=true --comment 'orders of the shop' --if-not-exists
  freshet table create ./lake/events --schema 'at TIMESTAMP, customer BIGINT, kind STRING' --cluster-by customer,at
  freshet table schema ./lake/orders -o delta > orders.json && freshet table create ./lake/copy --schema @orders.json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.create(cmd, args[0], &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.schema, "schema", "", "the columns: 'id BIGINT NOT NULL, note STRING', a schema in JSON, or @FILE")
	f.StringSliceVar(&o.partitionBy, "partition-by", nil, "the columns that divide the table into folders")
	f.StringSliceVar(&o.clusterBy, "cluster-by", nil, "the columns that table optimize lays rows out by, at most 4")
	f.StringArrayVar(&o.properties, "property", nil, "NAME=VALUE: a table property; may be repeated")
	f.StringVar(&o.comment, "comment", "", "what the table is")
	f.StringVar(&o.name, "name", "", "a name that the table's metadata keeps")
	f.BoolVar(&o.ifNotExists, "if-not-exists", false, "leave a table alone that is there already, and succeed")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, and write nothing")
	return cmd
}

func (c *cli) create(cmd *cobra.Command, name string, o *createOptions) error {
	if o.schema == "" {
		return usageError("--schema is missing", "name the columns: --schema 'id BIGINT NOT NULL, note STRING'")
	}
	schema, err := schemaArgument("--schema", o.schema)
	if err != nil {
		return err
	}
	properties, err := propertyFlags(o.properties)
	if err != nil {
		return err
	}
	if err := knownColumns("--partition-by", schema, o.partitionBy); err != nil {
		return err
	}
	if err := o.checkClustering(schema); err != nil {
		return err
	}
	st, err := c.tableStore(cmd.Context(), name)
	if err != nil {
		return err
	}
	if o.dryRun {
		st = newDryStore(st)
	}
	_, err = delta.Create(cmd.Context(), st, &delta.CreateOptions{Schema: schema, PartitionBy: o.partitionBy,
		ClusterBy: o.clusterBy, Properties: properties, Name: o.name, Description: o.comment, EngineInfo: engineInfo()})
	switch {
	case errors.Is(err, delta.ErrTableExists) && o.ifNotExists:
		c.say("✓ %s is there already", name)
		return nil
	case errors.Is(err, delta.ErrTableExists):
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: name,
			Msg: "there is a Delta table here already", Fix: "--if-not-exists leaves it alone; or name another folder"}
	case err != nil:
		return askedError(name, err)
	case o.dryRun:
		c.say("✓ %s would be made with %s", name, plural(len(schema.Fields), "column"))
		return nil
	}
	c.say("✓ %s is at version 0, with %s", name, plural(len(schema.Fields), "column"))
	return nil
}

// checkClustering finds what is wrong with --cluster-by before anything is made.
func (o *createOptions) checkClustering(schema *delta.Schema) error {
	if len(o.clusterBy) > 0 && len(o.partitionBy) > 0 {
		return usageError("--cluster-by and --partition-by exclude each other", "keep one of them")
	}
	for _, path := range o.clusterBy {
		column, _, _ := strings.Cut(path, ".")
		if err := knownColumns("--cluster-by", schema, []string{column}); err != nil {
			return err
		}
	}
	return nil
}

// propertyFlags reads NAME=VALUE.
func propertyFlags(flags []string) (map[string]string, error) {
	properties := map[string]string{}
	for _, p := range flags {
		name, value, ok := strings.Cut(p, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usageError(fmt.Sprintf("property: found %q, wanted NAME=VALUE", p), "")
		}
		properties[name] = strings.TrimSpace(value)
	}
	return properties, nil
}
