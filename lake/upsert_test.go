package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
)

var keyedLane = freshet.Lane{Origin: "orders", OriginID: "a", Name: "0"}

// item is a row of a keyed table; in a change, fields that are nil were not sent.
type item struct {
	id   int64
	n    *int64
	text *string
	at   int64 // the sequence
}

func (i item) String() string {
	show := func(v any, ok bool) string {
		if !ok {
			return "-"
		}
		return fmt.Sprint(v)
	}
	n, text := int64(0), ""
	if i.n != nil {
		n = *i.n
	}
	if i.text != nil {
		text = *i.text
	}
	return fmt.Sprintf("%d: %s %s at %d", i.id, show(n, i.n != nil), show(text, i.text != nil), i.at)
}

var itemSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "at", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}, nil)

// unsent is a sequence that was not sent.
const unsent = -1 << 40

// absentID is a key that was not sent.
const absentID = -1 << 41

// itemChange is a change of an item.
type itemChange struct {
	kind freshet.Kind
	item
}

// itemBatch is a batch of changes, one a seq from after+1 on.
func itemBatch(table string, lane freshet.Lane, after int64, changes []itemChange) *freshet.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, itemSchema)
	defer b.Release()
	batch := &freshet.Batch{Table: table, Lane: lane, After: after, Last: after + int64(len(changes)),
		Unsent: freshet.NewMask(itemSchema.NumFields())}
	for row, c := range changes {
		if c.id == absentID {
			b.Field(0).AppendNull()
			batch.Unsent.Mark(row, 0)
		} else {
			b.Field(0).(*array.Int64Builder).Append(c.id)
		}
		if c.n == nil {
			b.Field(1).AppendNull()
			batch.Unsent.Mark(row, 1)
		} else {
			b.Field(1).(*array.Int64Builder).Append(*c.n)
		}
		if c.text == nil {
			b.Field(2).AppendNull()
			batch.Unsent.Mark(row, 2)
		} else {
			b.Field(2).(*array.StringBuilder).Append(*c.text)
		}
		if c.at == unsent {
			b.Field(3).AppendNull()
			batch.Unsent.Mark(row, 3)
		} else {
			b.Field(3).(*array.Int64Builder).Append(c.at)
		}
		batch.Kinds = append(batch.Kinds, c.kind)
		batch.Seqs = append(batch.Seqs, after+int64(row)+1)
	}
	batch.Rows = b.NewRecordBatch()
	return batch
}

// items are the rows of the table by id. A key that is there twice is a fault.
func (w *world) items(t *testing.T, table string) map[int64]item {
	t.Helper()
	out := map[int64]item{}
	opts := &delta.ScanOptions{Columns: []string{"id", "n", "text", "at"}}
	for rec, err := range w.snapshot(t, table).Scan(t.Context(), opts) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			it := item{id: rec.Column(0).(*array.Int64).Value(i), at: rec.Column(3).(*array.Int64).Value(i)}
			if c := rec.Column(1).(*array.Int64); c.IsValid(i) {
				v := c.Value(i)
				it.n = &v
			}
			if c := rec.Column(2).(*array.String); c.IsValid(i) {
				v := c.Value(i)
				it.text = &v
			}
			if other, twice := out[it.id]; twice {
				t.Fatalf("the key %d is there twice: %v and %v", it.id, it, other)
			}
			out[it.id] = it
		}
		rec.Release()
	}
	return out
}

// keyedModel is what a keyed table must hold: a map, and 20 lines.
type keyedModel struct {
	items    map[int64]item
	sequence bool
	logged   map[int64]item         // by the number of the delete: what it found; nil: not asked for
	nth      int64                  // changes before this one
	ended    map[int64]int64        // with a sequence: where each key was deleted last
	waiting  map[int64][]itemChange // changes, by key, that nothing makes whole yet
}

func (m *keyedModel) apply(c itemChange) {
	defer func() { m.nth++ }()
	old, there := m.items[c.id]
	ended, was := m.ended[c.id]
	whole := c.n != nil && c.text != nil
	switch {
	case m.sequence && there && c.at < old.at, m.sequence && !there && was && c.at < ended:
		return
	case c.kind == freshet.Delete:
		if there && m.logged != nil {
			m.logged[m.nth] = old
		}
		delete(m.items, c.id)
		m.ended[c.id] = c.at
		delete(m.waiting, c.id)
		return
	case !there && !whole:
		m.waiting[c.id] = append(m.waiting[c.id], c)
		return
	case whole:
		delete(m.waiting, c.id)
	}
	if c.n == nil {
		c.n = old.n
	}
	if c.text == nil {
		c.text = old.text
	}
	m.items[c.id] = c.item
}

// release applies what waits for keys that are there: another writer has brought them.
func (m *keyedModel) release() {
	for id, waits := range m.waiting {
		if _, there := m.items[id]; there {
			delete(m.waiting, id)
			for _, c := range waits {
				m.apply(c)
			}
		}
	}
}

// commitAll seals and commits what is pending.
func commitAll(t *testing.T, target *lake.Target) {
	t.Helper()
	commits, err := target.Seal(t.Context())
	must(t, err)
	for _, c := range commits {
		_, err := c.Run(t.Context())
		must(t, err)
	}
}

func ptr[T any](v T) *T { return &v }

// randomChange changes one of keys ids. Without partial it sends every field.
func randomChange(r *rand.Rand, keys int64, at int64, partial bool) itemChange {
	c := itemChange{kind: freshet.UpdatePostimage, item: item{id: r.Int64N(keys), n: ptr(r.Int64N(1000)),
		text: ptr("v" + strconv.FormatInt(r.Int64N(1_000_000), 10)), at: at}}
	switch n := r.IntN(10); {
	case n == 0:
		c.kind = freshet.Delete
		c.n, c.text = nil, nil
	case n < 3 && partial:
		if r.IntN(2) == 0 {
			c.n = nil
		} else {
			c.text = nil
		}
	}
	return c
}

func compareItems(t *testing.T, got, want map[int64]item) {
	t.Helper()
	for id, w := range want {
		if g, ok := got[id]; !ok || g.String() != w.String() {
			t.Errorf("key %d: got %v (there: %v), want %v", id, g, ok, w)
		}
	}
	for id, g := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("key %d: got %v, want none", id, g)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestUpsert_RandomChanges_TableEqualsTheModel lets a stream of changes, other writers, restarts and losses of the index
// loose on keyed tables of several kinds.
func TestUpsert_RandomChanges_TableEqualsTheModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			k := &keyedRun{t: t, r: rand.New(rand.NewPCG(seed, 3)), w: newWorld(), dir: t.TempDir()}
			k.opts = lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: k.dir,
				CopyOnWrite: seed%4 == 1}, Properties: map[string]string{}}
			if seed%2 == 1 {
				k.opts.Mode, k.opts.Key.SequenceBy = lake.Upsert, []string{"at"}
			}
			if seed%3 == 2 {
				k.opts.Properties["delta.enableChangeDataFeed"] = "true"
			}
			k.model = keyedModel{items: map[int64]item{}, ended: map[int64]int64{}, waiting: map[int64][]itemChange{},
				sequence: seed%2 == 1}
			k.run()
		})
	}
}

type keyedRun struct {
	t      *testing.T
	r      *rand.Rand
	w      *world
	dir    string
	opts   lake.TargetOptions
	model  keyedModel
	target *lake.Target
	last   int64
	ids    int64
}

func (k *keyedRun) run() {
	k.ids, k.last = 1+k.r.Int64N(300), -1
	k.open()
	must(k.t, k.target.Ensure(k.t.Context(), "t", itemSchema))
	_, err := k.target.Start(k.t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(k.t, err)
	for range 25 {
		switch k.r.IntN(12) {
		case 0:
			must(k.t, k.target.Close(context.Background()))
			k.open()
		case 1:
			must(k.t, k.target.Close(context.Background()))
			k.damageIndex()
			k.open()
		case 2:
			k.foreignDelete()
		case 3:
			k.foreignOptimize()
		case 4:
			k.foreignRestore()
		default:
			k.changes()
		}
		compareItems(k.t, k.w.items(k.t, "t"), k.model.items)
	}
	must(k.t, k.target.Close(context.Background()))
	wanted := 0
	for _, waits := range k.model.waiting {
		wanted += len(waits)
	}
	if got := len(k.w.rejects(k.t, "t")); got != wanted {
		k.t.Errorf("got %d rejects, want %d", got, wanted)
	}
}

func (k *keyedRun) open() {
	k.target = k.w.target(&k.opts)
	must(k.t, k.target.Open(k.t.Context()))
	_, err := k.target.Resume(k.t.Context(), "t", []freshet.Lane{keyedLane})
	must(k.t, err)
}

func (k *keyedRun) changes() {
	k.model.release()
	for range 1 + k.r.IntN(3) {
		var batch []itemChange
		for range 1 + k.r.IntN(60) {
			at := (k.last+int64(len(batch))+1)<<20 + k.r.Int64N(1<<20)
			if k.model.sequence && k.r.IntN(4) == 0 {
				at -= k.r.Int64N(50) << 20
			}
			c := randomChange(k.r, k.ids, at, !k.model.sequence)
			batch = append(batch, c)
		}
		for _, c := range batch {
			k.model.apply(c)
		}
		_, err := k.target.Write(k.t.Context(), itemBatch("t", keyedLane, k.last, batch))
		must(k.t, err)
		k.last += int64(len(batch))
	}
	commitAll(k.t, k.target)
}

// damageIndex deletes, cuts or flips a bit of some of the index's files.
func (k *keyedRun) damageIndex() {
	files, err := filepath.Glob(filepath.Join(k.dir, "*", "*", "*"))
	must(k.t, err)
	for _, name := range files {
		switch k.r.IntN(5) {
		case 0:
			must(k.t, os.Remove(name))
		case 1:
			info, err := os.Stat(name)
			must(k.t, err)
			must(k.t, os.Truncate(name, k.r.Int64N(info.Size()+1)))
		case 2:
			data, err := os.ReadFile(name)
			must(k.t, err)
			if len(data) > 0 {
				data[k.r.IntN(len(data))] ^= 1 << k.r.IntN(8)
				must(k.t, os.WriteFile(name, data, 0o666))
			}
		}
	}
}

func (k *keyedRun) table() *delta.Table {
	d, err := delta.Open(k.t.Context(), k.w.store("t"), nil)
	must(k.t, err)
	return d
}

func (k *keyedRun) foreignDelete() {
	id := k.r.Int64N(k.ids)
	where, err := expr.Parse(fmt.Sprintf("id %% 7 = %d", id%7))
	must(k.t, err)
	_, err = k.table().Delete(k.t.Context(), where, nil)
	must(k.t, err)
	for i := range k.model.items {
		if i%7 == id%7 {
			delete(k.model.items, i)
		}
	}
}

// foreignRestore brings back what a delete has just taken.
func (k *keyedRun) foreignRestore() {
	before := k.w.snapshot(k.t, "t").Version()
	where, err := expr.Parse("id % 3 = 1")
	must(k.t, err)
	_, err = k.table().Delete(k.t.Context(), where, nil)
	must(k.t, err)
	if k.r.IntN(2) == 0 { // the index sees the delete on its own, or both at once
		k.target.Discard("t")
		must(k.t, k.target.Close(context.Background()))
		k.open()
	}
	_, err = k.table().Restore(k.t.Context(), before, nil)
	must(k.t, err)
}

func (k *keyedRun) foreignOptimize() {
	_, err := k.table().Optimize(k.t.Context(), nil)
	must(k.t, err)
}

// keyedTable is an open target with a table t that takes items by a key, and a function that commits changes to it.
func keyedTable(t *testing.T, opts lake.TargetOptions) (*world, func(...itemChange)) {
	t.Helper()
	w := newWorld()
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, t.TempDir()
	target := w.running(t, &opts)
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	last := int64(-1)
	return w, func(changes ...itemChange) {
		t.Helper()
		b := itemBatch("t", keyedLane, last, changes)
		last = b.Last
		_, err := target.Write(t.Context(), b)
		must(t, err)
		commitAll(t, target)
	}
}

func put(id, n, at int64) itemChange {
	return itemChange{kind: freshet.UpdatePostimage, item: item{id: id, n: ptr(n), text: ptr("x"), at: at}}
}

func TestUpsert_LateRows_AreDropped(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"at"}}})
	commit(put(1, 10, 5), put(1, 11, 3), put(2, 20, 5))
	commit(put(1, 12, 4), put(2, 21, 6))
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 5).item, 2: put(2, 21, 6).item})
}

func TestUpsert_EqualSequenceOfOneLane_LaterRecordWins(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"at"}}})
	commit(put(1, 10, 5))
	commit(put(1, 11, 5))
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 11, 5).item})
	if rejects := w.rejects(t, "t"); len(rejects) > 0 {
		t.Errorf("got rejects %v, want none", rejects)
	}
}

func TestUpsert_EqualSequenceOfARowThatAnotherWriterMoved_LaterRecordWins(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"at"}}})
	commit(put(1, 10, 5), put(2, 20, 5), put(3, 30, 5))
	where, err := expr.Parse("id = 1")
	must(t, err)
	text, err := expr.Parse("'y'")
	must(t, err)
	d, err := delta.Open(t.Context(), w.store("t"), nil)
	must(t, err)
	_, err = d.Update(t.Context(), []delta.Assignment{{Column: "text", Value: text}}, where, nil) // its place, not its sequence
	must(t, err)
	commit(put(1, 11, 5))
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 11, 5).item, 2: put(2, 20, 5).item, 3: put(3, 30, 5).item})
	if rejects := w.rejects(t, "t"); len(rejects) > 0 {
		t.Errorf("got rejects %v, want none", rejects)
	}
}

func TestUpsert_KeyChanged_OldRowIsGone(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Mirror})
	commit(put(1, 10, 1), put(2, 20, 2))
	before, after := put(1, 10, 1), put(3, 10, 3)
	before.kind = freshet.UpdatePreimage
	commit(before, after)
	compareItems(t, w.items(t, "t"), map[int64]item{2: put(2, 20, 2).item, 3: after.item})
}

func TestUpsert_DeleteWithoutSequence_StandsBehindWhatCameBefore(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"at"}}})
	gone := func(id int64) itemChange { return itemChange{kind: freshet.Delete, item: item{id: id, at: unsent}} }
	commit(put(1, 10, 5), put(2, 20, 5), put(3, 30, 5))
	commit(gone(1), put(2, 21, 6), gone(2), gone(3), put(3, 31, 7))
	compareItems(t, w.items(t, "t"), map[int64]item{3: put(3, 31, 7).item})
	if rejects := w.rejects(t, "t"); len(rejects) > 0 {
		t.Errorf("got rejects %v, want none", rejects)
	}
}

func TestUpsert_SoftDelete_RowStaysWithTheTime(t *testing.T) {
	w, commit := keyedTable(t, lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.SoftDeletes}})
	gone := itemChange{kind: freshet.Delete, item: item{id: 1, at: 9}}
	commit(put(1, 10, 1), put(2, 20, 2))
	commit(gone)
	deleted := func() (ids []int64) {
		where, err := expr.Parse("_deleted_at IS NOT NULL")
		must(t, err)
		for rec, err := range w.snapshot(t, "t").Scan(t.Context(), &delta.ScanOptions{Columns: []string{"id"}, Where: where}) {
			must(t, err)
			ids = append(ids, rec.Column(0).(*array.Int64).Int64Values()...)
			rec.Release()
		}
		return ids
	}
	if got := deleted(); len(got) != 1 || got[0] != 1 {
		t.Errorf("got the deleted keys %v, want 1", got)
	}
	compareItems(t, w.items(t, "t"), map[int64]item{1: put(1, 10, 1).item, 2: put(2, 20, 2).item})
	commit(put(1, 11, 10))
	if got := deleted(); len(got) != 0 {
		t.Errorf("got the deleted keys %v once 1 came back, want none", got)
	}
}

func TestUpsert_IndexFolderIsAFile_SaysWhatToDo(t *testing.T) {
	dir := t.TempDir() + "/index"
	must(t, os.WriteFile(dir, []byte("no folder"), 0o600))
	w := newWorld()
	target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: dir}})
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{put(1, 1, 1)}))
	must(t, err)
	commits, err := target.Seal(t.Context())
	must(t, err)
	_, err = commits[0].Run(t.Context())
	commits[0].Abort()
	var e *freshet.Error
	if !errors.As(err, &e) || e.Class != freshet.ClassEnvironment || !strings.Contains(e.Fix, "index_dir") {
		t.Errorf("got %v, want an error of the environment that names index_dir", err)
	}
}

// An index whose folder goes while it is open shows when it is brought over what another writer committed.
func TestUpsert_IndexFolderGoesUnderWay_IsMadeAnewOrSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(dir string)
		want  map[int64]item
	}{
		{"deleted", func(string) {}, map[int64]item{1: put(1, 1, 1).item, 2: put(2, 21, 2).item}},
		{"a file in its place", func(dir string) { must(t, os.WriteFile(dir, nil, 0o600)) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir() + "/index"
			w := newWorld()
			target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror,
				Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: dir}})
			must(t, target.Ensure(t.Context(), "t", itemSchema))
			_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
			must(t, err)
			_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, []itemChange{put(1, 1, 1), put(2, 2, 1)}))
			must(t, err)
			commitAll(t, target)
			must(t, os.RemoveAll(dir))
			c.spoil(dir)
			d, err := delta.Open(t.Context(), w.store("t"), nil)
			must(t, err)
			where, err := expr.Parse("id = 2")
			must(t, err)
			_, err = d.Delete(t.Context(), where, nil)
			must(t, err)
			_, err = target.Write(t.Context(), itemBatch("t", keyedLane, 1, []itemChange{put(2, 21, 2)}))
			must(t, err)
			commits, err := target.Seal(t.Context())
			must(t, err)
			_, err = commits[0].Run(t.Context())
			if c.want != nil {
				must(t, err)
				compareItems(t, w.items(t, "t"), c.want)
				return
			}
			commits[0].Abort()
			var e *freshet.Error
			if !errors.As(err, &e) || e.Class != freshet.ClassEnvironment || !strings.Contains(e.Fix, "index_dir") {
				t.Errorf("got %v, want an error of the environment that names index_dir", err)
			}
		})
	}
}

// A key that Delta has as null would make a row that no index can find again.
func TestUpsert_EmptyTextInAPartitionColumnOfTheKey_GoesToQuarantine(t *testing.T) {
	w := newWorld()
	target := w.running(t, &lake.TargetOptions{Mode: lake.Mirror, PartitionBy: []string{"text"},
		Key: lake.KeyOptions{Columns: []string{"id", "text"}, IndexDir: t.TempDir()}})
	must(t, target.Ensure(t.Context(), "t", itemSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	changes := []itemChange{put(1, 1, 1), put(2, 2, 2)}
	changes[0].text = ptr("")
	_, err = target.Write(t.Context(), itemBatch("t", keyedLane, -1, changes))
	must(t, err)
	commitAll(t, target)
	compareItems(t, w.items(t, "t"), map[int64]item{2: put(2, 2, 2).item})
	if got := w.rejects(t, "t"); len(got) != 1 {
		t.Errorf("got the rejects %v, want the row without a text", got)
	}
}
