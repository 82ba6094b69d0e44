package delta_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// model is what a table should be at one version, kept by hand.
type model struct {
	files map[string]string // id of the deletion vector by path
	txns  map[string]int64
	owner string
}

func (m model) clone() model {
	return model{files: maps.Clone(m.files), txns: maps.Clone(m.txns), owner: m.owner}
}

// history drives a table and its model through random commits.
type history struct {
	t        *testing.T
	rng      *rand.Rand
	st       store.Store
	tables   []*delta.Table // handles on the one table, each with its own memory
	versions []model
	names    int
}

func (h *history) now() *model { return &h.versions[len(h.versions)-1] }

// vector is a deletion vector of a name.
func vector(id string) *delta.DeletionVector {
	if id == "" {
		return nil
	}
	return &delta.DeletionVector{StorageType: "u", PathOrInlineDv: id, SizeInBytes: 36, Cardinality: 1}
}

// step commits something through one of the handles.
func (h *history) step() {
	ctx := context.Background()
	table := h.tables[h.rng.IntN(len(h.tables))]
	tx := table.Begin(snapshot(h.t, table), nil)
	next := h.now().clone()
	paths := slices.Sorted(maps.Keys(next.files))
	for range h.rng.IntN(4) {
		name := fmt.Sprint("new file ", h.names) // with a space, which the log encodes
		h.names++
		tx.Add(delta.Add{Path: strings.ReplaceAll(name, " ", "%20"), Size: 1, DataChange: true})
		next.files[name] = ""
	}
	h.rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for _, path := range paths[:min(len(paths), h.rng.IntN(4))] {
		old := next.files[path]
		encoded := strings.ReplaceAll(path, " ", "%20")
		if h.rng.IntN(2) == 0 {
			tx.Remove(delta.Remove{Path: encoded, DeletionVector: vector(old), DataChange: true})
			delete(next.files, path)
			continue
		}
		fresh := fmt.Sprint("dv", h.names)
		h.names++
		// The path is not encoded this time: it is the same file all the same.
		tx.Remove(delta.Remove{Path: path, DeletionVector: vector(old), DataChange: true})
		tx.Add(delta.Add{Path: encoded, DeletionVector: vector(fresh), Size: 1, DataChange: true})
		next.files[path] = fresh
	}
	if h.rng.IntN(2) == 0 {
		app, version := fmt.Sprint("app-", h.rng.IntN(5)), h.rng.Int64N(1000)
		was, ok := next.txns[app]
		tx.ExpectTxn(app, was, ok)
		tx.AddTxn(app, version)
		next.txns[app] = version
	}
	if h.rng.IntN(8) == 0 {
		meta := snapshot(h.t, table).Metadata().Clone()
		next.owner = fmt.Sprint(h.rng.IntN(100))
		meta.Configuration["owner"] = next.owner
		tx.SetMetadata(meta)
	}
	result, err := tx.Commit(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	h.versions = append(h.versions, next)
	if result.Version != int64(len(h.versions)-1) {
		h.t.Fatalf("got version %d, want %d", result.Version, len(h.versions)-1)
	}
	h.check(result.Snapshot)
}

func (h *history) check(snap *delta.Snapshot) {
	h.t.Helper()
	want := h.versions[snap.Version()]
	files := map[string]string{}
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			h.t.Fatal(err)
		}
		path := strings.ReplaceAll(a.Path, "%20", " ")
		if _, twice := files[path]; twice {
			h.t.Fatalf("version %d has %s twice", snap.Version(), path)
		}
		files[path] = ""
		if a.DeletionVector != nil {
			files[path] = a.DeletionVector.PathOrInlineDv
		}
	}
	if !maps.Equal(files, want.files) {
		h.t.Fatalf("version %d: files\n got %v\nwant %v", snap.Version(), files, want.files)
	}
	txns := map[string]int64{}
	for app, txn := range snap.Txns() {
		txns[app] = txn.Version
	}
	if !maps.Equal(txns, want.txns) || snap.Property("owner") != want.owner {
		h.t.Fatalf("version %d: progress %v and owner %q, want %v and %q", snap.Version(),
			txns, snap.Property("owner"), want.txns, want.owner)
	}
}

func TestHistories_Random_AgreeWithAModel(t *testing.T) {
	for i := range 8 {
		seed := uint64(i) + 1
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomHistory(t, seed) })
		})
	}
}

func randomHistory(t *testing.T, seed uint64) {
	ctx := context.Background()
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 0)), st: store.NewMem()}
	h.tables = []*delta.Table{create(t, h.st, snappy(map[string]string{"delta.enableDeletionVectors": "true"}))}
	h.tables = append(h.tables, open(t, h.st), open(t, h.st))
	h.versions = []model{{files: map[string]string{}, txns: map[string]int64{}}}
	first := int64(0)
	for range 90 {
		pass(time.Duration(h.rng.IntN(int(day))))
		h.step()
		switch h.rng.IntN(10) {
		case 0:
			checkpoint(t, h.tables[h.rng.IntN(len(h.tables))])
		case 1:
			if _, err := h.tables[0].CleanLog(ctx, nil); err != nil {
				t.Fatal(err)
			}
			_, err := open(t, h.st).SnapshotAt(ctx, first)
			for ; err != nil; _, err = open(t, h.st).SnapshotAt(ctx, first) {
				first++
			}
		case 2:
			h.tables[h.rng.IntN(len(h.tables))] = open(t, h.st)
		case 3:
			snap, err := h.tables[0].SnapshotAt(ctx, first+h.rng.Int64N(int64(len(h.versions))-first))
			if err != nil {
				t.Fatal(err)
			}
			h.check(snap)
		}
		for _, table := range h.tables {
			if h.rng.IntN(3) == 0 {
				h.check(snapshot(t, table))
			}
		}
	}
	h.check(snapshot(t, open(t, h.st)))
}
