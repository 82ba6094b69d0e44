package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

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
	// ChangeData makes the files change data files: batches have a string column ChangeTypeColumn, files lie below
	// _change_data, and Changes returns them in place of adds.
	ChangeData bool
	// RowIDs says that batches may have the int64 columns RowIDColumn and RowCommitVersionColumn, which files keep:
	// rows that moved keep their ids. Null stands for the id that the place of the row gives it.
	RowIDs bool
	// ClusteredBy are the paths of the table's clustering columns, Snapshot.ClusteringColumns: files have statistics of
	// them whatever the properties say. Default: none.
	ClusteredBy []string
	// Trusted says that the rows come out of this table: values that are there are neither computed nor checked
	// (constraints, generated columns, identity columns, defaults).
	Trusted bool
	// KeepIdentity says that identity columns may have values in batches even where the table gives out all of them:
	// those of rows that were there before. Nulls among them are filled in.
	KeepIdentity bool
	// TruncateTimes has timestamps in nanoseconds cut to µs. Default: a row that has more than µs is a *ValueError.
	TruncateTimes bool
	// Places has the writer note where it puts each row, for Places: 12 bytes of memory a row.
	Places bool
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
	st       store.Store
	opts     WriterOptions
	layout   *fileLayout
	kit      *kit // nil after Close and Abort
	splitter splitter
	matcher  matcher
	rules    rowRules
	placer   *placer // nil: nobody asks
	rows     []int32 // 0, 1, 2 …
	first    int     // of the batch under way: the number of its first row

	open    map[string]*dataFile // by partition
	adds    []Add
	changes []CDC
	keys    []string // of adds and changes
	files   int
	count   int64 // rows
	closed  int64 // bytes of adds and changes
	failed  error // the first error after which files may be broken
}

// NewWriter begins data files below the root of st, for the table that m and p describe: its schema, partitioning,
// column mapping and properties. They are the snapshot's, or those of the commit that the files are for, and are not
// changed. On a disk files are durable once a commit through the same st is (store.CreateAhead). Errors: a type that cannot be written (variant; a struct of void only), a partition column that is no column
// of an atomic type, a property that cannot be obeyed; *UnsupportedError.
func NewWriter(st store.Store, m *Metadata, p *Protocol, opts *WriterOptions) (*Writer, error) {
	w := &Writer{st: st, opts: opts.withDefaults(), open: make(map[string]*dataFile)}
	if w.opts.Places {
		w.placer = &placer{}
	}
	var err error
	if w.layout, err = newFileLayout(m, p, &w.opts); err != nil {
		return nil, fmt.Errorf("write data files: %w", err)
	}
	if !w.opts.Trusted && !w.opts.ChangeData {
		if w.rules, err = newRowRules(m, p, w.layout.schema); err != nil {
			return nil, fmt.Errorf("write data files: %w", err)
		}
	}
	w.matcher.extras, w.matcher.coded = w.layout.extras, w.opts.Trusted
	w.matcher.fitter.truncate = w.opts.TruncateTimes
	w.splitter.types = w.layout.types
	w.kit = w.opts.Buffers.take(w.layout.columns, w.layout.codec)
	return w, nil
}

// Write appends the rows. Columns are matched by name, case ignored. A column that rec lacks has its default, is
// generated, or is null. Unsigned integers and timestamps of any unit become values of the column's type. Rec is not kept.
// Errors: *NullError, *ValueError, *ConstraintError and *SchemaMismatchError refuse the whole batch and leave the writer
// as it was; after any other error only Abort is possible.
func (w *Writer) Write(ctx context.Context, rec arrow.RecordBatch) error {
	if w.failed != nil {
		return w.failed
	}
	c, err := w.prepare(ctx, rec)
	if err != nil {
		return err
	}
	defer c.release()
	c.accept()
	return w.put(ctx, c.arrays, c.n)
}

func (w *Writer) put(ctx context.Context, arrays []arrow.Array, n int) error {
	for len(w.rows) < n {
		w.rows = append(w.rows, int32(len(w.rows)))
	}
	if err := w.write(ctx, arrays, n); err != nil {
		w.failed = fmt.Errorf("write data files: %w", err)
		return w.failed
	}
	w.count += int64(n)
	return nil
}

func (w *Writer) write(ctx context.Context, arrays []arrow.Array, n int) error {
	if n == 0 {
		return nil
	}
	w.first = w.placer.extend(n)
	data := pick(arrays, w.layout.data)
	if len(w.layout.partitions) == 0 {
		return w.append(ctx, part{rows: w.rows[:n]}, data)
	}
	for _, p := range w.splitter.split(pick(arrays, w.layout.partitions), n) {
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

// Close finishes all files and returns one Add for each, none when no row was written or when they are change data. Each
// file's footer has been parsed and counted against the rows that went in. After an error, call Abort.
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

// Changes are the files of change data, after Close. Spec: "Add CDC File".
func (w *Writer) Changes() []CDC { return w.changes }

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
	w.adds, w.changes, w.keys = nil, nil, nil
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
