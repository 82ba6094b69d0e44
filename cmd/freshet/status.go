package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/spec"
)

func (c *cli) statusCommand() *cobra.Command {
	var output string
	var watch, exitWith bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status [PIPELINE|DIR…]",
		Short: "How pipelines and their tables are: state, lag, freshness, rate, problems",
		Long: `Tell how pipelines are, or those of files or folders, without any those of the project: a line for each, and one for each of its
tables. Tables, what people have said, and of PostgreSQL the server are asked; it does not matter where the pipeline runs.

  state    of a pipeline: running (its slot is being read), stopped, paused, lost, new; of a Kafka pipeline only paused and new are
           known. Of a table: paused, parked, reloading, loading, new, or nothing where it follows its source
  lag      of the source's log that a table does not hold yet; of a pipeline, that of its last table
  fresh    when a table last moved on
  rate     rows that its commits changed in a second, over five minutes
  kept     log that the server keeps for the slot, by how much it grows, and how long that will go on

Exit code 0; with --exit-code 4 when there is a problem.`,
		Example: `  freshet status
  freshet status shop -w
  freshet status --exit-code -o jsonl | jq -c 'select(.problem)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			all, err := c.load(args, nil)
			if err != nil {
				return err
			}
			for {
				records, problems, err := statuses(cmd.Context(), all)
				if err != nil {
					return err
				}
				if watch && output == "table" && isTerminal(c.out) {
					_, _ = io.WriteString(c.out, "\x1b[H\x1b[2J")
				}
				if err := c.list(output, records); err != nil {
					return err
				}
				if !watch {
					if problems && exitWith {
						return &exitError{4}
					}
					return nil
				}
				select {
				case <-time.After(every):
				case <-cmd.Context().Done():
					return nil
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "look again and again, until it is ended")
	cmd.Flags().DurationVar(&every, "every", 5*time.Second, "with --watch: how often")
	cmd.Flags().BoolVar(&exitWith, "exit-code", false, "exit code 4 when there is a problem")
	c.outputFlag(cmd, &output)
	return cmd
}

// statuses looks at pipelines, one after the other, and reports whether there is a problem with one.
func statuses(ctx context.Context, all []*spec.Pipeline) (records []record, problems bool, err error) {
	for _, p := range all {
		s, err := p.Status(ctx, time.Second)
		if err != nil {
			return nil, false, err
		}
		now := time.Now()
		records = append(records, pipelineStatus(s, now))
		problems = problems || s.Problem != ""
		for _, t := range s.Tables {
			records = append(records, tableStatus(p, t, now))
			problems = problems || t.Problem != ""
		}
	}
	return records, problems, nil
}

// pipelineStatus is the line of a pipeline: of its tables the worst, and the sum of their rates.
func pipelineStatus(s *spec.Status, now time.Time) record {
	all := spec.TableStatus{Lag: -1, State: s.State, Problem: s.Problem}
	for _, t := range s.Tables {
		all.Lag = max(all.Lag, t.Lag)
		all.PerSecond += t.PerSecond
		if !t.Fresh.IsZero() && (all.Fresh.IsZero() || t.Fresh.Before(all.Fresh)) {
			all.Fresh = t.Fresh
		}
	}
	kept := field{name: "kept", value: slotValue(s.Slot), text: "–"}
	if s.Slot != nil && s.Slot.There && s.Slot.Lost == "" {
		kept.text = bytesText(s.Slot.Retained)
		if s.Slot.PerSecond > 0 {
			kept.text += " + " + bytesText(s.Slot.PerSecond) + "/s"
		}
		if s.Slot.Safe >= 0 {
			kept.text += ", " + bytesText(s.Slot.Safe) + " left"
		}
		if s.Slot.Left > 0 {
			kept.text += ", " + span(s.Slot.Left)
		}
	}
	return append(record{{name: "pipeline", value: s.Pipeline.FullName()}}, statusFields(all, kept, now)...)
}

// tableStatus is the line of a table.
func tableStatus(p *spec.Pipeline, t spec.TableStatus, now time.Time) record {
	return append(record{{name: "pipeline", value: p.FullName()}},
		statusFields(t, field{name: "kept", value: nil, text: "–"}, now)...)
}

// statusFields are those that lines of pipelines and tables share.
func statusFields(t spec.TableStatus, kept field, now time.Time) record {
	lag := field{name: "lag", value: optionalBytes(t.Lag), text: "–", right: true}
	if t.Lag >= 0 {
		lag.text = bytesText(t.Lag)
	}
	fresh := field{name: "fresh", value: nil, right: true}
	if !t.Fresh.IsZero() {
		fresh.value, fresh.text = t.Fresh.UTC(), ago(now, t.Fresh)
	}
	return record{{name: "table", value: optional(t.Table), text: orDash(shownPath(t.Table))},
		{name: "state", value: optional(t.State), text: orDash(t.State)}, lag, fresh,
		{name: "rate", value: t.PerSecond, text: fmt.Sprintf("%s/s", short(t.PerSecond)), right: true}, kept,
		{name: "problem", value: optional(t.Problem), text: orDash(t.Problem)}}
}
