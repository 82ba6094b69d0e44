package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/docs"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) quarantineCommand() *cobra.Command {
	return group("quarantine", "Look after records that could not be taken",
		`Look after quarantine: the table that holds the records which could not be taken, with their bytes and the reason.

TABLE is the table that the records were for, or the quarantine table itself; FILE is the pipeline's file, or its name in the project.`,
		c.quarantineList(), c.quarantineShow(), c.quarantineReplay(), c.quarantineDrop())
}

// choice is which entries are meant.
type choice struct {
	code  string
	since string
	all   bool
	limit int64
}

func (f *choice) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.code, "code", "", "only those with this code")
	cmd.Flags().StringVar(&f.since, "since", "", "only those quarantined since a time, or for a span such as 2h")
}

func (f *choice) filter(ids []string) (*lake.Filter, error) {
	filter := &lake.Filter{Code: freshet.Code(strings.ToUpper(f.code)), Closed: f.all, Limit: f.limit}
	if len(ids) > 0 {
		filter.IDs = ids
	}
	if codes := docs.Codes(); f.code != "" && !slices.Contains(codes, string(filter.Code)) {
		fix := "`freshet explain` lists all codes"
		if near := spec.Nearest(string(filter.Code), codes); len(near) > 0 {
			fix = "did you mean " + strings.Join(near, " or ") + "? " + fix
		}
		return nil, usageError(fmt.Sprintf("--code: found %q, wanted a code such as FRE-3004", f.code), fix)
	}
	if f.since == "" {
		return filter, nil
	}
	if d, err := time.ParseDuration(f.since); err == nil && d > 0 {
		filter.Since = time.Now().Add(-d)
		return filter, nil
	}
	at, err := spec.ParseTime(f.since)
	if err != nil {
		return nil, usageError("--since: "+err.Error(), "")
	}
	filter.Since = at
	return filter, nil
}

// openQuarantine opens the quarantine of what a person names, and sets the filter to its table where several
// share one.
func (c *cli) openQuarantine(ctx context.Context, name string, filter *lake.Filter) (*lake.Quarantine,
	error) {
	project, table, quarantine, shared, err := c.findQuarantine(name)
	if err != nil {
		return nil, err
	}
	if shared {
		filter.Table = table
	}
	st, err := project.OpenTable(ctx, quarantine)
	if err != nil {
		return nil, err
	}
	q, err := lake.OpenQuarantine(ctx, st, engineInfo())
	var fault *freshet.Error
	if quarantine == table || !errors.As(err, &fault) || fault.Code != freshet.CodeNoTable {
		return q, err
	}
	if st, e := project.OpenTable(ctx, table); e == nil { // it may be a quarantine table of any name
		if is, e := lake.IsQuarantine(ctx, st); e == nil && is {
			filter.Table = ""
			return lake.OpenQuarantine(ctx, st, engineInfo())
		}
	}
	return nil, err
}

// findQuarantine tells where the quarantine of a name is: of a pipeline, of a quarantine table, of a
// table that a
// pipeline of the project writes, or of one that ingest does.
func (c *cli) findQuarantine(name string) (p *spec.Project, table, quarantine string, shared bool,
	err error) {
	if c.meansPipeline(name) {
		pipelines, err := c.load([]string{name}, nil)
		if err != nil {
			return nil, "", "", false, err
		}
		p := pipelines[0]
		return p.Project, p.TargetTable(), p.QuarantineTable(p.TargetTable()), false, nil
	}
	if p, err = c.openProject("", true); err != nil {
		return nil, "", "", false, err
	}
	table = tableArgument(name)
	base := path.Base(strings.TrimRight(table, "/"))
	if _, last, ok := strings.Cut(base, "."); ok && base == table {
		base = last
	}
	if strings.HasPrefix(base, "_quarantine") || strings.HasSuffix(base, "_quarantine") {
		return p, table, table, false, nil
	}
	for _, pipeline := range c.projectPipelines() {
		if is, many := pipeline.Writes(table); is {
			return p, table, pipeline.QuarantineTable(table), many, nil
		}
	}
	if ns, last, ok := strings.Cut(table, "."); ok && !strings.ContainsAny(table, `/\:`) {
		return p, table, ns + "._quarantine_" + last, false, nil
	}
	return p, table, lake.QuarantineName(table), false, nil
}

// projectPipelines are the good pipelines of the project; what is wrong with others does not matter here.
func (c *cli) projectPipelines() []*spec.Pipeline {
	files, err := c.pipelineFiles(nil)
	if err != nil {
		return nil
	}
	project, err := c.openProject("", true)
	if err != nil {
		return nil
	}
	var good []*spec.Pipeline
	for _, file := range files {
		p, err := spec.Load(project, file, &spec.LoadOptions{Lenient: true})
		var found spec.Findings
		if err == nil || errors.As(err, &found) && len(found.Errors()) == 0 {
			good = append(good, p)
		}
	}
	return good
}

func (c *cli) quarantineList() *cobra.Command {
	var f choice
	var output string
	cmd := &cobra.Command{
		Use:     "list TABLE|FILE",
		Aliases: []string{"ls"},
		Short:   "The records in quarantine",
		Long: `List records in quarantine, in no particular order: those that are open, which were neither taken by a replay nor
given up. With --all the others, too.`,
		Example: `  freshet quarantine list bronze.orders
  freshet quarantine list pipelines/orders.yaml --code FRE-3004 --since 2h -o jsonl`,
		Args: args(1, 1, "one TABLE or FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(nil)
			if err != nil {
				return err
			}
			records, err := c.rejects(cmd.Context(), args[0], filter, output == "table" || output == "name")
			if err != nil {
				return err
			}
			if err := c.list(output, records); err != nil || output != "table" {
				return err
			}
			more := ""
			if f.limit > 0 && int64(len(records)) == f.limit {
				more = ", and perhaps more: --limit N"
			}
			_, err = fmt.Fprintf(c.out, "%s%s\n", plural(len(records), "record"), more)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "also those that were replayed or given up")
	cmd.Flags().Int64Var(&f.limit, "limit", 100, "how many at most, 0 for all")
	c.outputFlag(cmd, &output)
	return cmd
}

// rejects are the records in quarantine, without their payloads when they are brief; none when the table is there and its
// quarantine is not, since the first reject makes it.
func (c *cli) rejects(ctx context.Context, name string, filter *lake.Filter, brief bool) ([]record, error) {
	q, err := c.openQuarantine(ctx, name, filter)
	var fault *freshet.Error
	if errors.As(err, &fault) && fault.Code == freshet.CodeNoTable && c.isTarget(ctx, name) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []record
	now := time.Now()
	for e, err := range q.Entries(ctx, filter) {
		if err != nil {
			return nil, err
		}
		r := entryRecord(e, now)
		if brief {
			r = slices.DeleteFunc(r, func(f field) bool { return f.name == "raw" })
		}
		records = append(records, r)
	}
	return records, nil
}

// isTarget tells whether a name is that of a table, or of the file of a pipeline whose table is there.
func (c *cli) isTarget(ctx context.Context, name string) bool {
	project, table, quarantine, _, err := c.findQuarantine(name)
	if err != nil || table == quarantine {
		return false
	}
	st, err := project.OpenTable(ctx, table)
	if err != nil {
		return false
	}
	_, err = delta.Open(ctx, st, nil)
	return err == nil
}

func entryRecord(e *lake.Entry, now time.Time) record {
	return record{
		{name: "id", value: e.ID()},
		{name: "code", value: string(e.Code)},
		{name: "message", value: e.Message, text: clip(printable(e.Message), 80)},
		{name: "step", value: e.Step},
		{name: "when", value: e.QuarantinedAt.UTC(), text: ago(now, e.QuarantinedAt)},
		{name: "bytes", value: len(e.Raw), right: true},
		{name: "open", value: e.Open, wide: true},
		{name: "record_time", value: moment(e.Time), wide: true},
		{name: "app", value: e.App, wide: true},
		{name: "table", value: e.Table, wide: true},
		{name: "topic", value: e.Lane.Origin, wide: true},
		{name: "topic_id", value: e.Lane.OriginID, wide: true},
		{name: "partition", value: e.Lane.Name, wide: true},
		{name: "offset", value: e.Seq, wide: true},
		{name: "key", value: e.Key, wide: true},
		{name: "headers", value: headersOf(e), wide: true},
		{name: "raw", value: e.Raw, wide: true},
	}
}

// header is a record's header as -o json has it: its value in base64.
type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func headersOf(e *lake.Entry) any {
	var all []header
	for _, h := range e.Headers {
		all = append(all, header{h.Key, h.Value})
	}
	if all == nil {
		return nil
	}
	return all
}

func headersText(e *lake.Entry) string {
	var lines []string
	for _, h := range e.Headers {
		lines = append(lines, printable(h.Key)+": "+payloadText(h.Value))
	}
	return strings.Join(lines, "\n")
}

func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

func clip(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

func (c *cli) quarantineShow() *cobra.Command {
	var output string
	var raw bool
	cmd := &cobra.Command{
		Use:     "show TABLE|FILE ID",
		Aliases: []string{"describe"},
		Short:   "One record in quarantine, with its payload",
		Long: `Print one record in quarantine with all that is known of it. --raw prints its payload alone, byte for byte. IDs are as
the list has them. Where columns of the table are masked, records are sealed: the pipeline's FILE, with the salt, opens them.`,
		Example: `  freshet quarantine show bronze.orders 'orders[3]@1042'
  freshet quarantine show bronze.orders 'orders[3]@1042' --raw | jq .`,
		Args: args(2, 2, "TABLE or FILE, and one ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var of lake.Filter
			q, err := c.openQuarantine(cmd.Context(), args[0], &of)
			if err != nil {
				return err
			}
			e, err := q.GetOf(cmd.Context(), of.Table, args[1])
			if err != nil {
				return err
			}
			if e, err = c.unsealed(args[0], e); err != nil {
				return err
			}
			if raw {
				_, err := c.out.Write(e.Raw)
				return err
			}
			r := entryRecord(e, time.Now())
			for i := range r {
				switch r[i].name {
				case "key", "raw":
					r[i].text = payloadText(r[i].value.([]byte))
				case "headers":
					r[i].text = headersText(e)
				case "message":
					r[i].text = e.Message
				}
			}
			return c.describe(output, r)
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the payload alone, byte for byte")
	c.outputFlag(cmd, &output)
	return cmd
}

// unsealed is the entry with its record as it came, if the name is that of a pipeline, which can open it.
func (c *cli) unsealed(name string, e *lake.Entry) (*lake.Entry, error) {
	if !c.meansPipeline(name) {
		return e, nil
	}
	pipelines, err := c.load([]string{name}, nil)
	if err != nil {
		return nil, err
	}
	return pipelines[0].Unsealed(e)
}

// payloadText is a payload as a person can read it: quoted where it is no text.
func payloadText(b []byte) string {
	const most = 4096
	rest := ""
	if len(b) > most {
		rest = fmt.Sprintf(" … (%s more bytes; --raw prints all)", number(int64(len(b)-most)))
		b = b[:most]
	}
	if b == nil {
		return "–"
	}
	if utf8.Valid(b) {
		return strings.Map(func(r rune) rune {
			if r < ' ' && r != '\n' || r == 0x7f {
				return '·'
			}
			return r
		}, string(b)) + rest
	}
	return fmt.Sprintf("%q", b) + rest
}

func (c *cli) quarantineDrop() *cobra.Command {
	var f choice
	var every, yes bool
	cmd := &cobra.Command{
		Use:   "drop TABLE|FILE [ID…]",
		Short: "Give records in quarantine up",
		Long: `Give records in quarantine up, so that they are no longer open: those of the IDs, or those of a code or time, or with
--every all that are open. They stay in the quarantine table, and list --all shows them.`,
		Example: `  freshet quarantine drop bronze.orders 'orders[3]@1042'
  freshet quarantine drop bronze.orders --code FRE-3002 --yes`,
		Args: args(1, -1, "TABLE or FILE, and IDs or a filter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && f.code == "" && f.since == "" && !every {
				return usageError("quarantine drop: found neither an ID nor a filter",
					"name IDs, --code, --since, or --every")
			}
			filter, err := f.filter(args[1:])
			if err != nil {
				return err
			}
			q, err := c.openQuarantine(cmd.Context(), args[0], filter)
			if err != nil {
				return err
			}
			if err := entriesExist(cmd.Context(), q, filter.IDs); err != nil {
				return err
			}
			if err := c.confirm("The records will not be taken any more.", yes); err != nil {
				return err
			}
			n, err := q.Drop(cmd.Context(), filter)
			if err != nil {
				return err
			}
			c.say("✓ %s given up", plural(n, "record"))
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&every, "every", false, "all that are open")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
