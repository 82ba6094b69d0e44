package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/store"
)

// WriterOptions tune a Writer. The zero value of each field means its default.
type WriterOptions struct {
	// TargetFileBytes is the size from which a data file is closed and a new one begun. Default 128 MiB.
	TargetFileBytes int64
	// RowGroupRows bounds the rows of a row group. Default 1,048,576.
	RowGroupRows int64
	// RowGroupBytes bounds the encoded bytes of a row group, which are held in memory until it is full.
	// Default 32 MiB.
	RowGroupBytes int64
	// MaxOpenFiles bounds the partitions that are written at once; when one more is needed, the largest file is
	// closed. Default 64.
	MaxOpenFiles int
	// MemoryBytes bounds what all open files and their uploads hold in memory together; when it is exceeded, the fullest
	// file writes its rows out, or is closed where its upload holds most. Default 64 MiB.
	MemoryBytes int64
	// Buffers is memory that earlier writers used. Default: none, so that each writer makes its own.
	Buffers *Buffers
	// Properties are the table's properties (Metadata.Configuration). Those that concern data files are obeyed:
	// delta.dataSkippingNumIndexedCols, delta.dataSkippingStatsColumns, delta.dataSkippingStringPrefixLength,
	// delta.enableDeletionVectors, delta.parquet.compression.codec.
	Properties map[string]string
}

func (o *WriterOptions) withDefaults() WriterOptions {
	var r WriterOptions
	if o != nil {
		r = *o
	}
	if r.TargetFileBytes <= 0 {
		r.TargetFileBytes = 128 << 20
	}
	if r.RowGroupRows <= 0 {
		r.RowGroupRows = 1 << 20
	}
	if r.RowGroupBytes <= 0 {
		r.RowGroupBytes = 32 << 20
	}
	if r.MaxOpenFiles <= 0 {
		r.MaxOpenFiles = 64
	}
	if r.MemoryBytes <= 0 {
		r.MemoryBytes = 64 << 20
	}
	return r
}

// Writer writes rows as the data files of a table: Parquet with full statistics, one open file a partition. It makes
// no commit: the files that Close returns belong to the table once a Transaction has added them. It is used by one
// goroutine, and ends with Close or Abort.
type Writer struct {
	st         store.Store
	opts       WriterOptions
	schema     *Schema
	codec      parquet.Codec
	rules      statsRules
	kit        *kit             // nil after Close and Abort
	columns    []parquet.Column // of the files: the schema's columns but those of the partitioning
	data       []int            // their places in the schema
	partitions []int            // the places of the partition columns in the schema
	names      []string         // of the partition columns
	splitter   splitter
	matcher    matcher
	rows       []int32 // 0, 1, 2 …

	open   map[string]*dataFile // by folder
	adds   []Add
	keys   []string // of adds
	files  int
	count  int64 // rows
	closed int64 // bytes of adds
	failed error // the first error after which files may be broken
}

// NewWriter begins data files below the root of st, for a table of this schema and partitioning. Errors: a type that
// cannot be written (variant; a struct of void only), a partition column that is no column of an atomic type.
func NewWriter(st store.Store, schema *Schema, partitionColumns []string, opts *WriterOptions) (*Writer, error) {
	w := &Writer{st: st, schema: schema, opts: opts.withDefaults(), open: make(map[string]*dataFile)}
	if err := checkPartitionColumns(schema, partitionColumns); err != nil {
		return nil, fmt.Errorf("write data files: %w", err)
	}
	var err error
	if w.codec, err = codecOf(w.opts.Properties); err != nil {
		return nil, fmt.Errorf("write data files: %w", err)
	}
	w.rules = newStatsRules(w.opts.Properties)
	for _, name := range partitionColumns {
		f, i := schema.Lookup(name)
		w.partitions = append(w.partitions, i)
		w.names = append(w.names, f.Name)
		w.splitter.types = append(w.splitter.types, f.Type)
	}
	for i, f := range schema.Fields {
		if slices.Contains(w.partitions, i) || f.Type == Void {
			continue
		}
		c, err := parquetColumn(f, f.Name)
		if err != nil {
			return nil, fmt.Errorf("write data files: %w", err)
		}
		w.columns = append(w.columns, c)
		w.data = append(w.data, i)
	}
	if len(w.columns) == 0 {
		return nil, errors.New("write data files: the schema has no column that files could hold")
	}
	w.kit = w.opts.Buffers.take(w.columns, w.codec)
	return w, nil
}

// codecOf returns the codec that the table's properties ask for, zstd if they do not.
func codecOf(properties map[string]string) (parquet.Codec, error) {
	const key = "delta.parquet.compression.codec"
	switch name := strings.ToLower(properties[key]); name {
	case "", "zstd":
		return parquet.Zstd, nil
	case "snappy":
		return parquet.Snappy, nil
	case "gzip":
		return parquet.Gzip, nil
	case "none", "uncompressed":
		return parquet.Uncompressed, nil
	default:
		return 0, fmt.Errorf("property %s: found %q, wanted zstd, snappy, gzip or none", key, name)
	}
}

// Write appends the rows. Columns are matched by name, case ignored; a nullable column that rec lacks is null. Rec
// is not kept. Errors: *NullError and *SchemaMismatchError refuse the whole batch and leave the writer as it was; after
// any other error only Abort is possible.
func (w *Writer) Write(ctx context.Context, rec arrow.RecordBatch) error {
	if w.failed != nil {
		return w.failed
	}
	arrays, err := w.matcher.match(w.schema, rec)
	if err != nil {
		return err
	}
	for len(w.rows) < int(rec.NumRows()) {
		w.rows = append(w.rows, int32(len(w.rows)))
	}
	if err := w.write(ctx, arrays, int(rec.NumRows())); err != nil {
		w.failed = fmt.Errorf("write data files: %w", err)
		return w.failed
	}
	w.count += rec.NumRows()
	return nil
}

func (w *Writer) write(ctx context.Context, arrays []arrow.Array, n int) error {
	if n == 0 {
		return nil
	}
	data := pick(arrays, w.data)
	if len(w.partitions) == 0 {
		return w.append(ctx, part{rows: w.rows[:n]}, data)
	}
	for _, p := range w.splitter.split(pick(arrays, w.partitions), n) {
		if err := w.append(ctx, p, data); err != nil {
			return err
		}
	}
	return nil
}

func pick(arrays []arrow.Array, places []int) []arrow.Array {
	out := make([]arrow.Array, len(places))
	for i, at := range places {
		out[i] = arrays[at]
	}
	return out
}

// Rows is the number of rows written so far.
func (w *Writer) Rows() int64 { return w.count }

// Bytes estimates the size of all files so far, were they closed now.
func (w *Writer) Bytes() int64 {
	n := w.closed
	for _, f := range w.open {
		n += f.pages.Estimate()
	}
	return n
}

// Buffered is the number of bytes that open files hold in memory.
func (w *Writer) Buffered() int64 {
	var n int64
	for _, f := range w.open {
		n += f.buffered
	}
	return n
}

// Close finishes all files and returns one Add for each, none when no row was written. Each file's footer has been
// parsed and counted against the rows that went in. After an error, call Abort.
func (w *Writer) Close(ctx context.Context) ([]Add, error) {
	if w.failed != nil {
		return nil, w.failed
	}
	for _, folder := range sortedKeys(w.open) {
		if err := w.closeFile(ctx, w.open[folder]); err != nil {
			w.failed = fmt.Errorf("write data files: %w", err)
			return nil, w.failed
		}
	}
	w.end("it is closed")
	return w.adds, nil
}

// Abort drops what was written, closed files too. Files that were committed must not be aborted.
func (w *Writer) Abort(ctx context.Context) error {
	var faults []error
	for _, f := range w.open {
		faults = append(faults, f.sink.abort())
	}
	for _, key := range w.keys {
		faults = append(faults, w.st.Delete(ctx, key))
	}
	clear(w.open)
	w.adds, w.keys = nil, nil
	w.end("it was aborted")
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("drop data files: %w", err)
	}
	return nil
}

// end makes the writer refuse all further use.
func (w *Writer) end(why string) {
	if w.kit != nil {
		w.opts.Buffers.give(w.kit)
	}
	w.kit = nil
	w.failed = fmt.Errorf("write data files: the writer cannot be used any more: %s", why)
}

func sortedKeys(m map[string]*dataFile) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
