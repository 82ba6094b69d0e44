package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
	"github.com/freshet-io/freshet/store"
)

func (c *cli) cutCommand() *cobra.Command {
	return group("cut", "Versions of tables that show the source at one moment",
		`Look at cuts: sets of versions of a pipeline's tables that together show the source at one moment.

A pipeline of several tables commits each by itself. When all of them hold the same of the source, it records a cut, a row
in its cuts table, which says at which version each table is. Whoever reads every table at the version that one cut names
sees all tables at one moment: `+"`freshet table read TABLE --cut latest`"+`, or VERSION AS OF in any other engine.

CUTS is the cuts table (a folder, a URI or namespace.table), or the pipeline: its file, or its name in the project.`,
		c.cutList(), c.cutShow())
}

// openCuts opens the cuts table that a person names, or that of a pipeline. The opener takes URLs of tables.
func (c *cli) openCuts(ctx context.Context, name string) (*lake.Cuts, lake.Opener, error) {
	var project *spec.Project
	var err error
	if c.meansPipeline(name) {
		pipelines, err := c.load([]string{name}, nil)
		if err != nil {
			return nil, nil, err
		}
		project = pipelines[0].Project
		if name = pipelines[0].CutsTable(); name == "" {
			return nil, nil, usageError("the pipeline records no cuts", "write cuts: true below target.delta")
		}
	} else if project, err = c.openProject("", true); err != nil {
		return nil, nil, err
	} else {
		name = tableArgument(name)
	}
	open := func(table string) (store.Store, error) { return project.OpenTable(ctx, table) }
	st, err := open(name)
	if err != nil {
		return nil, nil, err
	}
	cuts, err := lake.OpenCuts(ctx, st)
	return cuts, open, err
}

func (c *cli) cutList() *cobra.Command {
	var f lake.CutFilter
	var output string
	cmd := &cobra.Command{
		Use:   "list CUTS",
		Short: "The cuts, the newest first",
		Long: `List the cuts of a pipeline, the newest first: their numbers, when they were recorded, the time of the newest record
that they hold, and the day of which they hold all, if they stand at the end of one.`,
		Example: `  freshet cut list ./lake/orders_cuts -n 5
  freshet cut list pipelines/orders.yaml --days
  freshet cut list bronze.orders_cuts -o jsonl | jq .tables`,
		Args: args(1, 1, "one CUTS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.Last < 0 {
				return usageError(fmt.Sprintf("--limit: found %d, wanted 0 or more", f.Last), "")
			}
			cuts, _, err := c.openCuts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := cuts.List(cmd.Context(), &f)
			if err != nil {
				return err
			}
			slices.Reverse(all)
			var records []record
			for _, cut := range all {
				records = append(records, cutRecord(cut, time.Now()))
			}
			return c.list(output, records)
		},
	}
	cmd.Flags().BoolVar(&f.Days, "days", false, "only those at the end of a day")
	cmd.Flags().IntVarP(&f.Last, "limit", "n", 20, "how many, 0 for all")
	c.outputFlag(cmd, &output)
	return cmd
}

func cutRecord(cut *lake.Cut, now time.Time) record {
	return record{
		{name: "cut", value: cut.Number, right: true},
		{name: "recorded_at", value: cut.RecordedAt, text: ago(now, cut.RecordedAt)},
		{name: "source_time", value: timeOrNil(cut.SourceTime)},
		{name: "day", value: dayOrNil(cut.Day())},
		{name: "tables", value: cutVersions(cut), text: fmt.Sprint(len(cut.Tables)), right: true},
		{name: "lanes", value: cutSeqs(cut), wide: true},
		{name: "left_out", value: orEmpty(cut.LeftOut), wide: true},
		{name: "plan", value: cut.Plan, wide: true},
	}
}

// cutVersion is a table in a cut, for programs.
type cutVersion struct {
	Name     string `json:"name"`
	Location string `json:"location"`
	ID       string `json:"id"`
	Version  int64  `json:"version"`
}

func cutVersions(cut *lake.Cut) []cutVersion {
	all := []cutVersion{}
	for _, t := range cut.Tables {
		all = append(all, cutVersion(t))
	}
	return all
}

// cutSeqs are the seqs of the lanes, by their names.
func cutSeqs(cut *lake.Cut) map[string]int64 {
	all := map[string]int64{}
	for _, l := range cut.Lanes {
		all[l.Lane.String()] = l.Seq
	}
	return all
}

func timeOrNil(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func dayOrNil(d freshet.Day) any {
	if d == 0 {
		return nil
	}
	return d.String()
}

func (c *cli) cutShow() *cobra.Command {
	var check bool
	var day, output string
	cmd := &cobra.Command{
		Use:   "show CUTS [NUMBER|latest]",
		Short: "What a cut names",
		Long: `Print what a cut names: each table with its version, and where every lane of the source stood. Without a number it is the
newest. --check looks whether all of it can be read still, and says which cuts can if not.`,
		Example: `  freshet cut show ./lake/orders_cuts
  freshet cut show pipelines/orders.yaml 812 --check
  freshet cut show bronze.orders_cuts --as-of-day 2026-11-29 -o json`,
		Args: args(1, 2, "CUTS and at most one number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			which := cutChoice{day: day}
			if len(args) == 2 {
				which.number = args[1]
			} else if day == "" {
				which.number = "latest"
			}
			cuts, open, err := c.openCuts(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			cut, err := which.find(cmd.Context(), cuts)
			if err != nil {
				return err
			}
			if check {
				if err := cuts.CheckWhole(cmd.Context(), cut, open); err != nil {
					return err
				}
			}
			return c.describe(output, shownCut(cut))
		},
	}
	cmd.Flags().StringVar(&day, "as-of-day", "", "the cut at the end of a day, such as 2026-11-29")
	cmd.Flags().BoolVar(&check, "check", false, "look whether all of it can be read still")
	c.outputFlag(cmd, &output)
	return cmd
}

func shownCut(cut *lake.Cut) record {
	r := cutRecord(cut, time.Now())
	var tables, lanes []string
	for _, t := range cut.Tables {
		tables = append(tables, fmt.Sprintf("%s@%d", t.Location, t.Version))
	}
	for _, l := range cut.Lanes {
		lanes = append(lanes, l.Lane.Position(l.Seq))
	}
	for i := range r {
		switch r[i].name {
		case "recorded_at":
			r[i].text = ""
		case "tables":
			r[i].text = strings.Join(tables, "\n")
		case "lanes":
			r[i].text = orDash(strings.Join(lanes, "\n"))
		case "left_out":
			r[i].text = orDash(strings.Join(cut.LeftOut, ", "))
		}
	}
	return r
}

// cutChoice is which cut is meant: one of its fields is set, if any.
type cutChoice struct {
	number string // or "latest"
	day    string
}

func (w cutChoice) find(ctx context.Context, cuts *lake.Cuts) (*lake.Cut, error) {
	switch {
	case w.number != "" && w.day != "":
		return nil, usageError("a number and --as-of-day exclude each other", "keep one of them")
	case w.day != "":
		day, err := freshet.ParseDay(w.day)
		if err != nil {
			return nil, usageError("--as-of-day: "+err.Error(), "")
		}
		return cuts.AsOfDay(ctx, day)
	case w.number == "latest":
		return cuts.Newest(ctx)
	}
	n, err := strconv.ParseInt(w.number, 10, 64)
	if err != nil || n < 1 {
		return nil, usageError(fmt.Sprintf("cut: found %q, wanted a number or latest", w.number), "")
	}
	return cuts.At(ctx, n)
}

// readCut are the flags of a command that reads a table at a cut.
type readCut struct {
	cutChoice
	cuts string
	days bool
}

func (f *readCut) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.number, "cut", "", "the version that a cut names: its number, or latest")
	cmd.Flags().StringVar(&f.day, "as-of-day", "", "the version at the end of a day of the source, such as 2026-11-29")
	cmd.Flags().BoolVar(&f.days, "days", false, "the versions at the ends of all days, with the day in the column _day")
	cmd.Flags().StringVar(&f.cuts, "cuts", "", "the cuts table, or the pipeline (default: the one that names TABLE)")
}

// wanted reports whether a cut is meant at all. Errors: flags that exclude each other.
func (f *readCut) wanted(a at) (bool, error) {
	given := 0
	for _, is := range []bool{f.number != "", f.day != "", f.days, a.version >= 0, a.asOf != ""} {
		if is {
			given++
		}
	}
	if given > 1 {
		return false, usageError("--cut, --as-of-day, --days, --version and --as-of exclude each other", "keep one of them")
	}
	is := f.number != "" || f.day != "" || f.days
	if f.cuts != "" && !is {
		return false, usageError("--cuts: found no cut that is wanted", "add --cut latest, --as-of-day or --days")
	}
	return is, nil
}

// cutsOf opens the cuts that name the table.
func (c *cli) cutsOf(ctx context.Context, table string, f *readCut) (*lake.Cuts, lake.Opener, error) {
	if f.cuts != "" {
		return c.openCuts(ctx, f.cuts)
	}
	t, err := c.openTable(ctx, table)
	if err != nil {
		return nil, nil, err
	}
	markers, err := lake.CutMarkers(ctx, t.Store())
	if err != nil {
		return nil, nil, err
	}
	switch len(markers) {
	case 1:
		return c.openCuts(ctx, markers[0].Location)
	case 0:
		return nil, nil, usageError(table+": no cut names the table",
			"write cuts: true below target.delta of its pipeline, or give --cuts")
	}
	var names []string
	for _, m := range markers {
		names = append(names, m.Location)
	}
	return nil, nil, usageError(fmt.Sprintf("%s: %d pipelines record cuts of the table", table, len(markers)),
		"give --cuts: "+strings.Join(names, " or "))
}

// entry is the table in the cut.
func (c *cli) entry(ctx context.Context, table string, cut *lake.Cut) (*lake.CutTable, error) {
	t, err := c.openTable(ctx, table)
	if err != nil {
		return nil, err
	}
	found := cut.Table(t.Store().URL())
	if found != nil {
		return found, nil
	}
	var names []string
	for _, t := range cut.Tables {
		names = append(names, t.Name)
	}
	fix := "it names " + strings.Join(names, ", ")
	if len(cut.LeftOut) > 0 {
		fix += "; left out, since they were held back: " + strings.Join(cut.LeftOut, ", ")
	}
	return nil, usageError(fmt.Sprintf("%s is not in cut %d", table, cut.Number), fix)
}

// explainGone says what is whole still when a cut could not be read; err otherwise.
func explainGone(ctx context.Context, cuts *lake.Cuts, cut *lake.Cut, open lake.Opener, err error) error {
	if gone := cuts.CheckWhole(ctx, cut, open); gone != nil && err != nil && !errors.Is(err, context.Canceled) {
		return gone
	}
	return err
}
