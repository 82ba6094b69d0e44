package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// TypeNames are the column types that a file may name.
const TypeNames = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, " +
	"date, timestamp, " +
	"timestamp_ntz, json, struct<name: type, …>, array<type>, map<string, type>"

var plainTypes = map[string]arrow.DataType{
	"boolean": arrow.FixedWidthTypes.Boolean, "bool": arrow.FixedWidthTypes.Boolean,
	"tinyint": arrow.PrimitiveTypes.Int8, "byte": arrow.PrimitiveTypes.Int8,
	"smallint": arrow.PrimitiveTypes.Int16, "short": arrow.PrimitiveTypes.Int16,
	"int": arrow.PrimitiveTypes.Int32, "integer": arrow.PrimitiveTypes.Int32,
	"bigint": arrow.PrimitiveTypes.Int64, "long": arrow.PrimitiveTypes.Int64,
	"float": arrow.PrimitiveTypes.Float32, "real": arrow.PrimitiveTypes.Float32,
	"double": arrow.PrimitiveTypes.Float64,
	"string": arrow.BinaryTypes.String, "varchar": arrow.BinaryTypes.String, "text": arrow.BinaryTypes.String,
	"binary":        arrow.BinaryTypes.Binary,
	"date":          arrow.FixedWidthTypes.Date32,
	"timestamp":     &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	"timestamp_ntz": &arrow.TimestampType{Unit: arrow.Microsecond},
	"json":          arrow.BinaryTypes.String,
}

// Column is a column that a file gives: `decimal(18,2) not null`.
type Column struct {
	Type    arrow.DataType
	NotNull bool
	JSON    bool // a string that holds any value as its JSON text
	Text    string
	at      *node
}

// field is the column as the decoder wants it.
func (c Column) field(name string) arrow.Field {
	if c.JSON {
		return format.JSONText(name, !c.NotNull)
	}
	return arrow.Field{Name: name, Type: c.Type, Nullable: !c.NotNull}
}

func columnType(into *Column) shape { return typeShape{into} }

type typeShape struct{ into *Column }

func (t typeShape) read(r *reader, n *node) {
	if n.open {
		return
	}
	if n.kind != scalar {
		r.add(n.where, freshet.CodeBadValue, "types are "+TypeNames, "found %s, wanted a column type", r.found(n))
		return
	}
	c, err := ParseColumn(n.text)
	if err != nil {
		var bad *typeError
		at := n.where
		fix := "types are " + TypeNames
		if errors.As(err, &bad) {
			at = n.at(1, bad.col, max(1, len(bad.found)))
			if near := nearest(bad.found, typeWords()); len(near) > 0 {
				fix = fmt.Sprintf("did you mean %q?", near[0])
			}
		}
		r.add(at, freshet.CodeBadValue, fix, "column type: found %q, wanted %s", bad.found, bad.wanted)
		return
	}
	*t.into = c
	t.into.at = n
}

func (t typeShape) schema() map[string]any {
	return map[string]any{"type": "string", "description": "A column type, then perhaps `not null`. Types: " +
		TypeNames,
		"examples": []string{"bigint not null", "decimal(18,2)", "array<string>"}}
}

func typeWords() []string {
	words := []string{"decimal", "struct", "array", "map"}
	for w := range plainTypes {
		words = append(words, w)
	}
	return words
}

type typeError struct {
	col           int // from 1, in characters
	found, wanted string
}

func (e *typeError) Error() string {
	return fmt.Sprintf("column type, character %d: found %q, wanted %s", e.col, e.found, e.wanted)
}

// ParseColumn reads a column type as SQL writes it: `decimal(18,2) not null`. Case does not matter. Errors
// say the character.
func ParseColumn(text string) (Column, error) {
	p := typeParser{text: text}
	c := Column{Text: strings.TrimSpace(text)}
	p.space()
	c.JSON = strings.EqualFold(p.peek(), "json")
	t, err := p.typ(0)
	if err != nil {
		return c, err
	}
	c.Type = t
	c.NotNull, err = p.notNull()
	if err == nil && p.pos < len(p.text) {
		err = p.fail("not null, or the end")
	}
	return c, err
}

// SplitColumns reads columns as CREATE TABLE lists them: `id bigint not null, tags array<string>`. A colon
// may stand after a name. The types are not looked at.
func SplitColumns(text string) ([]Named[string], error) {
	var columns []Named[string]
	depth, from := 0, 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) {
			switch text[i] {
			case '<', '(':
				depth++
			case '>', ')':
				depth--
			}
			if text[i] != ',' || depth > 0 {
				continue
			}
		}
		part := strings.TrimSpace(text[from:i])
		end := strings.IndexAny(part, ": \t\n")
		if end < 1 {
			return nil, fmt.Errorf("found %q, wanted a name and a type", part)
		}
		columns = append(columns, Named[string]{Name: part[:end],
			Value: strings.TrimSpace(strings.TrimPrefix(part[end:], ":"))})
		from = i + 1
	}
	return columns, nil
}

// typeParser is a recursive descent over the text of a type.
type typeParser struct {
	text string
	pos  int
}

const maxTypeDepth = 32

func (p *typeParser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// peek is the word that comes next, or the one character that is none.
func (p *typeParser) peek() string {
	end := p.pos
	for end < len(p.text) && isNameByte(p.text[end]) {
		end++
	}
	if end == p.pos && end < len(p.text) {
		end++
	}
	return p.text[p.pos:end]
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func (p *typeParser) next() string {
	w := p.peek()
	p.pos += len(w)
	p.space()
	return w
}

func (p *typeParser) fail(wanted string) error {
	return &typeError{col: len([]rune(p.text[:p.pos])) + 1, found: p.peek(), wanted: wanted}
}

func (p *typeParser) want(w string) error {
	if !strings.EqualFold(p.peek(), w) {
		return p.fail(w)
	}
	p.next()
	return nil
}

func (p *typeParser) notNull() (bool, error) {
	if !strings.EqualFold(p.peek(), "not") {
		return false, nil
	}
	p.next()
	return true, p.want("null")
}

func (p *typeParser) typ(depth int) (arrow.DataType, error) {
	if depth > maxTypeDepth {
		return nil, p.fail(fmt.Sprintf("types nested at most %d deep", maxTypeDepth))
	}
	name := strings.ToLower(p.peek())
	if t, ok := plainTypes[name]; ok {
		p.next()
		return t, nil
	}
	switch name {
	case "decimal", "numeric":
		p.next()
		return p.decimal()
	case "array":
		p.next()
		return p.array(depth)
	case "map":
		p.next()
		return p.mapType(depth)
	case "struct":
		p.next()
		return p.structType(depth)
	}
	return nil, p.fail("a type")
}

func (p *typeParser) decimal() (arrow.DataType, error) {
	d := &arrow.Decimal128Type{Precision: 10}
	if p.peek() != "(" {
		return d, nil
	}
	p.next()
	var err error
	if d.Precision, err = p.digits(1, 38); err != nil {
		return nil, err
	}
	if p.peek() == "," {
		p.next()
		if d.Scale, err = p.digits(0, int64(d.Precision)); err != nil {
			return nil, err
		}
	}
	return d, p.want(")")
}

func (p *typeParser) digits(low, high int64) (int32, error) {
	v, err := strconv.ParseInt(p.peek(), 10, 32)
	if err != nil || v < low || v > high {
		return 0, p.fail(fmt.Sprintf("a number from %d to %d", low, high))
	}
	p.next()
	return int32(v), nil
}

func (p *typeParser) array(depth int) (arrow.DataType, error) {
	if err := p.want("<"); err != nil {
		return nil, err
	}
	element, err := p.typ(depth + 1)
	if err != nil {
		return nil, err
	}
	notNull, err := p.notNull()
	if err != nil {
		return nil, err
	}
	f := arrow.Field{Name: "element", Type: element, Nullable: !notNull}
	return arrow.ListOfField(f), p.want(">")
}

func (p *typeParser) mapType(depth int) (arrow.DataType, error) {
	if err := p.want("<"); err != nil {
		return nil, err
	}
	if err := p.want("string"); err != nil {
		return nil, err
	}
	if err := p.want(","); err != nil {
		return nil, err
	}
	value, err := p.typ(depth + 1)
	if err != nil {
		return nil, err
	}
	notNull, err := p.notNull()
	if err != nil {
		return nil, err
	}
	t := arrow.MapOf(arrow.BinaryTypes.String, value)
	t.SetItemNullable(!notNull)
	return t, p.want(">")
}

func (p *typeParser) structType(depth int) (arrow.DataType, error) {
	if err := p.want("<"); err != nil {
		return nil, err
	}
	var fields []arrow.Field
	for {
		name := p.peek()
		if name == "" || !isNameByte(name[0]) {
			return nil, p.fail("a field's name")
		}
		p.next()
		if p.peek() == ":" {
			p.next()
		}
		c := Column{JSON: strings.EqualFold(p.peek(), "json")}
		var err error
		if c.Type, err = p.typ(depth + 1); err != nil {
			return nil, err
		}
		if c.NotNull, err = p.notNull(); err != nil {
			return nil, err
		}
		fields = append(fields, c.field(name))
		if p.peek() != "," {
			return arrow.StructOf(fields...), p.want(">")
		}
		p.next()
	}
}
