package spec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// Finding is one fault in a file or flag, with the lines around it.
type Finding struct {
	Fault   *freshet.Error
	Warning bool // the file can be used in spite of it

	place   place
	secrets []string // texts that the excerpt must not show
}

// Error is the fault on one line.
func (f *Finding) Error() string { return f.Fault.Error() }

// Unwrap returns the fault.
func (f *Finding) Unwrap() error { return f.Fault }

// Line is one line of an excerpt.
type Line struct {
	Number int    // from 1
	Text   string // without the line's end; secrets are blotted out
	Mark   bool   // the fault is here: in Text[From:To], counted in characters
	From   int
	To     int
}

// excerptWidth is how many characters of a line an excerpt shows.
const excerptWidth = 110

// Excerpt is the line of the fault and up to two before it; empty when the fault is in a flag. Of long lines it has
// the part where the fault is, with … for what is left out.
func (f *Finding) Excerpt() []Line {
	if f.place.src == nil || f.place.line < 1 || f.place.line > len(f.place.src.lines) {
		return nil
	}
	var lines []Line
	for n := max(1, f.place.line-2); n <= f.place.line; n++ {
		text := strings.TrimRight(f.place.src.lines[n-1], "\r")
		for _, s := range f.secrets {
			text = strings.ReplaceAll(text, s, strings.Repeat("•", len([]rune(s))))
		}
		if strings.TrimSpace(text) == "" && n < f.place.line {
			continue
		}
		l := Line{Number: n, Text: strings.ReplaceAll(text, "\t", " ")}
		if n == f.place.line {
			width := len([]rune(text))
			l.Mark, l.From = true, min(f.place.col-1, width)
			l.To = max(min(l.From+f.place.width, width), l.From+1)
		}
		lines = append(lines, l)
	}
	return cut(lines)
}

// cut leaves the same characters of all lines, among them the mark, which is in the last one. Lines that have none of
// them are dropped.
func cut(lines []Line) []Line {
	marked := &lines[len(lines)-1]
	start := 0
	if marked.To > excerptWidth {
		start = max(0, marked.From-excerptWidth/4)
	}
	for i := range lines {
		text := []rune(lines[i].Text)
		end := min(start+excerptWidth, len(text))
		from := min(start, end)
		long := end < len(text)
		part := text[from:end]
		if from > 0 && len(part) > 0 {
			part[0] = '…'
		}
		if lines[i].Text = string(part); long {
			lines[i].Text += "…"
		}
	}
	marked.From -= start
	marked.To = min(marked.To-start, excerptWidth)
	return slices.DeleteFunc(lines, func(l Line) bool { return !l.Mark && l.Text == "" })
}

// Findings are the faults of one or more files, in the order of the files' lines.
type Findings []*Finding

// Error is one line a fault.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (f Findings) Unwrap() []error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errs
}

// Errors are those that are no warnings.
func (f Findings) Errors() Findings {
	var errs Findings
	for _, e := range f {
		if !e.Warning {
			errs = append(errs, e)
		}
	}
	return errs
}

// reader collects the faults of one tree.
type reader struct {
	findings Findings
	secrets  []string
	lookup   *lookup
	whole    shape // of the file
}

func (r *reader) add(at place, code freshet.Code, fix, format string, args ...any) *Finding {
	f := &Finding{place: at, Fault: &freshet.Error{Code: code, Class: freshet.ClassInput, Place: at.String(),
		Fix: fix,
		Msg: fmt.Sprintf(format, args...)}}
	r.findings = append(r.findings, f)
	return f
}

// take adds an error that carries its own findings.
func (r *reader) take(err error) {
	var many Findings
	var one *Finding
	switch {
	case errors.As(err, &many):
		r.findings = append(r.findings, many...)
	case errors.As(err, &one):
		r.findings = append(r.findings, one)
	}
}

// result are the findings in the order of the text; nil when there are none.
func (r *reader) result() Findings {
	for _, f := range r.findings {
		f.secrets = r.secrets
	}
	sortFindings(r.findings)
	return r.findings
}

func sortFindings(f Findings) {
	slices.SortStableFunc(f, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(a.place.line, b.place.line), cmp.Compare(a.place.col, b.place.col))
	})
}
