package interop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
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
		{Name: "s", Type: delta.String, Nullable: true}}}
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
		fmt.Fprintf(&text, `,{"id":%d,"s":"n%d"}`, m.next, m.next%7)
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
	snap, err := m.table.Snapshot(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	w, err := delta.NewWriter(m.st, snap.Metadata(), snap.Protocol(), nil)
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
			fmt.Fprintf(&rows, `,{"id":%s,"s":"%s"}`, r.Batch.Column(0).ValueStr(i), r.Batch.Column(1).ValueStr(i))
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

// besideRival appends to, deletes from and compacts a table in small files while another engine does the like, and knows
// what rows of ours there should be.
type besideRival struct {
	*madeTable
	mine      map[int64]bool
	conflicts int
}

// turn is one commit; one that conflicts changes nothing. Between its beginning and its end the other engine has its own.
func (b *besideRival) turn(n int, others func()) {
	b.t.Helper()
	snap := b.snapshot()
	tx := b.table.Begin(snap, nil)
	var done func()
	switch n % 4 {
	case 0, 1:
		from := int64(b.next)
		tx.Add(b.write(10)...)
		tx.BlindAppend(true)
		done = func() {
			for id := from; id < from+10; id++ {
				b.mine[id] = true
			}
		}
	case 2:
		done = b.deleteEveryThird(tx, snap, int64(b.next)-int64(n%40))
	default:
		b.compact(tx, snap)
		done = func() {}
	}
	others()
	_, err := tx.Commit(context.Background())
	switch {
	case errors.Is(err, delta.ErrConflict):
		b.conflicts++
	case err != nil:
		b.t.Fatal(err)
	default:
		done()
	}
}

func (b *besideRival) deleteEveryThird(tx *delta.Transaction, snap *delta.Snapshot, from int64) func() {
	e, err := expr.Parse(fmt.Sprintf("id >= %d AND id < 1000000 AND id %% 3 = 0", from))
	if err != nil {
		b.t.Fatal(err)
	}
	tx.ReadWhere(e)
	var gone []int64
	for _, a := range b.files() {
		var kept strings.Builder
		hit := false
		for _, r := range b.read(snap, a) {
			if r.id >= from && r.id < 1_000_000 && r.id%3 == 0 {
				gone, hit = append(gone, r.id), true
			} else {
				fmt.Fprintf(&kept, `,{"id":%d,"s":%q}`, r.id, r.s)
			}
		}
		if !hit {
			continue
		}
		if tx.Remove(a.Remove()); kept.Len() > 0 {
			tx.Add(b.writeJSON("[" + kept.String()[1:] + "]")...)
		}
	}
	return func() {
		for _, id := range gone {
			delete(b.mine, id)
		}
	}
}

func (b *besideRival) compact(tx *delta.Transaction, snap *delta.Snapshot) {
	var r delta.Rewrite
	var rows strings.Builder
	for _, a := range b.files() {
		if a.Size > 20_000 {
			continue
		}
		for _, x := range b.read(snap, a) {
			fmt.Fprintf(&rows, `,{"id":%d,"s":%q}`, x.id, x.s)
		}
		r.Removed = append(r.Removed, a)
	}
	if rows.Len() > 0 {
		r.Added = b.writeJSON("[" + rows.String()[1:] + "]")
		tx.Rewrite(r)
	}
}

type idAndText struct {
	id int64
	s  string
}

func (m *madeTable) read(snap *delta.Snapshot, files ...delta.Add) (rows []idAndText) {
	m.t.Helper()
	for r, err := range snap.ScanFiles(context.Background(), files, nil) {
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range int(r.Batch.NumRows()) {
			rows = append(rows, idAndText{r.Batch.Column(0).(*array.Int64).Value(i), r.Batch.Column(1).ValueStr(i)})
		}
		r.Batch.Release()
	}
	return rows
}

// TestForeignWriters_DeleteAndCompactBesideUs_EachRowIsRight changes a table row by row beside delta-rs. It does not let
// delta-rs compact: its OPTIMIZE does not see ours and brings every row twice.
func TestForeignWriters_DeleteAndCompactBesideUs_EachRowIsRight(t *testing.T) {
	needReaders(t)
	b := &besideRival{madeTable: makeTable(t, filepath.Join(t.TempDir(), "t"), nil), mine: map[int64]bool{}}
	other := startRival(t, b.path, "--engine", "delta-rs", "--ops", "append,append,delete,append,update",
		"--seconds", "15", "--pause", "0.01")
	waitUntil(t, time.Minute, "the other engine is up", func() bool {
		return strings.Contains(other.out.String(), `"ready"`)
	})
	lines := func() int { return strings.Count(other.out.String(), "\n") }
	ended := func() bool { return strings.Contains(other.out.String(), `"summary"`) }
	for n := 0; !ended(); n++ {
		b.turn(n, func() {
			before := lines()
			waitUntil(t, time.Minute, "the other engine has done something or ended", func() bool {
				return lines() > before || ended()
			})
		})
	}
	theirs, commits, failures := other.summary(t)
	var ours []int64
	found := int64(0)
	for _, r := range b.read(b.snapshot(), b.files()...) {
		if r.id < rivalFirstID {
			ours = append(ours, r.id)
		} else {
			found++
		}
	}
	slices.Sort(ours)
	if want := slices.Sorted(maps.Keys(b.mine)); !slices.Equal(ours, want) {
		t.Errorf("got %d rows of ours, want %d:\n%v\n%v", len(ours), len(want), ours, want)
	}
	if found != theirs {
		t.Errorf("got %d rows of the other engine, it committed %d", found, theirs)
	}
	t.Logf("other engine: %d commits, %d failures, %d rows; ours: version %d, %d conflicts, %d rows", commits, failures,
		theirs, b.snapshot().Version(), b.conflicts, len(ours))
	if refused := compareEngines(t, []string{b.path}); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}

// TestForeignWriters_SparkThenUs_VectorsAddUp deletes rows of files that Spark has given vectors, and has all read it.
func TestForeignWriters_SparkThenUs_VectorsAddUp(t *testing.T) {
	needReaders(t)
	m := makeTable(t, filepath.Join(t.TempDir(), "t"), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true", "delta.checkpointPolicy": "v2"})
	m.append(50)
	m.deleteRows(func(row uint64) bool { return row%10 == 0 }, 50)
	other := startRival(t, m.path, "--engine", "spark", "--seconds", "20", "--rows", "20")
	theirs, commits, failures := other.summary(t)
	if commits == 0 || failures > 0 {
		t.Fatalf("Spark: %d commits, %d failures", commits, failures)
	}
	before := m.read(m.snapshot(), m.files()...)
	if want := int64(45) + theirs; int64(len(before)) != want {
		t.Errorf("after Spark: got %d rows, want %d", len(before), want)
	}
	m.commit(func(tx *delta.Transaction) {
		for _, a := range m.files() {
			rows := m.snapshot().ScanFiles(context.Background(), []delta.Add{a}, &delta.ScanOptions{Columns: []string{}})
			for r, err := range rows { // the first row that is left
				if err != nil {
					t.Fatal(err)
				}
				tx.DeleteRows(a, roaring64.BitmapOf(uint64(r.Rows[0])))
				r.Batch.Release()
				break
			}
		}
		tx.Operation("DELETE", nil, nil)
	})
	m.checkpoint()
	if refused := compareEngines(t, []string{m.path}); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}
