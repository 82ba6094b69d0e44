package expr

import (
	"fmt"
	"strings"
)

// Parse reads one expression. Errors: *Error of kind Syntax.
func Parse(src string) (*Expr, error) {
	p, err := newParser(src)
	if err != nil {
		return nil, err
	}
	root, err := p.whole()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokEnd {
		return nil, p.unexpected("an operator or the end")
	}
	return &Expr{root: root}, nil
}

// ParseNamed reads `expression` or `expression AS name`. Without AS, a column or field is named after itself,
// and anything else has the name "". Errors: *Error of kind Syntax.
func ParseNamed(src string) (e *Expr, as string, err error) {
	p, err := newParser(src)
	if err != nil {
		return nil, "", err
	}
	root, err := p.whole()
	if err != nil {
		return nil, "", err
	}
	if n, ok := root.(*name); ok {
		as = n.parts[len(n.parts)-1]
	}
	named, err := p.acceptWord("AS")
	if err != nil {
		return nil, "", err
	}
	if named {
		if as, err = p.identifier("a name after AS"); err != nil {
			return nil, "", err
		}
	}
	if p.tok.kind != tokEnd {
		return nil, "", p.unexpected("AS or the end")
	}
	return &Expr{root: root}, as, nil
}

// parser is recursive descent with one token of look-ahead. After an error it is not used again.
type parser struct {
	lex   lexer
	tok   token
	depth int
}

func newParser(src string) (*parser, error) {
	if len(src) > MaxLength {
		at := place{1, 1, 1}
		return nil, at.fault(Syntax,
			fmt.Sprintf("the expression has %d bytes, more than %d", len(src), MaxLength))
	}
	p := &parser{lex: lexer{src: src, line: 1, col: 1}}
	return p, p.advance()
}

func (p *parser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

func (p *parser) unexpected(wanted string) *Error {
	err := p.tok.at.fault(Syntax, "the expression does not parse")
	err.Found, err.Wanted = p.tok.describe(), wanted
	return err
}

// enter bounds the recursion; every call is paired with leave.
func (p *parser) enter() error {
	p.depth++
	if p.depth > MaxDepth {
		return deepFault(p.tok.at)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

func (p *parser) isWord(word string) bool {
	return p.tok.kind == tokWord && strings.EqualFold(p.tok.text, word)
}

func (p *parser) isSymbol(symbol string) bool {
	return p.tok.kind == tokSymbol && p.tok.text == symbol
}

func (p *parser) acceptWord(word string) (bool, error) {
	if !p.isWord(word) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) acceptSymbol(symbol string) (bool, error) {
	if !p.isSymbol(symbol) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expectWord(word string) error {
	if !p.isWord(word) {
		return p.unexpected(word)
	}
	return p.advance()
}

func (p *parser) expectSymbol(symbol string) error {
	if !p.isSymbol(symbol) {
		return p.unexpected(symbol)
	}
	return p.advance()
}

func (p *parser) identifier(wanted string) (string, error) {
	quoted := p.tok.kind == tokQuoted
	if !quoted && p.tok.kind != tokWord {
		return "", p.unexpected(wanted)
	}
	text := p.tok.text
	return text, p.advance()
}

// whole parses a complete expression and refuses trees that are deep on the left, which the descent does not
// see.
func (p *parser) whole() (syntax, error) {
	root, err := p.or()
	if err != nil {
		return nil, err
	}
	if deep := tooDeep(root, 1); deep != nil {
		return nil, deepFault(deep.where())
	}
	return root, nil
}

func deepFault(at place) *Error {
	return at.fault(Syntax, fmt.Sprintf("the expression is nested deeper than %d levels", MaxDepth))
}

// tooDeep returns a node below MaxDepth, nil when there is none.
func tooDeep(s syntax, depth int) syntax {
	if depth > MaxDepth {
		return s
	}
	for _, c := range children(s) {
		if deep := tooDeep(c, depth+1); deep != nil {
			return deep
		}
	}
	return nil
}
