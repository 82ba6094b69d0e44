package delta

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// metaLengths is the type that Spark's SQL gave a column, where CHAR(n) or VARCHAR(n) is in it: "varchar(10)",
// "array<char(2)>". The schema itself has string in their places.
const metaLengths = "__CHAR_VARCHAR_TYPE_STRING"

// lengths says how long strings are, in characters: the tree of a column's type. Nil asks nothing.
type lengths struct {
	chars  int  // of a string; 0: any
	padded bool // CHAR: shorter ones are filled up with spaces

	below map[string]*lengths // of fields by their names in lower case, or of element, key and value
}

// lengthRule keeps the strings of a column to their lengths: longer ones are refused, as Spark does, also for spaces at
// their end. CHAR is filled up with spaces in files; Spark does that when it reads, and so all engines read the same.
type lengthRule struct {
	field  Field
	column int
	tree   *lengths
}

// lengthRules are those of the table, in the order of its columns. Errors: *UnsupportedError for a type that is not
// understood.
func lengthRules(schema *Schema) (all []*lengthRule, err error) {
	for i := range schema.Fields {
		f := &schema.Fields[i]
		text, ok := f.metaText(metaLengths)
		if !ok {
			continue
		}
		p := lengthParser{rest: text}
		tree, err := p.typ()
		if err == nil && p.rest != "" {
			err = fmt.Errorf("found %q behind the type", p.rest)
		}
		if err != nil {
			return nil, &UnsupportedError{Write: true,
				Feature: fmt.Sprintf("the type %q that the metadata of column %q tells (%v)", text, f.Name, err)}
		}
		if tree != nil {
			all = append(all, &lengthRule{*f, i, tree})
		}
	}
	return all, nil
}

// lengthParser reads a type as Spark writes it.
type lengthParser struct{ rest string }

// take takes a prefix off, its case ignored.
func (p *lengthParser) take(prefix string) bool {
	if len(p.rest) < len(prefix) || !strings.EqualFold(p.rest[:len(prefix)], prefix) {
		return false
	}
	p.rest = strings.TrimLeft(p.rest[len(prefix):], " ")
	return true
}

// until takes all up to one of some bytes.
func (p *lengthParser) until(stops string) string {
	end := strings.IndexAny(p.rest, stops)
	if end < 0 {
		end = len(p.rest)
	}
	text := strings.TrimSpace(p.rest[:end])
	p.rest = p.rest[end:]
	return text
}

func (p *lengthParser) typ() (*lengths, error) {
	switch {
	case p.take("array<"):
		return p.parts(p.named("element"))
	case p.take("map<"):
		return p.parts(p.named("key", "value"))
	case p.take("struct<"):
		return p.parts(p.fieldName)
	case p.take("char("):
		return p.length(true)
	case p.take("varchar("):
		return p.length(false)
	}
	name := p.until("<>,(")
	if name == "" {
		return nil, fmt.Errorf("found %q, wanted a type", p.rest)
	}
	if p.take("(") { // a decimal's digits
		p.until(")")
		if !p.take(")") {
			return nil, fmt.Errorf("a parenthesis of %s is not closed", name)
		}
	}
	return nil, nil //nolint:nilnil // a type of which nothing is asked
}

func (p *lengthParser) length(padded bool) (*lengths, error) {
	text := p.until(")")
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || !p.take(")") {
		return nil, fmt.Errorf("found the length %q, wanted a number above 0", text)
	}
	return &lengths{chars: n, padded: padded}, nil
}

// named yields the names of the parts of a type that has no fields.
func (p *lengthParser) named(names ...string) func() (string, error) {
	return func() (string, error) {
		if len(names) == 0 {
			return "", fmt.Errorf("found too many types, before %q", p.rest)
		}
		name := names[0]
		names = names[1:]
		return name, nil
	}
}

// fieldName reads `name:`, the name perhaps in backticks.
func (p *lengthParser) fieldName() (string, error) {
	var name strings.Builder
	if strings.HasPrefix(p.rest, "`") {
		for p.rest = p.rest[1:]; ; p.rest = p.rest[1:] {
			part, rest, ok := strings.Cut(p.rest, "`")
			if !ok {
				return "", fmt.Errorf("a backtick is not closed")
			}
			name.WriteString(part)
			if p.rest = rest; !strings.HasPrefix(rest, "`") {
				break
			}
			name.WriteByte('`')
		}
	} else {
		name.WriteString(p.until(":"))
	}
	if !p.take(":") {
		return "", fmt.Errorf("the field %q has no type", name.String())
	}
	return strings.ToLower(name.String()), nil
}

// parts reads the types between the brackets of another.
func (p *lengthParser) parts(name func() (string, error)) (*lengths, error) {
	l := &lengths{}
	for {
		n, err := name()
		if err != nil {
			return nil, err
		}
		of, err := p.typ()
		if err != nil {
			return nil, err
		}
		if of != nil {
			if l.below == nil {
				l.below = map[string]*lengths{}
			}
			l.below[n] = of
		}
		switch {
		case p.take(","):
		case !p.take(">"):
			return nil, fmt.Errorf("found %q, wanted , or >", p.rest)
		case l.below == nil:
			return nil, nil //nolint:nilnil // a type of which nothing is asked
		default:
			return l, nil
		}
	}
}

// keep is the column with every string of its length; nil when it is that already. It is the caller's. Errors:
// *ConstraintError.
func (r *lengthRule) keep(arr arrow.Array, n int) (arrow.Array, error) {
	whole, err := conformInput(&r.field, arr, n)
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	kept, long := r.tree.fit(whole)
	if len(long) == 0 && kept != whole {
		return kept, nil
	}
	kept.Release()
	if len(long) == 0 {
		return nil, nil //nolint:nilnil // nothing is to be changed
	}
	row := slices.Min(long)
	text, _ := r.field.metaText(metaLengths)
	return nil, &ConstraintError{Constraint: fmt.Sprintf("column %q", r.field.Name), Expression: strings.ToUpper(text),
		Row: row, Values: []ColumnValue{valueOf(r.field.Name, whole, row, shownValue)}, Err: errTooLong}
}

var errTooLong = errors.New("the text has more characters")

// fit fills the strings of an array that are CHAR up with spaces. It returns the array, which is the caller's, the same if
// nothing changed, and the rows in which a string is too long.
func (l *lengths) fit(arr arrow.Array) (out arrow.Array, long []int) {
	switch a := arr.(type) {
	case *array.String:
		if l.chars > 0 {
			return l.fitStrings(a)
		}
	case *array.Struct:
		return l.fitStruct(a)
	case *array.Map:
		entries := array.MakeFromData(a.Data().Children()[0])
		defer entries.Release()
		return l.fitElements(a, entries, l)
	case *array.List:
		if of := l.below["element"]; of != nil {
			return l.fitElements(a, a.ListValues(), of)
		}
	}
	arr.Retain()
	return arr, nil
}

func (l *lengths) fitStrings(a *array.String) (out arrow.Array, long []int) {
	right := true
	for i := 0; i < a.Len() && right; i++ {
		right = a.IsNull(i) || l.fits(a.Value(i))
	}
	if right {
		a.Retain()
		return a, nil
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) {
			b.AppendNull()
			continue
		}
		text := a.Value(i)
		switch room := l.chars - utf8.RuneCountInString(text); {
		case room < 0:
			long = append(long, i)
		case l.padded:
			text += strings.Repeat(" ", room)
		}
		b.Append(text)
	}
	return b.NewArray(), long
}

func (l *lengths) fits(text string) bool {
	if !l.padded && len(text) <= l.chars {
		return true
	}
	n := utf8.RuneCountInString(text)
	return n == l.chars || n < l.chars && !l.padded
}

func (l *lengths) fitStruct(a *array.Struct) (out arrow.Array, long []int) {
	t := a.DataType().(*arrow.StructType)
	children := make([]arrow.ArrayData, len(t.Fields()))
	changed := false
	for i, data := range a.Data().Children() {
		children[i] = data
		of := l.below[strings.ToLower(t.Field(i).Name)]
		if of == nil {
			continue
		}
		child := array.MakeFromData(data)
		defer child.Release()
		kept, rows := of.fit(child)
		defer kept.Release()
		children[i], changed = kept.Data(), changed || kept != child
		for _, row := range rows {
			if row -= a.Data().Offset(); row >= 0 && row < a.Len() && a.IsValid(row) {
				long = append(long, row)
			}
		}
	}
	if !changed {
		a.Retain()
		return a, long
	}
	return reassembled(a, children...), long
}

// fitElements is fit for a list or map with these elements, or entries.
func (l *lengths) fitElements(a array.ListLike, elements arrow.Array, of *lengths) (out arrow.Array, long []int) {
	kept, rows := of.fit(elements)
	defer kept.Release()
	slices.Sort(rows)
	for i := range a.Len() {
		if len(rows) == 0 || a.IsNull(i) {
			continue
		}
		from, to := a.ValueOffsets(i)
		at, _ := slices.BinarySearch(rows, int(from))
		if at < len(rows) && rows[at] < int(to) {
			long = append(long, i)
		}
	}
	if kept == elements {
		a.Retain()
		return a, long
	}
	return reassembled(a, kept.Data()), long
}

// reassembled is the array with other children.
func reassembled(a arrow.Array, children ...arrow.ArrayData) arrow.Array {
	d := a.Data()
	data := array.NewData(d.DataType(), d.Len(), d.Buffers(), children, a.NullN(), d.Offset())
	defer data.Release()
	return array.MakeFromData(data)
}
