package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/postgres"
)

func (c *cli) doctorCommand() *cobra.Command {
	var output string
	var strict bool
	o := postgres.Options{Slot: "freshet"}
	cmd := &cobra.Command{
		Use:   "doctor URL",
		Short: "What a PostgreSQL server needs before its tables are read",
		Long: `Look at a PostgreSQL server before a pipeline reads its tables, and change nothing: settings, the rights of the
role, the publication, what the log will tell of each table, and which values do not arrive as they are. Each finding
comes with the SQL that mends it, where there is such.

  blocks  it will not work, or applications will be refused updates
  warns   it works, and something is lost or goes wrong one day
  notes   good to know

Exit code 4 when something blocks, or warns with --strict.`,
		Example: `  freshet doctor postgres://freshet@db:5432/shop
  freshet doctor postgres://freshet@db:5432/shop --tables 'public.*' --publication shop -o json`,
		Args: args(1, 1, "one URL, as postgres://USER@HOST:PORT/DATABASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkOutput(output), o.Validate()); err != nil {
				return usageError(err.Error(), cmd.CommandPath()+" --help")
			}
			found, err := postgres.Check(cmd.Context(), args[0], &o)
			if err != nil {
				return err
			}
			if err := c.printFindings(output, found); err != nil {
				return err
			}
			return judge(found, strict)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Tables, "tables", nil, "tables: schema.table, schema.* or *.* (default: all)")
	f.StringVar(&o.Slot, "slot", o.Slot, "the replication slot that the pipeline has")
	f.StringVar(&o.Publication, "publication", "", "the publication (default: the slot's name)")
	f.StringVar(&o.Types.Numeric, "numeric", "", "what numeric without a precision becomes: text, double, decimal(P,S)")
	f.StringVar(&o.Types.Beyond, "beyond", "", "what becomes of values that a column cannot hold: null, reject")
	f.BoolVar(&strict, "strict", false, "exit code 4 for warnings, too")
	c.outputFlag(cmd, &output)
	return cmd
}

// printFindings prints them for people as faults are printed, each with its remedy below, else as records.
func (c *cli) printFindings(output string, found []postgres.Finding) error {
	if output != "table" {
		var records []record
		for _, f := range found {
			records = append(records, record{{name: "severity", value: string(f.Severity)}, {name: "object", value: f.Object},
				{name: "message", value: f.Message}, {name: "fix", value: f.Fix}})
		}
		return c.list(output, records)
	}
	s := c.style(c.out)
	for _, f := range found {
		printFinding(c.out, s, f)
	}
	if len(found) == 0 {
		fmt.Fprintln(c.out, s.paint(green, "✓")+" nothing is in the way")
	}
	return nil
}

// printFinding prints a finding as a fault is printed, with its remedy below.
func printFinding(w io.Writer, s style, f postgres.Finding) {
	mark := map[postgres.Severity]string{postgres.Blocks: s.paint(red, "✗"), postgres.Warns: s.paint(yellow, "⚠"),
		postgres.Notes: s.paint(dim, "·")}[f.Severity]
	fmt.Fprintf(w, "%s %s: %s\n", mark, f.Object, f.Message)
	printFix(w, s, f.Fix)
}
