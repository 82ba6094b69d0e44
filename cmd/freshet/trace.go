package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/spec"
)

func (c *cli) traceCommand() *cobra.Command {
	var o spec.TraceOptions
	var output string
	cmd := &cobra.Command{
		Use:   "trace PIPELINE --table TABLE --key VALUE",
		Short: "The life of one key: its row in the source, its changes, its row in the table",
		Long: `Follow one key of a table: the row that the database has now, what the change log tells of it, what versions of the table did
to it, with the place of the source that they go up to, the row that the table has now, and what is in quarantine that names it.

What versions did is found in their files, whoever committed them, as far as vacuum and log cleanup have left them, for --versions
back. A database is asked where the pipeline reads PostgreSQL and the key is that of the source.

--key is given once for each column of the key, in their order.`,
		Example: `  freshet trace shop --table bronze.public_orders --key 4711
  freshet trace shop --table bronze.public_lines --key 4711 --key 2 -o json`,
		Args: args(1, 1, "one PIPELINE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if len(o.Key) == 0 {
				return usageError("--key is missing", "give one for each column of the key")
			}
			if o.Versions < 0 {
				return usageError(fmt.Sprintf("--versions: found %d, wanted 0 or more", o.Versions), "")
			}
			p, err := c.onePipeline(args[0])
			if err != nil {
				return err
			}
			switch {
			case o.Table != "":
				o.Table = tableArgument(o.Table)
			case strings.Contains(p.TargetTable(), "{"):
				return usageError("--table is missing", "the pipeline has a table for each of its source's")
			default:
				o.Table = p.TargetTable()
			}
			return c.trace(cmd.Context(), p, &o, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Table, "table", "", "the table (default: the only one)")
	f.StringArrayVar(&o.Key, "key", nil, "the value of a column of the key")
	f.Int64Var(&o.Versions, "versions", 1000, "how many versions back changes are looked for")
	c.outputFlag(cmd, &output)
	return cmd
}

func (c *cli) trace(ctx context.Context, p *spec.Pipeline, o *spec.TraceOptions, output string) error {
	t, err := p.Trace(ctx, o)
	if err != nil {
		return err
	}
	return c.describe(output, traceRecord(t))
}

// traceRecord is what is known of a key.
func traceRecord(t *spec.Traced) record {
	r := record{{name: "table", value: t.Table, text: shownPath(t.Table)}, {name: "key", value: rowValue(t.Key), text: rowText(t.Key)}}
	switch {
	case !t.Asked:
		r = append(r, field{name: "source", value: nil, text: "was not asked"})
	case t.Original == nil:
		r = append(r, field{name: "source", value: map[string]any{"table": t.Source, "position": t.Position, "row": nil},
			text: fmt.Sprintf("%s, at %s: no such row", t.Source, t.Position)})
	default:
		r = append(r, field{name: "source", value: map[string]any{"table": t.Source, "position": t.Position, "row": rowValue(t.Original)},
			text: fmt.Sprintf("%s, at %s: %s", t.Source, t.Position, rowText(t.Original))})
	}
	if t.Log != nil {
		values, lines := rowsOf(t.Log.Rows)
		r = append(r, field{name: "change_log", value: values, text: orDash(strings.Join(lines, "\n"))})
	}
	values, lines := []any{}, []string{}
	for i := range t.Trail.Changes {
		ch := &t.Trail.Changes[i]
		values = append(values, map[string]any{"version": ch.Version, "at": ch.Time.UTC(), "kind": ch.Kind, "operation": ch.Operation,
			"positions": orEmpty(ch.Positions), "row": rowValue(ch.Row)})
		lines = append(lines, fmt.Sprintf("%d  %s  %s by %s, up to %s: %s", ch.Version, ch.Time.UTC().Format(time.RFC3339), ch.Kind,
			ch.Operation, orDash(strings.Join(ch.Positions, ", ")), rowText(ch.Row)))
	}
	if t.Trail.Gone != "" {
		lines = append([]string{fmt.Sprintf("before %d: %s", t.Trail.From, t.Trail.Gone)}, lines...)
	}
	r = append(r, field{name: "versions", value: map[string]any{"from": t.Trail.From, "gone": t.Trail.Gone, "changes": values},
		text: orDash(strings.Join(lines, "\n"))})
	values, lines = rowsOf(t.Trail.Rows)
	if len(lines) == 0 {
		lines = []string{fmt.Sprintf("no such row in version %d", t.Trail.Version)}
	}
	r = append(r, field{name: "present", value: map[string]any{"version": t.Trail.Version, "rows": values}, text: strings.Join(lines, "\n")})
	values, lines = []any{}, nil
	for _, e := range t.Quarantined {
		values = append(values, map[string]any{"id": e.ID(), "code": e.Code, "message": e.Message, "at": e.QuarantinedAt.UTC(), "open": e.Open})
		state := "open"
		if !e.Open {
			state = "closed"
		}
		lines = append(lines, fmt.Sprintf("%s  %s  %s %s: %s", e.ID(), e.QuarantinedAt.UTC().Format(time.RFC3339), state, e.Code, e.Message))
	}
	return append(r, field{name: "quarantine", value: values, text: orDash(strings.Join(lines, "\n"))})
}

// rowsOf are rows for programs, and for people.
func rowsOf(rows []lake.TracedRow) (values []any, lines []string) {
	values = []any{}
	for _, row := range rows {
		values, lines = append(values, rowValue(row)), append(lines, rowText(row))
	}
	return values, lines
}

func rowValue(row []lake.TracedValue) map[string]*string {
	all := map[string]*string{}
	for _, v := range row {
		all[v.Column] = v.Value
	}
	return all
}

// rowText is a row on one line: long values are cut.
func rowText(row []lake.TracedValue) string {
	parts := make([]string, len(row))
	for i, v := range row {
		text := "null"
		if v.Value != nil {
			if text = *v.Value; len(text) > 60 {
				text = strings.ToValidUTF8(text[:57], "") + "…"
			}
		}
		parts[i] = v.Column + "=" + text
	}
	return strings.Join(parts, " ")
}
