package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// derivedState is the expected state of a golden table, by an independent replay.
type derivedState struct {
	Error    string `json:"error"`
	Version  int64  `json:"version"`
	Protocol struct {
		MinReaderVersion int      `json:"minReaderVersion"`
		MinWriterVersion int      `json:"minWriterVersion"`
		ReaderFeatures   []string `json:"readerFeatures"`
		WriterFeatures   []string `json:"writerFeatures"`
	} `json:"protocol"`
	Metadata struct {
		ID               string            `json:"id"`
		PartitionColumns []string          `json:"partitionColumns"`
		Configuration    map[string]string `json:"configuration"`
		SchemaString     string            `json:"schemaString"`
	} `json:"metadata"`
	NumFiles int              `json:"num_files"`
	Txn      map[string]int64 `json:"txn"`
	Domains  map[string]any   `json:"domain_metadata"`
	Files    []derivedFile    `json:"files"`
}

type derivedFile struct {
	Path            string             `json:"path"`
	DV              *string            `json:"dv"`
	Size            int64              `json:"size"`
	PartitionValues map[string]*string `json:"partitionValues"`
}

// refusedFeatures are the tables whose log asks of a reader what this package does not know, and what that is.
var refusedFeatures = map[string]string{
	"table-with-geo":                    "geospatial",
	"deltalog-invalid-protocol-version": "reader version 99",
	"simple_table_features":             "reader version 5",
}

// goldenTables are the folders of tables that other engines wrote; the test is skipped when there are none
// here.
func goldenTables(t *testing.T) []string {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	root = filepath.Join(root, "delta")
	tables, err := filepath.Glob(filepath.Join(root, "*", "*", "*", "derived_state.json"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables below %s: %v", root, err)
	}
	for i := range tables {
		tables[i] = filepath.Dir(tables[i])
	}
	return tables
}

func TestGolden_LatestVersion_StateAsDerived(t *testing.T) {
	for _, dir := range goldenTables(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want derivedState
			text, err := os.ReadFile(filepath.Join(dir, "derived_state.json"))
			if err == nil {
				err = json.Unmarshal(text, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			st, err := store.NewDisk(filepath.Join(dir, "delta"))
			if err != nil {
				t.Fatal(err)
			}
			table, err := delta.Open(context.Background(), st, nil)
			if want.Error != "" {
				// One table's only fault is a checkpoint without metadata: its commits are all there and make
				// up for it.
				if err == nil && !strings.HasSuffix(dir, "-from-checkpoint-missing-metadata") {
					t.Fatalf("the table opens; the oracle says %q", want.Error)
				}
				return
			}
			if feature, ok := refusedFeatures[filepath.Base(dir)]; ok {
				if !errors.Is(err, delta.ErrUnsupportedFeature) || !strings.Contains(err.Error(), feature) {
					t.Fatalf("got %v, want a refusal that names %s", err, feature)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkDerived(t, table, &want)
		})
	}
}

func checkDerived(t *testing.T, table *delta.Table, want *derivedState) {
	ctx := context.Background()
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if snap.Version() != want.Version {
		t.Errorf("version: got %d, want %d", snap.Version(), want.Version)
	}
	p := snap.Protocol()
	w := want.Protocol
	if p.MinReaderVersion != w.MinReaderVersion || p.MinWriterVersion != w.MinWriterVersion ||
		!sameSet(p.ReaderFeatures, w.ReaderFeatures) || !sameSet(p.WriterFeatures, w.WriterFeatures) {
		t.Errorf("protocol: got %+v, want %+v", *p, want.Protocol)
	}
	m := snap.Metadata()
	if m.ID != want.Metadata.ID || m.SchemaString != want.Metadata.SchemaString ||
		!slices.Equal(m.PartitionColumns, want.Metadata.PartitionColumns) ||
		!maps.Equal(m.Configuration, want.Metadata.Configuration) {
		t.Errorf("metadata: got %+v, want %+v", *m, want.Metadata)
	}
	txns := map[string]int64{}
	for app, txn := range snap.Txns() {
		txns[app] = txn.Version
	}
	if !maps.Equal(txns, want.Txn) {
		t.Errorf("txns: got %v, want %v", txns, want.Txn)
	}
	if len(snap.DomainMetadata()) != len(want.Domains) {
		t.Errorf("domain metadata: got %v, want %v", snap.DomainMetadata(), want.Domains)
	}
	var got []derivedFile
	for a, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		f := derivedFile{Path: a.Path, Size: a.Size, PartitionValues: a.PartitionValues}
		if v := a.DeletionVector; v != nil {
			id := v.StorageType + v.PathOrInlineDv
			if v.Offset != nil {
				id += "@" + itoa(int(*v.Offset))
			}
			f.DV = &id
		}
		got = append(got, f)
	}
	compareFiles(t, got, want.Files, want.NumFiles)
}

func compareFiles(t *testing.T, got, want []derivedFile, n int) {
	if len(got) != n {
		t.Errorf("files: got %d, want %d", len(got), n)
	}
	if len(want) != n {
		return // the oracle lists no files of large tables
	}
	byPath := func(files []derivedFile) []string {
		var lines []string
		for _, f := range files {
			if f.PartitionValues == nil {
				f.PartitionValues = map[string]*string{}
			}
			text, _ := json.Marshal(f)
			lines = append(lines, string(text))
		}
		sort.Strings(lines)
		return lines
	}
	g, w := byPath(got), byPath(want)
	if !slices.Equal(g, w) {
		t.Errorf("files:\n got %v\nwant %v", g, w)
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}
