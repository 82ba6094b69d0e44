package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

const smallFileBytes = 16 << 20 // files below are many opens for few rows

func (c *cli) tableStats() *cobra.Command {
	var a at
	var output string
	var partitions bool
	cmd := &cobra.Command{
		Use:   "stats TABLE",
		Short: "How much is in a table, by its log",
		Long: `Sum up a table at a version from its log alone: files, rows, bytes, small files (below 16 MiB), rows that deletion
vectors take out, partitions, and for each column its least and greatest value and its nulls. No data file is read.

The values of columns are bounds, since statistics cut long texts and count deleted rows, too; "files" says in how many files
a column has them. --partitions lists the partitions instead.`,
		Example: `  freshet table stats ./lake/orders
  freshet table stats ./lake/orders -o json | jq '.columns[] | select(.nulls > 0)'
  freshet table stats s3://acme/lake/orders --partitions -o csv`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			snap, err := c.snapshot(cmd.Context(), args[0], a)
			if err != nil {
				return err
			}
			t := newTally(snap)
			if err := t.addAll(cmd.Context()); err != nil {
				return tableError(args[0], err)
			}
			if partitions {
				return c.list(output, t.partitionRecords())
			}
			return c.printStats(output, t)
		},
	}
	a.add(cmd)
	cmd.Flags().BoolVar(&partitions, "partitions", false, "list the partitions")
	c.outputFlag(cmd, &output)
	return cmd
}

// sums are those of a group of files.
type sums struct {
	files, small, vectors, unknown int64 // unknown: files whose rows no statistics tell
	bytes, rows, deleted           int64
}

func (s *sums) add(f *delta.Add, rows any) {
	s.files++
	s.bytes += f.Size
	if f.Size < smallFileBytes {
		s.small++
	}
	n, ok := rows.(int64)
	if !ok {
		s.unknown++
	}
	if f.DeletionVector != nil {
		s.vectors++
		s.deleted += f.DeletionVector.Cardinality
		n = max(0, n-f.DeletionVector.Cardinality)
	}
	s.rows += n
}

func (s *sums) record() record {
	return record{
		{name: "files", value: s.files, text: number(s.files), right: true},
		{name: "bytes", value: s.bytes, text: bytesText(s.bytes), right: true},
		{name: "rows", value: s.rows, text: number(s.rows), right: true},
		{name: "deleted_rows", value: s.deleted, text: number(s.deleted), right: true},
		{name: "small_files", value: s.small, text: number(s.small), right: true},
		{name: "files_with_deletion_vector", value: s.vectors, text: number(s.vectors), right: true, wide: true},
		{name: "files_without_row_count", value: s.unknown, text: number(s.unknown), right: true, wide: true},
	}
}

// bounds are what statistics tell of a column.
type bounds struct {
	name      string
	typ       delta.Type
	path      []string // in statistics and partition values
	partition bool
	files     int64 // that have statistics of the column
	nulls     int64
	low, high any // text or json.Number; nil: unknown
}

// tally sums up the files of a snapshot.
type tally struct {
	snap       *delta.Snapshot
	all        sums
	partitions map[string]*sums // by their values as text
	columns    []*bounds
}

func newTally(snap *delta.Snapshot) *tally {
	t := &tally{snap: snap, partitions: map[string]*sums{}}
	mode := snap.Property("delta.columnMapping.mode")
	t.addColumns(snap.Schema().Fields, nil, nil, mode == "name" || mode == "id")
	return t
}

func (t *tally) addColumns(fields []delta.Field, names, path []string, mapped bool) {
	for _, f := range fields {
		inFiles := f.Name
		var meta struct {
			Name string `json:"delta.columnMapping.physicalName"`
		}
		if mapped && json.Unmarshal(f.Metadata, &meta) == nil && meta.Name != "" {
			inFiles = meta.Name
		}
		names, path := append(slices.Clone(names), f.Name), append(slices.Clone(path), inFiles)
		if s, ok := f.Type.(*delta.Struct); ok {
			t.addColumns(s.Fields, names, path, mapped)
			continue
		}
		t.columns = append(t.columns, &bounds{name: strings.Join(names, "."), typ: f.Type, path: path,
			partition: len(names) == 1 && slices.Contains(t.snap.PartitionColumns(), f.Name)})
	}
}

func (t *tally) addAll(ctx context.Context) error {
	for f, err := range t.snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return err
		}
		t.add(f)
	}
	return nil
}

func (t *tally) add(f *delta.Add) {
	rows := statsRows(f.Stats)
	t.all.add(f, rows)
	key := partitionText(f)
	if t.partitions[key] == nil {
		t.partitions[key] = &sums{}
	}
	t.partitions[key].add(f, rows)
	var stats struct {
		Min   map[string]any `json:"minValues"`
		Max   map[string]any `json:"maxValues"`
		Nulls map[string]any `json:"nullCount"`
	}
	d := json.NewDecoder(strings.NewReader(f.Stats))
	d.UseNumber()
	_ = d.Decode(&stats) // statistics that are no JSON tell nothing
	for _, b := range t.columns {
		if b.partition {
			b.addPartition(f, rows)
			continue
		}
		low, high, nulls := inside(stats.Min, b.path), inside(stats.Max, b.path), inside(stats.Nulls, b.path)
		b.take(low, high)
		if n, ok := nulls.(json.Number); ok {
			count, _ := n.Int64()
			b.nulls += count
		}
		if nulls != nil || low != nil {
			b.files++
		}
	}
}

// addPartition takes the value that all rows of a file have.
func (b *bounds) addPartition(f *delta.Add, rows any) {
	b.files++
	value := f.PartitionValues[b.path[0]]
	switch n, counted := rows.(int64); {
	case value != nil:
		b.take(*value, *value)
	case counted:
		b.nulls += n
	}
}

func (b *bounds) take(low, high any) {
	if low != nil && (b.low == nil || b.less(low, b.low)) {
		b.low = low
	}
	if high != nil && (b.high == nil || b.less(b.high, high)) {
		b.high = high
	}
}

// less compares two values of the column's type: numbers by value, times by the moment, all else by their text.
func (b *bounds) less(x, y any) bool {
	left, right := fmt.Sprint(x), fmt.Sprint(y)
	if b.typ == delta.String || b.typ == delta.Date || b.typ == delta.Binary {
		return left < right
	}
	if m, ok := exact(left); ok {
		if n, ok := exact(right); ok {
			return m.Cmp(n) < 0
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, left); err == nil {
		if u, err := time.Parse(time.RFC3339Nano, right); err == nil {
			return t.Before(u)
		}
	}
	return left < right
}

// exact is a number as it is written. Exponents, which cost memory, are those of floats.
func exact(text string) (*big.Rat, bool) {
	if !strings.ContainsAny(text, "eE/") {
		return new(big.Rat).SetString(text)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil, false
	}
	return new(big.Rat).SetFloat64(v), true
}

// inside is the value at a path of nested objects; nil when there is none.
func inside(object map[string]any, path []string) any {
	for _, name := range path[:len(path)-1] {
		object, _ = object[name].(map[string]any)
	}
	return object[path[len(path)-1]]
}

func partitionText(f *delta.Add) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(f.PartitionValues)) {
		value := "null"
		if v := f.PartitionValues[name]; v != nil {
			value = *v
		}
		parts = append(parts, name+"="+value)
	}
	return strings.Join(parts, " ")
}

func (t *tally) partitionRecords() (records []record) {
	for _, key := range slices.Sorted(maps.Keys(t.partitions)) {
		records = append(records, append(record{{name: "partition", value: key, text: orDash(key)}},
			t.partitions[key].record()...))
	}
	return records
}

func (t *tally) columnRecords() (records []record) {
	for _, b := range t.columns {
		r := record{{name: "column", value: b.name}, {name: "type", value: b.typ.String()},
			{name: "min", value: b.low}, {name: "max", value: b.high},
			{name: "nulls", value: b.nulls, text: number(b.nulls), right: true},
			{name: "files", value: b.files, text: number(b.files), right: true}}
		for i := 2; i < 4; i++ {
			if text := []rune(printable(plainText(r[i].value))); len(text) > widestCell/2 {
				r[i].text = string(text[:widestCell/2-1]) + "…"
			}
		}
		records = append(records, r)
	}
	return records
}

func (c *cli) printStats(output string, t *tally) error {
	columns := t.columnRecords()
	r := record{{name: "location", value: t.snap.Table().Store().URL()}, {name: "version", value: t.snap.Version()}}
	r = append(r, t.all.record()...)
	r = append(r, field{name: "partitions", value: int64(len(t.partitions)),
		text: number(int64(len(t.partitions)))})
	if output == "table" {
		if err := c.describe(output, r); err != nil {
			return err
		}
		fmt.Fprintln(c.out)
		return c.list(output, columns)
	}
	var objects []json.RawMessage
	for _, column := range columns {
		data, err := column.json()
		if err != nil {
			return err
		}
		objects = append(objects, data)
	}
	return c.describe(output, append(r, field{name: "columns", value: objects}))
}
