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

// Merge returns the table's schema s widened so that rows of newer fit: columns and struct fields that only newer
// has are appended and nullable (the rows that are there have none), and what is nullable in either is nullable. Names
// match without regard to case; spelling, order and metadata are those of s. Neither schema is changed; changed says
// whether the result differs from s. Errors: *SchemaMismatchError for a type that differs.
func (s *Schema) Merge(newer *Schema) (merged *Schema, changed bool, err error) {
	fields, err := mergeFields(s.Fields, newer.Fields, "")
	if err != nil {
		return nil, false, err
	}
	merged = &Schema{Fields: fields}
	return merged, !Equal(&Struct{Fields: fields}, &Struct{Fields: s.Fields}), nil
}

func mergeFields(table, newer []Field, path string) ([]Field, error) {
	out := append([]Field(nil), table...)
	for _, f := range newer {
		old, i := lookup(out, f.Name)
		if old == nil {
			f.Nullable = true
			out = append(out, f)
			continue
		}
		t, err := mergeType(old.Type, f.Type, join(path, old.Name))
		if err != nil {
			return nil, err
		}
		out[i].Type = t
		out[i].Nullable = old.Nullable || f.Nullable
	}
	return out, nil
}

func mergeType(table, newer Type, path string) (Type, error) {
	switch a := table.(type) {
	case *Struct:
		if b, ok := newer.(*Struct); ok {
			fields, err := mergeFields(a.Fields, b.Fields, path)
			return &Struct{Fields: fields}, err
		}
	case *Array:
		if b, ok := newer.(*Array); ok {
			element, err := mergeType(a.Element, b.Element, join(path, "element"))
			return &Array{Element: element, ContainsNull: a.ContainsNull || b.ContainsNull}, err
		}
	case *Map:
		if b, ok := newer.(*Map); ok {
			return mergeMap(a, b, path)
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

func mergeMap(a, b *Map, path string) (Type, error) {
	key, err := mergeType(a.Key, b.Key, join(path, "key"))
	if err != nil {
		return nil, err
	}
	value, err := mergeType(a.Value, b.Value, join(path, "value"))
	if err != nil {
		return nil, err
	}
	return &Map{Key: key, Value: value, ValueContainsNull: a.ValueContainsNull || b.ValueContainsNull}, nil
}
