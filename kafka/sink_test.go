package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

// sink is a set of tables in memory that any number of sources may write to at once, as copies of a pipeline
// would.
type sink struct {
	mu      sync.Mutex
	tables  map[string]*sinkTable
	kept    map[string]*sinkTable // nothing but the starts of tables that are still to be made
	changed chan struct{}         // closed and replaced at each change
}

type sinkTable struct {
	schema   *arrow.Schema
	progress freshet.Progress
	rows     []string // "orders[0]@3 n=1"
	rejects  []freshet.Reject
	creates  int
	since    time.Time // of its first progress
	born     int       // lanes that its creation started
}

func (t *sinkTable) begin() {
	if t.since.IsZero() {
		t.since = time.Now()
	}
}

func newSink() *sink {
	return &sink{tables: map[string]*sinkTable{}, kept: map[string]*sinkTable{}, changed: make(chan struct{})}
}

// known is the table, or what is kept for it; nil for neither.
func (k *sink) known(table string) *sinkTable {
	if t := k.tables[table]; t != nil {
		return t
	}
	return k.kept[table]
}

func (k *sink) touch() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// wait waits until ok holds of the table, which may be nil.
func (k *sink) wait(t *testing.T, table string, ok func(*sinkTable) bool) {
	t.Helper()
	late := time.After(patience)
	for {
		k.mu.Lock()
		done, changed := ok(k.tables[table]), k.changed
		k.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("table %s: waited in vain; it holds %d rows", table, k.count(table))
		}
	}
}

func (k *sink) count(table string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tables[table] == nil {
		return 0
	}
	return len(k.tables[table].rows)
}

// rows waits for n rows.
func rows(n int) func(*sinkTable) bool {
	return func(t *sinkTable) bool { return t != nil && len(t.rows) >= n }
}

// copyOf is one process's view of the sink. It holds what it is given until a commit, as a pipeline does.
type copyOf struct {
	*sink
	t        *testing.T
	mu       sync.Mutex
	owned    map[string]freshet.Progress // by table: what was read and not committed ends here
	pending  []*freshet.Batch
	released int
	keep     int // batches to hold back before a commit
}

func (k *sink) copy(t *testing.T) *copyOf {
	return &copyOf{sink: k, t: t, owned: map[string]freshet.Progress{}}
}

func (c *copyOf) Schema(_ context.Context, table string) (*arrow.Schema, error) {
	c.sink.mu.Lock()
	defer c.sink.mu.Unlock()
	if t := c.tables[table]; t != nil {
		return t.schema, nil
	}
	return nil, nil
}

func (c *copyOf) Ensure(_ context.Context, table string, schema *arrow.Schema) error {
	c.sink.mu.Lock()
	defer c.sink.mu.Unlock()
	if c.tables[table] == nil {
		t := c.kept[table]
		if t == nil {
			t = &sinkTable{progress: freshet.Progress{}}
		}
		delete(c.kept, table)
		t.schema, t.born = schema, len(t.progress)
		c.tables[table] = t
		c.touch()
	}
	c.tables[table].creates++
	return nil
}

// Widen does nothing: no source here knows that a column has become wider.
func (c *copyOf) Widen(context.Context, string, *arrow.Schema) error { return nil }

// Hold holds no table back: the error ends the run.
func (c *copyOf) Hold(_ context.Context, _ string, cause error) (bool, error) { return false, cause }

func (c *copyOf) Resume(_ context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	c.give(table, lanes)
	c.sink.mu.Lock()
	found := freshet.Progress{}
	var err error
	if t := c.known(table); t != nil {
		for _, l := range lanes {
			for known := range t.progress {
				if known.Origin == l.Origin && known.OriginID != l.OriginID {
					err = &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Msg: "remade"}
				}
			}
			if seq, ok := t.progress[l]; ok {
				found[l] = seq
			}
		}
	}
	c.sink.mu.Unlock()
	c.own(table, found)
	return found, err
}

func (c *copyOf) Start(_ context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	c.sink.mu.Lock()
	t := c.known(table)
	if t == nil {
		t = &sinkTable{progress: freshet.Progress{}}
		c.kept[table] = t
	}
	won := freshet.Progress{}
	for l, seq := range starts {
		if _, ok := t.progress[l]; !ok {
			t.progress[l] = seq
			t.begin()
		}
		won[l] = t.progress[l]
	}
	c.touch()
	c.sink.mu.Unlock()
	c.own(table, won)
	return won, nil
}

// Bookmark is not called: offsets are numbers.
func (c *copyOf) Bookmark(context.Context, string, string, []byte) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

func (c *copyOf) Unmark(context.Context, string, string, string) error { return errors.ErrUnsupported }

func (c *copyOf) Since(_ context.Context, table string) (at time.Time, known bool, err error) {
	c.sink.mu.Lock()
	defer c.sink.mu.Unlock()
	if t := c.known(table); t != nil {
		return t.since, len(t.progress) > 0, nil
	}
	return time.Time{}, false, nil
}

func (c *copyOf) own(table string, p freshet.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[table] == nil {
		c.owned[table] = freshet.Progress{}
	}
	maps.Copy(c.owned[table], p)
}

// give commits what is held of the lanes and takes nothing of them any more.
func (c *copyOf) give(table string, lanes []freshet.Lane) {
	c.commit()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range lanes {
		delete(c.owned[table], l)
	}
}

func (c *copyOf) Release(_ context.Context, table string, lanes []freshet.Lane) error {
	c.give(table, lanes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released += len(lanes)
	return nil
}

// take holds the batch for the next commit, if it fits.
func (c *copyOf) take(b *freshet.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.owned[b.Table][b.Lane]
	if !ok || b.After != at {
		b.Release()
		return
	}
	if b.Last <= b.After {
		c.t.Errorf("found a batch %s (%d, %d], wanted one that moves progress", b.Lane, b.After, b.Last)
	}
	c.owned[b.Table][b.Lane] = b.Last
	c.pending = append(c.pending, b)
}

// commit commits what is held, table by table, lane by lane; it returns the tables that had moved on.
func (c *copyOf) commit() (stale []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sink.mu.Lock()
	defer c.sink.mu.Unlock()
	dropped := map[string]bool{}
	for _, b := range c.pending {
		t := c.tables[b.Table]
		if dropped[b.Table] || t == nil || t.progress[b.Lane] != b.After {
			dropped[b.Table] = true
			b.Release()
			continue
		}
		t.progress[b.Lane] = b.Last
		for i := range b.NumRows() {
			t.rows = append(t.rows, b.Lane.Position(b.Seqs[i])+" "+rowText(b.Rows, i))
		}
		t.rejects = append(t.rejects, b.Rejects...)
		if b.Rows != nil && b.Rows.Schema().NumFields() > t.schema.NumFields() {
			t.schema = b.Rows.Schema()
		}
		b.Release()
	}
	c.pending = nil
	c.touch()
	for table := range dropped {
		clear(c.owned[table])
		stale = append(stale, table)
	}
	return stale
}

func rowText(rows arrow.RecordBatch, i int) string {
	var s []string
	for j, f := range rows.Schema().Fields() {
		if !rows.Column(j).IsNull(i) {
			s = append(s, f.Name+"="+rows.Column(j).ValueStr(i))
		}
	}
	return strings.Join(s, " ")
}

// run lets the source write to the copy until it ends, ctx ends, or it fails.
func (c *copyOf) run(ctx context.Context, src *kafka.Source) (err error) {
	defer func() {
		c.commit()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, src.Close(closing))
	}()
	if err := src.Open(ctx, c); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	held := 0
	for {
		b, err := src.Next(ctx)
		switch {
		case err == nil:
			c.take(b)
			held++
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, io.EOF):
			return err
		}
		if held > c.keep || err != nil {
			held = 0
			stale := c.commit()
			for _, table := range stale {
				if err := src.Rewind(ctx, table); err != nil {
					return err
				}
			}
			if err == nil {
				err = c.ack(ctx, src)
			}
			if err != nil && len(stale) == 0 {
				return nil
			}
		}
	}
}

func (c *copyOf) ack(ctx context.Context, src *kafka.Source) error {
	c.sink.mu.Lock()
	defer c.sink.mu.Unlock()
	for name, t := range c.tables {
		if err := src.Ack(ctx, name, maps.Clone(t.progress)); err != nil {
			return err
		}
	}
	return nil
}

// want compares the table's rows, in any order, with these.
func (k *sink) want(t *testing.T, table string, want []string) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	var got []string
	if k.tables[table] != nil {
		got = canonical(k.tables[table].rows)
	}
	want = canonical(want)
	if slices.Equal(got, want) {
		return
	}
	var missing, extra []string
	count := map[string]int{}
	for _, r := range want {
		count[r]++
	}
	for _, r := range got {
		count[r]--
	}
	for r, n := range count {
		switch {
		case n > 0:
			missing = append(missing, fmt.Sprintf("%s (%d)", r, n))
		case n < 0:
			extra = append(extra, fmt.Sprintf("%s (%d)", r, -n))
		}
	}
	slices.Sort(missing)
	slices.Sort(extra)
	t.Fatalf("table %s: got %d rows, want %d\nmissing: %q\nextra: %q", table, len(got), len(want),
		missing[:min(20, len(missing))], extra[:min(20, len(extra))])
}

// canonical sorts the rows, and the values of each.
func canonical(rows []string) []string {
	var sorted []string
	for _, r := range rows {
		words := strings.Fields(r)
		slices.Sort(words[1:])
		sorted = append(sorted, strings.Join(words, " "))
	}
	slices.Sort(sorted)
	return sorted
}

// wantProgress compares how far the table is.
func (k *sink) wantProgress(t *testing.T, table string, want map[string]int64) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	got := map[string]int64{}
	if k.tables[table] != nil {
		for l, seq := range k.tables[table].progress {
			got[l.String()] = seq
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("progress of %s: got %v, want %v", table, got, want)
	}
}
