package delta

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// fileLayout is how the data files of a table are laid out: which columns they hold, under which names, and what their
// add actions tell.
type fileLayout struct {
	schema     *Schema
	mapping    mapping
	columns    []parquet.Column // of the files
	data       []int            // their places in the schema; places after its end are those of extras
	partitions []int            // the places of the partition columns in the schema
	names      []string         // of the partition columns, physical
	types      []Type           // of the partition columns
	extras     []string         // columns of batches that are no columns of the table
	counted    int              // columns, from the first on, that may have statistics
	codec      parquet.Codec
	rules      statsRules
	prefix     int    // characters of the random folder that files lie in instead of that of their partition; 0: none
	folder     string // of all files: "", or "_change_data"
}

// newFileLayout says how files are laid out under this metadata. Errors: a type that cannot be written (variant; a struct
// of void only), a partition column that is no column of an atomic type, a property that cannot be obeyed.
func newFileLayout(m *Metadata, p *Protocol, opts *WriterOptions) (*fileLayout, error) {
	schema, err := ParseSchema(m.SchemaString)
	if err != nil {
		return nil, err
	}
	if err := checkPartitionColumns(schema, m.PartitionColumns); err != nil {
		return nil, err
	}
	l := &fileLayout{schema: schema, mapping: mappingOf(m.Configuration),
		rules: newStatsRules(m.Configuration, opts.ClusteredBy)}
	if l.codec, err = codecOf(m.Configuration); err != nil {
		return nil, err
	}
	if l.prefix, err = prefixOf(m, l.mapping); err != nil {
		return nil, err
	}
	for _, name := range m.PartitionColumns {
		f, i := schema.Lookup(name)
		l.partitions = append(l.partitions, i)
		l.names = append(l.names, l.mapping.physicalName(f))
		l.types = append(l.types, f.Type)
	}
	for i := range schema.Fields {
		if !slices.Contains(l.partitions, i) {
			if err := l.add(i); err != nil {
				return nil, err
			}
		}
	}
	if len(l.columns) == 0 {
		return nil, errors.New("the schema has no column that files could hold")
	}
	l.counted = len(l.columns)
	if m.materializesPartitions(p) && !opts.ChangeData {
		for _, i := range l.partitions {
			if err := l.add(i); err != nil {
				return nil, err
			}
		}
	}
	return l, l.addExtras(m, opts)
}

// add lays out the i-th column of the schema; a void column is left out of files.
func (l *fileLayout) add(i int) error {
	f := l.schema.Fields[i]
	if f.Type == Void {
		return nil
	}
	c, err := l.mapping.parquetColumn(f, f.Name)
	if err != nil {
		return err
	}
	l.columns, l.data = append(l.columns, c), append(l.data, i)
	return nil
}

// addExtras lays out what the options ask for beside the table's columns.
func (l *fileLayout) addExtras(m *Metadata, opts *WriterOptions) error {
	extra := func(column string, c parquet.Column) {
		l.columns, l.data = append(l.columns, c), append(l.data, len(l.schema.Fields)+len(l.extras))
		l.extras = append(l.extras, column)
	}
	if opts.RowIDs {
		for _, r := range []struct{ column, key string }{
			{RowIDColumn, materializedRowID}, {RowCommitVersionColumn, materializedRowCommitVersion},
		} {
			name := m.Configuration[r.key]
			if name == "" {
				return fmt.Errorf("row ids cannot be kept: the table property %s is not set; does the table track rows?",
					r.key)
			}
			extra(r.column, parquet.Column{Name: name, Kind: parquet.Int64, Nullable: true})
		}
	}
	if opts.ChangeData {
		l.folder = changeDataFolder
		extra(ChangeTypeColumn, parquet.Column{Name: ChangeTypeColumn, Kind: parquet.String})
	}
	return nil
}

// codecOf returns the codec that the table's properties ask for, zstd if they do not.
func codecOf(properties map[string]string) (parquet.Codec, error) {
	switch name := strings.ToLower(properties[propCodec]); name {
	case "", "zstd":
		return parquet.Zstd, nil
	case "snappy":
		return parquet.Snappy, nil
	case "gzip":
		return parquet.Gzip, nil
	case "none", "uncompressed":
		return parquet.Uncompressed, nil
	default:
		return 0, fmt.Errorf("property %s: found %q, wanted zstd, snappy, gzip or none", propCodec, name)
	}
}

// prefixOf is the length of the random folders of files, as Spark makes them: the folders of partitions would tell
// physical names, which mean nothing to people.
func prefixOf(m *Metadata, by mapping) (int, error) {
	if by == byName && !m.boolean("delta.randomizeFilePrefixes", false) {
		return 0, nil
	}
	n := int64(2)
	if text, set := m.Configuration["delta.randomPrefixLength"]; set {
		var ok bool
		if n, ok = m.int("delta.randomPrefixLength"); !ok || n > 32 {
			return 0, fmt.Errorf("property delta.randomPrefixLength: found %q, wanted a number from 1 to 32", text)
		}
	}
	return int(n), nil
}

// materializesPartitions reports whether files hold the partition columns, too. Spec: "Materialize Partition Columns".
func (m *Metadata) materializesPartitions(p *Protocol) bool {
	return len(m.PartitionColumns) > 0 && p.Supports("materializePartitionColumns")
}
