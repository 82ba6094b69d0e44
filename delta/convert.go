package delta

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// footersAtOnce is how many footers Convert reads side by side, and how many schemas it holds.
const footersAtOnce = 16

// ConvertOptions tune Convert. The zero value of each field means its default.
type ConvertOptions struct {
	// PartitionBy are the partition columns with their types, as the names of folders have them:
	// "day=2026-01-31". Default: found in the names of folders; all integers make a long, all dates a date,
	// anything else a string.
	PartitionBy []Field
	// Properties are the table's properties.
	Properties map[string]string
	// Name and Description are those of the table.
	Name, Description string
	// EngineInfo names the writer in commits. Default DefaultEngineInfo.
	EngineInfo string
	// NoStats leaves out the statistics that footers tell: readers will open every file.
	NoStats bool
	// DryRun finds out whether it can be done, and as what, and writes nothing.
	DryRun bool
	// Report is told of each file that was looked at, by one goroutine at a time. Default: nobody.
	Report func(files int64)
}

// Converted is what Convert found.
type Converted struct {
	Table       *Table // nil in a dry run
	Schema      *Schema
	PartitionBy []string
	Files       int64
	Bytes       int64
	Rows        int64
}

// Convert makes a Delta table of a folder of Parquet files, in place: no file is moved or written but the
// log. Files end with .parquet or .parq, others are left alone, as are names that begin with "_" or ".".
// Partition values come from folders "name=value". The schema is that of all files together: a column that
// some files lack is null there, types must agree, and every column may be null. Whoever adds files to the
// folder later has to do it through the table. Memory: names and statistics of the files, and the text of one
// commit that holds them. Errors: ErrTableExists, ErrCorrupt for a file that is no Parquet,
// *SchemaMismatchError wrapped with the file's name.
func Convert(ctx context.Context, st store.Store, opts *ConvertOptions) (*Converted, error) {
	c := &conversion{table: newTable(st, nil)}
	if opts != nil {
		c.opts = *opts
		c.table = newTable(st, &OpenOptions{EngineInfo: opts.EngineInfo})
	}
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("convert %s: %w", st.URL(), err)
	}
	return &c.result, nil
}

// conversion is one run of Convert.
type conversion struct {
	table  *Table
	opts   ConvertOptions
	files  []parquetInput
	result Converted

	mu   sync.Mutex
	done int64
}

// parquetInput is a file of the folder.
type parquetInput struct {
	object store.Object
	names  []string  // of partition columns
	values []*string // nil is null
	rows   int64
	stats  string
}

func (c *conversion) run(ctx context.Context) error {
	if _, err := c.table.load(ctx, latest); err == nil {
		return ErrTableExists
	} else if !errors.Is(err, ErrNoTable) {
		return err
	}
	if mode := c.opts.Properties[propColumnMapping]; mode != "" && mode != "none" {
		return errors.New("files have the names of their columns already: set " + propColumnMapping + " afterwards")
	}
	if err := c.list(ctx); err != nil {
		return err
	}
	columns, err := c.partitions()
	if err != nil {
		return err
	}
	if err := c.readFooters(ctx, columns); err != nil {
		return err
	}
	for _, f := range columns {
		c.result.PartitionBy = append(c.result.PartitionBy, f.Name)
	}
	if c.opts.DryRun {
		return nil
	}
	return c.commit(ctx)
}

// list finds the files.
func (c *conversion) list(ctx context.Context) error {
	for o, err := range c.table.st.List(ctx, "", "") {
		if err != nil {
			return err
		}
		parts := strings.Split(o.Key, "/")
		name := parts[len(parts)-1]
		if !strings.HasSuffix(name, ".parquet") && !strings.HasSuffix(name, ".parq") ||
			slices.ContainsFunc(parts, hiddenName) {
			continue
		}
		f := parquetInput{object: o}
		for _, part := range parts[:len(parts)-1] {
			column, value, ok := strings.Cut(part, "=")
			if !ok {
				continue
			}
			f.names = append(f.names, unescapeHive(column))
			if value = unescapeHive(value); value == nullPartition || value == "" {
				f.values = append(f.values, nil)
			} else {
				f.values = append(f.values, &value)
			}
		}
		c.files = append(c.files, f)
		c.result.Files++
		c.result.Bytes += o.Size
	}
	if len(c.files) == 0 {
		return errors.New("found no file that ends with .parquet")
	}
	return nil
}

func hiddenName(part string) bool {
	return (strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".")) && !strings.Contains(part, "=")
}

// unescapeHive undoes escapeHive. A name that is not escaped well stands for itself.
func unescapeHive(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// partitions are the partition columns, which must be the same for all files.
func (c *conversion) partitions() ([]Field, error) {
	first := &c.files[0]
	for i := range c.files {
		if f := &c.files[i]; !slices.Equal(f.names, first.names) {
			return nil, fmt.Errorf("%s is in folders of the columns [%s], %s in those of [%s]: wanted the same for all",
				first.object.Key, strings.Join(first.names, ", "), f.object.Key, strings.Join(f.names, ", "))
		}
	}
	columns := c.opts.PartitionBy
	if columns == nil {
		for n, name := range first.names {
			columns = append(columns, Field{Name: name, Type: c.typeOf(n), Nullable: true})
		}
	}
	var names []string
	for _, f := range columns {
		names = append(names, f.Name)
	}
	if !slices.EqualFunc(names, first.names, strings.EqualFold) {
		return nil, fmt.Errorf("the partition columns are to be [%s], and the folders are those of [%s]",
			strings.Join(names, ", "), strings.Join(first.names, ", "))
	}
	for i := range c.files {
		for n, v := range c.files[i].values {
			arr, err := partitionArray(columns[n].Type, v, 1)
			if err != nil {
				return nil, fmt.Errorf("%s: column %q: %w", c.files[i].object.Key, columns[n].Name, err)
			}
			arr.Release()
		}
	}
	return columns, nil
}

var (
	wholeNumber = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,17})$`)
	plainDate   = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
)

// typeOf is what the values of the n-th partition column look like. Numbers with leading zeros are none,
// since they would not come back as they are.
func (c *conversion) typeOf(n int) Type {
	some, numbers, dates := false, true, true
	for i := range c.files {
		v := c.files[i].values[n]
		if v == nil {
			continue
		}
		some = true
		numbers = numbers && wholeNumber.MatchString(*v)
		_, err := time.Parse(time.DateOnly, *v)
		dates = dates && err == nil && plainDate.MatchString(*v)
	}
	switch {
	case some && numbers:
		return Long
	case some && dates:
		return Date
	}
	return String
}

// readFooters fills in what the files say of themselves, and makes the table's schema of theirs: the columns
// of all files in the order in which they appear, then those of the partitioning. A column of a file that has
// the name of one of these is passed over: the folder counts.
func (c *conversion) readFooters(ctx context.Context, partitions []Field) error {
	all := &Schema{}
	for files := range slices.Chunk(c.files, footersAtOnce) {
		schemas := make([]*Schema, len(files))
		group, gctx := errgroup.WithContext(ctx)
		for i := range files {
			group.Go(func() (err error) {
				if schemas[i], err = files[i].read(gctx, c.table.st, !c.opts.NoStats); err != nil {
					return fmt.Errorf("%s: %w", files[i].object.Key, err)
				}
				c.count()
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i := range files {
			c.result.Rows += files[i].rows
			merged, _, err := all.Merge(schemas[i])
			if err != nil {
				return fmt.Errorf("%s: %w", files[i].object.Key, err)
			}
			all = merged
		}
	}
	for _, p := range partitions {
		if old, i := all.Lookup(p.Name); old != nil {
			all.Fields = slices.Delete(slices.Clone(all.Fields), i, i+1)
		}
		p.Nullable = true
		all.Fields = append(all.Fields, p)
	}
	c.result.Schema = all
	return all.Validate()
}

func (c *conversion) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done++; c.opts.Report != nil {
		c.opts.Report(c.done)
	}
}

// adds are the files as the table has them.
func (c *conversion) adds(yield func(*Add, error) bool) {
	for i := range c.files {
		f := &c.files[i]
		add := &Add{Path: encodePath(f.object.Key), Size: f.object.Size, Stats: f.stats, DataChange: true,
			ModificationTime: f.object.Modified.UnixMilli(), PartitionValues: map[string]*string{}}
		for n, v := range f.values {
			add.PartitionValues[c.result.PartitionBy[n]] = v
		}
		if !yield(add, nil) {
			return
		}
	}
}

func (c *conversion) commit(ctx context.Context) error {
	tx, err := c.table.creation(&CreateOptions{Schema: c.result.Schema, PartitionBy: c.result.PartitionBy,
		Properties: c.opts.Properties, Name: c.opts.Name, Description: c.opts.Description})
	if err != nil {
		return err
	}
	tx.stream = c.adds
	tx.Operation("CONVERT", map[string]string{"numFiles": strconv.FormatInt(c.result.Files, 10),
		"partitionedBy": jsonList(c.result.PartitionBy), "collectStats": strconv.FormatBool(!c.opts.NoStats),
		"sourceFormat": "parquet"}, map[string]string{"numConvertedFiles": strconv.FormatInt(c.result.Files, 10)})
	if err := tx.validate(); err != nil {
		return err
	}
	if err := (&committer{tx: tx, deadline: time.Now().Add(tx.opts.Deadline)}).create(ctx); err != nil {
		return err
	}
	c.result.Table = c.table
	return nil
}
