package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/delta"
)

func (c *cli) tableDiff() *cobra.Command {
	var from, to int64
	var output string
	cmd := &cobra.Command{
		Use:   "diff TABLE --from VERSION",
		Short: "What differs between two versions of a table",
		Long: `Compare two versions of a table by its log: columns, properties, what readers and writers must understand, files and
rows. No data file is read; table changes prints the rows themselves.

Of columns and properties + stands for what is new, - for what is gone and ~ for what has changed.`,
		Example: `  freshet table diff ./lake/orders --from 12
  freshet table diff bronze.orders --from 12 --to 20 -o json | jq .rows`,
		Args: args(1, 1, "one TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 {
				return usageError("--from is missing", "look for versions with `freshet table history`")
			}
			old, err := c.snapshot(cmd.Context(), args[0], at{version: from})
			if err != nil {
				return err
			}
			fresh, err := c.snapshot(cmd.Context(), args[0], at{version: to})
			if err != nil {
				return err
			}
			r, err := diffRecord(cmd.Context(), old, fresh)
			if err != nil {
				return tableError(args[0], err)
			}
			return c.describe(output, r)
		},
	}
	versionFlag(cmd, &from, "from", "the version to compare with")
	versionFlag(cmd, &to, "to", "the version that is compared (default: the newest)")
	c.outputFlag(cmd, &output)
	return cmd
}

// difference is a line of what is new (+), gone (-) or changed (~).
func difference(old, fresh map[string]string) []string {
	lines := []string{}
	names := maps.Clone(old)
	maps.Copy(names, fresh)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, had := old[name]
		is, has := fresh[name]
		switch {
		case !had:
			lines = append(lines, "+ "+strings.TrimSpace(name+" "+is))
		case !has:
			lines = append(lines, "- "+strings.TrimSpace(name+" "+was))
		case was != is:
			lines = append(lines, fmt.Sprintf("~ %s %s, was %s", name, is, was))
		}
	}
	return lines
}

func columnTexts(s *delta.Snapshot) map[string]string {
	texts := map[string]string{}
	for _, f := range s.Schema().Fields {
		texts[f.Name] = strings.TrimPrefix(columnText(f), f.Name+" ")
	}
	return texts
}

func propertyTexts(s *delta.Snapshot) map[string]string {
	texts := map[string]string{}
	for name, value := range s.Metadata().Configuration {
		texts[name] = "= " + value
	}
	return texts
}

func featureTexts(s *delta.Snapshot) map[string]string {
	p := s.Protocol()
	texts := map[string]string{"reader": fmt.Sprint(p.MinReaderVersion), "writer": fmt.Sprint(p.MinWriterVersion)}
	for _, name := range slices.Concat(p.ReaderFeatures, p.WriterFeatures) {
		texts["feature "+name] = ""
	}
	return texts
}

// diffRecord compares two versions. Memory: a key for each file of the old one.
func diffRecord(ctx context.Context, old, fresh *delta.Snapshot) (record, error) {
	var was, is, added, removed sums
	files := map[string]*delta.Add{}
	for f, err := range old.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		rows := statsRows(f.Stats)
		was.add(f, rows)
		kept := &delta.Add{Size: f.Size, DeletionVector: f.DeletionVector}
		if n, ok := rows.(int64); ok {
			kept.Stats = fmt.Sprintf(`{"numRecords":%d}`, n)
		}
		files[f.Path] = kept
	}
	marked := int64(0)
	for f, err := range fresh.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		rows := statsRows(f.Stats)
		is.add(f, rows)
		before := files[f.Path]
		delete(files, f.Path)
		switch {
		case before == nil:
			added.add(f, rows)
		case vectorOf(before) != vectorOf(f):
			marked++
		}
	}
	for _, f := range files {
		removed.add(f, statsRows(f.Stats))
	}
	return diffFields(old, fresh, &was, &is, &added, &removed, marked), nil
}

func diffFields(old, fresh *delta.Snapshot, was, is, added, removed *sums, marked int64) record {
	list := func(name string, lines []string) field {
		return field{name: name, value: lines, text: orDash(strings.Join(lines, "\n"))}
	}
	count := func(name string, was, is int64, text func(int64) string) field {
		return field{name: name, value: map[string]int64{"from": was, "to": is},
			text: fmt.Sprintf("%s → %s", text(was), text(is))}
	}
	return record{
		{name: "from", value: old.Version()}, {name: "to", value: fresh.Version()},
		list("columns", difference(columnTexts(old), columnTexts(fresh))),
		list("properties", difference(propertyTexts(old), propertyTexts(fresh))),
		list("protocol", difference(featureTexts(old), featureTexts(fresh))),
		count("rows", was.rows, is.rows, number), count("files", was.files, is.files, number),
		count("bytes", was.bytes, is.bytes, bytesText), count("deleted_rows", was.deleted, is.deleted, number),
		{name: "files_added", value: added.files, text: filesText(added)},
		{name: "files_removed", value: removed.files, text: filesText(removed)},
		{name: "files_marked", value: marked},
	}
}

func filesText(s *sums) string {
	if s.files == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, %s, %s", number(s.files), plural(s.rows, "row"), bytesText(s.bytes))
}

// vectorOf is the deletion vector of a file as text.
func vectorOf(f *delta.Add) string {
	v := f.DeletionVector
	if v == nil {
		return ""
	}
	offset := int32(0)
	if v.Offset != nil {
		offset = *v.Offset
	}
	return fmt.Sprintf("%s%s@%d", v.StorageType, v.PathOrInlineDv, offset)
}
