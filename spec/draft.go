package spec

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres"
)

// Draft is a pipeline file that was written for a database.
type Draft struct {
	Name   string // of the pipeline
	Text   string // of its file
	Shown  string // the address of the database, without what is secret in it
	Secret string // the environment variable that must hold the address; "": the file has it
	Survey *postgres.Survey
}

// DraftPostgres looks at a database and writes the file of a pipeline that mirrors its tables, and keeps every change to them beside.
// The patterns choose tables, as the key tables of a file does; none: all of each schema. What is secret in the address is not in
// the file. Errors: those of postgres.Look; CodeBadValue where nothing is selected.
func DraftPostgres(ctx context.Context, project *Project, address string, patterns []string) (*Draft, error) {
	a, err := postgres.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	d := &draft{patterns: patterns, address: a}
	d.Name = strings.Trim(notInName.ReplaceAllString(a.Database, "_"), "_.-")
	if d.Name == "" {
		d.Name = "database"
	}
	d.Shown, d.variable = a.Shown, variableOf(d.Name)
	if a.Secret || strings.ContainsAny(a.Shown, "{}") { // which would end the variable
		d.Secret = d.variable
	}
	p, err := Parse(project, "the draft", []byte(d.head()), &LoadOptions{Lenient: true})
	var found Findings
	if err != nil && (!errors.As(err, &found) || len(found.Errors()) > 0) {
		return nil, err
	}
	if d.Survey, err = postgres.Look(ctx, address, p.postgresOptions()); err != nil {
		return nil, err
	}
	d.choose()
	if len(d.patterns) == 0 || len(d.Survey.Tables) == 0 {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: a.Shown,
			Msg: fmt.Sprintf("no table is selected: found %d, wanted one", len(d.Survey.Tables)),
			Fix: "look at --schema and --table, or at what the role may see"}
	}
	d.Text = d.head() + d.remarks(p)
	return &d.Draft, nil
}

// draft writes a Draft.
type draft struct {
	Draft
	address  *postgres.Address
	patterns []string
	variable string
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// variableOf is the environment variable for the address of a database: SHOP_URL.
func variableOf(name string) string {
	v := strings.ToUpper(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "_")) + "_URL"
	if v[0] >= '0' && v[0] <= '9' {
		v = "DB_" + v
	}
	return v
}

// choose takes all tables of each schema where nothing was chosen.
func (d *draft) choose() {
	if len(d.patterns) > 0 {
		return
	}
	for _, t := range d.Survey.Tables {
		if p := t.Schema + ".*"; !slices.Contains(d.patterns, p) && !strings.Contains(t.Schema, ".") {
			d.patterns = append(d.patterns, p)
		}
	}
}

// head is the file without what was found.
func (d *draft) head() string {
	var b strings.Builder
	remark(&b, "", "The tables of "+d.address.Database+": each as it is now, and every change to it beside.")
	url := quoted("${" + d.variable + ":-" + d.Shown + "}")
	if d.Secret != "" {
		url = quoted("${secret:env:" + d.variable + "}")
	}
	fmt.Fprintf(&b, "pipeline: %s\nsource:\n  postgres:\n", d.Name)
	if d.Secret != "" {
		remark(&b, "    ", "The address, with its password, is in the environment of the process: "+d.Shown)
	}
	fmt.Fprintf(&b, "    url: %s\n    tables:  # also those that come later, where there is a *\n", url)
	patterns := d.patterns
	if len(patterns) == 0 {
		patterns = []string{"*.*"}
	}
	for _, p := range patterns {
		fmt.Fprintf(&b, "      - %s\n", quoted(strings.ReplaceAll(p, "${", "$${")))
	}
	b.WriteString(`target:
  delta:
    table: "bronze.{schema}_{table}"                 # one row a key, as the source has it
    mode: mirror
    changelog: "bronze_changes.{schema}_{table}"     # every change, as it came
`)
	return b.String()
}

// remarks are what was found, as comments.
func (d *draft) remarks(p *Pipeline) string {
	var b strings.Builder
	say := func(lines ...string) {
		for _, l := range lines {
			remark(&b, "", l)
		}
	}
	title := func(text string) {
		b.WriteString("\n")
		say(text)
	}
	title("Found in " + d.Survey.Server + ", with the rows that it estimates:")
	for _, t := range d.Survey.Tables {
		say("  " + tableLine(t))
	}
	if mend := d.toMend(); len(mend) > 0 {
		title("To be mended on the server before the first run; `freshet check` tells what is left of it:")
		for _, f := range mend {
			say("  "+f.Object+": "+f.Message, sqlLine(f.Fix))
		}
	}
	title("Made at the first start: the slot and the publication " + p.slot() + ". `freshet pipeline delete` drops them.")
	losses, others := d.notes()
	if len(losses) > 0 {
		title("Values that do not arrive as they are, and in which columns:")
		say(losses...)
	}
	if len(others) > 0 {
		title("Good to know:")
		say(others...)
	}
	return b.String()
}

func tableLine(t postgres.Surveyed) string {
	key := "no key: rows are told apart by all of their columns, and several may be alike"
	if len(t.Key) > 0 {
		key = "key " + strings.Join(t.Key, ", ")
	}
	rows := ""
	if t.Rows >= 0 {
		rows = fmt.Sprintf(", %d rows", t.Rows)
	}
	if t.LeftOut != "" {
		key, rows = "LEFT OUT: "+t.LeftOut, ""
	}
	return t.Schema + "." + t.Name + "  " + key + rows
}

func sqlLine(sql string) string {
	if sql == "" {
		return "    (there is no statement for that)"
	}
	return "    " + sql
}

// toMend are the findings that somebody should do something about.
func (d *draft) toMend() (mend []postgres.Finding) {
	for _, f := range d.Survey.Findings {
		if f.Severity != postgres.Notes {
			mend = append(mend, f)
		}
	}
	return mend
}

// notes are the other findings: those of columns by what they say, and the rest.
func (d *draft) notes() (losses, others []string) {
	var order []string
	columns := map[string][]string{}
	for _, f := range d.Survey.Findings {
		name, column := strings.CutPrefix(f.Object, "column ")
		switch {
		case f.Severity != postgres.Notes || strings.HasPrefix(f.Object, "publication "):
		case column:
			if columns[f.Message] == nil {
				order = append(order, f.Message)
			}
			columns[f.Message] = append(columns[f.Message], name)
		default:
			others = append(others, "  "+f.Object+": "+f.Message)
			if f.Fix != "" {
				others = append(others, sqlLine(f.Fix))
			}
		}
	}
	for _, message := range order {
		losses = append(losses, "  "+message, "    "+strings.Join(columns[message], ", "))
	}
	return losses, others
}

// quoted is a text as a YAML file has it.
func quoted(s string) string { return strconv.Quote(s) }

// remark writes a line as a comment, whatever is in it: nothing of it begins another line.
func remark(b *strings.Builder, indent, line string) {
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		line = strconv.QuoteToASCII(line)
	}
	b.WriteString(strings.TrimRight(indent+"# "+line, " ") + "\n")
}
