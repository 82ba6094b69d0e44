package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/postgres"
)

func (c *cli) pipelineDelete() *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "delete PIPELINE", Aliases: []string{"rm", "destroy"},
		Short: "Drop what a pipeline has on its PostgreSQL server",
		Long: `Drop the replication slot and the publication of a pipeline that is given up: as long as the slot is there, the server
keeps its log for it, until its disk is full. First end the pipeline, wherever it runs.

Only what is the pipeline's own is dropped: a publication that it made, and a slot from which its tables were filled. Of what
else has these names the SQL is printed, and nothing done. The Delta tables stay, and so does the file. It cannot be undone:
when the pipeline is run again, its tables have a gap (FRE-2101), and are to be loaded anew.`,
		Example: `  freshet pipeline delete bronze.shop --dry-run
  freshet pipeline delete pipelines/shop.yaml --yes`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			r, err := p.Remains(cmd.Context())
			if err != nil {
				return err
			}
			s := c.style(c.err)
			for _, f := range r.Others {
				printFinding(c.err, s, postgres.Finding{Severity: f.Severity, Object: f.Object, Message: f.Message + "; it stays", Fix: f.Fix})
			}
			what := remainsText(r)
			if what == "" {
				c.say("✓ %s has nothing of its own on the server", p.FullName())
				return nil
			}
			if dryRun {
				c.say("%s: %s would be dropped", p.FullName(), what)
				return nil
			}
			if err := c.confirm(fmt.Sprintf("%s: %s will be dropped, for good; the Delta tables stay as they are.", p.FullName(), what),
				yes); err != nil {
				return err
			}
			if err := r.Drop(cmd.Context()); err != nil {
				return err
			}
			c.say("✓ %s: dropped %s", p.FullName(), what)
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be dropped")
	return cmd
}

// remainsText names what is the pipeline's own; "": nothing is.
func remainsText(r *postgres.Remains) string {
	var parts []string
	if r.Slot != "" {
		parts = append(parts, fmt.Sprintf("the slot %s, for which the server keeps %s", r.Slot, bytesText(r.Kept)))
	}
	if r.Publication != "" {
		parts = append(parts, "the publication "+r.Publication)
	}
	return strings.Join(parts, ", and ")
}
