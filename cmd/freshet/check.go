package main

import (
	"fmt"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) checkCommand() *cobra.Command {
	var strict bool
	var output string
	cmd := &cobra.Command{
		Use:   "check [PIPELINE|DIR…]",
		Short: "Find what stands in the way of pipelines, in their files and on their servers",
		Long: `Check pipeline files as "freshet lint" does, and then ask the PostgreSQL servers that they read: settings, the rights of the
role, slot and publication, what the log will tell of each table, and which values do not arrive as they are. Nothing is
changed, there or anywhere. Each finding comes with the SQL that mends it, where there is such. Of Kafka nothing is asked:
that a topic is missing, "freshet run" says at once. Without a file: the files of the project.

  blocks  it will not work, or applications will be refused updates
  warns   it works, and something is lost or goes wrong one day
  notes   good to know: among them all types of which values are lost

Exit code 2 when a file is wrong; 3 when a server does not answer; 4 when something blocks, or warns with --strict.`,
		Example: `  freshet check
  freshet check pipelines/shop.yaml --strict
  freshet check -o json | jq -r '.result[] | select(.severity != "notes") | .fix'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("--output", output, "table", "json"); err != nil {
				return err
			}
			pipelines, err := c.load(args, nil)
			if err != nil {
				return err
			}
			checked := make([]checkedPipeline, len(pipelines))
			var all []postgres.Finding
			for i, p := range pipelines {
				checked[i].Pipeline = p
				if checked[i].found, err = p.CheckSource(cmd.Context()); err != nil {
					return err
				}
				all = append(all, checked[i].found...)
			}
			verdict := judge(all, strict)
			if output == "json" {
				err = c.checkJSON(checked, verdict == nil)
			} else {
				c.checkText(checked)
			}
			if err != nil {
				return err
			}
			return verdict
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "exit code 4 for warnings, too")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, or json: {command, ok, summary, result}")
	return cmd
}

// checkedPipeline is a pipeline with what was found on its server.
type checkedPipeline struct {
	*spec.Pipeline
	found []postgres.Finding
}

func (c *cli) checkText(checked []checkedPipeline) {
	s := c.style(c.out)
	for _, p := range checked {
		count := map[postgres.Severity]int{}
		for _, f := range p.found {
			count[f.Severity]++
		}
		mark := s.paint(green, "✓")
		switch {
		case count[postgres.Blocks] > 0:
			mark = s.paint(red, "✗")
		case count[postgres.Warns] > 0:
			mark = s.paint(yellow, "⚠")
		}
		fmt.Fprintf(c.out, "%s %s\n", mark, s.text(fmt.Sprintf("%s · %s · %d block · %d warn · %d to know", p.FullName(),
			shownPath(p.File), count[postgres.Blocks], count[postgres.Warns], count[postgres.Notes])))
		for _, f := range p.found {
			printFinding(c.out, s, f)
		}
	}
}

func (c *cli) checkJSON(checked []checkedPipeline, ok bool) error {
	type finding struct {
		Pipeline string            `json:"pipeline"`
		File     string            `json:"file"`
		Severity postgres.Severity `json:"severity"`
		Object   string            `json:"object"`
		Message  string            `json:"message"`
		Fix      string            `json:"fix,omitempty"`
	}
	result, count := []finding{}, map[postgres.Severity]int{postgres.Blocks: 0, postgres.Warns: 0, postgres.Notes: 0}
	for _, p := range checked {
		for _, f := range p.found {
			count[f.Severity]++
			result = append(result, finding{p.FullName(), p.File, f.Severity, f.Object, f.Message, f.Fix})
		}
	}
	data, err := record{{name: "command", value: "check"}, {name: "ok", value: ok}, {name: "summary", value: count},
		{name: "result", value: result}}.json()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s\n", data)
	return err
}

// judge makes exit code 4 of findings that block, or warn if strict.
func judge(found []postgres.Finding, strict bool) error {
	for _, f := range found {
		if f.Severity == postgres.Blocks || strict && f.Severity == postgres.Warns {
			return &exitError{freshet.ClassCheck.ExitCode()}
		}
	}
	return nil
}
