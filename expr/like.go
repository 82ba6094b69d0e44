package expr

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is a LIKE pattern: texts that must follow each other. % is between two parts, _ is wild within one.
type pattern struct {
	parts [][]symbol // at least one; those within are non-empty
	fold  bool
	plain []byte // the whole of a single part, or the prefix before the first %, when it has no _
}

// symbol is one character of a pattern; wild stands for any one.
type symbol struct {
	char rune
	wild bool
}

// parsePattern reads a pattern; escape is 0 when there is none.
func parsePattern(text string, escape rune, fold bool) (*pattern, error) {
	p := &pattern{fold: fold, parts: [][]symbol{nil}}
	escaped := false
	for _, r := range text {
		last := len(p.parts) - 1
		switch {
		case escaped && r != '%' && r != '_' && r != escape:
			return nil, fmt.Errorf("in the pattern '%s' the escape %q stands before %q, "+
				"wanted %%, _ or itself", clip(text), escape, r)
		case escaped:
			escaped = false
			p.parts[last] = append(p.parts[last], symbol{char: r})
		case r == escape && escape != 0:
			escaped = true
		case r == '%':
			p.parts = append(p.parts, nil)
		case r == '_':
			p.parts[last] = append(p.parts[last], symbol{wild: true})
		default:
			if fold {
				r = foldRune(r)
			}
			p.parts[last] = append(p.parts[last], symbol{char: r})
		}
	}
	if escaped {
		return nil, fmt.Errorf("the pattern '%s' ends in the escape", clip(text))
	}
	p.plain = p.prefix()
	return p, nil
}

// foldRune gives letters that differ in case only the same rune.
func foldRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

// prefix is the fixed text before the first % or _.
func (p *pattern) prefix() []byte {
	var out []byte
	if p.fold {
		return nil
	}
	for _, s := range p.parts[0] {
		if s.wild {
			break
		}
		out = utf8.AppendRune(out, s.char)
	}
	return out
}

// matcher returns the test of one value: compares of bytes for x, x%, %x, %x%, and a scan for the rest.
func (p *pattern) matcher() func([]byte) bool {
	texts, plain := p.texts()
	switch {
	case !plain:
		return p.match
	case len(texts) == 1:
		return func(s []byte) bool { return bytes.Equal(s, texts[0]) }
	case len(texts) == 2 && len(texts[1]) == 0:
		return func(s []byte) bool { return bytes.HasPrefix(s, texts[0]) }
	case len(texts) == 2 && len(texts[0]) == 0:
		return func(s []byte) bool { return bytes.HasSuffix(s, texts[1]) }
	case len(texts) == 3 && len(texts[0])+len(texts[2]) == 0:
		return func(s []byte) bool { return bytes.Contains(s, texts[1]) }
	}
	return p.match
}

// texts are the parts as bytes, if no part is wild or folded.
func (p *pattern) texts() (texts [][]byte, plain bool) {
	if p.fold {
		return nil, false
	}
	for _, part := range p.parts {
		var text []byte
		for _, s := range part {
			if s.wild {
				return nil, false
			}
			text = utf8.AppendRune(text, s.char)
		}
		texts = append(texts, text)
	}
	return texts, true
}

// match finds each part as early as it goes; that is enough, since what lies between parts is free.
func (p *pattern) match(s []byte) bool {
	last := len(p.parts) - 1
	n, ok := p.matchPart(0, s)
	if !ok {
		return false
	}
	s = s[n:]
	if last == 0 {
		return len(s) == 0
	}
	for part := 1; part < last; part++ {
		for {
			n, ok := p.matchPart(part, s)
			if ok {
				s = s[n:]
				break
			}
			if len(s) == 0 {
				return false
			}
			_, size := utf8.DecodeRune(s)
			s = s[size:]
		}
	}
	at := len(s)
	for range p.parts[last] {
		if at == 0 {
			return false
		}
		_, size := utf8.DecodeLastRune(s[:at])
		at -= size
	}
	_, ok = p.matchPart(last, s[at:])
	return ok
}

// matchPart matches a part at the beginning of s and returns how many bytes it covers.
func (p *pattern) matchPart(part int, s []byte) (int, bool) {
	at := 0
	for _, want := range p.parts[part] {
		if at == len(s) {
			return 0, false
		}
		r, size := utf8.DecodeRune(s[at:])
		if p.fold {
			r = foldRune(r)
		}
		if !want.wild && r != want.char {
			return 0, false
		}
		at += size
	}
	return at, true
}

// likeNode is LIKE with a constant pattern.
type likeNode struct {
	mapNode
	prefix []byte // every match begins with it
	exact  bool   // only the prefix itself matches
}

func (b *binder) like(s *like) (node, error) {
	nodes, err := b.bindAll(append([]syntax{s.of, s.pattern}, optional(s.escape)...))
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		same, ok, err := coerce(n, typeString)
		if err != nil {
			return nil, err
		}
		if !ok {
			fault := s.typeFault("%s takes strings", likeWord(s))
			fault.Found = typeName(n.typ())
			return nil, fault
		}
		nodes[i] = same
	}
	escape, err := escapeOf(s, nodes)
	if err != nil {
		return nil, err
	}
	if c, ok := nodes[1].(*constNode); ok && !c.isNull() {
		p, err := parsePattern(c.value.str(0), escape, s.fold)
		if err != nil {
			return nil, s.pattern.where().typeFault("%v", err)
		}
		return negated(newLike(s.place, nodes[0], p), s.not), nil
	}
	match := func(k *kernel, i int) (bool, result) {
		p, err := parsePattern(k.args[1].str(i), escape, s.fold)
		if err != nil {
			k.fault(i, "%v", err)
			return false, isFault
		}
		return p.match(k.args[0].bytes(i)), isValue
	}
	return negated(&mapNode{t: typeBool, at: s.place, args: nodes[:2], run: mapBools(match)}, s.not), nil
}

func newLike(at place, of node, p *pattern) node {
	match := p.matcher()
	n := &likeNode{prefix: p.plain, exact: len(p.parts) == 1 && !p.fold}
	for _, s := range p.parts[0] {
		n.exact = n.exact && !s.wild
	}
	n.mapNode = mapNode{t: typeBool, at: at, args: []node{of}, run: func(k *kernel) {
		v := k.args[0]
		k.out.bools = newBits(k.r.rows)
		fillWith(k.out.bools, k.r.rows, func(i int) bool { return k.live.has(i) && match(v.bytes(i)) })
	}}
	return fold(n)
}

func likeWord(s *like) string {
	if s.fold {
		return "ILIKE"
	}
	return "LIKE"
}

func optional(s syntax) []syntax {
	if s == nil {
		return nil
	}
	return []syntax{s}
}

// escapeOf is the escape character, 0 when there is none.
func escapeOf(s *like, nodes []node) (rune, error) {
	if len(nodes) < 3 {
		return 0, nil
	}
	c, ok := nodes[2].(*constNode)
	if ok && !c.isNull() {
		if text := c.value.str(0); utf8.RuneCountInString(text) == 1 && !strings.ContainsAny(text, "%_") {
			r, _ := utf8.DecodeRuneInString(text)
			return r, nil
		}
	}
	return 0, s.escape.where().typeFault("ESCAPE takes a string of one character other than %% and _")
}
