package postgres

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// everyCut has connections cut and processes killed behind every single message: minutes. By default connections are not cut between
// two inserts but here and there where many follow each other, and processes are killed at some places.
var everyCut = os.Getenv("FRESHET_FIRE_ROUNDS") != ""

// TestCaptures_CutAtEveryMessage_EachChangeOnce has a server send what real ones sent, and cuts the connection behind each message in
// turn, or within the one that follows; then it lets a process die there, and another one go on. Before that Next is told to end at
// random.
func TestCaptures_CutAtEveryMessage_EachChangeOnce(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	seed := seedOf(t)
	files, err := filepath.Glob(filepath.Join(root, "cdc", "pg", "pgoutput", "*.pg1?.ndjson"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		for _, variant := range []string{"v1", "v2_streaming"} {
			payloads := captured(t, file, variant)
			if len(payloads) == 0 {
				continue
			}
			name := strings.TrimSuffix(filepath.Base(file), ".ndjson")
			t.Run(name+" "+variant, func(t *testing.T) {
				t.Parallel()
				c := &capture{payloads: payloads, version: "13.4", random: rand.New(rand.NewPCG(seed, 0))}
				if variant != "v1" {
					c.version = "15.4" // which is asked to stream
				}
				want := c.whole(t)
				if n := rowsOfOthers(t, strings.TrimSuffix(file, ".ndjson")+".test_decoding.txt"); n >= 0 && n != want.changes {
					t.Errorf("got %d changes, and test_decoding has %d", want.changes, n)
				}
				c.hurryNext(t, want)
				c.cutConnections(t, want)
				c.killProcesses(t, want)
			})
		}
	}
}

// seedOf is the seed of the test; FRESHET_SEED repeats a run.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("FRESHET_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("FRESHET_SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("seed: FRESHET_SEED=%d", seed)
	return seed
}

// capture is what a server sent in one variant of the protocol.
type capture struct {
	payloads [][]byte
	version  string
	random   *rand.Rand
}

// cutNext has the next connections cut behind so many messages, and returns which of those asked for before were not.
func (w *walsender) cutNext(cuts []int) (left []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left, w.cuts = w.cuts, cuts
	return left
}

// landed is what is in all tables.
type landed struct {
	rows    map[string][]string // by table, sorted
	changes int                 // without rows before updates, with those in quarantine
}

func (c *capture) pipe(t *testing.T) (*walsender, *mirror) {
	t.Helper()
	w := newWalsender(t, c.version, c.payloads, rand.New(rand.NewPCG(c.random.Uint64(), 1)))
	m := &mirror{address: w.address(), mu: &sync.Mutex{}, stores: map[string]*store.Mem{}, index: t.TempDir(),
		options: Options{Slot: "shop", SpillDir: t.TempDir(), MemoryBytes: 1 << 20, StatusEvery: time.Millisecond,
			RetryAfter: time.Microsecond, History: History{Skip: true}}}
	m.left.Store(-1)
	return w, m
}

// run runs to the end of the log.
func (m *mirror) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := errors.Join(m.pipeline(m.source(t, true), lake.Append).Run(ctx), ctx.Err()); err != nil {
		t.Fatal(err)
	}
}

// whole is what lands if nothing happens.
func (c *capture) whole(t *testing.T) landed {
	t.Helper()
	_, m := c.pipe(t)
	m.run(t)
	return m.landed(t)
}

// cutConnections cuts the connection behind one more message each time, in one run.
func (c *capture) cutConnections(t *testing.T, want landed) {
	t.Helper()
	w, m := c.pipe(t)
	const many = 200
	var cuts []int
	for k := range c.payloads {
		within := k > 0 && c.payloads[k][0] == 'I' && c.payloads[k-1][0] == 'I'
		if everyCut || !within || len(c.payloads) < many || k%many == 0 {
			cuts = append(cuts, k)
		}
	}
	w.cutNext(cuts)
	m.run(t)
	if n := len(w.cutNext(nil)); n > 0 {
		t.Errorf("%d cuts were not met", n)
	}
	same(t, "connections cut", m.landed(t), want)
}

// killProcesses lets a process die behind one more message each time, with its store failing at a random call, and another one go on.
func (c *capture) killProcesses(t *testing.T, want landed) {
	t.Helper()
	w, m := c.pipe(t)
	step := max(1, len(c.payloads)/8)
	if everyCut {
		step = 1
	}
	for k := c.random.IntN(step); k < len(c.payloads); k += step {
		w.cutNext(slices.Repeat([]int{k}, 1000))
		m.left.Store(1 + c.random.Int64N(60))
		ctx, die := context.WithTimeout(t.Context(), deadline)
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Append).Run(ctx) }()
		var err error
		select {
		case <-w.met:
			die()
			err = <-done
		case err = <-done:
		}
		die()
		if err != nil && !errors.Is(err, store.ErrPermission) {
			t.Fatalf("cut behind message %d: %v", k, err)
		}
		m.left.Store(-1)
	}
	w.cutNext(nil)
	m.run(t)
	same(t, "processes killed", m.landed(t), want)
}

func same(t *testing.T, when string, got, want landed) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got.rows)), slices.Sorted(maps.Keys(want.rows)); !slices.Equal(g, w) {
		t.Errorf("%s: got the tables %v, want %v", when, g, w)
	}
	for table, rows := range want.rows {
		sameRows(t, when+": "+table, got.rows[table], rows)
	}
}

// landed reads all tables.
func (m *mirror) landed(t *testing.T) landed {
	t.Helper()
	all := landed{rows: map[string][]string{}}
	for table, st := range m.stores {
		d, err := delta.Open(t.Context(), st, nil)
		if table == "cuts" || errors.Is(err, delta.ErrNoTable) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		snap, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, f := range snap.Schema().Fields {
			columns = append(columns, f.Name)
		}
		if slices.Contains(columns, "code") && slices.Contains(columns, "seq") { // of quarantine
			columns = []string{"seq", "row", "code", "message"}
		}
		rows := m.rows(t, table, columns...)
		all.rows[table] = rows
		at := slices.Index(columns, lake.ChangeTypeColumn)
		for _, row := range rows {
			if kind := strings.Split(row, "|")[at+1]; kind != "update_preimage" && kind != "truncate" {
				all.changes++
			}
		}
	}
	return all
}

// rowsOfOthers is how many changes the plugin test_decoding tells of tables whose rows are not left out in part; -1: the capture is
// not of such alone.
func rowsOfOthers(t *testing.T, file string) (n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"filters.", "ri_nothing", "nopk_default"} {
		if strings.Contains(file+string(text), left) {
			return -1
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		_, rest, _ := strings.Cut(line, "\ttable ")
		table, op, _ := strings.Cut(rest, ": ")
		if table != "public.not_published" && (strings.HasPrefix(op, "INSERT") || strings.HasPrefix(op, "UPDATE") ||
			strings.HasPrefix(op, "DELETE")) {
			n++
		}
	}
	return n
}
