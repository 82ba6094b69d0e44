package delta

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/store"
)

// WriterOptions tune a Writer. The zero value of each field means its default.
type WriterOptions struct {
	// TargetFileBytes is the size from which a data file is closed and a new one begun. Default 128 MiB.
	TargetFileBytes int64
	// RowGroupRows bounds the rows of a row group. Default 1,048,576.
	RowGroupRows int
	// RowGroupBytes bounds the encoded bytes of a row group, which are held in memory until it is full.
	// Default 32 MiB.
	RowGroupBytes int64
	// MaxOpenFiles bounds the partitions that are written at once; when one more is needed, the largest file is closed.
	// Default 64.
	MaxOpenFiles int
	// MemoryBytes bounds what all open files hold in memory together; when it is exceeded, the fullest file writes its
	// rows out. Default 64 MiB.
	MemoryBytes int64
	// Properties are the table's properties (Metadata.Configuration). Those that concern data files are obeyed:
	// delta.dataSkippingNumIndexedCols, delta.dataSkippingStatsColumns, delta.dataSkippingStringPrefixLength,
	// delta.parquet.compression.codec.
	Properties map[string]string
}

// Writer writes rows as the data files of a table. It makes no commit: the files that Close returns belong to the
// table once a Transaction has added them.
type Writer struct {
	st     store.Store
	schema *Schema
}

// NewWriter begins data files below the root of st, for a table of this schema and partitioning.
func NewWriter(st store.Store, schema *Schema, partitionColumns []string, opts *WriterOptions) (*Writer, error) {
	return &Writer{st: st, schema: schema}, nil
}

// Write appends the rows. Columns are matched by name, case ignored; a nullable column that rec lacks is null.
func (w *Writer) Write(ctx context.Context, rec arrow.RecordBatch) error {
	return errors.ErrUnsupported
}

// Close finishes all files and returns one Add for each.
func (w *Writer) Close(ctx context.Context) ([]Add, error) {
	return nil, errors.ErrUnsupported
}

// Abort drops what was written.
func (w *Writer) Abort(ctx context.Context) error { return nil }

// Rows is the number of rows written so far.
func (w *Writer) Rows() int64 { return 0 }

// Bytes estimates the size of all files so far, were they closed now.
func (w *Writer) Bytes() int64 { return 0 }
