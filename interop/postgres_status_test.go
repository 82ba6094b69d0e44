package interop_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

// stated is a line of freshet status.
type stated struct {
	Table, State, Problem *string
	Lag                   *int64
	Kept                  *struct {
		Active bool   `json:"active"`
		Kept   int64  `json:"kept_bytes"`
		Safe   *int64 `json:"safe_bytes"`
	}
}

func (s stated) state() string   { return orNothing(s.State) }
func (s stated) problem() string { return orNothing(s.Problem) }

func orNothing(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// status is what freshet status says of the pipeline, and of its tables; its exit code is by whether there is a problem.
func (h *held) status() (pipeline stated, tables map[string]stated) {
	h.t.Helper()
	p := start(h.t, nil, "status", h.file(), "--exit-code", "-o", "jsonl", "-q")
	code := p.exit(patience)
	tables = map[string]stated{}
	problem := false
	for line := range strings.Lines(p.out.String()) {
		var s stated
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			h.t.Fatalf("status: %v:\n%s", err, p.out.String())
		}
		problem = problem || s.problem() != ""
		if s.Table == nil {
			pipeline = s
			continue
		}
		tables[*s.Table] = s
	}
	if want := map[bool]int{false: 0, true: 4}[problem]; code != want {
		h.t.Fatalf("status: got exit code %d, want %d:\n%s", code, want, p.out.String())
	}
	return pipeline, tables
}

// becomes waits for the pipeline to be in this state.
func (h *held) becomes(state string) (pipeline stated, tables map[string]stated) {
	h.t.Helper()
	waitUntil(h.t, patience, "the pipeline is "+state, func() bool {
		pipeline, tables = h.status()
		return pipeline.state() == state
	})
	return pipeline, tables
}

// onOwnServer starts a server that keeps little log for a slot, and a project that mirrors two tables of it.
func onOwnServer(t *testing.T) *held {
	server := startPostgres(t, seeded(t), "max_slot_wal_keep_size=48MB", "max_wal_size=4GB", "checkpoint_timeout=1d", "fsync=off")
	return newHeld(t, dialPostgres(t, server.address()), "")
}

// What a pipeline of a database and its tables go through, status says, from nothing that runs to a table that is held back.
func TestStatus_OfADatabase_StatesAndLag(t *testing.T) {
	t.Parallel()
	h := onOwnServer(t)
	if p, tables := h.status(); p.state() != "new" || p.Kept != nil || p.problem() != "" || len(tables) != 4 || tables["l.a"].state() != "new" {
		t.Errorf("got %+v and %v before the first run, want two tables and two logs that are new", p, tables)
	}
	run := h.run()
	h.follows("a")
	h.follows("b")
	p, tables := h.becomes("running")
	waitUntil(t, patience, "all is loaded", func() bool {
		p, tables = h.status()
		return tables["l.a"].State == nil && tables["l.b"].State == nil
	})
	if p.Kept == nil || !p.Kept.Active || p.Kept.Safe == nil || p.problem() != "" || tables["l.a"].Lag == nil || tables["l.a_log"].Lag == nil {
		t.Errorf("got %+v and %v, want a slot that is read, with a bound, and how far the tables are behind", p, tables)
	}
	h.pipeline("pause", h.file(), "--table", "l.a", "--why", "test")
	waitUntil(t, patience, "the table is held back", func() bool {
		_, tables = h.status()
		return tables["l.a"].state() == "parked"
	})
	if tables["l.b"].State != nil {
		t.Errorf("got %+v of the other table, want that it follows", tables["l.b"])
	}
	h.pipeline("resume", h.file(), "--table", "l.a")
	run.signal(syscall.SIGTERM)
	run.mustEnd(patience)
	h.db.do("insert into public.b select g, 'new' from generate_series(10000, 12000) g")
	if p, tables = h.becomes("stopped"); p.Kept == nil || p.Kept.Active || *tables["l.b"].Lag < 100_000 || *p.Lag < *tables["l.b"].Lag {
		t.Errorf("got %+v and %v, want a slot that nobody reads, and how far the tables are behind", p, tables)
	}
	h.pipeline("pause", h.file())
	h.becomes("paused")
}

// A server is about to give the slot up: that is told in time, so that a run which catches up ends it. Where nobody runs, the slot is lost then, and
// that is told, too.
func TestStatus_LogRunsOut_WarnsInTime(t *testing.T) {
	t.Parallel()
	h := onOwnServer(t)
	caughtUp := func() { command(t, 0, nil, "run", h.file(), "--until-caught-up", "--progress", "off") }
	caughtUp()
	// step has the server write some log that is not of the tables, and returns what is said of the slot then.
	step := func() (said stated) {
		h.db.do("select pg_logical_emit_message(false, 'test', repeat('x', 4 << 20))")
		h.db.do("checkpoint")
		said, _ = h.status()
		return said
	}
	const warning, most = "about to give up the slot", 40
	said := step()
	for n := 0; said.problem() == ""; n++ {
		if n > most {
			t.Fatalf("got %+v, want a warning", said)
		}
		said = step()
	}
	if !strings.Contains(said.problem(), warning) || said.state() != "stopped" {
		t.Fatalf("got %s: %s; want the warning before anything is lost", said.state(), said.problem())
	}
	waitUntil(t, patience, "the slot is as it was", func() bool {
		h.db.do("insert into public.b select max(id) + 1, 'new' from public.b")
		h.db.do("checkpoint") // the server keeps log from a place on that it notes with one
		caughtUp()
		said, _ = h.status()
		return said.problem() == ""
	})
	before := said
	for n := 0; said.state() != "lost"; n++ {
		if n > most {
			t.Fatalf("got %+v, want the slot lost", said)
		}
		before, said = said, step()
	}
	if !strings.Contains(before.problem(), warning) {
		t.Errorf("got %q just before the slot was lost, want a warning", before.problem())
	}
	if !strings.Contains(said.problem(), "is lost: ") {
		t.Errorf("got %q, want that it is lost", said.problem())
	}
	if out := command(t, 2, nil, "run", h.file(), "--until-caught-up", "--progress", "off"); !strings.Contains(out, "FRE-2106") {
		t.Errorf("got %s, want FRE-2106", out)
	}
}
