package spec

import (
	"fmt"
	"os"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// Secret is a text that no log, message or dump shows.
type Secret struct{ text string }

// Reveal returns the text itself.
func (s Secret) Reveal() string { return s.text }

// String hides the text.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return "(secret)"
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the text from JSON and from logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// lookup is where variables come from.
type lookup struct {
	env     func(string) (string, bool)
	file    func(string) ([]byte, error)
	name    string // of the environment: ${env.name}
	lenient bool   // a variable that is not set makes its place open, and is a warning
}

func systemLookup(environment string, lenient bool) *lookup {
	return &lookup{env: os.LookupEnv, file: os.ReadFile, name: environment, lenient: lenient}
}

// expand replaces the variables in all scalars of the tree. Keys stay as they are.
//
// ${NAME} ${NAME:-default} ${NAME:?message} ${env.name} ${secret:env:NAME} ${secret:file:PATH} $${ for ${
func (r *reader) expand(n *node, seen map[*node]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	for _, item := range n.items {
		r.expand(item, seen)
	}
	for _, p := range n.pairs {
		r.expand(p.value, seen)
	}
	if n.kind == scalar && strings.Contains(n.text, "${") {
		r.expandText(n)
	}
}

func (r *reader) expandText(n *node) {
	var out strings.Builder
	rest := n.text
	n.moved = true
	for {
		before, after, found := strings.Cut(rest, "${")
		if !found {
			out.WriteString(rest)
			break
		}
		if text, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(text + "${")
			rest = after
			continue
		}
		out.WriteString(before)
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			r.add(n.where, freshet.CodeSyntax, "close it with }, or write $${ for the two characters themselves",
				"a variable is not closed: found %q", "${"+after)
			n.open = true
			return
		}
		out.WriteString(r.variable(n, name))
		rest = tail
	}
	n.text = out.String()
}

// variable returns the value of one reference, the text between the braces.
func (r *reader) variable(n *node, ref string) string {
	if secret, ok := strings.CutPrefix(ref, "secret:"); ok {
		return r.secret(n, secret)
	}
	if ref == "env.name" {
		return r.lookup.name
	}
	name, fallback, hasFallback := strings.Cut(ref, ":-")
	if !hasFallback {
		name, _, _ = strings.Cut(ref, ":?")
	}
	if !isVariable(name) {
		n.open = true
		r.add(n.where, freshet.CodeSyntax, "variables are ${NAME}, ${NAME:-default}, ${NAME:?message}, "+
			"${secret:env:NAME} and ${secret:file:PATH}", "no variable of this form: found %q", "${"+ref+"}")
		return ""
	}
	if v, ok := r.lookup.env(name); ok && (v != "" || !hasFallback) {
		return v
	}
	if hasFallback {
		return fallback
	}
	_, message, _ := strings.Cut(ref, ":?")
	if message == "" {
		message = fmt.Sprintf("set it, or give a default: ${%s:-…}", name)
	}
	r.unset(n, message, "variable %s is not set", name)
	return ""
}

// secret returns the value of a secret: env:NAME or file:PATH.
func (r *reader) secret(n *node, ref string) string {
	n.quiet = true
	from, name, _ := strings.Cut(ref, ":")
	switch from {
	case "env":
		if v, ok := r.lookup.env(name); ok {
			return v
		}
		r.unset(n, "set it in the environment of the process", "secret %s is not set", name)
	case "file":
		data, err := r.lookup.file(name)
		if err == nil {
			return strings.TrimRight(string(data), "\r\n")
		}
		r.unset(n, "write the secret into that file, readable by the process", "secret file: %v", err)
	default:
		n.open = true
		r.add(n.where, freshet.CodeUnavailable, "use ${secret:env:NAME} or ${secret:file:PATH}",
			"secrets of the kind %q: this version has env and file", from)
	}
	return ""
}

func (r *reader) unset(n *node, fix, format string, args ...any) {
	n.open = true
	f := r.add(n.where, freshet.CodeMissing, fix, format, args...)
	f.Warning = r.lookup.lenient
}

func isVariable(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
