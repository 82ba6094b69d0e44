package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

func (c *cli) progressCommand() *cobra.Command {
	return group("progress", "Look after what a table has read",
		`Look after progress: the last offset that a table holds of each partition. It is kept in the table itself, so that
these commands need no broker.`,
		c.progressShow(), c.progressSet(), c.progressImport())
}

func (c *cli) progressShow() *cobra.Command {
	var app, output string
	cmd := &cobra.Command{
		Use:     "show TABLE",
		Aliases: []string{"list", "ls"},
		Short:   "The last offset that a table holds of each partition",
		Long: `List the last offset that a table holds of each partition, by app: the name under which a pipeline keeps its progress.
Progress of other programs is listed, too. Where the pipeline records cuts, the offset is the greater of the table's own and
that of the newest cut.`,
		Example: `  freshet progress show bronze.orders
  freshet progress show ./lake/orders --app orders.orders -o json`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := c.tableStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := lake.ReadProgress(cmd.Context(), st)
			if err != nil {
				return tableError(args[0], err)
			}
			if err := c.addCuts(cmd.Context(), st, all); err != nil {
				return tableError(args[0], err)
			}
			var records []record
			now := time.Now()
			for _, p := range all {
				if app != "" && p.App != app {
					continue
				}
				for _, l := range p.Lanes {
					records = append(records, laneRecord(p, l, now))
				}
			}
			return c.list(output, records)
		},
	}
	cmd.Flags().StringVar(&app, "app", "", "only this app")
	c.outputFlag(cmd, &output)
	return cmd
}

// addCuts raises progress to what the cuts of an app say, of whose tables nothing changed since.
func (c *cli) addCuts(ctx context.Context, st store.Store, all []lake.AppProgress) error {
	project, err := c.openProject("", true)
	if err != nil {
		return err
	}
	return lake.AddCuts(ctx, st, all, func(m lake.CutMarker) (store.Store, error) {
		return project.OpenTable(ctx, m.Location)
	})
}

func laneRecord(p lake.AppProgress, l lake.LaneProgress, now time.Time) record {
	r := record{
		{name: "app", value: p.App},
		{name: "topic", value: optional(l.Lane.Origin)},
		{name: "partition", value: optional(l.Lane.Name), right: true},
		{name: "offset", value: l.Seq, right: true},
		{name: "updated", value: nil},
		{name: "topic_id", value: optional(l.Lane.OriginID), wide: true},
		{name: "txn", value: l.AppID, wide: true},
		{name: "txn_offset", value: l.Txn, wide: true, right: true},
		{name: "cut", value: cutOf(l), wide: true, right: true},
		{name: "table_version", value: p.Version, wide: true},
	}
	if !l.Updated.IsZero() {
		r[4].value, r[4].text = l.Updated.UTC(), ago(now, l.Updated)
	}
	return r
}

// cutOf is the cut that tells of a lane's progress, nil where the table does.
func cutOf(l lake.LaneProgress) any {
	if l.Cut == 0 {
		return nil
	}
	return l.Cut
}

// tableStore opens the store of a table without looking whether there is one.
func (c *cli) tableStore(ctx context.Context, name string) (store.Store, error) {
	project, err := c.openProject("", true)
	if err != nil {
		return nil, err
	}
	return project.OpenTable(ctx, tableArgument(name))
}

// appOf is the app that is meant: the one that is named, or the only one that the table has.
func appOf(ctx context.Context, name string, st store.Store, app string) (string, error) {
	if app != "" {
		return app, nil
	}
	all, err := lake.ReadProgress(ctx, st)
	if err != nil {
		return "", tableError(name, err)
	}
	var apps []string
	for _, p := range all {
		if !p.Foreign {
			apps = append(apps, p.App)
		}
	}
	if len(apps) == 1 {
		return apps[0], nil
	}
	fix := "name it with --app; for a pipeline file it is namespace.pipeline unless the file says otherwise"
	if len(apps) > 1 {
		fix = "name one with --app: " + strings.Join(apps, ", ")
	}
	return "", usageError(fmt.Sprintf("%s: found progress of %s, wanted one", name, plural(len(apps), "app")),
		fix)
}

func (c *cli) progressSet() *cobra.Command {
	var app, newOrigin, reason string
	var several, yes bool
	cmd := &cobra.Command{
		Use:   "set TABLE TOPIC[PARTITION]=OFFSET…",
		Short: "Set the last offset that counts as read",
		Long: `Set the last offset that counts as read of partitions: the one after it is read next. -1 is the start of the partition.
The table's history shows it, with --reason.

Going on behind records that were not read skips them; going back behind records that the table holds brings them
twice. A pipeline that runs meanwhile notices, and goes on from there.

--new-origin accepts that a topic was deleted and made again: it is the new topic's id, which the error tells.
Partitions that are not set begin at their start then.`,
		Example: `  freshet progress set bronze.orders 'orders[3]=1042' --reason 'lost to retention on 31 January'
  freshet progress set bronze.orders 'orders[0]=-1' --new-origin 5B1NfWSy3CGQ8uYqKnkqPw --yes`,
		Args: args(2, -1, "TABLE and at least one TOPIC[PARTITION]=OFFSET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := parseLanes(args[1:], newOrigin)
			if err != nil {
				return err
			}
			st, err := c.tableStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			app, err := appOf(cmd.Context(), args[0], st, app)
			if err != nil {
				return err
			}
			if err := c.underCuts(cmd.Context(), args[0], st, app, set); err != nil {
				return err
			}
			for _, l := range args[1:] {
				c.say("set %s of app %s in %s", l, app, args[0])
			}
			if err := c.confirm("Records may be skipped, or come twice.", yes); err != nil {
				return err
			}
			version, err := lake.SetProgress(cmd.Context(), st, app, set, &lake.SetOptions{ManyOrigins: several,
				NewOrigin: newOrigin != "", Reason: reason, EngineInfo: engineInfo()})
			if err != nil {
				return tableError(args[0], err)
			}
			c.say("✓ %s is at version %d", args[0], version)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&app, "app", "", "whose progress (default: the only app that the table has)")
	f.StringVar(&newOrigin, "new-origin", "", "the id of a topic that was deleted and made again")
	f.BoolVar(&several, "several-topics", false, "the app reads several topics; for a table that has no "+
		"progress of it yet")
	f.StringVar(&reason, "reason", "", "why; noted in the table's history")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// underCuts refuses to set what the table itself has already while the newest cut says more, which would go on to hold.
func (c *cli) underCuts(ctx context.Context, name string, st store.Store, app string, set freshet.Progress) error {
	all, err := lake.ReadProgress(ctx, st)
	if err == nil {
		err = c.addCuts(ctx, st, all)
	}
	if err != nil {
		return tableError(name, err)
	}
	for _, p := range all {
		for _, has := range p.Lanes {
			for l, seq := range set {
				same := l.Name == has.Lane.Name && (l.Origin == has.Lane.Origin || has.Lane.Origin == "")
				if p.App == app && same && has.Txn == seq && has.Seq > seq {
					return usageError(fmt.Sprintf("%s is at %s itself, and cut %d says that it holds all up to %d: to set it "+
						"changes nothing", name, l.Position(seq), has.Cut, has.Seq),
						fmt.Sprintf("set less, and records come again from there, or more than %d", has.Seq))
				}
			}
		}
	}
	return nil
}

// parseLanes reads TOPIC[PARTITION]=OFFSET.
func parseLanes(args []string, originID string) (freshet.Progress, error) {
	set := freshet.Progress{}
	for _, arg := range args {
		lane, offset, _ := strings.Cut(arg, "=")
		topic, rest, _ := strings.Cut(lane, "[")
		partition, closed := strings.CutSuffix(rest, "]")
		seq, err := strconv.ParseInt(offset, 10, 64)
		number, e := strconv.ParseUint(partition, 10, 31)
		if e != nil || strconv.FormatUint(number, 10) != partition || !closed || topic == "" || err != nil ||
			seq < -1 || seq == math.MaxInt64 {
			return nil, usageError(fmt.Sprintf("found %q, wanted TOPIC[PARTITION]=OFFSET, such as 'orders[3]=1042'",
				arg), "")
		}
		set[freshet.Lane{Origin: topic, OriginID: originID, Name: partition}] = seq
	}
	return set, nil
}

func (c *cli) progressImport() *cobra.Command {
	var app, spark string
	var several bool
	cmd := &cobra.Command{
		Use:   "import TABLE --spark CHECKPOINT",
		Short: "Go on where a Spark streaming query stopped",
		Long: `Read the offsets of a Spark structured streaming query from its checkpoint folder, and record them in the table that it
wrote, so that Freshet goes on where the query is. Stop the query first.

Spark's offsets are the next to read, ours the last read. Its last batch counts if the table holds it, whether or not
Spark came to note that.

How progress is named depends on whether the pipeline reads one topic or several into the table. A query of one topic
that a pipeline of several (or of a pattern) is to take over needs --several-topics.`,
		Example: `  freshet progress import ./lake/orders --spark /checkpoints/orders --app bronze.orders
  freshet progress import s3://acme/orders --spark s3://acme/checkpoints/orders --app bronze.orders`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if spark == "" {
				return usageError("progress import: --spark is missing", "name the query's checkpointLocation")
			}
			if app == "" {
				return usageError("progress import: --app is missing",
					"name the app that will go on: for a pipeline file namespace.pipeline, unless the file says otherwise")
			}
			table, err := c.tableStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !strings.Contains(spark, "://") && !filepath.IsAbs(spark) {
				spark = "." + string(filepath.Separator) + spark // a folder, never namespace.table
			}
			checkpoint, err := c.tableStore(cmd.Context(), spark)
			if err != nil {
				return err
			}
			done, version, err := lake.ImportSpark(cmd.Context(), checkpoint, table, app,
				&lake.SetOptions{ManyOrigins: several, EngineInfo: engineInfo()})
			if err != nil {
				return tableError(args[0], err)
			}
			for _, l := range done.Lanes() {
				fmt.Fprintln(c.out, l.Position(done.Progress[l]))
			}
			c.say("✓ query %s after batch %d; %s is at version %d", done.QueryID, done.Batch, args[0], version)
			return nil
		},
	}
	cmd.Flags().StringVar(&app, "app", "", "the app that will go on from there")
	cmd.Flags().BoolVar(&several, "several-topics", false, "the app reads several topics, also if the query reads one")
	cmd.Flags().StringVar(&spark, "spark", "", "the query's checkpoint folder or URI")
	return cmd
}
