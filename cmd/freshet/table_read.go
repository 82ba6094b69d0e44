package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/spec"
)

// readOptions are the flags of table read.
type readOptions struct {
	at      at
	cut     readCut
	columns []string
	where   string
	limit   int64
	output  string
	digest  bool
}

func (c *cli) tableRead() *cobra.Command {
	var o readOptions
	cmd := &cobra.Command{
		Use:   "read TABLE…",
		Short: "The rows of a table",
		Long: `Print the rows of a table, in no particular order.

-o jsonl, the default where no person looks, prints each row as a JSON object in a form that does not depend on the
engine: keys sorted, decimals, dates and times as strings. -o json prints these as one array, -o csv the same values, -o table
is for people.

--digest prints one line a table instead, SHA256  ROWS  PATH: the SHA-256 of its sorted rows. Two tables with the same
rows have the same digest, whoever wrote or read them. It takes any number of tables; -o prints them as every list.

--where takes a SQL expression; files whose statistics rule it out are not read. A path in --columns, such as
address.city, prints its column with that part only, and no more is read.

--cut reads the version that a cut of the pipeline names: read all its tables with the same number, and they show the
source at one moment. --as-of-day reads the version at the end of a day: all that the source committed before the next day
began, and nothing later. --days prints the rows at the end of every day that is kept, with the day in _day.`,
		Example: `  freshet table read ./lake/orders --limit 10
  freshet table read bronze.orders --columns order_id,price --where "price > 100 AND state = 'paid'"
  freshet table read ./lake/orders --as-of 2026-01-31T12:00:00Z -o csv
  freshet table read ./lake/orders --as-of-day 2026-11-29
  freshet table read --digest ./lake/orders s3://acme/lake/orders`,
		Args: args(1, -1, "one TABLE, or with --digest any number"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.limit < 0 {
				return usageError(fmt.Sprintf("--limit: found %d, wanted 0 or more", o.limit), "")
			}
			if o.digest {
				return c.printDigests(o.output, args, func(name string, take func(arrow.RecordBatch) error) error {
					return c.scan(cmd.Context(), name, o, take)
				})
			}
			if len(args) > 1 {
				return usageError(fmt.Sprintf("table read: found %d tables, wanted one", len(args)),
					"with --digest there may be more")
			}
			var err error
			if o.output, err = c.rowsOutput(o.output); err != nil {
				return err
			}
			return c.read(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	o.at.add(cmd)
	o.cut.add(cmd)
	f.StringSliceVar(&o.columns, "columns", nil, "the columns to print, or paths into them (default: all)")
	f.StringVar(&o.where, "where", "", "a SQL condition; rows are printed for which it is true")
	f.Int64Var(&o.limit, "limit", 0, "how many rows at most (default: all; a table on a terminal: 40)")
	f.StringVarP(&o.output, "output", "o", "", rowsFormats)
	f.BoolVar(&o.digest, "digest", false, "print SHA256  ROWS  PATH, a line a table")
	return cmd
}

// scan yields the rows that are wanted to take.
func (c *cli) scan(ctx context.Context, name string, o readOptions,
	take func(arrow.RecordBatch) error) error {
	if cut, err := o.cut.wanted(o.at); err != nil {
		return err
	} else if cut {
		return c.scanCut(ctx, name, o, take)
	}
	snap, err := c.snapshot(ctx, name, o.at)
	if err != nil {
		return err
	}
	if err := knownColumns("--columns", snap.Schema(), wholeColumns(snap.Schema(), o.columns)); err != nil {
		return err
	}
	opts := &delta.ScanOptions{Columns: o.columns, Limit: o.limit}
	if o.where != "" {
		if opts.Where, err = expr.Parse(o.where); err != nil {
			return tableError(name, err)
		}
	}
	for batch, err := range snap.Scan(ctx, opts) {
		if err != nil {
			return tableError(name, err)
		}
		err := take(batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// wholeColumns are the names but for quoted ones and paths, of columns that there are, which the scan checks.
func wholeColumns(schema *delta.Schema, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		top, _, _ := strings.Cut(name, ".")
		whole, _ := schema.Lookup(name)
		column, _ := schema.Lookup(strings.Trim(top, "`"))
		return whole == nil && column != nil
	})
}

// knownColumns is an error that names the first column that is not in the schema, or that stands there twice.
func knownColumns(flag string, schema *delta.Schema, names []string) error {
	for i, name := range names {
		if slices.ContainsFunc(names[:i], func(before string) bool { return strings.EqualFold(before, name) }) {
			return usageError(fmt.Sprintf("%s: found %q twice, wanted it once", flag, name), "")
		}
		if f, _ := schema.Lookup(name); f != nil {
			continue
		}
		var all []string
		for _, f := range schema.Fields {
			all = append(all, f.Name)
		}
		fix := "its columns are " + strings.Join(all, ", ")
		if near := spec.Nearest(name, all); len(near) > 0 {
			fix = "did you mean " + strings.Join(near, " or ") + "?"
		}
		return &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: flag,
			Msg: fmt.Sprintf("the table has no column %q", name), Fix: fix}
	}
	return nil
}

// printer prints batches; end prints what is left.
type printer interface {
	print(batch arrow.RecordBatch) error
	end() error
}

func (c *cli) read(ctx context.Context, name string, o readOptions) error {
	return c.printRows(o.output, &o.limit, func(take func(arrow.RecordBatch) error) error {
		return c.scan(ctx, name, o, take)
	})
}

// printRows prints the batches that scan gives to take. A table without a limit gets one, which scan must obey.
func (c *cli) printRows(output string, limit *int64, scan func(take func(arrow.RecordBatch) error) error) error {
	var p printer
	out := bufio.NewWriterSize(c.out, 1<<16)
	switch output {
	case "jsonl":
		p = &linePrinter{out: out, between: "\n", close: "\n"}
	case "json":
		p = &linePrinter{out: out, open: "[\n  ", between: ",\n  ", close: "\n]\n", none: "[]\n"}
	case "csv":
		p = &csvPrinter{out: out, w: csv.NewWriter(out)}
	default:
		t := &tablePrinter{c: c}
		if *limit == 0 {
			*limit, t.cut = shownRows, true
		}
		p = t
	}
	if err := scan(p.print); err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	return out.Flush()
}

// rowsOutput is the format of rows: what was asked for, else the one for people where they look.
func (c *cli) rowsOutput(output string) (string, error) {
	if output == "" {
		output = "jsonl"
		if isTerminal(c.out) {
			output = "table"
		}
	}
	return output, oneOf("--output", output, "table", "json", "jsonl", "csv")
}

// rowsFormats says what -o of rows takes.
const rowsFormats = "table, json, jsonl or csv (default: table on a terminal, else jsonl)"

// linePrinter prints canonical rows, with text before the first, between two, behind the last, and where there is none.
type linePrinter struct {
	out                        *bufio.Writer
	open, between, close, none string
	enc                        *canonical.Encoder
	buf                        []byte
}

func (p *linePrinter) print(b arrow.RecordBatch) error {
	before := p.between
	if b.NumRows() == 0 {
		return nil
	}
	if p.enc == nil {
		p.enc, before = canonical.NewEncoder(b.Schema()), p.open
	}
	for i := range int(b.NumRows()) {
		line, err := p.enc.AppendRow(append(p.buf[:0], before...), b, i)
		if err != nil {
			return err
		}
		p.buf, before = line, p.between
		if _, err := p.out.Write(line); err != nil {
			return err
		}
	}
	return nil
}

func (p *linePrinter) end() error {
	last := p.close
	if p.enc == nil {
		last = p.none
	}
	_, err := p.out.WriteString(last)
	return err
}

// csvPrinter prints the canonical values: text without quotes, null as nothing, nested ones as JSON.
type csvPrinter struct {
	out  *bufio.Writer
	w    *csv.Writer
	head bool
}

func (p *csvPrinter) print(b arrow.RecordBatch) error {
	if !p.head {
		p.head = true
		var names []string
		for _, f := range b.Schema().Fields() {
			names = append(names, f.Name)
		}
		if err := p.w.Write(names); err != nil {
			return err
		}
	}
	cells, err := cellsOf(b)
	if err != nil {
		return err
	}
	for _, row := range cells {
		for i := range row {
			if row[i] == "null" {
				row[i] = ""
			}
			row[i] = unquote(row[i])
		}
		if err := p.w.Write(row); err != nil {
			return err
		}
	}
	p.w.Flush()
	return p.w.Error()
}

func (p *csvPrinter) end() error { return nil }

// cellsOf are the canonical values of a batch as JSON, row by row in the order of its columns.
func cellsOf(b arrow.RecordBatch) ([][]string, error) {
	fields := b.Schema().Fields()
	enc := canonical.NewEncoder(b.Schema())
	cells := make([][]string, b.NumRows())
	for i := range cells {
		line, err := enc.AppendRow(nil, b, i)
		if err != nil {
			return nil, err
		}
		var values map[string]json.RawMessage
		if err := json.Unmarshal(line, &values); err != nil {
			return nil, err
		}
		cells[i] = make([]string, len(fields))
		for k, f := range fields {
			cells[i][k] = string(values[f.Name])
		}
	}
	return cells, nil
}

// unquote is the text of a JSON string, and other JSON as it is.
func unquote(s string) string {
	var text string
	if strings.HasPrefix(s, `"`) && json.Unmarshal([]byte(s), &text) == nil {
		return text
	}
	return s
}

// tablePrinter holds the rows until their widths are known.
type tablePrinter struct {
	c    *cli
	cut  bool // only the first shownRows come
	rows []record
}

const (
	shownRows  = 40
	widestCell = 60
)

func (p *tablePrinter) print(b arrow.RecordBatch) error {
	cells, err := cellsOf(b)
	if err != nil {
		return err
	}
	for _, row := range cells {
		var r record
		for i, f := range b.Schema().Fields() {
			text := printable(unquote(row[i]))
			if utf8.RuneCountInString(text) > widestCell {
				text = string([]rune(text)[:widestCell-1]) + "…"
			}
			id := f.Type.ID()
			r = append(r, field{name: f.Name, value: text, right: arrow.IsInteger(id) || arrow.IsFloating(id) ||
				arrow.IsDecimal(id)})
		}
		p.rows = append(p.rows, r)
	}
	return nil
}

// printable replaces what would disturb a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '·'
		}
		return r
	}, s)
}

func (p *tablePrinter) end() error {
	p.c.printTable(p.rows)
	rest := ""
	if p.cut && len(p.rows) == shownRows {
		rest = ", and perhaps more: --limit N"
	}
	_, err := fmt.Fprintf(p.c.out, "%s%s\n", plural(len(p.rows), "row"), rest)
	return err
}

// statsRows is the number of rows that a file's statistics tell; nil when they tell none.
func statsRows(stats string) any {
	var s struct {
		NumRecords *int64 `json:"numRecords"`
	}
	if json.Unmarshal([]byte(stats), &s) != nil || s.NumRecords == nil {
		return nil
	}
	return *s.NumRecords
}

// rawJSON is JSON text as it is, nil for none.
func rawJSON(text string) any {
	if text == "" || !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
