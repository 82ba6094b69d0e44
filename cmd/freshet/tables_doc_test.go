package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDocs_Tables_EveryBlockRuns types what docs/tables.md shows, from top to bottom in an empty folder.
func TestDocs_Tables_EveryBlockRuns(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "tables.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := blocks(string(page), "json")
	if len(rows) != 1 {
		t.Fatalf("%d blocks of rows, want 1", len(rows))
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("changes.jsonl", []byte(rows[0]), 0o644); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range blocks(string(page), "sh") {
		for _, line := range commandLines(block) {
			var out, told bytes.Buffer
			code := execute(t.Context(), words(line)[1:], streams{in: &bytes.Buffer{}, out: &out, err: &told})
			if code != 0 {
				t.Errorf("%s: exit code %d\n%s%s", line, code, &out, &told)
			}
			ran++
		}
	}
	if ran < 20 {
		t.Errorf("ran %d commands only; is the test still looking?", ran)
	}
}
