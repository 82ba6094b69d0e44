package delta

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// What column mapping writes into the metadata of fields. Spec: "Column Mapping".
const (
	metaColumnID = "delta.columnMapping.id"
	metaPhysical = "delta.columnMapping.physicalName"
)

// Schema parses the columns that the metadata declares.
func (m *Metadata) Schema() (*Schema, error) { return ParseSchema(m.SchemaString) }

// WithSchema returns a copy of the metadata with this schema. Where columns are mapped, each field that is new gets an
// id and a physical name of its own, at any depth; one that has an id already keeps it. Errors: an id that another
// field has or had. Spec: "Column Mapping".
func (m *Metadata) WithSchema(s *Schema) (*Metadata, error) {
	c := m.Clone()
	if mappingOf(m.Configuration) == byName {
		c.SchemaString = s.String()
		return c, nil
	}
	old, err := m.Schema()
	if err != nil {
		return nil, err
	}
	a := idAssigner{known: map[int64]string{}, used: map[int64]string{}}
	a.max, _ = m.int(propMaxColumnID)
	if err := eachField(old.Fields, nil, a.know); err != nil {
		return nil, err
	}
	s = &Schema{Fields: cloneFields(s.Fields)}
	if err := a.assign(s.Fields); err != nil {
		return nil, err
	}
	c.SchemaString = s.String()
	c.Configuration[propMaxColumnID] = strconv.FormatInt(a.max, 10)
	return c, nil
}

// startMapping gives the columns of a new table ids and physical names, if its properties ask for them.
func (m *Metadata) startMapping(s *Schema) error {
	m.SchemaString = s.String()
	switch mode := strings.ToLower(m.Configuration[propColumnMapping]); mode {
	case "", "none":
		return nil
	case "name", "id":
		return m.mapColumns(mode, false)
	default:
		return fmt.Errorf("property %s: found %q, wanted name, id or none", propColumnMapping, mode)
	}
}

// mapColumns begins the mapping of columns that have none: with keep, the columns of files that are there, which keep
// their names; else with names that mean nothing.
func (m *Metadata) mapColumns(mode string, keep bool) error {
	s, err := m.Schema()
	if err != nil {
		return err
	}
	a := idAssigner{known: map[int64]string{}, used: map[int64]string{}, keep: keep}
	a.max, _ = m.int(propMaxColumnID)
	if err := a.assign(s.Fields); err != nil {
		return err
	}
	m.SchemaString = s.String()
	m.Configuration[propColumnMapping] = mode
	m.Configuration[propMaxColumnID] = strconv.FormatInt(a.max, 10)
	return nil
}

// idAssigner gives fields ids and physical names.
type idAssigner struct {
	max   int64            // the greatest id that was ever given
	known map[int64]string // physical names of the fields that the table has, by id
	used  map[int64]string // paths of the fields that were seen, by id
	keep  bool             // physical names are the names
}

// know takes note of a field that the table has.
func (a *idAssigner) know(path []string, f *Field) error {
	id, ok := f.metaInt(metaColumnID)
	if !ok {
		return corrupt("column %q has no %s, though columns are mapped", strings.Join(path, "."), metaColumnID)
	}
	a.known[id], _ = f.metaText(metaPhysical)
	a.max = max(a.max, id)
	return nil
}

// assign completes the fields. Those that have ids come first, so that no new one takes theirs.
func (a *idAssigner) assign(fields []Field) error {
	if err := eachField(fields, nil, a.check); err != nil {
		return err
	}
	return eachField(fields, nil, a.complete)
}

func (a *idAssigner) check(path []string, f *Field) error {
	id, ok := f.metaInt(metaColumnID)
	if !ok {
		return nil
	}
	name := strings.Join(path, ".")
	if other, twice := a.used[id]; twice {
		return fmt.Errorf("columns %q and %q have the same %s %d", other, name, metaColumnID, id)
	}
	a.used[id] = name
	known, here := a.known[id]
	physical, _ := f.metaText(metaPhysical)
	switch {
	case here && known != physical:
		return fmt.Errorf("column %q: found the physical name %q, wanted %q: the id %d is that of another column",
			name, physical, known, id)
	case !here && len(a.known) > 0 && id <= a.max:
		return fmt.Errorf("column %q: the id %d was given to another column; ids above %d are free", name, id, a.max)
	}
	a.max = max(a.max, id)
	return nil
}

func (a *idAssigner) complete(_ []string, f *Field) error {
	if _, ok := f.metaInt(metaColumnID); !ok {
		a.max++
		if err := f.setMeta(metaColumnID, a.max); err != nil {
			return err
		}
	}
	if _, ok := f.metaText(metaPhysical); ok {
		return nil
	}
	name := f.Name
	if !a.keep {
		name = "col-" + uuid.NewString()
	}
	return f.setMeta(metaPhysical, name)
}
