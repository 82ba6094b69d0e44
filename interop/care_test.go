package interop_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
)

// TestReaders_EachUpkeep_AsTheMatrixSays has the other engines read tables after everything that looks after tables.
func TestReaders_EachUpkeep_AsTheMatrixSays(t *testing.T) {
	t.Parallel()
	needReaders(t)
	wantMatrix(t, "upkeep", upkeepFeatures(), false)
}

func upkeepFeatures() []feature {
	vectors := property("enableDeletionVectors", "true", "enableChangeDataFeed", "true")
	points := columns("id", delta.Long, "s", delta.String)
	return []feature{
		{name: "OPTIMIZE of files and their deletion vectors; feed", create: vectors, fill: func(m *made) {
			fillSmallFiles(m)
			m.optimize(nil)
		}},
		{name: "OPTIMIZE of tracked rows", create: property("enableRowTracking", "true", "enableDeletionVectors", "true"),
			fill: func(m *made) {
				fillSmallFiles(m)
				m.optimize(nil)
				m.update("s", "'after'", "id = 55")
			}},
		{name: "OPTIMIZE by z-order", fill: func(m *made) {
			fillSmallFiles(m)
			m.optimize(&delta.OptimizeOptions{ZOrderBy: []string{"s", "id"}, TargetFileBytes: 1000})
		}},
		{name: "OPTIMIZE of a clustered table (Hilbert)", schema: points, create: delta.CreateOptions{ClusterBy: []string{"id", "s"}},
			fill: func(m *made) {
				fillSmallFiles(m)
				m.optimize(&delta.OptimizeOptions{TargetFileBytes: 1000})
				m.numbered(300, 310)
				m.optimize(nil)
			}},
		{name: "VACUUM full, after OPTIMIZE", create: vectors, fill: func(m *made) {
			fillSmallFiles(m)
			m.optimize(nil)
			m.feedFrom = m.snapshot().Version() + 1
			m.vacuum(delta.VacuumOptions{})
			m.update("s", "'after'", "id = 55")
		}},
		{name: "VACUUM lite, with its commits", fill: func(m *made) {
			fillSmallFiles(m)
			m.optimize(nil)
			m.checkpoint()
			m.vacuum(delta.VacuumOptions{Lite: true, LogCommits: true})
		}},
		{name: "RESTORE; feed", create: vectors, fill: func(m *made) {
			fillSmallFiles(m)
			m.restore(3)
			m.numbered(500, 510)
		}},
		{name: "shallow clone, gone its own way", unforeseen: duckDB, create: property("enableDeletionVectors", "true"), fill: func(m *made) {
			fillSmallFiles(m)
			m.cloned(delta.CloneOptions{Shallow: true, Outside: anywhere})
			m.numbered(300, 310)
			m.delete("id = 12")
		}},
		{name: "deep clone; feed", create: vectors, fill: func(m *made) {
			fillSmallFiles(m)
			m.cloned(delta.CloneOptions{})
			m.feedFrom = m.snapshot().Version() + 1
			m.delete("id = 12")
		}},
		{name: "converted folder of Parquet files", schema: columns("id", delta.Long, "day", delta.Date, "n", delta.Long, "v", delta.String),
			create: delta.CreateOptions{PartitionBy: []string{"day", "n"}}, fill: convertFolder},
		{name: "old commits cleaned away behind a checkpoint", create: property("logRetentionDuration", "interval 0 seconds"),
			fill: func(m *made) {
				fillSmallFiles(m)
				m.checkpoint()
				if _, err := m.table.CleanLog(context.Background(), &delta.CleanOptions{Now: time.Now().Add(72 * time.Hour)}); err != nil {
					m.t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(m.path, "_delta_log", fmt.Sprintf("%020d.json", 0))); err == nil {
					m.t.Errorf("%s: the first commit is still there", m.path)
				}
				m.numbered(300, 310)
			}},
		{name: "check --fix: a file that is gone was taken out", fill: func(m *made) {
			fillSmallFiles(m)
			if err := m.st.Delete(context.Background(), m.files()[0].Path); err != nil {
				m.t.Fatal(err)
			}
			if _, err := m.table.Check(context.Background(), &delta.CheckOptions{Fix: true}); err != nil {
				m.t.Fatal(err)
			}
		}},
	}
}

// fillSmallFiles makes ten small files, and takes rows out of some or changes them.
func fillSmallFiles(m *made) {
	m.t.Helper()
	for id := 0; id < 200; id += 20 {
		m.numbered(id, id+20)
	}
	m.delete("id % 13 = 5 AND id < 100")
	m.update("s", "'changed'", "id = 7 OR id = 57")
}

func (m *made) optimize(o *delta.OptimizeOptions) {
	m.t.Helper()
	if r, err := m.table.Optimize(context.Background(), o); err != nil || r.RemovedFiles == 0 {
		m.t.Fatalf("%s: got %+v, %v", m.path, r, err)
	}
}

// vacuum deletes what the table has let go of until now.
func (m *made) vacuum(o delta.VacuumOptions) {
	m.t.Helper()
	o.Retention, o.Force, o.Now = -1, true, time.Now().Add(time.Hour)
	if r, err := m.table.Vacuum(context.Background(), &o); err != nil || r.Deleted == 0 {
		m.t.Fatalf("%s: got %+v, %v", m.path, r, err)
	}
}

func (m *made) restore(version int64) {
	m.t.Helper()
	if _, err := m.table.Restore(context.Background(), version, nil); err != nil {
		m.t.Fatal(err)
	}
}

// cloned goes on with a clone of the table.
func (m *made) cloned(o delta.CloneOptions) {
	m.t.Helper()
	path := m.beside(filepath.Base(m.path) + "-clone")
	st := diskAt(m.t, path)
	table, err := m.table.Clone(context.Background(), st, &o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.path, m.st, m.table = path, st, table
}

// convertFolder goes on with a folder that has the data files of the table, and no log.
func convertFolder(m *made) {
	m.insert(`{"id":1,"day":"2024-02-29","n":7,"v":"a"},{"id":2,"day":"2024-03-01","n":8,"v":null},{"id":3,"day":null,"n":8,"v":"c"}`)
	m.insert(`{"id":4,"day":"2024-02-29","n":7,"v":"b"}`)
	path := m.beside(filepath.Base(m.path) + "-folder")
	if err := os.CopyFS(path, os.DirFS(m.path)); err != nil {
		m.t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(path, "_delta_log")); err != nil {
		m.t.Fatal(err)
	}
	st := diskAt(m.t, path)
	c, err := delta.Convert(context.Background(), st, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.path, m.st, m.table = path, st, c.Table
}

// TestReaders_SymlinkManifests_NameTheRows has DuckDB read the files that the manifests of a table name, as engines do that do
// not know Delta.
func TestReaders_SymlinkManifests_NameTheRows(t *testing.T) {
	t.Parallel()
	needReaders(t)
	m := makeTable(t, filepath.Join(t.TempDir(), "t"), idAndS, delta.CreateOptions{})
	fillSmallFiles(m)
	m.optimize(nil)
	m.numbered(300, 310)
	if _, err := m.table.GenerateManifest(context.Background()); err != nil {
		t.Fatal(err)
	}
	var files []string
	err := fs.WalkDir(os.DirFS(m.path), "_symlink_format_manifest", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "manifest" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(m.path, path))
		for line := range strings.Lines(string(text)) {
			files = append(files, strings.TrimPrefix(strings.TrimSpace(line), "file:"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	got := duckDB.must(t, request{Do: "files", Files: files})
	if want := m.digest(1); got.SHA256 != want {
		t.Errorf("DuckDB reads %d rows of %v, digest %s; want %s", got.Rows, files, got.SHA256, want)
	}
}
