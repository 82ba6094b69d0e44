package format

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// Infer returns the columns of known, those of the rows of these records and of the keys of deleted ones, and
// the columns of the source. Of records with a schema it takes the types that the schema says; where two of
// them differ, one that holds both. It is nil when known is nil and no record tells a type.
func (f *Debezium) Infer(payloads []freshet.Payload, known *arrow.Schema) (*arrow.Schema, error) {
	var root shape
	var zip gunzipper
	s := &scanner{maxDepth: f.json.opts.MaxDepth, bareFloats: true}
	for _, p := range payloads {
		value := s.validRecord(f.json.unpacked(&zip, p.Value), f.json.opts.MaxBytes)
		told := false
		if value != nil {
			told = f.observe(&root, s, value)
		}
		deleted := p.Value == nil && f.opts.Flattened || value != nil && isDelete(value)
		if !told && deleted && p.Key != nil {
			if key := s.validRecord(p.Key, f.json.opts.MaxBytes); key != nil {
				schema, payload := split(key)
				observeRow(&root, schema, payload)
			}
		}
	}
	if f.opts.Flattened {
		for _, p := range flattened() {
			forget(&root, []string{p.name})
		}
	}
	dropNamed(&root, strings.ToLower(string(f.placeholder.bytes)))
	return f.withSource(f.json.schemaOf(&root, known)), nil
}

// dropNamed drops the fields of that name in all objects within.
func dropNamed(s *shape, lower string) {
	delete(s.fields, lower)
	for _, f := range s.fields {
		dropNamed(&f.shape, lower)
	}
	if s.element != nil {
		dropNamed(s.element, lower)
	}
}

// withSource appends the columns of the source that the schema lacks.
func (f *Debezium) withSource(schema *arrow.Schema) *arrow.Schema {
	if schema == nil {
		return nil
	}
	fields := schema.Fields()
	for _, name := range f.opts.Source {
		if !schema.HasField("_" + name) {
			field, _ := SourceField(name)
			fields = append(fields, field)
		}
	}
	if len(fields) == schema.NumFields() {
		return schema
	}
	meta := schema.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// split returns the schema and the payload of a valid record: nil and the record where it has no schema.
func split(record []byte) (schema *connectSchema, payload []byte) {
	var schemaText []byte
	count := 0
	members(record, func(key, value []byte) {
		count++
		switch string(key) {
		case "schema":
			schemaText = value
		case "payload":
			payload = value
		}
	})
	if count != 2 || schemaText == nil || payload == nil || schemaText[0] != '{' && schemaText[0] != 'n' {
		return nil, record
	}
	if schemaText[0] == '{' {
		schema = parseConnect(schemaText)
	}
	return schema, payload
}

// observe adds the columns of a change. It returns false when the record has no row.
func (f *Debezium) observe(root *shape, s *scanner, record []byte) bool {
	schema, payload := split(record)
	if payload[0] != '{' {
		return false
	}
	if f.opts.Flattened {
		return observeRow(root, schema, payload)
	}
	after := fieldOf(payload, "after")
	if after == nil && f.opts.TrustBefore {
		after = fieldOf(payload, "before")
	}
	if fieldOf(payload, "op") == nil || after == nil {
		return false
	}
	if after[0] == '"' {
		text, end := s.text(after, 1)
		if end == failed {
			return false
		}
		document := s.validRecord(slices.Clone(text), f.json.opts.MaxBytes)
		if document == nil || !observeRow(root, nil, document) {
			return false
		}
		if isObject(fieldOf(document, "_id")) {
			root.observe([]byte(`{"_id":""}`)) // as text, since no column with fields of its own can be a key
		}
		return true
	}
	return observeRow(root, schema.row(false), after)
}

// observeRow adds the columns of a row: those of its schema, if it has one.
func observeRow(root *shape, schema *connectSchema, row []byte) bool {
	switch {
	case len(row) == 0 || row[0] != '{':
		return false
	case schema != nil && len(schema.Fields) > 0:
		root.observeDeclared(schema)
	default:
		root.observe(row)
	}
	return true
}

// fieldOf returns the value of a field of a valid object; nil if it has none, or null.
func fieldOf(object []byte, name string) (found []byte) {
	members(object, func(key, value []byte) {
		if string(key) == name && value[0] != 'n' {
			found = value
		}
	})
	return found
}

// isDelete reports whether a valid record is a change that a row is gone whose key has the names of its columns,
// which MongoDB's has not.
func isDelete(record []byte) bool {
	_, payload := split(record)
	if payload[0] != '{' || string(fieldOf(payload, "op")) != `"d"` {
		return false
	}
	source := fieldOf(payload, "source")
	return !isObject(source) || string(fieldOf(source, "connector")) != `"mongodb"`
}
