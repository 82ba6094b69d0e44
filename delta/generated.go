package delta

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// generatedColumn is a column whose values follow from others of its row. Spec: "Generated Columns".
type generatedColumn struct {
	*rule
	field  Field
	column int
	same   *expr.Bound // of what was given and what was computed
}

// Generated tells whether the table computes the column from others of its row. Spec: "Generated Columns".
func (f *Field) Generated() bool {
	_, ok := f.metaText(metaGeneration)
	return ok
}

// generatedColumns are those of the table, in the order of its columns.
func generatedColumns(p *Protocol, schema *Schema) (all []*generatedColumn, err error) {
	if !p.Supports("generatedColumns") {
		return nil, nil
	}
	for i := range schema.Fields {
		f := &schema.Fields[i]
		text, ok := f.metaText(metaGeneration)
		if !ok {
			continue
		}
		g := &generatedColumn{field: *f, column: i}
		what := fmt.Sprintf("generated column %q", f.Name)
		if g.rule, err = newRule(schema, what, text, f.Type); err != nil {
			return nil, err
		}
		if g.same, err = sameness(ArrowType(f.Type)); err != nil {
			return nil, &UnsupportedError{Feature: fmt.Sprintf("the %s, at %v", what, err), Write: true}
		}
		all = append(all, g)
	}
	return all, nil
}

// sameness is the comparison of two columns of a type in which nulls are equal.
func sameness(t arrow.DataType) (*expr.Bound, error) {
	return expr.Compare("<=>", expr.Name("given"), expr.Name("wanted")).BindCondition(pairOf(t))
}

func pairOf(t arrow.DataType) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "given", Type: t, Nullable: true},
		{Name: "wanted", Type: t, Nullable: true}}, nil)
}

// complete computes the column if it is missing, and checks it if it was given. made is the caller's, nil when the
// column was given. Errors: *ConstraintError.
func (g *generatedColumn) complete(ctx context.Context, arrays []arrow.Array, n int) (made arrow.Array, err error) {
	wanted, err := g.compute(ctx, arrays, n)
	if err != nil {
		return nil, err
	}
	given := arrays[g.column]
	if given == nil {
		return wanted, nil
	}
	defer wanted.Release()
	given, err = conformInput(&g.field, given, n)
	if err != nil {
		return nil, err
	}
	defer given.Release()
	pair := array.NewRecordBatch(pairOf(wanted.DataType()), []arrow.Array{given, wanted}, int64(n))
	defer pair.Release()
	rows, err := g.same.Rows(ctx, pair)
	if err != nil {
		return nil, err
	}
	next := 0
	if len(rows) > 0 && rows[0].From == 0 {
		next = rows[0].To
	}
	if next == n {
		return nil, nil
	}
	in, err := g.input(arrays, n)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	fault := g.fault(in, next, nil)
	fault.Values = append([]ColumnValue{valueOf(g.field.Name, given, next, shownValue)}, fault.Values...)
	fault.Err = fmt.Errorf("wanted %s = %s", g.field.Name, valueOf("", wanted, next, shownValue).Value)
	return nil, fault
}
