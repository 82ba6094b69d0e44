package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/lake"
)

// orderedTables have keys whose order only the server knows.
var orderedTables = map[string][]string{
	"words":  {"id", "n"},
	"pairs":  {"id", "n", "v"},
	"moods":  {"id", "n"},
	"padded": {"id", "n"},
	"reals":  {"id", "n"},
}

const orderedDDL = `
create type public."Mood of" as enum ('zero', 'one', 'two', 'three');
create table public.words (id text collate "en-x-icu" primary key, n int);
create table public.pairs (id text collate "en-x-icu", n int, v text, primary key (id, n));
create table public.moods (id public."Mood of", n int, primary key (id, n));
create table public.padded (id char(8) collate "en-x-icu" primary key, n int);
create table public.reals (id double precision primary key, n int);
insert into public.words select w || g, 0 from generate_series(1, 400) g, unnest(array['a', 'A', 'ä', 'Z', '_', '"\\,{}', '-']) w;
insert into public.pairs select 'p' || g % 40, g, 'v' || g from generate_series(1, 900) g;
insert into public.moods select (enum_range(null::public."Mood of"))[1 + g % 4], g from generate_series(1, 900) g;
insert into public.padded select 'k' || g, 0 from generate_series(1, 900) g;
insert into public.reals select g / 7.0, 0 from generate_series(-450, 450) g where g <> 0;`

// Tables whose keys only the server can put in order are loaded chunk by chunk, while they change: each row comes once, and each
// change since.
func TestHistory_KeysOfTheServersOrder_EachRowOnce(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		conn := connect(t, address)
		do(t, conn, orderedDDL)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 60
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Append).Run(ctx) }()
		for n := range 150 {
			k, to := rng.IntN(400), rng.IntN(400)
			_, _ = conn.Exec(ctx, strings.Join([]string{"begin",
				fmt.Sprintf("update public.words set n = %d where id in ('a%[2]d', 'A%[2]d', 'Z%[2]d')", n, k),
				fmt.Sprintf("delete from public.words where id = 'ä%d'", k),
				fmt.Sprintf("insert into public.words values ('%c%d', 1) on conflict do nothing", "aAbyZ"[rng.IntN(5)], 1000+to),
				fmt.Sprintf("update public.pairs set id = 'p%d' where id = 'p%d' and n %% 7 = 0", 50+to, k%40),
				fmt.Sprintf("update public.moods set id = 'three' where n = %d; delete from public.moods where n = %d", k, to),
				fmt.Sprintf("update public.padded set id = 'm' || %[1]d where id = 'k' || %[1]d", k),
				fmt.Sprintf("update public.reals set id = id + 1000 where id between %d and %[1]d + 1", k%60-30),
				[]string{"commit", "commit", "rollback"}[rng.IntN(3)]}, ";")).ReadAll() // what fails is part of it
			_, _ = conn.Exec(ctx, "rollback").ReadAll()
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := m.pipeline(m.source(t, true), lake.Append).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for table, columns := range orderedTables {
			keys := 1
			if table == "pairs" || table == "moods" {
				keys = 2
			}
			sameRows(t, table, m.playBackBy(t, table, keys, columns), truth(t, conn, table, columns...))
			if chunks := m.chunks(t, table); chunks < 10 {
				t.Errorf("%s: got %d chunks, want it cut into many", table, chunks)
			}
		}
	})
}

// chunks is in how many chunks the table was loaded.
func (m *mirror) chunks(t *testing.T, table string) (n int) {
	t.Helper()
	for o, err := range m.stores["public_"+table].List(t.Context(), "_freshet/marks-test.app/history/", "") {
		if err != nil || o.Key == "" {
			t.Fatal(err)
		}
		n++
	}
	return n
}
