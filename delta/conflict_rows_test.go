package delta_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// duel is a table of two files, ids 0 to 9 and 10 to 19, that two transactions change at once: each was begun before
// the other committed.
type duel struct {
	*scene
	first, second *delta.Transaction
	files         []delta.Add // in the order of their ids
	snap          *delta.Snapshot
}

func newDuel(t *testing.T, properties map[string]string) *duel {
	t.Helper()
	h := newScene(t, 1, properties)
	for _, from := range []int64{0, 10} {
		var rows []row
		for id := from; id < from+10; id++ {
			rows = append(rows, row{id, id})
		}
		tx := h.table.Begin(snapshot(t, h.table), nil)
		tx.Add(h.write(rows)...)
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	d := &duel{scene: h, snap: snapshot(t, h.table)}
	d.files = h.files(d.snap)
	slices.SortFunc(d.files, func(a, b delta.Add) int {
		return int(h.read(d.snap, a)[0].id - h.read(d.snap, b)[0].id)
	})
	d.first, d.second = h.table.Begin(d.snap, nil), open(t, h.st).Begin(d.snap, nil)
	return d
}

func bitmapOf(positions ...uint64) *roaring64.Bitmap { return roaring64.BitmapOf(positions...) }

// compaction is a rewrite of both files into one.
func (d *duel) compaction() delta.Rewrite {
	r := delta.Rewrite{Removed: d.files}
	var rows []row
	for i, a := range d.files {
		for _, p := range d.read(d.snap, a) {
			rows = append(rows, p.row)
		}
		if i == 0 {
			r.Origins = [][]delta.Origin{nil}
		}
		r.Origins[0] = append(r.Origins[0], delta.Origin{File: i, Rows: 10})
	}
	r.Added = d.write(rows)
	return r
}

// run commits both, and compares how the second ends: with this kind of conflict, or with these ids in the table.
func (d *duel) run(kind delta.ConflictKind, want ...int64) {
	d.t.Helper()
	if _, err := d.first.Commit(context.Background()); err != nil {
		d.t.Fatalf("the first: %v", err)
	}
	_, err := d.second.Commit(context.Background())
	var conflict *delta.ConflictError
	switch {
	case kind == "" && err != nil:
		d.t.Fatalf("the second: %v", err)
	case kind != "" && (!errors.As(err, &conflict) || conflict.Kind != kind):
		d.t.Fatalf("the second: got %v, want a conflict over %s", err, kind)
	}
	if got := d.ids(); kind == "" && !slices.Equal(got, want) {
		d.t.Errorf("got ids %v, want %v", got, want)
	}
}

func (d *duel) ids() (ids []int64) {
	snap := snapshot(d.t, open(d.t, d.st))
	for _, r := range d.read(snap, d.scene.files(snap)...) {
		ids = append(ids, r.id)
	}
	slices.Sort(ids)
	return ids
}

func spanOf(from, to int64) (ids []int64) {
	for id := from; id < to; id++ {
		ids = append(ids, id)
	}
	return ids
}

func TestCommit_FilesOfOthers_RulesDecide(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(d *duel)
		kind  delta.ConflictKind
		want  []int64
		level string
	}{
		{name: "vectors of other rows are united", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(1, 2))
			d.second.DeleteRows(d.files[0], bitmapOf(5))
		}, want: append([]int64{0, 3, 4, 6, 7, 8, 9}, spanOf(10, 20)...)},
		{name: "vectors of one row", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(1, 2))
			d.second.DeleteRows(d.files[0], bitmapOf(2, 3))
		}, kind: delta.ConflictDelete},
		{name: "the last rows of a file", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(0, 1, 2, 3, 4))
			d.second.DeleteRows(d.files[0], bitmapOf(5, 6, 7, 8, 9))
		}, want: spanOf(10, 20)},
		{name: "a vector under a removal", set: func(d *duel) {
			d.first.Remove(d.files[0].Remove())
			d.second.DeleteRows(d.files[0], bitmapOf(2))
		}, kind: delta.ConflictDelete},
		{name: "a removal under a vector", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(2))
			d.second.Remove(d.files[0].Remove())
		}, kind: delta.ConflictDelete},
		{name: "optimize and optimize", set: func(d *duel) {
			d.first.Rewrite(d.compaction())
			d.second.Rewrite(d.compaction())
		}, kind: delta.ConflictDelete},
		{name: "overwrite after optimize", set: func(d *duel) {
			d.first.Rewrite(d.compaction())
			d.second.ReadTable()
			d.second.Remove(d.files[0].Remove(), d.files[1].Remove())
			d.second.Add(d.write([]row{{100, 1}})...)
		}, kind: delta.ConflictDelete},
		{name: "optimize after overwrite", set: func(d *duel) {
			d.first.ReadTable()
			d.first.Remove(d.files[0].Remove(), d.files[1].Remove())
			d.first.Add(d.write([]row{{100, 1}})...)
			d.second.Rewrite(d.compaction())
		}, want: []int64{100}},
		{name: "optimize after a vector", set: func(d *duel) {
			d.first.DeleteRows(d.files[1], bitmapOf(0, 9))
			d.second.Rewrite(d.compaction())
		}, want: append(spanOf(0, 10), spanOf(11, 19)...)},
		{name: "optimize in the dark after a vector", set: func(d *duel) {
			d.first.DeleteRows(d.files[1], bitmapOf(0, 9))
			r := d.compaction()
			r.Origins = nil
			d.second.Rewrite(r)
		}, kind: delta.ConflictDelete},
		{name: "optimize after the removal of a file", set: func(d *duel) {
			d.first.Remove(d.files[0].Remove())
			d.second.Rewrite(d.compaction())
		}, want: spanOf(10, 20)},
		{name: "a vector after optimize", set: func(d *duel) {
			d.first.Rewrite(d.compaction())
			d.second.DeleteRows(d.files[0], bitmapOf(2))
			d.second.DeleteRows(d.files[1], bitmapOf(0, 9))
		}, want: append([]int64{0, 1, 3, 4, 5, 6, 7, 8, 9}, spanOf(11, 19)...)},
		{name: "a vector after optimize in the dark", set: func(d *duel) {
			r := d.compaction()
			r.Origins = nil
			d.first.Rewrite(r)
			d.second.DeleteRows(d.files[0], bitmapOf(2))
		}, kind: delta.ConflictDelete},
		{name: "a reader of all after optimize", set: func(d *duel) {
			d.first.Rewrite(d.compaction())
			d.second.ReadTable()
			d.second.Add(d.write([]row{{100, 1}})...)
		}, want: append(spanOf(0, 20), 100)},
		{name: "an append of rows that were read", set: func(d *duel) {
			d.first.Add(d.write([]row{{100, 1}, {200, 1}})...)
			d.second.ReadWhere(where(d.t, "id = 150"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictAppend},
		{name: "an append of rows that statistics tell apart", set: func(d *duel) {
			d.first.Add(d.write([]row{{100, 1}, {200, 1}})...)
			d.second.ReadWhere(where(d.t, "id = 250"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, want: append(spanOf(0, 20), 100, 200, 300)},
		{name: "a blind append of rows that were read", set: func(d *duel) {
			d.first.Add(d.write([]row{{100, 1}})...)
			d.first.BlindAppend(true)
			d.second.ReadTable()
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictAppend},
		{name: "a blind append where the table says WriteSerializable", set: func(d *duel) {
			d.first.Add(d.write([]row{{100, 1}})...)
			d.first.BlindAppend(true)
			d.second.ReadTable()
			d.second.Add(d.write([]row{{300, 1}})...)
		}, want: append(spanOf(0, 20), 100, 300), level: "WriteSerializable"},
		{name: "an append that is not blind there", set: func(d *duel) {
			d.first.Add(d.write([]row{{100, 1}})...)
			d.second.ReadTable()
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictAppend, level: "WriteSerializable"},
		{name: "deleted rows that were read", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(3))
			d.second.ReadWhere(where(d.t, "id = 3"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictDelete},
		{name: "deleted rows that the rows themselves tell apart", set: func(d *duel) {
			d.first.DeleteRows(d.files[0], bitmapOf(4))
			d.second.ReadWhere(where(d.t, "id = 3"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, want: append(append(spanOf(0, 4), spanOf(5, 20)...), 300)},
		{name: "a removed file that statistics tell apart", set: func(d *duel) {
			d.first.Remove(d.files[1].Remove())
			d.second.ReadWhere(where(d.t, "id < 10"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, want: append(spanOf(0, 10), 300)},
		{name: "a removed file that was read", set: func(d *duel) {
			d.first.Remove(d.files[1].Remove())
			d.second.ReadWhere(where(d.t, "id = 13"))
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictDelete},
		{name: "a file that was named as read", set: func(d *duel) {
			d.first.DeleteRows(d.files[1], bitmapOf(3))
			d.second.ReadFiles(d.files[1])
			d.second.Add(d.write([]row{{300, 1}})...)
		}, kind: delta.ConflictDelete},
		{name: "another file than was named as read", set: func(d *duel) {
			d.first.DeleteRows(d.files[1], bitmapOf(3))
			d.second.ReadFiles(d.files[0])
			d.second.DeleteRows(d.files[0], bitmapOf(0))
		}, want: append(spanOf(1, 13), spanOf(14, 20)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			properties := map[string]string{"delta.enableDeletionVectors": "true"}
			if c.level != "" {
				properties["delta.isolationLevel"] = c.level
			}
			d := newDuel(t, properties)
			d.scene.t = t
			c.set(d)
			d.run(c.kind, c.want...)
		})
	}
}

func TestDeleteRows_NoVectorsAllowed_IsRefusedUnlessTheFileGoes(t *testing.T) {
	d := newDuel(t, nil)
	d.first.DeleteRows(d.files[0], bitmapOf(1))
	if _, err := d.first.Commit(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "delta.enableDeletionVectors") {
		t.Errorf("got %v, want an error that names the property", err)
	}
	d.second.DeleteRows(d.files[0], bitmapOf(0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	if _, err := d.second.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := d.ids(); !slices.Equal(got, spanOf(10, 20)) {
		t.Errorf("got ids %v, want 10 to 19", got)
	}
}

func TestDeleteRows_RowThatIsNotThere_IsRefused(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
	d.first.DeleteRows(d.files[0], bitmapOf(10))
	if _, err := d.first.Commit(context.Background()); err == nil || !strings.Contains(err.Error(), "10 rows") {
		t.Errorf("got %v, want an error that counts the rows", err)
	}
}

func TestDeleteRows_SeveralFiles_OneObjectAndWideStatistics(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
	d.first.DeleteRows(d.files[0], bitmapOf(1, 2, 3))
	d.first.DeleteRows(d.files[1], bitmapOf(9))
	if _, err := d.first.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := d.vectorObjects(); n != 1 {
		t.Errorf("got %d objects of deletion vectors, want 1", n)
	}
	for _, a := range d.scene.files(snapshot(t, d.table)) {
		if !strings.HasPrefix(a.Stats, `{"numRecords":10,"minValues":{`) ||
			!strings.HasSuffix(a.Stats, `"tightBounds":false}`) {
			t.Errorf("statistics of %s: %s", a.Path, a.Stats)
		}
	}
}

func (d *duel) vectorObjects() (n int) {
	for o, err := range d.st.List(context.Background(), "deletion_vector_", "") {
		if err != nil || o.Size < 10 {
			d.t.Fatal(o, err)
		}
		n++
	}
	return n
}

func TestDeleteRows_LostRace_LeavesNoVectorsBehind(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
	d.first.DeleteRows(d.files[0], bitmapOf(1))
	d.second.DeleteRows(d.files[0], bitmapOf(1))
	d.run(delta.ConflictDelete)
	if n := d.vectorObjects(); n != 1 {
		t.Errorf("after a conflict: got %d objects of deletion vectors, want 1", n)
	}
	d = newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
	d.first.DeleteRows(d.files[0], bitmapOf(1))
	d.second.DeleteRows(d.files[0], bitmapOf(2))
	d.run("", append([]int64{0}, spanOf(3, 20)...)...)
	if n := d.vectorObjects(); n != 2 {
		t.Errorf("after a merge: got %d objects of deletion vectors, want 2", n)
	}
}

// TestDeleteRows_CrashAnywhere_OldVersionOrNew lets a process die at every call of a commit that has to be merged with
// a winner's.
func TestDeleteRows_CrashAnywhere_OldVersionOrNew(t *testing.T) {
	before := append([]int64{0}, spanOf(2, 20)...)
	after := append([]int64{0}, spanOf(3, 20)...)
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			d := newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
			faulty := storetest.NewFaulty(d.st, storetest.CrashAt(n, late))
			table, err := delta.Open(context.Background(), faulty, nil)
			d.first.DeleteRows(d.files[0], bitmapOf(1))
			if _, err := d.first.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err == nil {
				tx := table.Begin(d.snap, nil)
				tx.DeleteRows(d.files[0], bitmapOf(2))
				tx.Add(d.write(nil)...)
				_, err = tx.Commit(context.Background())
			}
			got := d.ids()
			if !slices.Equal(got, before) && !slices.Equal(got, after) || err == nil && !slices.Equal(got, after) {
				t.Errorf("crash at call %d: %v, got ids %v", n, err, got)
			}
			if !faulty.Crashed() {
				break
			}
		}
	}
}

func TestRowIDs_TwoAppenders_NeverMeet(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"})
	d.first.Add(d.write([]row{{100, 1}, {101, 1}})...)
	d.second.Add(d.write([]row{{200, 1}})...)
	d.run("", append(spanOf(0, 20), 100, 101, 200)...)
	snap := snapshot(t, open(t, d.st))
	if got := snap.DomainMetadata()["delta.rowTracking"].Configuration; got != `{"rowIdHighWaterMark":22}` {
		t.Errorf("high-water mark: got %s, want 22", got)
	}
	d.checkRowIDs(snap)
}

func TestEnableRowTracking_WhileOthersWrite_GivesEachRowAnID(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.enableDeletionVectors": "true"})
	d.first.DeleteRows(d.files[0], bitmapOf(1))
	d.second.Add(d.write([]row{{200, 1}})...)
	if _, err := open(t, d.st).EnableRowTracking(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	d.run("", append(append([]int64{0}, spanOf(2, 20)...), 200)...)
	snap := snapshot(t, open(t, d.st))
	d.checkRowIDs(snap)
	want := map[int64]bool{}
	for r, err := range snap.ScanFiles(context.Background(), d.scene.files(snap),
		&delta.ScanOptions{Columns: []string{"id"}, RowIDs: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(r.Batch.NumRows()) {
			want[r.Batch.Column(1).(*array.Int64).Value(i)] = true
		}
		r.Batch.Release()
	}
	if len(want) != 20 || snap.Property("delta.rowTracking.materializedRowIdColumnName") == "" {
		t.Errorf("got %d row ids and properties %v", len(want), snap.Metadata().Configuration)
	}
	if _, err := open(t, d.st).EnableRowTracking(context.Background(), nil); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestSetMetadata_RowTrackingOverFilesWithoutIDs_IsRefused(t *testing.T) {
	d := newDuel(t, map[string]string{"delta.feature.rowTracking": "supported", "delta.feature.domainMetadata": "supported"})
	m := d.snap.Metadata().Clone()
	m.Configuration["delta.enableRowTracking"] = "true"
	d.first.SetMetadata(m)
	if _, err := d.first.Commit(context.Background()); err != nil {
		t.Errorf("all files have row ids: %v", err)
	}
	old := newDuel(t, nil)
	m = old.snap.Metadata().Clone()
	m.Configuration["delta.enableRowTracking"] = "true"
	old.first.SetMetadata(m)
	old.first.SetProtocol(&delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 7,
		WriterFeatures: []string{"appendOnly", "invariants", "domainMetadata", "rowTracking"}})
	if _, err := old.first.Commit(context.Background()); err == nil || !strings.Contains(err.Error(), "row ids") {
		t.Errorf("got %v, want an error about row ids", err)
	}
}

func TestCommit_MetadataOfOthers_HarmlessIsAdopted(t *testing.T) {
	identity := func(mark string) string {
		return `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"comment":"c"` + mark +
			`}},{"name":"day","type":"date","nullable":true,"metadata":{}}]}`
	}
	for name, c := range map[string]struct {
		before, after         string // schemas
		properties            map[string]string
		conflict, withFeature bool
	}{
		"a mark of identity columns": {before: identity(`,"delta.identity.highWaterMark":1`),
			after: identity(`,"delta.identity.highWaterMark":9`)},
		"a comment":           {before: identity(""), after: identity(`,"x":1`), conflict: true},
		"deletion vectors":    {properties: map[string]string{"delta.enableDeletionVectors": "true"}},
		"in-commit timestamp": {properties: map[string]string{"delta.enableInCommitTimestamps": "true"}},
		"V2 checkpoints":      {properties: map[string]string{"delta.checkpointPolicy": "v2"}},
		"change feed":         {properties: map[string]string{"delta.enableChangeDataFeed": "true"}, conflict: true},
		"another property":    {properties: map[string]string{"delta.appendOnly": "true"}, conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			st := store.NewMem()
			table := create(t, st, nil)
			proto := &delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors",
				"v2Checkpoint"}, WriterFeatures: []string{"appendOnly", "invariants", "changeDataFeed", "deletionVectors",
				"v2Checkpoint", "inCommitTimestamp"}}
			m := snapshot(t, table).Metadata().Clone()
			if c.before != "" {
				m.SchemaString = c.before
			}
			set := func(table *delta.Table, m *delta.Metadata, p *delta.Protocol) {
				tx := table.Begin(snapshot(t, table), nil)
				tx.SetMetadata(m)
				if p != nil {
					tx.SetProtocol(p)
				}
				if _, err := tx.Commit(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			set(table, m, proto)
			tx := table.Begin(snapshot(t, table), nil)
			tx.Add(someFile("a"))
			m = m.Clone()
			if c.after != "" {
				m.SchemaString = c.after
			}
			for k, v := range c.properties {
				m.Configuration[k] = v
			}
			set(open(t, st), m, nil)
			_, err := tx.Commit(context.Background())
			if errors.Is(err, delta.ErrConflict) != c.conflict || !c.conflict && err != nil {
				t.Errorf("got %v, conflict wanted: %v", err, c.conflict)
			}
			if c.properties["delta.enableInCommitTimestamps"] == "true" {
				info := historyOf(t, st)[0].Info
				if info.InCommitTimestamp == nil {
					t.Errorf("the commit after the enabling one has no timestamp: %+v", info)
				}
			}
		})
	}
}

func historyOf(t *testing.T, st store.Store) (all []delta.HistoryEntry) {
	t.Helper()
	for e, err := range open(t, st).History(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestCommit_EnablementOfTimestampsLosesTheRace_RecordsWhereItLanded(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, map[string]string{"delta.feature.inCommitTimestamp": "supported"})
	tx := table.Begin(snapshot(t, table), nil)
	m := snapshot(t, table).Metadata().Clone()
	m.Configuration["delta.enableInCommitTimestamps"] = "true"
	tx.SetMetadata(m)
	appendFiles(t, open(t, st), "a")
	appendFiles(t, open(t, st), "b")
	result, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	at, err := result.Snapshot.Timestamp(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := result.Snapshot.Property("delta.inCommitTimestampEnablementVersion")
	if ms := result.Snapshot.Property("delta.inCommitTimestampEnablementTimestamp"); got != "3" ||
		ms != strconv.FormatInt(at.UnixMilli(), 10) {
		t.Errorf("enabled at version %s, %s; want version 3, %d", got, ms, at.UnixMilli())
	}
}

// TestEnableRowTracking_CrashAnywhere_CanBeDoneAgain lets a process die at every call, and has another go on.
func TestEnableRowTracking_CrashAnywhere_CanBeDoneAgain(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			d := newDuel(t, nil)
			faulty := storetest.NewFaulty(d.st, storetest.CrashAt(n, late))
			if table, err := delta.Open(context.Background(), faulty, nil); err == nil {
				_, err = table.EnableRowTracking(context.Background(), nil)
				if err != nil && !faulty.Crashed() {
					t.Errorf("no crash up to call %d: %v", n, err)
				}
			}
			if _, err := open(t, d.st).EnableRowTracking(context.Background(), nil); err != nil {
				t.Fatalf("after a crash at call %d: %v", n, err)
			}
			snap := snapshot(t, open(t, d.st))
			d.checkRowIDs(snap)
			if got := snap.DomainMetadata()["delta.rowTracking"].Configuration; got != `{"rowIdHighWaterMark":19}` {
				t.Errorf("after a crash at call %d: high-water mark %s, want 19", n, got)
			}
			if !faulty.Crashed() {
				break
			}
		}
	}
}
