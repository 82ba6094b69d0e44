package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// catalogTries is how often the catalog is read, at most, whose tables are others before it was read to its end.
const catalogTries = 20

// errMoved says that a table was dropped, or made anew, while the catalog was read.
var errMoved = errors.New("tables were dropped or made while the catalog was read")

// moved reports whether the catalog is to be read anew: what it named is gone, or was made by another copy of the pipeline. Source:
// "PostgreSQL Error Codes", undefined_table, and internal_error, which is how a server says that a table is gone that it was about to open.
func moved(err error) bool {
	var said *pgconn.PgError
	return errors.Is(err, errMoved) || madeByAnother(err) || errors.As(err, &said) && (said.Code == "42P01" || said.Code == "XX000")
}

// published returns the tables that are read, and makes the publication of them if there is none. Tables come and go meanwhile.
func (s *Source) published(ctx context.Context) (read []*catalogTable, err error) {
	for range catalogTries {
		if read, err = s.publishedNow(ctx); !moved(err) {
			break
		}
	}
	return read, err
}

func (s *Source) publishedNow(ctx context.Context) ([]*catalogTable, error) {
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
		return s.publish(ctx, conn, all)
	}
	if err := s.rejoin(ctx, conn, p, all); err != nil {
		return nil, err
	}
	var read []*catalogTable
	for _, t := range all {
		if _, is := p.Tables[t.String()]; !is {
			continue
		}
		out, err := s.unkeyed(ctx, &t.Table, t.PrimaryKey)
		if err != nil {
			return nil, err
		}
		if !out {
			p.restrict(t)
			read = append(read, t)
		}
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
			Fix: "on the primary: " + makePublication(s.o.Publication, read, s.server.version)}
	}
	if _, err := conn.Exec(ctx, makePublication(s.o.Publication, read, s.server.version)).ReadAll(); err != nil {
		return nil, s.ailing(fmt.Errorf("create publication %s: %w", s.o.Publication, err))
	}
	for _, t := range read {
		t.Columns = slices.DeleteFunc(t.Columns, func(c Column) bool { return c.Virtual || c.Generated && s.server.version < generates })
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
			fix := "freshet check has the SQL that mends it;"
			if s.o.Alike && t.Persistence == 'p' && len(t.rowKey()) == 0 {
				fix = fullIdentity(&t.Table)
			}
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.String(),
				Msg: "the table is not to be published: " + why, Fix: fix + " or leave it out of tables"}
		default:
			s.o.Log.Warn("a table is left out", "table", t.String(), "why", why)
		}
	}
	return read, nil
}

// unkeyed reports, and tells, that a table is left out since it has no key that it needs and a pattern selects it. Errors: CodeBadValue
// for one that lacks REPLICA IDENTITY FULL alone and is named, or was read before.
func (s *Source) unkeyed(ctx context.Context, t *Table, primary []string) (bool, error) {
	why := keyless(&s.o, t, primary)
	if why == "" {
		return false, nil
	}
	if !s.o.Alike {
		if named(s.o.Tables, t.Schema, t.Name) {
			return false, nil // Downstream refuses it
		}
		s.o.Log.Warn("a table is left out", "table", t.String(), "why", why)
		return true, nil
	}
	s.keyed(t, primary)
	held, err := s.down.Resume(ctx, s.o.Table(t.Schema, t.Name), []freshet.Lane{s.server.lane()})
	if err != nil {
		return false, err
	}
	if _, read := held[s.server.lane()]; read || named(s.o.Tables, t.Schema, t.Name) {
		return false, partialIdentity(t)
	}
	s.o.Log.Warn("a table is left out", "table", t.String(), "why", why, "fix", fullIdentity(t))
	return true, nil
}

// partialIdentity says that a table without a key does not tell whole rows, and what mends that.
func partialIdentity(t *Table) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.String(), Msg: "the table has " + needsFull,
		Fix: fullIdentity(t) + " or leave it out of tables"}
}

// fullIdentity is the SQL that has the log tell whole rows: partitions do not follow their table in that.
func fullIdentity(t *Table) string {
	var names []string
	if t.Identity != IdentityFull {
		names = append(names, t.quoted())
	}
	var sql []string
	for _, name := range append(names, t.Loose...) {
		sql = append(sql, "ALTER TABLE "+name+" REPLICA IDENTITY FULL;")
	}
	return strings.Join(sql, " ")
}

func (s *Source) none(read []*catalogTable) error {
	if len(read) > 0 {
		return nil
	}
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: "publication " + s.o.Publication,
		Msg: fmt.Sprintf("no table is read: none of %s is published", strings.Join(s.o.Tables, ", ")),
		Fix: "add tables to the publication, or name others"}
}
