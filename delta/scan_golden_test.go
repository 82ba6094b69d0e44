package delta_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// digestOf reads all rows of a snapshot.
func digestOf(snap *delta.Snapshot, opts *delta.ScanOptions) (sum string, rows int64, err error) {
	var d canonical.Digest
	var line []byte
	for rec, err := range snap.Scan(context.Background(), opts) {
		if err != nil {
			return "", 0, err
		}
		enc := canonical.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			if line, err = enc.AppendRow(line[:0], rec, i); err != nil {
				return "", 0, err
			}
			if err := d.Add(line); err != nil {
				return "", 0, err
			}
		}
		rec.Release()
	}
	return d.Sum()
}

// TestScan_TablesOfOthers_RowsAsTheirEnginesRead reads the newest version of each table that some engine can read.
func TestScan_TablesOfOthers_RowsAsTheirEnginesRead(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names a folder of Delta tables written by other engines")
	}
	text, err := os.ReadFile(filepath.Join(root, "EXPECTED.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		cells := append(strings.Split(line, "\t"), "")
		t.Run(cells[0], func(t *testing.T) {
			t.Parallel()
			if strings.Contains(cells[5], "testOnly") {
				t.Skip(cells[5])
			}
			st, err := store.NewDisk(filepath.Join(root, cells[0], "delta"))
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, st, cells[1], cells[2], cells[3])
		})
	}
}

func compareGolden(t *testing.T, st store.Store, version, rows, sum string) {
	table, err := delta.Open(context.Background(), st, nil)
	var gotSum string
	var gotRows int64
	if err == nil {
		var snap *delta.Snapshot
		if snap, err = table.Snapshot(context.Background()); err == nil {
			if version != "-" && strconv.FormatInt(snap.Version(), 10) != version {
				t.Fatalf("got version %d, want %s", snap.Version(), version)
			}
			gotSum, gotRows, err = digestOf(snap, nil)
		}
	}
	switch {
	case errors.Is(err, delta.ErrUnsupportedFeature):
		t.Skip(err)
	case sum == "-":
		t.Skipf("no engine reads it; here: %d rows, %v", gotRows, err)
	case err != nil:
		t.Error(err)
	case gotSum != sum || strconv.FormatInt(gotRows, 10) != rows:
		t.Errorf("got %d rows, %s; want %s rows, %s", gotRows, gotSum, rows, sum)
	}
}
