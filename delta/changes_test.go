package delta_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// change is a row of a change feed.
type change struct {
	version int64
	kind    string
	method  delta.ChangeMethod
	row     string // the table's columns, canonical
}

// readChanges reads a range of versions.
func readChanges(table *delta.Table, from, to int64, opts *delta.ChangesOptions) (all []change, err error) {
	for c, err := range table.Changes(context.Background(), from, to, opts) {
		if err != nil {
			return all, err
		}
		enc := canonical.NewEncoder(c.Batch.Schema())
		for i := range int(c.Batch.NumRows()) {
			line, err := enc.AppendRow(nil, c.Batch, i)
			if err != nil {
				return nil, err
			}
			var row map[string]json.RawMessage
			if err := json.Unmarshal(line, &row); err != nil {
				return nil, err
			}
			kind := strings.Trim(string(row["_change_type"]), `"`)
			if want := fmt.Sprint(c.Version); string(row["_commit_version"]) != want {
				return nil, fmt.Errorf("_commit_version is %s, want %s", row["_commit_version"], want)
			}
			if want := c.Time.Format("2006-01-02T15:04:05.000000Z"); string(row["_commit_timestamp"]) != `"`+want+`"` {
				return nil, fmt.Errorf("_commit_timestamp is %s, want %s", row["_commit_timestamp"], want)
			}
			for _, name := range []string{"_change_type", "_commit_version", "_commit_timestamp"} {
				delete(row, name)
			}
			text, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			all = append(all, change{c.Version, kind, c.Method, string(text)})
		}
		c.Batch.Release()
	}
	return all, nil
}

func mustChanges(t *testing.T, table *delta.Table, from, to int64, opts *delta.ChangesOptions) []change {
	t.Helper()
	all, err := readChanges(table, from, to, opts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sorted are the changes as text, without how they were found.
func sorted(changes []change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%d %s %s", c.version, c.kind, c.row))
	}
	slices.Sort(out)
	return out
}

// netted are the changes as deletes and inserts, without those that cancel each other.
func netted(changes []change) []string {
	count := map[string]int{}
	for _, c := range changes {
		key := fmt.Sprintf("%d %s", c.version, c.row)
		if c.kind == delta.ChangeInsert || c.kind == delta.ChangePostimage {
			count[key]++
		} else {
			count[key]--
		}
	}
	var out []string
	for key, n := range count {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s × %d", key, n))
		}
	}
	slices.Sort(out)
	return out
}

// diffLines tells where two sorted lists differ.
func diffLines(got, want []string) string {
	var b strings.Builder
	for len(got)+len(want) > 0 {
		switch order := firstLine(got, want); {
		case order < 0:
			fmt.Fprintf(&b, "+ %s\n", got[0])
			got = got[1:]
		case order > 0:
			fmt.Fprintf(&b, "- %s\n", want[0])
			want = want[1:]
		default:
			got, want = got[1:], want[1:]
		}
	}
	return b.String()
}

func firstLine(a, b []string) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return cmp.Compare(a[0], b[0])
}

// unpack opens a table of testdata/changes in memory. skip, which may be nil, tells which files to leave out.
func unpack(t *testing.T, setting string, skip func(name string) bool) (*delta.Table, store.Store) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "changes", setting+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	for files := tar.NewReader(zipped); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if skip != nil && skip(h.Name) {
			continue
		}
		if err := st.Put(context.Background(), h.Name, body); err != nil {
			t.Fatal(err)
		}
	}
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table, st
}

// histories are the settings in which Spark wrote one history, with the methods that can read each.
var histories = []struct {
	setting string
	methods []delta.ChangeMethod
}{
	{"feed", []delta.ChangeMethod{delta.MethodAuto, delta.MethodFeed, delta.MethodVectors, delta.MethodDiff}},
	{"vectors", []delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}},
	{"row-tracking", []delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodRowTracking,
		delta.MethodDiff}},
	{"plain", []delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}},
}

func TestChanges_OneHistoryInFourSettings_AllMethodsAgree(t *testing.T) {
	feed, _ := unpack(t, "feed", nil)
	want := mustChanges(t, feed, 0, -1, &delta.ChangesOptions{Method: delta.MethodFeed})
	keyed := mustChanges(t, feed, 0, -1, &delta.ChangesOptions{Method: delta.MethodFeed, Key: []string{"ID"}})
	if len(netted(want)) < 100 || len(keyed) < 100 {
		t.Fatalf("the feed has %d changes, %d by key", len(want), len(keyed))
	}
	for _, h := range histories {
		table, _ := unpack(t, h.setting, nil)
		for _, method := range h.methods {
			t.Run(h.setting+"/"+cmp.Or(string(method), "auto"), func(t *testing.T) {
				got := mustChanges(t, table, 0, -1, &delta.ChangesOptions{Method: method})
				if d := diffLines(netted(got), netted(want)); d != "" {
					t.Errorf("as deletes and inserts, against the feed:\n%s", d)
				}
				got = mustChanges(t, table, 0, -1, &delta.ChangesOptions{Method: method, Key: []string{"id"}})
				if d := diffLines(sorted(got), sorted(keyed)); d != "" {
					t.Errorf("by key, against the feed:\n%s", d)
				}
			})
		}
	}
}

func TestChanges_FilesOfOthers_RowsAsTheirTestsAssert(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	files, err := filepath.Glob(filepath.Join(root, "delta", "*", "*", "*", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	ranges := 0
	for _, file := range files {
		for _, c := range expectedChanges(t, file) {
			ranges++
			name := strings.TrimPrefix(filepath.Dir(file), root)
			t.Run(fmt.Sprintf("%s/%d-%d", name, c.from(), c.to()), func(t *testing.T) {
				compareExpected(t, filepath.Join(filepath.Dir(file), "delta"), c)
			})
		}
	}
	if ranges != 17 {
		t.Errorf("found %d ranges, want 17", ranges)
	}
}

// expectedRange is a case of an origin's tests.
type expectedRange struct {
	Kind    string   `json:"kind"`
	Op      string   `json:"op"`
	From    *int64   `json:"start_version"`
	Since   string   `json:"start_timestamp"`
	To      *int64   `json:"end_version"`
	Columns []string `json:"columns"`
	Rows    [][]string
}

func (c *expectedRange) from() int64 {
	if c.From == nil {
		return -1
	}
	return *c.From
}

func (c *expectedRange) to() int64 {
	if c.To == nil {
		return -1
	}
	return *c.To
}

func expectedChanges(t *testing.T, file string) (ranges []expectedRange) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases struct{ Cases []json.RawMessage }
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, text := range cases.Cases {
		var c expectedRange
		if !bytes.Contains(text, []byte(`"cdf"`)) {
			continue
		}
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, c)
	}
	return ranges
}

func compareExpected(t *testing.T, path string, c expectedRange) {
	st, err := store.NewDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := c.from()
	if c.Since != "" {
		at, err := time.Parse(time.RFC3339, c.Since)
		if err != nil {
			t.Fatal(err)
		}
		if from, err = table.VersionSince(context.Background(), at); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readChanges(table, from, c.to(), &delta.ChangesOptions{Method: delta.MethodFeed})
	if c.Kind == "error" {
		if err == nil {
			t.Errorf("got %d changes, want an error", len(got))
		}
		t.Log(err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := diffLines(plainRows(t, got, c.Columns), expectedRows(c)); d != "" {
		t.Error(d)
	}
	if auto := mustChanges(t, table, from, c.to(), nil); diffLines(sorted(auto), sorted(got)) != "" {
		t.Errorf("the method auto gives %d rows, feed %d", len(auto), len(got))
	}
}

// plainRows are changes as origins print them: cells joined, numbers in one form, null as nothing.
func plainRows(t *testing.T, changes []change, columns []string) (rows []string) {
	for _, c := range changes {
		values := map[string]any{}
		if err := json.Unmarshal([]byte(c.row), &values); err != nil {
			t.Fatal(err)
		}
		values["_change_type"], values["_commit_version"] = c.kind, c.version
		var cells []string
		for _, name := range columns {
			if name == "_commit_timestamp" { // of the files of the origin
				continue
			}
			text := ""
			if v := values[name]; v != nil {
				text = fmt.Sprint(v)
			}
			cells = append(cells, plainCell(text))
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	slices.Sort(rows)
	return rows
}

func expectedRows(c expectedRange) (rows []string) {
	for _, row := range c.Rows {
		var cells []string
		for i, cell := range row {
			if c.Columns[i] != "_commit_timestamp" {
				cells = append(cells, plainCell(cell))
			}
		}
		rows = append(rows, strings.Join(cells, " | "))
	}
	slices.Sort(rows)
	return rows
}

func plainCell(text string) string {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprint(n)
	}
	return text
}
