package delta

import (
	"bytes"
	"fmt"
	"strings"
)

// Takes reports why data files that were written under other metadata do not belong into a table of this metadata: a
// column has another name or id in files, a value has become NOT NULL, a rule for rows was set since. Columns that only
// one of the two has are no reason, but for NOT NULL; nor are types, for which see Schema.Merge. It is nil when they
// belong.
func (m *Metadata) Takes(written *Metadata) error {
	if a, b := mappingOf(m.Configuration), mappingOf(written.Configuration); a != b && (a == byID || b != byName) {
		return fmt.Errorf("the table maps its columns otherwise than when the files were written")
	}
	for _, key := range sortedNames(m.Configuration) {
		if name, ok := strings.CutPrefix(key, propConstraint); ok && written.Configuration[key] != m.Configuration[key] {
			return fmt.Errorf("the table has a new CHECK constraint %q", name)
		}
	}
	now, err := m.Schema()
	if err != nil {
		return err
	}
	then, err := written.Schema()
	if err != nil {
		return err
	}
	return takesFields(now.Fields, then.Fields, "", mappingOf(written.Configuration) != byName)
}

// ruleKeys are the keys of a field's metadata that files depend on.
var ruleKeys = []string{metaGeneration, metaInvariants, metaIdentityStart, metaIdentityStep, metaLengths}

func takesFields(now, then []Field, path string, mapped bool) error {
	for i := range now {
		f, name := &now[i], columnPath(path, now[i].Name)
		old, _ := lookupField(then, f.Name)
		if !f.Nullable && (old == nil || old.Nullable) {
			return fmt.Errorf("its column %q has become NOT NULL", name)
		}
		if old == nil {
			continue
		}
		keys := ruleKeys
		if mapped {
			keys = append([]string{metaColumnID, metaPhysical}, keys...)
		}
		for _, key := range keys {
			if !bytes.Equal(f.metaValue(key), old.metaValue(key)) {
				return fmt.Errorf("its column %q has another %s", name, key)
			}
		}
		if err := takesFields(below(f.Type), below(old.Type), name, mapped); err != nil {
			return err
		}
	}
	return nil
}

// HighWater returns, by column, the last value that identity columns have given out; those that have given out none are
// not in it. Spec: "Identity Columns".
func (m *Metadata) HighWater() map[string]int64 {
	marks := map[string]int64{}
	if !strings.Contains(m.SchemaString, metaIdentityMark) {
		return marks
	}
	schema, err := m.Schema()
	if err != nil {
		return marks
	}
	for i := range schema.Fields {
		if mark, ok := schema.Fields[i].metaInt(metaIdentityMark); ok {
			marks[schema.Fields[i].Name] = mark
		}
	}
	return marks
}
