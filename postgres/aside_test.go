package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// asides has tables be held back that fail, in this run and those after it, and keeps why.
type asides struct {
	m    *mirror
	told map[string]error
}

func (m *mirror) setAside() *asides {
	a := &asides{m: m, told: map[string]error{}}
	m.park = func() *lake.ParkOptions {
		o := &lake.ParkOptions{Held: map[string]bool{}, TailBytes: -1, OnError: func(_ context.Context, table string, err error) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			a.told[table] = err
			return nil
		}}
		m.mu.Lock()
		defer m.mu.Unlock()
		for table := range a.told {
			o.Held[table] = true
		}
		return o
	}
	return a
}

// resume lets all tables go on, as people do.
func (a *asides) resume() { a.m.mu.Lock(); defer a.m.mu.Unlock(); clear(a.told) }

// why is why a table was set aside; nil: it was not.
func (a *asides) why(table string) error {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.told[table]
}

// is makes sure that these tables alone are set aside, for an error of this code that says so much.
func (a *asides) is(t *testing.T, when string, code freshet.Code, words string, tables ...string) {
	t.Helper()
	for _, table := range tables {
		var e *freshet.Error
		if err := a.why(table); !errors.As(err, &e) || e.Code != code || !strings.Contains(err.Error(), words) || e.Fix == "" {
			t.Errorf("%s: %s: got %v, want it set aside for %s, %q, with a remedy", when, table, err, code, words)
		}
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if len(a.told) != len(tables) {
		t.Errorf("%s: got %v, want none but %v set aside", when, a.told, tables)
	}
}

// exists reports whether there is a Delta table.
func (m *mirror) exists(t *testing.T, table string) bool {
	t.Helper()
	st, err := m.open(table)
	if err != nil {
		t.Fatal(err)
	}
	_, err = delta.Open(t.Context(), st, nil)
	if err != nil && !errors.Is(err, delta.ErrNoTable) {
		t.Fatal(err)
	}
	return err == nil
}

// passed makes sure that the server may forget its log up to a place.
func (m *mirror) passed(t *testing.T, when, at string) {
	t.Helper()
	sql := "select confirmed_flush_lsn >= '" + at + "' from pg_replication_slots where slot_name = " + quoteText(m.options.Slot)
	if got, err := query(t.Context(), connect(t, m.address), sql); err != nil || len(got) != 1 || string(got[0][0]) != "t" {
		t.Errorf("%s: the slot is not past %s: %s, %v", when, at, got, err)
	}
}

// place is where the server's log is.
func (m *mirror) place(t *testing.T) string {
	t.Helper()
	got, err := query(t.Context(), connect(t, m.address), "select pg_current_wal_insert_lsn()")
	if err != nil {
		t.Fatal(err)
	}
	return string(got[0][0])
}

// A table whose names cannot be ones of Delta is left alone, whether that is so from the start, comes later, or comes to a table that is mirrored:
// the others and the slot go on. Once it is mended and let go on it equals its source.
func TestAside_NamesThatCannotBe_OthersGoOnAndItFollowsOnceMended(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.good (id int primary key, v int); create table public.twice (id int primary key, a int, "A" int);
create table public.grows (id int primary key, a int);
insert into public.good values (1, 1); insert into public.twice values (1, 1, 1); insert into public.grows values (1, 1)`)
		m := newMirror(t, address)
		m.log = true
		a := m.setAside()
		m.catchUp(t)
		a.is(t, "from the start", freshet.CodeSchemaMismatch, "differ in more than case", "public_twice", "public_twice_log")
		do(t, conn, `insert into public.good values (2, 2); insert into public.twice values (2, 2, 2); insert into public.grows values (2, 2);
begin; insert into public.grows select g, g from generate_series(3, 9) g; insert into public.good values (3, 3);
alter table public.grows add "A" int; insert into public.grows values (10, 10, 10); update public.grows set a = 20 where id = 2; commit;
create table public.later (id int primary key, b int, "B" int); insert into public.later values (1, 1, 1); insert into public.good values (4, 4)`)
		at := m.place(t)
		do(t, conn, "insert into public.good values (5, 5)")
		m.catchUp(t)
		m.catchUp(t)
		m.catchUp(t)
		m.passed(t, "while three are set aside", at)
		a.is(t, "later", freshet.CodeSchemaMismatch, "differ in more than case", "public_twice", "public_twice_log", "public_grows",
			"public_grows_log", "public_later", "public_later_log")
		sameRows(t, "the good one", m.rows(t, "public_good", "id", "v"), truth(t, conn, "good", "id", "v"))
		sameRows(t, "its log", m.playBack(t, "good_log", []string{"id", "v"}), truth(t, conn, "good", "id", "v"))
		for _, table := range []string{"public_twice", "public_later"} {
			if m.exists(t, table) {
				t.Errorf("%s is there", table)
			}
		}
		if got := m.rows(t, "public_grows", "id", "a"); len(got) > 2 {
			t.Errorf("got %v, want nothing of the transaction that changed the table", got)
		}
		a.resume()
		m.catchUp(t)
		a.is(t, "let go on too soon", freshet.CodeSchemaMismatch, "differ in more than case", "public_twice", "public_twice_log", "public_grows",
			"public_grows_log", "public_later", "public_later_log")
		do(t, conn, `alter table public.twice drop "A"; alter table public.later rename "B" to c; alter table public.grows drop "A";
insert into public.twice values (3, 3); insert into public.grows values (11, 11); insert into public.good values (6, 6)`)
		m.catchUp(t)
		a.resume()
		m.catchUp(t)
		a.is(t, "mended", "", "")
		sameRows(t, "twice", m.rows(t, "public_twice", "id", "a"), truth(t, conn, "twice", "id", "a"))
		sameRows(t, "later", m.rows(t, "public_later", "id", "b", "c"), truth(t, conn, "later", "id", "b", "c"))
		if n := len(m.rows(t, lake.QuarantineName("public_grows"), "code")); n != 2 {
			t.Errorf("got %d rows in quarantine, want the two that were of the form that cannot be", n)
		}
		want := truth(t, conn, "grows", "id", "a")
		for i, row := range want {
			if row == "|2|20" {
				want[i] = "|2|2" // waits in quarantine
			}
		}
		want = slices.DeleteFunc(want, func(row string) bool { return row == "|10|10" }) // likewise
		sameRows(t, "grows", m.rows(t, "public_grows", "id", "a"), want)
	})
}

// A change that the policy stops at sets its table aside alone; what comes of it is parked, and it equals its source once the policy is another.
// As long as it is not, it is set aside again, but for new columns, which it takes with what was parked.
func TestAside_PolicyIsToStop_OthersGoOnAndItFollowsOnceThePolicyIsAnother(t *testing.T) {
	cases := []struct{ name, statement, words string }{
		{"add", "add d int", "the new column d"},
		{"widen", "alter a type bigint", "the column a, whose int32 became int64"},
		{"drop", "drop b", "the column b, which is gone"},
		{"rename", "rename b to z", "the column b, which is called z now"},
		{"narrow", "alter a type text", "the column a, whose type int32 does not hold utf8"},
	}
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		for _, c := range cases {
			do(t, conn, `drop table if exists public.strict, public.good;
create table public.strict (id int primary key, a int, b text); create table public.good (id int primary key)`)
			m := newMirror(t, address)
			m.options.Slot = m.options.Slot[:40] + "_" + m.options.Slot[len(m.options.Slot)-6:] + "_" + c.name
			a := m.setAside()
			m.catchUp(t)
			do(t, conn, "insert into public.strict values (1, 1, 'x')")
			m.catchUp(t)
			m.options.TableDDL = map[string]DDL{"public.strict": {Add: Fail, Widen: Fail, Drop: Fail, Rename: Fail, Narrow: Fail, Truncate: Fail}}
			do(t, conn, "insert into public.strict values (2, 2, 'y'); alter table public.strict "+c.statement+
				"; insert into public.strict (id, a) values (3, 3); update public.strict set a = 4 where id = 1; insert into public.good values (1)")
			at := m.place(t)
			do(t, conn, "insert into public.good values (2)")
			m.catchUp(t)
			m.catchUp(t)
			a.is(t, c.name, freshet.CodeTableChanged, c.words, "public_strict")
			m.passed(t, c.name, at)
			sameRows(t, c.name+": the other", m.rows(t, "public_good", "id"), []string{"|1", "|2"})
			if got := m.rows(t, "public_strict", "id"); len(got) > 2 {
				t.Errorf("%s: got the rows %v, want none of behind the change", c.name, got)
			}
			a.resume()
			do(t, conn, "insert into public.strict (id, a) values (5, 5)")
			m.catchUp(t)
			if got := a.why("public_strict") != nil; got != (c.name != "add") {
				t.Errorf("%s: let go on though the policy is to stop: got %v", c.name, a.told)
			}
			m.options.TableDDL = nil
			a.resume()
			m.catchUp(t)
			a.is(t, c.name, "", "")
			sameRows(t, c.name, m.rows(t, "public_strict", "id", "a"), truth(t, conn, "strict", "id", "a"))
			do(t, conn, "select pg_drop_replication_slot("+quoteText(m.options.Slot)+"); drop publication "+m.options.Slot)
		}
	})
}

// A TRUNCATE that the policy stops at is in quarantine, and rows behind it are not held back for good.
func TestAside_TruncatePolicyIsToStop_QuarantineTells(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "create table public.strict (id int primary key); create table public.good (id int primary key); insert into public.strict values (1)")
		m := newMirror(t, address)
		a := m.setAside()
		m.options.DDL.Truncate = Fail
		m.catchUp(t)
		do(t, conn, "truncate public.strict; insert into public.strict values (2); insert into public.good values (1)")
		m.catchUp(t)
		a.is(t, "emptied", freshet.CodeTruncated, "emptied by TRUNCATE", "public_strict")
		a.resume()
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_strict", "id"), []string{"|1", "|2"})
		sameRows(t, "the other", m.rows(t, "public_good", "id"), []string{"|1"})
		sameRows(t, "quarantine", m.rows(t, lake.QuarantineName("public_strict"), "code"), []string{"|FRE-3016"})
	})
}

// A column that was a list cannot take texts: the rows wait in quarantine, whole, and the table goes on once they are lists again.
func TestAside_TypeThatCannotBe_RowsAreInQuarantine(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.lists (id int primary key, l int[]); create table public.good (id int primary key);
insert into public.lists values (1, '{1}')`)
		m := newMirror(t, address)
		a := m.setAside()
		m.catchUp(t)
		do(t, conn, `alter table public.lists alter l type text; insert into public.lists values (2, 'two'); insert into public.good values (1)`)
		m.catchUp(t)
		a.is(t, "a list became a text", freshet.CodeSchemaMismatch, "column l", "public_lists")
		do(t, conn, `update public.lists set l = '{2}'; alter table public.lists alter l type int[] using l::int[]; insert into public.lists values (3, '{3}')`)
		m.catchUp(t)
		a.resume()
		m.catchUp(t)
		a.is(t, "a list again", "", "")
		sameRows(t, "the table", m.rows(t, "public_lists", "id", "l"), []string{"|1|[1]", "|3|[3]"})
		if got := m.rows(t, lake.QuarantineName("public_lists"), "code"); len(got) != 3 {
			t.Errorf("got %v in quarantine, want the insert and both updates", got)
		}
	})
}

// Without anybody to hold it back the table's error ends the run; and so does that of the only table, of which there is nothing in Delta.
func TestAside_NotWantedOrNoOther_RunEnds(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, `create table public.twice (id int primary key, a int, "A" int); create table public.good (id int primary key)`)
		m := newMirror(t, address)
		m.fails(t, freshet.CodeSchemaMismatch, "cannot become")
		m.options.Tables = []string{"public.twice"}
		m.setAside()
		m.fails(t, freshet.CodeSchemaMismatch, "cannot become")
	})
}

// A table whose bucket is full, or must not be written any more, holds back neither the others nor the slot, and follows once it can: of a
// full one by itself. One that is loaded just then may refuse, too.
func TestAside_BucketIsFullOrRefuses_OthersAndSlotGoOn(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  error
		loaded bool
	}{{"full", store.ErrFull, true}, {"refuses", store.ErrPermission, true}, {"refuses while it is loaded", store.ErrPermission, false}} {
		t.Run(c.name, func(t *testing.T) {
			onServers(t, func(t *testing.T, address string) {
				conn := connect(t, address)
				do(t, conn, `create table public.bad (id int primary key, v int); create table public.good (id int primary key, v int);
insert into public.bad select g, g from generate_series(1, 3000) g; insert into public.good values (0, 0)`)
				m := newMirror(t, address)
				a := m.setAside()
				parks, slow := m.park, &lake.SlowTables{}
				m.park = func() *lake.ParkOptions {
					o := parks()
					o.Patience, o.Slow, o.TailBytes = 300*time.Millisecond, slow, 1<<20
					return o
				}
				if c.loaded {
					m.catchUp(t)
				} else {
					m.options.History.ChunkRows, m.options.History.RowsPerSecond = 50, 500
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
				defer func() {
					cancel()
					<-ended
				}()
				until(t, "some of it is there", func() bool {
					return m.exists(t, "public_bad") && len(m.rows(t, "public_bad", "id")) > 0 && m.exists(t, "public_good") && len(m.rows(t, "public_good", "id")) > 0
				})
				m.refuse("public_bad", c.fault)
				do(t, conn, "update public.bad set v = 0 where id <= 10; insert into public.good values (1, 1)")
				at, before := m.place(t), len(m.rows(t, "public_bad", "id"))
				until(t, "the other and the slot go on", func() bool {
					do(t, conn, "insert into public.good select max(id) + 1, 1 from public.good; update public.bad set v = v + 1 where id = 5")
					got, err := query(t.Context(), conn, "select bool_and(confirmed_flush_lsn >= '"+at+
						"') from pg_replication_slots where database = current_database()")
					return err == nil && string(got[0][0]) == "t" && len(m.rows(t, "public_good", "id")) > 2
				})
				if got := len(m.rows(t, "public_bad", "id")); got != before {
					t.Errorf("got %d rows, want the %d that the table had", got, before)
				}
				refuses := errors.Is(c.fault, store.ErrPermission)
				if told := a.why("public_bad"); (told != nil) != refuses {
					t.Errorf("got %v, want people told of a bucket that refuses alone", told)
				}
				m.refuse("public_bad", nil)
				if !refuses {
					want := truth(t, conn, "bad", "id", "v")
					until(t, "it follows by itself", func() bool { return slices.Equal(m.rows(t, "public_bad", "id", "v"), want) })
				}
				cancel()
				err := <-ended
				close(ended)
				if err != nil {
					t.Fatal(err)
				}
				a.resume()
				m.options.History.RowsPerSecond = 0
				m.catchUp(t)
				for _, table := range []string{"bad", "good"} {
					sameRows(t, table, m.rows(t, "public_"+table, "id", "v"), truth(t, conn, table, "id", "v"))
				}
			})
		})
	}
}

// until waits until something is so, which happens by itself.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
