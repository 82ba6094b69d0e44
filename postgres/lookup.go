package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// unseenFor is how long the catalog is waited for, which may show a transaction a while after the log has told of it: where commits wait
// for a standby, that long.
const unseenFor = time.Minute

// awaitCatalog waits until the catalog shows what the transaction did that is being taken: the log tells of it a moment before others see it.
func (s *Source) awaitCatalog(ctx context.Context, conn *pgconn.PgConn) error {
	if s.current.transaction == nil {
		return nil
	}
	for began := time.Now(); time.Since(began) < unseenFor; {
		found, err := query(ctx, conn, "select txid_current_snapshot()")
		if err != nil || len(found) == 0 {
			return err
		}
		v, err := parseVisibility(found[0][0])
		if err != nil || v.sight(s.current.transaction) != unseen {
			return err
		}
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// lookUp asks the catalog for a table, as schema.table; nil: it has it no longer. An outage is waited out.
func (s *Source) lookUp(ctx context.Context, name string) (*catalogTable, error) {
	var found []*catalogTable
	err := s.asking(ctx, "look for "+name+" in the catalog", func(conn *pgconn.PgConn) (err error) {
		if err = s.awaitCatalog(ctx, conn); err == nil {
			found, err = readTables(ctx, conn, []string{name})
		}
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// learnDimensions learns with how many dimensions arrays are declared that the table downstream has not yet: the log does not say it.
func (s *Source) learnDimensions(ctx context.Context, f *feed, t *Table) error {
	known, err := s.known(ctx, f)
	if err != nil {
		return err
	}
	isNew := func(c Column) bool {
		p, _ := s.types.resolve(c.Type, c.Modifier)
		return p.kind == kindArray && (known == nil || indexOf(known, columnName(c.Name)) < 0)
	}
	if !slices.ContainsFunc(t.Columns, isNew) {
		return nil
	}
	of, err := s.lookUp(ctx, f.sourceName())
	if of == nil || err != nil {
		return err
	}
	for i := range t.Columns {
		at := slices.IndexFunc(of.Columns, func(c Column) bool { return c.Name == t.Columns[i].Name && c.Type == t.Columns[i].Type })
		if at >= 0 {
			t.Columns[i].Dimensions = of.Columns[at].Dimensions
		}
	}
	return nil
}
