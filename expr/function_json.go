package expr

import (
	"fmt"
	"strconv"
	"strings"
)

// Paths are constants: $.name, $['name'], $.list[0]. Of equal keys the first counts.
var jsonFunctions = map[string]function{
	"json_valid":          {"s", of(typeBool, mapBools(jsonValid))},
	"json_extract":        {"ss", func(c *callSite) (node, error) { return newJSONExtract(c, false, true) }},
	"json_extract_string": {"ss", func(c *callSite) (node, error) { return newJSONExtract(c, true, true) }},
	"get_json_object":     {"ss", func(c *callSite) (node, error) { return newJSONExtract(c, true, false) }},
	"json_array_length":   {"s?s", newJSONLength},
}

func jsonValid(k *kernel, i int) (bool, result) {
	return validJSON(k.args[0].bytes(i)), isValue
}

// jsonStep is one step of a path: a key, or an index counted from 0.
type jsonStep struct {
	key     string
	index   int
	isIndex bool
}

func parseJSONPath(text string) ([]jsonStep, error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, fmt.Errorf("the path '%s' does not begin with $", clip(text))
	}
	var steps []jsonStep
	for rest != "" {
		var step jsonStep
		switch {
		case rest[0] == '.':
			n := strings.IndexAny(rest[1:], ".[")
			if n < 0 {
				n = len(rest) - 1
			}
			step.key, rest = rest[1:n+1], rest[n+1:]
			if step.key == "" || step.key == "*" {
				return nil, fmt.Errorf("the path '%s' lacks a name after a point", clip(text))
			}
		case strings.HasPrefix(rest, "['"), strings.HasPrefix(rest, `["`):
			key, size := unquote(rest[1:])
			if size == 0 || !strings.HasPrefix(rest[1+size:], "]") {
				return nil, fmt.Errorf("the path '%s' has a [ without ]", clip(text))
			}
			step.key, rest = key, rest[size+2:]
		case rest[0] == '[':
			digits, after, found := strings.Cut(rest[1:], "]")
			n, err := strconv.Atoi(digits)
			if !found || err != nil || n < 0 {
				return nil, fmt.Errorf("the path '%s' has '%s' where a number in [] is wanted",
					clip(text), clip(rest))
			}
			step.index, step.isIndex, rest = n, true, after
		default:
			return nil, fmt.Errorf("the path '%s' has '%s' where . or [ is wanted", clip(text), clip(rest))
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func (c *callSite) jsonPath(i int) ([]jsonStep, error) {
	text, err := c.constText(i, "the path")
	if err != nil {
		return nil, err
	}
	steps, err := parseJSONPath(text)
	if err != nil {
		return nil, c.typeFault("%s: %v; wanted a path as in $.a.b[0]", c.name, err)
	}
	return steps, nil
}

// newJSONExtract gives the value at a path, null when there is none: as text of JSON, or, unquoted, strings
// as what they stand for and null as null. Text that is no JSON fails the row when strict, else it is null.
func newJSONExtract(c *callSite, unquoted, strict bool) (node, error) {
	path, err := c.jsonPath(1)
	if err != nil {
		return nil, err
	}
	c.args = c.args[:1]
	return c.partial(typeString, mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		value, found, ok := findJSON(k.args[0].bytes(i), path)
		switch {
		case !ok && strict:
			k.fault(i, "%s: the text is no JSON: '%s'", c.name, clip(k.args[0].str(i)))
			return dst, isFault
		case !ok || !found:
			return dst, isNull
		case !unquoted:
			return append(dst, value...), isValue
		case value[0] == '"':
			return appendJSONString(dst, value), isValue
		case value[0] == 'n':
			return dst, isNull
		}
		return append(dst, value...), isValue
	}))
}

// newJSONLength counts the elements of an array, null when there is none.
func newJSONLength(c *callSite) (node, error) {
	var path []jsonStep
	if len(c.args) > 1 {
		var err error
		if path, err = c.jsonPath(1); err != nil {
			return nil, err
		}
	}
	c.args = c.args[:1]
	return c.partial(typeInt64, mapInts(func(k *kernel, i int) (int64, result) {
		value, found, ok := findJSON(k.args[0].bytes(i), path)
		if !ok {
			k.fault(i, "json_array_length: the text is no JSON: '%s'", clip(k.args[0].str(i)))
			return 0, isFault
		}
		if !found || value[0] != '[' {
			return 0, isNull
		}
		return countJSON(value), isValue
	}))
}
