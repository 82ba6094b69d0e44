package spec

import (
	"fmt"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// shape is what a place of a file may hold. The same shapes read files, find their faults and make the JSON
// Schema, so that the three cannot differ.
type shape interface {
	// read takes the place's value, or adds what is wrong with it. n is never nil and never absent.
	read(r *reader, n *node)
	// schema describes it as JSON Schema (2020-12).
	schema() map[string]any
}

// key is one key of a mapping.
type key struct {
	name  string
	doc   string
	is    shape
	need  bool
	later string // set: the key belongs to a part that this version does not have, and what to do instead
}

// object is a mapping with known keys.
type object struct {
	doc    string
	keys   []key
	oneOf  []string // exactly one of these must be there
	atMost []string // at most one of these may be there
	places *places  // where its values are, if somebody wants to know
}

// places are where the values of a mapping are, by key.
type places map[string]place

func (p *places) add(name string, at place) {
	if *p == nil {
		*p = places{}
	}
	(*p)[name] = at
}

func (o object) find(name string) *key {
	for i := range o.keys {
		if o.keys[i].name == name {
			return &o.keys[i]
		}
	}
	return nil
}

func (o object) read(r *reader, n *node) {
	if n.kind != mapping {
		if !n.open {
			r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted a mapping with the keys %s", r.found(n),
				join(o.names()))
		}
		return
	}
	seen := map[string]place{}
	excused := map[string]bool{} // keys that a faulty one may stand for
	for _, p := range n.pairs {
		name := p.key.text
		k := o.find(name)
		switch {
		case k == nil:
			r.add(p.key.where, freshet.CodeUnknownKey, r.remedy(name, o.names()), "unknown key %q", name)
			for _, meant := range nearest(name, o.names()) {
				excused[meant] = true
			}
			continue
		case k.later != "":
			r.add(p.key.where, freshet.CodeUnavailable, k.later, "%q: this version does not have it", name)
			excused[name] = true
			continue
		}
		if at, twice := seen[name]; twice {
			r.add(p.key.where, freshet.CodeSyntax, "keep one of them", "key %q twice: found before at %s", name, at)
			continue
		}
		seen[name] = p.key.where
		if o.places != nil {
			o.places.add(name, p.value.where)
		}
		switch {
		case p.value.kind != absent:
			k.is.read(r, p.value)
		case k.need:
			r.add(p.key.where, freshet.CodeMissing, "", "%q has no value", name)
		}
	}
	o.check(r, n, seen, excused)
}

// check finds what is missing, and what excludes each other.
func (o object) check(r *reader, n *node, seen map[string]place, excused map[string]bool) {
	for _, k := range o.keys {
		if _, ok := seen[k.name]; k.need && !ok && !excused[k.name] {
			r.add(n.where, freshet.CodeMissing, "", "required key %q is missing", k.name)
		}
	}
	found := present(o.oneOf, seen)
	missing := len(o.oneOf) > 0 && len(found) == 0
	for _, name := range o.oneOf {
		missing = missing && !excused[name]
	}
	if missing {
		r.add(n.where, freshet.CodeMissing, "", "%s required", oneOfText(o.existing(o.oneOf)))
	}
	for _, names := range [][]string{o.oneOf, o.atMost} {
		if found := present(names, seen); len(found) > 1 {
			r.add(seen[found[1]], freshet.CodeBadValue, "keep one of them", "the keys %s exclude each other",
				join(found))
		}
	}
}

func oneOfText(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("key %q is", names[0])
	}
	return "one of the keys " + join(names) + " is"
}

// existing are those of the names that this version has.
func (o object) existing(names []string) []string {
	var all []string
	for _, name := range names {
		if k := o.find(name); k != nil && k.later == "" {
			all = append(all, name)
		}
	}
	return all
}

func present(names []string, seen map[string]place) []string {
	var found []string
	for _, name := range names {
		if _, ok := seen[name]; ok {
			found = append(found, name)
		}
	}
	return found
}

// names are the keys that exist.
func (o object) names() []string {
	var names []string
	for _, k := range o.keys {
		if k.later == "" {
			names = append(names, k.name)
		}
	}
	return names
}

func (o object) schema() map[string]any {
	properties := map[string]any{}
	var required []string
	for _, k := range o.keys {
		if k.later != "" {
			continue
		}
		s := k.is.schema()
		if k.doc != "" {
			s["description"] = k.doc
		}
		properties[k.name] = s
		if k.need {
			required = append(required, k.name)
		}
	}
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if required != nil {
		s["required"] = required
	}
	if o.doc != "" {
		s["description"] = o.doc
	}
	if len(o.oneOf) > 0 {
		var ways []any
		for _, name := range o.existing(o.oneOf) {
			ways = append(ways, map[string]any{"required": []string{name}})
		}
		s["oneOf"] = ways
	}
	return s
}

// fill is a shape whose target is made when there is something to read.
type fill[T any] struct {
	into **T
	of   func(*T) shape
}

// maybe is a shape of T that leaves a nil pointer when nothing is there.
func maybe[T any](into **T, of func(*T) shape) shape { return fill[T]{into, of} }

func (f fill[T]) read(r *reader, n *node) {
	if *f.into == nil {
		*f.into = new(T)
	}
	f.of(*f.into).read(r, n)
}

func (f fill[T]) schema() map[string]any { return f.of(new(T)).schema() }

// items is a list.
type items[T any] struct {
	into *[]T
	of   func(*T) shape
	lone bool // one item may stand without the brackets; a text may hold several, with commas between
	need bool // a list without items is a fault
}

func listOf[T any](into *[]T, of func(*T) shape) shape { return items[T]{into: into, of: of} }
func loneOrList[T any](into *[]T, of func(*T) shape) shape {
	return items[T]{into: into, of: of, lone: true}
}
func oneOrMore[T any](into *[]T, of func(*T) shape) shape {
	return items[T]{into: into, of: of, lone: true, need: true}
}

func (l items[T]) read(r *reader, n *node) {
	parts := n.items
	switch {
	case n.kind == list:
	case l.lone && n.kind == scalar:
		for part := range strings.SplitSeq(n.text, ",") {
			item := *n
			item.text = strings.TrimSpace(part)
			parts = append(parts, &item)
		}
	case l.lone:
		parts = []*node{n}
	default:
		if !n.open {
			r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted a list", r.found(n))
		}
		return
	}
	*l.into = nil
	if l.need && len(parts) == 0 {
		r.add(n.where, freshet.CodeMissing, "", "the list is empty, wanted one item or more")
	}
	for _, part := range parts {
		if part.kind == absent {
			r.add(part.where, freshet.CodeBadValue, "", "an item of the list is empty")
			continue
		}
		var v T
		l.of(&v).read(r, part)
		*l.into = append(*l.into, v)
	}
}

func (l items[T]) schema() map[string]any {
	s := map[string]any{"type": "array", "items": l.of(new(T)).schema()}
	if l.need {
		s["minItems"] = 1
	}
	if !l.lone {
		return s
	}
	return map[string]any{"anyOf": []any{l.of(new(T)).schema(), s}}
}

// Named is a value under a name that the file chooses, in the file's order.
type Named[T any] struct {
	Name  string
	Value T
	at    *node // the name
}

// named is a mapping whose keys are free.
type named[T any] struct {
	into *[]Named[T]
	of   func(*T) shape
}

func mapOf[T any](into *[]Named[T], of func(*T) shape) shape { return named[T]{into, of} }

func (m named[T]) read(r *reader, n *node) {
	if n.kind != mapping {
		if !n.open {
			r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted a mapping of names to values", r.found(n))
		}
		return
	}
	for _, p := range n.pairs {
		if slices.ContainsFunc(*m.into, func(x Named[T]) bool { return x.Name == p.key.text }) {
			r.add(p.key.where, freshet.CodeSyntax, "keep one of them", "name %q twice", p.key.text)
			continue
		}
		v := Named[T]{Name: p.key.text, at: p.key}
		if p.value.kind == absent {
			r.add(p.key.where, freshet.CodeMissing, "", "%q has no value", p.key.text)
			continue
		}
		m.of(&v.Value).read(r, p.value)
		*m.into = append(*m.into, v)
	}
}

func (m named[T]) schema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": m.of(new(T)).schema()}
}

// choice is a place that may hold different kinds of thing.
type choice struct {
	scalar  shape // nil when no scalar may come; likewise the others
	list    shape
	mapping shape
	wanted  string
}

func (c choice) read(r *reader, n *node) {
	s := map[kind]shape{scalar: c.scalar, list: c.list, mapping: c.mapping}[n.kind]
	if s == nil {
		if !n.open {
			r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted %s", r.found(n), c.wanted)
		}
		return
	}
	s.read(r, n)
}

func (c choice) schema() map[string]any {
	var ways []any
	for _, s := range []shape{c.scalar, c.list, c.mapping} {
		if s != nil {
			ways = append(ways, s.schema())
		}
	}
	return map[string]any{"anyOf": ways}
}

// found is what a message says of a value.
func (r *reader) found(n *node) string {
	switch {
	case n.quiet:
		return "a secret"
	case n.kind == scalar:
		if len(n.text) > 60 {
			return fmt.Sprintf("%.60q…", n.text)
		}
		return fmt.Sprintf("%q", n.text)
	}
	return n.kind.String()
}

func join(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
