package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Name returns the expression that is a column, or a field within one: its parts from the outside in.
func Name(parts ...string) *Expr { return &Expr{&name{parts: slices.Clone(parts)}} }

// And returns the expression that is true where all of them are; nil ones count as true, and of none the
// result is nil.
func And(list ...*Expr) *Expr { return joined("AND", list) }

// Or returns the expression that is true where one of them is; nil ones are left out, and of none the result
// is nil.
func Or(list ...*Expr) *Expr { return joined("OR", list) }

func joined(op string, list []*Expr) *Expr {
	var args []syntax
	for _, e := range list {
		if e == nil {
			continue
		}
		if c, ok := e.root.(*chain); ok && c.op == op {
			args = append(args, c.args...)
			continue
		}
		args = append(args, e.root)
	}
	switch len(args) {
	case 0:
		return nil
	case 1:
		return &Expr{args[0]}
	}
	return &Expr{&chain{place: args[0].where(), op: op, args: args}}
}

// Not returns the negation: true where e is false, null where e is null.
func Not(e *Expr) *Expr { return &Expr{&not{e.root.where(), e.root}} }

// IsNull returns the expression that is true where e is null.
func IsNull(e *Expr) *Expr { return &Expr{&is{place: e.root.where(), of: e.root, what: "NULL"}} }

// Compare returns the comparison of two expressions: op is one of = <> < <= > >= <=>.
func Compare(op string, a, b *Expr) *Expr { return &Expr{&infix{a.root.where(), op, a.root, b.root}} }

// Cast returns the checked cast of e to a type.
func (e *Expr) Cast(to arrow.DataType) *Expr {
	return &Expr{&cast{place: e.root.where(), of: e.root, to: to}}
}

// Conjuncts returns what must all be true for e to be: the operands of AND, or e alone.
func (e *Expr) Conjuncts() []*Expr {
	c, ok := e.root.(*chain)
	if !ok || c.op != "AND" {
		return []*Expr{e}
	}
	out := make([]*Expr, len(c.args))
	for i, a := range c.args {
		out[i] = &Expr{a}
	}
	return out
}

// Equality returns the sides of e when it is a comparison for being equal; nulls tells whether two nulls are
// equal in it (<=>).
func (e *Expr) Equality() (a, b *Expr, nulls, ok bool) {
	i, ok := e.root.(*infix)
	if !ok || i.op != "=" && i.op != "<=>" {
		return nil, nil, false, false
	}
	return &Expr{i.a}, &Expr{i.b}, i.op == "<=>", true
}

// Names returns the columns and fields that e names, each as its parts, in the order of the text, repeated as
// often as they stand there. What only looks like a column (current_date) is among them.
func (e *Expr) Names() [][]string {
	var out [][]string
	var walk func(syntax)
	walk = func(s syntax) {
		if n, ok := s.(*name); ok {
			out = append(out, slices.Clone(n.parts))
		}
		for _, c := range children(s) {
			walk(c)
		}
	}
	walk(e.root)
	return out
}

// Rename returns e with every name replaced by what to makes of it; e stays as it is. The first error of to
// ends it, as an *Error of kind UnknownColumn at the name.
func (e *Expr) Rename(to func(parts []string) ([]string, error)) (*Expr, error) {
	root, err := renamed(e.root, func(n *name) (*name, error) {
		if specialName(n) != nil {
			return n, nil
		}
		parts, err := to(n.parts)
		if err != nil {
			return nil, n.fault(UnknownColumn, err.Error())
		}
		return &name{n.place, parts}, nil
	})
	if err != nil {
		return nil, err
	}
	return &Expr{root}, nil
}

// renamed copies a tree with other names.
func renamed(s syntax, to func(*name) (*name, error)) (syntax, error) {
	var fault error
	sub := func(s syntax) syntax {
		if s == nil || fault != nil {
			return s
		}
		var out syntax
		if out, fault = renamed(s, to); fault != nil {
			return s
		}
		return out
	}
	subs := func(list []syntax) []syntax {
		out := make([]syntax, len(list))
		for i, s := range list {
			out[i] = sub(s)
		}
		return out
	}
	switch s := s.(type) {
	case *name:
		return to(s)
	case *field:
		return &field{s.place, sub(s.of), s.name}, fault
	case *index:
		return &index{s.place, sub(s.of), sub(s.at)}, fault
	case *negate:
		return &negate{s.place, sub(s.of)}, fault
	case *not:
		return &not{s.place, sub(s.of)}, fault
	case *chain:
		return &chain{s.place, s.op, subs(s.args)}, fault
	case *infix:
		return &infix{s.place, s.op, sub(s.a), sub(s.b)}, fault
	case *is:
		return &is{s.place, sub(s.of), s.what, s.not}, fault
	case *between:
		return &between{s.place, sub(s.of), sub(s.low), sub(s.high), s.not}, fault
	case *in:
		return &in{s.place, sub(s.of), subs(s.list), s.not}, fault
	case *like:
		return &like{s.place, sub(s.of), sub(s.pattern), sub(s.escape), s.fold, s.not}, fault
	case *caseOf:
		whens := make([]when, len(s.when))
		for i, w := range s.when {
			whens[i] = when{sub(w.cond), sub(w.then)}
		}
		return &caseOf{s.place, sub(s.operand), whens, sub(s.otherwise)}, fault
	case *cast:
		return &cast{s.place, sub(s.of), s.to, s.try}, fault
	case *call:
		return &call{s.place, s.name, subs(s.args)}, fault
	case *literal:
		return s, nil
	case *sparkOf:
		of := sub(s.of)
		return &sparkOf{s.place, of, printed(of)}, fault
	}
	panic(fmt.Sprintf("expr: unknown syntax %T", s)) //nolint:forbidigo // the parser makes no other
}

// Literal returns value i of an array as an expression; ok is false for nulls and for values that SQL has no
// literal for: nested ones, binary, NaN and infinities, moments beyond the years 1 to 9999.
func Literal(arr arrow.Array, i int) (e *Expr, ok bool) {
	if arr.IsNull(i) {
		return nil, false
	}
	l := &literal{}
	switch a := arr.(type) {
	case *array.Boolean:
		l.kind, l.text = litBool, strings.ToUpper(strconv.FormatBool(a.Value(i)))
	case *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Decimal128:
		l.kind, l.text = litNumber, arr.ValueStr(i)
	case *array.Float32:
		return floatLiteral(float64(a.Value(i)), 32)
	case *array.Float64:
		return floatLiteral(a.Value(i), 64)
	case *array.String:
		l.kind, l.text = litString, strings.Clone(a.Value(i))
	case *array.Date32:
		return momentLiteral(litDate, a.Value(i).ToTime(), "2006-01-02")
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit
		return momentLiteral(litTimestamp, a.Value(i).ToTime(unit), "2006-01-02 15:04:05.999999")
	default:
		return nil, false
	}
	return &Expr{l}, true
}

func floatLiteral(v float64, bits int) (*Expr, bool) {
	if v-v != 0 { // NaN and the infinities
		return nil, false
	}
	text := strconv.FormatFloat(v, 'e', -1, bits)
	return &Expr{&literal{kind: litNumber, text: strings.Replace(text, "e+", "e", 1)}}, true
}

func momentLiteral(kind literalKind, t time.Time, layout string) (*Expr, bool) {
	if t.Year() < 1 || t.Year() > 9999 {
		return nil, false
	}
	return &Expr{&literal{kind: kind, text: t.UTC().Format(layout)}}, true
}
