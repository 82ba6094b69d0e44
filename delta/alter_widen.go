package delta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// typeChange is an entry of delta.typeChanges. Spec: "Type Widening", "Type Change Metadata".
type typeChange struct {
	FromType     string `json:"fromType"`
	ToType       string `json:"toType"`
	FieldPath    string `json:"fieldPath,omitempty"`
	TableVersion *int64 `json:"tableVersion,omitempty"` // of the commit; only where typeWidening-preview is the feature
}

// datesTypeChanges reports whether each change of a type tells in which version it was made.
func (p *Protocol) datesTypeChanges() bool {
	return p.Supports("typeWidening-preview") && !p.Supports("typeWidening")
}

// dateTypeChanges corrects the version of the type changes that the transaction makes, which is known only once it is built:
// they were noted as those of the version after the one that it began with.
func (tx *Transaction) dateTypeChanges(m *Metadata, base *Snapshot) error {
	proto, _ := tx.next(base)
	noted, now := tx.base.version+1, base.version+1
	if noted == now || !proto.datesTypeChanges() {
		return nil
	}
	schema, err := m.Schema()
	if err != nil {
		return err
	}
	err = eachField(schema.Fields, nil, func(path []string, f *Field) error {
		var changes []typeChange
		old := f.metaValue(metaTypeChanges)
		if old == nil {
			return nil
		}
		if err := json.Unmarshal(old, &changes); err != nil {
			return corrupt("%s of column %q: %v", metaTypeChanges, strings.Join(path, "."), err)
		}
		for i := range changes {
			if v := changes[i].TableVersion; v != nil && *v == noted {
				changes[i].TableVersion = &now
			}
		}
		return f.setMeta(metaTypeChanges, changes)
	})
	m.SchemaString = schema.String()
	return err
}

// widen gives a column a wider type and notes that in the metadata of the field.
func (a *alteration) widen(path string, at columnPlace, to Type) error {
	from := at.get()
	if !Widens(from, to) {
		return fmt.Errorf("the type %s cannot become %s: that is no wider one", from, to)
	}
	if !a.meta.boolean(propTypeWidening, false) {
		return fmt.Errorf("the type %s can become %s only where the table property %s is true", from, to, propTypeWidening)
	}
	if err := a.unread(path); err != nil {
		return err
	}
	if hasKey(at.field.Metadata, metaIdentityStart) || hasKey(at.field.Metadata, metaGeneration) {
		return fmt.Errorf("the table computes the column: its type cannot change")
	}
	var changes []json.RawMessage
	if old := at.field.metaValue(metaTypeChanges); old != nil {
		if err := json.Unmarshal(old, &changes); err != nil {
			return corrupt("%s of column %q: %v", metaTypeChanges, path, err)
		}
	}
	change := typeChange{FromType: from.String(), ToType: to.String(), FieldPath: strings.Join(at.within, ".")}
	if a.proto.datesTypeChanges() {
		next := a.snap.version + 1
		change.TableVersion = &next
	}
	entry, err := json.Marshal(change)
	if err != nil {
		return err
	}
	at.set(to)
	return at.field.setMeta(metaTypeChanges, append(changes, entry))
}

// Widens reports whether every value of a type is one of the other, and files of the first can be read as the second.
// Spec: "Type Widening", "Supported Type Changes".
func Widens(from, to Type) bool {
	whole := []Type{Byte, Short, Integer, Long}
	i, j := slices.Index(whole, from), slices.Index(whole, to)
	d, decimal := to.(Decimal)
	old, wasDecimal := from.(Decimal)
	switch {
	case i >= 0 && j >= 0:
		return i < j
	case i >= 0 && to == Double:
		return from != Long
	case i >= 0 && decimal:
		digits := 10
		if from == Long {
			digits = 20
		}
		return d.Precision <= 38 && d.Scale >= 0 && d.Precision-d.Scale >= digits
	case from == Float:
		return to == Double
	case from == Date:
		return to == TimestampNTZ
	case wasDecimal && decimal:
		return d != old && d.Precision <= 38 && d.Scale >= old.Scale && d.Precision-d.Scale >= old.Precision-old.Scale
	}
	return false
}
