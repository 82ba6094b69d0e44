package format

import (
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// shape is what is known of the values that one place of the records has had. Shapes form a semilattice: join
// takes the union of all that was seen, and only resolve decides on a type, so neither order nor grouping of
// the records matters.
type shape struct {
	seen    kinds
	numbers numbers
	fields  map[string]*fieldShape // of the objects, by lower-case key
	element *shape                 // of the arrays; nil if there were none
	// declared is the type that the records themselves say the values have; nil if none does.
	declared arrow.DataType
}

// kinds is a set of kinds of values.
type kinds uint8

const (
	aBool kinds = 1 << iota
	aNumber
	aTimestamp // text that is RFC 3339 with zone and at most microseconds
	aDate      // text YYYY-MM-DD
	aText      // other text
	aStruct    // an object whose keys that tell can all be names
	anObject   // another
	anArray
)

// numbers is what is known of a set of numbers.
type numbers struct {
	fraction   bool // one is written with a point or exponent
	beyondLong bool // one, without, does not fit an int64
	notDouble  bool // one is not what the double nearest to it prints
	notDecimal bool // one has more than 38 digits before or behind the point
	whole      int  // the most digits before the point, leading zeros not counted
	scale      int  // the most behind the point
}

// fieldShape is one field of objects.
type fieldShape struct {
	shape
	place     int // the lowest it had in an object
	spellings []spelling
}

// spelling is one way to write a name, and how often it was seen.
type spelling struct {
	name  string
	times int
}

// name returns the commonest spelling; of those equally common, the last in the order of bytes, where lower
// case is.
func (f *fieldShape) name() string {
	var most spelling
	for _, s := range f.spellings {
		if s.times > most.times || s.times == most.times && s.name > most.name {
			most = s
		}
	}
	return most.name
}

// sawAt counts a spelling, at this place of an object.
func (f *fieldShape) sawAt(place int, name []byte, times int) {
	if len(f.spellings) == 0 {
		f.place = place
	}
	f.place = min(f.place, place)
	for i := range f.spellings {
		if f.spellings[i].name == string(name) {
			f.spellings[i].times += times
			return
		}
	}
	f.spellings = append(f.spellings, spelling{string(name), times})
}

// observe adds a value, which is valid JSON without space around it.
func (s *shape) observe(value []byte) {
	switch value[0] {
	case 'n':
	case 't', 'f':
		s.seen |= aBool
	case '"':
		s.seen |= textKind(value)
	case '{':
		s.observeObject(value)
	case '[':
		s.observeArray(value)
	case 'N', 'I':
		s.seen |= aNumber
		s.numbers.fraction = true
	default:
		s.seen |= aNumber
		if isBareFloat(value) {
			s.numbers.fraction = true
			return
		}
		s.numbers.observe(value)
	}
}

// textKind returns the kind of a string in its quotes.
func textKind(value []byte) kinds {
	content := value[1 : len(value)-1]
	if len(content) == 0 || content[0]-'0' > 9 { // also what begins with an escape
		return aText
	}
	if _, strict, ok := parseDate(content); ok && strict {
		return aDate
	}
	if m, ok := parseMoment(content); ok && m.strict && !m.finer && m.zone != noZone {
		return aTimestamp
	}
	return aText
}

// observeObject adds an object: as a struct, unless a value that tells has a key that can be no name.
func (s *shape) observeObject(value []byte) {
	kind := aStruct
	place := 0
	members(value, func(key, value []byte) {
		f := s.field(key)
		f.sawAt(place, key, 1)
		f.observe(value)
		if !nameable(key) && tells(value) {
			kind = anObject
		}
		place++
	})
	s.seen |= kind
}

// field returns the field of that name, whatever its case, which it makes if need be.
func (s *shape) field(key []byte) *fieldShape {
	lower := key
	if !isLower(key) {
		lower = []byte(strings.ToLower(string(key)))
	}
	f := s.fields[string(lower)]
	if f == nil {
		if s.fields == nil {
			s.fields = make(map[string]*fieldShape)
		}
		f = &fieldShape{}
		s.fields[string(lower)] = f
	}
	return f
}

func (s *shape) observeArray(value []byte) {
	s.seen |= anArray
	if s.element == nil {
		s.element = &shape{}
	}
	members(value, func(_, element []byte) { s.element.observe(element) })
}

// members calls do for each member of a valid object or array; the key of an array's is nil.
func members(value []byte, do func(key, value []byte)) {
	keys, values := scanner{}, scanner{maxDepth: len(value), bareFloats: true} // two, since each has room for one text
	i := skipSpace(value, 1)
	for more := value[i] != '}' && value[i] != ']'; more; {
		var key []byte
		if value[0] == '{' {
			key, i = keys.key(value, i)
		}
		end := values.skip(value, i)
		do(key, value[i:end])
		i, more = keys.more(value, end, value[0]+2) // ASCII: } is { + 2, ] is [ + 2
	}
}

// sureDigits is how many digits every double keeps.
const sureDigits = 15

func (n *numbers) observe(value []byte) {
	d, _ := parseDecimal(value)
	whole, scale := d.extent()
	n.whole, n.scale = max(n.whole, whole), max(n.scale, scale)
	if whole > 38 || scale > 38 {
		n.notDecimal = true
	}
	if len(d.whole)+len(d.fraction) > sureDigits || d.exponent > 200 || d.exponent < -200 {
		if v, f := parseFloat(value, &d, 64); f != fits || !printsAs(v, 64, &d) {
			n.notDouble = true
		}
	}
	if !d.isWhole() {
		n.fraction = true
	} else if _, f := d.int64(0); f != fits {
		n.beyondLong = true
	}
}

// join adds what is known of other values of the same place.
func (s *shape) join(o *shape) {
	s.seen |= o.seen
	s.declare(o.declared)
	s.numbers.join(&o.numbers)
	for lower, from := range o.fields {
		f := s.field([]byte(lower))
		for _, way := range from.spellings {
			f.sawAt(from.place, []byte(way.name), way.times)
		}
		f.join(&from.shape)
	}
	if o.element != nil {
		if s.element == nil {
			s.element = &shape{}
		}
		s.element.join(o.element)
	}
}

func (n *numbers) join(o *numbers) {
	n.fraction = n.fraction || o.fraction
	n.beyondLong = n.beyondLong || o.beyondLong
	n.notDouble = n.notDouble || o.notDouble
	n.notDecimal = n.notDecimal || o.notDecimal
	n.whole, n.scale = max(n.whole, o.whole), max(n.scale, o.scale)
}

// resolve returns the least type of the values, nil if they tell none.
func (s *shape) resolve() arrow.DataType {
	if s.declared != nil {
		return s.declared
	}
	switch s.seen {
	case 0:
		return nil
	case aBool:
		return arrow.FixedWidthTypes.Boolean
	case aNumber:
		return s.numbers.resolve()
	case aTimestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case aDate:
		return arrow.FixedWidthTypes.Date32
	case aStruct:
		all := math.MaxInt
		fields, _ := widenFields(nil, s.fields, &all)
		if len(fields) == 0 {
			return nil
		}
		return arrow.StructOf(fields...)
	case anArray:
		element := s.element.resolve()
		if element == nil {
			element = arrow.BinaryTypes.String
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: element, Nullable: true})
	}
	return arrow.BinaryTypes.String
}

func (n *numbers) resolve() arrow.DataType {
	switch {
	case !n.fraction && !n.beyondLong:
		return arrow.PrimitiveTypes.Int64
	case n.fraction && !n.notDouble:
		return arrow.PrimitiveTypes.Float64
	case n.notDecimal || n.whole+n.scale > 38:
		return arrow.BinaryTypes.String
	}
	return &arrow.Decimal128Type{Precision: 38, Scale: int32(n.scale)}
}

// tells reports whether a value, which is valid JSON, tells a type.
func tells(value []byte) bool {
	switch value[0] {
	case 'n':
		return false
	case '{':
		told := false
		members(value, func(_, member []byte) { told = told || tells(member) })
		return told
	}
	return true
}

// declare notes a type that records say the values have. Of two types it keeps the one that holds both.
func (s *shape) declare(t arrow.DataType) {
	if s.declared == nil || t == nil {
		if t != nil {
			s.declared = t
		}
		return
	}
	s.declared = holdsBoth(s.declared, t)
}

// holdsBoth returns the least type that holds all values of both: string if no other does.
func holdsBoth(a, b arrow.DataType) arrow.DataType {
	order := map[arrow.Type]int{arrow.INT8: 1, arrow.INT16: 2, arrow.INT32: 3, arrow.INT64: 4,
		arrow.FLOAT32: 11, arrow.FLOAT64: 12}
	rankA, rankB := order[a.ID()], order[b.ID()]
	aDecimal, isA := a.(*arrow.Decimal128Type)
	bDecimal, isB := b.(*arrow.Decimal128Type)
	switch {
	case arrow.TypeEqual(a, b):
		return a
	case rankA > 0 && rankB > 0 && rankA/10 == rankB/10:
		if rankA < rankB {
			return b
		}
		return a
	case isA && isB:
		scale := max(aDecimal.Scale, bDecimal.Scale)
		precision := max(aDecimal.Precision-aDecimal.Scale, bDecimal.Precision-bDecimal.Scale) + scale
		if precision <= 38 {
			return &arrow.Decimal128Type{Precision: precision, Scale: scale}
		}
	}
	return arrow.BinaryTypes.String
}
