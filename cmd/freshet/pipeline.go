package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) pipelineCommand() *cobra.Command {
	cmd := group("pipeline", "Pause pipelines, let them go on, and load their tables again",
		`Say what pipelines are to do. PIPELINE is a file, or the name of a pipeline of the project. What is said lies beside the
data, below _freshet/ in the folder of the pipeline's table, so that every process that runs the pipeline obeys, wherever
it is: within --control-every of "freshet run".`,
		c.pipelineList(), c.pipelineDescribe(), c.pipelinePause(), c.pipelineResume(), c.pipelineResync(),
		c.pipelineRenew(), c.pipelineDelete())
	cmd.Aliases = []string{"pipelines"}
	return cmd
}

// onePipeline is the pipeline that an argument means: a file, or one of the project by its name.
func (c *cli) onePipeline(arg string) (*spec.Pipeline, error) {
	all, err := c.load([]string{arg}, nil)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, usageError(fmt.Sprintf("%s: found %s, wanted one", arg, plural(len(all), "pipeline")), "name its file")
	}
	return all[0], nil
}

// sayer is who runs the command.
func sayer() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (c *cli) readControl(ctx context.Context, p *spec.Pipeline) (*lake.Control, error) {
	st, err := p.OpenControl(ctx)
	if err != nil {
		return nil, err
	}
	return lake.ReadControl(ctx, st, p.App, nil)
}

func (c *cli) pipelineList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list [PIPELINE|DIR…]", Aliases: []string{"ls"},
		Short: "Pipelines, their tables, and whether they are held back",
		Long: `List pipelines, or those of files or folders, without any those of the project: name, table, mode, and whether they are paused or
a table of theirs is being loaded again. Whether a process runs them it does not tell: ask the process's /readyz.`,
		Example: `  freshet pipeline list
  freshet pipeline list shop -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := c.load(args, nil)
			if err != nil {
				return err
			}
			var records []record
			for _, p := range all {
				said, err := c.readControl(cmd.Context(), p)
				if err != nil {
					return err
				}
				records = append(records, record{{name: "pipeline", value: p.FullName()}, {name: "table", value: p.TargetTable()},
					{name: "mode", value: modeOf(p)}, {name: "held", value: orEmpty(heldLines(said)),
						text: orDash(strings.Join(heldLines(said), "; "))}, {name: "file", value: p.File, text: shownPath(p.File)}})
			}
			return c.list(output, records)
		},
	}
	c.outputFlag(cmd, &output)
	return cmd
}

// heldLines say what people hold back, one line each.
func heldLines(said *lake.Control) (lines []string) {
	if said.Paused != nil {
		lines = append(lines, "paused "+said.Paused.String())
	}
	if said.Hole != nil {
		lines = append(lines, said.Hole.String())
	}
	for _, table := range slices.Sorted(maps.Keys(said.Tables)) {
		t := said.Tables[table]
		if t.Paused != nil {
			line := table + " paused " + t.Paused.String()
			if t.Paused.Park {
				line += " (its changes are parked)"
			}
			lines = append(lines, line)
		}
		if t.Slow != nil {
			lines = append(lines, fmt.Sprintf("%s is slow %s (its changes are parked)", table, t.Slow))
		}
		if t.Resync != nil {
			lines = append(lines, fmt.Sprintf("%s being loaded again by %s since %s", table, t.Resync.By,
				t.Resync.Since.UTC().Format(time.RFC3339)))
		}
	}
	return lines
}

func (c *cli) pipelineDescribe() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "describe PIPELINE", Aliases: []string{"show"},
		Short: "What a pipeline is, and what holds it back",
		Long: `Print what a pipeline reads and writes, the name under which it keeps progress, who holds it back, since when and why,
and what is parked of its tables; of a PostgreSQL source also how much log the server keeps for its slot, how fast that grows,
measured for a second, and how long it will go on; and of a pipeline with verify what the last comparisons have found.`,
		Example: `  freshet pipeline describe silver.accounts
  freshet pipeline describe pipelines/accounts.yaml -o json`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			said, err := c.readControl(cmd.Context(), p)
			if err != nil {
				return err
			}
			parked, err := parkedLines(cmd.Context(), p, said)
			if err != nil {
				return err
			}
			r := append(pipelineRecord(p, said), field{name: "parked", value: orEmpty(parked),
				text: orDash(strings.Join(parked, "\n"))})
			compared, err := comparedFields(cmd.Context(), p)
			if err != nil {
				return err
			}
			return c.describe(output, append(append(r, slotFields(cmd.Context(), p)...), compared...))
		},
	}
	c.outputFlag(cmd, &output)
	return cmd
}

// parkedLines say what waits for tables that are held back, or have not taken it up yet, one line each.
func parkedLines(ctx context.Context, p *spec.Pipeline, said *lake.Control) (lines []string, err error) {
	tables := append(p.Tables(), slices.Collect(maps.Keys(said.Tables))...)
	slices.Sort(tables)
	for _, table := range slices.Compact(tables) {
		w, err := p.Parked(ctx, table)
		if err != nil {
			return nil, err
		}
		if w.Rows == 0 && w.Over.IsZero() {
			continue
		}
		line := fmt.Sprintf("%s: %s, %s", shownPath(table), plural(w.Rows, "row"), bytesText(w.Bytes))
		if !w.Oldest.IsZero() {
			line += " since " + w.Oldest.UTC().Format(time.RFC3339)
		}
		if !w.Over.IsZero() {
			line += "; more than max_lag since " + w.Over.Format(time.RFC3339) + ": what came after must come from the source, " +
				"or be loaded again by `freshet pipeline resync`"
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func modeOf(p *spec.Pipeline) string {
	if p.Target.Delta.Mode == "" {
		return string(lake.Append)
	}
	return p.Target.Delta.Mode
}

func pipelineRecord(p *spec.Pipeline, said *lake.Control) record {
	var topics []string
	if k := p.Source.Kafka; k != nil {
		for _, t := range k.Topics {
			topics = append(topics, t.Value)
		}
		if pattern := k.Pattern.Value; pattern != "" {
			topics = append(topics, "/"+pattern+"/")
		}
	}
	reads := field{name: "topics", value: orEmpty(topics), text: strings.Join(topics, ", ")}
	if s := p.Source.Postgres; s != nil {
		reads = field{name: "tables", value: []string{}, text: "all of the publication"}
		if names := s.TableNames(); len(names) > 0 {
			reads = field{name: "tables", value: names, text: strings.Join(names, ", ")}
		}
	}
	return record{{name: "pipeline", value: p.FullName()}, {name: "file", value: p.File, text: shownPath(p.File)},
		{name: "app", value: p.App}, reads,
		{name: "table", value: p.TargetTable()}, {name: "mode", value: modeOf(p)},
		{name: "paused", value: said.Paused != nil},
		{name: "held", value: orEmpty(heldLines(said)), text: orDash(strings.Join(heldLines(said), "\n"))}}
}

func (c *cli) pipelinePause() *cobra.Command {
	var table, why, output string
	var park bool
	cmd := &cobra.Command{
		Use:   "pause PIPELINE",
		Short: "Have a pipeline, or one of its tables, stop reading",
		Long: `Have every process that runs the pipeline commit what it has read and stop reading, until "freshet pipeline resume". The
processes stay, and say that they are paused, by whom, since when and why. A run with --until-caught-up ends instead.

--table pauses one table; the others go on. A table with a topic of its own is not read: what it does not read stays in the
topic, whose retention is to be minded. With --park, and always of a table of a database, and of one with a change log or of
the change log, its changes are read and parked beside it, in TABLE_parked, up to max_lag; "resume" takes them up. So the
replication slot of a database goes on.

A pipeline of a database that is paused as a whole leaves its slot where it is: the server keeps its log meanwhile.`,
		Example: `  freshet pipeline pause silver.accounts --why 'migration of the lake'
  freshet pipeline pause pipelines/mirror.yaml --table bronze.orders`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pause := &lake.Pause{By: sayer(), Since: time.Now().UTC().Truncate(time.Second), Why: why}
			return c.changePause(cmd.Context(), args[0], table, output, park, func(was *lake.Pause) *lake.Pause {
				if was == nil {
					return pause
				}
				if why != "" { // who began it, and when, stays
					was.Why = why
				}
				return was
			})
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "only this table")
	cmd.Flags().BoolVar(&park, "park", false, "read the table's changes, and keep them beside it")
	cmd.Flags().StringVar(&why, "why", "", "shown to whoever wonders")
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) pipelineResume() *cobra.Command {
	var table, output string
	cmd := &cobra.Command{
		Use:   "resume PIPELINE",
		Short: "Let a paused pipeline go on",
		Long: `Let a pipeline, or one of its tables, go on where it stopped. Processes that wait go on by themselves. A table that is
paused for itself stays so until it is named with --table; its change log goes on with it if the same error has paused both.`,
		Example: `  freshet pipeline resume silver.accounts
  freshet pipeline resume pipelines/mirror.yaml --table bronze.orders`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changePause(cmd.Context(), args[0], table, output, false, func(*lake.Pause) *lake.Pause { return nil })
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "only this table")
	resultOutput(cmd, &output)
	return cmd
}

// changePause has change make something else of the pause of a pipeline, or of one of its tables, and tells what holds then.
func (c *cli) changePause(ctx context.Context, arg, table, output string, park bool, change func(was *lake.Pause) *lake.Pause) error {
	if err := checkOutput(output); err != nil {
		return err
	}
	p, err := c.onePipeline(arg)
	if err != nil {
		return err
	}
	topic, name := "", ""
	if table != "" {
		if name, err = p.KnownTable(tableArgument(table)); err != nil {
			return err
		}
		topic, _, _ = p.TopicOfTable(name)
	}
	park = name != "" && (park || p.SharesLanes())
	st, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	said, err := lake.ChangeControl(ctx, st, p.App, func(said *lake.Control) error {
		t, known := said.Tables[name]
		if topic == "" && !park && !known {
			said.Paused = change(said.Paused)
			return nil
		}
		now := change(t.Paused)
		if now == nil {
			p.Resumed(said, name)
			return nil
		}
		now.Park = now.Park || park
		t.Paused = now
		said.Tables[name] = t
		return nil
	})
	if err != nil {
		return err
	}
	if output != "" {
		return c.describe(output, pipelineRecord(p, said))
	}
	if lines := heldLines(said); len(lines) > 0 {
		c.say("%s: %s", p.FullName(), strings.Join(lines, "; "))
		return nil
	}
	c.say("✓ %s runs", p.FullName())
	return nil
}

func (c *cli) pipelineResync() *cobra.Command {
	var table, output string
	var o spec.ResyncOptions
	var cancel, yes bool
	var progress string
	cmd := &cobra.Command{
		Use:   "resync PIPELINE",
		Short: "Load a table again from the beginning, and swap it in whole",
		Long: `Load a pipeline's table again, in this process: from the beginning of its topics, or from the rows that its database has,
by a replication slot that is dropped at the end. Readers have the table as it is, until a whole copy takes its place in one
commit; older versions can be read until vacuum. Processes that run the pipeline hold the table back meanwhile, and go on from
where the copy is.

Killed, it goes on where it was when it is run again; --cancel gives up and deletes what was read.

A topic whose beginning retention has removed is an error: rows that only those records tell of would be missing. So is a
table of a database that holds more than the rows of now: changes (mode append), a history (scd2), rows that are deleted in
the source. --from-earliest-kept says that this is all right.`,
		Example: `  freshet pipeline resync silver.accounts --why 'a step was wrong'
  freshet pipeline resync pipelines/mirror.yaml --table bronze.orders --yes
  freshet pipeline resync silver.accounts --cancel`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("--progress", progress, "auto", "bar", "plain", "json", "off"); err != nil {
				return err
			}
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			if table == "" {
				table = p.TargetTable()
			} else {
				table = tableArgument(table)
			}
			if strings.Contains(table, "{") {
				return usageError("the pipeline writes several tables: "+table, "name one with --table")
			}
			r := c.newRunner(runFlags{progress: progress, shutdownTimeout: 30 * time.Second})
			defer r.close()
			if cancel {
				return r.builder.CancelResync(cmd.Context(), p, table)
			}
			c.say("all rows of %s will be read again, and replaced", shownPath(table))
			if err := c.confirm("Rows that others have put there go.", yes); err != nil {
				return err
			}
			o.By = sayer()
			return c.resync(cmd.Context(), r, p, table, &o, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&table, "table", "", "the table (default: the only one)")
	f.StringVar(&o.Why, "why", "", "noted in the table's history")
	f.BoolVar(&o.FromKept, "from-earliest-kept", false, "what the source tells no more may be missing")
	f.BoolVar(&cancel, "cancel", false, "give up, and delete what was read")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.StringVar(&progress, "progress", "auto", "auto, bar, plain, json or off")
	resultOutput(cmd, &output)
	return cmd
}

func (c *cli) resync(ctx context.Context, r *runner, p *spec.Pipeline, table string, o *spec.ResyncOptions, output string) error {
	stop := r.show()
	done, err := r.builder.Resync(ctx, p, table, o)
	stop()
	if err != nil {
		var e *freshet.Error
		if ctx.Err() != nil && !errors.As(err, &e) {
			c.say("ended before the table was whole: run it again to go on")
		}
		return tableError(table, err)
	}
	if output != "" {
		return c.describe(output, record{{name: "table", value: done.Table}, {name: "version", value: done.Version}})
	}
	c.say("✓ %s was loaded again; version %d", shownPath(done.Table), done.Version)
	return nil
}
