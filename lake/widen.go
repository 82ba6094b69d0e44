package lake

import (
	"context"
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// typeWidening is the table property that lets a column have files of a narrower type. Spec: "Type Widening".
const typeWidening = "delta.enableTypeWidening"

// Widen gives columns the types that they have in schema, where every value of the present one is one of that. The first time
// raises the table: readers must know the feature typeWidening. What is written and not committed is read again.
func (a *Target) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	t, err := a.table(table)
	if err != nil {
		return err
	}
	return t.unlessSlow(ctx, "widen its columns", func(ctx context.Context) error { return t.widen(ctx, schema) })
}

func (t *table) widen(ctx context.Context, schema *arrow.Schema) error {
	wanted, err := delta.SchemaFromArrow(schema)
	if err != nil {
		return explain(t.name, err)
	}
	snap, err := t.look(ctx)
	if err != nil || snap == nil {
		return err
	}
	for i := range wanted.Fields {
		f, _ := snap.Schema().Lookup(wanted.Fields[i].Name)
		if f == nil || !delta.Widens(f.Type, wanted.Fields[i].Type) {
			continue
		}
		if !strings.EqualFold(snap.Property(typeWidening), "true") {
			if _, err := t.delta.SetProperties(ctx, map[string]string{typeWidening: "true"},
				&delta.AlterOptions{Upgrade: true}); err != nil {
				return explain(t.name, err)
			}
		}
		if _, err := t.delta.ChangeColumn(ctx, f.Name, delta.ColumnChange{Type: wanted.Fields[i].Type}, nil); err != nil {
			return explain(t.name, err)
		}
		if snap, err = t.look(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Widen widens the columns of each table, first those of the table itself, whose types rows have: ensure does the rest where a process
// ends in between.
func (g *Group) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	var faults []error
	for i := range g.parts {
		name := table
		if i > 0 {
			name = g.parts[i].name(table)
		}
		faults = append(faults, g.parts[i].Target.Widen(ctx, name, schema))
	}
	return errors.Join(faults...)
}

// ensure makes the table beside another one for rows of that, or checks it. Where its columns are narrower they are widened: those of the
// other one were, and nothing more was done.
func (p *groupPart) ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	err := p.Target.Ensure(ctx, table, schema)
	var misfit *freshet.Error
	if !errors.As(err, &misfit) || misfit.Code != freshet.CodeSchemaMismatch {
		return err
	}
	if err := p.Target.Widen(ctx, table, schema); err != nil {
		return err
	}
	return p.Target.Ensure(ctx, table, schema)
}
