package delta

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// projection is the part of a type that is wanted, by the lower-case names of its fields; nil: all of it.
type projection map[string]projection

// add wants a path in t, too. t is the type that p is a part of.
func (p projection) add(t Type, path []string) (projection, error) {
	if len(path) == 0 {
		return nil, nil
	}
	name := strings.ToLower(path[0])
	below, known, ok := Type(nil), "it has no fields", false
	switch t := t.(type) {
	case *Struct:
		if f, _ := lookupField(t.Fields, path[0]); f != nil {
			below, name, ok = f.Type, lowerName(f), true
		}
		known = "its fields are " + columnList(&Schema{Fields: t.Fields})
	case *Array:
		below, ok, known = t.Element, name == "element", `wanted "element"`
	case *Map:
		below, ok, known = t.Value, name == "value", `wanted "value": keys are always read`
	}
	if !ok {
		return nil, fmt.Errorf("%s has no field %q; %s", t, path[0], known)
	}
	if p == nil {
		p = projection{}
	}
	had, wanted := p[name]
	if wanted && had == nil {
		return p, nil
	}
	part, err := had.add(below, path[1:])
	if err != nil {
		return nil, err
	}
	p[name] = part
	return p, nil
}

// of is the part of t.
func (p projection) of(t Type) Type {
	if p == nil {
		return t
	}
	switch t := t.(type) {
	case *Struct:
		out := &Struct{}
		for _, f := range t.Fields {
			if part, ok := p[lowerName(&f)]; ok {
				f.Type = part.of(f.Type)
				out.Fields = append(out.Fields, f)
			}
		}
		return out
	case *Array:
		return &Array{Element: p["element"].of(t.Element), ContainsNull: t.ContainsNull}
	case *Map:
		return &Map{Key: t.Key, Value: p["value"].of(t.Value), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// projected returns the columns of the paths, in the order in which they are first named; of a struct, those of its fields
// that are named, in its own order.
func (s *Schema) projected(paths []string) ([]Field, error) {
	var out []Field
	parts := make(map[string]projection)
	for _, text := range paths {
		path := []string{text}
		f, _ := s.Lookup(text)
		if f == nil {
			path = splitPath(text)
			f, _ = s.Lookup(path[0])
		}
		if f == nil {
			return nil, &ColumnError{text, "the table has no such column; its columns are " + columnList(s)}
		}
		part, named := parts[f.Name]
		if named && part == nil && len(path) == 1 {
			out = append(out, *f) // a column that is asked for twice comes twice
			continue
		}
		if !named {
			out = append(out, *f)
		}
		if named && part == nil {
			continue
		}
		part, err := part.add(f.Type, path[1:])
		if err != nil {
			return nil, &ColumnError{text, err.Error()}
		}
		parts[f.Name] = part
	}
	for i := range out {
		out[i].Type = parts[out[i].Name].of(out[i].Type)
	}
	return out, nil
}

// choose marks the leaves of a file's field that a field of the table is made of.
func (m mapping) choose(f *Field, in *pqarrow.SchemaField, leaves map[int]bool) {
	id := storageOf(in.Field.Type).ID()
	switch t := f.Type.(type) {
	case *Struct:
		if id == arrow.STRUCT {
			m.chooseFields(t, in, leaves)
			return
		}
	case *Array:
		if id == arrow.LIST {
			m.choose(&Field{Name: "element", Type: t.Element, Metadata: f.Metadata}, &in.Children[0], leaves)
			return
		}
	case *Map:
		if id == arrow.MAP {
			pair := in.Children[0].Children
			m.choose(&Field{Name: "key", Type: t.Key}, &pair[0], leaves)
			m.choose(&Field{Name: "value", Type: t.Value}, &pair[1], leaves)
			return
		}
	}
	chooseAll(in, leaves)
}

// chooseFields marks what the file has of a struct's fields, or some leaf where it has none, which tells where the struct
// is null.
func (m mapping) chooseFields(t *Struct, in *pqarrow.SchemaField, leaves map[int]bool) {
	have := arrowFieldsOf(in.Children)
	found := false
	for i := range t.Fields {
		if at := m.find(have, &t.Fields[i]); at >= 0 {
			m.choose(&t.Fields[i], &in.Children[at], leaves)
			found = true
		}
	}
	for leaf := in; !found; leaf = &leaf.Children[0] {
		if found = len(leaf.Children) == 0; found {
			chooseAll(leaf, leaves)
		}
	}
}

func chooseAll(f *pqarrow.SchemaField, leaves map[int]bool) {
	if f.IsLeaf() {
		leaves[f.ColIndex] = true
	}
	for i := range f.Children {
		chooseAll(&f.Children[i], leaves)
	}
}

func arrowFieldsOf(fields []pqarrow.SchemaField) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i := range fields {
		out[i] = *fields[i].Field
	}
	return out
}
