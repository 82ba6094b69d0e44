package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) quarantineReplay() *cobra.Command {
	var f choice
	var set ingestSet
	var table string
	cmd := &cobra.Command{
		Use:   "replay FILE|kafka://HOST:PORT/TOPIC TABLE [ID…]",
		Short: "Take records in quarantine again",
		Long: `Decode records in quarantine again, as the pipeline does now, run its steps, and append the rows to the table, each
record exactly once. The pipeline is that of FILE; for a table of ingest give its arguments and flags instead: the
broker is not asked. The pipeline may run meanwhile.
A database is asked which of its rows are still as quarantine has them: a mirror gets these, and what newer changes
have passed is left as it is. A change log gets each change.

All that are open are tried, or those of the IDs, a code or a time. What cannot be taken still stays in quarantine, and
makes exit code 4.`,
		Example: `  freshet quarantine replay pipelines/orders.yaml
  freshet quarantine replay pipelines/orders.yaml 'orders[3]@1042'
  freshet quarantine replay kafka://localhost:9092/orders ./lake/orders --code FRE-3004`,
		Args: args(1, -1, "FILE, or kafka://HOST:PORT/TOPIC and TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p *spec.Pipeline
			ids := args[1:]
			if strings.HasPrefix(args[0], "kafka://") {
				if len(args) < 2 {
					return usageError("quarantine replay: found kafka:// without a table, wanted TABLE behind it", "")
				}
				var err error
				if p, err = set.compose(c, cmd.Flags(), args[0], args[1]); err != nil {
					return err
				}
				ids = args[2:]
			} else {
				pipelines, err := c.load(args[:1], nil)
				if err != nil {
					return err
				}
				p = pipelines[0]
			}
			filter, err := f.filter(ids)
			if err != nil {
				return err
			}
			return c.replay(cmd.Context(), p, table, filter)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&table, "table", "", "only this table of a pipeline that has several")
	set.add(cmd.Flags())
	return cmd
}

// replay replays the tables of a pipeline one after another.
func (c *cli) replay(ctx context.Context, p *spec.Pipeline, only string, filter *lake.Filter) error {
	tables, err := replayTables(ctx, p, only)
	if err != nil {
		return err
	}
	if err := knownIDs(ctx, p, tables, filter.IDs); err != nil {
		return err
	}
	r := c.newRunner(runFlags{progress: "off", shutdownTimeout: time.Minute})
	defer r.close()
	still := 0
	for _, table := range tables {
		done, err := r.builder.Replay(ctx, p, table, filter)
		if err != nil {
			return tableError(table, err)
		}
		for _, e := range done.Still {
			fmt.Fprintf(c.out, "%s  %s %s\n", e.ID(), e.Code, e.Message)
		}
		still += len(done.Still)
		line := fmt.Sprintf("✓ %s: %s taken, %s", shownPath(table), plural(done.Entries, "record"),
			plural(done.Rows, "row"))
		if done.Passed > 0 {
			line += fmt.Sprintf("; of %s there were newer changes", plural(done.Passed, "record"))
		}
		if done.Version >= 0 {
			line += fmt.Sprintf("; version %d", done.Version)
		}
		c.say("%s", line)
	}
	if len(tables) == 0 {
		c.say("✓ nothing in quarantine is open")
	}
	if still > 0 {
		c.say("⚠ %s cannot be taken still", plural(still, "record"))
		return &exitError{4}
	}
	return nil
}

// knownIDs is an error that names the first ID of which the quarantine that the tables share has no record.
func knownIDs(ctx context.Context, p *spec.Pipeline, tables, ids []string) error {
	if len(ids) == 0 || len(tables) == 0 {
		return nil
	}
	st, err := p.Project.OpenTable(ctx, p.QuarantineTable(tables[0]))
	if err != nil {
		return err
	}
	q, err := lake.OpenQuarantine(ctx, st, engineInfo())
	if err != nil {
		return err
	}
	return entriesExist(ctx, q, ids)
}

func entriesExist(ctx context.Context, q *lake.Quarantine, ids []string) error {
	for _, id := range ids {
		if _, err := q.Get(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// replayTables are the tables of a pipeline: one, or those of which a quarantine that they share has records.
func replayTables(ctx context.Context, p *spec.Pipeline, only string) ([]string, error) {
	target := p.TargetTable()
	if only != "" {
		return []string{only}, nil
	}
	if is, many := p.Writes(target); is && !many {
		return []string{target}, nil
	}
	name, shared := p.SharedQuarantine()
	if !shared {
		return nil, usageError("quarantine replay: the pipeline writes several tables, and a quarantine for each",
			"name one with --table")
	}
	st, err := p.Project.OpenTable(ctx, name)
	if err != nil {
		return nil, err
	}
	q, err := lake.OpenQuarantine(ctx, st, engineInfo())
	if err != nil {
		return nil, err
	}
	var tables []string
	for e, err := range q.Entries(ctx, &lake.Filter{App: p.App}) {
		if err != nil {
			return nil, err
		}
		if !slices.Contains(tables, e.Table) {
			tables = append(tables, e.Table)
		}
	}
	slices.Sort(tables)
	return tables, nil
}
