package interop_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// madeTable is a table that a test makes without a pipeline, in the folder that path names.
type madeTable struct {
	t      *testing.T
	path   string
	st     store.Store
	table  *delta.Table
	schema *delta.Schema
	next   int
}

func makeTable(t *testing.T, path string, properties map[string]string) *madeTable {
	t.Helper()
	st, err := store.NewDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	schema := &delta.Schema{Fields: []delta.Field{{Name: "id", Type: delta.Long, Nullable: true},
		{Name: "name", Type: delta.String, Nullable: true}}}
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: schema, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return &madeTable{t: t, path: path, st: st, table: table, schema: schema}
}

// write makes a data file of the next n rows.
func (m *madeTable) write(n int) []delta.Add {
	var text strings.Builder
	for range n {
		fmt.Fprintf(&text, `,{"id":%d,"name":"n%d"}`, m.next, m.next%7)
		m.next++
	}
	return m.writeJSON("[" + text.String()[1:] + "]")
}

func (m *madeTable) writeJSON(rows string) []delta.Add {
	m.t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, m.schema.Arrow(), strings.NewReader(rows))
	if err != nil {
		m.t.Fatal(err)
	}
	defer rec.Release()
	w, err := delta.NewWriter(m.st, m.schema, nil, nil)
	if err == nil {
		err = w.Write(context.Background(), rec)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	adds, err := w.Close(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	return adds
}

func (m *madeTable) snapshot() *delta.Snapshot {
	m.t.Helper()
	snap, err := m.table.Snapshot(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	return snap
}

func (m *madeTable) commit(fill func(*delta.Transaction)) {
	m.t.Helper()
	tx := m.table.Begin(m.snapshot(), nil)
	fill(tx)
	if _, err := tx.Commit(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *madeTable) append(n int) {
	m.t.Helper()
	m.commit(func(tx *delta.Transaction) { tx.Add(m.write(n)...) })
}

func (m *madeTable) files() (all []delta.Add) {
	m.t.Helper()
	for a, err := range m.snapshot().Matching(context.Background(), nil) {
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, *a)
	}
	return all
}

// deleteRows deletes the rows that wanted names by their positions, of every file.
func (m *madeTable) deleteRows(wanted func(row uint64) bool, rows uint64) {
	m.t.Helper()
	m.commit(func(tx *delta.Transaction) {
		for _, a := range m.files() {
			gone := roaring64.New()
			for row := range rows {
				if wanted(row) {
					gone.Add(row)
				}
			}
			tx.DeleteRows(a, gone)
		}
		tx.Operation("DELETE", nil, nil)
	})
}

func (m *madeTable) checkpoint() {
	m.t.Helper()
	if err := m.table.Checkpoint(context.Background(), m.snapshot()); err != nil {
		m.t.Fatal(err)
	}
}

// compactedUnderDeletes is a table whose files were compacted while rows of them were deleted.
func compactedUnderDeletes(t *testing.T, path string) string {
	m := makeTable(t, path, map[string]string{"delta.enableDeletionVectors": "true"})
	m.append(100)
	m.append(100)
	compaction := m.table.Begin(m.snapshot(), nil)
	files := m.files()
	var rows strings.Builder
	origins := []delta.Origin{{File: 0, Rows: 100}, {File: 1, Rows: 100}}
	for r, err := range m.snapshot().ScanFiles(context.Background(), files, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(r.Batch.NumRows()) {
			fmt.Fprintf(&rows, `,{"id":%s,"name":"%s"}`, r.Batch.Column(0).ValueStr(i), r.Batch.Column(1).ValueStr(i))
		}
		r.Batch.Release()
	}
	added := m.writeJSON("[" + rows.String()[1:] + "]")
	m.deleteRows(func(row uint64) bool { return row%10 == 3 }, 100)
	compaction.Rewrite(delta.Rewrite{Removed: files, Added: added, Origins: [][]delta.Origin{origins}})
	compaction.Operation("OPTIMIZE", nil, nil)
	if _, err := compaction.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := m.files(); len(left) != 1 || left[0].DeletionVector == nil || left[0].DeletionVector.Cardinality != 20 {
		t.Fatalf("got %+v, want one file that hides 20 rows", left)
	}
	return path
}

func TestReaders_VectorsRowIDsAndV2Checkpoints_EqualDigests(t *testing.T) {
	needReaders(t)
	home := t.TempDir()
	vectors := makeTable(t, filepath.Join(home, "vectors"), map[string]string{"delta.enableDeletionVectors": "true"})
	vectors.append(1000)
	vectors.append(1000)
	vectors.append(1000)
	vectors.deleteRows(func(row uint64) bool { return row%3 == 0 }, 1000)
	vectors.deleteRows(func(row uint64) bool { return row > 100 && row < 600 || row == 1 }, 1000)
	vectors.checkpoint()
	vectors.append(10)
	vectors.deleteRows(func(row uint64) bool { return true }, 10)

	tracked := makeTable(t, filepath.Join(home, "tracked"), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"})
	tracked.append(100)
	tracked.append(100)
	tracked.deleteRows(func(row uint64) bool { return row < 50 }, 100)

	v2 := makeTable(t, filepath.Join(home, "v2"), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.checkpointPolicy": "v2"})
	for range 12 {
		v2.append(10)
	}
	v2.deleteRows(func(row uint64) bool { return row == 5 }, 10)
	v2.checkpoint()
	v2.append(10)

	later := makeTable(t, filepath.Join(home, "tracked-later"), nil)
	later.append(100)
	later.append(100)
	if _, err := later.table.EnableRowTracking(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	later.append(100)
	later.checkpoint()

	tables := []string{vectors.path, tracked.path, v2.path, later.path,
		compactedUnderDeletes(t, filepath.Join(home, "compacted"))}
	if refused := compareEngines(t, tables); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}
