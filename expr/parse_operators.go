package expr

import "strings"

// The descent, from the operator that binds least:
//
//	or → and → not → predicate → concat → sum → product → unary → postfix → primary

func (p *parser) or() (syntax, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.chain("OR", p.and, func() bool { return p.isWord("OR") })
}

func (p *parser) and() (syntax, error) {
	return p.chain("AND", p.not, func() bool { return p.isWord("AND") })
}

func (p *parser) concat() (syntax, error) {
	if p.lex.spark { // || binds as + does
		return p.sum()
	}
	return p.chain("||", p.sum, func() bool { return p.isSymbol("||") })
}

// chain parses operands that are joined by one operator into a single node.
func (p *parser) chain(op string, operand func() (syntax, error), more func() bool) (syntax, error) {
	first, err := operand()
	if err != nil || !more() {
		return first, err
	}
	c := &chain{place: p.tok.at, op: op, args: []syntax{first}}
	for more() {
		if err := p.advance(); err != nil {
			return nil, err
		}
		arg, err := operand()
		if err != nil {
			return nil, err
		}
		c.args = append(c.args, arg)
	}
	return c, nil
}

func (p *parser) not() (syntax, error) {
	at := p.tok.at
	is, err := p.acceptWord("NOT")
	if !is && err == nil {
		is, err = p.acceptSymbol("!")
	}
	if err != nil {
		return nil, err
	}
	if !is {
		return p.predicate()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	of, err := p.not()
	if err != nil {
		return nil, err
	}
	return &not{at, of}, nil
}

func (p *parser) predicate() (syntax, error) {
	left, err := p.concat()
	for err == nil {
		before := left
		switch {
		case p.lex.spark && p.isRegexp():
			left, err = p.regexp(p.tok.at, left, false)
		case p.isWord("IS"):
			left, err = p.is(left)
		case p.isComparison():
			left, err = p.comparison(left)
		default:
			left, err = p.negatable(left)
		}
		if left == before {
			break
		}
	}
	return left, err
}

func (p *parser) isComparison() bool {
	if p.tok.kind != tokSymbol {
		return false
	}
	switch p.tok.text {
	case "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>":
		return true
	}
	return false
}

func (p *parser) comparison(left syntax) (syntax, error) {
	at, op := p.tok.at, p.tok.text
	switch op {
	case "==":
		op = "="
	case "!=":
		op = "<>"
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	right, err := p.concat()
	if err != nil {
		return nil, err
	}
	return &infix{at, op, left, right}, nil
}

func (p *parser) is(left syntax) (syntax, error) {
	at := p.tok.at
	if err := p.advance(); err != nil {
		return nil, err
	}
	negated, err := p.acceptWord("NOT")
	if err != nil {
		return nil, err
	}
	for _, what := range []string{"NULL", "TRUE", "FALSE"} {
		if p.isWord(what) {
			return &is{at, left, what, negated}, p.advance()
		}
	}
	if !p.isWord("DISTINCT") {
		return nil, p.unexpected("NULL, TRUE, FALSE or DISTINCT FROM")
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if err := p.expectWord("FROM"); err != nil {
		return nil, err
	}
	right, err := p.concat()
	if err != nil {
		return nil, err
	}
	same := &infix{at, "<=>", left, right}
	if negated {
		return same, nil
	}
	return &not{at, same}, nil
}

// negatable parses [NOT] BETWEEN, IN, LIKE and ILIKE; it returns left when none of them follows.
func (p *parser) negatable(left syntax) (syntax, error) {
	at := p.tok.at
	negated, err := p.acceptWord("NOT")
	if err != nil {
		return nil, err
	}
	switch {
	case p.isWord("BETWEEN"):
		return p.between(at, left, negated)
	case p.isWord("IN"):
		return p.in(at, left, negated)
	case p.isWord("LIKE"), p.isWord("ILIKE"):
		return p.like(at, left, negated)
	case p.lex.spark && p.isRegexp():
		return p.regexp(at, left, negated)
	case negated:
		return nil, p.unexpected("BETWEEN, IN, LIKE or ILIKE after NOT")
	}
	return left, nil
}

func (p *parser) between(at place, of syntax, negated bool) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	low, err := p.concat()
	if err != nil {
		return nil, err
	}
	if err := p.expectWord("AND"); err != nil {
		return nil, err
	}
	high, err := p.concat()
	if err != nil {
		return nil, err
	}
	return &between{at, of, low, high, negated}, nil
}

func (p *parser) in(at place, of syntax, negated bool) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if err := p.expectSymbol("("); err != nil {
		return nil, err
	}
	list, err := p.arguments()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, at.fault(Syntax, "the list of IN is empty")
	}
	return &in{at, of, list, negated}, nil
}

func (p *parser) like(at place, of syntax, negated bool) (syntax, error) {
	n := &like{place: at, of: of, fold: p.isWord("ILIKE"), not: negated}
	err := p.advance()
	if err == nil {
		n.pattern, err = p.concat()
	}
	if err != nil || !p.isWord("ESCAPE") {
		if p.lex.spark {
			n.escape = &literal{place: at, kind: litString, text: `\`}
		}
		return n, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	n.escape, err = p.concat()
	return n, err
}

func (p *parser) sum() (syntax, error) {
	return p.leftAssociative(p.product, func() string {
		if p.lex.spark && p.isSymbol("||") {
			return "||"
		}
		return p.symbolOf("+", "-")
	})
}

func (p *parser) product() (syntax, error) {
	return p.leftAssociative(p.unary, func() string {
		if p.isWord("DIV") {
			return "//"
		}
		return p.symbolOf("*", "/", "//", "%")
	})
}

func (p *parser) symbolOf(symbols ...string) string {
	for _, s := range symbols {
		if p.isSymbol(s) {
			return s
		}
	}
	return ""
}

func (p *parser) leftAssociative(operand func() (syntax, error), operator func() string) (syntax, error) {
	left, err := operand()
	for err == nil {
		at, op := p.tok.at, operator()
		if op == "" {
			break
		}
		if err = p.advance(); err != nil {
			break
		}
		var right syntax
		right, err = operand()
		if op == "||" {
			left = &chain{at, op, []syntax{left, right}}
			continue
		}
		left = &infix{at, op, left, right}
	}
	return left, err
}

func (p *parser) unary() (syntax, error) {
	at, op := p.tok.at, p.symbolOf("-", "+")
	if op == "" {
		return p.postfix()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	of, err := p.unary()
	if err != nil || op == "+" {
		return of, err
	}
	if l, ok := of.(*literal); ok && l.kind == litNumber && !strings.HasPrefix(l.text, "-") {
		return &literal{place: at, kind: litNumber, text: "-" + l.text}, nil
	}
	return &negate{at, of}, nil
}

// postfix parses x.field, x[i] and x::type.
func (p *parser) postfix() (syntax, error) {
	s, err := p.primary()
	for err == nil {
		at := p.tok.at
		switch {
		case p.isSymbol("."):
			s, err = p.field(s)
		case p.isSymbol("["):
			s, err = p.index(at, s)
		case p.isSymbol("::"):
			s, err = p.castTo(at, s)
		default:
			return s, nil
		}
	}
	return nil, err
}

func (p *parser) field(of syntax) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	at := p.tok.at
	part, err := p.identifier("the name of a field")
	if n, ok := of.(*name); ok {
		n.parts = append(n.parts, part)
		n.len += 1 + at.len
		return n, err
	}
	return &field{at, of, part}, err
}

func (p *parser) index(at place, of syntax) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	i, err := p.or()
	if err != nil {
		return nil, err
	}
	return &index{at, of, i}, p.expectSymbol("]")
}

func (p *parser) castTo(at place, of syntax) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	to, err := p.typeName()
	if err != nil {
		return nil, err
	}
	return &cast{at, of, to, false}, nil
}
