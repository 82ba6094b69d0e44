package expr

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// sparkFunction returns the function that Spark has under that name, if this package computes the same.
func sparkFunction(s *call) (function, error) {
	for _, family := range []map[string]function{sparkTexts, sparkNumbers, sparkTimes, sparkChoices} {
		if f, ok := family[s.name]; ok {
			return f, nil
		}
	}
	err := s.typeFault("the function %s is not known here", clip(s.name))
	err.Hint = suggest(s.name, SparkFunctions())
	return function{}, err
}

// SparkFunctions returns the names of the functions that ParseSpark's expressions may call, sorted.
func SparkFunctions() []string {
	var names []string
	for _, family := range []map[string]function{sparkTexts, sparkNumbers, sparkTimes, sparkChoices} {
		names = slices.AppendSeq(names, maps.Keys(family))
	}
	slices.Sort(names)
	return names
}

// Functions of strings that mean the same here and there are taken as they are.
var sparkTexts = map[string]function{
	"lower":            {"s", of(typeString, mapBytes(spelled(appendLower, lowersOtherwise)))},
	"lcase":            {"s", of(typeString, mapBytes(spelled(appendLower, lowersOtherwise)))},
	"upper":            {"s", of(typeString, mapBytes(spelled(appendUpper, uppersOtherwise)))},
	"ucase":            {"s", of(typeString, mapBytes(spelled(appendUpper, uppersOtherwise)))},
	"trim":             {"s", of(typeString, mapBytes(trimmer(true, true)))},
	"ltrim":            {"s", of(typeString, mapBytes(trimmer(true, false)))},
	"rtrim":            {"s", of(typeString, mapBytes(trimmer(false, true)))},
	"length":           stringFunctions["length"],
	"len":              stringFunctions["length"],
	"char_length":      stringFunctions["length"],
	"character_length": stringFunctions["length"],
	"substr":           {"si?i", of(typeString, mapBytes(sparkSubstring))},
	"substring":        {"si?i", of(typeString, mapBytes(sparkSubstring))},
	"left":             {"si", of(typeString, mapBytes(counted(left)))},
	"right":            {"si", of(typeString, mapBytes(counted(right)))},
	"replace":          stringFunctions["replace"],
	"reverse":          stringFunctions["reverse"],
	"split_part":       stringFunctions["split_part"],
	"lpad":             stringFunctions["lpad"],
	"rpad":             stringFunctions["rpad"],
	"startswith":       stringFunctions["startswith"],
	"endswith":         stringFunctions["endswith"],
	"contains":         stringFunctions["contains"],
	"instr":            stringFunctions["instr"],
	"locate":           {"ss", swapped(stringFunctions["instr"].build)},
	"position":         {"ss", swapped(stringFunctions["instr"].build)},
	"concat":           {"x*", func(c *callSite) (node, error) { return newConcat(c.place, c.args) }},
	"concat_ws":        {"sx*", func(c *callSite) (node, error) { return joinNode(c, true), nil }},
	"md5":              stringFunctions["md5"],
	"sha2":             {"yi", newSHA2},
	"hex":              stringFunctions["hex"],
	"rlike":            {"ss", newSparkRegexp},
	"regexp":           {"ss", newSparkRegexp},
	"regexp_like":      {"ss", newSparkRegexp},
	"get_json_object":  jsonFunctions["get_json_object"],
	"hash":             {"a*", func(c *callSite) (node, error) { return newSparkHash(c, murmur) }},
	"xxhash64":         {"a*", func(c *callSite) (node, error) { return newSparkHash(c, xxHash) }},
}

var sparkNumbers = map[string]function{
	"abs":     mathFunctions["abs"],
	"sign":    {"f", of(typeFloat64, mapFloats(sparkSign))},
	"signum":  {"f", of(typeFloat64, mapFloats(sparkSign))},
	"round":   {"n?i", newSparkRound},
	"floor":   {"n", func(c *callSite) (node, error) { return newSparkWhole(c, math.Floor, -1) }},
	"ceil":    {"n", func(c *callSite) (node, error) { return newSparkWhole(c, math.Ceil, 1) }},
	"ceiling": {"n", func(c *callSite) (node, error) { return newSparkWhole(c, math.Ceil, 1) }},
	"sqrt":    {"f", of(typeFloat64, mapFloats(func(k *kernel, i int) (float64, result) { return math.Sqrt(k.args[0].float(i)), isValue }))},
	"mod":     mathFunctions["mod"],
	"pmod":    {"ii", newSparkPmod},
	"isnan":   {"f", newIsNaN},
}

var sparkChoices = map[string]function{
	"coalesce":       choiceFunctions["coalesce"],
	"ifnull":         choiceFunctions["ifnull"],
	"nvl":            choiceFunctions["nvl"],
	"nullif":         choiceFunctions["nullif"],
	"if":             choiceFunctions["if"],
	"greatest":       {"aa*", func(c *callSite) (node, error) { return newExtreme(c, true) }},
	"least":          {"aa*", func(c *callSite) (node, error) { return newExtreme(c, false) }},
	"isnull":         {"a", func(c *callSite) (node, error) { return &nullTestNode{c.args[0]}, nil }},
	"isnotnull":      {"a", func(c *callSite) (node, error) { return &notNode{&nullTestNode{c.args[0]}}, nil }},
	"element_at":     {"aa", newElementAt},
	"size":           {"a", newSize},
	"cardinality":    {"a", newSize},
	"array_contains": {"aa", newArrayContains},
}

// newIsNaN is false for null.
func newIsNaN(c *callSite) (node, error) {
	n, err := c.node(typeBool, mapBools(func(k *kernel, i int) (bool, result) {
		return math.IsNaN(k.args[0].float(i)), isValue
	}))
	return &coalesceNode{typeBool, []node{n, boolConst(c.place, false)}}, err
}

// sparkSubstring takes from a position, from the end when it is negative; 0 is the same as 1. What lies before the
// string counts.
func sparkSubstring(k *kernel, i int, dst []byte) ([]byte, result) {
	s, start := k.args[0].bytes(i), k.args[1].int(i)
	switch {
	case start > 0:
		start--
	case start < 0:
		start += int64(utf8.RuneCount(s))
	}
	end := int64(len(s))
	if len(k.args) > 2 {
		end = min(start+min(k.args[2].int(i), math.MaxInt32), end)
	}
	if start = max(start, 0); end <= start {
		return dst, isValue
	}
	s = s[runeAt(s, start):]
	return append(dst, s[:runeAt(s, end-start)]...), isValue
}

// spelled refuses rows with letters whose other case is not one letter.
func spelled(f func(s, dst []byte) []byte, otherwise func(rune) bool) appendRow {
	return func(k *kernel, i int, dst []byte) ([]byte, result) {
		s := k.args[0].bytes(i)
		if !isASCII(s) {
			for _, r := range string(s) {
				if otherwise(r) {
					k.fault(i, "the case of %q is not changed here as Spark changes it", r)
					return dst, isFault
				}
			}
		}
		return f(s, dst), isValue
	}
}

func lowersOtherwise(r rune) bool { return r == 0x130 || r == 0x3a3 }

// uppersOtherwise are the letters whose upper case is more than one letter, by Unicode's SpecialCasing.
func uppersOtherwise(r rune) bool {
	switch {
	case r == 0xdf, r == 0x149, r == 0x1f0, r == 0x390, r == 0x3b0, r == 0x587:
		return true
	}
	return r >= 0x1e96 && r <= 0x1e9a || r >= 0x1f50 && r <= 0x1fff || r >= 0xfb00 && r <= 0xfb17
}

// counted makes a negative number of characters none.
func counted(f appendRow) appendRow {
	return func(k *kernel, i int, dst []byte) ([]byte, result) {
		if k.args[1].int(i) < 0 {
			return dst, isValue
		}
		return f(k, i, dst)
	}
}

func swapped(f func(*callSite) (node, error)) func(*callSite) (node, error) {
	return func(c *callSite) (node, error) {
		c.args[0], c.args[1] = c.args[1], c.args[0]
		return f(c)
	}
}

func sparkSign(k *kernel, i int) (float64, result) {
	switch f := k.args[0].float(i); {
	case f > 0:
		return 1, isValue
	case f < 0:
		return -1, isValue
	default:
		return f, isValue
	}
}

// newSparkRound takes decimals and integers: of floats, versions of Spark round the last digit differently.
func newSparkRound(c *callSite) (node, error) {
	if kindOf(c.args[0].typ()) == kindFloat {
		err := c.typeFault("round of a float is not known here")
		err.Hint = "CAST it to a decimal"
		return nil, err
	}
	return newRound(c)
}

// newSparkWhole gives bigint for floats and integers.
func newSparkWhole(c *callSite, f func(float64) float64, direction int) (node, error) {
	n, err := newWhole(c, f, direction)
	if err != nil || kindOf(n.typ()) == kindDecimal {
		return n, err
	}
	return newCast(c.place, n, typeInt64, false)
}

// newSparkPmod is the remainder that is never negative for a positive divisor.
func newSparkPmod(c *callSite) (node, error) {
	t, ok := commonType(c.args[0].typ(), c.args[1].typ())
	if !ok || kindOf(t) != kindInt {
		return nil, notNumbers(c.place, "pmod", c.args)
	}
	return c.node(t, mapInts(func(k *kernel, i int) (int64, result) {
		a, n := k.args[0].int(i), k.args[1].int(i)
		if n == 0 {
			k.fault(i, "division by zero")
			return 0, isFault
		}
		r, _ := checkedInt("%", a, n)
		if r < 0 {
			r, _ = checkedInt("%", r+n, n)
		}
		return r, isValue
	}))
}

// cutFloat cuts a float's fraction off.
func cutFloat(k *kernel, i int) (float64, result) { return math.Trunc(k.args[0].float(i)), isValue }

// cutDecimals cuts the fraction off decimals of a type.
func cutDecimals(t *arrow.Decimal128Type) func(*kernel) {
	unit := decimal128.GetScaleMultiplier(int(t.Scale))
	return mapDecimals(func(k *kernel, i int) (decimal128.Num, bool) {
		whole, _ := k.args[0].dec(i).Div(unit)
		return whole, true
	})
}

// newElementAt is element_at(array, number from 1 or from the end), which fails where there is none, or
// element_at(map, key).
func newElementAt(c *callSite) (node, error) {
	switch t := c.args[0].typ().(type) {
	case *arrow.MapType:
		return newValue(c.place, c.args[0], c.args[1], t)
	case arrow.ListLikeType:
		n, err := newElement(c.place, c.args[0], c.args[1], t)
		if e, ok := n.(*elementNode); ok {
			e.strict = true
		}
		return n, err
	}
	err := c.typeFault("argument 1 of element_at is of the wrong type")
	err.Found, err.Wanted = typeName(c.args[0].typ()), "an array or a map"
	return nil, err
}

// listOf refuses an argument that is no array or map.
func (c *callSite) listOf() (arrow.ListLikeType, error) {
	t, ok := c.args[0].typ().(arrow.ListLikeType)
	if !ok {
		err := c.typeFault("argument 1 of %s is of the wrong type", c.name)
		err.Found, err.Wanted = typeName(c.args[0].typ()), "an array or a map"
		return nil, err
	}
	return t, nil
}

// newSparkRegexp tells whether the pattern, in Java's language, matches anywhere in the string.
func newSparkRegexp(c *callSite) (node, error) {
	text, err := c.constText(1, "the pattern")
	if err != nil {
		return nil, err
	}
	re, err := javaRegexp(text)
	if err != nil {
		return nil, c.typeFault("the pattern of %s: %v", c.name, err)
	}
	return c.node(typeBool, mapBools(func(k *kernel, i int) (bool, result) {
		return re.Match(k.args[0].bytes(i)), isValue
	}))
}

func (p *parser) isRegexp() bool { return p.isWord("RLIKE") || p.isWord("REGEXP") }

// regexp parses x [NOT] RLIKE pattern.
func (p *parser) regexp(at place, left syntax, negated bool) (syntax, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	pattern, err := p.concat()
	if err != nil {
		return nil, err
	}
	c := &call{place: at, name: "rlike", args: []syntax{left, pattern}}
	if negated {
		return &not{at, c}, nil
	}
	return c, nil
}

// sparkMinus tells whether a minus and a number follow, as in INTERVAL -1 DAY.
func (p *parser) sparkMinus() bool {
	rest := strings.TrimLeft(p.lex.rest(), " ")
	return p.lex.spark && p.isSymbol("-") && rest != "" && isDigit(rest[0])
}

// sparkInterval parses the further parts of INTERVAL 1 DAY 2 HOURS.
func (p *parser) sparkInterval(l *literal) error {
	if !p.lex.spark {
		return nil
	}
	for l.unit != "" && (p.tok.kind == tokNumber || p.tok.kind == tokString) {
		number := p.tok.text
		if err := p.advance(); err != nil {
			return err
		}
		unit := ""
		if p.tok.kind == tokWord {
			unit = intervalUnit(p.tok.text)
		}
		if unit == "" {
			return p.unexpected("a unit, as in INTERVAL 1 DAY 2 HOURS")
		}
		l.text, l.unit = fmt.Sprintf("%s %s %s", l.text, l.unit, number), unit
		if err := p.advance(); err != nil {
			return err
		}
	}
	return nil
}
