package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// notice is what became of the tables that are read, as the publication says: the log tells of a table only with its first change.
type notice struct {
	come     []*catalogTable // published now
	gone     []string        // published no longer, or were not for a while, although they are there: "public.orders"
	attached []string        // were tables of their own, and are partitions now, of one that is published as a whole
}

// member is a table of the database, and whether the publication has it.
type member struct {
	schema    string
	oid       string
	published bool
	since     string // what the publication has it by; "": not known
	partition bool   // of another table
}

// memberSince is what a publication has a table by: the object that was made when it was added, itself or its schema, or the
// publication where that is of all tables. One that was taken out and put back has another.
const memberSince = `coalesce(
  (select r.oid from pg_catalog.pg_publication_rel r where r.prpubid = b.oid and r.prrelid = c.oid),
  (select n.oid from pg_catalog.pg_publication_namespace n where n.pnpubid = b.oid and n.pnnspid = c.relnamespace),
  case when b.puballtables then b.oid end)`

// sinceOf is memberSince for a server's version.
func sinceOf(version int) string {
	if version >= 150000 {
		return memberSince
	}
	return strings.Replace(memberSince, "(select n.oid from pg_catalog.pg_publication_namespace n where n.pnpubid = b.oid and "+
		"n.pnnspid = c.relnamespace)", "null::oid", 1)
}

// readMembers returns the tables that the patterns select and that a publication may have, by their names.
func readMembers(ctx context.Context, conn *pgconn.PgConn, o *Options) (map[string]member, error) {
	found, err := query(ctx, conn, `select n.nspname, c.relname, c.oid, p.tablename is not null, `+sinceOf(serverVersion(conn))+`, c.relispartition
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join pg_catalog.pg_publication b on b.pubname = $1
  left join pg_catalog.pg_publication_tables p on p.pubname = $1 and p.schemaname = n.nspname and p.tablename = c.relname
where c.relkind in ('r', 'p') and (p.tablename is not null or c.relpersistence = 'p'
  and n.nspname not like 'pg\_%' and n.nspname <> 'information_schema')`, o.Publication)
	if err != nil {
		return nil, fmt.Errorf("read the tables of publication %s: %w", o.Publication, err)
	}
	all := map[string]member{}
	for _, r := range found {
		if schema, name := string(r[0]), string(r[1]); selected(o.Tables, schema, name) {
			all[schema+"."+name] = member{schema, string(r[2]), string(r[3]) == "t", string(r[4]), string(r[5]) == "t"}
		}
	}
	return all, nil
}

// look compares the tables with what they were when it was asked last, and adds those that were made since to a publication that
// a source has made; ok is false when nothing is new.
func (w *watch) look(ctx context.Context) (n notice, ok bool, err error) {
	now, err := readMembers(ctx, w.conn, w.o)
	if err != nil {
		return n, false, err
	}
	before := w.members
	w.members = now
	if before == nil {
		return n, false, nil
	}
	var fresh []string
	for name, m := range now {
		was, known := before[name]
		known = known && (!was.partition || m.partition) // one that was detached is new
		switch {
		case m.partition && !m.published:
			if known && was.oid == m.oid && was.published {
				n.attached = append(n.attached, name)
			}
		case known && was.oid == m.oid && was.published && (!m.published || was.since != "" && m.since != was.since):
			n.gone = append(n.gone, name)
		case m.published && !(known && was.published), !known || was.oid != m.oid:
			fresh = append(fresh, name)
		}
	}
	if n.gone, err = w.stillThere(ctx, n.gone); err != nil {
		w.members = before // it is tried again
		return n, false, err
	}
	slices.Sort(n.gone)
	slices.Sort(n.attached)
	if len(fresh) > 0 {
		if n.come, err = w.take(ctx, fresh); err != nil {
			w.members = before // it is tried again
			return n, false, err
		}
	}
	return n, len(n.come)+len(n.gone)+len(n.attached) > 0, nil
}

// stillThere leaves those of the tables that are there still. The server looks at its catalog bit by bit: one that is dropped just then is a
// table that the publication has no longer.
func (w *watch) stillThere(ctx context.Context, gone []string) ([]string, error) {
	if len(gone) == 0 {
		return nil, nil
	}
	again, err := readMembers(ctx, w.conn, w.o)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(gone, func(name string) bool { return again[name].oid != w.members[name].oid }), nil
}

// take returns those of the tables that are published, or can be.
func (w *watch) take(ctx context.Context, names []string) ([]*catalogTable, error) {
	all, err := readTables(ctx, w.conn, w.o.Tables)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t *catalogTable) bool { return !slices.Contains(names, t.String()) })
	p, err := readPublication(ctx, w.conn, w.o.Publication, w.version)
	if err != nil || p == nil {
		return nil, err
	}
	if err := p.extend(ctx, w.conn, w.o, all); err != nil {
		return nil, err
	}
	var come []*catalogTable
	for _, t := range all {
		if _, in := p.Tables[t.String()]; in && t.keyless(w.o) == "" {
			p.restrict(t)
			come = append(come, t)
			w.members[t.String()] = member{schema: t.Schema, oid: fmt.Sprint(t.OID), published: true}
		}
	}
	return come, nil
}

// extend adds those of the tables to the publication that it should have, if a source has made it. Of others it says so, if they were
// named.
func (p *publication) extend(ctx context.Context, conn *pgconn.PgConn, o *Options, tables []*catalogTable) error {
	for _, t := range tables {
		_, in := p.Tables[t.String()]
		if in || t.Partition || t.Kind != 'r' && t.Kind != 'p' || !p.Ours && (t.Kind == 'p' || !named(o.Tables, t.Schema, t.Name)) {
			continue
		}
		sql := "ALTER PUBLICATION " + quoteName(p.Name) + " ADD TABLE " + t.quoted()
		why := t.unfit(o)
		if why == "" && p.unsaid(t) {
			why = "REPLICA IDENTITY FULL, and generated columns that the publication has not: ALTER PUBLICATION " + quoteName(p.Name) +
				" SET (publish_generated_columns = stored)"
		}
		if why == "" && !p.Ours {
			why = "the publication has it not: " + sql
		}
		if why != "" {
			o.Log.Warn("a table is left out", "table", t.String(), "why", why)
			continue
		}
		_, err := conn.Exec(ctx, sql).ReadAll()
		var said *pgconn.PgError
		switch {
		case errors.As(err, &said) && said.Code == "42501":
			o.Log.Warn("a table is left out", "table", t.String(), "why", "our role must not add it to the publication: "+sql)
		case errors.As(err, &said) && said.Code == "42P01": // undefined_table: it was dropped meanwhile
		case madeByAnother(err): // another copy of the pipeline has added it
			p.Tables[t.String()] = published{}
		case errors.As(err, &said) && said.Code == readOnly:
			o.Log.Warn("a table is left out", "table", t.String(), "why", "a standby cannot add it to the publication; on the primary: "+sql)
		case err != nil:
			return fmt.Errorf("%s: %w", sql, err)
		default:
			p.Tables[t.String()] = published{}
			o.Log.Info("added a table to the publication", "publication", p.Name, "table", t.String())
		}
	}
	return nil
}

// noticed takes what the watch has found, between two transactions. After an error it may be called again.
func (s *Source) noticed(ctx context.Context, n *notice) error {
	for _, name := range n.gone {
		if s.feeds[name] != nil {
			return leftPublication(s.o.Publication, name)
		}
	}
	for _, name := range n.attached {
		if f := s.feeds[name]; f != nil {
			if err := s.attached(ctx, f.name, name, f.whose); err != nil {
				return err
			}
		}
	}
	for _, t := range n.come {
		if f := s.feeds[t.String()]; f != nil {
			if f.whose == t.OID {
				continue
			}
			s.o.Log.Warn("the table was dropped and made anew", "table", t.String())
			if err := s.remade(ctx, f, t.OID, clearSeq); err != nil {
				return err
			}
			continue
		}
		if s.outside[t.String()] != nil {
			continue
		}
		s.keyed(&t.Table, t.PrimaryKey)
		if err := s.join(ctx, t, s.position, true); err != nil {
			return err
		}
	}
	s.notice = nil
	return nil
}

// attached takes that a table became a partition of one that is published as a whole: its rows are that one's from then on. So what it became
// downstream stays as it is; should it be a table of its own again, the publication has not had it all the time.
func (s *Source) attached(ctx context.Context, table, source string, oid uint32) error {
	s.o.Log.Warn("the table became a partition: its rows are those of the table that it is of from now on, and what was made of it stays as it is. "+
		"The rows that it had come with `freshet pipeline resync` of that", "table", source)
	mark := memberMark(oid)
	if err := s.down.Unmark(ctx, table, mark, mark); err != nil {
		return err
	}
	_, err := s.down.Bookmark(ctx, table, mark, []byte("a partition"))
	return err
}

// memberMark is the bookmark of what the publication has a table by.
func memberMark(oid uint32) string { return "member/" + strconv.FormatUint(uint64(oid), 10) }

// join begins to read a table that the catalog tells of.
func (s *Source) join(ctx context.Context, t *catalogTable, start pgoutput.LSN, late bool) error {
	f, err := s.appear(ctx, &t.Table, start, late)
	if err != nil {
		return err
	}
	if err := s.setAside(ctx, f, f.describe(ctx, s, relationOf(&t.Table), false)); err != nil {
		return err
	}
	f.table = nil // until the log describes it: it may tell of another moment
	return nil
}

// readOnly is the code of a statement that a standby does not take. Source: "PostgreSQL Error Codes".
const readOnly = "25006"

func leftPublication(publication, table string) error {
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: "publication " + publication,
		Msg: fmt.Sprintf("it has the table %s no longer, or had it not for a while: what happened to that then was not sent", table),
		Fix: "leave the table out of tables; or put it back, and load it again: what happened in between is lost"}
}

// stayed makes sure that the publication has had the table all the time since it was read first, of which a bookmark tells. Where it
// has not, a table of which nothing is loaded yet begins anew.
func (s *Source) stayed(ctx context.Context, f *feed, oid uint32) error {
	was, is, err := s.member(ctx, f.name, oid)
	if err != nil || was == is {
		return err
	}
	l := f.load
	if !f.begun && (l == nil || l.done > 0) {
		return leftPublication(s.o.Publication, f.sourceName())
	}
	if l != nil {
		l.late = true
	}
	mark := memberMark(oid)
	if err := s.down.Unmark(ctx, f.name, mark, mark); err != nil {
		return err
	}
	_, err = s.down.Bookmark(ctx, f.name, mark, []byte(is))
	return err
}

// member is what the publication had the table by when it was read first, and what it has it by: another value where it had it not for
// a while. Both are "" where that cannot be told.
func (s *Source) member(ctx context.Context, table string, oid uint32) (was, is string, err error) {
	is, err = s.memberSince(ctx, strconv.FormatUint(uint64(oid), 10))
	if err != nil || is == "" {
		return "", "", err
	}
	kept, err := s.down.Bookmark(ctx, table, memberMark(oid), []byte(is))
	return string(kept), is, err
}

// memberSince is what the publication has a table by; "": it has it not.
func (s *Source) memberSince(ctx context.Context, oid string) (since string, err error) {
	if since, known := s.since[oid]; known {
		return since, nil
	}
	err = s.asking(ctx, "read the publication "+s.o.Publication, func(conn *pgconn.PgConn) error {
		found, err := query(ctx, conn, "select c.oid, "+sinceOf(s.server.version)+` from pg_catalog.pg_publication_tables p
  join pg_catalog.pg_publication b on b.pubname = p.pubname join pg_catalog.pg_class c on c.relname = p.tablename
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = p.schemaname where p.pubname = $1`, s.o.Publication)
		if err != nil {
			return err
		}
		s.since = map[string]string{}
		for _, r := range found {
			s.since[string(r[0])] = string(r[1])
		}
		return nil
	})
	return s.since[oid], err
}

// rejoin adds tables that were made while nothing ran to a publication that the source has made. One that was read before was taken
// out of it: that is a gap.
func (s *Source) rejoin(ctx context.Context, conn *pgconn.PgConn, p *publication, all []*catalogTable) error {
	for _, t := range all {
		if _, in := p.Tables[t.String()]; in || !p.Ours || t.unfit(&s.o) != "" {
			continue
		}
		s.keyed(&t.Table, t.PrimaryKey)
		log, rows := s.server.lane(), s.server.lane()
		rows.Name = fmt.Sprint(t.OID)
		held, err := s.down.Resume(ctx, s.o.Table(t.Schema, t.Name), []freshet.Lane{log, rows})
		if err != nil {
			return err
		}
		_, read := held[log]
		if t.Partition {
			if read {
				if err := s.attached(ctx, s.o.Table(t.Schema, t.Name), t.String(), t.OID); err != nil {
					return err
				}
			}
			continue
		}
		if _, same := held[rows]; !read || !same && !s.o.History.Skip {
			continue
		}
		now, err := readTables(ctx, conn, []string{t.String()})
		switch {
		case err != nil:
			return s.ailing(err)
		case len(now) == 0 || now[0].OID != t.OID: // it was dropped before the publication was read
			return errMoved
		}
		return leftPublication(p.Name, t.String())
	}
	if err := p.extend(ctx, conn, &s.o, all); err != nil {
		return s.ailing(err)
	}
	return nil
}
