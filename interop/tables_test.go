package interop_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// made is a table in a folder that a test makes by package delta, without a pipeline.
type made struct {
	t     *testing.T
	path  string
	st    store.Store
	table *delta.Table
	// feedFrom is the version from which its change feed is compared: the first after which no column changes.
	feedFrom int64
}

// makeTable makes a table of these columns: names, each with its type.
func makeTable(t *testing.T, path string, schema *delta.Schema, o delta.CreateOptions) *made {
	t.Helper()
	m := &made{t: t, path: path, st: diskAt(t, path)}
	o.Schema = schema
	var err error
	if m.table, err = delta.Create(context.Background(), m.st, &o); err != nil {
		t.Fatal(err)
	}
	return m
}

func diskAt(t *testing.T, path string) store.Store {
	t.Helper()
	st, err := store.NewDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// columns makes a schema of names, each followed by its type and, if need be, by a delta.Field that has its metadata and says
// with Nullable false that it takes no nulls.
func columns(of ...any) *delta.Schema {
	s := &delta.Schema{}
	for _, v := range of {
		last := len(s.Fields) - 1
		switch v := v.(type) {
		case string:
			s.Fields = append(s.Fields, delta.Field{Name: v, Nullable: true})
		case delta.Type:
			s.Fields[last].Type = v
		case delta.Field:
			s.Fields[last].Metadata, s.Fields[last].Nullable = v.Metadata, v.Nullable
		}
	}
	return s
}

// structOf is a struct of such columns.
func structOf(of ...any) *delta.Struct { return &delta.Struct{Fields: columns(of...).Fields} }

func (m *made) snapshot() *delta.Snapshot {
	m.t.Helper()
	snap, err := m.table.Snapshot(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	return snap
}

// source is rows in JSON, of the columns of the schema; nil for those of the table.
func (m *made) source(schema *delta.Schema, rows string) delta.RowSource {
	m.t.Helper()
	if schema == nil {
		schema = m.snapshot().Schema()
	}
	return delta.SourceOf(schema.Arrow(), batchOf(m.t, schema, rows))
}

func batchOf(t *testing.T, schema *delta.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema.Arrow(), strings.NewReader("["+rows+"]"))
	if err != nil {
		t.Fatalf("%v: %s", err, rows)
	}
	return rec
}

// must fails the test unless rows were changed.
func (m *made) must(r *delta.DMLResult, err error) {
	m.t.Helper()
	if err != nil || !r.Committed {
		m.t.Fatalf("%s: got %+v, %v", m.path, r, err)
	}
}

// done fails the test unless the table was changed.
func (m *made) done(_ delta.CommitResult, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %v", m.path, err)
	}
}

func (m *made) write(rows delta.RowSource, o *delta.WriteOptions) {
	m.t.Helper()
	m.must(m.table.Write(context.Background(), rows.Rows(context.Background()), rows.Schema, o))
}

// insert appends rows in JSON that have all columns of the table.
func (m *made) insert(rows string) {
	m.t.Helper()
	m.write(m.source(nil, rows), nil)
}

// numbered appends one file of rows that have a long id of this range, and the text of it in s.
func (m *made) numbered(from, to int) {
	m.t.Helper()
	var rows []string
	for id := from; id < to; id++ {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"s":"n%d"}`, id, id%7))
	}
	m.write(m.source(idAndS, strings.Join(rows, ",")), nil)
}

// idAndS are the columns of most tables here.
var idAndS = columns("id", delta.Long, "s", delta.String)

func (m *made) expr(text string) *expr.Expr {
	m.t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		m.t.Fatal(err)
	}
	return e
}

func (m *made) set(column, value string) delta.Assignment {
	m.t.Helper()
	return delta.Assignment{Column: column, Value: m.expr(value)}
}

func (m *made) delete(where string) {
	m.t.Helper()
	m.must(m.table.Delete(context.Background(), m.expr(where), nil))
}

func (m *made) update(column, value, where string) {
	m.t.Helper()
	m.must(m.table.Update(context.Background(), []delta.Assignment{m.set(column, value)}, m.expr(where), nil))
}

func (m *made) commit(fill func(*delta.Transaction)) {
	m.t.Helper()
	tx := m.table.Begin(m.snapshot(), nil)
	fill(tx)
	if _, err := tx.Commit(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *made) checkpoint() {
	m.t.Helper()
	if err := m.table.Checkpoint(context.Background(), m.snapshot()); err != nil {
		m.t.Fatal(err)
	}
}

// files are the live files.
func (m *made) files() (all []delta.Add) {
	m.t.Helper()
	for a, err := range m.snapshot().Matching(context.Background(), nil) {
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, *a)
	}
	return all
}

// beside is a path next to the table.
func (m *made) beside(name string) string { return filepath.Join(filepath.Dir(m.path), name) }

// feedDigest is that of the rows of the change feed from m.feedFrom on, as readers/serve.py makes it.
func (m *made) feedDigest() string {
	m.t.Helper()
	var d canonical.Digest
	defer d.Close()
	for ch, err := range m.table.Changes(context.Background(), m.feedFrom, -1, &delta.ChangesOptions{Method: delta.MethodFeed}) {
		if err != nil {
			m.t.Fatal(err)
		}
		n := int(ch.Batch.NumCols()) - 1
		if ch.Batch.ColumnName(n) != delta.CommitTimestampColumn {
			m.t.Fatalf("the last column is %s", ch.Batch.ColumnName(n))
		}
		plain := array.NewRecordBatch(arrow.NewSchema(ch.Batch.Schema().Fields()[:n], nil), ch.Batch.Columns()[:n],
			ch.Batch.NumRows())
		if err := addRows(&d, plain, 1); err != nil {
			m.t.Fatal(err)
		}
		plain.Release()
		ch.Batch.Release()
	}
	sum, _, err := d.Sum()
	if err != nil {
		m.t.Fatal(err)
	}
	return sum
}

// digest is that of the rows, each as often as it is there or times that.
func (m *made) digest(times int) string {
	m.t.Helper()
	sum, err := m.sum(times)
	if err != nil {
		m.t.Fatal(err)
	}
	return sum
}

func (m *made) sum(times int) (string, error) {
	var d canonical.Digest
	defer d.Close()
	snap, err := m.table.Snapshot(context.Background())
	if err != nil {
		return "", err
	}
	for rec, err := range snap.Scan(context.Background(), nil) {
		if err == nil {
			err = addRows(&d, rec, times)
			rec.Release()
		}
		if err != nil {
			return "", err
		}
	}
	sum, _, err := d.Sum()
	return sum, err
}

func addRows(d *canonical.Digest, rec arrow.RecordBatch, times int) error {
	e := canonical.NewEncoder(rec.Schema())
	for i := range int(rec.NumRows()) {
		line, err := e.AppendRow(nil, rec, i)
		for range times {
			if err == nil {
				err = d.Add(line)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
