package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSchemaDepth bounds how deep types nest; parsing is quadratic in it.
const maxSchemaDepth = 100

// maxSchemaJSON is how deep the JSON of a schema nests: a struct is an object that has a list of objects.
const maxSchemaJSON = 3*maxSchemaDepth + maxJSONDepth

// ParseSchema parses the JSON form of a schema. Metadata of fields is kept as it stands. Names are not checked, since
// a table with column mapping may have any. Spec: "Schema Serialization Format".
func ParseSchema(text string) (*Schema, error) {
	data := []byte(text)
	if !json.Valid(data) {
		var v any
		return nil, fmt.Errorf("parse schema: %w", json.Unmarshal(data, &v))
	}
	t, err := parseType(data, "", 0)
	if err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	s, ok := t.(*Struct)
	if !ok {
		return nil, fmt.Errorf("parse schema: found %s, wanted a struct", t)
	}
	return &Schema{Fields: s.Fields}, nil
}

// typeJSON is a type that has parts, each as JSON; nil: it is not there.
type typeJSON struct {
	kind                            string
	fields, element, key, value     []byte
	containsNull, valueContainsNull bool
}

func (t *typeJSON) parse(raw []byte) error {
	t.containsNull, t.valueContainsNull = true, true
	r := &jsonReader{data: raw, most: maxSchemaJSON}
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "type":
			t.kind, err = r.str()
		case "fields":
			t.fields, err = r.raw()
		case "elementType":
			t.element, err = r.raw()
		case "containsNull":
			t.containsNull, err = r.boolOr(true)
		case "keyType":
			t.key, err = r.raw()
		case "valueType":
			t.value, err = r.raw()
		case "valueContainsNull":
			t.valueContainsNull, err = r.boolOr(true)
		default:
			err = r.skip()
		}
		return err
	})
}

func parseType(raw []byte, path string, depth int) (Type, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("column %q: types nest deeper than %d", path, maxSchemaDepth)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return nil, fmt.Errorf("column %q: no type", path)
	}
	if raw[0] == '"' {
		name, err := (&jsonReader{data: raw}).str()
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", path, err)
		}
		return parsePrimitive(name, path)
	}
	var t typeJSON
	if err := t.parse(raw); err != nil {
		return nil, fmt.Errorf("column %q: %w", path, err)
	}
	switch t.kind {
	case "struct":
		return parseStruct(t.fields, path, depth)
	case "array":
		element, err := parseType(t.element, columnPath(path, "element"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Array{Element: element, ContainsNull: t.containsNull}, nil
	case "map":
		key, err := parseType(t.key, columnPath(path, "key"), depth+1)
		if err != nil {
			return nil, err
		}
		value, err := parseType(t.value, columnPath(path, "value"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Map{Key: key, Value: value, ValueContainsNull: t.valueContainsNull}, nil
	}
	return nil, unknownType(path, t.kind)
}

// parseStruct parses a list of fields, one after another: of many that are none the first is an error.
func parseStruct(fields []byte, path string, depth int) (Type, error) {
	if fields == nil {
		return &Struct{Fields: []Field{}}, nil
	}
	r := &jsonReader{data: fields, most: maxSchemaJSON}
	n, err := r.count()
	if err != nil {
		return nil, fmt.Errorf("column %q: its fields: %w", path, err)
	}
	s := &Struct{Fields: make([]Field, 0, min(n, len(fields)/leastField))}
	err = r.array(func() error {
		f, err := parseField(r, path, depth)
		s.Fields = append(s.Fields, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// leastField is how many bytes the JSON of a field has at least.
const leastField = len(`{"name":"","type":"byte"}`)

// parseField consumes a field of the struct at the path.
func parseField(r *jsonReader, path string, depth int) (f Field, err error) {
	var raw, meta []byte
	named := false
	f.Nullable = true
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			named = r.peek() == '"'
			f.Name, err = r.str()
		case "type":
			raw, err = r.raw()
		case "nullable":
			f.Nullable, err = r.boolOr(true)
		case "metadata":
			meta, err = r.raw()
		default:
			err = r.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return f, fmt.Errorf("column %q: a field of it: %w", path, err)
	case !named:
		return f, fmt.Errorf("column %q: a field has no name", path)
	}
	if f.Type, err = parseType(raw, columnPath(path, f.Name), depth+1); err != nil {
		return f, err
	}
	if m := bytes.TrimSpace(meta); len(m) > 0 && string(m) != "{}" && string(m) != "null" {
		f.Metadata = bytes.Clone(m)
	}
	return f, nil
}

var primitives = []Primitive{Byte, Short, Integer, Long, Float, Double, Boolean, String, Binary, Date, Timestamp, TimestampNTZ,
	Void, Variant}

func parsePrimitive(name, path string) (Type, error) {
	if at := slices.Index(primitives, Primitive(name)); at >= 0 {
		return primitives[at], nil // one text for all
	}
	switch {
	case name == "timestampWithoutTimezone": // what previews of timestamp_ntz wrote
		return TimestampNTZ, nil
	case name == "null":
		return Void, nil
	case name == "decimal":
		return Decimal{10, 0}, nil
	case strings.HasPrefix(name, "decimal(") && strings.HasSuffix(name, ")"):
		d, err := parseDecimal(name[len("decimal(") : len(name)-1])
		if err != nil {
			return nil, fmt.Errorf("column %q: type %q: %w", path, name, err)
		}
		return d, nil
	}
	return nil, unknownType(path, name)
}

// unknownType is a type of the table's schema that we do not know.
func unknownType(path, name string) error {
	return &UnsupportedError{Feature: fmt.Sprintf("the type %q in the column %q", name, path)}
}

func parseDecimal(args string) (Decimal, error) {
	p, s, ok := strings.Cut(args, ",")
	if !ok {
		s = "0"
	}
	precision, err := strconv.Atoi(strings.TrimSpace(p))
	if err != nil {
		return Decimal{}, err
	}
	scale, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return Decimal{}, err
	}
	if precision < 1 || precision > 38 || scale < 0 || scale > precision {
		return Decimal{}, errors.New("the precision must be 1 to 38, the scale 0 to the precision")
	}
	return Decimal{precision, scale}, nil
}

func columnPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// String returns the schema's JSON in the order of keys that Spark writes.
func (s *Schema) String() string {
	return string(appendType(nil, &Struct{Fields: s.Fields}))
}

func appendType(b []byte, t Type) []byte {
	switch t := t.(type) {
	case *Struct:
		b = append(b, `{"type":"struct","fields":[`...)
		for i, f := range t.Fields {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendField(b, f)
		}
		return append(b, "]}"...)
	case *Array:
		b = append(b, `{"type":"array","elementType":`...)
		b = appendType(b, t.Element)
		b = append(b, `,"containsNull":`...)
		return append(strconv.AppendBool(b, t.ContainsNull), '}')
	case *Map:
		b = append(b, `{"type":"map","keyType":`...)
		b = appendType(b, t.Key)
		b = append(b, `,"valueType":`...)
		b = appendType(b, t.Value)
		b = append(b, `,"valueContainsNull":`...)
		return append(strconv.AppendBool(b, t.ValueContainsNull), '}')
	}
	return appendJSONString(b, t.String())
}

func appendField(b []byte, f Field) []byte {
	b = append(b, `{"name":`...)
	b = appendJSONString(b, f.Name)
	b = append(b, `,"type":`...)
	b = appendType(b, f.Type)
	b = append(b, `,"nullable":`...)
	b = strconv.AppendBool(b, f.Nullable)
	b = append(b, `,"metadata":`...)
	if f.Metadata == nil {
		b = append(b, "{}"...)
	} else {
		b = append(b, f.Metadata...)
	}
	return append(b, '}')
}

// appendJSONString appends s as JSON with only the escapes that JSON asks for.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < 0x20:
			b = append(b, `\u00`...)
			b = append(b, hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
