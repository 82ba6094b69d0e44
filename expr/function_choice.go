package expr

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Functions that choose one of their arguments.
var choiceFunctions = map[string]function{
	"coalesce": {"a*", newCoalesce},
	"ifnull":   {"aa", newCoalesce},
	"nvl":      {"aa", newCoalesce},
	"nullif":   {"aa", newNullIf},
	"if":       {"baa", newIf},
	"greatest": {"a*", func(c *callSite) (node, error) { return newExtreme(c, true) }},
	"least":    {"a*", func(c *callSite) (node, error) { return newExtreme(c, false) }},
}

func newCoalesce(c *callSite) (node, error) {
	t, err := unify(c.place, c.name, c.args)
	if err != nil {
		return nil, err
	}
	return &coalesceNode{t, c.args}, nil
}

// newNullIf is null where both are equal, else the first.
func newNullIf(c *callSite) (node, error) {
	of := c.share(c.args[0])
	equal, err := newCompare(c.place, "=", of, c.args[1])
	if err != nil {
		return nil, err
	}
	t := of.typ()
	return &caseNode{t: t, when: []node{equal}, then: []node{nullConst(c.place, t), of}}, nil
}

func newIf(c *callSite) (node, error) {
	branches := c.args[1:]
	t, err := unify(c.place, "if", branches)
	if err != nil {
		return nil, err
	}
	return &caseNode{t: t, when: c.args[:1], then: branches}, nil
}

// extremeNode is the greatest or least argument that is not null.
type extremeNode struct {
	t        arrow.DataType
	args     []node
	greatest bool
}

func newExtreme(c *callSite, greatest bool) (node, error) {
	t, err := unify(c.place, c.name, c.args)
	if err != nil {
		return nil, err
	}
	if kindOf(t) == kindNested {
		return nil, incomparable(c.place, c.name, []node{c.args[0], c.args[len(c.args)-1]})
	}
	return &extremeNode{t, c.args, greatest}, nil
}

func (n *extremeNode) typ() arrow.DataType { return n.t }

func (n *extremeNode) nullable() bool {
	for _, a := range n.args {
		if !a.nullable() {
			return false
		}
	}
	return true
}

func (n *extremeNode) eval(r *run, active bitset) *vector {
	best := n.args[0].eval(r, active)
	for _, a := range n.args[1:] {
		v := a.eval(r, active)
		if kindOf(n.t) == kindNull {
			continue
		}
		low, high := best, v
		if !n.greatest {
			low, high = v, best
		}
		better := lessBits(low, high, r.rows)
		for w := range better {
			better[w] = v.valid.word(w) & (better[w] | ^best.valid.word(w))
		}
		best = merge(r, n.t, []part{{best, better.not()}, {v, better}})
	}
	return best
}
