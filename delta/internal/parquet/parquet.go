// Package parquet writes Parquet files from Arrow arrays, for the one shape that Delta tables need, and reads the column
// chunks of any writer's.
//
// Files are written with data pages of version 1 that have checksums, PLAIN and dictionary encoding, one codec a file,
// min/max/null counts a column chunk. The writer is there because it is two to three times faster than a general one: it
// takes rows by index (so that a batch is split by partition without a copy), keeps one scratch for all columns, decides
// on a dictionary after a few thousand values, and gathers the statistics of the log in the loop that encodes.
//
// A ColumnReader makes values and levels of a chunk's pages, of all rows or of some, whatever the encoding; what they are
// and where chunks lie, the caller knows from the footer.
//
// Guarantees of writing: rows keep their order; pages begin at row boundaries; a file whose Close returned nil holds
// exactly the appended rows. Memory: Buffered bytes, a row group at most. Of reading: checksums are verified, damage is an
// error, and memory is what the caller allows.
//
// Non-goals: reading footers; writing nanoseconds, INT96, page indexes, bloom filters; encryption.
//
//	w := parquet.NewWriter(file, []parquet.Column{{Name: "id", Kind: parquet.Int64}}, nil)
//	err := w.Append([]arrow.Array{ids}, parquet.AllRows(ids.Len()))
//	err = w.Close()
//
// Spec: https://parquet.apache.org/docs/file-format/ and parquet.thrift.
package parquet

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
)

// Kind is what a column holds.
type Kind uint8

// The kinds, with the Arrow arrays that Append takes for them.
const (
	Boolean      Kind = iota // Boolean
	Int8                     // Int8
	Int16                    // Int16
	Int32                    // Int32
	Int64                    // Int64
	Float                    // Float32
	Double                   // Float64
	Decimal                  // Decimal128
	String                   // String, LargeString
	Binary                   // Binary, LargeBinary
	Date                     // Date32
	Timestamp                // Timestamp in µs: an instant
	TimestampNTZ             // Timestamp in µs: a wall clock
	Struct                   // Struct; children are matched by name, case ignored
	List                     // List, LargeList; one child
	Map                      // Map; two children, the first never null
)

// Column is one column, or one node below a nested column.
type Column struct {
	Name             string
	From             string // the name of the field of an Arrow struct that it is taken from; "" when it is Name
	Kind             Kind
	Nullable         bool
	FieldID          int32 // 0: none
	Precision, Scale int   // of a Decimal
	Children         []Column
}

// Source is the name of the field of an Arrow struct that the column is taken from.
func (c *Column) Source() string {
	if c.From != "" {
		return c.From
	}
	return c.Name
}

// Options tune a Writer; the zero value of each field means its default.
type Options struct {
	Codec     Codec   // default Zstd
	PageBytes int     // size of a page's values from which it is closed; default 512 KiB
	DictBytes int     // size of a dictionary from which a column goes on without it; default 1 MiB
	Shared    *Shared // with other files of the same columns and codec; nil to share nothing
}

// Shared is what files of the same columns and codec that one goroutine writes have in common: the compressor, room to
// work in, and which columns did not gain from a dictionary.
type Shared struct {
	codec   *compressor
	blocks  blocks
	nodes   []nodeScratch
	scratch scratch
	header  []byte
	skip    []uint8 // by leaf: chunks that still go without trying a dictionary
	ways    []way   // by leaf, of data pages and of dictionaries
}

// Writer writes one file. It is used by one goroutine.
type Writer struct {
	dst  io.Writer
	opts Options
	*Shared
	roots  []*node
	leaves []*leaf
	groups []rowGroup
	footer []byte

	offset    int64 // bytes written to dst
	rows      int64 // of the closed row groups
	groupRows int64
}

// NewWriter begins a file on dst. Nothing is written before the first row group is full.
func NewWriter(dst io.Writer, columns []Column, opts *Options) *Writer {
	w := &Writer{dst: dst}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.PageBytes <= 0 {
		w.opts.PageBytes = 512 << 10
	}
	if w.opts.DictBytes <= 0 {
		w.opts.DictBytes = 1 << 20
	}
	if w.Shared = w.opts.Shared; w.Shared == nil {
		w.Shared = &Shared{}
	}
	if w.codec == nil {
		w.codec = newCompressor(w.opts.Codec)
	}
	count := 0
	for i := range columns {
		w.roots = append(w.roots, w.newNode(&columns[i], nil, 0, 0, true, &count))
	}
	if w.skip == nil {
		w.nodes, w.skip, w.ways = make([]nodeScratch, count), make([]uint8, len(w.leaves)), make([]way, 2*len(w.leaves))
	}
	return w
}

// Reset makes a closed or abandoned writer begin another file of the same columns on dst, with its buffers kept.
func (w *Writer) Reset(dst io.Writer) {
	w.dst, w.offset, w.rows, w.groupRows = dst, 0, 0, 0
	w.groups, w.footer = nil, nil
	for _, l := range w.leaves {
		l.pages.release(&w.blocks)
		l.resetChunk()
	}
	for _, n := range w.roots {
		n.resetStats()
	}
}

// AllRows returns the indices of a batch's first n rows in order.
func AllRows(n int) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	return rows
}

// chunkRows bounds the rows that pass through the scratch at once, so that it stays in the cache.
const chunkRows = 8192

// Append adds the rows of the arrays that have these indices, in this order. There is one array a column; nil stands
// for a column of nulls. After an error the file is unusable. Errors: an array of the wrong type; a null in a column
// that may not have one.
func (w *Writer) Append(columns []arrow.Array, rows []int32) error {
	if len(columns) != len(w.roots) {
		return fmt.Errorf("parquet: %d arrays for %d columns", len(columns), len(w.roots))
	}
	step := w.chunkOf(columns)
	for len(rows) > 0 {
		n := min(step, len(rows))
		if err := w.appendChunk(columns, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// chunkOf returns the rows of a chunk: fewer where rows are large, so that pages do not grow far beyond their size.
func (w *Writer) chunkOf(columns []arrow.Array) int {
	var bytes, rows int
	for _, c := range columns {
		if c != nil {
			bytes += int(c.Data().SizeInBytes())
			rows = c.Len()
		}
	}
	if rows == 0 {
		return chunkRows
	}
	return min(max(4<<20/(bytes/rows+1), 1), chunkRows)
}

func (w *Writer) appendChunk(columns []arrow.Array, rows []int32) error {
	for i, n := range w.roots {
		if err := w.walk(n, columns[i], levels{idx: rows, alive: len(rows)}); err != nil {
			return fmt.Errorf("parquet: column %q: %w", n.col.Name, err)
		}
	}
	w.groupRows += int64(len(rows))
	for _, l := range w.leaves {
		if err := l.afterChunk(w); err != nil {
			return err
		}
	}
	return nil
}

// Shrink gives the memory of empty buffers back. It is for after a FlushRowGroup, where memory is short.
func (w *Writer) Shrink() {
	for _, l := range w.leaves {
		l.shrink()
	}
}

// Rows is the number of rows appended.
func (w *Writer) Rows() int64 { return w.rows + w.groupRows }

// GroupRows is the number of rows in the row group that is being filled.
func (w *Writer) GroupRows() int64 { return w.groupRows }

// Written is the number of bytes that went to the destination.
func (w *Writer) Written() int64 { return w.offset }

// Held is the memory that is set aside for the row group, used or not.
func (w *Writer) Held() int64 {
	var n int64
	for _, l := range w.leaves {
		n += l.held()
	}
	return n
}

// Buffered is the size of what waits in memory for the row group to be written.
func (w *Writer) Buffered() int64 {
	var n int64
	for _, l := range w.leaves {
		n += l.buffered()
	}
	return n
}

// Estimate is about the size that the file would have if it were closed now.
func (w *Writer) Estimate() int64 {
	n := w.offset
	for _, l := range w.leaves {
		n += l.estimate()
	}
	return n
}

// FlushRowGroup writes the row group that is being filled, if it has rows, and begins another.
func (w *Writer) FlushRowGroup() error {
	if w.groupRows == 0 {
		return nil
	}
	if w.offset == 0 {
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
	}
	g := rowGroup{rows: w.groupRows, offset: w.offset}
	for _, l := range w.leaves {
		c, err := l.finish(w)
		if err != nil {
			return fmt.Errorf("parquet: column %q: %w", l.path, err)
		}
		g.chunks = append(g.chunks, c)
		g.raw += c.raw
		g.compressed += c.compressed
	}
	w.groups = append(w.groups, g)
	w.rows += w.groupRows
	w.groupRows = 0
	return nil
}

// Close writes the last row group and the footer. It does not close the destination.
func (w *Writer) Close() error {
	if err := w.FlushRowGroup(); err != nil {
		return err
	}
	if w.offset == 0 {
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
	}
	w.footer = w.appendFooter(nil)
	return w.write(appendTail(w.footer))
}

// Footer is the file's metadata as Close wrote it, without length and magic.
func (w *Writer) Footer() []byte { return w.footer }

// writePages writes and releases the pages.
func (w *Writer) writePages(pages *chain) error {
	before := w.offset
	for _, p := range pages.parts {
		if err := w.write(p); err != nil {
			return err
		}
	}
	if w.offset-before != int64(pages.size) {
		return io.ErrShortWrite
	}
	pages.release(&w.blocks)
	return nil
}

func (w *Writer) write(b []byte) error {
	n, err := w.dst.Write(b)
	w.offset += int64(n)
	return err
}
