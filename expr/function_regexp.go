package expr

import (
	"regexp"
)

// Patterns are RE2's, as Go's regexp has them: linear time, no back-references. They are constants, compiled
// once.
var regexpFunctions = map[string]function{
	"regexp_like":    {"ss", newRegexpLike},
	"regexp_matches": {"ss", newRegexpLike},
	"regexp_extract": {"ss?i", newRegexpExtract},
	"regexp_replace": {"sss?s", newRegexpReplace},
}

// pattern takes the second argument as a pattern and leaves the others.
func (c *callSite) pattern() (*regexp.Regexp, error) {
	text, err := c.constText(1, "the pattern")
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		fault := c.typeFault("the pattern of %s is wrong: %v", c.name, err)
		return nil, fault
	}
	return re, nil
}

// newRegexpLike tells whether the pattern matches anywhere in the string.
func newRegexpLike(c *callSite) (node, error) {
	re, err := c.pattern()
	if err != nil {
		return nil, err
	}
	return c.node(typeBool, mapBools(func(k *kernel, i int) (bool, result) {
		return re.Match(k.args[0].bytes(i)), isValue
	}))
}

// newRegexpExtract gives a group of the first match, by default the whole of it; "" when nothing matches.
func newRegexpExtract(c *callSite) (node, error) {
	re, err := c.pattern()
	if err != nil {
		return nil, err
	}
	group := int64(0)
	if len(c.args) > 2 {
		if group, err = c.constInt(2, "the group"); err != nil {
			return nil, err
		}
	}
	if group < 0 || group > int64(re.NumSubexp()) {
		return nil, c.typeFault("the pattern has %d groups, and regexp_extract is to give group %d",
			re.NumSubexp(), group)
	}
	return c.node(typeString, mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		s := k.args[0].bytes(i)
		at := re.FindSubmatchIndex(s)
		if at == nil || at[2*group] < 0 {
			return dst, isValue
		}
		return append(dst, s[at[2*group]:at[2*group+1]]...), isValue
	}))
}

// newRegexpReplace replaces the first match, with the option 'g' all of them. \0 to \9 in the replacement are
// groups, \\ is a backslash.
func newRegexpReplace(c *callSite) (node, error) {
	re, err := c.pattern()
	if err != nil {
		return nil, err
	}
	text, err := c.constText(2, "the replacement")
	if err != nil {
		return nil, err
	}
	by, err := parseReplacement(c, text, re.NumSubexp())
	if err != nil {
		return nil, err
	}
	most := 1
	if len(c.args) > 3 {
		option, err := c.constText(3, "the option")
		if err != nil {
			return nil, err
		}
		if option != "g" && option != "" {
			return nil, c.typeFault("regexp_replace knows the option 'g' (all matches), found '%s'",
				clip(option))
		}
		if option == "g" {
			most = -1
		}
	}
	return c.node(typeString, mapBytes(func(k *kernel, i int, dst []byte) ([]byte, result) {
		s, last, before := k.args[0].bytes(i), 0, len(dst)
		for _, at := range re.FindAllSubmatchIndex(s, most) {
			dst = append(dst, s[last:at[0]]...)
			dst = by.append(dst, s, at)
			last = at[1]
			if len(dst)-before > maxValueBytes {
				break
			}
		}
		return append(dst, s[last:]...), isValue
	}))
}

// replacement is texts and groups in turn: a group follows each text but the last.
type replacement struct {
	texts  []string
	groups []int
}

func parseReplacement(c *callSite, text string, groups int) (replacement, error) {
	var out replacement
	var plain []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			plain = append(plain, text[i])
			continue
		}
		i++
		if !isDigit(text[i]) {
			plain = append(plain, text[i])
			continue
		}
		group := int(text[i] - '0')
		if group > groups {
			return out, c.typeFault("the pattern has %d groups, and the replacement names \\%d",
				groups, group)
		}
		out.texts, out.groups = append(out.texts, string(plain)), append(out.groups, group)
		plain = nil
	}
	out.texts = append(out.texts, string(plain))
	return out, nil
}

func (r replacement) append(dst, s []byte, at []int) []byte {
	for i, text := range r.texts {
		dst = append(dst, text...)
		if i < len(r.groups) {
			if g := r.groups[i]; at[2*g] >= 0 {
				dst = append(dst, s[at[2*g]:at[2*g+1]]...)
			}
		}
	}
	return dst
}
