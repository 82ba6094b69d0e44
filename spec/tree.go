package spec

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	freshet "github.com/freshet-io/freshet"
)

// kind is what stands at a place of a file.
type kind uint8

const (
	absent  kind = iota // null, or nothing
	scalar              // one value, as text
	list                // items
	mapping             // pairs
)

func (k kind) String() string { return [...]string{"nothing", "a value", "a list", "a mapping"}[k] }

// style is how a scalar is written, which tells where in the file each of its characters is.
type style uint8

const (
	plain style = iota
	singleQuoted
	doubleQuoted
	block  // | : lines stay lines
	folded // > or a plain scalar of several lines: the places of its characters are not followed
)

// node is a place of a file, or a flag that stands for one. It keeps where it is, so that every fault can say
// so.
type node struct {
	kind  kind
	text  string // of a scalar, variables replaced
	items []*node
	pairs []pair

	where place
	style style
	open  bool // it holds a variable that is not known now: any value may come
	quiet bool // it holds a secret, which no message may repeat
	moved bool // variables were replaced: places inside it are not followed
}

type pair struct {
	key   *node
	value *node
}

// place is a span of one line of a source.
type place struct {
	src   *source
	line  int // from 1; 0 when the source is a flag
	col   int // from 1, in characters
	width int // in characters
}

// String is how people read a place: file:line:col, or the flag.
func (p place) String() string {
	switch {
	case p.src == nil:
		return ""
	case p.line == 0:
		return p.src.name
	}
	return fmt.Sprintf("%s:%d:%d", p.src.name, p.line, p.col)
}

// source is a text that places point into.
type source struct {
	name  string
	lines []string
}

func newSource(name, text string) *source {
	return &source{name: name, lines: strings.Split(text, "\n")}
}

func (n *node) get(key string) *node {
	for _, p := range n.pairs {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// parse reads YAML text into a tree. Errors: a finding with CodeSyntax.
func parse(name string, text []byte) (root *node, err error) {
	src := newSource(name, string(text))
	defer func() {
		if p := recover(); p != nil { // the YAML library's own invariants are not ours to trust
			root, err = nil, syntaxError(place{src: src, line: 1, col: 1, width: 1}, fmt.Sprint("cannot be read: ", p))
		}
	}()
	if !utf8.Valid(text) {
		return nil, syntaxError(place{src: src, line: 1, col: 1, width: 1}, "is not UTF-8 text")
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fromYAML(src, err)
	}
	b := builder{src: src, anchors: map[string]*node{}}
	var docs []*node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		n, err := b.node(d.Body)
		if err != nil {
			return nil, err
		}
		docs = append(docs, n)
	}
	switch len(docs) {
	case 0:
		return &node{where: place{src: src, line: 1, col: 1, width: 1}}, nil
	case 1:
		return docs[0], nil
	}
	return nil, syntaxError(docs[1].where, "a second document: found several in one file, wanted one")
}

func syntaxError(at place, msg string) error {
	return &Finding{Fault: &freshet.Error{Code: freshet.CodeSyntax, Class: freshet.ClassInput, Msg: msg,
		Place: at.String()}, place: at}
}

func fromYAML(src *source, err error) error {
	at := place{src: src, line: 1, col: 1, width: 1}
	msg := err.Error()
	var y yaml.Error
	if errors.As(err, &y) {
		msg = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			at.line, at.col = t.Position.Line, max(1, t.Position.Column)
			at.width = max(1, utf8.RuneCountInString(strings.TrimSpace(t.Origin)))
		}
	}
	return syntaxError(at, "not YAML: "+msg)
}

// builder turns the library's tree into ours.
type builder struct {
	src     *source
	anchors map[string]*node
	depth   int
}

const maxDepth = 100

func (b *builder) node(a ast.Node) (*node, error) {
	b.depth++
	defer func() { b.depth-- }()
	n := &node{where: b.place(a)}
	if b.depth > maxDepth {
		return nil, syntaxError(n.where, fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	switch a := a.(type) {
	case *ast.NullNode:
		return n, nil
	case *ast.MappingNode:
		return n, b.mapping(n, a.Values)
	case *ast.MappingValueNode:
		return n, b.mapping(n, []*ast.MappingValueNode{a})
	case *ast.SequenceNode:
		return n, b.list(n, a.Values)
	case *ast.AnchorNode:
		value, err := b.node(a.Value)
		if err == nil {
			b.anchors[a.Name.String()] = value
		}
		return value, err
	case *ast.AliasNode:
		value, ok := b.anchors[a.Value.String()]
		if !ok {
			return nil, syntaxError(n.where, fmt.Sprintf("no anchor &%s before this", a.Value))
		}
		return value, nil
	case *ast.TagNode:
		return nil, syntaxError(n.where, "tags such as !!"+strings.TrimLeft(a.Start.Value, "!")+" are not taken")
	case *ast.LiteralNode:
		n.kind, n.text, n.style = scalar, a.Value.Value, block
		if strings.HasPrefix(a.Start.Value, ">") {
			n.style = folded
		}
		return n, nil
	default:
		b.scalar(n, a)
		return n, nil
	}
}

func (b *builder) list(n *node, values []ast.Node) error {
	n.kind = list
	for _, v := range values {
		item, err := b.node(v)
		if err != nil {
			return err
		}
		if text, ok := adjoined(v); ok {
			item = &node{kind: scalar, text: text, where: item.where}
			item.where.width = utf8.RuneCountInString(text)
		}
		n.items = append(n.items, item)
	}
	return nil
}

// adjoined is the text of an item such as localhost:9092. Within {…} the library takes it for a mapping, though YAML
// asks for a space behind the colon of one. Spec: YAML 1.2.2, "Flow Mappings".
func adjoined(a ast.Node) (string, bool) {
	m, ok := a.(*ast.MappingNode)
	if !ok || len(m.Values) != 1 || m.Start.Value != ":" {
		return "", false
	}
	key, value := m.Values[0].Key.GetToken(), m.Values[0].Value.GetToken()
	origin := strings.TrimSpace(key.Origin)
	if key.Position.Line != value.Position.Line || strings.ContainsAny(origin[:min(1, len(origin))], `"'`) ||
		strings.TrimSpace(value.Origin) != value.Value ||
		value.Position.Column != key.Position.Column+utf8.RuneCountInString(origin)+1 {
		return "", false
	}
	switch m.Values[0].Value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode:
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

func (b *builder) mapping(n *node, values []*ast.MappingValueNode) error {
	n.kind = mapping
	var merged []*node
	for _, v := range values {
		key, err := b.node(v.Key)
		if err != nil {
			return err
		}
		value, err := b.node(v.Value)
		if err != nil {
			return err
		}
		if v.Key.IsMergeKey() {
			if value.kind != mapping && value.kind != list {
				return syntaxError(value.where, "<<: found "+value.kind.String()+", wanted a mapping or a list of them")
			}
			merged = append(merged, value)
			continue
		}
		if key.kind == absent {
			key.kind, key.text = scalar, v.Key.GetToken().Value
		}
		if value.kind == absent { // it has no characters of its own: the key stands for it
			value.where = key.where
		}
		n.pairs = append(n.pairs, pair{key, value})
	}
	for _, m := range merged {
		n.inherit(m)
	}
	if len(n.pairs) > 0 && n.where.col > n.pairs[0].key.where.col && n.where.line == n.pairs[0].key.where.line {
		n.where = n.pairs[0].key.where
	}
	return nil
}

// inherit adds the pairs of a merge key, or of the list that stands behind it, whose keys n does not have yet: its own
// go first, then those of earlier mappings. Spec: yaml.org, "Merge Key".
func (n *node) inherit(m *node) {
	for _, item := range m.items {
		n.inherit(item)
	}
	for _, p := range m.pairs {
		if n.get(p.key.text) == nil {
			n.pairs = append(n.pairs, p)
		}
	}
}

// scalar fills n from a scalar, whose text is taken as it was written, so that 007 and 1e3 stay what they
// are.
func (b *builder) scalar(n *node, a ast.Node) {
	t := a.GetToken()
	n.kind, n.text = scalar, t.Value
	origin := strings.TrimSpace(t.Origin)
	switch {
	case strings.HasPrefix(origin, "'"):
		n.style = singleQuoted
	case strings.HasPrefix(origin, `"`):
		n.style = doubleQuoted
	}
	if strings.Contains(origin, "\n") {
		n.style = folded
	}
}

func (b *builder) place(a ast.Node) place {
	p := place{src: b.src, line: 1, col: 1, width: 1}
	t := a.GetToken()
	if t == nil || t.Position == nil {
		return p
	}
	p.line, p.col = t.Position.Line, max(1, t.Position.Column)
	first, _, _ := strings.Cut(strings.TrimSpace(t.Origin), "\n")
	p.width = max(1, utf8.RuneCountInString(first))
	return p
}

// at is the place of a character of a scalar's text; line and col count from 1.
func (n *node) at(line, col, width int) place {
	p := n.where
	if p.line == 0 || n.moved || n.style == folded {
		return p
	}
	switch n.style {
	case plain:
		p.col += col - 1
	case block:
		p.line += line
		p.col = n.blockIndent() + col
	case singleQuoted, doubleQuoted:
		p.col = n.quotedColumn(col)
	}
	p.width = width
	return p
}

// blockIndent is how many characters stand before each line of a block scalar: the indent of its first line
// that has any text.
func (n *node) blockIndent() int {
	for i := n.where.line; i < len(n.where.src.lines); i++ {
		line := n.where.src.lines[i]
		if rest := strings.TrimLeft(line, " "); strings.TrimSpace(rest) != "" {
			return len(line) - len(rest)
		}
	}
	return 0
}

// quotedColumn follows the escapes of a quoted scalar to the col-th character of its text.
func (n *node) quotedColumn(col int) int {
	runes := []rune(n.where.src.lines[n.where.line-1])
	i := n.where.col // the first character after the quote, counting from 0
	for c := 1; c < col && i < len(runes); c++ {
		i += escapeWidth(runes[i:], n.style)
	}
	return i + 1
}

// escapeWidth is how many characters of the file the next character of the text takes.
func escapeWidth(rest []rune, s style) int {
	if len(rest) < 2 {
		return 1
	}
	if s == singleQuoted {
		if rest[0] == '\'' && rest[1] == '\'' {
			return 2
		}
		return 1
	}
	if rest[0] != '\\' {
		return 1
	}
	switch rest[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
