package delta

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// manifestOf is how the columns of a file appear in Arrow, also where their layout is one of writers that the library does
// not know. said is what writers in Arrow say of their own types; nil: it is not asked for.
func manifestOf(s *schema.Schema, said metadata.KeyValueMetadata) (*pqarrow.SchemaManifest, error) {
	root, loose, err := withoutLooseMaps(s.Root())
	if err != nil {
		return nil, err
	}
	known := s
	if loose {
		known = schema.NewSchema(root)
	}
	m, err := pqarrow.NewSchemaManifest(known, said, &pqarrow.ArrowReadProperties{})
	if err != nil {
		return nil, err
	}
	for i := range m.Fields {
		if loose {
			looseMaps(s.Root().Field(i), &m.Fields[i])
		}
		listsOfLists(s.Root().Field(i), &m.Fields[i])
	}
	return m, nil
}

// isLooseMap reports whether a group is a map whose keys are not required, as Presto has written them: the library refuses
// it, though no key need be null.
func isLooseMap(g *schema.GroupNode) bool {
	if !g.LogicalType().Equals(schema.MapLogicalType{}) || g.NumFields() != 1 ||
		g.RepetitionType() == parquet.Repetitions.Repeated {
		return false
	}
	pair, ok := g.Field(0).(*schema.GroupNode)
	return ok && pair.RepetitionType() == parquet.Repetitions.Repeated && pair.NumFields() == 2 &&
		pair.Field(0).RepetitionType() == parquet.Repetitions.Optional
}

// isStruct reports whether a group is nothing but a struct.
func isStruct(g *schema.GroupNode) bool {
	return g.LogicalType().IsNone() && g.RepetitionType() != parquet.Repetitions.Repeated
}

// withoutLooseMaps returns the group with loose maps, of columns and of fields of structs, as what they are besides: structs
// of a list of pairs. changed is false where there are none.
func withoutLooseMaps(g *schema.GroupNode) (out *schema.GroupNode, changed bool, err error) {
	fields := make(schema.FieldList, g.NumFields())
	for i := range fields {
		fields[i] = g.Field(i)
		child, ok := fields[i].(*schema.GroupNode)
		switch {
		case !ok:
			continue
		case isLooseMap(child):
			pair := child.Field(0).(*schema.GroupNode)
			plain, err := regrouped(pair, schema.FieldList{pair.Field(0), pair.Field(1)})
			if err == nil {
				fields[i], err = regrouped(child, schema.FieldList{plain})
			}
			if err != nil {
				return nil, false, err
			}
			changed = true
		case isStruct(child):
			inner, has, err := withoutLooseMaps(child)
			if err != nil {
				return nil, false, err
			}
			if has {
				fields[i], changed = inner, true
			}
		}
	}
	if !changed {
		return g, false, nil
	}
	out, err = regrouped(g, fields)
	return out, true, err
}

// regrouped is the group with these fields, and no logical type.
func regrouped(g *schema.GroupNode, fields schema.FieldList) (*schema.GroupNode, error) {
	return schema.NewGroupNode(g.Name(), g.RepetitionType(), fields, g.FieldID())
}

// looseMaps makes maps again of what withoutLooseMaps has made structs.
func looseMaps(n schema.Node, f *pqarrow.SchemaField) {
	group, ok := n.(*schema.GroupNode)
	switch {
	case !ok:
	case isLooseMap(group):
		list := f.Children[0]
		pair := list.Children[0].Children
		pair[0].Field.Nullable = false // a null is found when it is read
		f.LevelInfo, f.Children = list.LevelInfo, list.Children
		f.Field.Type = arrow.MapOfFields(*pair[0].Field, *pair[1].Field)
	case isStruct(group):
		for i := range min(group.NumFields(), len(f.Children)) {
			looseMaps(group.Field(i), &f.Children[i])
		}
		f.Field.Type = arrow.StructOf(arrowFieldsOf(f.Children)...)
	}
}

// listsOfLists makes lists, whose elements early writers left as a repeated group that is itself a list, lists of lists: the
// library takes that group for a struct. Spec: Parquet, "Lists", backward-compatibility rules.
func listsOfLists(n schema.Node, f *pqarrow.SchemaField) {
	group, ok := n.(*schema.GroupNode)
	if !ok || storageOf(f.Field.Type).ID() == arrow.MAP {
		return
	}
	if storageOf(f.Field.Type).ID() == arrow.STRUCT {
		for i := range min(group.NumFields(), len(f.Children)) {
			listsOfLists(group.Field(i), &f.Children[i])
		}
		return
	}
	element, ok := group.Field(0).(*schema.GroupNode)
	list := schema.NewListLogicalType()
	if ok && group.LogicalType().Equals(list) && element.LogicalType().Equals(list) && len(f.Children[0].Children) == 1 {
		f.Children[0] = f.Children[0].Children[0]
		f.Field.Type = arrow.ListOf(f.Children[0].Field.Type)
	}
}
