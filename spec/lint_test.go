package spec_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/spec"
)

// TestParse_Faults_AsInTestdata reads testdata/lint/*.txtar: a pipeline file and the faults that it has, one
// a line:
// place, code, message, and the remedy behind an arrow. UPDATE_GOLDEN=1 writes them anew.
func TestParse_Faults_AsInTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/lint/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			project := projectOf(t, a)
			got := faultsOf(project, part(a, "p.yaml"))
			if os.Getenv("UPDATE_GOLDEN") != "" {
				setPart(a, "faults", got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := part(a, "faults"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func part(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func setPart(a *txtar.Archive, name, text string) {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(text)
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
}

// projectOf is the project of the case's freshet.yaml, or none.
func projectOf(t *testing.T, a *txtar.Archive) *spec.Project {
	t.Helper()
	dir := ""
	if text := part(a, spec.ProjectFile); text != "" {
		dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, spec.ProjectFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	project, err := spec.OpenProject(dir, "", true)
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func faultsOf(project *spec.Project, text string) string {
	_, err := spec.Parse(project, "p.yaml", []byte(text), &spec.LoadOptions{Lenient: true})
	var found spec.Findings
	if !errors.As(err, &found) {
		return fmt.Sprintln(err)
	}
	var out strings.Builder
	for _, f := range found {
		if f.Warning {
			out.WriteString("warning: ")
		}
		fmt.Fprintln(&out, f.Error())
		if f.Fault.Fix != "" {
			fmt.Fprintln(&out, "  →", f.Fault.Fix)
		}
	}
	return out.String()
}

func TestParse_HostileText_FindingsNotPanics(t *testing.T) {
	project, err := spec.OpenProject("", "", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "\x00", "\xff", "a: [", "- x", "3", "a: &x [*x]", "a: *b", "? [a]: b",
		"a: !!str b",
		"a: 1\na: 2", "---\na: 1\n---\nb: 2", strings.Repeat("[", 200), strings.Repeat("a:\n ", 300), "<<: {a: b}",
		"pipeline: ${", "pipeline: ${x y}", "pipeline: ${secret:vault:x}", "source: {kafka: {topics: {}}}"} {
		_, err := spec.Parse(project, "p.yaml", []byte(text), nil)
		var found spec.Findings
		if !errors.As(err, &found) {
			t.Errorf("%q: got %v, want Findings", text, err)
		}
		for _, f := range found {
			_ = f.Excerpt()
		}
	}
}

func TestExcerpt_LongLines_ShowThePartWithTheFault(t *testing.T) {
	project, err := spec.OpenProject("", "", true)
	if err != nil {
		t.Fatal(err)
	}
	blank := strings.Repeat(" ", 300)
	text := "pipeline: p" + blank + "# Bemerkung über Zeilen\n" +
		"source: {kafka: {brokers: [\"a:1\"]," + blank + "topics: [t], grup: g}}" + blank + "# end\n" +
		"target: {delta: {path: ./t}}\n"
	_, err = spec.Parse(project, "p.yaml", []byte(text), nil)
	var found spec.Findings
	if !errors.As(err, &found) || len(found) != 1 {
		t.Fatalf("got %v, want one fault", err)
	}
	lines := found[0].Excerpt()
	for _, l := range lines {
		if n := len([]rune(l.Text)); n > 112 {
			t.Errorf("line %d has %d characters, want at most 112", l.Number, n)
		}
	}
	l := lines[len(lines)-1]
	if got := string([]rune(l.Text)[l.From:l.To]); got != "grup" {
		t.Errorf("got the mark at %q of %q, want grup", got, l.Text)
	}
	if !strings.HasPrefix(l.Text, "…") || !strings.HasSuffix(l.Text, "…") {
		t.Errorf("got %q, want … on both sides", l.Text)
	}
}

func TestParse_MergeKeys_OwnKeysGoFirst(t *testing.T) {
	project, err := spec.OpenProject("", "", true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spec.Parse(project, "p.yaml", []byte(`
pipeline: p
source: {kafka: {brokers: ["a:1"], topics: [t]}}
target:
  delta:
    path: ./t
    commit: {<<: {every: 5s, max_rows: 7}, every: 2s}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Target.Delta.Commit; c.Every != 2*time.Second || c.MaxRows != 7 {
		t.Errorf("got %v and %d rows, want 2s and 7", c.Every, c.MaxRows)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/lint/*.txtar")
	for _, file := range files {
		if a, err := txtar.ParseFile(file); err == nil {
			f.Add(part(a, "p.yaml"))
		}
	}
	project, err := spec.OpenProject("", "", true)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := spec.Parse(project, "p.yaml", []byte(text), &spec.LoadOptions{Lenient: true})
		var found spec.Findings
		if errors.As(err, &found) {
			for _, x := range found {
				_ = x.Excerpt()
			}
		}
	})
}

func TestParse_Secrets_NotInMessagesNorExcerpts(t *testing.T) {
	t.Setenv("TEST_PASSWORD", "hunter22")
	project, err := spec.OpenProject("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	text := `pipeline: s
source:
  kafka:
    brokers: ["${secret:env:TEST_PASSWORD}"]
    topics: t
    sasl: {mechanism: NOPE, username: u, password: "literal-secret"}
target: {delta: {path: ./t}}
`
	p, err := spec.Parse(project, "p.yaml", []byte(text), nil)
	var found spec.Findings
	if !errors.As(err, &found) {
		t.Fatalf("got %v, want Findings", err)
	}
	said := fmt.Sprint(err) + fmt.Sprintf("%v %+v %#v", p.Source.Kafka.Client.SASL, *p.Source.Kafka.Client.SASL,
		p.Source.Kafka.Client.SASL)
	for _, f := range found {
		for _, l := range f.Excerpt() {
			said += l.Text
		}
	}
	for _, secret := range []string{"hunter22", "literal-secret"} {
		if strings.Contains(said, secret) {
			t.Errorf("the secret %q was said: %s", secret, said)
		}
	}
	if got := p.Source.Kafka.Client.SASL.Password.Reveal(); got != "literal-secret" {
		t.Errorf("Reveal: got %q", got)
	}
}

func TestParse_Variables_ReplacedInValuesOnly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_ID", "a: b\nc")
	project, err := spec.OpenProject("", "", false)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spec.Parse(project, "p.yaml", []byte(`pipeline: "${TEST_NAME:-fallback}"
source:
  kafka:
    brokers: ["h:1"]
    topics: [t]
    instance_id: "${TEST_ID}"
    group: $${kept}
    sasl: {mechanism: PLAIN, username: u, password: "${secret:file:`+file+`}"}
target: {delta: {path: ./t}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	k := p.Source.Kafka
	if p.Name.Value != "fallback" || k.InstanceID != "a: b\nc" || k.Group != "${kept}" ||
		k.Client.SASL.Password.Reveal() != "s3cret" {
		t.Errorf("got %q, %q, %q, %q", p.Name.Value, k.InstanceID, k.Group, k.Client.SASL.Password.Reveal())
	}
}

func TestOpenProject_Environment_OverlaysTheFile(t *testing.T) {
	dir := t.TempDir()
	text := `lake: {root: ./lake}
connections:
  events: {kafka: {brokers: ["a:1"], sasl: {mechanism: PLAIN, username: u, password: x}}}
defaults: {commit: {every: 5s, max_rows: 7}}
environments:
  prod: {lake: {root: "s3://b/${env.name}"}, connections: {events: {kafka: {brokers: ["p:1"]}}}}
`
	if err := os.WriteFile(filepath.Join(dir, spec.ProjectFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	project, err := spec.OpenProject(dir, "prod", false)
	if err != nil {
		t.Fatal(err)
	}
	k := project.Connections[0].Value.Kafka
	if project.Root.Value != "s3://b/prod" || k.Brokers[0] != "p:1" || k.SASL.Username != "u" {
		t.Errorf("got root %q, brokers %v, user %q", project.Root.Value, k.Brokers, k.SASL.Username)
	}
	p, err := spec.Parse(project, "p.yaml", []byte(`pipeline: x
source: {kafka: {connection: events, topics: t}}
target: {delta: {table: ns.t, commit: {every: 1s}}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Target.Delta.Commit; c.Every.String() != "1s" || c.MaxRows != 7 {
		t.Errorf("commit: got %+v, want the file's every and the project's max_rows", c)
	}
	if url, err := project.TableURL("ns.a.b"); url != "s3://b/prod/ns/a.b" || err != nil {
		t.Errorf("TableURL: got %q, %v", url, err)
	}
	_, err = spec.OpenProject(dir, "prodd", false)
	if err == nil || !strings.Contains(err.Error(), "prodd") {
		t.Errorf("unknown environment: got %v", err)
	}
}

func TestParseColumn_Types_AsSQLWritesThem(t *testing.T) {
	for text, want := range map[string]string{
		"bigint not null": "int64 not null", "DECIMAL(18,2)": "decimal(18, 2)", "string": "utf8", "json": "utf8",
		"timestamp": "timestamp[us, tz=UTC]", "timestamp_ntz": "timestamp[us]",
		"array<int>":          "list<element: int32, nullable>",
		"map<string, double>": "map<utf8, float64, items_nullable>",
		"struct<a: int not null, b: array<string>>": "struct<a: int32, b: list<element: utf8, nullable> nullable>",
	} {
		c, err := spec.ParseColumn(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := c.Type.String()
		if c.NotNull {
			got += " not null"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "bigintt", "decimal(39,2)", "decimal(3,4)", "array<>", "map<int,int>",
		"struct<>",
		"int not", "int null", "array<int", strings.Repeat("array<", 50)} {
		if _, err := spec.ParseColumn(text); err == nil {
			t.Errorf("%q: got a column, want an error", text)
		}
	}
}

func TestFiles_FolderOfProject_PipelinesInOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{spec.ProjectFile, "pipelines/b.yaml", "pipelines/a/c.yml",
		"pipelines/.x.yaml", "other.yaml",
		"pipelines/.git/d.yaml", "pipelines/e.txt"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := spec.Files([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "pipelines/a/c.yml"), filepath.Join(dir, "pipelines/b.yaml")}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err = spec.Files([]string{t.TempDir()})
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeUsage {
		t.Errorf("empty folder: got %v, want CodeUsage", err)
	}
}

// The schema has the keys that are read, and none of parts that this version does not have.
func TestJSONSchema_Valid_DescribesAllKeys(t *testing.T) {
	for _, project := range []bool{false, true} {
		text := string(spec.JSONSchema(project))
		for _, key := range map[bool][]string{false: {"pipeline", "kafka", "columns", "stop_above", "partition_by",
			"every"},
			true: {"connections", "lake", "environments", "embedded"}}[project] {
			if !strings.Contains(text, `"`+key+`"`) {
				t.Errorf("project %v: no key %s", project, key)
			}
		}
		if strings.Contains(text, "mysql") || strings.Contains(text, "expect") {
			t.Errorf("project %v: the schema has keys that this version does not have", project)
		}
	}
}
