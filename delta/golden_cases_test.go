package delta_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
)

// goldenCase is something that the makers of a table assert of it in their own tests.
type goldenCase struct {
	Kind        string           `json:"kind"`
	Op          string           `json:"op"`
	Version     *int64           `json:"version"`
	Columns     []string         `json:"columns"`
	Rows        [][]any          `json:"rows"`
	Predicate   *string          `json:"predicate"`
	Count       int              `json:"count"`
	Sum         int              `json:"sum"`
	Missing     []int            `json:"missing_from_0_1999"`
	ActiveFiles int              `json:"active_files"`
	AppVersions map[string]int64 `json:"app_versions"`
	Absent      []string         `json:"absent"`
	Fields      []string         `json:"schema_fields"`
}

// TestGolden_AssertionsOfTheOrigin_Hold checks what EXPECTED.tsv does not tell: older versions, files, progress.
func TestGolden_AssertionsOfTheOrigin_Hold(t *testing.T) {
	checked := map[string]int{}
	for _, dir := range goldenTables(t) {
		var all struct{ Cases []goldenCase }
		text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range all.Cases {
			check := c.check()
			if check == nil {
				continue
			}
			checked[c.Kind]++
			t.Run(fmt.Sprintf("%s/%d_%s", filepath.Base(dir), i, c.Kind), func(t *testing.T) {
				table, err := delta.Open(context.Background(), goldenStore(t, filepath.Join(dir, "delta")), nil)
				if err != nil {
					t.Fatal(err)
				}
				snap, err := table.Snapshot(context.Background())
				if err == nil && c.Version != nil {
					snap, err = table.SnapshotAt(context.Background(), *c.Version)
				}
				if err != nil {
					t.Fatal(err)
				}
				check(t, snap)
			})
		}
	}
	want := map[string]int{"snapshot": 7, "snapshot_ids": 5, "multiset": 1, "files": 5, "txn": 1, "snapshot_meta": 1}
	if fmt.Sprint(checked) != fmt.Sprint(want) {
		t.Errorf("got cases %v, want %v", checked, want)
	}
}

// check returns the check of the case; nil for those that others make: change feeds, rows of the newest version (their
// digests are in EXPECTED.tsv), errors (TestScan_TablesOfOthers_RowsAsTheirEnginesRead).
func (c *goldenCase) check() func(t *testing.T, snap *delta.Snapshot) {
	switch c.Kind {
	case "snapshot":
		if len(c.Columns) == 1 && c.Predicate == nil {
			return c.checkIntegers
		}
	case "snapshot_ids":
		return c.checkIDs
	case "multiset":
		return c.checkSum
	case "files":
		return c.checkFiles
	case "txn":
		return c.checkTxns
	case "snapshot_meta":
		return c.checkFields
	}
	return nil
}

func (c *goldenCase) checkIntegers(t *testing.T, snap *delta.Snapshot) {
	var want []int
	for _, row := range c.Rows {
		var v int
		if _, err := fmt.Sscan(fmt.Sprint(row[0]), &v); err != nil {
			t.Fatal(err)
		}
		want = append(want, v)
	}
	sort.Ints(want)
	if got := integersOf(t, snap, c.Columns[0]); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func (c *goldenCase) checkIDs(t *testing.T, snap *delta.Snapshot) {
	var want []int
	for i := range 2000 {
		if !slices.Contains(c.Missing, i) {
			want = append(want, i)
		}
	}
	if got := integersOf(t, snap, "value"); !slices.Equal(got, want) || len(got) != c.Count {
		t.Errorf("got %d rows, want %d: all below 2000 but %v", len(got), c.Count, c.Missing)
	}
}

func (c *goldenCase) checkSum(t *testing.T, snap *delta.Snapshot) {
	sum := 0
	got := integersOf(t, snap, c.Columns[0])
	for _, v := range got {
		sum += v
	}
	if len(got) != c.Count || sum != c.Sum {
		t.Errorf("got %d rows, sum %d; want %d, sum %d", len(got), sum, c.Count, c.Sum)
	}
}

func (c *goldenCase) checkFiles(t *testing.T, snap *delta.Snapshot) {
	n := 0
	for _, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != c.ActiveFiles {
		t.Errorf("got %d files, want %d", n, c.ActiveFiles)
	}
}

func (c *goldenCase) checkTxns(t *testing.T, snap *delta.Snapshot) {
	for app, want := range c.AppVersions {
		if got, ok := snap.Txn(app); !ok || got != want {
			t.Errorf("txn of %s: got %d, %v; want %d", app, got, ok, want)
		}
	}
	for _, app := range c.Absent {
		if got, ok := snap.Txn(app); ok {
			t.Errorf("txn of %s: got %d, want none", app, got)
		}
	}
}

func (c *goldenCase) checkFields(t *testing.T, snap *delta.Snapshot) {
	var got []string
	for _, f := range snap.Schema().Fields {
		got = append(got, f.Name)
	}
	if !slices.Equal(got, c.Fields) {
		t.Errorf("got columns %v, want %v", got, c.Fields)
	}
}

// integersOf reads a column of integers, sorted.
func integersOf(t *testing.T, snap *delta.Snapshot, column string) (values []int) {
	t.Helper()
	for rec, err := range snap.Scan(context.Background(), &delta.ScanOptions{Columns: []string{column}}) {
		if err != nil {
			t.Fatal(err)
		}
		switch a := rec.Column(0).(type) {
		case *array.Int32:
			for _, v := range a.Int32Values() {
				values = append(values, int(v))
			}
		case *array.Int64:
			for _, v := range a.Int64Values() {
				values = append(values, int(v))
			}
		default:
			t.Fatalf("column %s is %s", column, rec.Column(0).DataType())
		}
		rec.Release()
	}
	sort.Ints(values)
	return values
}
