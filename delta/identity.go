package delta

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// identityColumn is a column whose values the table gives out: start, start + step, … . The last that was given out is
// its high-water mark. Spec: "Identity Columns".
type identityColumn struct {
	field       Field
	column      int
	start, step int64
	given       bool // batches may have values of their own
	mark        int64
	marked      bool // mark is set
	begun       bool // values were given out since the writer began
}

// identityColumns are those of the table, in the order of its columns.
func identityColumns(p *Protocol, schema *Schema) (all []*identityColumn, err error) {
	if !p.Supports("identityColumns") {
		return nil, nil
	}
	for i := range schema.Fields {
		f := &schema.Fields[i]
		start, ok := f.metaInt(metaIdentityStart)
		if !ok {
			continue
		}
		c := &identityColumn{field: *f, column: i, start: start}
		if c.step, ok = f.metaInt(metaIdentityStep); !ok || c.step == 0 || f.Type != Long {
			return nil, &UnsupportedError{Write: true,
				Feature: fmt.Sprintf("the identity column %q, of type %s and step %d", f.Name, f.Type, c.step)}
		}
		c.given = string(f.metaValue(metaIdentityGiven)) == "true"
		c.mark, c.marked = f.metaInt(metaIdentityMark)
		all = append(all, c)
	}
	return all, nil
}

// next is the value after one that was given out.
func (c *identityColumn) next(mark int64, marked bool) (int64, error) {
	if !marked {
		return c.start, nil
	}
	v := mark + c.step
	if (v > mark) != (c.step > 0) {
		return 0, fmt.Errorf("identity column %q: its values are used up: %d + %d is no long", c.field.Name, mark, c.step)
	}
	return v, nil
}

// complete gives the column values where it has none. made is the caller's, nil when there is nothing to give. Without
// keep, a value that was given is refused where the table gives out all of them. The marks move when taken is called.
func (c *identityColumn) complete(given arrow.Array, n int, keep bool) (made arrow.Array, taken func(), err error) {
	if given != nil && given.NullN() == 0 && given.DataType().ID() != arrow.NULL && (c.given || keep || n == 0) {
		return nil, func() {}, nil
	}
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(n)
	mark, marked, begun := c.mark, c.marked, c.begun
	values, _ := given.(*array.Int64)
	for i := range n {
		if values != nil && values.IsValid(i) {
			if !c.given && !keep {
				return nil, nil, &ConstraintError{Constraint: fmt.Sprintf("identity column %q", c.field.Name),
					Expression: "GENERATED ALWAYS", Row: i, Values: []ColumnValue{valueOf(c.field.Name, given, i, shownValue)},
					Err: fmt.Errorf("the table gives out its values; leave the column out")}
			}
			b.Append(values.Value(i))
			continue
		}
		if mark, err = c.next(mark, marked); err != nil {
			return nil, nil, err
		}
		marked, begun = true, true
		b.Append(mark)
	}
	return b.NewArray(), func() { c.mark, c.marked, c.begun = mark, marked, begun }, nil
}

// IdentityHighWater returns, by column, the last value that each identity column was given since the writer began; it
// is empty when none was. The commit of the files must put them into the metadata: Metadata.WithHighWater.
func (w *Writer) IdentityHighWater() map[string]int64 {
	marks := map[string]int64{}
	for _, c := range w.rules.identities {
		if c.begun {
			marks[c.field.Name] = c.mark
		}
	}
	return marks
}

// WithHighWater returns a copy of the metadata in which identity columns have given out values up to these marks, by
// column. Errors: a column that is none of the table's identity columns. Spec: "Identity Columns".
func (m *Metadata) WithHighWater(marks map[string]int64) (*Metadata, error) {
	schema, err := m.Schema()
	if err != nil {
		return nil, err
	}
	for _, name := range sortedNames(marks) {
		f, _ := schema.Lookup(name)
		if f == nil || !hasKey(f.Metadata, metaIdentityStart) {
			return nil, fmt.Errorf("identity column %q: the table has no such column", name)
		}
		step, _ := f.metaInt(metaIdentityStep)
		old, set := f.metaInt(metaIdentityMark)
		mark := marks[name]
		if set && (step > 0 && mark < old || step < 0 && mark > old) {
			continue // marks never go back
		}
		if err := f.setMeta(metaIdentityMark, mark); err != nil {
			return nil, err
		}
	}
	c := m.Clone()
	c.SchemaString = schema.String()
	return c, nil
}
