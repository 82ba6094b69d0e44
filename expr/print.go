package expr

import (
	"strings"
)

// The levels of binding, from the weakest; an operand that binds weaker than its place asks for gets
// parentheses.
const (
	levelOr = iota
	levelAnd
	levelNot
	levelPredicate
	levelConcat
	levelSum
	levelProduct
	levelUnary
	levelPostfix
)

// printer writes canonical SQL: keywords in capitals, functions in small letters, parentheses where they are
// needed.
type printer struct {
	strings.Builder
}

func printed(s syntax) string {
	var p printer
	p.node(s, levelOr)
	return p.String()
}

func levelOf(s syntax) int {
	switch s := s.(type) {
	case *chain:
		return map[string]int{"OR": levelOr, "AND": levelAnd, "||": levelConcat}[s.op]
	case *not:
		return levelNot
	case *is, *between, *in, *like:
		return levelPredicate
	case *infix:
		switch s.op {
		case "+", "-":
			return levelSum
		case "*", "/", "//", "%":
			return levelProduct
		}
		return levelPredicate
	case *negate:
		return levelUnary
	case *literal:
		if s.kind == litNumber && strings.HasPrefix(s.text, "-") {
			return levelUnary
		}
	}
	return levelPostfix
}

// node prints s in a place that takes operators of level and above.
func (p *printer) node(s syntax, level int) {
	if levelOf(s) < level {
		p.WriteByte('(')
		defer p.WriteByte(')')
	}
	switch s := s.(type) {
	case *sparkOf:
		p.WriteString("(" + s.text + ")")
	case *literal:
		p.literal(s)
	case *name:
		for i, part := range s.parts {
			if i > 0 {
				p.WriteByte('.')
			}
			p.name(part, i == 0)
		}
	case *field:
		of := levelPostfix
		if l, is := s.of.(*literal); is && l.kind == litNumber {
			of++ // the point would be the number's
		}
		p.node(s.of, of)
		p.WriteByte('.')
		p.name(s.name, false)
	case *index:
		p.node(s.of, levelPostfix)
		p.WriteByte('[')
		p.node(s.at, levelOr)
		p.WriteByte(']')
	case *negate:
		p.WriteByte('-')
		p.node(s.of, levelPostfix)
	case *not:
		p.WriteString("NOT ")
		p.node(s.of, levelNot)
	case *chain:
		for i, a := range s.args {
			if i > 0 {
				p.WriteString(" " + s.op + " ")
			}
			p.node(a, levelOf(s)+1)
		}
	case *infix:
		p.infix(s)
	case *caseOf:
		p.caseOf(s)
	case *cast:
		p.cast(s)
	case *call:
		p.name(s.name, false)
		p.list(s.args)
	default:
		p.predicate(s)
	}
}

func (p *printer) infix(s *infix) {
	level := levelOf(s)
	left := level
	if level == levelPredicate {
		left = levelConcat
	}
	p.node(s.a, left)
	p.WriteString(" " + s.op + " ")
	p.node(s.b, level+1)
}

func (p *printer) predicate(s syntax) {
	negation := func(not bool) string {
		if not {
			return "NOT "
		}
		return ""
	}
	switch s := s.(type) {
	case *is:
		p.node(s.of, levelConcat)
		p.WriteString(" IS " + negation(s.not) + s.what)
	case *between:
		p.node(s.of, levelConcat)
		p.WriteString(" " + negation(s.not) + "BETWEEN ")
		p.node(s.low, levelConcat)
		p.WriteString(" AND ")
		p.node(s.high, levelConcat)
	case *in:
		p.node(s.of, levelConcat)
		p.WriteString(" " + negation(s.not) + "IN ")
		p.list(s.list)
	case *like:
		p.node(s.of, levelConcat)
		word := "LIKE "
		if s.fold {
			word = "ILIKE "
		}
		p.WriteString(" " + negation(s.not) + word)
		p.node(s.pattern, levelConcat)
		if s.escape != nil {
			p.WriteString(" ESCAPE ")
			p.node(s.escape, levelConcat)
		}
	}
}

func (p *printer) caseOf(s *caseOf) {
	p.WriteString("CASE")
	if s.operand != nil {
		p.WriteByte(' ')
		p.node(s.operand, levelOr)
	}
	for _, w := range s.when {
		p.WriteString(" WHEN ")
		p.node(w.cond, levelOr)
		p.WriteString(" THEN ")
		p.node(w.then, levelOr)
	}
	if s.otherwise != nil {
		p.WriteString(" ELSE ")
		p.node(s.otherwise, levelOr)
	}
	p.WriteString(" END")
}

func (p *printer) cast(s *cast) {
	if s.try {
		p.WriteString("TRY_")
	}
	p.WriteString("CAST(")
	p.node(s.of, levelOr)
	p.WriteString(" AS " + typeName(s.to) + ")")
}

func (p *printer) list(args []syntax) {
	p.WriteByte('(')
	for i, a := range args {
		if i > 0 {
			p.WriteString(", ")
		}
		p.node(a, levelOr)
	}
	p.WriteByte(')')
}

func (p *printer) literal(s *literal) {
	quoted := "'" + strings.ReplaceAll(s.text, "'", "''") + "'"
	switch s.kind {
	case litNull:
		p.WriteString("NULL")
	case litBool, litNumber:
		p.WriteString(s.text)
	case litString:
		p.WriteString(quoted)
	case litDate:
		p.WriteString("DATE " + quoted)
	case litTimestamp:
		p.WriteString("TIMESTAMP " + quoted)
	case litTimestampNTZ:
		p.WriteString("TIMESTAMP_NTZ " + quoted)
	case litInterval:
		p.WriteString("INTERVAL " + quoted)
		if s.unit != "" {
			p.WriteString(" " + strings.ToUpper(s.unit))
		}
	}
}

func (p *printer) name(text string, first bool) {
	if isSimpleName(text) && !(first && isReserved(text)) {
		p.WriteString(text)
		return
	}
	p.WriteString(quoteName(text))
}

func quoteName(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
