package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// field is one value of a record: as programs want it, and as people do.
type field struct {
	name  string
	value any    // for json, jsonl, yaml and csv
	text  string // for the table; "" means that value is printed as it is
	right bool   // numbers stand at the right
	wide  bool   // not in the table
}

// record is one thing that a command lists.
type record []field

// formats are those of listings.
var formats = []string{"table", "json", "jsonl", "yaml", "csv", "name"}

const formatNames = "table, json, jsonl, yaml, csv or name"

// outputFlag adds -o of commands that list.
func (c *cli) outputFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "output", "o", "table", formatNames)
}

// resultOutput adds -o of commands that say what they did.
func resultOutput(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "output", "o", "", "print what was done as "+formatNames+
		" (default: a line on standard error)")
}

// checkOutput is an error unless -o holds a format, or nothing.
func checkOutput(output string) error {
	if output == "" {
		return nil
	}
	return oneOf("--output", output, formats...)
}

// list prints records in a format; json is one array.
func (c *cli) list(format string, records []record) error {
	switch format {
	case "table":
		c.printTable(records)
		return nil
	case "json":
		return c.printJSON(records, "[\n  ", ",\n  ", "\n]\n")
	case "jsonl":
		return c.printJSON(records, "", "\n", "\n")
	case "yaml":
		return c.printYAML(records)
	case "csv":
		return c.printCSV(records)
	case "name":
		for _, r := range records {
			fmt.Fprintln(c.out, plainText(r[0].value))
		}
		return nil
	}
	return oneOf("--output", format, formats...)
}

// describe prints one record: as a table it is one line a field.
func (c *cli) describe(format string, r record) error {
	if format == "json" {
		return c.printJSON([]record{r}, "", "", "\n")
	}
	if format != "table" {
		return c.list(format, []record{r})
	}
	width := 0
	for _, f := range r {
		width = max(width, len(f.name))
	}
	s := c.style(c.out)
	for _, f := range r {
		lines := strings.Split(f.show(), "\n")
		fmt.Fprintf(c.out, "%s  %s\n", s.paint(dim, fmt.Sprintf("%-*s", width, f.name)), s.text(lines[0]))
		for _, l := range lines[1:] {
			fmt.Fprintf(c.out, "%-*s  %s\n", width, "", s.text(l))
		}
	}
	return nil
}

func (f field) show() string {
	if f.text != "" {
		return f.text
	}
	return plainText(f.value)
}

// plainText is a value without quotes.
func plainText(v any) string {
	switch v := v.(type) {
	case nil:
		return "–"
	case string:
		return v
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case fmt.Stringer:
		return v.String()
	}
	data, err := marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func (c *cli) printTable(records []record) {
	if len(records) == 0 {
		return
	}
	s := c.style(c.out)
	var head record
	for _, f := range records[0] {
		if !f.wide {
			head = append(head, f)
		}
	}
	widths := make([]int, len(head))
	cells := make([][]string, len(records))
	for i, f := range head {
		widths[i] = utf8.RuneCountInString(f.name)
	}
	for n, r := range records {
		for _, f := range r {
			if f.wide {
				continue
			}
			text := s.text(strings.ReplaceAll(f.show(), "\n", " "))
			cells[n] = append(cells[n], text)
			i := len(cells[n]) - 1
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var names, rules []string
	for i, f := range head {
		names = append(names, pad(f.name, widths[i], f.right))
		rules = append(rules, strings.Repeat(s.text("─"), widths[i]))
	}
	line := func(parts []string) {
		fmt.Fprintln(c.out, strings.TrimRight(" "+strings.Join(parts, "  "), " "))
	}
	line(names)
	line(rules)
	for _, row := range cells {
		for i := range row {
			row[i] = pad(row[i], widths[i], head[i].right)
		}
		line(row)
	}
}

func pad(text string, width int, right bool) string {
	blanks := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if right {
		return blanks + text
	}
	return text + blanks
}

func (c *cli) printJSON(records []record, open, between, end string) error {
	if len(records) == 0 {
		if open != "" {
			fmt.Fprintln(c.out, "[]")
		}
		return nil
	}
	var b bytes.Buffer
	b.WriteString(open)
	for i, r := range records {
		if i > 0 {
			b.WriteString(between)
		}
		if err := r.appendJSON(&b); err != nil {
			return err
		}
	}
	b.WriteString(end)
	_, err := b.WriteTo(c.out)
	return err
}

// appendJSON writes the record as an object with its fields in their order.
func (r record) appendJSON(b *bytes.Buffer) error {
	b.WriteByte('{')
	for i, f := range r {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := marshal(f.value)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%q:%s", f.name, value)
	}
	b.WriteByte('}')
	return nil
}

// json is the record as one object.
func (r record) json() ([]byte, error) {
	var b bytes.Buffer
	err := r.appendJSON(&b)
	return b.Bytes(), err
}

// marshal is JSON without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// printYAML writes a list of mappings; values are in JSON, which is YAML.
func (c *cli) printYAML(records []record) error {
	for _, r := range records {
		for i, f := range r {
			value, err := marshal(f.value)
			if err != nil {
				return err
			}
			lead := "  "
			if i == 0 {
				lead = "- "
			}
			fmt.Fprintf(c.out, "%s%s: %s\n", lead, f.name, value)
		}
	}
	return nil
}

func (c *cli) printCSV(records []record) error {
	if len(records) == 0 {
		return nil
	}
	w := csv.NewWriter(c.out)
	var names []string
	for _, f := range records[0] {
		names = append(names, f.name)
	}
	rows := [][]string{names}
	for _, r := range records {
		var row []string
		for _, f := range r {
			text := ""
			if f.value != nil {
				text = plainText(f.value)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return w.WriteAll(rows)
}

// say writes a line for people to standard error, unless -q.
func (c *cli) say(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintln(c.err, c.style(c.err).text(fmt.Sprintf(format, args...)))
	}
}
