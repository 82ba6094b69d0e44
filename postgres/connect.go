package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// begin begins the stream behind what was taken, waiting out that the server does not answer, or that another connection
// holds the slot.
func (s *Source) begin(ctx context.Context) error {
	for _, f := range s.order {
		if f.skip && pgoutput.LSN(f.after) < s.position {
			s.emit() // what waits of other tables would come a second time
			s.position = pgoutput.LSN(f.after)
		}
	}
	patience := time.Now().Add(s.o.Patience)
	for {
		err := s.connect(ctx)
		s.contested = s.contested || slotInUse(err)
		if err == nil && s.contested {
			if err := s.uncontested(ctx); err != nil {
				return err
			}
		}
		var known *freshet.Error
		switch {
		case err == nil && s.stream == nil:
			continue
		case err == nil:
			if s.failures > 0 && s.o.Observer.Recovered != nil {
				s.o.Observer.Recovered("read the log of " + s.server.database)
			}
			s.uneven = 0
			for _, f := range s.order {
				f.skip, f.anew = false, f.anew || f.skip
				if f.after > int64(s.position) {
					s.uneven = max(s.uneven, f.after)
				}
			}
			s.again = false
			s.reached, s.vouched = s.position, s.position
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
	if have.confirmed > s.position { // another copy of the pipeline had the slot
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
	return err
}

// uncontested takes that the slot, which another connection had, is ours: what a copy of the pipeline that had it has done, chunks of
// histories among that, is known only now. Where something was read before and not returned the stream is hung up, since that comes again.
func (s *Source) uncontested(ctx context.Context) error {
	from := s.position
	err := s.relocate(ctx)
	s.contested = err != nil
	if err != nil || s.position < from {
		s.hangUp()
	}
	return err
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
