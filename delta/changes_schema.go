package delta

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// changeShape is what the batches of a range look like.
type changeShape struct {
	columns []string      // of the table, to read: those asked for, then those of the condition
	full    *arrow.Schema // of columns and the three that changes have beside them
	out     []int         // the places in full of what is returned
	result  *arrow.Schema
	where   *expr.Bound // bound to full; nil: none
	onRows  bool        // the condition names columns of the table only
}

// changeFields are the columns that changes have beside the table's.
func changeFields() []arrow.Field {
	return []arrow.Field{{Name: ChangeTypeColumn, Type: arrow.BinaryTypes.String},
		{Name: CommitVersionColumn, Type: arrow.PrimitiveTypes.Int64},
		{Name: CommitTimestampColumn, Type: arrowTimestamp}}
}

func isChangeField(name string) bool {
	return slices.ContainsFunc(changeFields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, name) })
}

func newChangeShape(last *Snapshot, opts *ChangesOptions) (*changeShape, error) {
	s := &changeShape{columns: slices.Clone(opts.Columns)}
	schema := last.Schema()
	if opts.Columns == nil {
		s.columns = []string{}
		for _, f := range schema.Fields {
			s.columns = append(s.columns, f.Name)
		}
	}
	for _, f := range changeFields() {
		if containsFold(s.columns, f.Name) {
			return nil, fmt.Errorf("the table has a column %q, which is a name that changes need; rename it, or ask for "+
				"other columns", f.Name)
		}
	}
	if len(schema.Fields) == 0 {
		return nil, corrupt("the metadata in force at version %d names no columns", last.Version())
	}
	for _, name := range opts.Key {
		if f, _ := schema.Lookup(name); f == nil {
			return nil, fmt.Errorf("key column %q: the table has no such column; its columns are %s", name,
				columnList(schema))
		}
	}
	returned := len(s.columns)
	if err := s.addCondition(schema, opts.Where); err != nil {
		return nil, err
	}
	return s, s.bind(schema, opts.Where, returned)
}

// addCondition adds the columns of the condition to those that are read.
func (s *changeShape) addCondition(schema *Schema, where *expr.Expr) error {
	if where == nil {
		return nil
	}
	own := slices.DeleteFunc(schema.Arrow().Fields(), func(f arrow.Field) bool { return isChangeField(f.Name) })
	all := append(own, changeFields()...)
	bound, err := where.BindCondition(arrow.NewSchema(all, nil))
	if err != nil {
		return err
	}
	s.onRows = true
	for _, name := range bound.Columns() {
		if isChangeField(name) {
			s.onRows = false
		} else if !containsFold(s.columns, name) {
			s.columns = append(s.columns, name)
		}
	}
	return nil
}

// bind builds the schemas, of which the first columns are returned.
func (s *changeShape) bind(schema *Schema, where *expr.Expr, returned int) error {
	var read []arrow.Field
	for _, name := range s.columns {
		f, _ := schema.Lookup(name)
		if f == nil {
			return fmt.Errorf("column %q: the table has no such column; its columns are %s", name, columnList(schema))
		}
		read = append(read, arrowFields([]Field{*f})[0])
	}
	s.full = arrow.NewSchema(append(read, changeFields()...), nil)
	s.result = arrow.NewSchema(append(slices.Clone(read[:returned]), changeFields()...), nil)
	for i := range s.full.NumFields() {
		if i < returned || i >= len(read) {
			s.out = append(s.out, i)
		}
	}
	if where == nil {
		return nil
	}
	var err error
	s.where, err = where.BindCondition(s.full)
	return err
}

// schemaChanges tells why rows that were written under one metadata cannot be read by the schema of a later one; empty
// when they can: columns may have been added, types widened, nullability and the order of columns changed.
func schemaChanges(old, now *Metadata) ([]string, error) {
	if old.SchemaString == now.SchemaString && slices.Equal(old.PartitionColumns, now.PartitionColumns) {
		return nil, nil
	}
	var found []string
	if !slices.EqualFunc(old.PartitionColumns, now.PartitionColumns, strings.EqualFold) {
		found = append(found, fmt.Sprintf("the partition columns were [%s] and are [%s]",
			strings.Join(old.PartitionColumns, ", "), strings.Join(now.PartitionColumns, ", ")))
	}
	if old.SchemaString == "" { // a table without columns has no rows
		return found, nil
	}
	before, err := ParseSchema(old.SchemaString)
	if err != nil {
		return nil, err
	}
	after, err := ParseSchema(now.SchemaString)
	if err != nil {
		return nil, err
	}
	c := schemaComparison{old: mappingOf(old.Configuration), now: mappingOf(now.Configuration), found: found}
	c.fields(before.Fields, after.Fields, "")
	return c.found, nil
}

// schemaComparison gathers what keeps old rows from being read by a new schema.
type schemaComparison struct {
	old, now mapping
	found    []string
}

func (c *schemaComparison) add(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *schemaComparison) fields(before, after []Field, path string) {
	for i := range before {
		f := &before[i]
		name, physical := columnPath(path, f.Name), c.old.physicalName(f)
		same, _ := lookupField(after, f.Name)
		at := slices.IndexFunc(after, func(n Field) bool { return c.now.physicalName(&n) == physical })
		switch {
		case same != nil && strings.EqualFold(c.now.physicalName(same), physical):
			c.types(f.Type, same.Type, name)
		case same != nil:
			c.add("column %q was dropped and another of its name added", name)
		case at >= 0 && c.now != byName:
			c.add("column %q was renamed to %q", name, columnPath(path, after[at].Name))
		default:
			c.add("column %q was dropped", name)
		}
	}
}

func (c *schemaComparison) types(before, after Type, path string) {
	switch a := before.(type) {
	case *Struct:
		if b, ok := after.(*Struct); ok {
			c.fields(a.Fields, b.Fields, path)
			return
		}
	case *Array:
		if b, ok := after.(*Array); ok {
			c.types(a.Element, b.Element, columnPath(path, "element"))
			return
		}
	case *Map:
		if b, ok := after.(*Map); ok {
			c.types(a.Key, b.Key, columnPath(path, "key"))
			c.types(a.Value, b.Value, columnPath(path, "value"))
			return
		}
	}
	if !widens(before, after) {
		c.add("column %q was %s and is %s", path, before, after)
	}
}

// widens reports whether all values of one type are values of another. Spec: "Type Widening".
func widens(before, after Type) bool {
	if before == after || before == Void {
		return true
	}
	order := []Type{Byte, Short, Integer, Long}
	digits := []int{3, 5, 10, 20} // that a decimal has to have before the point
	from := slices.Index(order, before)
	if d, ok := after.(Decimal); ok {
		if old, ok := before.(Decimal); ok {
			return d.Scale >= old.Scale && d.Precision-d.Scale >= old.Precision-old.Scale
		}
		return from >= 0 && d.Precision-d.Scale >= digits[from]
	}
	switch after {
	case Double:
		return from >= 0 && from < 3 || before == Float
	case TimestampNTZ:
		return before == Date
	}
	return from >= 0 && slices.Index(order, after) > from
}
