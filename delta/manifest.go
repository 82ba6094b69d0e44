package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// manifestFolder holds the manifests that Presto, Athena and others read tables by. Spark's name.
const manifestFolder = "_symlink_format_manifest/"

// ErrDeletionVectors says that files of the table have rows that only readers of deletion vectors know are gone.
var ErrDeletionVectors = errors.New("the table has deletion vectors")

// GenerateManifest writes, for engines that read Parquet folders by symlink manifests (Hive's SymlinkTextInputFormat),
// which files belong to the newest version: one file "manifest" a partition below _symlink_format_manifest, with the
// absolute path of a data file a line. Manifests of partitions that are empty by now are deleted. A reader of several
// partitions may see one of them older than another while they are written. It returns how many manifests there are.
// Errors: ErrDeletionVectors, since such a reader would see deleted rows; *UnsupportedError for column mapping, whose
// names it does not know.
func (t *Table) GenerateManifest(ctx context.Context) (int, error) {
	manifests, err := t.manifests(ctx)
	if err != nil {
		return 0, fmt.Errorf("generate manifests of %s: %w", t.st.URL(), err)
	}
	for _, key := range sortedNames(manifests) {
		body := strings.Join(manifests[key], "\n") + "\n"
		if len(manifests[key]) == 0 {
			body = ""
		}
		if err := t.st.Put(ctx, key, []byte(body)); err != nil {
			return 0, fmt.Errorf("generate manifests of %s: %w", t.st.URL(), err)
		}
	}
	var stale []string
	for o, err := range t.st.List(ctx, manifestFolder, "") {
		if err != nil {
			return 0, fmt.Errorf("generate manifests of %s: %w", t.st.URL(), err)
		}
		if _, ok := manifests[o.Key]; !ok && strings.HasSuffix(o.Key, "/manifest") {
			stale = append(stale, o.Key)
		}
	}
	if err := t.deleteAll(ctx, stale); err != nil {
		return 0, fmt.Errorf("generate manifests of %s: %w", t.st.URL(), err)
	}
	return len(manifests), nil
}

// manifests are the paths of data files by the key of their manifest. A table without partitions has one, also when it
// is empty.
func (t *Table) manifests(ctx context.Context) (map[string][]string, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if mode := snap.Property(propColumnMapping); mode != "" && mode != "none" {
		return nil, &UnsupportedError{Feature: "column mapping by " + mode + ", whose names symlink manifests do not tell"}
	}
	columns := snap.PartitionColumns()
	all := map[string][]string{}
	if len(columns) == 0 {
		all[manifestFolder+"manifest"] = nil
	}
	for a, err := range snap.Files(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if a.DeletionVector != nil {
			return nil, fmt.Errorf("%w, as %s has: rewrite such files first, by an OPTIMIZE that leaves no deleted rows",
				ErrDeletionVectors, a.Path)
		}
		folder := ""
		if len(columns) > 0 {
			values := make([]*string, len(columns))
			for i, c := range columns {
				values[i] = a.PartitionValues[c]
			}
			folder = partitionFolder(columns, values) + "/"
		}
		key := manifestFolder + folder + "manifest"
		all[key] = append(all[key], t.fileURL(a.Path))
	}
	for _, files := range all {
		slices.Sort(files)
	}
	return all, nil
}

// fileURL is where a file of the log lies, not encoded.
func (t *Table) fileURL(path string) string {
	key, inside := t.within(path)
	if inside {
		return rootOf(t.st.URL()) + "/" + key
	}
	return key
}
