package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/spec"
)

func (c *cli) pipelineRenew() *cobra.Command {
	var yes bool
	var output string
	cmd := &cobra.Command{
		Use:   "renew PIPELINE",
		Short: "Make a lost replication slot anew, and have what was missed repaired",
		Long: `Let a pipeline whose replication slot was dropped or invalidated go on (FRE-2106, FRE-2107): the slot is made anew, and the tables count as
holding everything up to where it begins. What happened in between is in no log any more. So the next process that runs the
pipeline compares all tables with their source, row by row, while it streams on, and reads again only what differs, missed
deletes included; until that is done "pipeline describe" says so, and no cuts are recorded.

It is for mirrors whose tables "freshet verify" can compare. A slot that has all that is needed stays as it is. First end the
pipeline, wherever it runs. Killed, it is run again.`,
		Example: `  freshet pipeline renew bronze.shop
  freshet pipeline renew pipelines/shop.yaml --yes && freshet run pipelines/shop.yaml`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); output != "" && err != nil {
				return err
			}
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			if err := c.confirm(fmt.Sprintf("%s: its tables will go on behind a hole in the log, and be compared with their source.", p.FullName()),
				yes); err != nil {
				return err
			}
			b := spec.NewBuilder(&spec.BuildOptions{EngineInfo: engineInfo()})
			defer b.Close()
			r, err := b.Renew(cmd.Context(), p, sayer())
			if err != nil {
				return err
			}
			from, to := r.Lane.Position(r.From), r.Lane.Position(r.To)
			if output != "" {
				return c.describe(output, record{{name: "pipeline", value: p.FullName()}, {name: "from", value: from}, {name: "to", value: to},
					{name: "tables", value: orEmpty(r.Tables)}})
			}
			c.say("✓ %s goes on at %s; the log from %s on is lost: run the pipeline, which compares and repairs %s", p.FullName(), to, from,
				plural(int64(len(r.Tables)), "table"))
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	resultOutput(cmd, &output)
	return cmd
}
