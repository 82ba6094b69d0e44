package expr

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// isReserved tells whether an unquoted word cannot be a column's name.
func isReserved(word string) bool {
	switch strings.ToUpper(word) {
	case "AND", "OR", "NOT", "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN", "ELSE", "END", "IN", "IS",
		"LIKE", "ILIKE", "BETWEEN", "CAST", "TRY_CAST", "AS", "DISTINCT", "ESCAPE", "FROM", "DIV":
		return true
	}
	return false
}

func (p *parser) primary() (syntax, error) {
	t := p.tok
	switch {
	case t.kind == tokNumber:
		return p.sparkNumber(t), p.advance()
	case t.kind == tokString:
		return &literal{place: t.at, kind: litString, text: t.text}, p.advance()
	case t.kind == tokQuoted:
		return &name{t.at, []string{t.text}}, p.advance()
	case t.kind == tokWord:
		return p.word()
	case p.isSymbol("("):
		if err := p.advance(); err != nil {
			return nil, err
		}
		s, err := p.or()
		if err != nil {
			return nil, err
		}
		return s, p.expectSymbol(")")
	}
	return nil, p.unexpected("a column, a value or (")
}

func (p *parser) word() (syntax, error) {
	t := p.tok
	if err := p.advance(); err != nil {
		return nil, err
	}
	upper := strings.ToUpper(t.text)
	switch upper {
	case "TRUE", "FALSE":
		return &literal{place: t.at, kind: litBool, text: upper}, nil
	case "NULL":
		return &literal{place: t.at, kind: litNull}, nil
	case "CASE":
		return p.caseOf(t.at)
	case "CAST", "TRY_CAST":
		return p.cast(t.at, upper == "TRY_CAST")
	}
	if isReserved(t.text) {
		err := t.at.fault(Syntax, "the expression does not parse")
		err.Found, err.Wanted = t.text, "a column, a value or ("
		err.Hint = fmt.Sprintf("a column of that name is written %s", quoteName(t.text))
		return nil, err
	}
	switch {
	case p.isSymbol("("):
		return p.call(t)
	case upper == "INTERVAL" && (p.tok.kind == tokString || p.tok.kind == tokNumber || p.sparkMinus()):
		return p.interval(t.at)
	case p.tok.kind == tokString && upper == "DATE":
		return &literal{place: t.at, kind: litDate, text: p.tok.text}, p.advance()
	case p.tok.kind == tokString && (upper == "TIMESTAMP" || upper == "TIMESTAMP_LTZ"):
		return &literal{place: t.at, kind: litTimestamp, text: p.tok.text}, p.advance()
	case p.tok.kind == tokString && upper == "TIMESTAMP_NTZ":
		return &literal{place: t.at, kind: litTimestampNTZ, text: p.tok.text}, p.advance()
	}
	return &name{t.at, []string{t.text}}, nil
}

// interval parses what follows INTERVAL: '1 day 2 hours', '-1' DAY, 1 DAY.
func (p *parser) interval(at place) (syntax, error) {
	needsUnit := p.tok.kind == tokNumber
	l := &literal{place: at, kind: litInterval, text: p.tok.text}
	if err := p.advance(); err != nil {
		return nil, err
	}
	switch {
	case p.tok.kind == tokWord && intervalUnit(p.tok.text) != "":
		l.unit = intervalUnit(p.tok.text)
		if err := p.advance(); err != nil {
			return nil, err
		}
	case needsUnit:
		return nil, p.unexpected("a unit, as in INTERVAL 1 DAY")
	}
	if err := p.sparkInterval(l); err != nil {
		return nil, err
	}
	if _, err := parseInterval(l.text + " " + l.unit); err != nil {
		return nil, at.fault(Syntax, err.Error())
	}
	return l, nil
}

func (p *parser) call(t token) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	c := &call{place: t.at, name: strings.ToLower(t.text)}
	if c.name == "extract" {
		return p.extract(c)
	}
	args, err := p.arguments()
	c.args = args
	return c, err
}

// extract parses what follows EXTRACT( as date_part('unit', x).
func (p *parser) extract(c *call) (syntax, error) {
	at := p.tok.at
	unit, err := p.identifier("a unit, as in EXTRACT(YEAR FROM ts)")
	if err != nil {
		return nil, err
	}
	if err := p.expectWord("FROM"); err != nil {
		return nil, err
	}
	of, err := p.or()
	if err != nil {
		return nil, err
	}
	c.name = "date_part"
	c.args = []syntax{&literal{place: at, kind: litString, text: strings.ToLower(unit)}, of}
	return c, p.expectSymbol(")")
}

// arguments parses a list up to and with its closing parenthesis.
func (p *parser) arguments() ([]syntax, error) {
	var args []syntax
	if end, err := p.acceptSymbol(")"); end || err != nil {
		return nil, err
	}
	for {
		arg, err := p.or()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		more, err := p.acceptSymbol(",")
		if err != nil {
			return nil, err
		}
		if !more {
			if !p.isSymbol(")") {
				return nil, p.unexpected(", or )")
			}
			return args, p.advance()
		}
	}
}

func (p *parser) caseOf(at place) (syntax, error) {
	c := &caseOf{place: at}
	var err error
	if !p.isWord("WHEN") {
		if c.operand, err = p.or(); err != nil {
			return nil, err
		}
	}
	for {
		more, err := p.acceptWord("WHEN")
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		w, err := p.when()
		if err != nil {
			return nil, err
		}
		c.when = append(c.when, w)
	}
	if len(c.when) == 0 {
		return nil, p.unexpected("WHEN")
	}
	otherwise, err := p.acceptWord("ELSE")
	if err != nil {
		return nil, err
	}
	if otherwise {
		if c.otherwise, err = p.or(); err != nil {
			return nil, err
		}
	}
	if !p.isWord("END") {
		return nil, p.unexpected("WHEN, ELSE or END")
	}
	return c, p.advance()
}

func (p *parser) when() (w when, err error) {
	if w.cond, err = p.or(); err != nil {
		return w, err
	}
	if err = p.expectWord("THEN"); err != nil {
		return w, err
	}
	w.then, err = p.or()
	return w, err
}

func (p *parser) cast(at place, try bool) (syntax, error) {
	if err := p.expectSymbol("("); err != nil {
		return nil, err
	}
	of, err := p.or()
	if err != nil {
		return nil, err
	}
	if err := p.expectWord("AS"); err != nil {
		return nil, err
	}
	to, err := p.typeName()
	if err != nil {
		return nil, err
	}
	return &cast{at, of, to, try}, p.expectSymbol(")")
}

func (p *parser) typeName() (arrow.DataType, error) {
	t := p.tok
	if t.kind != tokWord {
		return nil, p.unexpected("a type: " + typeNames)
	}
	to := namedType(t.text)
	if to == nil {
		err := p.unexpected("one of " + typeNames)
		err.Msg = "there is no such type"
		err.Hint = suggest(t.text, strings.Split(typeWords, " "))
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if strings.EqualFold(t.text, "double") {
		if _, err := p.acceptWord("PRECISION"); err != nil {
			return nil, err
		}
	}
	if to.ID() != arrow.DECIMAL128 || !p.isSymbol("(") {
		return to, nil
	}
	return p.decimalType(t.at)
}

// decimalType parses (p) or (p, s).
func (p *parser) decimalType(at place) (arrow.DataType, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	precision, err := p.smallNumber()
	if err != nil {
		return nil, err
	}
	scale := 0
	more, err := p.acceptSymbol(",")
	if err == nil && more {
		scale, err = p.smallNumber()
	}
	if err != nil {
		return nil, err
	}
	if precision < 1 || precision > maxDigits || scale > precision {
		err := at.fault(Syntax, "a decimal's size is wrong")
		err.Found = fmt.Sprintf("decimal(%d, %d)", precision, scale)
		err.Wanted = fmt.Sprintf("decimal(p, s) with 1 <= p <= %d and s <= p", maxDigits)
		return nil, err
	}
	return decimalType(int32(precision), int32(scale)), p.expectSymbol(")")
}

func (p *parser) smallNumber() (int, error) {
	n, err := strconv.Atoi(p.tok.text)
	if p.tok.kind != tokNumber || err != nil || n > 1000 {
		return 0, p.unexpected("a number of digits")
	}
	return n, p.advance()
}
