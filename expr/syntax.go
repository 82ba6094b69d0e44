package expr

import "github.com/apache/arrow-go/v18/arrow"

// syntax is a node of the parsed text. Only the forms that differ in meaning are kept: BETWEEN and IN stay,
// for printing; parentheses do not.
type syntax interface {
	where() place
}

type literalKind uint8

const (
	litNull literalKind = iota
	litBool
	litNumber
	litString
	litDate
	litTimestamp
	litTimestampNTZ
	litInterval
)

type (
	// literal is a value as written: text is the number, what the quotes stand for, or TRUE or FALSE.
	literal struct {
		place
		kind literalKind
		text string
		unit string // of INTERVAL '1' DAY; "" for INTERVAL '1 day'
	}
	// name is a column, or a column's field: a.b.c.
	name struct {
		place
		parts []string
	}
	// field is a field of what is no plain name: f(x).b.
	field struct {
		place
		of   syntax
		name string
	}
	// index is x[i].
	index struct {
		place
		of, at syntax
	}
	// negate is unary minus.
	negate struct {
		place
		of syntax
	}
	not struct {
		place
		of syntax
	}
	// chain is AND, OR or || of two or more.
	chain struct {
		place
		op   string
		args []syntax
	}
	// infix is arithmetic or comparison. op is canonical: "<>" for !=, "<=>" for IS NOT DISTINCT FROM.
	infix struct {
		place
		op   string
		a, b syntax
	}
	// is tests for NULL, TRUE, FALSE.
	is struct {
		place
		of   syntax
		what string
		not  bool
	}
	between struct {
		place
		of, low, high syntax
		not           bool
	}
	in struct {
		place
		of   syntax
		list []syntax
		not  bool
	}
	like struct {
		place
		of, pattern syntax
		escape      syntax // nil when there is none
		fold        bool   // ILIKE
		not         bool
	}
	caseOf struct {
		place
		operand   syntax // nil for CASE WHEN condition
		when      []when
		otherwise syntax // nil when there is no ELSE
	}
	when struct {
		cond, then syntax
	}
	cast struct {
		place
		of  syntax
		to  arrow.DataType
		try bool
	}
	call struct {
		place
		name string // lower case
		args []syntax
	}
)

func (p place) where() place { return p }

// children are the operands of a node, in the order of the text.
func children(s syntax) []syntax {
	switch s := s.(type) {
	case *field:
		return []syntax{s.of}
	case *index:
		return []syntax{s.of, s.at}
	case *negate:
		return []syntax{s.of}
	case *not:
		return []syntax{s.of}
	case *chain:
		return s.args
	case *infix:
		return []syntax{s.a, s.b}
	case *is:
		return []syntax{s.of}
	case *between:
		return []syntax{s.of, s.low, s.high}
	case *in:
		return append([]syntax{s.of}, s.list...)
	case *like:
		if s.escape != nil {
			return []syntax{s.of, s.pattern, s.escape}
		}
		return []syntax{s.of, s.pattern}
	case *caseOf:
		return caseChildren(s)
	case *cast:
		return []syntax{s.of}
	case *call:
		return s.args
	case *sparkOf:
		return []syntax{s.of}
	}
	return nil
}

func caseChildren(s *caseOf) []syntax {
	var out []syntax
	if s.operand != nil {
		out = append(out, s.operand)
	}
	for _, w := range s.when {
		out = append(out, w.cond, w.then)
	}
	if s.otherwise != nil {
		out = append(out, s.otherwise)
	}
	return out
}
