package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// An update that moves a row to another key, and leaves large values out, leaves them to the row before. While rows of the table are
// still read that row need not be downstream, or not have a column that was added:
//
//	rows read already             │ rows still to be read
//	… 50 ◀── update of the key ───│── 90: nothing downstream has its large value, and none of the rows that are read will
//
// So the value is asked for. It is the present one, which what follows in the log makes of it anyway.

// complete takes from the server what an update of the key did not send, if rows of the table are still read. Of a row that has gone
// since it stays as it is: what follows in the log says so.
func (s *Source) complete(ctx context.Context, f *feed, m *pgoutput.Message) error {
	if m.Kind != pgoutput.Update || !m.OldKey || len(f.loads()) == 0 || !slices.ContainsFunc(m.New, leftOut) {
		return nil
	}
	r := &mend{whose: f.oid, mendRequest: mendRequest{Table: f.sourceName(), Keys: []MendKey{{}}}}
	for i, c := range f.table.Columns {
		if c.Key && i < len(m.New) && m.New[i].Kind == pgoutput.Text {
			r.Columns = append(r.Columns, c.Name)
			r.Keys[0].Values = append(r.Keys[0].Values, string(m.New[i].Data))
		}
	}
	if len(r.Columns) == 0 {
		return nil
	}
	err := s.asking(ctx, "read a row of "+f.sourceName(), func(conn *pgconn.PgConn) error { return r.readRow(ctx, conn) })
	if err != nil {
		return err
	}
	for _, row := range r.rows {
		for i := range m.New {
			at := slices.Index(r.names, f.table.Columns[i].Name)
			if row.values == nil || at < 0 || !leftOut(m.New[i]) {
				continue
			}
			m.New[i] = pgoutput.Value{Kind: pgoutput.Text, Data: row.values[at]}
			if row.values[at] == nil {
				m.New[i].Kind = pgoutput.Null
			}
		}
	}
	return nil
}

func leftOut(v pgoutput.Value) bool { return v.Kind == pgoutput.Unchanged }

// readRow reads the one row that is asked for; none of a table that has gone.
func (m *mend) readRow(ctx context.Context, conn *pgconn.PgConn) error {
	found, err := readTables(ctx, conn, []string{m.Table})
	if err != nil || len(found) != 1 || found[0].OID != m.whose {
		return err
	}
	m.table, m.names, m.rows = found[0], nil, nil
	return m.read(ctx, conn)
}
