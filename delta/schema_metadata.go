package delta

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// metaEntry is one entry of a field's metadata; the value is as it was written.
type metaEntry struct {
	key   string
	value json.RawMessage
}

// metaEntries are the entries of a field's metadata in order. Metadata that is no object has none.
func metaEntries(raw json.RawMessage) ([]metaEntry, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the metadata of a field is no JSON object")
	}
	var all []metaEntry
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		e := metaEntry{key: key.(string)}
		if err := d.Decode(&e.value); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// metaValue is the value of a key, nil when the field has none.
func (f *Field) metaValue(key string) json.RawMessage {
	if !hasKey(f.Metadata, key) {
		return nil
	}
	all, err := metaEntries(f.Metadata)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(all, func(e metaEntry) bool { return e.key == key }); i >= 0 {
		return all[i].value
	}
	return nil
}

// metaText is the value of a key that is a string.
func (f *Field) metaText(key string) (text string, ok bool) {
	v := f.metaValue(key)
	return text, v != nil && json.Unmarshal(v, &text) == nil
}

// metaInt is the value of a key that is a whole number.
func (f *Field) metaInt(key string) (n int64, ok bool) {
	v := f.metaValue(key)
	return n, v != nil && json.Unmarshal(v, &n) == nil
}

// setMeta sets a key to the JSON of value, or takes it away when value is nil. All else stays as it is.
func (f *Field) setMeta(key string, value any) error {
	all, err := metaEntries(f.Metadata)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(e metaEntry) bool { return e.key == key })
	switch {
	case value == nil && i < 0:
		return nil
	case value == nil:
		all = slices.Delete(all, i, i+1)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if i < 0 {
			all = append(all, metaEntry{key, text})
		} else {
			all[i].value = text
		}
	}
	f.Metadata = nil
	if len(all) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i, e := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendJSONString(b, e.key), ':'), e.value...)
	}
	f.Metadata = append(b, '}')
	return nil
}

// cloneFields copies fields with all that is below them; metadata is shared, since setMeta makes it anew.
func cloneFields(fields []Field) []Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Type = cloneType(out[i].Type)
	}
	return out
}

func cloneType(t Type) Type {
	switch t := t.(type) {
	case *Struct:
		return &Struct{Fields: cloneFields(t.Fields)}
	case *Array:
		return &Array{Element: cloneType(t.Element), ContainsNull: t.ContainsNull}
	case *Map:
		return &Map{Key: cloneType(t.Key), Value: cloneType(t.Value), ValueContainsNull: t.ValueContainsNull}
	}
	return t
}

// eachField calls f for every field of a struct at any depth, parents first. Fields may be changed. path is the
// parts of its name, with "element", "key" and "value" on the way through arrays and maps; it is valid during the call.
func eachField(fields []Field, path []string, f func(path []string, field *Field) error) error {
	for i := range fields {
		at := append(path, fields[i].Name)
		if err := f(at, &fields[i]); err != nil {
			return err
		}
		if err := eachBelow(fields[i].Type, at, f); err != nil {
			return err
		}
	}
	return nil
}

func eachBelow(t Type, path []string, f func([]string, *Field) error) error {
	switch t := t.(type) {
	case *Struct:
		return eachField(t.Fields, path, f)
	case *Array:
		return eachBelow(t.Element, append(path, "element"), f)
	case *Map:
		if err := eachBelow(t.Key, append(path, "key"), f); err != nil {
			return err
		}
		return eachBelow(t.Value, append(path, "value"), f)
	}
	return nil
}
