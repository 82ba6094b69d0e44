package interop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// engine is readers/serve.py: an engine that is not ours. It starts when a test first asks it something and serves all
// tests, one request at a time, until their end: Spark takes its time to start.
type engine struct {
	name string

	mu   sync.Mutex
	cmd  *exec.Cmd // nil while it does not run
	in   io.WriteCloser
	out  *bufio.Reader
	errs *lockedBuffer
}

// The engines, in the order of the columns of README.md.
var (
	spark   = &engine{name: "spark"}
	deltaRs = &engine{name: "delta-rs"}
	kernel  = &engine{name: "kernel"}
	duckDB  = &engine{name: "duckdb"}
	engines = []*engine{spark, deltaRs, kernel, duckDB}
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, e := range engines {
		e.stop()
	}
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path))
	}
	os.Exit(code)
}

// request is one of those that readers/serve.py lists.
type request struct {
	Do         string            `json:"do"`
	Table      string            `json:"table,omitempty"`
	From       *int64            `json:"from,omitempty"`
	Files      []string          `json:"files,omitempty"`
	Statements []string          `json:"statements,omitempty"`
	Rows       map[int64]string  `json:"rows,omitempty"`
	IDs        []int64           `json:"ids,omitempty"`
	Mark       string            `json:"mark,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

// answer is what an engine found, or why it gave up.
type answer struct {
	Version string `json:"engine_version"`
	Rows    int64
	SHA256  string
	Error   string
}

// ask waits for the answer no longer than patience. It is safe for concurrent use. An engine that dies gives an error for an answer, and the next request starts it again.
func (e *engine) ask(r request) answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	line, err := json.Marshal(r)
	if err == nil && e.cmd == nil {
		err = e.start()
	}
	if err != nil {
		return answer{Error: "it does not start: " + err.Error()}
	}
	timer := time.AfterFunc(patience, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	var a answer
	_, err = e.in.Write(append(line, '\n'))
	if err == nil {
		line, err = e.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
		a.Error = fmt.Sprintf("the engine died: %v, %v: %s", err, e.cmd.ProcessState, tail(e.errs.String(), 2000))
		e.cmd = nil
	}
	return a
}

// must is ask of what has to succeed.
func (e *engine) must(t testing.TB, r request) answer {
	t.Helper()
	a := e.ask(r)
	if a.Error != "" {
		t.Fatalf("%s: %s %s: %s", e.name, r.Do, r.Table, a.Error)
	}
	return a
}

func (e *engine) start() (err error) {
	cmd := exec.Command(filepath.Join("readers", "serve.py"), e.name)
	e.errs = &lockedBuffer{}
	cmd.Stderr = e.errs
	if e.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	e.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return err
	}
	e.cmd = cmd
	return nil
}

func (e *engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd != nil {
		_ = e.in.Close()
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// askAll has all engines answer the requests, each engine in its own time: by the name of the engine, in the order of
// the requests.
func askAll(requests []request) map[string][]answer {
	var group sync.WaitGroup
	found := map[string][]answer{}
	for _, e := range engines {
		answers := make([]answer, len(requests))
		found[e.name] = answers
		group.Go(func() {
			for i, r := range requests {
				answers[i] = e.ask(r)
			}
		})
	}
	group.Wait()
	return found
}

// readsOf asks for the rows of the tables.
func readsOf(tables []string) (all []request) {
	for _, table := range tables {
		all = append(all, request{Do: "read", Table: table})
	}
	return all
}

// compareEngines has every engine read the tables, and expects what we read; it returns who refused which table.
func compareEngines(t *testing.T, tables []string) (refused []string) {
	t.Helper()
	ours := digests(t, tables)
	for name, answers := range askAll(readsOf(tables)) {
		for i, a := range answers {
			if a.Error != "" {
				refused = append(refused, filepath.Base(tables[i])+": "+name+": "+a.Error)
			} else if a.SHA256 != ours[tables[i]] {
				t.Errorf("%s: %s reads %d rows, digest %s; we read %s", tables[i], name, a.Rows, a.SHA256, ours[tables[i]])
			}
		}
	}
	return refused
}

// digests are those of `freshet table read --digest`, by table.
func digests(t *testing.T, tables []string) map[string]string {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"table", "read", "--digest"}, tables...)...)
	var errs lockedBuffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("table read --digest: %v\n%s", err, errs.String())
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			found[f[2]] = f[0]
			t.Logf("%s", strings.TrimSpace(line))
		}
	}
	return found
}
