package lake

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// maxMisfits is how often batches of a table may have types that the table has not, before that counts as an
// error and not as a change of the table that the source has yet to learn.
const maxMisfits = 8

// accept makes the files that are written take rows of this schema and what the target fills, with more columns if need be.
func (t *table) accept(ctx context.Context, rows *arrow.Schema) error {
	if t.schema != nil && t.last != nil && (t.last == rows || t.last.Equal(rows)) {
		return nil
	}
	wanted, err := delta.SchemaFromArrow(rows)
	if err != nil {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name,
			Msg: "the rows do not fit a Delta table", Err: err}
	}
	if wanted, err = t.withFills(wanted); err != nil {
		return err
	}
	merged, wider, err := t.fitTable(ctx, wanted)
	var mismatch *delta.SchemaMismatchError
	switch {
	case errors.As(err, &mismatch):
		return t.misfit(err)
	case err != nil:
		return err
	}
	if wider && t.writer != nil {
		if t.meta, err = t.meta.WithHighWater(t.writer.IdentityHighWater()); err != nil {
			return explain(t.name, err)
		}
		t.full = append(t.full, t.writer)
		t.writer = nil
	}
	if t.meta, err = t.meta.WithSchema(merged); err != nil {
		return t.misfit(err)
	}
	if t.schema, err = t.meta.Schema(); err != nil {
		return explain(t.name, err)
	}
	t.last, t.misfits = rows, 0
	return nil
}

// fitTable is fit with what is written already, and if that fails, with the table as it is now.
func (t *table) fitTable(ctx context.Context, rows *delta.Schema) (*delta.Schema, bool, error) {
	if err := t.learn(ctx); err != nil {
		return nil, false, err
	}
	merged, wider, err := t.fit(t.schema, rows)
	if err == nil {
		return merged, wider, nil
	}
	snap, lookErr := t.look(ctx)
	if lookErr != nil {
		return nil, false, lookErr
	}
	if snap == nil {
		return nil, false, explain(t.name, delta.ErrNoTable)
	}
	if err := t.obey(snap); err != nil {
		return nil, false, err
	}
	have := snap.Schema()
	if len(t.writers()) > 0 || t.keyed != nil && t.keyed.rows > 0 { // of what is written, the table has the columns with the commit
		if have, _, err = t.fit(have, t.schema); err != nil {
			return nil, false, err
		}
	}
	merged, _, err = t.fit(have, rows)
	return merged, true, err
}

// learn takes the schema from the table as it was last seen.
func (t *table) learn(ctx context.Context) error {
	if t.schema != nil {
		return nil
	}
	t.mu.Lock()
	snap := t.snap
	t.mu.Unlock()
	if snap == nil || t.unsure {
		t.unsure = false
		var err error
		if snap, err = t.look(ctx); err != nil {
			return err
		}
	}
	if snap == nil {
		return explain(t.name, delta.ErrNoTable)
	}
	t.schema = snap.Schema()
	return t.obey(snap)
}

// obey makes files be written as the table was last seen to want them.
func (t *table) obey(snap *delta.Snapshot) (err error) {
	t.meta, t.proto = snap.Metadata(), snap.Protocol()
	if t.clustered, err = snap.ClusteringColumns(); err != nil {
		return explain(t.name, err)
	}
	return nil
}

// fit merges the columns of rows into those of the table, and reports whether that adds any.
func (t *table) fit(have, rows *delta.Schema) (merged *delta.Schema, wider bool, err error) {
	merged, wider, err = have.Merge(rows)
	e := &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name, Err: err}
	switch {
	case err != nil:
		e.Msg = "the rows do not fit the table"
		e.Fix = "cast the column in a derive step, or write to another table"
		return nil, false, e
	case wider && t.opts.FixedSchema:
		e.Msg = fmt.Sprintf("the rows have columns that the table has not (%s), and its schema is fixed",
			columnNames(rows))
		e.Fix = "select the columns that the table has, or allow new ones"
		return nil, false, e
	}
	return merged, wider, nil
}

// misfit has the source read again with the types that the table has now, and gives up when that does not
// help.
func (t *table) misfit(err error) error {
	t.misfits++
	if t.misfits > maxMisfits {
		return err
	}
	t.unsure = true
	return fmt.Errorf("%w: %w", freshet.ErrStale, err)
}
