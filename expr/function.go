package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// function is a named function: what it takes and how a call of it becomes a node.
//
// params has a letter an argument; those after ? may be left out, and the letter before * repeats.
//
//	s string                    n a number            w a date or timestamp
//	y string or binary          i an integer          t a timestamp (a date is cast)
//	x anything, as a string     f a number as double  d a date (a timestamp is cast)
//	b boolean                   a anything
type function struct {
	params string
	build  func(c *callSite) (node, error)
}

// callSite is a call with its arguments bound and checked.
type callSite struct {
	place
	name  string
	args  []node
	share func(node) node
}

func families() []map[string]function {
	return []map[string]function{stringFunctions, regexpFunctions, mathFunctions, timeFunctions,
		formatFunctions, jsonFunctions, choiceFunctions}
}

// Functions returns the names of all functions, sorted.
func Functions() []string {
	var names []string
	for _, family := range families() {
		for name := range family {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// function is the function that the call names.
func (b *binder) function(s *call) (f function, err error) {
	if b.spark {
		return sparkFunction(s)
	}
	for _, family := range families() {
		if found, ok := family[s.name]; ok {
			f = found
		}
	}
	if f.build == nil {
		err := s.typeFault("there is no function %s", clip(s.name))
		err.Hint = suggest(s.name, Functions())
		return f, err
	}
	return f, nil
}

func (b *binder) call(s *call) (node, error) {
	f, err := b.function(s)
	if err != nil {
		return nil, err
	}
	args, err := b.bindAll(s.args)
	if err == nil {
		err = b.mixed(s.place, args...)
	}
	if err == nil && strings.HasPrefix(s.name, "concat") {
		err = b.noFloatText(s.place, args)
	}
	if err != nil {
		return nil, err
	}
	c := &callSite{place: s.place, name: s.name, args: args, share: b.share}
	if err := c.check(f.params, s.args); err != nil {
		return nil, err
	}
	n, err := f.build(c)
	if err != nil {
		return nil, err
	}
	return fold(n), nil
}

// check counts the arguments and brings each to what its letter asks for.
func (c *callSite) check(params string, text []syntax) error {
	letters := strings.NewReplacer("?", "", "*", "").Replace(params)
	least := len(letters)
	if i := strings.IndexByte(params, '?'); i >= 0 {
		least = i
	}
	most := len(letters)
	if strings.HasSuffix(params, "*") {
		most = 1 << 20
	}
	if len(c.args) < least || len(c.args) > most {
		err := c.typeFault("%s is called with the wrong number of arguments", c.name)
		err.Found = fmt.Sprint(len(c.args))
		err.Wanted = fmt.Sprint(least)
		if most > least {
			err.Wanted = fmt.Sprintf("%d to %d", least, most)
			if most > 1000 {
				err.Wanted = fmt.Sprintf("%d or more", least)
			}
		}
		return err
	}
	for i := range c.args {
		letter := letters[min(i, len(letters)-1)]
		n, wanted, err := accept(c.place, letter, c.args[i])
		if err != nil {
			return err
		}
		if wanted != "" {
			fault := text[i].where().typeFault("argument %d of %s is of the wrong type", i+1, c.name)
			fault.Found, fault.Wanted = typeName(c.args[i].typ()), wanted
			if kindOf(c.args[i].typ()) == kindString {
				fault.Hint = "CAST the string"
			}
			return fault
		}
		c.args[i] = n
	}
	return nil
}

// accept brings an argument to what the letter asks for; wanted is not empty when that cannot be.
func accept(at place, letter byte, n node) (_ node, wanted string, err error) {
	k := kindOf(n.typ())
	_, text := literalText(n)
	to := func(t arrow.DataType, names string, kinds ...kind) (node, string, error) {
		if k != kindNull && !text && !slices.Contains(kinds, k) {
			return n, names, nil
		}
		cast, err := newCast(at, n, t, false)
		return cast, "", err
	}
	keep := func(t arrow.DataType, names string, kinds ...kind) (node, string, error) {
		if slices.Contains(kinds, k) {
			return n, "", nil
		}
		return to(t, names)
	}
	switch letter {
	case 's':
		return to(typeString, "string", kindString)
	case 'y':
		return keep(typeString, "string or binary", kindString, kindBinary)
	case 'x':
		return to(typeString, "a value that has a text", kindString, kindBool, kindInt, kindFloat,
			kindDecimal, kindDate, kindTime)
	case 'i':
		return keep(typeInt64, "an integer", kindInt)
	case 'n':
		return keep(typeFloat64, "a number", kindInt, kindFloat, kindDecimal)
	case 'f':
		return to(typeFloat64, "a number", kindInt, kindFloat, kindDecimal)
	case 'b':
		return keep(typeBool, "boolean", kindBool)
	case 'w':
		return keep(typeTimestamp, "a date or timestamp", kindDate, kindTime)
	case 't':
		if k == kindTime {
			return n, "", nil
		}
		return to(typeTimestamp, "a timestamp", kindDate)
	case 'd':
		return to(typeDate, "a date", kindDate, kindTime)
	}
	return n, "", nil
}

// constText returns the text of an argument that must be a constant string.
func (c *callSite) constText(i int, what string) (string, error) {
	k, ok := c.args[i].(*constNode)
	if !ok || k.isNull() || kindOf(k.value.t) != kindString {
		return "", c.typeFault("argument %d of %s, %s, is not a string constant", i+1, c.name, what)
	}
	return k.value.str(0), nil
}

// constInt returns the value of an argument that must be a constant integer.
func (c *callSite) constInt(i int, what string) (int64, error) {
	k, ok := c.args[i].(*constNode)
	if !ok || k.isNull() {
		return 0, c.typeFault("argument %d of %s, %s, is not an integer constant", i+1, c.name, what)
	}
	return k.value.int(0), nil
}

func (c *callSite) node(t arrow.DataType, run func(*kernel)) (node, error) {
	return &mapNode{t: t, at: c.place, args: c.args, run: run}, nil
}

// partial is node for functions that can be null without a null argument.
func (c *callSite) partial(t arrow.DataType, run func(*kernel)) (node, error) {
	return &mapNode{t: t, at: c.place, args: c.args, run: run, maybe: true}, nil
}

// of makes a build out of a result type and a run.
func of(t arrow.DataType, run func(*kernel)) func(*callSite) (node, error) {
	return func(c *callSite) (node, error) { return c.node(t, run) }
}

// rising is of for functions of one argument that keep order.
func rising(t arrow.DataType, run func(*kernel)) func(*callSite) (node, error) {
	return func(c *callSite) (node, error) {
		return &mapNode{t: t, at: c.place, args: c.args, run: run, rising: true}, nil
	}
}
