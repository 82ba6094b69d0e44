package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// hasty is a source whose Next is told to end while it asks what is downstream, or soon after it began, at random: as it is when a table is to be
// read again. Then it is called anew.
type hasty struct {
	*Source

	mu     sync.Mutex
	random *rand.Rand
	end    context.CancelFunc // of the Next that is under way; nil: none is
	ended  int
}

// hastyDown is what a hasty source asks.
type hastyDown struct {
	freshet.Downstream
	h *hasty
}

func (h *hasty) Open(ctx context.Context, down freshet.Downstream) error {
	return h.Source.Open(ctx, hastyDown{down, h})
}

func (h *hasty) Next(ctx context.Context) (*freshet.Batch, error) {
	for {
		hurry, end := h.begin(ctx)
		b, err := h.Source.Next(hurry)
		again := err != nil && !errors.Is(err, io.EOF) && hurry.Err() != nil && ctx.Err() == nil
		h.watch(nil)
		end()
		if !again {
			return b, err
		}
	}
}

// begin begins a Next that ends with ctx, or when it is told to.
func (h *hasty) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hurry, end := context.WithCancel(ctx)
	if ms := h.random.IntN(100); ms < 20 {
		hurry, end = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	}
	h.end = end
	return hurry, end
}

func (h *hasty) watch(end context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
}

// hurry may end the Next that is under way.
func (h *hasty) hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil && h.random.IntN(6) == 0 {
		h.end()
		h.ended++
	}
}

// hurrying asks, and may end the Next that asks: before it has an answer, or when there is one that it does not hear.
func hurrying[T any](ctx context.Context, h *hasty, ask func() (T, error)) (T, error) {
	h.hurry()
	answer, err := ask()
	if h.hurry(); err == nil && ctx.Err() != nil {
		var none T
		return none, context.Cause(ctx)
	}
	return answer, err
}

func (d hastyDown) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	return hurrying(ctx, d.h, func() (*arrow.Schema, error) { return d.Downstream.Schema(ctx, table) })
}

func (d hastyDown) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Ensure(ctx, table, schema) })
	return err
}

func (d hastyDown) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Widen(ctx, table, schema) })
	return err
}

func (d hastyDown) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	return hurrying(ctx, d.h, func() (freshet.Progress, error) { return d.Downstream.Resume(ctx, table, lanes) })
}

func (d hastyDown) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	return hurrying(ctx, d.h, func() (freshet.Progress, error) { return d.Downstream.Start(ctx, table, starts) })
}

func (d hastyDown) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	return hurrying(ctx, d.h, func() ([]byte, error) { return d.Downstream.Bookmark(ctx, table, name, mark) })
}

func (d hastyDown) Unmark(ctx context.Context, table, prefix, last string) error {
	_, err := hurrying(ctx, d.h, func() (any, error) { return nil, d.Downstream.Unmark(ctx, table, prefix, last) })
	return err
}

// hurryNext lands what was sent although Next is told to end wherever it asks.
func (c *capture) hurryNext(t *testing.T, want landed) {
	t.Helper()
	for range 5 {
		_, m := c.pipe(t)
		s := m.source(t, true)
		p := m.pipeline(s, lake.Append)
		h := &hasty{Source: s, random: rand.New(rand.NewPCG(c.random.Uint64(), 2))}
		p.Source = h
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "told to end", m.landed(t), want)
	}
}

// haste runs the pipeline with a source whose Next is told to end at random, up to the end of the log or until ctx ends, and returns how often
// it was.
func (m *mirror) haste(ctx context.Context, t *testing.T, bounded bool, seed uint64) (int, error) {
	t.Helper()
	s := m.source(t, bounded)
	p := m.pipeline(s, lake.Mirror)
	h := &hasty{Source: s, random: rand.New(rand.NewPCG(seed, 3))}
	p.Source = h
	err := p.Run(ctx)
	return h.ended, err
}

const comingAndGoing = `
create table public.made (id int primary key, v text);
create table public.altered (id int primary key, v text);
create table public.words (id text collate "en-x-icu" primary key, v text);
insert into public.words select (array['a', 'Z', 'ä'])[1 + g % 3] || g, 'first' from generate_series(1, 900) g;
insert into public.altered select g, 'first' from generate_series(1, 300) g;`

// comeAndGo makes tables, in the place of others, too, and alters one, with rows before and behind.
func comeAndGo(conn *pgconn.PgConn, rng *rand.Rand, rounds int) {
	ctx := context.Background()
	for n := range rounds {
		_, _ = conn.Exec(ctx, fmt.Sprintf("update public.words set v = 'w%d' where id like '%%%d'; update public.words set id = id || '%[1]d' where id like '%%%[3]d'",
			n, rng.IntN(10), 10+rng.IntN(90))).ReadAll()
		sql := fmt.Sprintf("begin; create table public.new%d (id int primary key, v text); insert into public.new%[1]d values (1, 'a'); commit; "+
			"insert into public.new%[1]d values (2, 'b')", n)
		switch rng.IntN(4) {
		case 0:
			sql = fmt.Sprintf("begin; drop table public.made; create table public.made (id int primary key, v text, c%d int); "+
				"insert into public.made select g, 'made' from generate_series(1, %d) g; commit; update public.made set v = 'x' where id = 1", n, 1+rng.IntN(40))
		case 1:
			sql = fmt.Sprintf("alter table public.altered add c%d int default %[1]d; update public.altered set v = 'c%[1]d' where id < %d", n, rng.IntN(300))
		case 2:
			sql = fmt.Sprintf("begin; update public.altered set v = 'u%d' where id > 100; savepoint a; alter table public.altered add d%[1]d text; "+
				"insert into public.altered select 1000 + %[1]d, 'i', d%[1]d from public.altered where id = 1; rollback to a; delete from public.altered where id = %d; commit",
				n, rng.IntN(300))
		}
		_, _ = conn.Exec(ctx, sql).ReadAll()
		_, _ = conn.Exec(ctx, "rollback").ReadAll() // where that failed
	}
}

// A step of the source is told to end at any call of what is downstream, while tables are loaded, come, go and are altered, and large
// transactions are sent in parts: the tables are those of the source.
func TestNext_ToldToEndAtRandom_TablesEqualTheSource(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := seedOf(t)
		rng := rand.New(rand.NewPCG(seed, 9))
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill+comingAndGoing)
		do(t, conn, "alter database "+quoteName(slotOf(t, address))+" set logical_decoding_work_mem = '64kB'")
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed, m.options.History.ChunkRows = []string{"public.*"}, true, 200
		m.options.WatchEvery = 10 * time.Millisecond
		wait, others := churnAll(t, address, seed, 60), connect(t, address)
		var altering sync.WaitGroup
		altering.Go(func() { comeAndGo(others, rng, 25) })
		ended := 0
		for n := range uint64(3) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			many, err := m.haste(ctx, t, false, seed+n)
			cancel()
			if err != nil {
				unlessUndecodable(t, err)
				t.Fatal(err)
			}
			ended += many
		}
		wait()
		altering.Wait()
		many, err := m.haste(t.Context(), t, true, seed+3)
		if err != nil {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		if ended += many; ended == 0 {
			t.Error("Next was never told to end")
		}
		t.Logf("Next was told to end %d times", ended)
		m.catchUp(t)
		m.check(t, "at the end")
		for _, r := range answers(t, conn, "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and "+
			"(relname like 'new%' or relname in ('made', 'altered', 'words'))") {
			sameRows(t, r, m.rows(t, "public_"+r, "id", "v"), truth(t, conn, r, "id", "v"))
		}
	})
}

// answers are the first values of the rows that a statement returns.
func answers(t *testing.T, conn *pgconn.PgConn, sql string) (all []string) {
	t.Helper()
	found, err := query(t.Context(), conn, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for _, r := range found {
		all = append(all, string(r[0]))
	}
	return all
}
