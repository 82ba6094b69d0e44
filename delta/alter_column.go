package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/expr"
)

// NewColumn is a column to be added, or a field of a struct.
type NewColumn struct {
	Parent string // the path of the struct that it becomes a field of; "" for a column of the table
	Field  Field  // rows that are there have null in it, so that it is nullable
	First  bool   // it comes before all others
	After  string // the name of the one that it comes after; "" for the last
}

// AddColumns adds columns, and fields of structs (through arrays and maps by "element", "key" and "value"). Errors: a
// column that is there; one that is NOT NULL, generated or has a default; as AlterOptions and Transaction.Commit.
func (t *Table) AddColumns(ctx context.Context, columns []NewColumn, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, "add columns", opts, func(a *alteration) error {
		var told []string
		for _, c := range columns {
			if err := a.addColumn(c); err != nil {
				return err
			}
			told = append(told, `{"column":`+fieldJSONOf(c.Parent, c.Field)+positionJSON(c)+`}`)
		}
		a.operation = "ADD COLUMNS"
		a.params = map[string]string{"columns": "[" + strings.Join(told, ",") + "]"}
		return nil
	})
}

func fieldJSONOf(parent string, f Field) string {
	f.Name = columnPath(parent, f.Name)
	return string(appendField(nil, f))
}

func positionJSON(c NewColumn) string {
	switch {
	case c.First:
		return `,"position":"FIRST"`
	case c.After != "":
		return `,"position":` + string(appendJSONString(nil, "AFTER "+c.After))
	}
	return ""
}

func (a *alteration) addColumn(c NewColumn) error {
	path := columnPath(c.Parent, c.Field.Name)
	if !c.Field.Nullable {
		return fmt.Errorf("column %q is NOT NULL, and the rows that are there have no value for it", path)
	}
	for _, key := range []string{metaGeneration, metaIdentityStart, metaDefault} {
		if hasKey(c.Field.Metadata, key) {
			return fmt.Errorf("column %q: %s cannot be had by a column that is added: rows that are there have null", path,
				key)
		}
	}
	fields := &a.schema.Fields
	if c.Parent != "" {
		at, err := findColumn(a.schema, c.Parent)
		if err != nil {
			return err
		}
		s, ok := at.get().(*Struct)
		if !ok {
			return fmt.Errorf("column %q: found %s, wanted a struct", c.Parent, at.get())
		}
		fields = &s.Fields
	}
	if old, _ := lookupField(*fields, c.Field.Name); old != nil {
		return fmt.Errorf("column %q is there already, of type %s", path, old.Type)
	}
	place := len(*fields)
	if c.First {
		place = 0
	} else if c.After != "" {
		old, i := lookupField(*fields, c.After)
		if old == nil {
			return fmt.Errorf("column %q: there is no column %q for it to come after", path, c.After)
		}
		place = i + 1
	}
	*fields = slices.Insert(*fields, place, c.Field)
	return nil
}

// columnPlace is where a type stands in a schema.
type columnPlace struct {
	field  *Field   // the field of a struct that it is of, or within
	owner  *[]Field // the fields that field is one of
	within []string // the way from field to the type: element, key, value
	get    func() Type
	set    func(Type)
}

// findColumn finds a column, a field of a struct, or an element, key or value on the way of a path.
func findColumn(s *Schema, path string) (columnPlace, error) {
	at := columnPlace{owner: &s.Fields}
	get := func() Type { return &Struct{Fields: s.Fields} }
	for n, part := range splitPath(path) {
		missing := fmt.Errorf("column %q: the table has no such column; its columns are %s", path, columnList(s))
		switch t := get().(type) {
		case *Struct:
			fields := &t.Fields
			if n == 0 {
				fields = &s.Fields
			}
			f, _ := lookupField(*fields, part)
			if f == nil {
				return at, missing
			}
			at.field, at.owner, at.within = f, fields, nil
			at.get, at.set = func() Type { return f.Type }, func(t Type) { f.Type = t }
		case *Array:
			if part != "element" {
				return at, missing
			}
			at.get, at.set = func() Type { return t.Element }, func(e Type) { t.Element = e }
			at.within = append(at.within, part)
		case *Map:
			switch part {
			case "key":
				at.get, at.set = func() Type { return t.Key }, func(k Type) { t.Key = k }
			case "value":
				at.get, at.set = func() Type { return t.Value }, func(v Type) { t.Value = v }
			default:
				return at, missing
			}
			at.within = append(at.within, part)
		default:
			return at, missing
		}
		get = at.get
	}
	return at, nil
}

// named is findColumn for what has a name of its own.
func (a *alteration) named(path string) (columnPlace, error) {
	at, err := findColumn(a.schema, path)
	if err == nil && len(at.within) > 0 {
		err = fmt.Errorf("column %q is the %s of another", path, at.within[len(at.within)-1])
	}
	return at, err
}

// RenameColumn gives a column, or a field of a struct, another name. Files stay as they are, so that the table must map
// its columns. Errors: a name that is taken; a column that a constraint or a generated column reads; as
// Transaction.Commit. Spec: "Column Mapping".
func (t *Table) RenameColumn(ctx context.Context, path, name string, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, fmt.Sprintf("rename the column %q", path), opts, func(a *alteration) error {
		if err := a.needsMapping(); err != nil {
			return err
		}
		at, err := a.named(path)
		if err != nil {
			return err
		}
		if other, _ := lookupField(*at.owner, name); other != nil && other != at.field {
			return fmt.Errorf("there is a column %q already", name)
		}
		parts := splitPath(path)
		if err := errors.Join(a.unread(path), a.unsized(parts)); err != nil {
			return err
		}
		old := at.field.Name
		for i, p := range a.meta.PartitionColumns {
			if at.owner == &a.schema.Fields && strings.EqualFold(p, old) {
				a.meta.PartitionColumns[i] = name
			}
		}
		to := append(slices.Clone(parts[:len(parts)-1]), name)
		at.field.Name = name
		a.operation = "RENAME COLUMN"
		a.params = map[string]string{"oldColumnPath": path, "newColumnPath": joinPath(to)}
		a.renameStats(parts, to)
		return nil
	})
}

// renameStats keeps the list of columns with statistics true; to is nil for a column that goes.
func (a *alteration) renameStats(from, to []string) {
	list := a.meta.Configuration[propStatsColumns]
	if list == "" {
		return
	}
	var columns [][]string
	for _, c := range splitPaths(list) {
		switch {
		case !within(c, from):
			columns = append(columns, c)
		case to != nil:
			columns = append(columns, slices.Concat(to, c[len(from):]))
		}
	}
	if a.meta.Configuration[propStatsColumns] = joinPaths(columns); len(columns) == 0 {
		delete(a.meta.Configuration, propStatsColumns)
	}
}

func joinPath(parts []string) string {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = quotePath(p)
	}
	return strings.Join(quoted, ".")
}

// DropColumns takes columns, and fields of structs, away. Files stay as they are, so that the table must map its
// columns. Errors: a column that partitions or clusters the table, or that a constraint or a generated column reads; the
// last column; as Transaction.Commit. Spec: "Column Mapping".
func (t *Table) DropColumns(ctx context.Context, paths []string, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, "drop columns", opts, func(a *alteration) error {
		if err := a.needsMapping(); err != nil {
			return err
		}
		for _, path := range paths {
			if err := a.dropColumn(path); err != nil {
				return err
			}
		}
		a.operation = "DROP COLUMNS"
		a.params = map[string]string{"columns": jsonList(paths)}
		return nil
	})
}

func (a *alteration) dropColumn(path string) error {
	at, err := a.named(path)
	if err != nil {
		return err
	}
	top := at.owner == &a.schema.Fields
	if top && slices.ContainsFunc(a.meta.PartitionColumns, func(p string) bool {
		return strings.EqualFold(p, at.field.Name)
	}) {
		return fmt.Errorf("column %q partitions the table", path)
	}
	if len(*at.owner) == 1 {
		return fmt.Errorf("column %q is the last of its struct or table", path)
	}
	clustered, err := a.snap.clusteringColumns()
	if err != nil {
		return err
	}
	for _, c := range clustered {
		if within(c, splitPath(path)) {
			return fmt.Errorf("column %q clusters the table; change that first", path)
		}
	}
	if err := a.unread(path); err != nil {
		return err
	}
	_, i := lookupField(*at.owner, at.field.Name)
	*at.owner = slices.Delete(*at.owner, i, i+1)
	a.renameStats(splitPath(path), nil)
	return nil
}

// within reports whether a path is the other or below it, its case ignored.
func within(path, above []string) bool {
	return len(path) >= len(above) && slices.EqualFunc(path[:len(above)], above, strings.EqualFold)
}

func (a *alteration) needsMapping() error {
	if mappingOf(a.meta.Configuration) == byName {
		return fmt.Errorf("the table does not map its columns, so that files would have to be written again; set %s to "+
			"name first", propColumnMapping)
	}
	return nil
}

// unread makes sure that no rule of the table reads the column.
func (a *alteration) unread(path string) error {
	parts := splitPath(path)
	check := func(what, text string) error {
		e, err := expr.ParseSpark(text)
		if err != nil {
			return fmt.Errorf("the %s cannot be understood, so that nobody knows which columns it reads: %w", what, err)
		}
		for _, name := range e.Names() {
			if within(name, parts) || within(parts, name) {
				return fmt.Errorf("the %s (%s) reads the column %q; change that first", what, text, path)
			}
		}
		return nil
	}
	for _, key := range sortedNames(a.meta.Configuration) {
		if name, ok := strings.CutPrefix(key, propConstraint); ok {
			if err := check(fmt.Sprintf("CHECK constraint %q", name), a.meta.Configuration[key]); err != nil {
				return err
			}
		}
	}
	return eachField(a.schema.Fields, nil, func(at []string, f *Field) error {
		if text, ok := f.metaText(metaGeneration); ok {
			if err := check(fmt.Sprintf("generated column %q", f.Name), text); err != nil {
				return err
			}
		}
		text, ok, err := invariantOf(f)
		if err != nil || !ok {
			return err
		}
		return check(fmt.Sprintf("invariant of column %q", strings.Join(at, ".")), text)
	})
}

// unsized makes sure that the column is no field of a struct whose CHAR and VARCHAR are noted by the names of its fields.
func (a *alteration) unsized(path []string) error {
	top, _ := a.schema.Lookup(path[0])
	if len(path) < 2 || !hasKey(top.Metadata, metaLengths) {
		return nil
	}
	text, _ := top.metaText(metaLengths)
	return fmt.Errorf("the type of column %q is noted as %s, by the names that its fields have", top.Name, text)
}

// ColumnChange is what becomes of a column; what is nil stays.
type ColumnChange struct {
	Type     Type    // a wider one: Spec "Type Widening"
	Nullable *bool   // false only once no row has null in it
	Comment  *string // "" takes it away
	Default  *string // an expression in Spark's SQL; "" takes it away
}

// ChangeColumn changes a column, or a field of a struct; of an element, key or value the type only. A wider type needs
// delta.enableTypeWidening. Errors: a type that is not wider; a null where none may be, as *ConstraintError; as
// AlterOptions and Transaction.Commit. Spec: "Type Widening", "Default Columns".
func (t *Table) ChangeColumn(ctx context.Context, path string, change ColumnChange, opts *AlterOptions,
) (CommitResult, error) {
	return t.alter(ctx, fmt.Sprintf("change the column %q", path), opts, func(a *alteration) error {
		at, err := findColumn(a.schema, path)
		if err != nil {
			return err
		}
		if len(at.within) > 0 && (change.Nullable != nil || change.Comment != nil || change.Default != nil) {
			return fmt.Errorf("it is the %s of another: only its type can change", at.within[len(at.within)-1])
		}
		if change.Type != nil && change.Type != at.get() {
			if err := a.widen(path, at, change.Type); err != nil {
				return err
			}
		}
		if change.Nullable != nil && *change.Nullable != at.field.Nullable {
			if err := a.setNullable(path, at, *change.Nullable); err != nil {
				return err
			}
		}
		if err := a.describe(at, change); err != nil {
			return err
		}
		a.operation = "CHANGE COLUMN"
		a.params = map[string]string{"column": string(appendField(nil, *at.field))}
		return nil
	})
}

func (a *alteration) describe(at columnPlace, change ColumnChange) error {
	for _, m := range []struct {
		key  string
		text *string
	}{{"comment", change.Comment}, {metaDefault, change.Default}} {
		if m.text == nil {
			continue
		}
		var value any
		if *m.text != "" {
			value = *m.text
		}
		if m.key == metaDefault && at.owner != &a.schema.Fields {
			return errors.New("only columns of the table have defaults, not fields of structs")
		}
		computed := hasKey(at.field.Metadata, metaGeneration) || hasKey(at.field.Metadata, metaIdentityStart)
		if m.key == metaDefault && value != nil && computed {
			return errors.New("the table computes the column: it has no use for a default")
		}
		if err := at.field.setMeta(m.key, value); err != nil {
			return err
		}
	}
	return nil
}

// setNullable lifts NOT NULL, or sets it where no row has null.
func (a *alteration) setNullable(path string, at columnPlace, nullable bool) error {
	at.field.Nullable = nullable
	if nullable {
		return nil
	}
	if at.owner != &a.schema.Fields {
		return fmt.Errorf("a field of a struct cannot become NOT NULL")
	}
	r, err := newRule(a.snap.schema, fmt.Sprintf("NOT NULL of column %q", path),
		"`"+strings.ReplaceAll(at.field.Name, "`", "``")+"` IS NOT NULL", nil)
	if err != nil {
		return err
	}
	return a.snap.holds(a.ctx, r)
}
