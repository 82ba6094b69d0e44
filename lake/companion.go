package lake

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// companion is a table beside one of the target, which the first commit to it makes.
type companion struct {
	name   string
	st     store.Store
	engine string

	mu    sync.Mutex
	delta *delta.Table
}

// look returns the newest snapshot, nil when there is no table.
func (c *companion) look(ctx context.Context) (*delta.Snapshot, error) {
	c.mu.Lock()
	d := c.delta
	c.mu.Unlock()
	if d != nil {
		return d.Snapshot(ctx)
	}
	d, err := delta.Open(ctx, c.st, &delta.OpenOptions{EngineInfo: c.engine})
	if errors.Is(err, delta.ErrNoTable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.delta == nil {
		c.delta = d
	}
	d = c.delta
	c.mu.Unlock()
	return d.Snapshot(ctx)
}

// need is look, but makes the table, as opts says, under the companion's name.
func (c *companion) need(ctx context.Context, opts delta.CreateOptions) (*delta.Snapshot, error) {
	snap, err := c.look(ctx)
	if snap != nil || err != nil {
		return snap, err
	}
	opts.Name, opts.EngineInfo = path.Base(c.name), c.engine
	if _, err := delta.Create(ctx, c.st, &opts); err != nil && !errors.Is(err, delta.ErrTableExists) {
		return nil, err
	}
	return c.look(ctx)
}

// fixedTable is a companion of columns that do not depend on the table that it is beside.
type fixedTable struct {
	companion
	columns     *arrow.Schema
	always      int    // so many of the columns every such table has; one that lacks the others, which may be null, gets them. 0: all
	stats       string // names the columns by which files are left out
	description string
	what, fix   string // for an error: what is in such a table, and what to do with another one
}

// optional is a column that may be null.
func optional(name string, typ arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: typ, Nullable: true}
}

// look returns the newest snapshot, nil when there is no table. Errors: a table that has not all of the columns.
func (f *fixedTable) look(ctx context.Context) (*delta.Snapshot, error) {
	snap, err := f.companion.look(ctx)
	if snap == nil || err != nil {
		return nil, err
	}
	return snap, f.check(snap)
}

// need is look, but makes the table, and gives one that an older version of ours made the columns that it lacks.
func (f *fixedTable) need(ctx context.Context) (*delta.Snapshot, error) {
	schema, err := delta.SchemaFromArrow(f.columns)
	if err != nil {
		return nil, err
	}
	for range maxRaces {
		snap, err := f.companion.need(ctx, delta.CreateOptions{Schema: schema, Description: f.description,
			Properties: map[string]string{"delta.dataSkippingStatsColumns": f.stats}})
		if err == nil {
			err = f.check(snap)
		}
		if err != nil || !f.lacks(snap) {
			return snap, err
		}
		tx := snap.Table().Begin(snap, nil)
		if _, err := widen(tx, snap, schema); err != nil {
			return nil, err
		}
		tx.Operation("ADD COLUMNS", nil, nil)
		if done, err := tx.Commit(ctx); !errors.Is(err, delta.ErrConflict) {
			return done.Snapshot, err
		}
	}
	return nil, delta.ErrConflict
}

// lacks reports whether the table has not all of the columns.
func (f *fixedTable) lacks(snap *delta.Snapshot) bool {
	return slices.ContainsFunc(f.columns.Fields(), func(c arrow.Field) bool {
		have, _ := snap.Schema().Lookup(c.Name)
		return have == nil
	})
}

func (f *fixedTable) check(snap *delta.Snapshot) error {
	columns := f.columns.Fields()
	if f.always > 0 {
		columns = columns[:f.always]
	}
	for _, c := range columns {
		if have, _ := snap.Schema().Lookup(c.Name); have == nil {
			return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: f.name,
				Msg: fmt.Sprintf("it is no table of %s: it has no column %q", f.what, c.Name), Fix: f.fix}
		}
	}
	return nil
}

// writer writes files of the table.
func (f *fixedTable) writer() (*delta.Writer, error) {
	return newCompanionWriter(f.st, f.columns, f.stats)
}

// besideTxn tells, in a table, that it has had the table of this name beside it: one that is gone must not be made anew in
// silence.
func besideTxn(name string) string { return besidePrefix + name }

const besidePrefix = "freshet#beside-"

// besideName is the name of the table beside that an appId tells of.
func besideName(appID string) (name string, ok bool) {
	name, ok = strings.CutPrefix(appID, besidePrefix)
	return name, ok && !strings.HasSuffix(name, "#resync")
}

// besideGone says that a table beside the table is not the one that was there: whose it is, what that leads to, and the key
// that names another.
func besideGone(table, name, what, leads, key string) error {
	return &freshet.Error{Code: freshet.CodeBesideGone, Class: freshet.ClassInput, Place: name,
		Msg: fmt.Sprintf("%s of %s is gone: it was deleted, or made again, %s", what, table, leads),
		Fix: "bring the table back; or, if what it had is lost and you accept that, name a new one, which begins with nothing: " + key}
}

// widen has the commit add the columns of the schema that the table lacks, and returns the metadata of the table then. A
// column of another type is a SchemaMismatchError.
func widen(tx *delta.Transaction, snap *delta.Snapshot, schema *delta.Schema) (*delta.Metadata, error) {
	merged, wider, err := snap.Schema().Merge(schema)
	if err != nil || !wider {
		return snap.Metadata(), err
	}
	meta, err := snap.Metadata().WithSchema(merged)
	if err == nil {
		tx.SetMetadata(meta)
	}
	return meta, err
}

// newCompanionWriter writes files of a table of our own with these columns, and statistics of those that stats names.
func newCompanionWriter(st store.Store, columns *arrow.Schema, stats string) (*delta.Writer, error) {
	schema, err := delta.SchemaFromArrow(columns)
	if err != nil {
		return nil, err
	}
	meta := &delta.Metadata{SchemaString: schema.String(), Configuration: map[string]string{
		"delta.dataSkippingStatsColumns": stats}}
	return delta.NewWriter(st, meta, &delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2},
		&delta.WriterOptions{MemoryBytes: 16 << 20, RowGroupBytes: 8 << 20})
}
