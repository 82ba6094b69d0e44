package delta

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// Assignment gives a column, or a field within one, a new value.
type Assignment struct {
	// Column is the column's name, or the path of a field of a struct, its parts joined by dots; a part that holds a
	// dot stands between backticks, which are doubled inside. Case is ignored.
	Column string
	// Value is computed from the row as it was before all assignments. It is cast to the column's type where that loses
	// nothing silently: numbers that do not fit fail; text becomes another type only if it is a constant.
	Value *expr.Expr
	// Default, in place of Value, gives a column what it has where an insert leaves it out: its default, else null; a
	// generated column is computed, and a row that is inserted gets the next value of an identity column.
	Default bool
}

// assigned is the new value of a column or field: an expression, or, where only fields of it are assigned, its fields.
type assigned struct {
	field  *Field
	value  *expr.Expr // nil: fields
	bound  *expr.Bound
	fields []assigned
	left   bool // to the writer, which gives it its default
}

// assigner makes the new form of rows.
type assigner struct {
	columns []assigned // of the table, in order, without those that the writer computes
	out     *arrow.Schema
}

// assignRules say how expressions and columns of the table are found in the rows that are at hand.
type assignRules struct {
	schema *Schema                                    // of the table
	input  *arrow.Schema                              // of the rows at hand, whole
	old    func(path ...string) *expr.Expr            // the value that the row has; nil: there is none
	own    func(*expr.Expr) (*expr.Expr, error)       // resolves the names of an expression
	absent func(f *Field) (value *expr.Expr, ok bool) // the value of a column that is not assigned; !ok: left to the writer
}

// newAssigner checks the assignments. Errors: a column that is not there or is assigned twice, a type that does not
// fit, *expr.Error.
func newAssigner(set []Assignment, rules *assignRules) (*assigner, error) {
	tree := make([]assigned, len(rules.schema.Fields))
	for i := range tree {
		tree[i].field = &rules.schema.Fields[i]
	}
	for _, s := range set {
		var value *expr.Expr
		if s.Default != (s.Value == nil) {
			return nil, fmt.Errorf("set %s: wanted either a value or the default", s.Column)
		}
		if s.Value != nil {
			var err error
			if value, err = rules.own(s.Value); err != nil {
				return nil, fmt.Errorf("set %s: %w", s.Column, err)
			}
		}
		if err := assign(tree, splitPath(s.Column), value); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Column, err)
		}
	}
	a := &assigner{}
	for i := range tree {
		c := &tree[i]
		if c.left {
			continue
		}
		if c.value == nil && c.fields == nil {
			var ok bool
			if c.value, ok = rules.absent(c.field); !ok {
				continue
			}
		}
		if err := c.settle(rules, c.field.Name); err != nil {
			return nil, fmt.Errorf("column %q: %w", c.field.Name, err)
		}
		a.columns = append(a.columns, *c)
	}
	fields := make([]arrow.Field, len(a.columns))
	for i, c := range a.columns {
		fields[i] = arrow.Field{Name: c.field.Name, Type: ArrowType(c.field.Type), Nullable: true}
	}
	a.out = arrow.NewSchema(fields, nil)
	return a, nil
}

// splitPath splits the path of a column at its dots.
func splitPath(path string) []string {
	if !strings.Contains(path, "`") {
		return strings.Split(path, ".")
	}
	var parts []string
	var part strings.Builder
	quoted := false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '`' && quoted && i+1 < len(path) && path[i+1] == '`':
			part.WriteByte('`')
			i++
		case c == '`':
			quoted = !quoted
		case c == '.' && !quoted:
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, part.String())
}

// assign puts a value at its place in the tree; nil is the default.
func assign(tree []assigned, path []string, value *expr.Expr) error {
	for i := range tree {
		c := &tree[i]
		if !strings.EqualFold(c.field.Name, path[0]) {
			continue
		}
		if c.value != nil || c.left || len(path) == 1 && c.fields != nil {
			return fmt.Errorf("%q is assigned twice", c.field.Name)
		}
		if len(path) == 1 {
			c.value, c.left = value, value == nil
			return nil
		}
		if value == nil {
			return fmt.Errorf("%q is a field of a column, and only whole columns have defaults", strings.Join(path, "."))
		}
		s, ok := c.field.Type.(*Struct)
		if !ok {
			return fmt.Errorf("%q is %s and has no field %q", c.field.Name, c.field.Type, path[1])
		}
		if c.fields == nil {
			c.fields = make([]assigned, len(s.Fields))
			for j := range s.Fields {
				c.fields[j].field = &s.Fields[j]
			}
		}
		return assign(c.fields, path[1:], value)
	}
	names := make([]string, len(tree))
	for i := range tree {
		names[i] = tree[i].field.Name
	}
	return fmt.Errorf("there is no %q; there is: %s", path[0], strings.Join(names, ", "))
}

// settle gives every value the type of its column; fields that are not assigned keep what they have.
func (a *assigned) settle(rules *assignRules, path ...string) error {
	for i := range a.fields {
		f := &a.fields[i]
		below := append(append([]string(nil), path...), f.field.Name)
		if f.value == nil && f.fields == nil {
			if f.value = rules.old(below...); f.value == nil {
				continue
			}
		}
		if err := f.settle(rules, below...); err != nil {
			return err
		}
	}
	if a.value == nil {
		return nil
	}
	bound, err := a.value.Bind(rules.input)
	if err != nil {
		return err
	}
	want := ArrowType(a.field.Type)
	if isNested(a.field.Type) || arrow.TypeEqual(bound.Type(), want) {
		return checkAssignable(a.field.Type, bound.Type(), columnPath("", strings.Join(path, ".")))
	}
	_, literal := a.value.Column()
	literal = !literal && len(a.value.Names()) == 0
	if !castable(bound.Type(), want, literal) {
		return &SchemaMismatchError{strings.Join(path, "."), bound.Type().String(), a.field.Type.String()}
	}
	a.value = a.value.Cast(want)
	_, err = a.value.Bind(rules.input)
	return err
}

func isNested(t Type) bool {
	switch t.(type) {
	case *Struct, *Array, *Map:
		return true
	}
	return t == Variant || t == Void
}

// castable reports whether values become the column's type without being asked.
func castable(from, to arrow.DataType, literal bool) bool {
	number := func(t arrow.DataType) bool {
		return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID()) || arrow.IsDecimal(t.ID())
	}
	moment := func(t arrow.DataType) bool { return t.ID() == arrow.DATE32 || t.ID() == arrow.TIMESTAMP }
	switch {
	case from.ID() == arrow.NULL, number(from) && number(to), moment(from) && moment(to):
		return true
	case to.ID() == arrow.STRING:
		return !arrow.IsNested(from.ID())
	}
	return literal && from.ID() == arrow.STRING
}

// checkAssignable checks that nested values fit: fields of structs are found by name, those that lack become null,
// and none may be left over.
func checkAssignable(t Type, from arrow.DataType, path string) error {
	mismatch := &SchemaMismatchError{path, from.String(), t.String()}
	if from.ID() == arrow.NULL {
		return nil
	}
	switch t := t.(type) {
	case *Struct:
		s, ok := from.(*arrow.StructType)
		if !ok {
			return mismatch
		}
		for _, f := range s.Fields() {
			field, _ := lookupField(t.Fields, f.Name)
			if field == nil {
				return &SchemaMismatchError{columnPath(path, f.Name), f.Type.String(), "no such field"}
			}
			if err := checkAssignable(field.Type, f.Type, columnPath(path, f.Name)); err != nil {
				return err
			}
		}
		return nil
	case *Array:
		if l, ok := from.(*arrow.ListType); ok {
			return checkAssignable(t.Element, l.Elem(), columnPath(path, "element"))
		}
		return mismatch
	case *Map:
		m, ok := from.(*arrow.MapType)
		if !ok {
			return mismatch
		}
		if err := checkAssignable(t.Key, m.KeyType(), columnPath(path, "key")); err != nil {
			return err
		}
		return checkAssignable(t.Value, m.ItemType(), columnPath(path, "value"))
	}
	if want := ArrowType(t); !arrow.TypeEqual(want, from) && !fitsIn(from, want) {
		return mismatch
	}
	return nil
}

// fitsIn reports whether every value of one type is a value of the other.
func fitsIn(from, to arrow.DataType) bool {
	rank := map[arrow.Type]int{arrow.INT8: 1, arrow.INT16: 2, arrow.INT32: 3, arrow.INT64: 4}
	if rank[from.ID()] > 0 && rank[to.ID()] > 0 {
		return rank[from.ID()] <= rank[to.ID()]
	}
	return from.ID() == arrow.FLOAT32 && to.ID() == arrow.FLOAT64
}

// exprs passes every expression on.
func (a *assigner) exprs(visit func(*expr.Expr)) {
	var walk func([]assigned)
	walk = func(list []assigned) {
		for i := range list {
			if list[i].value != nil {
				visit(list[i].value)
			}
			walk(list[i].fields)
		}
	}
	walk(a.columns)
}

// bind settles the expressions for rows of this schema, which has what they name.
func (a *assigner) bind(schema *arrow.Schema) error {
	var walk func([]assigned) error
	walk = func(list []assigned) (err error) {
		for i := range list {
			if list[i].value != nil {
				if list[i].bound, err = list[i].value.Bind(schema); err != nil {
					return err
				}
			}
			if err := walk(list[i].fields); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(a.columns)
}

// apply computes the new form of the rows; the columns extra, if any, are put behind those of the table. The result is
// the caller's.
func (a *assigner) apply(ctx context.Context, rows arrow.RecordBatch, extra []arrow.Field, values []arrow.Array,
) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, 0, len(a.columns)+len(extra))
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i := range a.columns {
		c, err := a.columns[i].eval(ctx, rows)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", a.columns[i].field.Name, err)
		}
		columns = append(columns, c)
	}
	for _, v := range values {
		v.Retain()
		columns = append(columns, v)
	}
	schema := a.out
	if len(extra) > 0 {
		schema = arrow.NewSchema(append(append([]arrow.Field(nil), a.out.Fields()...), extra...), nil)
	}
	return array.NewRecordBatch(schema, columns, rows.NumRows()), nil
}

func (a *assigned) eval(ctx context.Context, rows arrow.RecordBatch) (arrow.Array, error) {
	want := ArrowType(a.field.Type)
	switch {
	case a.bound != nil:
		v, err := a.bound.Eval(ctx, rows)
		if err != nil {
			if v != nil {
				v.Release()
			}
			return nil, err
		}
		defer v.Release()
		return byName.conform(a.field, v, a.field.Name)
	case a.fields == nil:
		return nullArray(want, int(rows.NumRows())), nil
	}
	children := make([]arrow.ArrayData, len(a.fields))
	for i := range a.fields {
		c, err := a.fields[i].eval(ctx, rows)
		if err != nil {
			return nil, err
		}
		defer c.Release()
		children[i] = c.Data()
	}
	data := array.NewData(want, int(rows.NumRows()), []*memory.Buffer{nil}, children, 0, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}
