package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	if err := s.read(); err != nil {
		return err
	}
	s.opened = true
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
	held, hold := map[string]pgoutput.LSN{}, map[string]pgoutput.LSN{}
	for _, t := range tables {
		name := s.o.Table(t.Schema, t.Name)
		p, err := s.down.Resume(ctx, name, []freshet.Lane{s.server.lane()})
		if err != nil {
			return 0, false, err
		}
		at, ok := p[s.server.lane()]
		if !ok {
			continue
		}
		hold[name] = pgoutput.LSN(at)
		was, is, err := s.member(ctx, name, t.OID)
		if err != nil {
			return 0, false, err
		}
		if was == is { // else the slot went on without it, and stayed says what becomes of it
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
	if names := slices.Sorted(maps.Keys(hold)); len(names) > 0 {
		if have, err = findSlot(ctx, conn, s.o.Slot, s.server.version); have != nil {
			return s.resume(ctx, conn, tables)
		}
		return 0, false, errors.Join(err, missing(s.o.Slot, names[0], hold[names[0]]))
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
