package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
	"github.com/freshet-io/freshet/quality"
	"github.com/freshet-io/freshet/store"
)

// stirAll has several connections change the same rows, without taking all of them out at once.
func stirAll(t *testing.T, address string, seed uint64, transactions int) (wait func()) {
	var wg sync.WaitGroup
	for share := range uint64(3) {
		conn, rng := connect(t, address), rand.New(rand.NewPCG(seed, share))
		wg.Go(func() {
			for range transactions {
				id, table := rng.IntN(40)*7, []string{"keyed", "toast", "whole"}[rng.IntN(3)]
				sql := fmt.Sprintf("update public.%s set n = n + 1 where id in (%d, %d)", table, id, id+rng.IntN(50))
				switch rng.IntN(5) {
				case 0:
					sql = fmt.Sprintf("delete from public.%s where id = %d", table, id)
				case 1:
					sql = fmt.Sprintf("insert into public.%s (id, n, v) values (%d, %d, 'new') on conflict do nothing", table, id, rng.IntN(99))
				case 2:
					sql = fmt.Sprintf("update public.%s set id = -1 - id where id = %d; update public.%[1]s set id = -1 - id where id < 0", table, id)
				case 3:
					sql = fmt.Sprintf("update public.toast set big = repeat(md5(random()::text), 300) where id = %d", id)
				}
				_, _ = conn.Exec(context.Background(), "begin; "+sql+"; commit").ReadAll()
			}
		})
	}
	return wg.Wait
}

// repair compares a table, and has what differs mended.
func (m *mirror) repair(t *testing.T, table string) *quality.Result {
	t.Helper()
	return m.verifyWith(t, table, &quality.Options{Wait: time.Minute}, true)
}

// running runs the pipeline until end is called, which returns what ended it.
func (m *mirror) running(t *testing.T) (end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// leap makes a hole in the log: what happens meanwhile is not in any slot. The tables count as holding all up to a new one.
func (m *mirror) leap(t *testing.T, meanwhile func()) {
	t.Helper()
	conn := connect(t, m.address)
	slot := quoteText(m.options.Slot)
	do(t, conn, "select pg_drop_replication_slot("+slot+")")
	meanwhile()
	made, err := query(t.Context(), conn, "select lsn from pg_create_logical_replication_slot("+slot+", 'pgoutput')")
	if err != nil {
		t.Fatal(err)
	}
	at, err := pgoutput.ParseLSN(string(made[0][0]))
	if err != nil {
		t.Fatal(err)
	}
	originals, err := OpenOriginals(t.Context(), m.address, &m.options)
	if err != nil {
		t.Fatal(err)
	}
	defer originals.Close(t.Context())
	for table := range m.stores {
		if table == "cuts" {
			continue
		}
		st, err := m.open(table)
		if err != nil {
			t.Fatal(err)
		}
		_, err = lake.SetProgress(t.Context(), st, "test.app", freshet.Progress{originals.Lane(): int64(at)}, &lake.SetOptions{Reason: "a hole"})
		var none *freshet.Error
		if err != nil && !(errors.As(err, &none) && none.Code == freshet.CodeNoTable) {
			t.Fatal(err)
		}
	}
}

// After a hole in the log, what happened in it is found by comparing, and mended, while random transactions change the same keys, the
// process dies, and connections are cut: missed deletes, updates that left large values out, and rows that came and went. The tables
// equal the source in the end, and their change logs played back do.
func TestMend_HoleInTheLog_TablesEqualTheSourceAgain(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 7))
		conn := connect(t, address)
		if conn.ParameterStatus("server_version") < "14" {
			t.Skip("the log of PostgreSQL before 14 brings no messages")
		}
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.log, m.torn = true, true
		m.catchUp(t)
		m.leap(t, func() {
			stirAll(t, address, seed, 100)()
			do(t, conn, `delete from public.keyed where id % 50 = 7; delete from public.toast where id % 35 = 0;
update public.toast set big = 'in the hole' where id % 49 = 0; update public.whole set n = -1 where id % 45 = 0`)
		})
		wait := stirAll(t, address, seed+1, 300)
		for range 3 { // the process dies while rows are mended
			end := m.running(t)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				_, _ = m.compare(t.Context(), "keyed", &quality.Options{Wait: time.Second}, true)
			}()
			<-time.After(time.Duration(100+rng.IntN(300)) * time.Millisecond)
			m.left.Store(1 + int64(rng.IntN(30)))
			<-asked
			if err := end(); err != nil && !errors.Is(err, store.ErrPermission) {
				unlessUndecodable(t, err)
				t.Fatal(err)
			}
			m.left.Store(-1)
		}
		end := m.running(t)
		mended := int64(0)
		for _, table := range []string{"keyed", "toast", "whole"} {
			r := m.repair(t, table)
			mended += r.Mended
			t.Logf("%s: %v, %d mended, %s", table, r.Counts, r.Mended, r.Took)
		}
		wait()
		for _, table := range []string{"keyed", "toast", "whole"} { // what changed meanwhile, each time that it was looked at
			m.repair(t, table)
			if r := m.verify(t, table, &quality.Options{Wait: time.Minute}); !r.Equal() {
				t.Errorf("%s: got %v, wanted no difference: %v", table, r.Counts, r.Differences)
			}
		}
		if mended == 0 {
			t.Error("nothing was mended: the hole has changed nothing")
		}
		if err := end(); err != nil {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		m.catchUp(t)
		m.check(t, "mended")
		for table, columns := range mirrored {
			sameRows(t, "the changes of "+table, m.playBack(t, table+"_log", columns), truth(t, conn, table, columns...))
		}
	})
}

// What somebody else did to rows is undone, while other rows change; so are rows that are there twice.
func TestMend_TableTamperedWith_RowsAreTheSources(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		do(t, connect(t, address), mirroredDDL+fill)
		m := newMirror(t, address)
		m.catchUp(t)
		wrong := m.tamper(t, rand.New(rand.NewPCG(seed, 1)))
		end := m.running(t)
		wait := stirAll(t, address, seed, 100)
		if r := m.repair(t, "keyed"); r.Mended != int64(len(wrong)) {
			t.Errorf("got %d mended of %v, wanted %d", r.Mended, r.Counts, len(wrong))
		}
		wait()
		if err := end(); err != nil {
			unlessUndecodable(t, err)
			t.Fatal(err)
		}
		m.catchUp(t)
		m.check(t, "mended")
	})
}

// Whoever may connect can write such messages: those that are none, and those of no table, are left out.
func TestMend_ForgedRequests_LeftOut(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL+fill)
		m := newMirror(t, address)
		m.catchUp(t)
		end := m.running(t)
		for n, text := range []string{"", "{}", "[]", `{"id":"ID","table":"public.none","columns":["id"],"keys":[{"values":["1"]}]}`,
			`{"id":"ID","table":"public.keyed","columns":["nothing"],"keys":[{"values":["1"]}]}`,
			`{"id":"ID","table":"public.keyed","columns":["id"],"keys":[{"values":["x'); drop table public.quiet; --"]}]}`,
			`{"id":"ID","table":"public.keyed","columns":["id"],"keys":[{"values":["100"],"held":true},{"values":["99999"],"held":true}]}`} {
			text = strings.Replace(text, "ID", fmt.Sprint(n), 1)
			do(t, conn, "select pg_logical_emit_message(true, 'freshet.mend', "+quoteText(text)+"); "+
				"select pg_logical_emit_message(true, 'freshet.mended', "+quoteText(text)+")")
		}
		if r := m.verify(t, "keyed", &quality.Options{Wait: time.Minute}); !r.Equal() {
			t.Errorf("got %v, wanted no difference", r.Counts)
		}
		do(t, conn, "insert into public.quiet values (1)")
		if err := end(); err != nil {
			t.Fatal(err)
		}
		m.catchUp(t)
		m.check(t, "afterwards")
	})
}

// Keys of which a change came while they were read, in whichever way it tells of them, are left out.
func TestMend_ChangedMeanwhile_LeftOut(t *testing.T) {
	text := func(v string) pgoutput.Value { return pgoutput.Value{Kind: pgoutput.Text, Data: []byte(v)} }
	unchanged := pgoutput.Value{Kind: pgoutput.Unchanged}
	f := &feed{table: &Table{Columns: []Column{{Name: "v"}, {Name: "id"}}}}
	fresh := func() (*mends, *mend) {
		m := &mend{mendRequest: mendRequest{Columns: []string{"id"}}, feed: f, touched: map[string]bool{}}
		return &mends{all: map[string]*mend{"": m}}, m
	}
	for name, c := range map[string]struct {
		message pgoutput.Message
		touched string
		lost    bool
	}{
		"insert":          {pgoutput.Message{Kind: pgoutput.Insert, New: pgoutput.Tuple{text("a"), text("1")}}, "1", false},
		"update":          {pgoutput.Message{Kind: pgoutput.Update, New: pgoutput.Tuple{unchanged, text("1")}}, "1", false},
		"another key":     {pgoutput.Message{Kind: pgoutput.Update, New: pgoutput.Tuple{text("a"), text("1")}, Old: pgoutput.Tuple{{}, text("2")}}, "1 2", false},
		"delete":          {pgoutput.Message{Kind: pgoutput.Delete, Old: pgoutput.Tuple{{Kind: pgoutput.Null}, text("1")}}, "1", false},
		"large key":       {pgoutput.Message{Kind: pgoutput.Update, New: pgoutput.Tuple{text("a"), unchanged}, Old: pgoutput.Tuple{text("b"), text("1")}}, "1", false},
		"key left out":    {pgoutput.Message{Kind: pgoutput.Update, New: pgoutput.Tuple{text("a"), unchanged}}, "", true},
		"fewer columns":   {pgoutput.Message{Kind: pgoutput.Insert, New: pgoutput.Tuple{text("a")}}, "", true},
		"key of no value": {pgoutput.Message{Kind: pgoutput.Insert, New: pgoutput.Tuple{text("a"), {Kind: pgoutput.Null}}}, "", true},
	} {
		a, m := fresh()
		a.touch(f, &c.message)
		a.touch(&feed{}, &pgoutput.Message{New: pgoutput.Tuple{text("a"), text("of another table")}})
		want := map[string]bool{}
		for _, key := range strings.Fields(c.touched) {
			want[joinValues([][]byte{[]byte(key)})] = true
		}
		if fmt.Sprint(m.touched) != fmt.Sprint(want) || m.lost != c.lost {
			t.Errorf("%s: got %v, lost %v, wanted %v, %v", name, m.touched, m.lost, want, c.lost)
		}
	}
}

func FuzzMendRequest(f *testing.F) {
	f.Add([]byte(`{"id":"ID","table":"public.t","columns":["id"],"keys":[{"values":["1"],"held":true}]}`))
	f.Add([]byte(`{"columns":["a","b"],"keys":[{"values":["1"]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseMendRequest(b)
		if err != nil {
			return
		}
		if len(r.Keys) > mendKeys || len(r.Columns) > mendColumns {
			t.Errorf("took %d keys of %d columns", len(r.Keys), len(r.Columns))
		}
		for _, k := range r.Keys {
			if len(k.Values) != len(r.Columns) {
				t.Errorf("took a key of %d values for %d columns", len(k.Values), len(r.Columns))
			}
		}
	})
}

// Where the message stands, the rows come that were read, less those that a change had meanwhile; what is read of a message again comes once.
func TestMend_MessageComes_RowsLessThoseThatChanged(t *testing.T) {
	types := testTypes(Types{})
	table := &Table{OID: 7, Schema: "public", Name: "t", Columns: []Column{{Name: "id", Type: oidInt8, Modifier: -1, Key: true},
		{Name: "v", Type: 25, Modifier: -1}}}
	schema, err := types.fit(table, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := newRows(types, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	text := func(v string) []byte { return []byte(v) }
	f := &feed{name: "t", of: [2]string{"public", "t"}, whose: 7, table: table, schema: schema, rows: rows}
	request := `{"id":"a","table":"public.t","columns":["id"],"keys":[{"values":["1"]},{"values":["2"]},{"values":["3"],"held":true}]}`
	parsed, err := parseMendRequest([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	m := &mend{mendRequest: *parsed, feed: f, whose: 7, touched: map[string]bool{}, done: make(chan struct{}), names: []string{"id", "v"},
		rows: []mendRow{{key: [][]byte{text("1")}, values: [][]byte{text("1"), text("read")}},
			{key: [][]byte{text("2")}, values: [][]byte{text("2"), nil}}, {key: [][]byte{text("3")}, held: true}}}
	close(m.done)
	s := &Source{server: &server{}, byOID: map[uint32]*feed{7: f}, feeds: map[string]*feed{"public.t": f}, order: []*feed{f}}
	s.o = (&Options{Slot: "s"}).withDefaults()
	s.history, s.mends.all, s.mends.over = newHistory(s), map[string]*mend{"a": m}, map[string]bool{}
	s.current = origin{transaction: &transaction{end: 100}}
	changed := &pgoutput.Message{Kind: pgoutput.Insert, Table: 7, New: pgoutput.Tuple{{Kind: pgoutput.Text, Data: text("1")},
		{Kind: pgoutput.Text, Data: text("changed")}}}
	if err := s.change(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.mendsRead(t.Context(), []string{request}, &origin{transaction: &transaction{end: 200}}); err != nil {
			t.Fatal(err)
		}
	}
	b := f.take(200, false)
	defer b.Release()
	var got []string
	for i := range int(b.Rows.NumRows()) {
		got = append(got, fmt.Sprintf("%s %s %s@%d", b.Kinds[i], b.Rows.Column(0).ValueStr(i), b.Rows.Column(1).ValueStr(i), b.Seqs[i]))
	}
	want := "[insert 1 changed@100 insert 2 (null)@200 delete 3 (null)@200]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %s, wanted %s", got, want)
	}
}
