package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/spec"
)

// schemaArgument is the schema that --schema gives: columns as CREATE TABLE has them, Spark's JSON, or @FILE with either.
func schemaArgument(flag, text string) (*delta.Schema, error) {
	if path, ok := strings.CutPrefix(text, "@"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, usageError(flag+": "+err.Error(), "")
		}
		text = string(data)
	}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		s, err := delta.ParseSchema(text)
		if err != nil {
			return nil, usageError(flag+": "+err.Error(), "wanted the schema as `freshet table schema -o delta` prints it")
		}
		return s, nil
	}
	columns, err := columnDefinitions(flag, text)
	schema := &delta.Schema{}
	for _, c := range columns {
		if c.Parent != "" {
			return nil, usageError(fmt.Sprintf("%s: found the column %s.%s, whose name has a dot", flag, c.Parent, c.Field.Name),
				"give its struct a type such as STRUCT<a: INT>, or put the name between backticks")
		}
		schema.Fields = append(schema.Fields, c.Field)
	}
	return schema, err
}

// columnDefinitions reads `id BIGINT NOT NULL, day DATE GENERATED ALWAYS AS (CAST(ts AS DATE)) COMMENT 'of the sale'`.
func columnDefinitions(flag, text string) (columns []delta.NewColumn, err error) {
	for _, part := range splitSQL(text, ',') {
		c, err := columnDefinition(strings.TrimSpace(part))
		if err != nil {
			return nil, usageError(fmt.Sprintf("%s: %q: %v", flag, strings.TrimSpace(part), err),
				"wanted NAME TYPE [NOT NULL] [DEFAULT …] [GENERATED ALWAYS AS (…)] [COMMENT '…']")
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// clause is a part of a column's definition that begins with a keyword.
type clause struct {
	keyword string // in capitals
	text    string // what follows
}

var clauseWords = []string{"NOT NULL", "COMMENT", "DEFAULT", "GENERATED", "NULL"}

func columnDefinition(text string) (column delta.NewColumn, err error) {
	parent, name, rest, err := columnName(text)
	if err != nil {
		return column, err
	}
	typeText, clauses := clausesOf(rest)
	if typeText == "" {
		return column, fmt.Errorf("found no type")
	}
	meta := map[string]any{}
	if sized.MatchString(typeText) {
		meta[sizedKey] = strings.ToLower(strings.Join(strings.Fields(typeText), ""))
		typeText = "string"
	}
	c, err := spec.ParseColumn(typeText)
	if err != nil {
		return column, err
	}
	s, err := delta.SchemaFromArrow(arrow.NewSchema([]arrow.Field{{Name: "column", Type: c.Type, Nullable: true}}, nil))
	if err != nil {
		return column, err
	}
	column = delta.NewColumn{Parent: parent, Field: delta.Field{Name: name, Type: s.Fields[0].Type, Nullable: true}}
	for _, cl := range clauses {
		if err := cl.apply(&column.Field, meta); err != nil {
			return column, err
		}
	}
	if len(meta) > 0 {
		column.Field.Metadata, err = json.Marshal(meta)
	}
	return column, err
}

// sized are the types of strings of a length, which the schema has as strings; sizedKey is where the metadata of a
// column keeps them.
var sized = regexp.MustCompile(`(?i)^(var)?char\s*\(\s*\d+\s*\)$`)

const sizedKey = "__CHAR_VARCHAR_TYPE_STRING"

// typeText is the type of a column as SQL has it.
func typeText(f delta.Field) string {
	if text := textOf(fieldMetadata(f)[sizedKey]); text != "" {
		return text
	}
	return f.Type.String()
}

// columnName divides a definition behind the column's name: `address.zip STRING` is of a field of the struct address. A
// name between backticks may have dots.
func columnName(text string) (parent, name, rest string, err error) {
	quoted, end, dot := false, -1, -1
	for i := 0; i < len(text) && end < 0; i++ {
		switch {
		case text[i] == '`':
			quoted = !quoted
		case quoted:
		case text[i] == '.':
			dot = i
		case strings.IndexByte(" \t\r\n:", text[i]) >= 0:
			end = i
		}
	}
	if quoted {
		return "", "", "", fmt.Errorf("the name's backtick is not closed")
	}
	if end < 0 || dot == 0 || dot == end-1 {
		return "", "", "", fmt.Errorf("found %q, wanted a name and a type", text)
	}
	name = text[dot+1 : end]
	if bare, ok := strings.CutPrefix(name, "`"); ok {
		name = strings.ReplaceAll(strings.TrimSuffix(bare, "`"), "``", "`")
	}
	rest = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text[end:]), ":"))
	return text[:max(dot, 0)], name, rest, nil
}

// clausesOf divides what follows a column's name into its type and the clauses.
func clausesOf(text string) (typeText string, clauses []clause) {
	var at []int
	var words []string
	next := 0
	eachTop(text, func(i int) bool {
		if i < next {
			return true
		}
		for _, w := range clauseWords {
			first, second, two := strings.Cut(w, " ")
			if !keywordAt(text, i, first) || w == "NULL" && slices.Contains(words, "DEFAULT") ||
				w == "DEFAULT" && len(at) > 0 && strings.EqualFold(strings.TrimSpace(text[at[len(at)-1]:i]), "BY") {
				continue
			}
			end := i + len(first)
			if two {
				end += len(text[end:]) - len(strings.TrimLeft(text[end:], " \t\r\n"))
				if !keywordAt(text, end, second) {
					continue
				}
				end += len(second)
			}
			at, words, next = append(at, i, end), append(words, w), end
			return true
		}
		return true
	})
	if len(at) == 0 {
		return strings.TrimSpace(text), nil
	}
	for n, w := range words {
		end := len(text)
		if 2*n+2 < len(at) {
			end = at[2*n+2]
		}
		clauses = append(clauses, clause{w, strings.TrimSpace(text[at[2*n+1]:end])})
	}
	return strings.TrimSpace(text[:at[0]]), clauses
}

var generation = regexp.MustCompile(`(?is)^ALWAYS\s+AS\s*\((.*)\)$`)

func (cl clause) apply(f *delta.Field, meta map[string]any) error {
	switch cl.keyword {
	case "NOT NULL", "NULL":
		f.Nullable = cl.keyword == "NULL"
		if cl.text != "" {
			return fmt.Errorf("found %q behind %s", cl.text, cl.keyword)
		}
	case "COMMENT":
		n := len(cl.text)
		if n < 2 || cl.text[0] != '\'' && cl.text[0] != '"' || cl.text[n-1] != cl.text[0] {
			return fmt.Errorf("COMMENT: found %s, wanted a text between quotes", cl.text)
		}
		quote := cl.text[:1]
		meta["comment"] = strings.ReplaceAll(cl.text[1:n-1], quote+quote, quote)
	case "DEFAULT":
		if cl.text == "" {
			return fmt.Errorf("DEFAULT: found no expression")
		}
		meta["CURRENT_DEFAULT"] = cl.text
	case "GENERATED":
		if m := generation.FindStringSubmatch(cl.text); m != nil {
			meta["delta.generationExpression"] = strings.TrimSpace(m[1])
			return nil
		}
		return identity(cl.text, meta)
	}
	return nil
}

var identityText = regexp.MustCompile(`(?is)^(ALWAYS|BY\s+DEFAULT)\s+AS\s+IDENTITY\s*(?:\(\s*(?:START\s+WITH\s+(-?\d+))?` +
	`\s*,?\s*(?:INCREMENT\s+BY\s+(-?\d+))?\s*\))?$`)

// identity reads `BY DEFAULT AS IDENTITY (START WITH 100 INCREMENT BY 10)`.
func identity(text string, meta map[string]any) error {
	m := identityText.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("found GENERATED %s, wanted ALWAYS AS (EXPRESSION), or ALWAYS or BY DEFAULT AS IDENTITY "+
			"(START WITH 1 INCREMENT BY 1)", text)
	}
	number := func(text string) json.Number {
		if text == "" {
			return "1"
		}
		return json.Number(text)
	}
	meta["delta.identity.start"], meta["delta.identity.step"] = number(m[2]), number(m[3])
	meta["delta.identity.allowExplicitInsert"] = !strings.EqualFold(m[1], "always")
	return nil
}
