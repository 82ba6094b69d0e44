package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// ask returns a connection for questions.
func (s *Source) ask(ctx context.Context) (*pgconn.PgConn, error) {
	if s.catalog != nil && !s.catalog.IsClosed() {
		return s.catalog, nil
	}
	var err error
	s.catalog, err = dial(ctx, s.address, false)
	return s.catalog, err
}

// asking has look ask the catalog until it has an answer: an outage is waited out, and so is that tables go while the server looks.
func (s *Source) asking(ctx context.Context, what string, look func(conn *pgconn.PgConn) error) error {
	for {
		conn, err := s.ask(ctx)
		if err == nil {
			if err = look(conn); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.outage(ctx, what, err); err != nil {
			return err
		}
	}
}

// learnTypes loads the types of the database if the table has one that is not known.
func (s *Source) learnTypes(ctx context.Context, t *Table) error {
	if s.types.knows(t) {
		return nil
	}
	return s.asking(ctx, "read the types of "+s.server.database, func(conn *pgconn.PgConn) error { return s.types.load(ctx, conn) })
}

// publication is what the publication says now; nil: there is none.
func (s *Source) publication(ctx context.Context) (p *publication, err error) {
	err = s.asking(ctx, "read the publication "+s.o.Publication, func(conn *pgconn.PgConn) (err error) {
		p, err = readPublication(ctx, conn, s.o.Publication, s.server.version)
		return err
	})
	return p, err
}

// learnKey learns the key of a table that has appeared: from the catalog, which has the primary key, or, where that has the
// table no longer, from what the log says. It reports false for one that is left out.
func (s *Source) learnKey(ctx context.Context, rel *pgoutput.Rel) (bool, error) {
	t := &Table{OID: rel.OID, Schema: rel.Schema, Name: rel.Name, Identity: Identity(rel.Identity)}
	for _, c := range rel.Columns {
		t.Columns = append(t.Columns, Column{Name: c.Name, Key: c.Key})
	}
	of, err := s.lookUp(ctx, t.String())
	if err != nil {
		return false, err
	}
	var primary []string
	if of != nil {
		primary, t.Loose = of.PrimaryKey, of.Loose
	}
	if of != nil && of.Partition {
		p, err := s.publication(ctx)
		if err != nil {
			return false, err
		}
		if p.viaRoot(t) {
			s.keyed(t, primary)
			held, err := s.down.Resume(ctx, s.o.Table(t.Schema, t.Name), []freshet.Lane{s.server.lane()})
			if _, was := held[s.server.lane()]; err != nil || !was { // it never was a table of its own
				return false, err
			}
		}
	}
	if out, err := s.unkeyed(ctx, t, primary); out || err != nil {
		return false, err
	}
	s.keyed(t, primary)
	return true, nil
}

// ailing gives an error of the server a code.
func (s *Source) ailing(err error) error {
	config, bad := pgconn.ParseConfig(s.address)
	if bad != nil {
		return err
	}
	return refused(place(config), err)
}
