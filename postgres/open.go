package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// Open connects, makes publication and slot if they are to be made, and asks where the tables go on. Errors:
// CodeSourceUnreachable, CodeSourceRefused; CodeGap where the log between what a table holds and what the server has is gone;
// those of Downstream.
func (s *Source) Open(ctx context.Context, down freshet.Downstream) error {
	s.down = down
	conn, err := dial(ctx, s.address, true)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if s.server, err = identify(ctx, conn); err != nil {
		return s.ailing(err)
	}
	if s.o.Bounded {
		s.until = s.server.flushed
	}
	tables, err := s.published(ctx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		s.keyed(&t.Table, t.PrimaryKey)
	}
	starts, made, err := s.resume(ctx, conn, tables)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := s.join(ctx, t, starts, !made); err != nil {
			return err
		}
	}
	s.position = s.least()
	s.confirmed.Store(uint64(s.position))
	return nil
}

// keyed notes the key of a table.
func (s *Source) keyed(t *Table, primary []string) {
	key := []string{}
	for _, c := range rowKey(t, primary) {
		key = append(key, columnName(c))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[s.o.Table(t.Schema, t.Name)] = key
}

// published returns the tables that are read, and makes the publication of them if there is none.
func (s *Source) published(ctx context.Context) ([]*catalogTable, error) {
	conn, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.types.load(ctx, conn); err != nil {
		return nil, s.ailing(err)
	}
	if s.members, err = readMembers(ctx, conn, &s.o); err != nil {
		return nil, s.ailing(err)
	}
	all, err := readTables(ctx, conn, s.o.Tables)
	if err != nil {
		return nil, s.ailing(err)
	}
	p, err := readPublication(ctx, conn, s.o.Publication, s.server.version)
	if err != nil {
		return nil, s.ailing(err)
	}
	if p == nil {
		read, err := s.publish(ctx, conn, all)
		if madeByAnother(err) {
			return s.published(ctx)
		}
		return read, err
	}
	if err := s.rejoin(ctx, conn, p, all); err != nil {
		return nil, err
	}
	read := slices.DeleteFunc(all, func(t *catalogTable) bool {
		_, is := p.Tables[t.String()]
		return !is || s.unkeyed(&t.Table, t.PrimaryKey)
	})
	for _, t := range read {
		p.restrict(t)
	}
	return read, s.none(read)
}

// publish makes the publication: of the tables themselves, not of their partitions.
func (s *Source) publish(ctx context.Context, conn *pgconn.PgConn, all []*catalogTable) ([]*catalogTable, error) {
	read, err := s.publishable(all)
	if err != nil {
		return nil, err
	}
	if err := s.none(read); err != nil {
		return nil, err
	}
	if s.server.standby {
		return nil, &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: "publication " + s.o.Publication,
			Msg: "there is no such publication, and a standby answers, which cannot make it",
			Fix: "on the primary: " + makePublication(s.o.Publication, read)}
	}
	if _, err := conn.Exec(ctx, makePublication(s.o.Publication, read)).ReadAll(); err != nil {
		return nil, s.ailing(fmt.Errorf("create publication %s: %w", s.o.Publication, err))
	}
	for _, t := range read {
		t.Columns = slices.DeleteFunc(t.Columns, func(c Column) bool { return c.Generated })
	}
	s.o.Log.Info("made a publication", "publication", s.o.Publication, "tables", len(read))
	return read, nil
}

// publishable are the tables that may be published. One that may not, and was named, is an error; one that a pattern selects is
// left out.
func (s *Source) publishable(all []*catalogTable) (read []*catalogTable, err error) {
	for _, t := range all {
		if t.Partition || t.Kind != 'r' && t.Kind != 'p' {
			continue
		}
		why := t.unfit(&s.o)
		switch {
		case why == "":
			read = append(read, t)
		case named(s.o.Tables, t.Schema, t.Name):
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.String(),
				Msg: "the table is not to be published: " + why,
				Fix: "freshet check has the SQL that mends it; or leave it out of tables"}
		default:
			s.o.Log.Warn("a table is left out", "table", t.String(), "why", why)
		}
	}
	return read, nil
}

// unkeyed reports, and tells, that a table is left out since it has no key and a pattern selects it.
func (s *Source) unkeyed(t *Table, primary []string) bool {
	if !s.o.Keyed || named(s.o.Tables, t.Schema, t.Name) || len(rowKey(t, primary)) > 0 {
		return false
	}
	s.o.Log.Warn("a table is left out", "table", t.String(), "why", "no key")
	return true
}

func (s *Source) none(read []*catalogTable) error {
	if len(read) > 0 {
		return nil
	}
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: "publication " + s.o.Publication,
		Msg: fmt.Sprintf("no table is read: none of %s is published", strings.Join(s.o.Tables, ", ")),
		Fix: "add tables to the publication, or name others"}
}

// resume checks slot and server against what the tables hold, makes the slot if no table holds anything, and returns where
// tables start that hold nothing, and whether the slot was made. Another copy of the pipeline may be at work: so the slot is looked
// at before the tables, and the end of the server's log behind them.
func (s *Source) resume(ctx context.Context, conn *pgconn.PgConn, tables []*catalogTable) (pgoutput.LSN, bool, error) {
	have, err := findSlot(ctx, conn, s.o.Slot, s.server.version)
	if err != nil {
		return 0, false, s.ailing(err)
	}
	if have != nil && have.confirmed == 0 && have.lost() == "" {
		if err := s.outage(ctx, "wait for the slot "+s.o.Slot, errors.New("another connection is making it")); err != nil {
			return 0, false, err
		}
		return s.resume(ctx, conn, tables)
	}
	held := map[string]pgoutput.LSN{}
	for _, t := range tables {
		name := s.o.Table(t.Schema, t.Name)
		p, err := s.down.Resume(ctx, name, []freshet.Lane{s.server.lane()})
		if err != nil {
			return 0, false, err
		}
		if at, ok := p[s.server.lane()]; ok {
			held[name] = pgoutput.LSN(at)
		}
	}
	if s.server, err = identify(ctx, conn); err != nil {
		return 0, false, s.ailing(err)
	}
	moved, err := s.followTimelines(ctx, conn, s.server, held)
	if err == nil {
		err = s.caughtUp(ctx, conn, held)
	}
	if err != nil {
		return 0, false, err
	}
	if have != nil {
		if err := have.check(s.o.Slot, s.server, held); err != nil {
			return 0, false, err
		}
		return have.confirmed, false, s.noteTimelines(ctx, s.server, moved)
	}
	if names := slices.Sorted(maps.Keys(held)); len(names) > 0 {
		if have, err = findSlot(ctx, conn, s.o.Slot, s.server.version); have != nil {
			return s.resume(ctx, conn, tables)
		}
		return 0, false, errors.Join(err, missing(s.o.Slot, names[0], held[names[0]]))
	}
	if s.server.standby {
		s.o.Log.Info("making a replication slot on a standby, which waits for the primary: SELECT pg_log_standby_snapshot() there ends that",
			"slot", s.o.Slot)
	}
	at, err := createSlot(ctx, conn, s.o.Slot, s.server)
	if madeByAnother(err) {
		return s.resume(ctx, conn, tables)
	}
	if err != nil {
		return 0, false, s.ailing(fmt.Errorf("create slot %s: %w", s.o.Slot, err))
	}
	s.o.Log.Info("made a replication slot", "slot", s.o.Slot, "at", at.String())
	return at, true, nil
}

// caughtUp makes sure that the server has all that tables hold, and waits for a standby that has not yet.
func (s *Source) caughtUp(ctx context.Context, conn *pgconn.PgConn, held map[string]pgoutput.LSN) error {
	for {
		err := checkServer(s.server, held)
		var known *freshet.Error
		if err == nil || !errors.As(err, &known) || known.Code != freshet.CodeSourceUnreachable {
			return err
		}
		if err := s.outage(ctx, "wait for the standby", err); err != nil {
			return err
		}
		if s.server, err = identify(ctx, conn); err != nil {
			return s.ailing(err)
		}
	}
}

// appear begins to read a table: where it stands downstream, or else at start, with its history. It is late when the log may
// not tell of all that transactions do which have begun.
func (s *Source) appear(ctx context.Context, t *Table, start pgoutput.LSN, late bool) (*feed, error) {
	schema, name := t.Schema, t.Name
	f := &feed{name: s.o.Table(schema, name), of: [2]string{schema, name}, whose: t.OID, lane: s.server.lane(), level: time.Now()}
	for other, of := range s.feeds {
		if of.name == f.name {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: schema + "." + name,
				Msg: fmt.Sprintf("its rows go to the table %s, as those of %s do", f.name, other),
				Fix: "let {schema} and {table} stand in the name of the target's table"}
		}
	}
	if !s.o.History.Skip {
		s.history.add(f, t.OID)
		s.history.addFills(f, t)
	}
	if err := s.locate(ctx, f, start, late); err != nil {
		return nil, err
	}
	if err := s.stayed(ctx, f, t.OID); err != nil {
		return nil, err
	}
	s.feeds[schema+"."+name] = f
	s.order = s.order[:0]
	for _, table := range slices.Sorted(maps.Keys(s.feeds)) {
		s.order = append(s.order, s.feeds[table])
	}
	return f, nil
}

// other takes that the log tells of a table of the feed's name that is not the one whose history is read: it was made in the
// place of that; or it is one from before, whose last changes are still to come.
func (s *Source) other(ctx context.Context, f *feed, oid uint32) error {
	if !s.o.History.Skip {
		lane := s.history.laneOf(f, oid)
		p, err := s.down.Resume(ctx, f.name, []freshet.Lane{lane})
		if err != nil {
			return err
		}
		if _, former := p[lane]; former {
			return nil
		}
	}
	return errors.Join(s.remade(ctx, f, oid, 0), s.stayed(ctx, f, oid))
}

// remade begins the history of a table that was made under the name of one that is gone: at clearSeq, or at 0 where the log tells
// that the rows of that one are gone.
func (s *Source) remade(ctx context.Context, f *feed, oid uint32, from int64) error {
	f.whose = oid
	for _, l := range f.loads() {
		s.history.remove(l)
	}
	f.read = nil
	if s.o.History.Skip {
		return nil
	}
	s.history.add(f, oid)
	f.load.late = true
	return s.beginLoad(ctx, f.load, from)
}

// beginLoad has the load go on where the table downstream has it, or else begin there.
func (s *Source) beginLoad(ctx context.Context, l *load, from int64) error {
	p, err := s.down.Resume(ctx, l.feed.name, []freshet.Lane{l.lane})
	if err != nil {
		return err
	}
	if _, known := p[l.lane]; !known {
		if p, err = s.down.Start(ctx, l.feed.name, freshet.Progress{l.lane: from}); err != nil {
			return err
		}
	}
	return s.unfold(ctx, l, p[l.lane])
}

// unfold has the load go on behind so many chunks.
func (s *Source) unfold(ctx context.Context, l *load, done int64) error {
	if done == wholeHistory {
		s.history.remove(l)
		return nil
	}
	return l.resume(ctx, s, done)
}

// locate asks where the feed goes on, and records its starts if it has none: in the log and in its history. A table that the log
// was followed of and that has another history was made in the place of one that is gone.
func (s *Source) locate(ctx context.Context, f *feed, start pgoutput.LSN, late bool) error {
	lanes := []freshet.Lane{f.lane}
	for _, l := range f.loads() {
		lanes = append(lanes, l.lane)
	}
	p, err := s.down.Resume(ctx, f.name, lanes)
	if err != nil {
		return err
	}
	starts := freshet.Progress{}
	if _, known := p[f.lane]; !known {
		starts[f.lane] = int64(start)
		if s.o.History.Skip { // it can be loaded later, and is no other table then
			starts[s.history.laneOf(f, f.whose)] = 0
		}
	}
	if l := f.load; l != nil {
		if _, known := p[l.lane]; !known {
			starts[l.lane] = 0
			if len(starts) == 1 {
				starts[l.lane], l.late = clearSeq, true
			}
		}
		l.late, l.resumed = l.late || late && len(starts) == 2, l.resumed || len(starts) < 2
	}
	if _, f.begun = starts[f.lane]; f.begun {
		if err := s.noteTimeline(ctx, s.server, f.name); err != nil {
			return err
		}
	}
	if len(starts) > 0 {
		begun, err := s.down.Start(ctx, f.name, starts)
		if err != nil {
			return err
		}
		maps.Copy(p, begun)
	}
	f.after = p[f.lane]
	s.mu.Lock()
	s.durable[f.name] = f.after
	s.mu.Unlock()
	for _, l := range f.loads() {
		at, known := p[l.lane]
		if !known {
			at = wholeHistory // of a column that rows never lacked
		}
		if err := s.unfold(ctx, l, at); err != nil {
			return err
		}
	}
	return nil
}

// begin begins the stream behind what was taken, waiting out that the server does not answer, or that another connection
// holds the slot.
func (s *Source) begin(ctx context.Context) error {
	for _, f := range s.order {
		if f.skip {
			s.position = min(s.position, pgoutput.LSN(f.after))
		}
	}
	patience := time.Now().Add(s.o.Patience)
	first, waited := !s.streamed, false
	for {
		err := s.connect(ctx)
		waited = waited || slotInUse(err)
		if err == nil && first && waited { // what the copy that had it has done, chunks of histories among that, is known only now
			if err := s.relocate(ctx); err != nil {
				s.hangUp()
				return err
			}
		}
		var known *freshet.Error
		switch {
		case err == nil:
			if s.failures > 0 && s.o.Observer.Recovered != nil {
				s.o.Observer.Recovered("read the log of " + s.server.database)
			}
			for _, f := range s.order {
				f.skip = false
			}
			s.again = false
			s.reached = s.position
			clear(s.byOID)
			return nil
		case slotInUse(err) && time.Now().After(patience):
			return s.busy(ctx, err)
		case errors.As(err, &known) && known.Code != freshet.CodeSourceUnreachable:
			return err
		}
		if err := s.outage(ctx, "read the log of "+s.server.database, err); err != nil {
			return err
		}
	}
}

// least is what all tables have.
func (s *Source) least() pgoutput.LSN {
	least := s.order[0].after
	for _, f := range s.order {
		least = min(least, f.after)
	}
	return pgoutput.LSN(least)
}

// connect makes sure that the server is the one it was and that the slot has what is wanted next, and begins the stream.
func (s *Source) connect(ctx context.Context) error {
	conn, err := dial(ctx, s.address, true)
	if err != nil {
		return err
	}
	err = s.startOn(ctx, conn)
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

func (s *Source) startOn(ctx context.Context, conn *pgconn.PgConn) error {
	now, err := identify(ctx, conn)
	if err != nil {
		return err
	}
	if now.lane() != s.server.lane() {
		return &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: now.database,
			Msg: fmt.Sprintf("another database answers: its identity is %s, and it was %s", now.lane().OriginID,
				s.server.lane().OriginID),
			Fix: "connect to the server as before, or write to other tables"}
	}
	have, err := findSlot(ctx, conn, s.o.Slot, now.version)
	switch {
	case err != nil:
		return err
	case have == nil:
		return missing(s.o.Slot, s.order[0].name, s.position)
	}
	if have.confirmed > s.position && !s.streamed { // another copy of the pipeline had the slot
		if err := s.relocate(ctx); err != nil {
			return err
		}
	}
	at := map[string]pgoutput.LSN{}
	for _, f := range s.order {
		at[f.name] = s.position // more than what it holds may be under way to it
	}
	var moved []string
	if now.timeline != s.server.timeline {
		if moved, err = s.followTimelines(ctx, conn, now, at); err != nil {
			return err
		}
	}
	if err := errors.Join(checkServer(now, at), have.check(s.o.Slot, now, at)); err != nil {
		return err
	}
	if err := s.noteTimelines(ctx, now, moved); err != nil {
		return err
	}
	s.server = now
	s.watching()
	s.stream, err = startStream(ctx, conn, &s.o, s.position, now.version, &s.confirmed)
	s.streamed = s.streamed || err == nil
	return err
}

// relocate asks anew where all tables go on, of which another copy of the pipeline may have moved any. Nothing may be under way.
func (s *Source) relocate(ctx context.Context) error {
	for _, f := range s.order {
		if err := s.locate(ctx, f, s.position, false); err != nil {
			return err
		}
	}
	s.position = s.least()
	s.confirmed.Store(max(s.confirmed.Load(), uint64(s.position)))
	return nil
}

// busy says who holds the slot.
func (s *Source) busy(ctx context.Context, err error) error {
	who := "another connection"
	if conn, e := s.ask(ctx); e == nil {
		who = holder(ctx, conn, s.o.Slot)
	}
	return &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: "slot " + s.o.Slot,
		Msg: "the slot is in use by " + who, Err: err, Fix: "end the other copy of the pipeline, or give this one its own slot"}
}

// ask returns a connection for questions.
func (s *Source) ask(ctx context.Context) (*pgconn.PgConn, error) {
	if s.catalog != nil && !s.catalog.IsClosed() {
		return s.catalog, nil
	}
	var err error
	s.catalog, err = dial(ctx, s.address, false)
	return s.catalog, err
}

// learnTypes loads the types of the database if the table has one that is not known.
func (s *Source) learnTypes(ctx context.Context, t *Table) error {
	for !s.types.knows(t) {
		conn, err := s.ask(ctx)
		if err == nil {
			err = s.types.load(ctx, conn)
		}
		if err == nil {
			break
		}
		if err := s.outage(ctx, "read the types of "+s.server.database, err); err != nil {
			return err
		}
	}
	return nil
}

// learnKey learns the key of a table that has appeared: from the catalog, which has the primary key, or, where that has the
// table no longer, from what the log says. It reports false for one that is left out.
func (s *Source) learnKey(ctx context.Context, rel *pgoutput.Rel) (bool, error) {
	t := &Table{OID: rel.OID, Schema: rel.Schema, Name: rel.Name, Identity: Identity(rel.Identity)}
	for _, c := range rel.Columns {
		t.Columns = append(t.Columns, Column{Name: c.Name, Key: c.Key})
	}
	for {
		conn, err := s.ask(ctx)
		if err == nil {
			var found []*catalogTable
			if found, err = readTables(ctx, conn, []string{rel.Schema + "." + rel.Name}); err == nil {
				var primary []string
				if len(found) > 0 {
					primary = found[0].PrimaryKey
				}
				if s.unkeyed(t, primary) {
					return false, nil
				}
				s.keyed(t, primary)
				return true, nil
			}
		}
		if err := s.outage(ctx, "read the key of "+t.String(), err); err != nil {
			return false, err
		}
	}
}

// ailing gives an error of the server a code.
func (s *Source) ailing(err error) error {
	config, bad := pgconn.ParseConfig(s.address)
	if bad != nil {
		return err
	}
	return refused(place(config), err)
}

// relationOf is a table as the log would describe it.
func relationOf(t *Table) *pgoutput.Rel {
	rel := &pgoutput.Rel{OID: t.OID, Schema: t.Schema, Name: t.Name, Identity: byte(t.Identity)}
	for _, c := range t.Columns {
		rel.Columns = append(rel.Columns, pgoutput.Column{Key: c.Key, Name: c.Name, Type: c.Type, Modifier: c.Modifier})
	}
	return rel
}
