package delta

import (
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// statsParser turns the statistics' JSON into the columns of stats_parsed. What the JSON does not have, or
// what does not fit the column's type, is null: absent statistics never hide rows.
type statsParser struct {
	fields []Field // of stats_parsed
	root   *statsNode
	tokens [][]byte // by leaf: the JSON value; nil where there is none
}

// statsNode is a struct of stats_parsed, or a leaf.
type statsNode struct {
	typ      Type // of a leaf
	leaf     int  // of a leaf: its index among the tokens
	children []*statsNode
	names    map[string]int // of the children
	seen     bool           // the JSON of the row has this struct
}

func newStatsParser(meta *Metadata, schema *Schema, clustered []string) (*statsParser, error) {
	rules := newStatsRules(meta.Configuration, clustered)
	walk := &statsColumns{rules: &rules, mapping: mappingOf(meta.Configuration)}
	for _, f := range schema.Fields {
		if isPartition(meta, f.Name) || !storable(f.Type) {
			continue
		}
		column, err := walk.mapping.parquetColumn(f, f.Name)
		if err != nil {
			return nil, err
		}
		bounds, nulls := walk.column(f, &column, nil)
		walk.bounds, walk.nulls = append(walk.bounds, bounds...), append(walk.nulls, nulls...)
	}
	p := &statsParser{fields: []Field{nullable("numRecords", Long)}}
	if len(walk.bounds) > 0 {
		p.fields = append(p.fields, nullable("minValues", structOf(walk.bounds...)),
			nullable("maxValues", structOf(walk.bounds...)))
	}
	if len(walk.nulls) > 0 {
		p.fields = append(p.fields, nullable("nullCount", structOf(walk.nulls...)))
	}
	if rules.tightBounds {
		p.fields = append(p.fields, nullable("tightBounds", Boolean))
	}
	p.root = p.node(structOf(p.fields...))
	return p, nil
}

func isPartition(meta *Metadata, name string) bool {
	for _, p := range meta.PartitionColumns {
		if p == name {
			return true
		}
	}
	return false
}

// storable reports whether files can hold values of the type.
func storable(t Type) bool {
	if t == Void || t == Variant {
		return false
	}
	for _, f := range below(t) {
		if !storable(f.Type) {
			return false
		}
	}
	return true
}

// statsColumns finds the columns that have statistics, by their names in files.
type statsColumns struct {
	rules         *statsRules
	mapping       mapping
	leaves        int
	bounds, nulls []Field
}

// column returns the parts of a column, or of a field below it, that have bounds and counts of nulls.
func (s *statsColumns) column(f Field, c *parquet.Column, path []*parquet.Column) (bounds, nulls []Field) {
	path = append(path, c)
	name := s.mapping.physicalName(&f)
	if t, ok := f.Type.(*Struct); ok {
		for i, child := range t.Fields {
			b, n := s.column(child, &c.Children[i], path)
			bounds, nulls = append(bounds, b...), append(nulls, n...)
		}
		if len(bounds) > 0 {
			bounds = []Field{nullable(name, structOf(bounds...))}
		}
		if len(nulls) > 0 {
			nulls = []Field{nullable(name, structOf(nulls...))}
		}
		return bounds, nulls
	}
	s.leaves++
	if !s.rules.wants(s.leaves-1, path) {
		return nil, nil
	}
	if hasBounds(f.Type) {
		bounds = []Field{nullable(name, f.Type)}
	}
	return bounds, []Field{nullable(name, Long)}
}

// hasBounds reports whether Spark keeps least and greatest values of the type.
func hasBounds(t Type) bool {
	switch t.(type) {
	case *Array, *Map:
		return false
	}
	return t != Boolean && t != Binary
}

func (p *statsParser) node(t Type) *statsNode {
	s, ok := t.(*Struct)
	if !ok {
		p.tokens = append(p.tokens, nil)
		return &statsNode{typ: t, leaf: len(p.tokens) - 1}
	}
	n := &statsNode{names: map[string]int{}}
	for i, f := range s.Fields {
		n.names[f.Name] = i
		n.children = append(n.children, p.node(f.Type))
	}
	return n
}

// append adds a row to the builder of stats_parsed.
func (p *statsParser) append(b *array.StructBuilder, stats string) {
	clear(p.tokens)
	p.root.forget()
	if stats == "" {
		b.AppendNull()
		return
	}
	r := &jsonReader{data: unsafe.Slice(unsafe.StringData(stats), len(stats))} // which nobody writes to
	if err := p.read(r, p.root); err != nil || !r.end() {
		b.AppendNull()
		return
	}
	p.write(b, p.root)
}

func (n *statsNode) forget() {
	n.seen = false
	for _, c := range n.children {
		c.forget()
	}
}

func (p *statsParser) read(r *jsonReader, n *statsNode) error {
	if n.names == nil {
		token, err := r.raw()
		p.tokens[n.leaf] = token
		return err
	}
	if r.peek() != '{' {
		return r.skip()
	}
	n.seen = true
	return r.object(func(key []byte) error {
		if i, ok := n.names[string(key)]; ok {
			return p.read(r, n.children[i])
		}
		return r.skip()
	})
}

func (p *statsParser) write(b array.Builder, n *statsNode) {
	if n.names == nil {
		if text, ok := p.text(n.leaf); !ok || !appendText(b, n.typ, text) {
			b.AppendNull()
		}
		return
	}
	s := b.(*array.StructBuilder)
	if !n.seen {
		s.AppendNull()
		return
	}
	s.Append(true)
	for i, c := range n.children {
		p.write(s.FieldBuilder(i), c)
	}
}

// text is a leaf's value as a text, mostly a part of the JSON; there is none when it is absent or null.
func (p *statsParser) text(leaf int) (text string, ok bool) {
	token := p.tokens[leaf]
	if len(token) == 0 || token[0] == 'n' {
		return "", false
	}
	if token[0] == '"' {
		r := &jsonReader{data: token}
		var err error
		if token, err = r.text(); err != nil {
			return "", false
		}
	}
	return unsafe.String(unsafe.SliceData(token), len(token)), true
}

// appendParsed appends the value that a text stands for; null when there is none or it does not fit the type.
func appendParsed(b array.Builder, t Type, text *string) {
	if text == nil || !appendText(b, t, *text) {
		b.AppendNull()
	}
}

// appendText reports whether the text was a value of the type, and then has appended it.
func appendText(b array.Builder, t Type, s string) bool {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(s)
		return true
	case *array.BinaryBuilder:
		b.Append([]byte(s))
		return true
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(s)
		return appendIf(err, b.Append, v)
	case *array.Int8Builder:
		v, err := strconv.ParseInt(s, 10, 8)
		return appendIf(err, b.Append, int8(v))
	case *array.Int16Builder:
		v, err := strconv.ParseInt(s, 10, 16)
		return appendIf(err, b.Append, int16(v))
	case *array.Int32Builder:
		v, err := strconv.ParseInt(s, 10, 32)
		return appendIf(err, b.Append, int32(v))
	case *array.Int64Builder:
		v, err := strconv.ParseInt(s, 10, 64)
		return appendIf(err, b.Append, v)
	case *array.Float32Builder:
		v, err := strconv.ParseFloat(s, 32)
		return appendIf(err, b.Append, float32(v))
	case *array.Float64Builder:
		v, err := strconv.ParseFloat(s, 64)
		return appendIf(err, b.Append, v)
	case *array.Decimal128Builder:
		v, err := parseDecimalValue(s, t.(Decimal))
		return appendIf(err, b.Append, v)
	case *array.Date32Builder:
		v, err := parseDate(s)
		return appendIf(err, b.Append, arrow.Date32(v))
	case *array.TimestampBuilder:
		v, err := parseMicros(s)
		return appendIf(err, b.Append, arrow.Timestamp(v))
	}
	return false
}

func appendIf[T any](err error, add func(T), v T) bool {
	if err == nil {
		add(v)
	}
	return err == nil
}
