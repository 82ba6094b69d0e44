package expr

import (
	"fmt"
	"strings"
)

// Kind groups the faults of an expression.
type Kind uint8

// The kinds of fault.
const (
	Syntax        Kind = iota // the text is no expression, or beyond the limits
	BadType                   // the types do not fit, or a function is unknown or called wrongly
	UnknownColumn             // a column or field that the schema does not have
	RowFault                  // the expression failed on one row's values
)

// Error is a fault in an expression, with its place.
type Error struct {
	Kind   Kind
	Line   int    // from 1
	Col    int    // from 1, in characters
	Len    int    // characters of the text at fault, at least 1, for an underline
	Msg    string // what is wrong
	Found  string // what was there; "" when Msg says it
	Wanted string // what was expected; "" when Msg says it
	Hint   string // the remedy, when there is one
}

// Error is place and fault on one line: `1:7: unknown column "tss"; did you mean "ts"?`.
func (e *Error) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Col, e.Text()) }

// Text is the fault without its place.
func (e *Error) Text() string {
	var s strings.Builder
	s.WriteString(e.Msg)
	if e.Found != "" {
		s.WriteString(": found " + e.Found)
	}
	if e.Wanted != "" {
		sep := ", "
		if e.Found == "" {
			sep = ": "
		}
		s.WriteString(sep + "wanted " + e.Wanted)
	}
	if e.Hint != "" {
		s.WriteString("; " + e.Hint)
	}
	return s.String()
}

// At returns the error as it stands in a file: line and col are where the expression's first character is,
// indent is how many characters stand before each further line of it.
func (e *Error) At(line, col, indent int) *Error {
	moved := *e
	if moved.Line == 1 {
		moved.Col += col - 1
	} else {
		moved.Col += indent
	}
	moved.Line += line - 1
	return &moved
}

// RowError is the fault of one row.
type RowError struct {
	Row int    // in the batch, from 0
	Err *Error // of kind RowFault
}

// RowErrors are the rows on which an expression failed, ascending. The result that comes with it holds null
// in them.
type RowErrors struct {
	Rows []RowError
}

// Error names the first of them and how many there are.
func (e *RowErrors) Error() string {
	first := e.Rows[0]
	if len(e.Rows) == 1 {
		return fmt.Sprintf("row %d: %v", first.Row, first.Err)
	}
	return fmt.Sprintf("row %d: %v (and %d more rows)", first.Row, first.Err, len(e.Rows)-1)
}
