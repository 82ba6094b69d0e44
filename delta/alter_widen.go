package delta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// typeChange is an entry of delta.typeChanges. Spec: "Type Widening", "Type Change Metadata".
type typeChange struct {
	FromType  string `json:"fromType"`
	ToType    string `json:"toType"`
	FieldPath string `json:"fieldPath,omitempty"`
}

// widen gives a column a wider type and notes that in the metadata of the field.
func (a *alteration) widen(path string, at columnPlace, to Type) error {
	from := at.get()
	if !mayBecome(from, to) {
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
	entry, err := json.Marshal(typeChange{from.String(), to.String(), strings.Join(at.within, ".")})
	if err != nil {
		return err
	}
	at.set(to)
	return at.field.setMeta(metaTypeChanges, append(changes, entry))
}

// mayBecome reports whether every value of a type is one of the other, and files of the first can be read as the second.
// Spec: "Type Widening", "Supported Type Changes".
func mayBecome(from, to Type) bool {
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
