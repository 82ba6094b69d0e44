package main

import (
	"context"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// mergeClause is a flag that says what becomes of rows.
type mergeClause struct {
	flag string
	kind string // what pflag calls the value
	add  func(m *delta.Merge, text string) error
	into *[]clauseGiven
}

// clauseGiven is a clause as the command line has it: of each list, their order is what they are tried in.
type clauseGiven struct {
	clause *mergeClause
	text   string
}

func (f *mergeClause) String() string { return "" }
func (f *mergeClause) Type() string   { return f.kind }

func (f *mergeClause) Set(text string) error {
	*f.into = append(*f.into, clauseGiven{f, text})
	return nil
}

const always = "true" // what a flag without a condition holds

func mergeClauses(into *[]clauseGiven) []*mergeClause {
	return []*mergeClause{
		{"when-matched-update", "ACTION", func(m *delta.Merge, text string) error {
			return addUpdate("--when-matched-update", &m.Matched, text)
		}, into},
		{"when-matched-delete", "CONDITION", func(m *delta.Merge, text string) error {
			return addDelete("--when-matched-delete", &m.Matched, text)
		}, into},
		{"when-not-matched-insert", "ACTION", func(m *delta.Merge, text string) error {
			action, when, err := splitWhere("--when-not-matched-insert", text)
			if err != nil {
				return err
			}
			clause := delta.InsertClause{When: when, All: action == "*"}
			if !clause.All {
				if clause.Values, err = assignments("--when-not-matched-insert", action); err != nil {
					return err
				}
			}
			m.NotMatched = append(m.NotMatched, clause)
			return nil
		}, into},
		{"when-not-matched-by-source-update", "ACTION", func(m *delta.Merge, text string) error {
			return addUpdate("--when-not-matched-by-source-update", &m.NotMatchedBySource, text)
		}, into},
		{"when-not-matched-by-source-delete", "CONDITION", func(m *delta.Merge, text string) error {
			return addDelete("--when-not-matched-by-source-delete", &m.NotMatchedBySource, text)
		}, into},
	}
}

func addUpdate(flag string, list *[]delta.MatchedClause, text string) error {
	action, when, err := splitWhere(flag, text)
	if err != nil {
		return err
	}
	clause := delta.MatchedClause{When: when, All: action == "*"}
	if !clause.All {
		if clause.Set, err = assignments(flag, action); err != nil {
			return err
		}
	}
	*list = append(*list, clause)
	return nil
}

func addDelete(flag string, list *[]delta.MatchedClause, text string) (err error) {
	clause := delta.MatchedClause{Delete: true}
	if text != always {
		if clause.When, err = parseExpr(flag, text); err != nil {
			return err
		}
	}
	*list = append(*list, clause)
	return nil
}

// splitWhere divides `ACTION WHERE CONDITION`; there may be no condition.
func splitWhere(flag, text string) (action string, when *expr.Expr, err error) {
	at := -1
	eachTop(text, func(i int) bool {
		if keywordAt(text, i, "where") {
			at = i
		}
		return at < 0
	})
	if at < 0 {
		return strings.TrimSpace(text), nil, nil
	}
	when, err = parseExpr(flag, text[at+len("where"):])
	return strings.TrimSpace(text[:at]), when, err
}

func (c *cli) tableMerge() *cobra.Command {
	var o rowsOptions
	var source, on string
	var evolve bool
	var given []clauseGiven
	cmd := &cobra.Command{
		Use:   "merge TABLE --source SOURCE --on CONDITION",
		Short: "Bring rows of another table, or of a file, into a table",
		Long: `Bring rows of a source into a table: update and delete rows that match, insert those that do not, in one commit.

SOURCE is another Delta table, a file of JSON objects, one a line (changes.jsonl), or - for such lines on standard input.
A field of a JSON object takes the type of the table's column of its name. In all expressions t.COLUMN is the
table's and s.COLUMN the source's; a name that only one of them has needs no letter.

What happens is said by clauses; of those of one kind the first whose condition is true acts, in the order given:

  --when-matched-update ACTION                 rows of the table that match a row of the source
  --when-matched-delete[=CONDITION]
  --when-not-matched-insert ACTION             rows of the source that match none of the table
  --when-not-matched-by-source-update ACTION   rows of the table that match none of the source
  --when-not-matched-by-source-delete[=CONDITION]

ACTION is *, all columns by their names, or 'a = s.a, b = s.b + 1, c = DEFAULT'; WHERE CONDITION may follow. When several rows of
the source would change one row of the table, the command fails.`,
		Example: `  freshet table merge ./lake/orders --source changes.jsonl --on "t.id = s.id" \
      --when-matched-update '*' --when-not-matched-insert '*'
  freshet table merge ./lake/orders --source ./lake/staging --on "t.id = s.id AND t.day = s.day" \
      --when-matched-delete="s.op = 'd'" --when-matched-update 'price = s.price, at = s.at WHERE s.at > t.at'
  zcat day.jsonl.gz | freshet table merge ./lake/prices --source - --on "t.sku = s.sku" \
      --when-matched-update '*' --when-not-matched-insert '*' --when-not-matched-by-source-delete --dry-run`,
		Args: args(1, 1, "one TABLE (a condition of --when-matched-delete follows it after =)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := mergeOf(on, source, given)
			if err != nil {
				return err
			}
			m.EvolveSchema = evolve
			return c.merge(cmd.Context(), args[0], source, m, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&source, "source", "", "a Delta table, a file of JSON lines, or - for standard input")
	f.StringVar(&on, "on", "", "a SQL condition; a row of the table and one of the source match when it is true")
	for _, clause := range mergeClauses(&given) {
		f.Var(clause, clause.flag, clauseHelp[clause.flag])
		if clause.kind == "CONDITION" {
			f.Lookup(clause.flag).NoOptDefVal = always
		}
	}
	f.BoolVar(&evolve, "evolve-schema", false, "add columns that the source has and the table lacks")
	o.add(cmd)
	return cmd
}

var clauseHelp = map[string]string{
	"when-matched-update":               "'*' or 'COLUMN = EXPRESSION, …', then perhaps WHERE CONDITION",
	"when-matched-delete":               "delete rows that match, with a condition those for which it is true",
	"when-not-matched-insert":           "'*' or 'COLUMN = EXPRESSION, …', then perhaps WHERE CONDITION",
	"when-not-matched-by-source-update": "'COLUMN = EXPRESSION, …', then perhaps WHERE CONDITION",
	"when-not-matched-by-source-delete": "delete rows that the source lacks, with a condition those for which it is true",
}

// mergeOf is the merge that the flags describe.
func mergeOf(on, source string, given []clauseGiven) (*delta.Merge, error) {
	switch {
	case source == "":
		return nil, usageError("--source is missing", "name a table, a file of JSON lines, or -")
	case on == "":
		return nil, usageError("--on is missing", `say which rows match: --on "t.id = s.id"`)
	case len(given) == 0:
		return nil, usageError("it is not said what becomes of the rows",
			"an upsert is --when-matched-update '*' --when-not-matched-insert '*'")
	}
	condition, err := parseExpr("--on", on)
	if err != nil {
		return nil, err
	}
	m := &delta.Merge{On: condition}
	for _, g := range given {
		if err := g.clause.add(m, g.text); err != nil {
			return nil, err
		}
	}
	for _, u := range m.NotMatchedBySource {
		if u.All {
			return nil, usageError("--when-not-matched-by-source-update: found *, wanted COLUMN = EXPRESSION", "the rows "+
				"have no counterpart in the source to take values from")
		}
	}
	return m, nil
}

func (c *cli) merge(ctx context.Context, name, source string, m *delta.Merge, o *rowsOptions) error {
	return c.changeRows(ctx, name, o, func(t *delta.Table, opts *delta.DMLOptions) (*delta.DMLResult, error) {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		rows, done, err := c.rowSource(ctx, source, snap.Schema().Arrow())
		if err != nil {
			return nil, err
		}
		defer done()
		return t.Merge(ctx, rows, m, opts)
	})
}

// rowSource is what --source names. done ends its use.
func (c *cli) rowSource(ctx context.Context, source string, known *arrow.Schema) (delta.RowSource, func(), error) {
	if isLines(source) {
		return c.lineSource(ctx, source, known)
	}
	t, err := c.openTable(ctx, source)
	if err != nil {
		return delta.RowSource{}, nil, err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return delta.RowSource{}, nil, tableError(source, err)
	}
	return snap.Source(nil), func() {}, nil
}

// isLines reports whether a source is JSON lines by its name.
func isLines(source string) bool {
	for _, end := range []string{".jsonl", ".ndjson", ".json"} {
		if strings.HasSuffix(strings.ToLower(source), end) {
			return true
		}
	}
	return source == "-"
}
