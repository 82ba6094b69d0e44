package postgres

import (
	"github.com/freshet-io/freshet/internal/column"
)

// arrayDecoder reads arrays of one dimension: {a,"b c",NULL}. Of several, or with a lower bound that is not 1, they are
// beyond a list. Source: "Array Input and Output Syntax".
type arrayDecoder struct {
	store     *column.Lists
	element   *cell
	delimiter byte
	scratch   []byte
}

func (d *arrayDecoder) text(b []byte) verdict {
	switch {
	case len(b) > 0 && b[0] == '[':
		return beyond
	case len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}':
		return malformed
	}
	b = b[1 : len(b)-1]
	for len(b) > 0 {
		switch b[0] {
		case '{':
			return beyond
		case '"':
			value, rest, ok := quoted(b, &d.scratch)
			if !ok {
				return malformed
			}
			if v := d.element.text(value); v != taken {
				return v
			}
			b = rest
		default:
			n := 0
			for n < len(b) && b[n] != d.delimiter {
				if b[n] == '"' || b[n] == '{' || b[n] == '}' || b[n] == '\\' {
					return malformed
				}
				n++
			}
			if v := d.bare(b[:n]); v != taken {
				return v
			}
			b = b[n:]
		}
		if len(b) == 0 {
			break
		}
		if b[0] != d.delimiter || len(b) == 1 {
			return malformed
		}
		b = b[1:]
	}
	d.store.Finish()
	return taken
}

// bare appends an element without quotes, in which NULL is none.
func (d *arrayDecoder) bare(value []byte) verdict {
	switch {
	case len(value) == 0:
		return malformed
	case string(value) == "NULL":
		d.element.store.AppendNull()
		return taken
	}
	return d.element.text(value)
}

// quoted reads a text in quotes at the front of b, in which a backslash escapes what follows it, and which two quotes in
// a row do not end. The value is lent until the next call with this scratch. Behind it rest is empty or begins with
// what is no quote.
func quoted(b []byte, scratch *[]byte) (value, rest []byte, ok bool) {
	out := (*scratch)[:0]
	from := 1 // what is not yet in out
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			if i++; i == len(b) {
				return nil, nil, false
			}
			out = append(out, b[from:i-1]...)
			from = i
		case '"':
			if i+1 < len(b) && b[i+1] == '"' {
				out = append(out, b[from:i]...)
				i++
				from = i
				continue
			}
			if from == 1 {
				return b[1:i], b[i+1:], true
			}
			out = append(out, b[from:i]...)
			*scratch = out
			return out, b[i+1:], true
		}
	}
	return nil, nil, false
}

// vectorDecoder reads pgvector's vectors: [1,2.5,3].
type vectorDecoder struct {
	store   *column.Lists
	element *cell
}

func (d *vectorDecoder) text(b []byte) verdict {
	if len(b) < 2 || b[0] != '[' || b[len(b)-1] != ']' {
		return malformed
	}
	b = b[1 : len(b)-1]
	for from, i := 0, 0; i <= len(b) && len(b) > 0; i++ {
		if i == len(b) || b[i] == ',' {
			if v := d.element.text(b[from:i]); v != taken {
				return v
			}
			from = i + 1
		}
	}
	d.store.Finish()
	return taken
}

// structDecoder reads rows of a composite type: (a,"b ""c""",): nothing between two commas is null. Source: "Composite
// Type Input and Output Syntax".
type structDecoder struct {
	store      *column.Structs
	attributes []*cell // in the type's order; nil: it is left out
	scratch    []byte
}

func (d *structDecoder) text(b []byte) verdict {
	if len(b) < 2 || b[0] != '(' || b[len(b)-1] != ')' {
		return malformed
	}
	b = b[1 : len(b)-1]
	for i, a := range d.attributes {
		if i > 0 {
			if len(b) == 0 || b[0] != ',' {
				return malformed
			}
			b = b[1:]
		}
		value, null := b, false
		switch {
		case len(b) > 0 && b[0] == '"':
			var ok bool
			if value, b, ok = quoted(b, &d.scratch); !ok {
				return malformed
			}
		default:
			n := 0
			for n < len(b) && b[n] != ',' {
				if b[n] == '"' || b[n] == '\\' {
					return malformed
				}
				n++
			}
			value, b, null = b[:n], b[n:], n == 0
		}
		if v := append1(a, value, null); v != taken {
			return v
		}
	}
	if len(b) > 0 {
		return malformed
	}
	d.store.N++
	return taken
}

// append1 appends a value, or null, to the cell of an attribute, if it has one.
func append1(c *cell, value []byte, null bool) verdict {
	switch {
	case c == nil:
		return taken
	case null:
		c.store.AppendNull()
		return taken
	}
	return c.text(value)
}

// mapDecoder reads hstore: "k"=>"v", "n"=>NULL. Source: "hstore".
type mapDecoder struct {
	store      *column.Lists
	key, value *cell
	scratch    []byte
}

func (d *mapDecoder) text(b []byte) verdict {
	for first := true; len(b) > 0; first = false {
		if !first {
			if len(b) < 3 || b[0] != ',' || b[1] != ' ' {
				return malformed
			}
			b = b[2:]
		}
		rest, v := d.entry(b)
		if v != taken {
			return v
		}
		b = rest
	}
	d.store.Finish()
	return taken
}

// entry reads a key and its value at the front of b.
func (d *mapDecoder) entry(b []byte) (rest []byte, v verdict) {
	if len(b) == 0 || b[0] != '"' {
		return nil, malformed
	}
	key, b, ok := quoted(b, &d.scratch)
	if !ok || len(b) < 3 || b[0] != '=' || b[1] != '>' {
		return nil, malformed
	}
	if v := d.key.text(key); v != taken {
		return nil, v
	}
	b = b[2:]
	if len(b) >= 4 && string(b[:4]) == "NULL" {
		d.value.store.AppendNull()
		return b[4:], taken
	}
	if b[0] != '"' {
		return nil, malformed
	}
	value, b, ok := quoted(b, &d.scratch)
	if !ok {
		return nil, malformed
	}
	return b, d.value.text(value)
}
