package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

const constraintPrefix = "delta.constraints." // of the properties that hold CHECK constraints

func (c *cli) tableProperty() *cobra.Command {
	return group("property", "A table's properties", "Look at the properties of a table, and set them.",
		c.propertyList(), c.propertySet(), c.propertyUnset())
}

func (c *cli) tableConstraint() *cobra.Command {
	return group("constraint", "What a table demands of its rows", "Look at what a table demands of its rows, and change it.",
		c.constraintList(), c.constraintAdd(), c.constraintDrop())
}

// listing is a command that lists what the newest version of a table, or an older one, has of something.
func (c *cli) listing(noun, short, long, example string, records func(*delta.Snapshot) []record) *cobra.Command {
	var a at
	var output string
	cmd := &cobra.Command{
		Use:     "list TABLE",
		Aliases: []string{"ls"},
		Short:   short,
		Long:    long,
		Example: example,
		Args:    args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			snap, err := c.snapshot(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			found := records(snap)
			if len(found) == 0 {
				c.say("%s has no %s", args[0], noun)
			}
			return c.list(output, found)
		},
	}
	a.add(cmd)
	c.outputFlag(cmd, &output)
	return cmd
}

func (c *cli) propertyList() *cobra.Command {
	return c.listing("properties", "A table's properties",
		"List the properties that a table has been given, by name. What is not listed has its default. CHECK constraints are "+
			"listed\nby table constraint list.",
		`  freshet table property list ./lake/orders
  freshet table property list bronze.orders -o json`, propertyRecords)
}

func propertyRecords(s *delta.Snapshot) (records []record) {
	properties := s.Metadata().Configuration
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !strings.HasPrefix(name, constraintPrefix) {
			records = append(records, record{{name: "name", value: name}, {name: "value", value: properties[name]}})
		}
	}
	return records
}

func (c *cli) constraintList() *cobra.Command {
	return c.listing("constraints", "What a table demands of its rows",
		`List what a table demands of its rows: CHECK constraints, columns that are NOT NULL, and invariants of columns, which old
versions of Spark knew.`,
		`  freshet table constraint list ./lake/orders
  freshet table constraint list bronze.orders -o jsonl`, constraintRecords)
}

func constraintRecords(s *delta.Snapshot) (records []record) {
	add := func(name, kind, rule string) {
		records = append(records, record{{name: "name", value: name}, {name: "kind", value: kind},
			{name: "rule", value: rule}})
	}
	properties := s.Metadata().Configuration
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if name, ok := strings.CutPrefix(key, constraintPrefix); ok {
			add(name, "check", properties[key])
		}
	}
	for _, f := range s.Schema().Fields {
		if !f.Nullable {
			add(f.Name, "not null", f.Name+" IS NOT NULL")
		}
		if text := invariantText(f); text != "" {
			add(f.Name, "invariant", text)
		}
	}
	return records
}

// invariantText is the expression of a column's invariant: {"expression":{"expression":"x > 3"}}.
func invariantText(f delta.Field) string {
	var nested struct {
		Expression struct {
			Expression string `json:"expression"`
		} `json:"expression"`
	}
	text, _ := fieldMetadata(f)["delta.invariants"].(string)
	if text != "" && json.Unmarshal([]byte(text), &nested) == nil {
		return nested.Expression.Expression
	}
	return text
}

// fieldMetadata is the metadata of a column; nil when it has none.
func fieldMetadata(f delta.Field) map[string]any {
	var meta map[string]any
	if len(f.Metadata) > 0 {
		_ = json.Unmarshal(f.Metadata, &meta) // the schema was parsed as JSON
	}
	return meta
}
