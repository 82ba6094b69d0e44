package postgres

import (
	"context"
	"slices"
)

// lookUp asks the catalog for a table, as schema.table; nil: it has it no longer. An outage is waited out.
func (s *Source) lookUp(ctx context.Context, name string) (*catalogTable, error) {
	for {
		conn, err := s.ask(ctx)
		if err == nil {
			var found []*catalogTable
			if found, err = readTables(ctx, conn, []string{name}); err == nil {
				if len(found) == 0 {
					return nil, nil
				}
				return found[0], nil
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := s.outage(ctx, "look for "+name+" in the catalog", err); err != nil {
			return nil, err
		}
	}
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
