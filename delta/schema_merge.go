package delta

import "fmt"

// SchemaMismatchError says that a column has another type than the table's.
type SchemaMismatchError struct {
	Column string // path of the column, its parts joined by dots
	Found  string // the type that came
	Wanted string // the table's type
}

func (e *SchemaMismatchError) Error() string {
	return fmt.Sprintf("column %q: found %s, wanted %s; cast the column, or write to another table",
		e.Column, e.Found, e.Wanted)
}

// Merge returns the table's schema s with what only newer has appended: columns, and fields of structs, which become
// nullable since the rows that are there have none. Names match without regard to case; spelling, order, nullability
// and metadata are those of s, so that a NOT NULL of the table is never lifted by the rows that come; Relax does that.
// Neither schema is changed; changed says whether the result differs from s. Errors: *SchemaMismatchError for a type
// that differs.
func (s *Schema) Merge(newer *Schema) (merged *Schema, changed bool, err error) {
	return s.merge(newer, false)
}

// Relax is Merge, but what is nullable in newer becomes nullable in the result, too: NOT NULL constraints are lifted.
func (s *Schema) Relax(newer *Schema) (relaxed *Schema, changed bool, err error) {
	return s.merge(newer, true)
}

func (s *Schema) merge(newer *Schema, relax bool) (*Schema, bool, error) {
	fields, err := merger{relax}.fields(s.Fields, newer.Fields, "")
	if err != nil {
		return nil, false, err
	}
	return &Schema{Fields: fields}, !Equal(&Struct{Fields: fields}, &Struct{Fields: s.Fields}), nil
}

type merger struct{ relax bool }

func (m merger) nullable(table, newer bool) bool { return table || m.relax && newer }

func (m merger) fields(table, newer []Field, path string) ([]Field, error) {
	out := append([]Field(nil), table...)
	for _, f := range newer {
		old, i := lookupField(out, f.Name)
		if old == nil {
			f.Nullable = true
			out = append(out, f)
			continue
		}
		t, err := m.merge(old.Type, f.Type, columnPath(path, old.Name))
		if err != nil {
			return nil, err
		}
		out[i].Type = t
		out[i].Nullable = m.nullable(old.Nullable, f.Nullable)
	}
	return out, nil
}

func (m merger) merge(table, newer Type, path string) (Type, error) {
	switch a := table.(type) {
	case *Struct:
		if b, ok := newer.(*Struct); ok {
			fields, err := m.fields(a.Fields, b.Fields, path)
			return &Struct{Fields: fields}, err
		}
	case *Array:
		if b, ok := newer.(*Array); ok {
			element, err := m.merge(a.Element, b.Element, columnPath(path, "element"))
			return &Array{Element: element, ContainsNull: m.nullable(a.ContainsNull, b.ContainsNull)}, err
		}
	case *Map:
		if b, ok := newer.(*Map); ok {
			return m.entries(a, b, path)
		}
	default:
		if table == newer {
			return table, nil
		}
	}
	if newer == Void {
		return table, nil
	}
	if table == Void {
		return newer, nil
	}
	return nil, &SchemaMismatchError{Column: path, Found: newer.String(), Wanted: table.String()}
}

func (m merger) entries(a, b *Map, path string) (Type, error) {
	key, err := m.merge(a.Key, b.Key, columnPath(path, "key"))
	if err != nil {
		return nil, err
	}
	value, err := m.merge(a.Value, b.Value, columnPath(path, "value"))
	if err != nil {
		return nil, err
	}
	return &Map{Key: key, Value: value, ValueContainsNull: m.nullable(a.ValueContainsNull, b.ValueContainsNull)}, nil
}
