package delta_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// row is a row of the tables of these tests; ids are never given out twice.
type row struct{ id, v int64 }

// rowModel is what a table should hold: v by id.
type rowModel map[int64]int64

func (m rowModel) rows() []row {
	var all []row
	for _, id := range slices.Sorted(maps.Keys(m)) {
		all = append(all, row{id, m[id]})
	}
	return all
}

// scene is a table that several writers change at once, each through a store that fails. Steps of writers are
// interleaved by the seed, and run one after another.
type scene struct {
	t       *testing.T
	rng     *rand.Rand
	st      store.Store
	table   *delta.Table
	writers []*sceneWriter
	nextID  int64
	nextOp  int
	means   map[string]func(rowModel) // what a commit does, by its user metadata
	mix     []string                  // the operations that are drawn from
	kinds   map[string]int            // how many commits of a kind landed
	moved   int                       // files whose rows to delete were found again where a compaction had put them
	hidden  int                       // new files of compactions in which rows deleted meanwhile were hidden
	lost    int                       // conflicts
	died    int                       // writers
}

// mixes are the operations of histories.
var (
	anyMix = []string{"append", "append", "append", "delete", "delete", "update", "update", "copy on write",
		"optimize", "optimize", "optimize in the dark", "overwrite", "drop a file"}
	vectorMix = []string{"append", "delete", "update", "update", "optimize", "optimize"}
)

type sceneWriter struct {
	st    *storetest.Faulty
	table *delta.Table
	armed bool
	tx    *delta.Transaction // nil between operations
	kind  string
	adds  []delta.Add // of a compaction
}

func newScene(t *testing.T, seed uint64, properties map[string]string) *scene {
	h := &scene{t: t, rng: rand.New(rand.NewPCG(seed, 4)), st: store.NewMem(), mix: anyMix,
		means: map[string]func(rowModel){}, kinds: map[string]int{}}
	schema := fields("id", delta.Long, "v", delta.Long)
	table, err := delta.Create(context.Background(), h.st, &delta.CreateOptions{Schema: schema, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	h.table = table
	for range 2 + h.rng.IntN(4) {
		w := &sceneWriter{}
		h.start(w)
		h.writers = append(h.writers, w)
	}
	return h
}

// start gives the writer a store that fails in its commits, lets others go first, and dies now and then.
func (h *scene) start(w *sceneWriter) {
	rule := storetest.Seeded(h.rng.Uint64(), 0.1)
	w.st = storetest.NewFaulty(h.st, func(op storetest.Op, key string, n int) storetest.Fault {
		if !w.armed {
			return storetest.Fault{}
		}
		if op == storetest.OpPutIfAbsent && h.rng.IntN(4) == 0 {
			h.stepAnother(w)
		}
		switch h.rng.IntN(100) {
		case 0:
			return storetest.Fault{Kind: storetest.CrashBefore}
		case 1:
			return storetest.Fault{Kind: storetest.CrashAfter}
		}
		return rule(op, key, n)
	})
	w.table = open(h.t, w.st)
}

// stepAnother lets a writer that is not in the middle of a commit take a step.
func (h *scene) stepAnother(busy *sceneWriter) {
	w := h.writers[h.rng.IntN(len(h.writers))]
	if w != busy && !w.armed {
		h.step(w)
	}
}

func (h *scene) step(w *sceneWriter) {
	if w.tx == nil {
		h.begin(w)
		return
	}
	w.armed = true
	done, err := w.tx.Commit(context.Background())
	w.armed = false
	w.tx = nil
	if err == nil {
		h.moved += done.Moved
		h.hidden += h.hiddenIn(done.Version, w.adds)
	}
	switch {
	case w.st.Crashed():
		h.died++
		h.start(w)
	case errors.Is(err, delta.ErrConflict):
		h.lost++
	case err != nil && !store.Retryable(err):
		h.t.Errorf("%s: %v", w.kind, err)
	}
}

// hiddenIn is how many of a compaction's new files have a deletion vector from the start.
func (h *scene) hiddenIn(version int64, adds []delta.Add) (n int) {
	if len(adds) == 0 {
		return 0
	}
	snap, err := h.table.SnapshotAt(context.Background(), version)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range h.files(snap) {
		if a.DeletionVector != nil && slices.ContainsFunc(adds, func(b delta.Add) bool { return b.Path == a.Path }) {
			n++
		}
	}
	return n
}

// begin plans an operation on the newest version.
func (h *scene) begin(w *sceneWriter) {
	snap := snapshot(h.t, w.table)
	w.tx = w.table.Begin(snap, nil)
	h.nextOp++
	op := fmt.Sprint(h.nextOp)
	w.tx.UserMetadata(op)
	w.kind, w.adds = h.mix[h.rng.IntN(len(h.mix))], nil
	if w.kind == "overwrite" && h.rng.IntN(3) > 0 {
		w.kind = "append"
	}
	w.tx.Operation(w.kind, nil, nil)
	h.means[op] = h.plan(w, snap)
}

func (h *scene) plan(w *sceneWriter, snap *delta.Snapshot) func(rowModel) {
	switch w.kind {
	case "append":
		w.tx.BlindAppend(true)
		return h.insert(w.tx)
	case "delete", "update":
		return h.byVector(w, snap)
	case "copy on write":
		return h.copyOnWrite(w.tx, snap)
	case "optimize":
		w.adds = h.optimize(w.tx, snap, true)
	case "optimize in the dark":
		h.optimize(w.tx, snap, false)
	case "overwrite":
		w.tx.ReadTable()
		for _, a := range h.files(snap) {
			w.tx.Remove(a.Remove())
		}
		insert := h.insert(w.tx)
		return func(m rowModel) {
			clear(m)
			insert(m)
		}
	case "drop a file":
		return h.dropFile(w.tx, snap)
	}
	return func(rowModel) {}
}

func (h *scene) insert(tx *delta.Transaction) func(rowModel) {
	var rows []row
	for range 1 + h.rng.IntN(8) {
		rows = append(rows, row{h.nextID, h.rng.Int64N(100)})
		h.nextID++
	}
	tx.Add(h.write(rows)...)
	return func(m rowModel) {
		for _, r := range rows {
			m[r.id] = r.v
		}
	}
}

// span is a condition on ids that some rows fulfil.
func (h *scene) span() (from, to int64, text string) {
	from = h.rng.Int64N(h.nextID + 1)
	to = from + h.rng.Int64N(6)
	return from, to, fmt.Sprintf("id >= %d AND id < %d", from, to)
}

func (h *scene) byVector(w *sceneWriter, snap *delta.Snapshot) func(rowModel) {
	from, to, text := h.span()
	w.tx.ReadWhere(where(h.t, text))
	var updated []row
	for _, a := range h.files(snap) {
		gone := roaring64.New()
		for _, r := range h.read(snap, a) {
			if r.id >= from && r.id < to {
				gone.Add(uint64(r.at))
				updated = append(updated, row{r.id, r.v + 1})
			}
		}
		if !gone.IsEmpty() {
			w.tx.DeleteRows(a, gone)
		}
	}
	if w.kind == "update" && len(updated) > 0 {
		w.tx.Add(h.write(updated)...)
	}
	update := w.kind == "update"
	return func(m rowModel) {
		for id := from; id < to; id++ {
			if v, ok := m[id]; ok && update {
				m[id] = v + 1
			} else {
				delete(m, id)
			}
		}
	}
}

func (h *scene) copyOnWrite(tx *delta.Transaction, snap *delta.Snapshot) func(rowModel) {
	from, to, text := h.span()
	tx.ReadWhere(where(h.t, text))
	for _, a := range h.files(snap) {
		var kept []row
		rows := h.read(snap, a)
		for _, r := range rows {
			if r.id < from || r.id >= to {
				kept = append(kept, r.row)
			}
		}
		if len(kept) < len(rows) {
			tx.Remove(a.Remove())
			tx.Add(h.write(kept)...)
		}
	}
	return func(m rowModel) {
		for id := from; id < to; id++ {
			delete(m, id)
		}
	}
}

// dropFile deletes the rows of one file, whatever they are when it has been read.
func (h *scene) dropFile(tx *delta.Transaction, snap *delta.Snapshot) func(rowModel) {
	files := h.files(snap)
	if len(files) == 0 {
		return func(rowModel) {}
	}
	a := files[h.rng.IntN(len(files))]
	tx.ReadFiles(a)
	tx.Remove(a.Remove())
	rows := h.read(snap, a)
	return func(m rowModel) {
		for _, r := range rows {
			if _, ok := m[r.id]; !ok {
				h.t.Errorf("a file was dropped for its row %d, which was gone", r.id)
			}
			delete(m, r.id)
		}
	}
}

// optimize rewrites some of the files into one or two, and returns these.
func (h *scene) optimize(tx *delta.Transaction, snap *delta.Snapshot, origins bool) []delta.Add {
	r := delta.Rewrite{}
	var rows []row
	var from []delta.Origin
	for _, a := range h.files(snap) {
		if h.rng.IntN(2) == 0 {
			continue
		}
		next := int64(-1)
		for _, p := range h.read(snap, a) {
			if p.at != next {
				from = append(from, delta.Origin{File: len(r.Removed), First: p.at})
			}
			from[len(from)-1].Rows++
			next = p.at + 1
			rows = append(rows, p.row)
		}
		r.Removed = append(r.Removed, a)
	}
	if len(rows) == 0 {
		tx.Add(h.write(nil)...)
		return nil
	}
	cut := h.rng.IntN(len(rows))
	r.Added = slices.Concat(h.write(rows[:cut]), h.write(rows[cut:]))
	if origins {
		r.Origins = cutOrigins(from, int64(cut))
	}
	tx.Rewrite(r)
	return r.Added
}

// cutOrigins divides runs between a file of so many rows and one of the others; a file of none is not there.
func cutOrigins(runs []delta.Origin, rows int64) [][]delta.Origin {
	var head []delta.Origin
	for rows > 0 {
		run := runs[0]
		run.Rows = min(run.Rows, rows)
		head = append(head, run)
		rows -= run.Rows
		if runs[0].First, runs[0].Rows = runs[0].First+run.Rows, runs[0].Rows-run.Rows; runs[0].Rows == 0 {
			runs = runs[1:]
		}
	}
	if head == nil {
		return [][]delta.Origin{runs}
	}
	return [][]delta.Origin{head, runs}
}

func (h *scene) files(snap *delta.Snapshot) (all []delta.Add) {
	for a, err := range snap.Matching(context.Background(), nil) {
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b delta.Add) int { return strings.Compare(a.Stats, b.Stats) })
	return all
}

// placedRow is a row and its position in the file.
type placedRow struct {
	row
	at int64
}

func (h *scene) read(snap *delta.Snapshot, files ...delta.Add) (all []placedRow) {
	for r, err := range snap.ScanFiles(context.Background(), files, nil) {
		if err != nil {
			h.t.Fatal(err)
		}
		ids, vs := r.Batch.Column(0).(*array.Int64), r.Batch.Column(1).(*array.Int64)
		for i, at := range r.Rows {
			all = append(all, placedRow{row{ids.Value(i), vs.Value(i)}, at})
		}
		r.Batch.Release()
	}
	return all
}

// write writes plain pages: decoders of others are kept in pools, which no bubble of synctest may leave.
func (h *scene) write(rows []row) []delta.Add {
	if len(rows) == 0 {
		return nil
	}
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, `,{"id":%d,"v":%d}`, r.id, r.v)
	}
	s := fields("id", delta.Long, "v", delta.Long)
	plain := describe(s, nil, map[string]string{"delta.parquet.compression.codec": "none"})
	return writeUnder(h.t, h.st, plain, nil, batchOf(h.t, s, "["+text.String()[1:]+"]"))
}

// runScenes runs random histories of a mix, and counts what happened in all of them.
func runScenes(t *testing.T, mix []string, seeds uint64) (all scene) {
	all.kinds = map[string]int{}
	for seed := range seeds {
		properties := map[string]string{"delta.enableDeletionVectors": "true"}
		if seed%3 == 1 {
			properties["delta.enableRowTracking"] = "true"
		}
		if seed%4 == 2 {
			properties["delta.enableInCommitTimestamps"] = "true"
		}
		if seed%5 == 3 {
			properties["delta.enableChangeDataFeed"] = "true"
		}
		synctest.Test(t, func(t *testing.T) {
			h := newScene(t, seed, properties)
			h.mix = mix
			for range 80 {
				h.step(h.writers[h.rng.IntN(len(h.writers))])
			}
			h.check()
			all.lost, all.died = all.lost+h.lost, all.died+h.died
			all.moved, all.hidden = all.moved+h.moved, all.hidden+h.hidden
			for k, n := range h.kinds {
				all.kinds[k] += n
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%v landed, %d conflicts, %d writers died; %d files' rows moved, %d new files with hidden rows",
		all.kinds, all.lost, all.died, all.moved, all.hidden)
	return all
}

func TestCommit_RandomHistories_EqualTheSequentialModel(t *testing.T) {
	runScenes(t, anyMix, 40)
}

// TestCommit_CompactionsAmongVectors_MeetBothWays has compactions lose to deletions of rows of their files, and deletions
// to compactions, again and again.
func TestCommit_CompactionsAmongVectors_MeetBothWays(t *testing.T) {
	if all := runScenes(t, vectorMix, 30); all.moved == 0 || all.hidden == 0 {
		t.Errorf("rows of %d files moved, %d new files had hidden rows; want some of both", all.moved, all.hidden)
	}
}
