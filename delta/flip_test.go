package delta_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// contents are all objects of a store.
func contents(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	ctx, all := context.Background(), make(map[string][]byte)
	for o, err := range st.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := st.Get(ctx, o.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[o.Key] = data
	}
	return all
}

// newestDigest reads the newest version of a table.
func newestDigest(st store.Store) (string, error) { return newestWhere(st, nil) }

// newestWhere reads the rows of the newest version that a condition holds of.
func newestWhere(st store.Store, where *expr.Expr) (string, error) {
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		return "", err
	}
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		return "", err
	}
	sum, rows, err := digestOf(snap, &delta.ScanOptions{Where: where})
	return fmt.Sprint(snap.Version(), rows, sum), err
}

// checked returns how many bytes of a file, from its beginning, are those in which a flipped bit cannot give other rows: all
// of a deletion vector, the pages of a Parquet file of ours, all of the log's JSON where our checksums guard it. Footers have
// no checksums: what becomes of them may be valid.
func checked(key string, data []byte, ours bool) int {
	switch {
	case ours && strings.HasPrefix(key, "_delta_log/") && !strings.HasSuffix(key, ".parquet"):
		return len(data)
	case strings.Contains(key, "deletion_vector"):
		return len(data)
	case strings.HasSuffix(key, ".parquet"):
		return len(data) - 8 - int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	}
	return 0
}

// flipBits reads the table once for each of n flipped bits of each file.
func flipBits(t *testing.T, st *store.Mem, seed uint64, n int, ours bool) {
	t.Helper()
	want, err := newestDigest(st)
	if err != nil {
		t.Fatal(err)
	}
	files := contents(t, st)
	for key, whole := range files {
		if len(whole) == 0 {
			continue
		}
		safe := checked(key, whole, ours)
		r := rand.New(rand.NewPCG(seed, uint64(crc32.ChecksumIEEE(whole)))) // names, and so the order of files, are random
		for range n {
			at, bit := r.IntN(len(whole)), r.IntN(8)
			if ours && safe > 0 && r.IntN(4) > 0 {
				at = r.IntN(safe)
			}
			broken := bytes.Clone(whole)
			broken[at] ^= 1 << bit
			if err := st.Put(context.Background(), key, broken); err != nil {
				t.Fatal(err)
			}
			got, err := newestDigest(st)
			sure := at < safe && (ours || !strings.HasSuffix(key, ".parquet"))
			if err == nil && got != want && sure {
				t.Errorf("bit %d of byte %d of %s flipped: got %s, want %s or an error", bit, at, key, got, want)
			}
		}
		if err := st.Put(context.Background(), key, whole); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScan_BitFlippedInAFileOfOurs_ErrorOrTheSameRows has data files with and without vectors, and a checkpoint.
func TestScan_BitFlippedInAFileOfOurs_ErrorOrTheSameRows(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	s, rows := allTypes()
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s,
		Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		snap := snapshot(t, table)
		more := strings.Repeat(","+strings.Trim(rows, " \n\t[]"), 20)
		tx := table.Begin(snap, nil)
		tx.Add(writeAll(t, st, s, nil, nil, batchOf(t, s, "["+more[1:]+"]"))...)
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := table.Delete(ctx, where(t, "i8 = 127"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if i == 1 {
			if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
				t.Fatal(err)
			}
		}
	}
	flipBits(t, st, 8, 40, true)
}

// TestScan_BitFlippedInAFileOfOthers_NoPanicAndVectorsAreSure flips bits in a sample of the tables that others wrote.
func TestScan_BitFlippedInAFileOfOthers_NoPanicAndVectorsAreSure(t *testing.T) {
	root := filepath.Join(filepath.Dir(filepath.Dir(parquetTesting(t))), "delta")
	logs, err := filepath.Glob(filepath.Join(root, "*", "*", "*", "delta", "_delta_log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	const seed = 9
	r := rand.New(rand.NewPCG(seed, seed))
	r.Shuffle(len(logs), func(i, j int) { logs[i], logs[j] = logs[j], logs[i] })
	slices.SortStableFunc(logs, func(a, b string) int { return vectors(b) - vectors(a) })
	tables := 0
	for _, log := range logs {
		st := store.NewMem()
		if !loadSmall(t, st, filepath.Dir(log)) {
			continue
		}
		if _, err := newestDigest(st); err != nil {
			continue // refused as it is
		}
		flipBits(t, st, seed, 4, false)
		if tables++; tables == 25 {
			break
		}
	}
}

// vectors is 1 for tables with files of deletion vectors, which are of most interest.
func vectors(log string) int {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(log), "deletion_vector*"))
	return min(len(found), 1)
}

// loadSmall copies a table, unless it is large.
func loadSmall(t *testing.T, st *store.Mem, dir string) bool {
	t.Helper()
	total, files := int64(0), 0
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		if total, files = total+info.Size(), files+1; total > 300<<10 || files > 40 {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return st.Put(context.Background(), filepath.ToSlash(key), data)
	})
	if err != nil {
		t.Fatal(err)
	}
	return total <= 300<<10 && files <= 40
}

// TestScan_BitFlippedInACommitWithChecksum_ErrorOrTheSameRows has partitions, statistics that rule files out, deletion
// vectors and files that were removed, and reads all rows and some. Every bit that is flipped must be noticed, unless nobody
// reads it.
func TestScan_BitFlippedInACommitWithChecksum_ErrorOrTheSameRows(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	s := fields("day", delta.String, "id", delta.Long)
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s, PartitionBy: []string{"day"},
		Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		tx := table.Begin(snapshot(t, table), nil)
		rows := fmt.Sprintf(`[{"day":"a","id":%d},{"day":"a","id":%d},{"day":"b","id":%d},{"day":"c","id":%d}]`, i, i+10, i, i+5)
		tx.Add(writeAll(t, st, s, []string{"day"}, nil, batchOf(t, s, rows))...)
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.Delete(ctx, where(t, "id = 11 or day = 'c' and id = 6"), nil); err != nil {
		t.Fatal(err)
	}
	some := where(t, "day = 'a' and id >= 11")
	wantAll, err := newestDigest(st)
	if err != nil {
		t.Fatal(err)
	}
	wantSome, err := newestWhere(st, some)
	if err != nil {
		t.Fatal(err)
	}
	const seed = 10
	r, noticed := rand.New(rand.NewPCG(seed, seed)), 0
	for key, whole := range contents(t, st) {
		if !strings.HasSuffix(key, ".json") {
			continue
		}
		for range 300 {
			at, bit := r.IntN(len(whole)), r.IntN(8)
			broken := bytes.Clone(whole)
			broken[at] ^= 1 << bit
			if err := st.Put(ctx, key, broken); err != nil {
				t.Fatal(err)
			}
			all, errAll := newestDigest(st)
			few, errSome := newestWhere(st, some)
			if errAll == nil && all != wantAll || errSome == nil && few != wantSome {
				t.Errorf("seed %d: bit %d of byte %d of %s flipped: got %s and %s, want %s and %s, or errors", seed, bit, at, key,
					all, few, wantAll, wantSome)
			}
			if errAll != nil && errSome != nil {
				noticed++
			}
		}
		if err := st.Put(ctx, key, whole); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d: of 1500 flips %d were noticed", seed, noticed)
}
