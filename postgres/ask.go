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
	of, err := s.lookUp(ctx, t.String())
	if err != nil {
		return false, err
	}
	var primary []string
	if of != nil {
		primary, t.Loose = of.PrimaryKey, of.Loose
	}
	if of != nil && of.Partition {
		p, err := readPublication(ctx, s.catalog, s.o.Publication, s.server.version)
		if err == nil && p.viaRoot(t) {
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
