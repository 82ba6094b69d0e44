package delta

import "fmt"

// defaultColumn is a column that takes a value where a batch does not have it. Spec: "Default Columns".
type defaultColumn struct {
	*rule
	column int
}

// defaultColumns are those of the table, in the order of its columns.
func defaultColumns(p *Protocol, schema *Schema) (all []*defaultColumn, err error) {
	if !p.Supports("allowColumnDefaults") {
		return nil, nil
	}
	for i := range schema.Fields {
		f := &schema.Fields[i]
		text, ok := f.metaText(metaDefault)
		if !ok {
			continue
		}
		r, err := newRule(&Schema{}, fmt.Sprintf("default of column %q", f.Name), text, f.Type)
		if err != nil {
			return nil, err
		}
		all = append(all, &defaultColumn{r, i})
	}
	return all, nil
}
