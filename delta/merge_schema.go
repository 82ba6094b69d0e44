package delta

import (
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// evolved returns the table's metadata with what the merge adds to its schema; nil when it adds nothing.
func (m *Merge) evolved(snap *Snapshot, source *arrow.Schema) (*Metadata, error) {
	if !m.EvolveSchema {
		return nil, nil
	}
	brought := m.brought(snap.Schema(), source)
	if len(brought) == 0 {
		return nil, nil
	}
	incoming, err := snap.Metadata().incoming(arrow.NewSchema(brought, nil))
	if err != nil {
		return nil, err
	}
	return withMissing(snap, incoming)
}

// incoming is the schema of rows that may bring columns into the table: where columns are mapped their names are free.
func (m *Metadata) incoming(rows *arrow.Schema) (*Schema, error) {
	if mappingOf(m.Configuration) == byName {
		return SchemaFromArrow(rows)
	}
	fields, faults := fieldsFromArrow(rows.Fields(), "")
	return &Schema{Fields: fields}, errors.Join(faults...)
}

// withMissing returns the table's metadata with the columns and fields that rows of this schema have and the table
// lacks; nil when it lacks none.
func withMissing(snap *Snapshot, incoming *Schema) (*Metadata, error) {
	fields := addMissing(snap.Schema().Fields, incoming.Fields)
	if Equal(&Struct{Fields: fields}, &Struct{Fields: snap.Schema().Fields}) {
		return nil, nil
	}
	return snap.Metadata().WithSchema(&Schema{Fields: fields})
}

// brought are the source's columns that clauses bring into the table: all with * in a clause, else those that the table
// lacks and an assignment names.
func (m *Merge) brought(table *Schema, source *arrow.Schema) (out []arrow.Field) {
	all := slices.ContainsFunc(m.Matched, func(c MatchedClause) bool { return c.All }) ||
		slices.ContainsFunc(m.NotMatched, func(c InsertClause) bool { return c.All })
	if all {
		return source.Fields()
	}
	var sets []Assignment
	for _, c := range m.Matched {
		sets = append(sets, c.Set...)
	}
	for _, c := range m.NotMatched {
		sets = append(sets, c.Values...)
	}
	for i, f := range source.Fields() {
		named := func(a Assignment) bool { return fieldNamed(source, splitPath(a.Column)[0]) == i }
		if slices.ContainsFunc(sets, named) {
			out = append(out, f)
		}
	}
	return out
}

// addMissing returns the fields of a table with those that only the other list has, nullable, at any depth.
func addMissing(table, other []Field) []Field {
	out := slices.Clone(table)
	for _, f := range other {
		old, i := lookupField(out, f.Name)
		if old == nil {
			f.Nullable = true
			out = append(out, f)
			continue
		}
		out[i].Type = addMissingBelow(old.Type, f.Type)
	}
	return out
}

func addMissingBelow(table, other Type) Type {
	switch a := table.(type) {
	case *Struct:
		if b, ok := other.(*Struct); ok {
			return &Struct{Fields: addMissing(a.Fields, b.Fields)}
		}
	case *Array:
		if b, ok := other.(*Array); ok {
			return &Array{Element: addMissingBelow(a.Element, b.Element), ContainsNull: a.ContainsNull}
		}
	case *Map:
		if b, ok := other.(*Map); ok {
			return &Map{Key: a.Key, Value: addMissingBelow(a.Value, b.Value), ValueContainsNull: a.ValueContainsNull}
		}
	}
	return table
}
