package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/docs"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/spec"
)

const root = "../.."

// documents are all pages for people that have blocks of code.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/codes/*.md",
		"docs/decisions/*.md", "examples/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			pages[strings.TrimPrefix(f, root+"/")] = string(data)
		}
	}
	return pages
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks are the blocks of a page in a language.
func blocks(page, language string) []string {
	var found []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

func TestDocs_YAMLBlocks_AreGoodFiles(t *testing.T) {
	dir := t.TempDir()
	project := write(t, dir, "connections: {events: {kafka: {brokers: [\"a:1\"]}}}\n")
	for name, page := range documents(t) {
		for i, block := range blocks(page, "yaml") {
			place := fmt.Sprintf("%s, block %d", name, i+1)
			if strings.HasPrefix(block, "version:") {
				write(t, t.TempDir(), block)
				continue
			}
			_, err := spec.Parse(project, place, []byte(block), &spec.LoadOptions{Lenient: true})
			var found spec.Findings
			if errors.As(err, &found) && len(found.Errors()) > 0 {
				t.Errorf("%s:\n%v", place, err)
			}
		}
	}
}

// write writes a project file and opens the project in all its environments.
func write(t *testing.T, dir, text string) *spec.Project {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, spec.ProjectFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, _ := spec.OpenProject(dir, "", true) // the loop looks at it again
	for _, env := range append([]string{""}, p.Environments()...) {
		_, err := spec.OpenProject(dir, env, true)
		var found spec.Findings
		if errors.As(err, &found) && len(found.Errors()) > 0 {
			t.Errorf("project:\n%s\n%v", text, err)
		}
	}
	return p
}

func TestDocs_ShellBlocksAndHelp_CommandsAndFlagsExist(t *testing.T) {
	texts := map[string][]string{}
	for name, page := range documents(t) {
		texts[name] = append(blocks(page, "sh"), inline(page)...)
	}
	walkCommands((&cli{}).root(), func(cmd *cobra.Command) {
		if cmd.Hidden || !cmd.Runnable() {
			return
		}
		if cmd.Example == "" && !cmd.HasSubCommands() {
			t.Errorf("%s: its help has no example", cmd.CommandPath())
		}
		if cmd.Long == "" || cmd.Short == "" {
			t.Errorf("%s: its help says too little", cmd.CommandPath())
		}
		texts["help of "+cmd.CommandPath()] = []string{cmd.Example}
	})
	checked := 0
	for name, blocks := range texts {
		for _, block := range blocks {
			for _, line := range commandLines(block) {
				checked++
				if err := checkLine(line); err != nil {
					t.Errorf("%s: %s: %v", name, line, err)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d command lines only; is the test still looking?", checked)
	}
}

var inlineCommand = regexp.MustCompile("`(freshet [a-z][^`]*)`")

// inline are the commands within sentences.
func inline(page string) []string {
	var found []string
	for _, m := range inlineCommand.FindAllStringSubmatch(page, -1) {
		found = append(found, strings.ReplaceAll(m[1], "\n", " "))
	}
	return found
}

func walkCommands(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walkCommands(sub, visit)
	}
}

// commandLines are the lines of a block that call freshet, with continued ones joined.
func commandLines(block string) []string {
	var lines []string
	block = strings.ReplaceAll(block, "\\\n", " ")
	for line := range strings.Lines(block) {
		for part := range strings.SplitSeq(line, "&&") {
			part = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(part), "$ "))
			part = strings.TrimPrefix(part, "bin/")
			if strings.HasPrefix(part, "freshet ") {
				lines = append(lines, part)
			}
		}
	}
	return lines
}

// words splits a line as a shell does, up to a comment (a # or three blanks), a pipe or a redirection.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quote, in := rune(0), false
	line, _, _ = strings.Cut(line, "    ")
	line, _, _ = strings.Cut(line, "   ")
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ':
			if in {
				out = append(out, word.String())
				word.Reset()
			}
			in = false
		case (r == '#' || r == '|' || r == '>' || r == '…') && !in:
			return out
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if in {
		out = append(out, word.String())
	}
	return out
}

func checkLine(line string) error {
	all := words(line)[1:]
	top := (&cli{}).root()
	top.SetOut(io.Discard)
	cmd, rest, err := top.Find(all)
	if err != nil {
		return err
	}
	if cmd == top && len(all) > 0 && !strings.HasPrefix(all[0], "-") {
		return fmt.Errorf("there is no command %s", all[0])
	}
	if cmd.HasSubCommands() && cmd != top && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("there is no command %s %s", cmd.Name(), rest[0])
	}
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return nil
}

func TestDocs_Codes_EachHasAPageAndEachPageACode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "code.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(text, "FRE-") {
				codes = append(codes, text)
			}
		}
		return true
	})
	slices.Sort(codes)
	if pages := docs.Codes(); !slices.Equal(codes, pages) {
		t.Errorf("codes: %v\npages: %v", codes, pages)
	}
	for _, code := range codes {
		page, _ := docs.Page(code)
		if !strings.HasPrefix(page, "# "+code+" ") || !strings.Contains(page, "\nWhat to do:\n") {
			t.Errorf("page of %s: wanted a title `# %s …` and `What to do:`", code, code)
		}
	}
}

var mentioned = regexp.MustCompile(`FRE-\d{4}`)

func TestDocs_CodesMentioned_Exist(t *testing.T) {
	for name, page := range documents(t) {
		for _, code := range mentioned.FindAllString(page, -1) {
			if _, ok := docs.Page(code); !ok {
				t.Errorf("%s: mentions %s, which does not exist", name, code)
			}
		}
	}
}

func TestDocs_Expressions_NameEveryFunction(t *testing.T) {
	page := documents(t)["docs/expressions.md"]
	for _, name := range expr.Functions() {
		if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+"(") {
			t.Errorf("docs/expressions.md: the function %s is missing", name)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestDocs_Links_LeadSomewhere(t *testing.T) {
	for name, page := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
			}
		}
	}
}

func TestDocs_Examples_LintWithoutFindings(t *testing.T) {
	c := &cli{streams: streams{out: io.Discard, err: io.Discard}}
	files, found, err := c.lint([]string{filepath.Join(root, "examples")})
	if err != nil || files < 5 || len(found) > 0 {
		t.Errorf("%d files, %v, %v", files, found, err)
	}
}
