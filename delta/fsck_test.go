package delta_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func check(t testing.TB, table *delta.Table, opts *delta.CheckOptions) *delta.CheckReport {
	t.Helper()
	r, err := table.Check(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// kindsOf are the kinds of the findings, each once.
func kindsOf(r *delta.CheckReport) (kinds []string) {
	for _, f := range r.Findings {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// soundTable has files with vectors, checkpoints, tracked rows and partitions.
func soundTable(t *testing.T, st store.Store, rng *rand.Rand) *delta.Table {
	table := pointsTable(t, st, rng, 12, delta.CreateOptions{PartitionBy: []string{"p"}, Properties: map[string]string{
		"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}})
	checkpoint(t, table)
	appendPoints(t, table, rng, 90_000, 40)
	return table
}

func TestCheck_SoundTable_FindsNothingAndCountsRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := soundTable(t, store.NewMem(), rng)
	optimize(t, table, nil)
	r := check(t, table, &delta.CheckOptions{Deep: true})
	if len(r.Findings) != 0 || r.Rows != int64(len(sortedRows(t, table))) {
		t.Errorf("%+v", r)
	}
}

// spoil damages something and returns which finding it must lead to.
type spoil func(t *testing.T, st store.Store, table *delta.Table) (kind string)

func anyKey(t *testing.T, st store.Store, part string) string {
	t.Helper()
	for o, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(o.Key, part) {
			return o.Key
		}
	}
	t.Fatalf("no %s", part)
	return ""
}

func liveFile(t *testing.T, table *delta.Table, vector bool) delta.Add {
	t.Helper()
	for a, err := range snapshot(t, table).Files(context.Background(), &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if (a.DeletionVector != nil) == vector {
			return *a
		}
	}
	t.Fatal("no such file")
	return delta.Add{}
}

// again commits a file anew with something changed.
func again(t *testing.T, table *delta.Table, change func(*delta.Add)) {
	t.Helper()
	a := liveFile(t, table, false)
	change(&a)
	tx := table.Begin(snapshot(t, table), nil)
	a.DataChange = false
	tx.Add(a)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, st store.Store, key string, change func([]byte) []byte) {
	t.Helper()
	data, err := st.Get(context.Background(), key)
	if err == nil {
		err = st.Put(context.Background(), key, change(bytes.Clone(data)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheck_DamagedTable_SaysWhatIsWrong(t *testing.T) {
	remove := func(t *testing.T, st store.Store, key string) {
		if err := st.Delete(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	spoils := map[string]spoil{
		"file gone": func(t *testing.T, st store.Store, table *delta.Table) string {
			remove(t, st, liveFile(t, table, false).Path)
			return delta.FindingMissingFile
		},
		"file cut": func(t *testing.T, st store.Store, table *delta.Table) string {
			edit(t, st, liveFile(t, table, false).Path, func(d []byte) []byte { return d[:len(d)-1] })
			return delta.FindingSize
		},
		"footer spoiled": func(t *testing.T, st store.Store, table *delta.Table) string {
			edit(t, st, liveFile(t, table, false).Path, spoilFooter)
			return delta.FindingUnreadable
		},
		"vector gone": func(t *testing.T, st store.Store, _ *delta.Table) string {
			remove(t, st, anyKey(t, st, "deletion_vector"))
			return delta.FindingMissingVector
		},
		"vector spoiled": func(t *testing.T, st store.Store, _ *delta.Table) string {
			edit(t, st, anyKey(t, st, "deletion_vector"), func(d []byte) []byte { d[len(d)/2] ^= 4; return d })
			return delta.FindingVector
		},
		"commit gone": func(t *testing.T, st store.Store, _ *delta.Table) string {
			remove(t, st, fmt.Sprintf("_delta_log/%020d.json", 4))
			return delta.FindingGap
		},
		"checkpoint spoiled": func(t *testing.T, st store.Store, _ *delta.Table) string {
			edit(t, st, anyKey(t, st, "checkpoint.parquet"), spoilFooter)
			return delta.FindingCheckpoint
		},
		"checkpoint gone": func(t *testing.T, st store.Store, _ *delta.Table) string {
			remove(t, st, anyKey(t, st, "checkpoint.parquet"))
			return delta.FindingCheckpointHint
		},
		"rows": func(t *testing.T, _ store.Store, table *delta.Table) string {
			again(t, table, func(a *delta.Add) { a.Stats = `{"numRecords":100000}`; a.BaseRowID = nil })
			return delta.FindingRows
		},
		"bounds": func(t *testing.T, _ store.Store, table *delta.Table) string {
			again(t, table, func(a *delta.Add) {
				a.Stats = strings.Replace(a.Stats, `"minValues":{"id":`, `"minValues":{"id":9`, 1)
			})
			return delta.FindingStats
		},
		"row ids without counts": func(t *testing.T, _ store.Store, table *delta.Table) string {
			other := liveFile(t, table, true)
			again(t, table, func(a *delta.Add) { a.BaseRowID, a.Stats = other.BaseRowID, "" })
			return delta.FindingRowIDs
		},
		"row ids": func(t *testing.T, _ store.Store, table *delta.Table) string {
			other := liveFile(t, table, true)
			again(t, table, func(a *delta.Add) { a.BaseRowID = other.BaseRowID })
			return delta.FindingRowIDs
		},
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seedOf(t), 0))
			st := store.NewMem()
			table := soundTable(t, st, rng)
			kind := spoil(t, st, table)
			r := check(t, table, &delta.CheckOptions{Deep: true})
			if !slices.Contains(kindsOf(r), kind) {
				t.Errorf("want %q among %v", kind, r.Findings)
			}
		})
	}
}

func TestCheck_Fix_TakesMissingFilesOutAndNothingElse(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	st := store.NewMem()
	table := soundTable(t, st, rng)
	gone := liveFile(t, table, false)
	lost := 0
	for rows, err := range snapshot(t, table).ScanFiles(context.Background(), []delta.Add{gone}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		lost += int(rows.Batch.NumRows())
		rows.Batch.Release()
	}
	before := len(sortedRows(t, table))
	if err := st.Delete(context.Background(), gone.Path); err != nil {
		t.Fatal(err)
	}
	if r := check(t, table, &delta.CheckOptions{}); r.Fixed != 0 || r.Errors != 1 {
		t.Fatalf("%+v", r)
	}
	r := check(t, table, &delta.CheckOptions{Fix: true})
	if r.Fixed != 1 || r.FixedAt != snapshot(t, table).Version() {
		t.Errorf("%+v", r)
	}
	if got := len(sortedRows(t, table)); got != before-lost {
		t.Errorf("%d rows, want %d", got, before-lost)
	}
	if r := check(t, table, &delta.CheckOptions{Deep: true}); len(r.Findings) != 0 {
		t.Errorf("afterwards: %+v", r.Findings)
	}
}

// TestCheck_FixCrashesAtEveryStoreCall_CanBeDoneAgain has a file that is gone, a checksum that is wrong and a checkpoint that
// cannot be read.
func TestCheck_FixCrashesAtEveryStoreCall_CanBeDoneAgain(t *testing.T) {
	t.Parallel()
	ctx, st := context.Background(), store.NewMem()
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	table := pointsTable(t, st, rng, 2, delta.CreateOptions{})
	appendPoints(t, table, rng, 9000, 5) // a file without a vector
	checkpoint(t, table)
	version := snapshot(t, table).Version()
	gone := liveFile(t, table, false)
	if err := st.Delete(ctx, gone.Path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"%020d.crc", "%020d.checkpoint.parquet"} {
		key := "_delta_log/" + fmt.Sprintf(name, version)
		if err := st.Put(ctx, key, []byte(`{"tableSizeBytes":1,"numFiles":77,"numMetadata":1,"numProtocol":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	fix := &delta.CheckOptions{Fix: true, Deep: true, Concurrency: 1}
	whole := copyOf(t, st)
	if r := check(t, open(t, whole), fix); r.Fixed != 3 {
		t.Fatalf("got %+v, want three findings fixed", r)
	}
	want, untouched := sortedRows(t, open(t, whole)), contents(t, st)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			inner := copyOf(t, st)
			broken := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			if handle, err := delta.Open(ctx, broken, nil); err == nil {
				_, err = handle.Check(ctx, fix)
				if err != nil && !broken.Crashed() {
					t.Fatal(err)
				}
			}
			if !broken.Crashed() {
				break
			}
			if sameTable(contents(t, inner), untouched) {
				continue
			}
			check(t, open(t, inner), fix)
			if r := check(t, open(t, inner), fix); r.Errors > 0 || r.Fixed > 0 {
				t.Fatalf("crash at call %d, after %v: the second time there is still %+v", n, after, r.Findings)
			}
			sameRows(t, open(t, inner), want)
		}
	}
}

// Files that tables of others lack, and what their origins made by hand so that it does not fit, is known; whatever else
// is found is a fault of the check.
func TestCheck_TablesOfOthers_FindsNoDamage(t *testing.T) {
	known := map[string]string{"cdf-table-simple": delta.FindingChanges, "cdf-table-update-ops": delta.FindingChanges,
		"parsed-stats": delta.FindingStats, "crc-full": delta.FindingChecksum,
		"deltalog-state-reconstruction-from-checkpoint-missing-metadata": delta.FindingCheckpoint}
	for _, dir := range goldenTables(t) {
		table, err := delta.Open(context.Background(), disk(t, filepath.Join(dir, "delta")), nil)
		if err != nil {
			continue
		}
		name := filepath.Base(dir)
		r, err := table.Check(context.Background(), &delta.CheckOptions{Deep: true})
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		for _, f := range r.Findings {
			if f.Severity != delta.SeverityInfo && !slices.Contains([]string{delta.FindingMissingFile,
				delta.FindingMissingVector, delta.FindingGap, delta.FindingCheckpointHint, known[name]}, f.Kind) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// spoilCommit makes the commit of a version no JSON.
func spoilCommit(t *testing.T, st store.Store, version int64) {
	t.Helper()
	edit(t, st, fmt.Sprintf("_delta_log/%020d.json", version), func(d []byte) []byte { d[1] = 'x'; return d })
}

func TestCheck_NewestCommitBroken_NamesTheNewestThatCanBeRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	st := store.NewMem()
	table := soundTable(t, st, rng)
	last := snapshot(t, table).Version()
	before, err := table.SnapshotAt(t.Context(), last-1)
	if err != nil {
		t.Fatal(err)
	}
	want, rows, err := digestOf(before, nil)
	if err != nil {
		t.Fatal(err)
	}
	spoilCommit(t, st, last)
	r, err := delta.Check(t.Context(), st, nil, &delta.CheckOptions{Deep: true})
	if err != nil || len(r.Findings) != 1 {
		t.Fatalf("got %+v, %v, want one finding", r, err)
	}
	f := r.Findings[0]
	if f.Kind != delta.FindingCommit || f.Version != last || r.Unfixed != 1 ||
		!strings.Contains(f.Remedy, fmt.Sprintf("version %d is the newest", last-1)) {
		t.Errorf("got %+v", f)
	}
	old, err := delta.OpenAt(t.Context(), st, last-1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, n, err := digestOf(old, nil); err != nil || got != want || n != rows {
		t.Errorf("version %d: got %d rows %s, %v, want %d rows %s", last-1, n, got, err, rows, want)
	}
	if r := check(t, old.Table(), &delta.CheckOptions{Deep: true, Snapshot: old}); len(r.Findings) != 0 {
		t.Errorf("version %d: %+v", last-1, r.Findings)
	}
}

// The checkpoint of a sound table stands for its first versions.
func TestCheck_CommitBehindACheckpointBroken_IsFoundWhenDeep(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, store.Store){
		delta.FindingCommit: func(t *testing.T, st store.Store) { spoilCommit(t, st, 1) },
		delta.FindingChecksum: func(t *testing.T, st store.Store) {
			edit(t, st, fmt.Sprintf("_delta_log/%020d.json", 1), func(d []byte) []byte {
				return bytes.Replace(d, []byte(`"operation"`), []byte(`"operatiom"`), 1)
			})
		},
	} {
		rng := rand.New(rand.NewPCG(seedOf(t), 0))
		st := store.NewMem()
		table := soundTable(t, st, rng)
		spoil(t, st)
		if r := check(t, table, &delta.CheckOptions{Deep: true}); !slices.Contains(kindsOf(r), name) {
			t.Errorf("want %q among %+v", name, r.Findings)
		}
	}
}

func TestCheck_FixOfOneDamage_LeavesTheOtherUnfixed(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	st := store.NewMem()
	table := soundTable(t, st, rng)
	edit(t, st, anyKey(t, st, "checkpoint.parquet"), spoilFooter)
	edit(t, st, liveFile(t, table, false).Path, spoilFooter)
	r := check(t, table, &delta.CheckOptions{Deep: true, Fix: true})
	if r.Errors != 1 || r.Fixed != 1 || r.Unfixed != 1 {
		t.Errorf("got %+v, want the checkpoint fixed and the file not", r)
	}
}
