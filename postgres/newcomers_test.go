package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// A table that is made while the pipeline runs is loaded although nothing happens to it, and one that is made while it does not, when
// it runs again.
func TestNewcomers_NoChangeOfThem_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed = []string{"public.*"}, true
		m.catchUp(t)
		do(t, conn, "create table public.away (id int primary key); insert into public.away values (1), (2)")
		m.catchUp(t)
		sameRows(t, "away", m.rows(t, "public_away", "id"), []string{"|1", "|2"})

		loaded := make(chan string, 100)
		m.options.WatchEvery = 10 * time.Millisecond
		m.options.Observer.Loading = func(l freshet.Loading) {
			if l.Done {
				loaded <- l.Table
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
		do(t, conn, "begin; create table public.late (id int primary key); insert into public.late values (7); "+
			"create table public.bare (a int); commit")
		for table := ""; table != "public_late"; {
			select {
			case table = <-loaded:
			case err := <-done:
				t.Fatalf("ended with %v, want the table loaded", err)
			}
		}
		do(t, conn, "insert into public.late values (8); update public.bare set a = 1")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m.options.Observer = freshet.Observer{}
		m.catchUp(t)
		sameRows(t, "late", m.rows(t, "public_late", "id"), []string{"|7", "|8"})
	})
}

// A table that is taken out of the publication is a gap, and so is one that was put back, or taken out and put back between two looks,
// while the pipeline runs or not.
func TestNewcomers_TakenOut_Gap(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		out := "alter publication " + quoteName(m.options.Slot) + " drop table public.quiet"
		back := strings.Replace(out, " drop ", " add ", 1)
		do(t, conn, out)
		m.fails(t, freshet.CodeGap, "has the table public.quiet no longer")
		do(t, conn, back)
		m.fails(t, freshet.CodeGap, "had it not for a while")
		do(t, conn, "select pg_drop_replication_slot("+quoteText(m.options.Slot)+")")

		for _, change := range []string{out, "begin; " + out + "; " + back + "; commit"} {
			other := newMirror(t, address)
			other.catchUp(t)
			err := other.whileItRuns(t, func() { do(t, conn, change) })
			var e *freshet.Error
			if !errors.As(err, &e) || e.Code != freshet.CodeGap || !strings.Contains(e.Msg, "public.quiet") {
				t.Errorf("%s: got %v, want a gap that names the table", change, err)
			}
			do(t, conn, "select pg_drop_replication_slot("+quoteText(m.options.Slot)+")")
			if change == out {
				do(t, conn, back)
			}
		}
	})
}

// whileItRuns runs the pipeline, does something once it watches its slot, and returns how it ended.
func (m *mirror) whileItRuns(t *testing.T, do func()) error {
	t.Helper()
	m.options.WatchEvery = 10 * time.Millisecond
	watched := make(chan struct{}, 1000)
	m.options.Observer.Held = func(freshet.Held) {
		select {
		case watched <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
	select {
	case <-watched:
	case err := <-done:
		t.Fatalf("ended with %v before it watched its slot", err)
	}
	do()
	return <-done
}

// The server looks at its catalog bit by bit: a table that is dropped just then is one that the publication has no longer. That is no gap.
func TestWatch_DroppedWhileTheServerLooks_NoGap(t *testing.T) {
	in, out := []string{"public", "a", "16400", "t", "16401", "f"}, []string{"public", "a", "16400", "f", "", "f"}
	anew := []string{"public", "a", "16500", "f", "", "f"}
	for name, c := range map[string]struct {
		looks [][][]string
		gone  []string
	}{
		"dropped":   {[][][]string{{in}, {out}, {}}, nil},
		"made anew": {[][][]string{{in}, {out}, {anew}}, nil},
		"taken out": {[][][]string{{in}, {out}, {out}}, []string{"public.a"}},
	} {
		server := newWalsender(t, "15.4", nil, rand.New(rand.NewPCG(1, 1)))
		server.asked = func(sql string) (rows [][]string, is bool) {
			if is = strings.Contains(sql, "p.tablename is not null"); is {
				rows, c.looks = c.looks[0], c.looks[1:]
			}
			return rows, is
		}
		o := (&Options{Slot: "s", Tables: []string{"public.*"}}).withDefaults()
		w := &watch{o: &o, version: 150004, conn: connect(t, server.address())}
		var n notice
		for len(c.looks) > 0 {
			var err error
			if n, _, err = w.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(n.gone, c.gone) {
			t.Errorf("%s: got %v taken out, want %v", name, n.gone, c.gone)
		}
	}
}

// A table that is dropped, or added by another copy of the pipeline, before it is added to the publication is no error.
func TestExtend_DroppedOrAddedMeanwhile_GoesOn(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		m.catchUp(t)
		do(t, conn, "create table public.dropped (id int primary key); create table public.added (id int primary key); create table public.fresh (id int primary key)")
		all, err := readTables(t.Context(), conn, []string{"public.*"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := readPublication(t.Context(), conn, m.options.Slot, serverVersion(conn))
		if err != nil {
			t.Fatal(err)
		}
		do(t, conn, "drop table public.dropped; alter publication "+quoteName(p.Name)+" add table public.added")
		o := m.options.withDefaults()
		if err := p.extend(t.Context(), conn, &o, all); err != nil {
			t.Fatal(err)
		}
		got := answers(t, conn, "select tablename from pg_publication_tables where pubname = "+quoteText(p.Name)+" and tablename in ('dropped', 'added', 'fresh') order by 1")
		_, dropped := p.Tables["public.dropped"]
		_, added := p.Tables["public.added"]
		if !slices.Equal(got, []string{"added", "fresh"}) || dropped || !added {
			t.Errorf("got %v in the publication, and %v as known, want both that are there", got, p.Tables)
		}
	})
}

// A table is made anew while a pipeline starts and the server looks at it: it is loaded as the new one.
func TestOpen_MadeAnewWhileTheCatalogIsRead_Loaded(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn, watching := connect(t, address), connect(t, address)
		do(t, conn, "create table public.made (id int primary key, v text); insert into public.made values (1, 'old')")
		m := newMirror(t, address)
		m.options.Tables, m.options.Keyed = []string{"public.*"}, true
		m.catchUp(t)
		do(t, conn, "begin; drop table public.made; create table public.made (id int primary key, v text); insert into public.made values (2, 'new')")
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.pipeline(m.source(t, true), lake.Mirror).Run(ctx) }()
		waits := "select count(*) > 0 from pg_stat_activity, pg_sleep(0.01) where datname = current_database() and wait_event_type = 'Lock'"
		for over := false; !over && answer(t, watching, waits) != "t"; { // servers before 16 look without locks
			select {
			case err := <-done:
				over = true
				done <- err
			default:
			}
		}
		do(t, conn, "commit")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m.catchUp(t)
		sameRows(t, "the table", m.rows(t, "public_made", "id", "v"), []string{"|2|new"})
	})
}

// What is dropped is what the pipeline made, and nothing else.
func TestRemains_OwnAndOthers_OnlyOwnDropped(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, mirroredDDL)
		m := newMirror(t, address)
		holds := func(table string, log freshet.Lane) (bool, error) {
			st, err := m.open(table)
			if err != nil {
				return false, err
			}
			apps, err := lake.ReadProgress(t.Context(), st)
			if errors.Is(err, delta.ErrNoTable) {
				return false, nil
			}
			return len(apps) > 0 && apps[0].Lanes[0].Lane.OriginID == log.OriginID, err
		}
		find := func(o *Options) *Remains {
			t.Helper()
			r, err := FindRemains(t.Context(), address, o, holds)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := find(&m.options); r.Slot+r.Publication != "" || len(r.Others) > 0 {
			t.Errorf("before the first run: got %+v, want nothing", r)
		}
		do(t, conn, "select pg_create_logical_replication_slot("+quoteText(m.options.Slot)+", 'pgoutput')")
		do(t, conn, "create publication "+quoteName(m.options.Slot)+" for table public.keyed")
		r := find(&m.options)
		if r.Slot+r.Publication != "" || len(r.Others) != 2 {
			t.Errorf("of others: got %+v, want nothing to drop", r)
		}
		if err := r.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Others { // that they are there still, their SQL shows
			do(t, conn, f.Fix)
		}
		m.catchUp(t)
		r = find(&m.options)
		if r.Slot != m.options.Slot || r.Publication != m.options.Slot || len(r.Others) > 0 {
			t.Errorf("got %+v, want both to drop", r)
		}
		if err := r.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r = find(&m.options); r.Slot+r.Publication != "" || len(r.Others) > 0 {
			t.Errorf("after dropping: got %+v, want nothing", r)
		}
		m.fails(t, freshet.CodeSlotLost, "no such slot")
	})
}
