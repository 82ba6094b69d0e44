package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/delta"
)

// TestChecksums_OursAndSparksInTurn_BothFindThemRight has Spark validate our .crc files and build its own upon them, and goes on
// from Spark's.
func TestChecksums_OursAndSparksInTurn_BothFindThemRight(t *testing.T) {
	t.Parallel()
	needReaders(t)
	ctx := context.Background()
	settings := map[string]map[string]string{
		"plain":   nil,
		"vectors": {"delta.enableDeletionVectors": "true"},
		"all": {"delta.enableDeletionVectors": "true", "delta.enableInCommitTimestamps": "true",
			"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"},
	}
	tables := map[string]*made{}
	var paths []string
	for name, properties := range settings {
		m := makeTable(t, filepath.Join(t.TempDir(), name), idAndS, delta.CreateOptions{Properties: properties})
		for n := range 3 {
			m.numbered(n*20, n*20+20)
			m.commit(func(tx *delta.Transaction) { tx.AddTxn("app", int64(n)) })
		}
		m.delete("id % 7 = 0")
		if _, err := m.table.Optimize(ctx, nil); err != nil {
			t.Fatal(err)
		}
		tables[m.path], paths = m, append(paths, m.path)
	}
	for line := range bytes.Lines(reader(t, "checksum.py", paths...)) {
		var found struct {
			Table         string
			Before, After any
		}
		if err := json.Unmarshal(line, &found); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		m := tables[found.Table]
		delete(tables, found.Table)
		before := m.snapshot().Version() - 1
		if found.Before != float64(before) || found.After != float64(before+1) {
			t.Errorf("Spark validated %v and %v, want versions %d and %d", found.Before, found.After, before, before+1)
		}
		table, err := delta.Open(ctx, m.st, nil) // as a process that has not seen Spark's commit
		if err != nil {
			t.Fatal(err)
		}
		m.table = table
		m.numbered(60, 65)
		crc := filepath.Join(m.path, "_delta_log", fmt.Sprintf("%020d.crc", m.snapshot().Version()))
		if _, err := os.Stat(crc); err != nil {
			t.Errorf("the commit after Spark's has no checksum: %v", err)
		}
		report, err := table.Check(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			t.Errorf("%s: got %+v", m.path, f)
		}
	}
	if len(tables) > 0 {
		t.Errorf("Spark told nothing of %v", tables)
	}
}
