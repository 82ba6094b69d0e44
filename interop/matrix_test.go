package interop_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// matrixFile holds the matrices; FRESHET_WRITE_MATRIX=1 has the tests write them anew.
const matrixFile = "README.md"

var writingMatrix sync.Mutex

// sample is a table of a feature, and what we say of it.
type sample struct {
	feature
	*made
	rows, feed, doubled string // digests; feed is empty where there is none
	support             map[string]delta.EngineSupport
	appends             bool // others append to it, too
}

// compatName is what Snapshot.Compatibility calls the engine.
var compatName = map[string]string{"spark": "Apache Spark", "delta-rs": "delta-rs", "kernel": "delta-kernel-rs", "duckdb": "DuckDB"}

// wantMatrix fails unless the section of README.md says of each feature what the engines now do with a table that has it,
// and Snapshot.Compatibility says the like. With appends, they also append to a copy.
func wantMatrix(t *testing.T, section string, features []feature, appends bool) {
	t.Helper()
	home := t.TempDir()
	samples := make([]*sample, len(features))
	for i, f := range features {
		samples[i] = newSample(t, filepath.Join(home, fmt.Sprintf("%02d", i)), f)
		samples[i].appends = appends
	}
	cells := map[string][]string{}
	versions := map[string]string{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, e := range engines {
		group.Go(func() {
			found := make([]string, len(samples))
			version := ""
			for i, s := range samples {
				found[i] = s.cell(t, e, &version)
			}
			mu.Lock()
			defer mu.Unlock()
			cells[e.name], versions[e.name] = found, version
		})
	}
	group.Wait()
	var text strings.Builder
	text.WriteString("| what we wrote |")
	for _, e := range engines {
		fmt.Fprintf(&text, " %s |", versions[e.name])
	}
	text.WriteString("\n|" + strings.Repeat(" --- |", 1+len(engines)) + "\n")
	for i, s := range samples {
		fmt.Fprintf(&text, "| %s |", s.name)
		for _, e := range engines {
			fmt.Fprintf(&text, " %s |", cells[e.name][i])
		}
		text.WriteString("\n")
	}
	wantSection(t, section, text.String())
}

func newSample(t *testing.T, path string, f feature) *sample {
	t.Helper()
	if f.schema == nil {
		f.schema = idAndS
	}
	m := makeTable(t, path, f.schema, f.create)
	m.feedFrom = 1
	f.fill(m)
	s := &sample{feature: f, made: m, rows: m.digest(1), doubled: m.digest(2), support: map[string]delta.EngineSupport{}}
	if m.snapshot().Property("delta.enableChangeDataFeed") == "true" {
		s.feed = m.feedDigest()
	}
	for _, e := range m.snapshot().Compatibility() {
		s.support[e.Engine] = e
	}
	return s
}

// cell is what an engine does with the table: it reads the rows and the feed, and appends to a copy.
func (s *sample) cell(t *testing.T, e *engine, version *string) string {
	judge := func(what string, a answer, want string) string {
		switch {
		case a.Error != "":
			t.Logf("%s: %s: no %s: %s", s.name, e.name, what, a.Error)
			return ""
		case a.SHA256 != want:
			t.Logf("%s: %s: other %s: %d rows, %s, want %s", s.name, e.name, what, a.Rows, a.SHA256, want)
			return "**other " + what + "**"
		}
		return what
	}
	read := e.ask(request{Do: "read", Table: s.path})
	*version = read.Version
	rows := judge("rows", read, s.rows)
	s.wantSupport(t, e, "read", s.support[compatName[e.name]].Read, rows == "rows")
	found := []string{rows}
	if s.feed != "" {
		feed := judge("feed", e.ask(request{Do: "changes", Table: s.path, From: &s.feedFrom}), s.feed)
		if feed == "" {
			feed = "no feed"
		}
		found = append(found, feed)
	}
	if s.appends && e != kernel { // its Python package writes nothing
		appended := judge("append", s.double(t, e), s.doubled)
		s.wantSupport(t, e, "write", s.support[compatName[e.name]].Write, appended == "append")
		found = append(found, appended)
	}
	if rows == "" {
		return "–"
	}
	return strings.Trim(strings.Join(found, ", "), ", ")
}

// wantSupport compares what an engine did with what we tell of it.
func (s *sample) wantSupport(t *testing.T, e *engine, what string, told delta.Support, did bool) {
	if e == s.unforeseen {
		return
	}
	if told == delta.SupportYes && !did || told == delta.SupportNo && did || told == delta.SupportUnknown {
		t.Errorf("%s: %s: compat tells that it can %s it: %s, which is not so: %v", s.name, e.name, what, told,
			s.support[compatName[e.name]].Reasons)
	}
}

// double has the engine append to a copy of the table what is there, and tells what we read of it then.
func (s *sample) double(t *testing.T, e *engine) answer {
	path := s.path + "-" + e.name
	if err := os.CopyFS(path, os.DirFS(s.path)); err != nil {
		return answer{Error: err.Error()}
	}
	if a := e.ask(request{Do: "double", Table: path}); a.Error != "" {
		return a
	}
	sum, err := openTable(t, path).sum(1)
	if err != nil {
		return answer{Error: "what it wrote cannot be read: " + err.Error()}
	}
	return answer{SHA256: sum}
}

// openTable opens a table, which may have files anywhere on the disk.
func openTable(t *testing.T, path string) *made {
	t.Helper()
	m := &made{t: t, path: path, st: diskAt(t, path)}
	var err error
	if m.table, err = delta.Open(context.Background(), m.st, &delta.OpenOptions{Outside: anywhere}); err != nil {
		t.Fatal(err)
	}
	return m
}

func anywhere(_ context.Context, file string) (store.Store, error) {
	u, err := url.Parse(file)
	if err != nil {
		return nil, err
	}
	return store.NewDisk(filepath.Dir(u.Path))
}

// wantSection compares the text with that between the marks of the section in README.md, or puts it there.
func wantSection(t *testing.T, section, text string) {
	t.Helper()
	writingMatrix.Lock()
	defer writingMatrix.Unlock()
	begin, end := "<!-- "+section+" -->\n", "<!-- end of "+section+" -->"
	data, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no section between %q and %q", matrixFile, begin, end)
	case was == text:
	case os.Getenv("FRESHET_WRITE_MATRIX") == "1":
		if err := os.WriteFile(matrixFile, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s, section %s: differs from what the engines do (FRESHET_WRITE_MATRIX=1 writes it):\n%s", matrixFile, section,
			changedLines(was, text))
	}
}

// changedLines are the lines that only one of the texts has.
func changedLines(was, is string) string {
	var b strings.Builder
	for mark, texts := range map[string][2]string{"-": {was, is}, "+": {is, was}} {
		for line := range strings.Lines(texts[0]) {
			if !strings.Contains(texts[1], line) {
				b.WriteString(mark + line)
			}
		}
	}
	return b.String()
}
