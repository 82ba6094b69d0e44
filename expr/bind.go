package expr

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Bind settles columns and types for batches of this schema, of any of Arrow's layouts: a column takes part with its
// DenseType. A name is looked up as written, then ignoring case. Errors: *Error of kind BadType or UnknownColumn.
func (e *Expr) Bind(schema *arrow.Schema) (*Bound, error) {
	b := &binder{schema: schema, fields: schema.Fields()}
	root, err := b.bind(e.root)
	if err != nil {
		return nil, err
	}
	if kindOf(root.typ()) == kindInterval {
		return nil, e.root.where().typeFault("an interval is no result; add it to a date or a timestamp")
	}
	slices.Sort(b.columns)
	columns := slices.Compact(b.columns)
	return &Bound{expr: e, root: root, schema: schema, shared: b.shared, columns: columns}, nil
}

// BindCondition is Bind for an expression that must be boolean.
func (e *Expr) BindCondition(schema *arrow.Schema) (*Bound, error) {
	b, err := e.Bind(schema)
	if err != nil {
		return nil, err
	}
	if k := kindOf(b.Type()); k != kindBool && k != kindNull {
		fault := e.root.where().typeFault("a condition is true or false")
		fault.Found, fault.Wanted = typeName(b.Type()), "boolean"
		return nil, fault
	}
	return b, nil
}

type binder struct {
	spark   bool // the expression is in Spark's SQL
	schema  *arrow.Schema
	fields  []arrow.Field // of the schema, which copies them each time
	columns []int
	shared  int
}

func (b *binder) bind(s syntax) (node, error) {
	switch s := s.(type) {
	case *literal:
		return b.literal(s)
	case *name:
		return b.name(s)
	case *field:
		return b.field(s)
	case *index:
		return b.index(s)
	case *negate:
		return b.negate(s)
	case *not:
		return b.not(s)
	case *chain:
		return b.chain(s)
	case *infix:
		return b.infix(s)
	case *is:
		return b.is(s)
	case *between:
		return b.between(s)
	case *in:
		return b.in(s)
	case *like:
		return b.like(s)
	case *caseOf:
		return b.caseOf(s)
	case *sparkOf:
		return b.sparkOf(s)
	case *cast:
		of, err := b.bind(s.of)
		if err != nil {
			return nil, err
		}
		if b.spark {
			if n, err := sparkCast(s, of); n != nil || err != nil {
				return n, err
			}
		}
		return newCast(s.place, of, s.to, s.try)
	case *call:
		return b.call(s)
	}
	panic(fmt.Sprintf("expr: unknown syntax %T", s)) //nolint:forbidigo // the parser makes no other
}

func (b *binder) bindAll(list []syntax) ([]node, error) {
	nodes := make([]node, len(list))
	for i, s := range list {
		n, err := b.bind(s)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	return nodes, nil
}

// share makes a node that several places use run once.
func (b *binder) share(n node) node {
	switch n.(type) {
	case *columnNode, *constNode, *sharedNode:
		return n
	}
	b.shared++
	return &sharedNode{n, b.shared - 1}
}

func (b *binder) literal(s *literal) (node, error) {
	switch s.kind {
	case litNull:
		return nullConst(s.place, typeNull), nil
	case litBool:
		return boolConst(s.place, s.text == "TRUE"), nil
	case litNumber:
		n, err := numberConst(s)
		if c, ok := n.(*constNode); ok {
			c.strict = b.spark
		}
		return n, err
	case litString:
		n := stringConst(s.place, s.text)
		n.text = true
		return n, nil
	case litDate:
		return newCast(s.place, stringConst(s.place, s.text), typeDate, false)
	case litTimestamp:
		return newCast(s.place, stringConst(s.place, s.text), typeTimestamp, false)
	case litTimestampNTZ:
		return newCast(s.place, stringConst(s.place, s.text), typeNTZ, false)
	}
	iv, err := parseInterval(s.text + " " + s.unit)
	if err != nil {
		return nil, s.fault(BadType, err.Error())
	}
	value := &vector{t: typeInterval, rows: 1, ints: []int64{iv.months, iv.micros}}
	return &constNode{at: s.place, value: value}, nil
}

func nullConst(at place, t arrow.DataType) *constNode {
	return &constNode{at: at, value: nullVector(t, 1)}
}

func boolConst(at place, v bool) *constNode {
	bits := newBits(1)
	if v {
		bits.set(0)
	}
	return &constNode{at: at, value: &vector{t: typeBool, rows: 1, mask: -1, bools: bits}}
}

func stringConst(at place, s string) *constNode {
	return &constNode{at: at, value: &vector{
		t: typeString, rows: 1, offsets: []int32{0, int32(len(s))}, data: []byte(s)}}
}

func intConst(at place, t arrow.DataType, v int64) *constNode {
	return &constNode{at: at, value: &vector{t: t, rows: 1, ints: []int64{v}}}
}

func decimalConst(at place, t *arrow.Decimal128Type, v decimal128.Num) *constNode {
	return &constNode{at: at, value: &vector{t: t, rows: 1, decimals: []decimal128.Num{v}}}
}

// numberConst types a number as written: int, bigint or decimal as its digits need, double with an exponent.
func numberConst(s *literal) (node, error) {
	if strings.ContainsAny(s.text, "eE") {
		f, err := strconv.ParseFloat(s.text, 64)
		if err != nil {
			return nil, s.typeFault("the number %s is out of range", clip(s.text))
		}
		return &constNode{at: s.place, number: true,
			value: &vector{t: typeFloat64, rows: 1, floats: []float64{f}}}, nil
	}
	if i, err := strconv.ParseInt(s.text, 10, 64); err == nil {
		n := intConst(s.place, typeInt64, i)
		if i >= math.MinInt32 && i <= math.MaxInt32 {
			n.value.t = typeInt32
		}
		n.number = true
		return n, nil
	}
	whole, fraction, _ := strings.Cut(strings.TrimLeft(s.text, "-0"), ".")
	t := decimalType(int32(max(1, len(whole)+len(fraction))), int32(len(fraction)))
	d, err := parseDecimal(s.text, min(t.Precision, maxDigits), t.Scale)
	if t.Precision > maxDigits || err != nil {
		return nil, s.typeFault("the number %s has more than %d digits", clip(s.text), maxDigits)
	}
	n := decimalConst(s.place, t, d)
	n.number = true
	return n, nil
}

func (b *binder) name(s *name) (node, error) {
	if n := specialName(s); n != nil && len(b.schema.FieldIndices(s.parts[0])) == 0 {
		return n, nil
	}
	i, err := findField(s.place, s.parts[0], b.fields, "column")
	if err != nil {
		return nil, err
	}
	b.columns = append(b.columns, i)
	var n node = &columnNode{index: i, field: denseField(b.schema.Field(i))}
	for _, part := range s.parts[1:] {
		if n, err = newField(s.place, n, part); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// specialName returns what SQL writes like a column and is none.
func specialName(s *name) node {
	if len(s.parts) != 1 {
		return nil
	}
	switch strings.ToLower(s.parts[0]) {
	case "current_timestamp":
		return &clockNode{typeTimestamp}
	case "current_date":
		return &clockNode{typeDate}
	}
	return nil
}

func (b *binder) field(s *field) (node, error) {
	of, err := b.bind(s.of)
	if err != nil {
		return nil, err
	}
	return newField(s.place, of, s.name)
}

// columnName returns the name of what is a top-level column and nothing else.
func columnName(s syntax) (string, bool) {
	n, ok := s.(*name)
	if !ok || len(n.parts) != 1 || specialName(n) != nil {
		return "", false
	}
	return n.parts[0], true
}

// findField returns the field of that name, else the only one that differs in case.
func findField(at place, name string, fields []arrow.Field, what string) (int, error) {
	var names []string
	found, folded := -1, 0
	for i, f := range fields {
		if f.Name == name {
			return i, nil
		}
		if strings.EqualFold(f.Name, name) {
			found = i
			folded++
		}
		names = append(names, f.Name)
	}
	if folded == 1 {
		return found, nil
	}
	err := at.fault(UnknownColumn, fmt.Sprintf("unknown %s %q", what, name))
	if folded > 1 {
		err.Msg = fmt.Sprintf("the %s %q is ambiguous: %d differ from it in case only", what, name, folded)
		return -1, err
	}
	err.Hint = suggest(name, names)
	if err.Hint == "" && len(names) > 0 {
		slices.Sort(names)
		err.Hint = fmt.Sprintf("there is: %s", clipList(names))
	}
	return -1, err
}

func clipList(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
