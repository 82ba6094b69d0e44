package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/spec"
	"github.com/freshet-io/freshet/store"
)

// printError says on standard error what went wrong, where, and what to do.
//
//	✗ pipelines/clicks.yaml:14:5  FRE-1003 unknown key "partition_on"
//	    12 │   delta:
//	    13 │     table: bronze.clicks
//	  ▸ 14 │     partition_on: [event_date]
//	       │     ^^^^^^^^^^^^
//	    → did you mean "partition_by"?
func (c *cli) printError(err error) {
	for _, e := range leaves(err) {
		c.printOne(c.err, e)
	}
}

// leaves are the faults that an error consists of, those that a person reads one by one.
func leaves(err error) []error {
	var found spec.Findings
	if errors.As(err, &found) {
		var all []error
		for _, f := range found {
			all = append(all, f)
		}
		return all
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	return []error{err}
}

func (c *cli) printOne(w io.Writer, err error) {
	s := c.style(w)
	var finding *spec.Finding
	var e *freshet.Error
	switch {
	case errors.As(err, &finding):
		c.printFault(w, finding.Fault, finding.Warning)
		printExcerpt(w, s, finding)
		printFix(w, s, finding.Fault.Fix)
	case errors.As(err, &e):
		c.printFault(w, e, false)
		printFix(w, s, e.Fix)
		if e.Code != freshet.CodeUsage {
			fmt.Fprintln(w, s.paint(dim, "      freshet explain "+string(e.Code)))
		}
	default:
		fmt.Fprintf(w, "%s %v\n", s.paint(red, "✗"), err)
	}
}

func (c *cli) printFault(w io.Writer, e *freshet.Error, warning bool) {
	s := c.style(w)
	mark := s.paint(red, "✗")
	if warning {
		mark = s.paint(yellow, "⚠")
	}
	place := ""
	if e.Place != "" {
		place = s.paint(bold, e.Place) + "  "
	}
	msg := e.Msg
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	fmt.Fprintf(w, "%s %s%s %s\n", mark, place, s.paint(cyan, string(e.Code)), msg)
}

func printExcerpt(w io.Writer, s style, f *spec.Finding) {
	lines := f.Excerpt()
	if len(lines) == 0 {
		return
	}
	width := len(fmt.Sprint(lines[len(lines)-1].Number))
	width = max(width, 2)
	for _, l := range lines {
		mark := " "
		if l.Mark {
			mark = s.paint(red, "▸")
		}
		fmt.Fprintf(w, "  %s %*d %s %s\n", mark, width, l.Number, s.paint(dim, "│"), l.Text)
		if l.Mark {
			fmt.Fprintf(w, "    %*s %s %s%s\n", width, "", s.paint(dim, "│"), strings.Repeat(" ", l.From),
				s.paint(red, strings.Repeat("^", l.To-l.From)))
		}
	}
}

func printFix(w io.Writer, s style, fix string) {
	if fix != "" {
		fmt.Fprintf(w, "    %s %s\n", s.paint(green, "→"), fix)
	}
}

// exitCode is that of the worst class among the faults; an error of no class is a failure.
func exitCode(err error) int {
	worst := freshet.ClassCheck
	for _, e := range leaves(err) {
		var known *freshet.Error
		class := freshet.ClassFailure
		var finding *spec.Finding
		switch {
		case errors.As(e, &finding):
			class = finding.Fault.Class
		case errors.As(e, &known):
			class = known.Class
		}
		worst = max(worst, class)
	}
	return worst.ExitCode()
}

// tableError gives errors of a table and its store the code and remedy that a person needs.
func tableError(table string, err error) error {
	var known *freshet.Error
	if err == nil || errors.As(err, &known) && !errors.Is(err, delta.ErrNoTable) {
		return err
	}
	e := &freshet.Error{Place: table, Err: err}
	var syntax *expr.Error
	var version *delta.VersionError
	var sum *delta.ChecksumError
	var column *delta.ColumnError
	var failed *expr.RowErrors
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, delta.ErrNoTable):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeNoTable, freshet.ClassInput, "there is no Delta table here", nil
		e.Fix = "name the folder that holds _delta_log, or namespace.table of a project"
	case changesFault(e, err):
	case errors.As(err, &version):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeNoVersion, freshet.ClassInput, version.Error(), nil
		e.Fix = "look for versions with `freshet table history`"
	case errors.Is(err, delta.ErrUnsupportedFeature):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeUnsupported, freshet.ClassInput, err.Error(), nil
		e.Fix = "`freshet table compat " + table + "` tells which engines know it; or take a version from before it: --version N"
	case errors.As(err, &sum):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeCorrupt, freshet.ClassFailure, sum.Error(), nil
		e.Fix = "look into the log, or into a backup of it; if the log is right, delete " + sum.Path
	case errors.Is(err, delta.ErrCorrupt):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeCorrupt, freshet.ClassFailure, err.Error(), nil
		e.Fix = "freshet table check " + table + " tells what else is; an older version may be whole: --version N"
	case errors.Is(err, delta.ErrMissingFiles):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeMissingFile, freshet.ClassFailure, err.Error(), nil
		e.Fix = "freshet table check " + table + " tells which are missing, and --fix takes them out; or read another version"
	case errors.As(err, &syntax):
		e.Code, e.Class, e.Msg, e.Err = exprCode(syntax), freshet.ClassInput, syntax.Error(), nil
		e.Place = "--where"
	case errors.As(err, &column):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeUnknownColumn, freshet.ClassInput, column.Error(), nil
		e.Place, e.Fix = "--columns", "freshet table schema "+table+" lists the columns with their types"
	case errors.As(err, &failed):
		e.Code, e.Class, e.Msg, e.Err = freshet.CodeStepFault, freshet.ClassInput, err.Error(), nil
		e.Place, e.Fix = "--where", "leave such rows out by another condition before it, or use TRY_CAST or NULLIF"
	case errors.Is(err, store.ErrNoBucket):
		e.Code, e.Class, e.Msg = freshet.CodeNoTable, freshet.ClassInput, "there is nothing here"
		e.Fix = "look at the name of what is missing, or create it"
	case errors.Is(err, store.ErrPermission):
		e.Code, e.Class, e.Msg = freshet.CodeStoreRefused, freshet.ClassEnvironment, "the store refuses us"
		e.Fix = "check the credentials, and the rights on folder or bucket"
	case errors.Is(err, store.ErrLogStore):
		e.Code, e.Class, e.Msg = freshet.CodeBadValue, freshet.ClassInput, "commits cannot be arbitrated"
		e.Fix = "look at log_store in the project, or at FRESHET_LOG_STORE"
	case errors.Is(err, store.ErrFull):
		e.Code, e.Class, e.Msg = freshet.CodeStoreFull, freshet.ClassEnvironment, "the store is full"
	case store.Retryable(err):
		e.Code, e.Class, e.Msg = freshet.CodeStoreUnavailable, freshet.ClassEnvironment, "the store does not answer"
	default:
		return fmt.Errorf("%s: %w", table, err)
	}
	return e
}

func exprCode(e *expr.Error) freshet.Code {
	switch e.Kind {
	case expr.Syntax:
		return freshet.CodeExpression
	case expr.UnknownColumn:
		return freshet.CodeUnknownColumn
	}
	return freshet.CodeExprType
}
