package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) tableCommand() *cobra.Command {
	cmd := group("table", "Look into Delta tables, and change them",
		`Look into Delta tables, whoever wrote them, and change them. TABLE is a folder (./lake/orders), a URI (s3://bucket/orders) or
namespace.table below the lake of the project.`,
		c.tableDescribe(), c.tableSchema(), c.tableHistory(), c.tableFiles(), c.tableRead(), c.tableChanges(),
		c.tableStats(), c.tableDiff(), c.tableProperty(), c.tableConstraint(), c.tableColumn(), c.tableFeature(),
		c.tableCluster(), c.tableCreate(), c.tableDelete(), c.tableUpdate(), c.tableMerge(), c.tableIndex())
	cmd.AddCommand(c.careCommands()...)
	cmd.Aliases = []string{"tables"}
	return cmd
}

// at says which version of a table is meant.
type at struct {
	version int64
	asOf    string
}

func (a *at) add(cmd *cobra.Command) { a.addAs(cmd, "the version (default: the newest)") }

func (a *at) addAs(cmd *cobra.Command, usage string) {
	versionFlag(cmd, &a.version, "version", usage)
	cmd.Flags().StringVar(&a.asOf, "as-of", "", "the version of a time, such as 2026-01-31T12:00:00Z")
}

// version is the value of a flag that names a version; -1 until it is given.
type version int64

func versionFlag(cmd *cobra.Command, into *int64, name, usage string) {
	*into = -1
	cmd.Flags().Var((*version)(into), name, usage)
}

// Set takes the flag's text.
func (v *version) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return errors.New("wanted a number of 0 or more")
	}
	*v = version(n)
	return nil
}

// String is the version; "" when none is given.
func (v *version) String() string {
	if *v < 0 {
		return ""
	}
	return strconv.FormatInt(int64(*v), 10)
}

// Type is what the help calls it.
func (*version) Type() string { return "int" }

func (c *cli) openTable(ctx context.Context, name string) (*delta.Table, error) {
	st, err := c.tableStore(ctx, name)
	if err != nil {
		return nil, err
	}
	t, err := delta.Open(ctx, st, openOptions())
	return t, tableError(name, err)
}

func openOptions() *delta.OpenOptions {
	return &delta.OpenOptions{EngineInfo: engineInfo(), Outside: outside}
}

// snapshot opens a table at the version that is wanted.
func (c *cli) snapshot(ctx context.Context, name string, a at) (*delta.Snapshot, error) {
	if a.version >= 0 && a.asOf != "" {
		return nil, usageError("--version and --as-of exclude each other", "keep one of them")
	}
	if a.version >= 0 {
		st, err := c.tableStore(ctx, name)
		if err != nil {
			return nil, err
		}
		snap, err := delta.OpenAt(ctx, st, a.version, openOptions())
		return snap, tableError(name, err)
	}
	t, err := c.openTable(ctx, name)
	if err != nil {
		return nil, err
	}
	var snap *delta.Snapshot
	switch {
	case a.asOf != "":
		var when time.Time
		if when, err = spec.ParseTime(a.asOf); err != nil {
			return nil, usageError("--as-of: "+err.Error(), "")
		}
		snap, err = t.SnapshotAsOf(ctx, when)
	default:
		snap, err = t.Snapshot(ctx)
	}
	return snap, tableError(name, err)
}

func (c *cli) tableDescribe() *cobra.Command {
	var a at
	var output string
	cmd := &cobra.Command{
		Use:     "describe TABLE",
		Aliases: []string{"show"},
		Short:   "What a table is: version, columns, properties, progress",
		Long: `Print what a table is: where, its version and time, columns, partitioning, properties, what readers and writers must
understand, and the progress that applications keep in it; how its files stand, and what upkeep would do next, and why.
Upkeep is what pipelines do beside the stream, and freshet table optimize and vacuum do at once.`,
		Example: `  freshet table describe ./lake/orders
  freshet table describe bronze.orders --version 12 -o json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			snap, err := c.snapshot(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			r, err := describeRecord(cmd.Context(), snap)
			if err != nil {
				return tableError(args[0], err)
			}
			return c.describe(output, r)
		},
	}
	a.add(cmd)
	c.outputFlag(cmd, &output)
	return cmd
}

func describeRecord(ctx context.Context, snap *delta.Snapshot) (record, error) {
	when, err := snap.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	clustered, err := snap.ClusteringColumns()
	if err != nil {
		return nil, err
	}
	stands, err := lake.Survey(ctx, snap, time.Now(), snap.Property("delta.enableDeletionVectors") == "true", nil)
	if err != nil {
		return nil, err
	}
	meta, proto := snap.Metadata(), snap.Protocol()
	var columns, txns, properties []string
	for _, f := range snap.Schema().Fields {
		columns = append(columns, columnText(f))
	}
	for _, id := range slices.Sorted(maps.Keys(snap.Txns())) {
		txns = append(txns, fmt.Sprintf("%s = %d", id, snap.Txns()[id].Version))
	}
	for _, name := range slices.Sorted(maps.Keys(meta.Configuration)) {
		properties = append(properties, name+" = "+meta.Configuration[name])
	}
	progress := map[string]int64{}
	for id, t := range snap.Txns() {
		progress[id] = t.Version
	}
	needs := fmt.Sprintf("reader %d, writer %d", proto.MinReaderVersion, proto.MinWriterVersion)
	if features := slices.Concat(proto.ReaderFeatures, proto.WriterFeatures); len(features) > 0 {
		slices.Sort(features)
		needs += ": " + strings.Join(slices.Compact(features), ", ")
	}
	return append(record{
		{name: "location", value: snap.Table().Store().URL()},
		{name: "id", value: meta.ID},
		{name: "name", value: meta.Name},
		{name: "description", value: meta.Description},
		{name: "version", value: snap.Version()},
		{name: "timestamp", value: when.Format(time.RFC3339Nano)},
		{name: "checkpoint", value: snap.CheckpointVersion(), text: checkpointText(snap.CheckpointVersion())},
		{name: "protocol", value: needs},
		{name: "partition_by", value: orEmpty(snap.PartitionColumns()),
			text: orDash(strings.Join(snap.PartitionColumns(), ", "))},
		{name: "cluster_by", value: orEmpty(clustered), text: orDash(strings.Join(clustered, ", "))},
		{name: "columns", value: columns, text: strings.Join(columns, "\n")},
		{name: "properties", value: meta.Configuration, text: orDash(strings.Join(properties, "\n"))},
		{name: "progress", value: progress, text: orDash(strings.Join(txns, "\n"))},
	}, conditionFields(stands)...), nil
}

func checkpointText(version int64) string {
	if version < 0 {
		return "none yet"
	}
	return fmt.Sprint(version)
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// columnText is a column as SQL has it.
func columnText(f delta.Field) string {
	text := f.Name + " " + typeText(f)
	if !f.Nullable {
		text += " not null"
	}
	return text
}

func (c *cli) tableSchema() *cobra.Command {
	var a at
	var output string
	cmd := &cobra.Command{
		Use:   "schema TABLE",
		Short: "A table's columns",
		Long: "List a table's columns with their types. -o delta prints the schema as the table's log has it, " +
			"in Spark's JSON.",
		Example: `  freshet table schema ./lake/orders
  freshet table schema ./lake/orders -o delta`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			snap, err := c.snapshot(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			if output == "delta" {
				_, err := fmt.Fprintln(c.out, snap.Schema())
				return err
			}
			var records []record
			for _, f := range snap.Schema().Fields {
				records = append(records, record{{name: "name", value: f.Name}, {name: "type", value: typeText(f)},
					{name: "nullable", value: f.Nullable},
					{name: "partition", value: slices.Contains(snap.PartitionColumns(), f.Name)}})
			}
			return c.list(output, records)
		},
	}
	a.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, jsonl, yaml, csv, name or delta")
	return cmd
}

func (c *cli) tableHistory() *cobra.Command {
	var limit int
	var output string
	cmd := &cobra.Command{
		Use:   "history TABLE",
		Short: "A table's commits, the newest first",
		Long: `List a table's commits, the newest first, with what their writers said of them. In the other formats than table the
columns are those of DESCRIBE HISTORY.`,
		Example: `  freshet table history ./lake/orders -n 5
  freshet table history bronze.orders -o jsonl | jq .operationMetrics`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usageError(fmt.Sprintf("--limit: found %d, wanted 0 or more", limit), "")
			}
			t, err := c.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var records []record
			now := time.Now()
			for e, err := range t.History(cmd.Context(), limit) {
				if err != nil {
					return tableError(args[0], err)
				}
				records = append(records, historyRecord(e, now, output == "table"))
			}
			return c.list(output, records)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "how many, 0 for all that are left")
	c.outputFlag(cmd, &output)
	return cmd
}

func historyRecord(e delta.HistoryEntry, now time.Time, short bool) record {
	i := e.Info
	if !short {
		var readVersion any
		if i.ReadVersion != nil {
			readVersion = *i.ReadVersion
		}
		return record{{name: "version", value: e.Version}, {name: "timestamp", value: e.Timestamp},
			{name: "userId", value: optional(i.UserID)},
			{name: "userName", value: optional(i.UserName)}, {name: "operation", value: i.Operation},
			{name: "operationParameters", value: i.OperationParameters}, {name: "readVersion", value: readVersion},
			{name: "isolationLevel", value: optional(i.IsolationLevel)},
			{name: "isBlindAppend", value: i.IsBlindAppend},
			{name: "operationMetrics", value: i.OperationMetrics}, {name: "userMetadata",
				value: optional(i.UserMetadata)},
			{name: "engineInfo", value: optional(i.EngineInfo)}}
	}
	m := i.OperationMetrics
	return record{
		{name: "version", value: e.Version, right: true},
		{name: "when", value: ago(now, e.Timestamp)},
		{name: "operation", value: i.Operation},
		{name: "rows", value: rowsText(m), right: true},
		{name: "files", value: spaced(metric("+", m, "numFiles", "numAddedFiles", "numTargetFilesAdded"),
			metric("~", m, "numDeletionVectorsAdded", "numTargetDeletionVectorsAdded"),
			metric("−", m, "numRemovedFiles", "numTargetFilesRemoved", "numDeletedFiles")), right: true},
		{name: "size", value: metricBytes(m, "numOutputBytes", "numAddedBytes", "numTargetBytesAdded"), right: true},
		{name: "by", value: strings.TrimSpace(i.UserName + " " + i.EngineInfo)},
	}
}

// rowsText says how many rows a commit inserted, changed and deleted, as far as its writer told. Of what it wrote, rows that were
// there before and came along are none that were inserted.
func rowsText(m map[string]string) string {
	came := ""
	if _, told := m["numTargetRowsInserted"]; told {
		came = metric("+", m, "numTargetRowsInserted")
	} else {
		var wrote, copied int64
		_, _ = fmt.Sscan(m["numOutputRows"], &wrote) // 0 when it is not told
		_, _ = fmt.Sscan(m["numCopiedRows"], &copied)
		if wrote > copied {
			came = "+" + number(wrote-copied)
		}
	}
	return spaced(came, metric("~", m, "numUpdatedRows", "numTargetRowsUpdated"),
		metric("−", m, "numDeletedRows", "numTargetRowsDeleted"))
}

// spaced joins the texts that are not empty.
func spaced(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " ")
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// metric is the first of some metrics that is there and not zero, with a sign.
func metric(sign string, m map[string]string, names ...string) string {
	for _, name := range names {
		if v, ok := m[name]; ok && v != "0" {
			var n int64
			if _, err := fmt.Sscan(v, &n); err == nil {
				return sign + number(n)
			}
		}
	}
	return ""
}

func metricBytes(m map[string]string, names ...string) string {
	for _, name := range names {
		var n int64
		if _, err := fmt.Sscan(m[name], &n); err == nil && n > 0 {
			return bytesText(n)
		}
	}
	return ""
}

func (c *cli) tableFiles() *cobra.Command {
	var a at
	var output string
	cmd := &cobra.Command{
		Use:   "files TABLE",
		Short: "The data files of a table",
		Long:  "List the data files of a table at a version, with their partition values, sizes and statistics.",
		Example: `  freshet table files ./lake/orders
  freshet table files ./lake/orders -o name | wc -l`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			snap, err := c.snapshot(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			var records []record
			var size int64
			for f, err := range snap.Files(cmd.Context(), &delta.FilesOptions{Stats: true}) {
				if err != nil {
					return tableError(args[0], err)
				}
				size += f.Size
				records = append(records, fileRecord(f))
			}
			if err := c.list(output, records); err != nil || output != "table" {
				return err
			}
			_, err = fmt.Fprintf(c.out, "%s, %s\n", plural(len(records), "file"), bytesText(size))
			return err
		},
	}
	a.add(cmd)
	c.outputFlag(cmd, &output)
	return cmd
}

func fileRecord(f *delta.Add) record {
	values := f.PartitionValues
	if values == nil {
		values = map[string]*string{}
	}
	rows := statsRows(f.Stats)
	r := record{
		{name: "path", value: f.Path},
		{name: "partition", value: values, text: orDash(partitionText(f))},
		{name: "rows", value: rows, right: true},
		{name: "size", value: f.Size, text: bytesText(f.Size), right: true},
		{name: "modified", value: time.UnixMilli(f.ModificationTime).UTC(),
			text: time.UnixMilli(f.ModificationTime).UTC().Format(time.DateTime)},
		{name: "stats", value: rawJSON(f.Stats), wide: true},
		{name: "deletion_vector", value: f.DeletionVector != nil, wide: true},
	}
	if n, ok := rows.(int64); ok {
		r[2].text = number(n)
	}
	return r
}
