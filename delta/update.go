package delta

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// Update gives columns of the rows for which where is true new values; of all rows when where is nil. All values are
// computed from the row as it was. Generated columns that are not assigned follow the others. Rows keep their ids; in
// a table with a change feed the old and the new form of each row go into change data files. A lost race that concerns
// the rows is answered by running it again. Errors: an assignment that does not fit; *expr.Error; *expr.RowErrors when
// an expression fails on a row; those of Writer.Write about rows; *UnsupportedError; ErrConflict when the deadline has
// passed; as Transaction.Commit.
func (t *Table) Update(ctx context.Context, set []Assignment, where *expr.Expr, opts *DMLOptions) (*DMLResult, error) {
	o := opts.withDefaults()
	r, err := t.rerun(ctx, &o, func(ctx context.Context, snap *Snapshot, deadline time.Time) (*DMLResult, error) {
		e, err := newRowEdit(snap, &o, nil)
		if err != nil {
			return nil, err
		}
		if err := e.updateWhere(ctx, set, where); err != nil {
			return nil, dropped(ctx, err, e.data, e.changes)
		}
		return e.commit(ctx, deadline, editCommit{
			operation: "UPDATE",
			params:    map[string]string{"predicate": predicateList(where)},
			metrics:   updateMetrics,
			reads:     func(tx *Transaction) { tx.ReadWhere(where) },
		})
	})
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	return r, nil
}

func (e *rowEdit) updateWhere(ctx context.Context, set []Assignment, where *expr.Expr) error {
	schema := e.schema.Arrow()
	a, err := newAssigner(set, &assignRules{schema: e.schema, input: schema,
		old:    func(path ...string) *expr.Expr { return expr.Name(path...) },
		own:    func(v *expr.Expr) (*expr.Expr, error) { return v, nil },
		absent: e.keptColumn(expr.Name),
	})
	if err != nil {
		return err
	}
	if err := e.refuseIdentity(set); err != nil {
		return err
	}
	columns, err := e.columnsOf(a, schema)
	if err != nil {
		return err
	}
	if err := a.bind(columns); err != nil {
		return err
	}
	if err := e.find(ctx, where); err != nil {
		return err
	}
	names := make([]string, columns.NumFields())
	for i, f := range columns.Fields() {
		names[i] = f.Name
	}
	opts := ScanOptions{Columns: names, Where: where, RowIDs: true}
	return e.scan(ctx, "change", e.allFiles(), opts, func(r FileRows) error {
		extra, values := e.rowIDs(r.Batch)
		after, err := a.apply(ctx, r.Batch, extra, values)
		for _, v := range values {
			v.Release()
		}
		if err != nil {
			return err
		}
		defer after.Release()
		return e.updateRows(ctx, r.File, r.Rows, r.Batch, after)
	})
}

// keptColumn says that a column that is not assigned keeps its value, unless it is generated from others.
func (e *rowEdit) keptColumn(old func(...string) *expr.Expr) func(*Field) (*expr.Expr, bool) {
	return func(f *Field) (*expr.Expr, bool) {
		if e.isGenerated(f) {
			return nil, false
		}
		return old(f.Name), true
	}
}

// isGenerated reports whether the column's values follow from others.
func (e *rowEdit) isGenerated(f *Field) bool {
	return e.proto.Supports("generatedColumns") && hasKey(f.Metadata, metaGeneration)
}

// isIdentity reports whether the table gives out the column's values.
func (e *rowEdit) isIdentity(f *Field) bool {
	return e.proto.Supports("identityColumns") && hasKey(f.Metadata, metaIdentityStart)
}

// refuseIdentity refuses to change what the table gives out itself.
func (e *rowEdit) refuseIdentity(set []Assignment) error {
	for _, a := range set {
		if f, _ := e.schema.Lookup(splitPath(a.Column)[0]); f != nil && e.isIdentity(f) {
			return fmt.Errorf("set %s: the values of an identity column do not change", a.Column)
		}
	}
	return nil
}

// columnsOf returns the columns that have to be read: those that the assigner names, all where change data tells of
// the rows.
func (e *rowEdit) columnsOf(a *assigner, whole *arrow.Schema) (*arrow.Schema, error) {
	used := make(map[string]bool)
	var fault error
	a.exprs(func(x *expr.Expr) {
		b, err := x.Bind(whole)
		if err != nil {
			fault = err
			return
		}
		for _, name := range b.Columns() {
			used[name] = true
		}
	})
	var fields []arrow.Field
	for _, f := range whole.Fields() {
		if e.feed || used[f.Name] {
			fields = append(fields, f)
		}
	}
	return arrow.NewSchema(fields, nil), fault
}

// rowIDs returns what an updated row keeps of its old self beside its values: its id. Its commit version is null: it
// becomes that of the commit. The arrays are the caller's.
func (e *rowEdit) rowIDs(rows arrow.RecordBatch) ([]arrow.Field, []arrow.Array) {
	if !e.tracked {
		return nil, nil
	}
	i := rows.Schema().FieldIndices(RowIDColumn)[0]
	ids := rows.Column(i)
	ids.Retain()
	versions := nullArray(arrow.PrimitiveTypes.Int64, ids.Len())
	return []arrow.Field{{Name: RowIDColumn, Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: RowCommitVersionColumn, Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, []arrow.Array{ids, versions}
}

func updateMetrics(r *DMLResult, m map[string]string) {
	m["numRemovedFiles"], m["numAddedFiles"] = count(r.FilesRemoved), count(r.FilesAdded)
	m["numRemovedBytes"], m["numAddedBytes"] = count(r.BytesRemoved), count(r.BytesAdded)
	m["numUpdatedRows"], m["numCopiedRows"] = count(r.Updated), count(r.Copied)
	m["numAddedChangeFiles"] = count(r.ChangeFiles)
	m["numDeletionVectorsAdded"] = count(r.FilesMarked)
}
