package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// checksum is what a .crc says; ok is false when there is none.
func checksum(t *testing.T, st store.Store, version int64) (sum map[string]any, ok bool) {
	t.Helper()
	data, err := st.Get(context.Background(), logKey("%020d.crc", version))
	if errors.Is(err, store.ErrNotFound) {
		return nil, false
	}
	if err == nil {
		err = json.Unmarshal(data, &sum)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum, true
}

// liveTotals are the files of the version, counted one by one.
func liveTotals(t *testing.T, snap *delta.Snapshot) string {
	t.Helper()
	files, bytes := int64(0), int64(0)
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		files, bytes = files+1, bytes+a.Size
	}
	return fmt.Sprint(files, bytes)
}

func TestCommit_EachVersion_ChecksumCountsItsFiles(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	for i := range 6 {
		tx := table.Begin(snapshot(t, table), nil)
		tx.Add(delta.Add{Path: fmt.Sprint("f", i), Size: int64(10 + i), DataChange: true, Stats: `{"numRecords":1}`})
		if i%2 == 1 {
			size := int64(10 + i - 1)
			tx.Remove(delta.Remove{Path: fmt.Sprint("f", i-1), Size: &size, DataChange: true})
		}
		tx.AddTxn("app", int64(i))
		result, err := tx.Commit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		sum, ok := checksum(t, st, result.Version)
		if !ok {
			t.Fatalf("version %d has no checksum", result.Version)
		}
		if got, want := fmt.Sprint(sum["numFiles"], sum["tableSizeBytes"]), liveTotals(t, result.Snapshot); got != want {
			t.Errorf("version %d: got %s files and bytes, want %s", result.Version, got, want)
		}
		txns := sum["setTransactions"].([]any)
		if got := txns[0].(map[string]any)["version"]; len(txns) != 1 || got != float64(i) {
			t.Errorf("version %d: got progress %v, want %d", result.Version, txns, i)
		}
	}
	report, err := table.Check(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Kind == delta.FindingChecksum {
			t.Errorf("got %+v", f)
		}
	}
}

// A table whose totals nobody has told goes without checksums until a checkpoint has counted its files.
func TestCommit_TotalsUnknown_NoChecksumUntilCheckpoint(t *testing.T) {
	ctx := context.Background()
	st := store.NewMem()
	table := create(t, st, nil)
	first := appendFiles(t, table, "a", "b")
	for v := range int64(2) {
		if err := st.Delete(ctx, logKey("%020d.crc", v)); err != nil {
			t.Fatal(err)
		}
	}
	table = open(t, st)
	second := appendFiles(t, table, "c")
	if _, ok := checksum(t, st, second.Version); ok {
		t.Fatalf("version %d has a checksum, and nobody has counted its files", second.Version)
	}
	if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
		t.Fatal(err)
	}
	third := appendFiles(t, table, "d")
	sum, ok := checksum(t, st, third.Version)
	if !ok || sum["numFiles"] != float64(4) {
		t.Errorf("got checksum %v, want 4 files after version %d", sum, first.Version)
	}
}

func TestCommit_OtherProcess_GoesOnFromItsChecksum(t *testing.T) {
	st := store.NewMem()
	appendFiles(t, create(t, st, nil), "a", "b")
	result := appendFiles(t, open(t, st), "c")
	sum, ok := checksum(t, st, result.Version)
	if want := liveTotals(t, result.Snapshot); !ok || fmt.Sprint(sum["numFiles"], sum["tableSizeBytes"]) != want {
		t.Errorf("got checksum %v, want %s", sum, want)
	}
}

func TestCommit_RemoveWithoutSize_NoChecksum(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "a", "b")
	tx := table.Begin(snapshot(t, table), nil)
	tx.Remove(delta.Remove{Path: "a", DataChange: true})
	result, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if sum, ok := checksum(t, st, result.Version); ok {
		t.Errorf("got %v, and the size of what was removed is not known", sum)
	}
}

func TestCommit_ChecksumRefused_CommitStands(t *testing.T) {
	inner := store.NewMem()
	create(t, inner, nil)
	st := storetest.NewFaulty(inner, func(op storetest.Op, key string, _ int) storetest.Fault {
		if filepath.Ext(key) == ".crc" && op != storetest.OpGet {
			return storetest.Fault{Kind: storetest.ErrorBefore}
		}
		return storetest.Fault{}
	})
	result := appendFiles(t, open(t, st), "a")
	if _, ok := checksum(t, inner, result.Version); ok {
		t.Error("there is a checksum")
	}
}

func TestCheck_WrongChecksum_IsFoundAndDeleted(t *testing.T) {
	ctx := context.Background()
	for name, change := range map[string]string{
		"files":    `"numFiles":7`,
		"damage":   `"numFiles":`,
		"protocol": `"numFiles":2,"protocol":{"minReaderVersion":1,"minWriterVersion":1}`,
		"progress": `"numFiles":2,"setTransactions":[{"appId":"x","version":1}]`,
	} {
		st := store.NewMem()
		table := create(t, st, nil)
		result := appendFiles(t, table, "a", "b")
		for a, err := range result.Snapshot.Files(ctx, nil) {
			if err == nil {
				err = st.Put(ctx, a.Path, make([]byte, a.Size))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		key := logKey("%020d.crc", result.Version)
		text := `{"txnId":"x","tableSizeBytes":200,` + change + "}"
		if err := st.Put(ctx, key, []byte(text)); err != nil {
			t.Fatal(err)
		}
		report, err := open(t, st).Check(ctx, &delta.CheckOptions{Fix: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) != 1 || report.Findings[0].Kind != delta.FindingChecksum || report.Fixed != 1 {
			t.Errorf("%s: got %+v, want one finding, fixed", name, report)
		}
		if _, ok := checksum(t, st, result.Version); ok {
			t.Errorf("%s: it is still there", name)
		}
	}
}

// The checksums that Spark wrote agree with what we read of the log.
func TestGolden_Checksums_AgreeWithTheLog(t *testing.T) {
	compared := 0
	const lies = "crc-full" // made by hand so that whoever believes it is found out
	for _, dir := range goldenTables(t) {
		dir = filepath.Join(dir, "delta")
		found, err := filepath.Glob(filepath.Join(dir, "_delta_log", "*.crc"))
		if err != nil || len(found) == 0 || filepath.Base(filepath.Dir(dir)) == lies {
			continue
		}
		disk, err := store.NewDisk(dir)
		if err != nil {
			t.Fatal(err)
		}
		table, err := delta.Open(t.Context(), disk, nil)
		if err != nil {
			continue // what cannot be opened has a test of its own
		}
		report, err := table.Check(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.crc", report.Version))); err == nil {
			compared++
		}
		for _, f := range report.Findings {
			if f.Kind == delta.FindingChecksum {
				t.Errorf("%s: %s", dir, f.Detail)
			}
		}
	}
	if compared == 0 {
		t.Error("no table has a checksum of its newest version")
	}
}
