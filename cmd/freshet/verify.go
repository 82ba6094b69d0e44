package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/quality"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) verifyCommand() *cobra.Command {
	var o spec.VerifyOptions
	var tables []string
	var sample, output string
	cmd := &cobra.Command{
		Use:   "verify PIPELINE",
		Short: "Compare tables with their source, row by row",
		Long: `Compare the tables of a pipeline with those of its database, row by row, while both change. What differs at first is looked at
again on both sides, until it is proven that it is wrong, or that it was only under way: let the pipeline run meanwhile.

  missing    the source has the row, the table has not: an insert did not arrive
  extra      the table has the row, the source has not: a delete did not arrive
  stale      the source has changed the row since the table's was written (where track_commit_timestamp is on)
  different  the values are others
  duplicate  the table has several rows of the key

--sample compares a part of the keys, chosen at random; what is read of the database is as little, where its keys can be put in
order. Nothing is written to the tables, unless --repair has the pipeline read the rows that differ again, missed deletes
included: it writes them as changes, with its progress, to the tables and their change logs. The database is read over one connection, in short transactions, with the source's
history.rows_per_second.

Exit code 4 when there is a difference that is not mended; 3 with FRE-4009 when the pipeline does not go on, so that nothing is proven.`,
		Example: `  freshet verify shop
  freshet verify pipelines/shop.yaml --table bronze.public_orders --sample 5%
  freshet verify shop --repair
  freshet verify shop -o json | jq '.[].counts'`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := checkOutput(output); err != nil {
				return err
			}
			if o.Share, err = share(sample); err != nil {
				return err
			}
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			for _, table := range tables {
				o.Tables = append(o.Tables, tableArgument(table))
			}
			return c.verify(cmd.Context(), p, &o, output)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&tables, "table", nil, "these tables (default: all)")
	f.StringVar(&sample, "sample", "100%", "the part of the keys that is compared, such as 5%")
	f.BoolVar(&o.Repair, "repair", false, "have the pipeline read again what differs")
	f.Uint64Var(&o.Seed, "seed", 0, "chooses the part (default: at random)")
	f.DurationVar(&o.Wait, "wait", time.Minute, "for how long a table may not come to where its source was read")
	f.IntVar(&o.List, "limit", 1000, "how many differences of a table are listed")
	c.outputFlag(cmd, &output)
	return cmd
}

// share reads a part of all: 5%.
func share(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(v > 0 && v <= 100) {
		return 0, usageError(fmt.Sprintf("--sample: found %q, wanted a part such as 5%%", text), "")
	}
	return v / 100, nil
}

func (c *cli) verify(ctx context.Context, p *spec.Pipeline, o *spec.VerifyOptions, output string) error {
	show, clear := c.line()
	var rows int64
	o.Progress = func(n int64) {
		rows += n
		show("reading: %s", plural(rows, "row"))
	}
	equal := true
	var records []record
	err := p.Verify(ctx, o, func(v *spec.Verified) error {
		clear()
		rows = 0
		equal = equal && v.Found() == v.Mended
		records = append(records, verifiedRecord(v))
		if output == "table" {
			c.printVerified(v)
			if (v.Alike || v.Veiled) && o.Repair && !v.Equal() {
				fmt.Fprintf(c.out, "    rows of a table without a key, or with a masked one, are not mended one by one; %s loads it again\n", p.Remedy(v))
			}
		}
		return nil
	})
	clear()
	if err == nil && output != "table" {
		err = c.list(output, records)
	}
	if err == nil && !equal {
		return &exitError{freshet.ClassCheck.ExitCode()}
	}
	return err
}

// printVerified prints what was found of a table, for people.
func (c *cli) printVerified(v *spec.Verified) {
	s := c.style(c.out)
	cost := fmt.Sprintf("%s, %s, %s", plural(v.SourceRows, "row"), bytesText(v.SourceBytes), span(v.Took))
	mark, what := s.paint(green, "✓"), "equals "+v.Source
	if !v.Equal() {
		mark, what = s.paint(red, "✗"), "differs from "+v.Source+": "+countsText(v.Counts)
		if v.Mended > 0 {
			what += ", " + number(v.Mended) + " of them mended"
		}
		if v.Mended == v.Found() {
			mark = s.paint(green, "✓")
		}
	}
	fmt.Fprintf(c.out, "%s %s %s, at %s, version %d (%s)\n", mark, shownPath(v.Table), what, v.At, v.View.Version, cost)
	for _, d := range v.Differences {
		line := fmt.Sprintf("%-9s  %s", d.Class, strings.Join(d.Key, ", "))
		if v.Alike {
			line = fmt.Sprintf("%-9s  %s  of (%s)", d.Class, plural(d.Rows, "row"), strings.Join(d.Key, ", "))
		}
		if len(d.Columns) > 0 {
			line += "  " + s.paint(dim, strings.Join(d.Columns, ", "))
		}
		fmt.Fprintf(c.out, "    %s\n", line)
	}
	if v.More {
		fmt.Fprintln(c.out, "    there are more: the rest was not looked at")
	}
	if v.Undecided > 0 {
		fmt.Fprintf(c.out, "    %s changed all the time: nothing can be said of them\n", plural(v.Undecided, "key"))
	}
	if len(v.Filling) > 0 {
		fmt.Fprintf(c.out, "    not compared, since rows are still read again for them: %s\n", strings.Join(v.Filling, ", "))
	}
	if v.Rejected > 0 {
		fmt.Fprintf(c.out, "    %s are in quarantine\n", plural(v.Rejected, "row"))
	}
}

func countsText(counts map[quality.Class]int64) string {
	var parts []string
	for _, class := range quality.Classes() {
		if n := counts[class]; n > 0 {
			parts = append(parts, number(n)+" "+string(class))
		}
	}
	return strings.Join(parts, ", ")
}

// verifiedDifference is a difference for programs.
type verifiedDifference struct {
	Class   quality.Class `json:"class"`
	Rows    int64         `json:"rows"`
	Key     []string      `json:"key"`
	Columns []string      `json:"columns,omitempty"`
}

func verifiedRecord(v *spec.Verified) record {
	differences := []verifiedDifference{}
	for _, d := range v.Differences {
		differences = append(differences, verifiedDifference{d.Class, d.Rows, d.Key, d.Columns})
	}
	counts := map[quality.Class]int64{}
	for _, class := range quality.Classes() {
		counts[class] = v.Counts[class]
	}
	return record{{name: "table", value: v.Table}, {name: "source", value: v.Source}, {name: "equal", value: v.Equal()},
		{name: "position", value: v.At}, {name: "version", value: v.View.Version}, {name: "counts", value: counts},
		{name: "differences", value: differences}, {name: "more", value: v.More}, {name: "mended", value: v.Mended}, {name: "rows", value: v.SourceRows},
		{name: "table_rows", value: v.TableRows}, {name: "bytes", value: v.SourceBytes}, {name: "seconds", value: v.Took.Seconds()},
		{name: "rechecked", value: v.Rechecked}, {name: "undecided", value: v.Undecided}, {name: "rejected", value: v.Rejected}, {name: "filling", value: v.Filling}}
}
