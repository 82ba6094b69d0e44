package freshet

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNewFields says that a record has fields that the decoder's schema lacks, and that they are to be added.
var ErrNewFields = errors.New("the record has new fields")

// ErrFull says that a decoder holds as many bytes as a batch may have: flush it, and append the record again.
var ErrFull = errors.New("the decoder must be flushed first")

// Code names a kind of fault for good: "FRE-1003". `freshet explain CODE` has a page on each.
type Code string

// Class groups faults by what a caller can do about them; it decides the exit code.
type Class int

// The classes, in the order in which the worst of several wins (the highest).
const (
	ClassCheck       Class = iota // 4: a check did not pass
	ClassFailure                  // 1: it failed while working
	ClassInput                    // 2: what a person gave is wrong, or an origin has a gap
	ClassEnvironment              // 3: something we depend on is unreachable, refuses us or is full
)

// ExitCode is the class's exit code of the command.
func (c Class) ExitCode() int { return [...]int{4, 1, 2, 3}[c] }

// Error is a fault that a person will read.
type Error struct {
	Code  Code
	Class Class
	Msg   string // what is wrong: the object, the value found, the value wanted
	Place string // where: file:line:col, topic[partition]@offset, table@version; "" when it has no place
	Fix   string // the next step; "" when there is none
	Err   error  // the cause; nil when there is none
}

// Error gives place, code, message and cause on one line.
func (e *Error) Error() string {
	var s strings.Builder
	if e.Place != "" {
		s.WriteString(e.Place + ": ")
	}
	fmt.Fprintf(&s, "%s %s", e.Code, e.Msg)
	if e.Err != nil {
		s.WriteString(": " + e.Err.Error())
	}
	return s.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func rejectText(e *RejectError) string {
	var place []string
	if e.Path != "" {
		place = append(place, e.Path)
	}
	if e.Offset >= 0 {
		place = append(place, fmt.Sprintf("at byte %d", e.Offset))
	}
	switch {
	case e.InKey && e.Offset >= 0:
		place = append(place, "of the record's key")
	case e.InKey:
		place = append(place, "in the record's key")
	}
	if len(place) == 0 {
		return e.Message
	}
	return strings.Join(place, " ") + ": " + e.Message
}
