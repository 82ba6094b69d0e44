package freshettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// Row is a row or reject that a table holds.
type Row struct {
	Lane string // as Lane.String gives it
	Seq  int64
}

// Tables are what Targets write to: tables in memory that outlive them. They are safe for concurrent use.
type Tables struct {
	mu     sync.Mutex
	tables map[string]*memTable
	starts map[string]freshet.Progress // of tables that are still to be made
	marks  map[string][]byte           // bookmarks, by table and name
}

type memTable struct {
	schema   *arrow.Schema
	progress freshet.Progress
	rows     []Row
	rejects  []Row
	version  int64
	since    time.Time // of its first progress
}

// NewTables returns no tables.
func NewTables() *Tables {
	return &Tables{tables: map[string]*memTable{}, starts: map[string]freshet.Progress{}, marks: map[string][]byte{}}
}

// Rows are the table's rows in the order of their commits.
func (s *Tables) Rows(table string) []Row {
	return s.read(table, func(t *memTable) []Row { return t.rows })
}

// Rejects are the table's rejects in the order of their commits.
func (s *Tables) Rejects(table string) []Row {
	return s.read(table, func(t *memTable) []Row { return t.rejects })
}

func (s *Tables) read(table string, part func(*memTable) []Row) []Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[table]; t != nil {
		return slices.Clone(part(t))
	}
	return nil
}

// Progress is the table's progress.
func (s *Tables) Progress(table string) freshet.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[table]; t != nil {
		return maps.Clone(t.progress)
	}
	return nil
}

// Version counts the table's commits.
func (s *Tables) Version(table string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[table]; t != nil {
		return t.version
	}
	return -1
}

// Fault is asked before a call of a Target: "Write", "Seal", "Run" …, and how often it was called, from 1.
// What it returns is what the call returns, without doing anything.
type Fault func(call string, n int) error

// Target writes to Tables.
type Target struct {
	store *Tables
	fault Fault

	mu    sync.Mutex
	calls map[string]int
	parts map[string]*part
}

// part is what is written of a table and not committed.
type part struct {
	after, last freshet.Progress
	rows        []Row
	rejects     []Row
}

var _ freshet.Target = (*Target)(nil)

// NewTarget returns a target that writes to the tables and fails as fault says, which may be nil.
func NewTarget(s *Tables, fault Fault) *Target {
	return &Target{store: s, fault: fault, calls: map[string]int{}, parts: map[string]*part{}}
}

func (t *Target) call(name string) error {
	t.mu.Lock()
	t.calls[name]++
	n := t.calls[name]
	t.mu.Unlock()
	if t.fault == nil {
		return nil
	}
	return t.fault(name, n)
}

// Open does nothing.
func (t *Target) Open(context.Context) error { return t.call("Open") }

// Schema is the schema of the table, nil when there is none.
func (t *Target) Schema(_ context.Context, table string) (*arrow.Schema, error) {
	if err := t.call("Schema"); err != nil {
		return nil, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if m := t.store.tables[table]; m != nil {
		return m.schema, nil
	}
	return nil, nil
}

// Ensure makes the table.
func (t *Target) Ensure(_ context.Context, table string, schema *arrow.Schema) error {
	if err := t.call("Ensure"); err != nil {
		return err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.store.tables[table] == nil {
		t.store.tables[table] = &memTable{schema: schema, progress: freshet.Progress{}}
	}
	t.store.tables[table].start(t.store.starts[table])
	delete(t.store.starts, table)
	return nil
}

// Resume is the table's progress of these lanes.
func (t *Target) Resume(_ context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	if err := t.call("Resume"); err != nil {
		return nil, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	p := freshet.Progress{}
	m := t.store.tables[table]
	if m == nil {
		m = &memTable{progress: t.store.starts[table]}
	}
	for _, l := range lanes {
		if err := m.sameOrigin(l); err != nil {
			return nil, err
		}
		if seq, ok := m.progress[l]; ok {
			p[l] = seq
		}
	}
	return p, nil
}

func (m *memTable) sameOrigin(l freshet.Lane) error {
	for have := range m.progress {
		if have.Origin == l.Origin && have.OriginID != l.OriginID {
			return &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: l.Origin,
				Msg: fmt.Sprintf("found id %s, wanted %s", l.OriginID, have.OriginID)}
		}
	}
	return nil
}

// Start notes where lanes begin that have no progress.
func (t *Target) Start(_ context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	if err := t.call("Start"); err != nil {
		return nil, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	m := t.store.tables[table]
	if m == nil {
		kept := &memTable{progress: t.store.starts[table]}
		if kept.progress == nil {
			kept.progress = freshet.Progress{}
			t.store.starts[table] = kept.progress
		}
		m = kept
	}
	return m.start(starts), nil
}

// start notes where lanes begin that have no progress, in one commit.
func (m *memTable) start(starts freshet.Progress) freshet.Progress {
	p, was := freshet.Progress{}, len(m.progress)
	for l, seq := range starts {
		if _, ok := m.progress[l]; !ok {
			m.progress[l] = seq
		}
		p[l] = m.progress[l]
	}
	if len(m.progress) > was {
		m.version++
		if m.since.IsZero() {
			m.since = time.Now()
		}
	}
	return p
}

// Since is when the table got its first start.
func (t *Target) Since(_ context.Context, table string) (at time.Time, known bool, err error) {
	if err := t.call("Since"); err != nil {
		return time.Time{}, false, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if m := t.store.tables[table]; m != nil {
		return m.since, len(m.progress) > 0, nil
	}
	return time.Time{}, len(t.store.starts[table]) > 0, nil
}

// Bookmark keeps the mark with those of all tables of that name.
func (t *Target) Bookmark(_ context.Context, table, name string, mark []byte) ([]byte, error) {
	if err := t.call("Bookmark"); err != nil {
		return nil, err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	key := table + "/" + name
	if kept, ok := t.store.marks[key]; ok || mark == nil {
		return kept, nil
	}
	t.store.marks[key] = mark
	return mark, nil
}

// Unmark deletes bookmarks.
func (t *Target) Unmark(_ context.Context, table, prefix, last string) error {
	if err := t.call("Unmark"); err != nil {
		return err
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	maps.DeleteFunc(t.store.marks, func(key string, _ []byte) bool {
		return strings.HasPrefix(key, table+"/"+prefix) && key <= table+"/"+last
	})
	return nil
}

// Write checks that the batch adjoins the one before. It accepts all rows.
func (t *Target) Write(_ context.Context, b *freshet.Batch) (rejected int64, err error) {
	defer b.Release()
	if err := t.call("Write"); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.parts[b.Table]
	if p == nil {
		p = &part{after: freshet.Progress{}, last: freshet.Progress{}}
		t.parts[b.Table] = p
	}
	if last, ok := p.last[b.Lane]; ok && last != b.After {
		return 0, fmt.Errorf("write after %s a batch after %s", b.Lane.Position(last), b.Lane.Position(b.After))
	} else if !ok {
		p.after[b.Lane] = b.After
	}
	p.last[b.Lane] = b.Last
	for _, seq := range b.Seqs {
		p.rows = append(p.rows, Row{b.Lane.String(), seq})
	}
	for _, r := range b.Rejects {
		p.rejects = append(p.rejects, Row{b.Lane.String(), r.Seq})
	}
	return 0, nil
}

// Pending counts rows and rejects; a row is a byte.
func (t *Target) Pending() (rows, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		rows += int64(len(p.rows) + len(p.rejects))
	}
	return rows, rows
}

// Seal makes one commit a table.
func (t *Target) Seal(context.Context) ([]freshet.Commit, error) {
	err := t.call("Seal")
	t.mu.Lock()
	defer t.mu.Unlock()
	var commits []freshet.Commit
	for table, p := range t.parts {
		commits = append(commits, &memCommit{t, table, p})
	}
	clear(t.parts)
	if err != nil {
		return nil, err
	}
	return commits, nil
}

// Discard drops what is written of the table.
func (t *Target) Discard(table string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.parts, table)
}

// Close ends it.
func (t *Target) Close(context.Context) error { return t.call("Close") }

type memCommit struct {
	target *Target
	table  string
	part   *part
}

func (c *memCommit) Table() string { return c.table }

func (c *memCommit) Run(context.Context) (freshet.Committed, error) {
	if err := c.target.call("Run"); err != nil {
		return freshet.Committed{}, err
	}
	s := c.target.store
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.tables[c.table]
	if m == nil {
		return freshet.Committed{}, errors.New("no such table")
	}
	for l, after := range c.part.after {
		if have, ok := m.progress[l]; !ok || have != after {
			return freshet.Committed{}, fmt.Errorf("%w: %s is at %d, wanted %d", freshet.ErrStale, l, have, after)
		}
	}
	maps.Copy(m.progress, c.part.last)
	m.rows = append(m.rows, c.part.rows...)
	m.rejects = append(m.rejects, c.part.rejects...)
	m.version++
	return freshet.Committed{Table: c.table, Version: m.version, Progress: maps.Clone(c.part.last),
		Rows: int64(len(c.part.rows)), Rejects: int64(len(c.part.rejects))}, nil
}

func (c *memCommit) Abort() {}
