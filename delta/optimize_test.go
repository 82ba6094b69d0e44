package delta_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// seedOf is the seed of a random test; it is printed.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return seed
}

// pointsTable makes a table of random points in many small files, some of whose rows are deleted by vector.
func pointsTable(t testing.TB, st store.Store, rng *rand.Rand, files int, opts delta.CreateOptions) *delta.Table {
	t.Helper()
	ctx := context.Background()
	opts.Schema = fields("id", delta.Long, "p", delta.String, "x", delta.Integer, "y", delta.Double, "s", delta.String)
	if opts.Properties == nil {
		opts.Properties = map[string]string{"delta.enableDeletionVectors": "true"}
	}
	table, err := delta.Create(ctx, st, &opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		appendPoints(t, table, rng, i*1000, 1+rng.IntN(60))
	}
	deletePoints(t, table, rng, 0.4)
	return table
}

func appendPoints(t testing.TB, table *delta.Table, rng *rand.Rand, first, n int) {
	t.Helper()
	snap := snapshot(t, table)
	var rows strings.Builder
	for i := range n {
		x := "null"
		if rng.IntN(10) > 0 {
			x = fmt.Sprint(rng.IntN(1000))
		}
		fmt.Fprintf(&rows, `{"id":%d,"p":%q,"x":%s,"y":%g,"s":"s%d"},`, first+i, []string{"a", "b", ""}[rng.IntN(3)], x,
			rng.NormFloat64(), rng.IntN(20))
	}
	tx := table.Begin(snap, nil)
	tx.Add(writeUnder(t, table.Store(), snap.Metadata(), nil,
		batchOf(t, snap.Schema(), "["+strings.TrimSuffix(rows.String(), ",")+"]"))...)
	tx.BlindAppend(true)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// deletePoints deletes some rows of about this part of the files.
func deletePoints(t testing.TB, table *delta.Table, rng *rand.Rand, part float64) {
	t.Helper()
	ctx := context.Background()
	snap := snapshot(t, table)
	tx := table.Begin(snap, nil)
	for a, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if rng.Float64() > part {
			continue
		}
		tx.DeleteRows(*a, somePositions(t, snap, rng, *a))
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

// somePositions are live rows of a file, at least one.
func somePositions(t testing.TB, snap *delta.Snapshot, rng *rand.Rand, a delta.Add) *roaring64.Bitmap {
	t.Helper()
	rows := roaring64.New()
	for batch, err := range snap.ScanFiles(context.Background(), []delta.Add{a}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range batch.Rows {
			if i == 0 || rng.IntN(3) == 0 {
				rows.Add(uint64(at))
			}
		}
		batch.Batch.Release()
	}
	return rows
}

// sortedRows are the rows of the newest version, sorted.
func sortedRows(t testing.TB, table *delta.Table) []string {
	t.Helper()
	lines := scanLines(t, snapshot(t, table), nil)
	slices.Sort(lines)
	return lines
}

func sameRows(t testing.TB, table *delta.Table, want []string) {
	t.Helper()
	if got := sortedRows(t, table); !slices.Equal(got, want) {
		t.Fatalf("got %d rows, want the %d from before", len(got), len(want))
	}
}

func countFiles(t testing.TB, table *delta.Table) (files, vectors int) {
	t.Helper()
	for a, err := range snapshot(t, table).Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		files++
		if a.DeletionVector != nil {
			vectors++
		}
	}
	return files, vectors
}

func optimize(t testing.TB, table *delta.Table, opts *delta.OptimizeOptions) *delta.OptimizeResult {
	t.Helper()
	r, err := table.Optimize(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOptimize_SmallFilesAndVectors_OneFileAPartitionAndTheSameRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 20, delta.CreateOptions{PartitionBy: []string{"p"}})
	want := sortedRows(t, table)
	r := optimize(t, table, nil)
	sameRows(t, table, want)
	if files, vectors := countFiles(t, table); files != 3 || vectors != 0 {
		t.Errorf("%d files, %d with vectors: %+v", files, vectors, r)
	}
	if r.Rows != int64(len(want)) || r.Commits != 1 || r.DeletedRows == 0 {
		t.Errorf("%+v", r)
	}
	if again := optimize(t, table, nil); again.Commits != 0 {
		t.Errorf("again: %+v", again)
	}
}

func TestOptimize_SmallBatches_AreCommittedOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 12, delta.CreateOptions{PartitionBy: []string{"p"}})
	want := sortedRows(t, table)
	var last delta.OptimizeProgress
	r := optimize(t, table, &delta.OptimizeOptions{BatchBytes: 1, Progress: func(p delta.OptimizeProgress) { last = p }})
	sameRows(t, table, want)
	if r.Commits != 3 || last.Commits != 3 || last.FilesDone != last.Files || last.FilesAdded != r.AddedFiles {
		t.Errorf("%+v, %+v", r, last)
	}
}

func TestOptimize_ConditionOnPartitions_LeavesTheOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 12, delta.CreateOptions{PartitionBy: []string{"p"}})
	want := sortedRows(t, table)
	optimize(t, table, &delta.OptimizeOptions{Where: where(t, "p = 'a'")})
	sameRows(t, table, want)
	byPartition := map[string]int{}
	for a, err := range snapshot(t, table).Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if v := a.PartitionValues["p"]; v != nil {
			byPartition[*v]++
		}
	}
	if byPartition["a"] != 1 || byPartition["b"] < 2 {
		t.Errorf("files: %v", byPartition)
	}
	_, err := table.Optimize(context.Background(), &delta.OptimizeOptions{Where: where(t, "x = 1")})
	if !errors.Is(err, delta.ErrNotPartition) {
		t.Errorf("got %v", err)
	}
}

func TestOptimize_QuietFor_LeavesPartitionsThatGrow(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 6, delta.CreateOptions{PartitionBy: []string{"p"}})
	if r := optimize(t, table, &delta.OptimizeOptions{QuietFor: time.Hour}); r.Commits != 0 {
		t.Errorf("%+v", r)
	}
}

func TestOptimize_DryRun_ChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 6, delta.CreateOptions{})
	before := snapshot(t, table).Version()
	files, _ := countFiles(t, table)
	r := optimize(t, table, &delta.OptimizeOptions{DryRun: true})
	if r.RemovedFiles != int64(files) || r.AddedFiles != 1 || snapshot(t, table).Version() != before {
		t.Errorf("%+v", r)
	}
}

func TestOptimize_ZOrder_SameRowsInSmallBoxes(t *testing.T) {
	for _, memory := range []int64{0, 20 << 10} { // with the second one most rows wait on disk
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seedOf(t), 0))
			table := pointsTable(t, store.NewMem(), rng, 60, delta.CreateOptions{})
			want := sortedRows(t, table)
			opts := &delta.OptimizeOptions{ZOrderBy: []string{"x", "y"}, TargetFileBytes: 4 << 10, MemoryBytes: memory,
				SpillDir: t.TempDir()}
			r := optimize(t, table, opts)
			sameRows(t, table, want)
			if r.AddedFiles < 4 {
				t.Fatalf("%+v", r)
			}
			// A box of a quarter of each axis does not touch all files.
			touched := 0
			for _, err := range snapshot(t, table).Matching(context.Background(), where(t, "x < 100 AND y < -1")) {
				if err != nil {
					t.Fatal(err)
				}
				touched++
			}
			if touched >= int(r.AddedFiles) {
				t.Errorf("a corner touches %d of %d files", touched, r.AddedFiles)
			}
			if again := optimize(t, table, opts); again.Commits != 0 {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// What waits on disk has no name, so that a process that is killed leaves none of it.
func TestOptimize_ZOrderBeyondMemory_NoNamesOnDisk(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table, dir, asked := pointsTable(t, store.NewMem(), rng, 60, delta.CreateOptions{}), t.TempDir(), 0
	optimize(t, table, &delta.OptimizeOptions{ZOrderBy: []string{"x", "y"}, TargetFileBytes: 4 << 10, MemoryBytes: 20 << 10,
		SpillDir: dir, Progress: func(delta.OptimizeProgress) {
			names, err := os.ReadDir(dir)
			if err != nil || len(names) > 0 {
				t.Errorf("got %v, %v, want an empty folder", names, err)
			}
			asked++
		}})
	if asked == 0 {
		t.Error("no progress was told")
	}
}

func TestOptimize_ColumnsNobodyCanOrderBy_AreErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 2, delta.CreateOptions{PartitionBy: []string{"p"}})
	for column, reason := range map[string]string{"zz": "no such column", "p": "partition column"} {
		_, err := table.Optimize(context.Background(), &delta.OptimizeOptions{ZOrderBy: []string{column}})
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v", column, err)
		}
	}
}

func TestOptimize_ColumnWithADot_BetweenBackticks(t *testing.T) {
	table := made(t, fields("a.b", delta.Long, "a", &delta.Struct{Fields: fields("c", delta.Long).Fields}), nil)
	for range 2 {
		appendJSON(t, table, `[{"a.b":1,"a":{"c":2}},{"a.b":3,"a":null}]`)
	}
	r, err := table.Optimize(t.Context(), &delta.OptimizeOptions{ZOrderBy: []string{"`a.b`", "a.c"}})
	if err != nil || r.AddedFiles != 1 || r.Rows != 4 {
		t.Errorf("got %+v, %v, want one file of 4 rows", r, err)
	}
}

// cluster makes a table one that is clustered by x and y.
func cluster(t testing.TB, table *delta.Table) {
	t.Helper()
	tx := table.Begin(snapshot(t, table), nil)
	tx.SetDomainMetadata(delta.DomainMetadata{Domain: "delta.clustering",
		Configuration: `{"clusteringColumns":[["x"],["y"]],"domainName":"delta.clustering"}`})
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestOptimize_ClusteredTable_NewFilesOnlyUntilTheyOutweighACube(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, store.NewMem(), rng, 40, delta.CreateOptions{Properties: map[string]string{
		"delta.enableDeletionVectors": "true", "delta.feature.domainMetadata": "supported",
		"delta.feature.clustering": "supported"}})
	cluster(t, table)
	want := sortedRows(t, table)
	files, _ := countFiles(t, table)
	opts := &delta.OptimizeOptions{TargetFileBytes: 4 << 10}
	first := optimize(t, table, opts)
	sameRows(t, table, want)
	for a, err := range snapshot(t, table).Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if a.ClusteringProvider != "liquid" || *a.Tags["ZCUBE_ZORDER_BY"] != `["x","y"]` || a.Tags["ZCUBE_ID"] == nil {
			t.Fatalf("%+v", a)
		}
	}
	appendPoints(t, table, rng, 100_000, 20)
	want = sortedRows(t, table)
	second := optimize(t, table, opts)
	sameRows(t, table, want)
	if first.RemovedFiles != int64(files) || second.RemovedFiles != 1 {
		t.Errorf("%+v, then %+v", first, second)
	}
	if r := optimize(t, table, opts); r.Commits != 0 {
		t.Errorf("nothing new: %+v", r)
	}
	opts.Full = true
	full := optimize(t, table, opts)
	sameRows(t, table, want)
	if full.RemovedFiles != first.AddedFiles+second.AddedFiles {
		t.Errorf("full: %+v", full)
	}
}

func TestOptimize_TrackedRows_KeepTheirIDs(t *testing.T) {
	for _, order := range [][]string{nil, {"x", "y"}} {
		rng := rand.New(rand.NewPCG(seedOf(t), 0))
		table := pointsTable(t, store.NewMem(), rng, 15, delta.CreateOptions{Properties: map[string]string{
			"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}})
		ids := func() []string {
			lines := scanLines(t, snapshot(t, table), &delta.ScanOptions{RowIDs: true})
			slices.Sort(lines)
			return lines
		}
		want := ids()
		if len(want) == 0 || !strings.Contains(want[0], `"_row_id":`) || strings.Contains(want[0], `"_row_id":null`) {
			t.Fatalf("no ids: %v", want[:1])
		}
		if r := optimize(t, table, &delta.OptimizeOptions{ZOrderBy: order}); r.Commits != 1 {
			t.Fatalf("%+v", r)
		}
		if got := ids(); !slices.Equal(got, want) {
			t.Errorf("order %v: ids or versions of rows changed:\n got %v\nwant %v", order, got[:3], want[:3])
		}
	}
}
