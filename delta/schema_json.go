package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSchemaDepth bounds how deep types nest; parsing is quadratic in it.
const maxSchemaDepth = 100

// ParseSchema parses the JSON form of a schema. Metadata of fields is kept as it stands. Names are not checked, since
// a table with column mapping may have any. Spec: "Schema Serialization Format".
func ParseSchema(text string) (*Schema, error) {
	t, err := parseType(json.RawMessage(text), "", 0)
	if err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	s, ok := t.(*Struct)
	if !ok {
		return nil, fmt.Errorf("parse schema: found %s, wanted a struct", t)
	}
	return &Schema{Fields: s.Fields}, nil
}

type fieldJSON struct {
	Name     *string         `json:"name"`
	Type     json.RawMessage `json:"type"`
	Nullable *bool           `json:"nullable"`
	Metadata json.RawMessage `json:"metadata"`
}

type typeJSON struct {
	Type              string          `json:"type"`
	Fields            []fieldJSON     `json:"fields"`
	ElementType       json.RawMessage `json:"elementType"`
	ContainsNull      *bool           `json:"containsNull"`
	KeyType           json.RawMessage `json:"keyType"`
	ValueType         json.RawMessage `json:"valueType"`
	ValueContainsNull *bool           `json:"valueContainsNull"`
}

func parseType(raw json.RawMessage, path string, depth int) (Type, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("column %q: types nest deeper than %d", path, maxSchemaDepth)
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil, fmt.Errorf("column %q: no type", path)
	}
	if raw[0] == '"' {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, fmt.Errorf("column %q: %w", path, err)
		}
		return parsePrimitive(name, path)
	}
	var t typeJSON
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, fmt.Errorf("column %q: %w", path, err)
	}
	switch t.Type {
	case "struct":
		return parseStruct(t.Fields, path, depth)
	case "array":
		element, err := parseType(t.ElementType, columnPath(path, "element"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Array{Element: element, ContainsNull: t.ContainsNull == nil || *t.ContainsNull}, nil
	case "map":
		key, err := parseType(t.KeyType, columnPath(path, "key"), depth+1)
		if err != nil {
			return nil, err
		}
		value, err := parseType(t.ValueType, columnPath(path, "value"), depth+1)
		if err != nil {
			return nil, err
		}
		return &Map{Key: key, Value: value, ValueContainsNull: t.ValueContainsNull == nil || *t.ValueContainsNull}, nil
	}
	return nil, fmt.Errorf("column %q: the type %q is not supported", path, t.Type)
}

func parseStruct(fields []fieldJSON, path string, depth int) (Type, error) {
	s := &Struct{Fields: make([]Field, 0, len(fields))}
	for _, f := range fields {
		if f.Name == nil {
			return nil, fmt.Errorf("column %q: a field has no name", path)
		}
		t, err := parseType(f.Type, columnPath(path, *f.Name), depth+1)
		if err != nil {
			return nil, err
		}
		field := Field{Name: *f.Name, Type: t, Nullable: f.Nullable == nil || *f.Nullable}
		if m := bytes.TrimSpace(f.Metadata); len(m) > 0 && string(m) != "{}" && string(m) != "null" {
			field.Metadata = bytes.Clone(m)
		}
		s.Fields = append(s.Fields, field)
	}
	return s, nil
}

func parsePrimitive(name, path string) (Type, error) {
	switch p := Primitive(name); p {
	case Byte, Short, Integer, Long, Float, Double, Boolean, String, Binary, Date, Timestamp, TimestampNTZ, Void,
		Variant:
		return p, nil
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
	return nil, fmt.Errorf("column %q: the type %q is not supported", path, name)
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
