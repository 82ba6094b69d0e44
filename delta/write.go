package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// WriteMode says what becomes of the rows that a table has when others are written to it.
type WriteMode string

// The modes of Write.
const (
	WriteAppend       WriteMode = "append"       // they stay; the default
	WriteOverwrite    WriteMode = "overwrite"    // they go
	WriteReplaceWhere WriteMode = "replaceWhere" // those go for which a condition is true, which must be true of the new ones
	WriteDynamic      WriteMode = "dynamic"      // those of partitions go that the new ones have rows for
)

// WriteOptions tune Write. The zero value of each field means its default.
type WriteOptions struct {
	DMLOptions

	Mode  WriteMode  // default WriteAppend
	Where *expr.Expr // of WriteReplaceWhere, and then required
	// EvolveSchema adds columns, and fields of structs, that the rows have and the table lacks.
	EvolveSchema bool
	// ReplaceSchema, of WriteOverwrite only, makes the schema of the rows that of the table, partitioned by PartitionBy.
	ReplaceSchema bool
	PartitionBy   []string
	// Repeatable says that the rows can be ranged over again and again, and are the same each time: when the table
	// becomes one that their files are wrong for while they are written (a constraint, other partitions, values that
	// identity columns gave out), they are written anew. Without it that is a conflict, since they can be read only once.
	Repeatable bool
}

func (o *WriteOptions) validate() error {
	var faults []error
	switch o.Mode {
	case WriteAppend, WriteOverwrite, WriteReplaceWhere, WriteDynamic:
	default:
		faults = append(faults, fmt.Errorf("mode: found %q, wanted append, overwrite, replaceWhere or dynamic", o.Mode))
	}
	if (o.Mode == WriteReplaceWhere) != (o.Where != nil) {
		faults = append(faults, errors.New("a condition belongs to the mode replaceWhere, which needs one"))
	}
	if o.ReplaceSchema && o.Mode != WriteOverwrite {
		faults = append(faults, errors.New("the schema can be replaced in the mode overwrite only"))
	}
	if o.PartitionBy != nil && !o.ReplaceSchema {
		faults = append(faults, errors.New("the partitioning can be replaced together with the schema only"))
	}
	return errors.Join(faults...)
}

// ReplaceWhereError says that a row to be written does not fulfil the condition under which it was to replace others.
type ReplaceWhereError struct {
	Where string
	Row   int64 // of all rows that were to be written, from 0
}

func (e *ReplaceWhereError) Error() string {
	return fmt.Sprintf("row %d is not one for which %s is true: wanted only such rows in place of such rows", e.Row,
		e.Where)
}

// Write writes rows of this schema in one version, in place of none or some of those that are there. The batches become
// the table's; they are read once, also when a race is lost: what is to go is then found anew, and the files stay. Only
// when schema, partitioning or rules have changed meanwhile so that the files are wrong, the rows must be read again:
// see WriteOptions.Repeatable. Errors: *ReplaceWhereError; those of Writer.Write about rows; *UnsupportedError;
// *ConflictError, of kind ConflictMetadata when calling Write again with the rows is the answer; as Transaction.Commit.
func (t *Table) Write(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], schema *arrow.Schema,
	opts *WriteOptions,
) (*DMLResult, error) {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	o.DMLOptions = o.DMLOptions.withDefaults()
	if o.Mode == "" {
		o.Mode = WriteAppend
	}
	r, err := t.write(ctx, rows, schema, &o)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return r, nil
}

func (t *Table) write(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], schema *arrow.Schema,
	o *WriteOptions,
) (*DMLResult, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(o.Deadline)
	for retries := 0; ; retries++ {
		r, err := t.writeOnce(ctx, rows, schema, o, deadline)
		var stale *staleFilesError
		switch {
		case err == nil:
			r.Retries += retries
			return r, nil
		case !errors.As(err, &stale):
			return nil, err
		case !o.Repeatable:
			return nil, stale.conflict()
		}
		if err := pause(ctx, retries, deadline, stale.conflict()); err != nil {
			return nil, err
		}
	}
}

// staleFilesError says that files were written for a table that has become another one. It is no conflict yet: what is
// wrong with the files is not mended by another attempt with them.
type staleFilesError struct {
	began, found int64 // versions
}

func (e *staleFilesError) Error() string { return e.conflict().Error() }

func (e *staleFilesError) conflict() error {
	return &ConflictError{Kind: ConflictMetadata, Version: e.found, Detail: fmt.Sprintf("the table has other columns, "+
		"partitioning or properties than at version %d, which the rows were written for; write them again", e.began)}
}

// writeOnce reads the rows and writes them, for the table as it is now.
func (t *Table) writeOnce(ctx context.Context, rows iter.Seq2[arrow.RecordBatch, error], schema *arrow.Schema,
	o *WriteOptions, deadline time.Time,
) (r *DMLResult, err error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	w := &tableWrite{opts: o, began: snap}
	if w.meta, err = o.metadata(snap, schema); err != nil {
		return nil, err
	}
	if len(o.Txns) > 0 && hasTxns(snap, o.Txns) {
		return &DMLResult{Version: snap.Version(), Snapshot: snap}, nil
	}
	defer func() { err = dropped(ctx, err, w.data, w.changes) }()
	if err := w.takeRows(ctx, rows); err != nil {
		return nil, err
	}
	tries := o.DMLOptions
	tries.Deadline = max(time.Until(deadline), time.Millisecond)
	return t.rerun(ctx, &tries, w.attempt)
}

// metadata is that of the version to come; nil: as it is.
func (o *WriteOptions) metadata(snap *Snapshot, schema *arrow.Schema) (*Metadata, error) {
	if !o.EvolveSchema && !o.ReplaceSchema {
		return nil, nil
	}
	incoming, err := snap.Metadata().incoming(schema)
	if err != nil {
		return nil, err
	}
	if !o.ReplaceSchema {
		return withMissing(snap, incoming)
	}
	meta, err := snap.Metadata().WithSchema(incoming)
	if err != nil {
		return nil, err
	}
	meta.PartitionColumns = slices.Clone(o.PartitionBy)
	return meta, staysClustered(snap, meta)
}

// staysClustered makes sure that the columns by which the table is clustered are there under the new metadata, too.
func staysClustered(snap *Snapshot, meta *Metadata) error {
	columns, err := snap.ClusteringColumns()
	if err != nil || len(columns) == 0 {
		return err
	}
	schema, err := meta.Schema()
	if err != nil {
		return err
	}
	domain, err := clusteringOf(schema, meta, columns)
	if err == nil && domain.Configuration != snap.state.domains[clusteringDomain].Configuration {
		err = errors.New("they would be other columns of the same names")
	}
	if err != nil {
		return fmt.Errorf("the table is clustered by %s, change that first: %w", strings.Join(columns, ", "), err)
	}
	return nil
}
