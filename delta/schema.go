package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schema is the ordered columns of a table, as its metadata declares them. Spec: "Schema Serialization Format".
type Schema struct {
	Fields []Field
}

// Field is one column, or one field of a struct.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
	// Metadata is the field's metadata as the JSON object that was parsed, byte for byte; nil stands for {}.
	Metadata json.RawMessage
}

// Type is one of Primitive, Decimal, *Struct, *Array and *Map.
type Type interface {
	// String is the type as a person writes it: "long", "decimal(10,2)", "struct<a:long>", "array<string>".
	String() string
	deltaType()
}

// Primitive is a type without parameters, under Delta's name for it.
type Primitive string

// The primitive types. Void and Variant can be read as schemas, but no rows are written for them.
const (
	Byte         Primitive = "byte"    // int8
	Short        Primitive = "short"   // int16
	Integer      Primitive = "integer" // int32
	Long         Primitive = "long"    // int64
	Float        Primitive = "float"
	Double       Primitive = "double"
	Boolean      Primitive = "boolean"
	String       Primitive = "string"
	Binary       Primitive = "binary"
	Date         Primitive = "date"          // days, proleptic Gregorian
	Timestamp    Primitive = "timestamp"     // µs since the epoch, an instant
	TimestampNTZ Primitive = "timestamp_ntz" // µs, a wall clock of no zone
	Void         Primitive = "void"
	Variant      Primitive = "variant"
)

// Decimal is an exact number of at most Precision (1 to 38) digits, Scale (0 to Precision) of them after the point.
type Decimal struct {
	Precision, Scale int
}

// Struct is a group of fields.
type Struct struct {
	Fields []Field
}

// Array is a list of elements of one type.
type Array struct {
	Element      Type
	ContainsNull bool
}

// Map is a set of entries; keys are never null.
type Map struct {
	Key, Value        Type
	ValueContainsNull bool
}

func (Primitive) deltaType() {}
func (Decimal) deltaType()   {}
func (*Struct) deltaType()   {}
func (*Array) deltaType()    {}
func (*Map) deltaType()      {}

func (p Primitive) String() string { return string(p) }

func (d Decimal) String() string {
	return "decimal(" + strconv.Itoa(d.Precision) + "," + strconv.Itoa(d.Scale) + ")"
}

func (s *Struct) String() string {
	parts := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		parts[i] = f.Name + ":" + f.Type.String()
	}
	return "struct<" + strings.Join(parts, ",") + ">"
}

func (a *Array) String() string { return "array<" + a.Element.String() + ">" }

func (m *Map) String() string { return "map<" + m.Key.String() + "," + m.Value.String() + ">" }

// Equal reports whether two types hold the same values, nullability included; metadata is not compared.
func Equal(a, b Type) bool {
	switch a := a.(type) {
	case *Struct:
		b, ok := b.(*Struct)
		return ok && slices.EqualFunc(a.Fields, b.Fields, func(x, y Field) bool {
			return x.Name == y.Name && x.Nullable == y.Nullable && Equal(x.Type, y.Type)
		})
	case *Array:
		b, ok := b.(*Array)
		return ok && a.ContainsNull == b.ContainsNull && Equal(a.Element, b.Element)
	case *Map:
		b, ok := b.(*Map)
		return ok && a.ValueContainsNull == b.ValueContainsNull && Equal(a.Key, b.Key) && Equal(a.Value, b.Value)
	}
	return a == b
}

// Lookup returns the top-level column of that name, its case ignored, and its position; -1 when there is none.
func (s *Schema) Lookup(name string) (*Field, int) {
	return lookupField(s.Fields, name)
}

func lookupField(fields []Field, name string) (*Field, int) {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i], i
		}
	}
	for i := range fields {
		if strings.EqualFold(fields[i].Name, name) {
			return &fields[i], i
		}
	}
	return nil, -1
}

// forbidden are the characters that Parquet readers stumble over in names, so that a table without column mapping
// may not use them. Spec: "Column Mapping".
const forbidden = " ,;{}()\n\t="

// Validate reports every name that a table without column mapping may not have (one that is empty, holds one of
// the characters " ,;{}()\n\t=", or equals another of its struct ignoring case) and every decimal out of range.
func (s *Schema) Validate() error { return s.validate(byName) }

// validate is Validate for a table whose columns are mapped like that: with a mapping, names may hold any character.
func (s *Schema) validate(m mapping) error {
	return errors.Join(validateFields(s.Fields, "", m)...)
}

func validateFields(fields []Field, prefix string, m mapping) (faults []error) {
	seen := make(map[string]string, len(fields))
	for _, f := range fields {
		path := prefix + f.Name
		if f.Name == "" {
			faults = append(faults, fmt.Errorf("column %q: the name is empty", path))
		}
		if i := strings.IndexAny(f.Name, forbidden); i >= 0 && m == byName {
			faults = append(faults, fmt.Errorf("column %q: the name holds %q; the characters %q are not allowed, "+
				"rename the column, or have the table map columns by name (delta.columnMapping.mode = name)", path, f.Name[i], forbidden))
		}
		folded := strings.ToLower(f.Name)
		if other, dup := seen[folded]; dup {
			faults = append(faults, fmt.Errorf("columns %q and %q: names must differ in more than case",
				prefix+other, path))
		}
		seen[folded] = f.Name
		faults = append(faults, validateType(f.Type, path, m)...)
	}
	return faults
}

func validateType(t Type, path string, m mapping) []error {
	switch t := t.(type) {
	case Decimal:
		if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
			return []error{fmt.Errorf("column %q: %s is out of range; the precision is 1 to 38, the scale 0 to the "+
				"precision", path, t)}
		}
	case *Struct:
		return validateFields(t.Fields, path+".", m)
	case *Array:
		return validateType(t.Element, path+".element", m)
	case *Map:
		return append(validateType(t.Key, path+".key", m), validateType(t.Value, path+".value", m)...)
	}
	return nil
}

// checkPartitionColumns checks that the columns exist, are atomic, are named once and leave a column for the files.
func checkPartitionColumns(s *Schema, names []string) error {
	seen := make(map[int]bool)
	for _, name := range names {
		f, i := s.Lookup(name)
		if f == nil {
			return fmt.Errorf("partition column %q: the schema has no such column", name)
		}
		if seen[i] {
			return fmt.Errorf("partition column %q is named twice", name)
		}
		seen[i] = true
		switch f.Type.(type) {
		case *Struct, *Array, *Map:
			return fmt.Errorf("partition column %q: %s cannot partition a table; use an atomic type", name, f.Type)
		}
		if f.Type == Void || f.Type == Variant {
			return fmt.Errorf("partition column %q: %s cannot partition a table", name, f.Type)
		}
	}
	if len(names) > 0 && len(seen) == len(s.Fields) {
		return errors.New("all columns are partition columns: a table needs at least one other")
	}
	return nil
}
