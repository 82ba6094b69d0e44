package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// changeError gives the errors of changing a table, and of looking after it, their code and remedy.
func changeError(table string, err error) error {
	var known *freshet.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	e := &freshet.Error{Place: table, Class: freshet.ClassInput, Code: freshet.CodeUsage, Msg: err.Error()}
	if rowFault(e, err) || changeFault(e, err) {
		return e
	}
	return askedError(table, err)
}

// convertError is changeError where there is no table yet, but files that shall become one.
func convertError(folder string, err error) error {
	err = changeError(folder, err)
	var e *freshet.Error
	if errors.As(err, &e) && (e.Code == freshet.CodeCorrupt || e.Code == freshet.CodeSchemaMismatch) {
		e.Msg = strings.ReplaceAll(strings.ReplaceAll(e.Msg, delta.ErrCorrupt.Error()+": ", ""), "; cast the column, or write to another table", "")
		e.Fix = "no table was made; write the file anew, or move it elsewhere, or to a name that begins with _"
	}
	return err
}

// rowFault completes the error when it is one about rows, or about the expressions that make them.
func rowFault(e *freshet.Error, err error) bool {
	var fault *expr.Error
	var failed *expr.RowErrors
	var null *delta.NullError
	var mismatch *delta.SchemaMismatchError
	var value *delta.ValueError
	var twice *delta.AmbiguousMergeError
	var broken *delta.ConstraintError
	var reject *freshet.RejectError
	switch {
	case errors.As(err, &broken):
		e.Code, e.Fix = freshet.CodeConstraint, "nothing was written; leave the row out, or look at `freshet table constraint list`"
	case errors.As(err, &failed):
		e.Code, e.Fix = freshet.CodeStepFault, "narrow --where, or use try_cast"
	case errors.As(err, &fault):
		e.Code = exprCode(fault)
	case errors.As(err, &null):
		e.Code, e.Fix = freshet.CodeNull, "nothing was written; give the column a value"
	case errors.As(err, &value):
		e.Code, e.Fix = freshet.CodeSchemaMismatch, "nothing was written; leave the row out, or CAST the value"
	case errors.As(err, &mismatch):
		e.Code, e.Fix = freshet.CodeSchemaMismatch, "see the table's columns with `freshet table schema`, and CAST the value"
	case errors.As(err, &twice):
		e.Msg = "several rows of the source change the same row of the table: " + twice.Row
		e.Fix = "leave one source row for each key, or narrow the conditions"
	case errors.As(err, &reject):
		e.Code = reject.Code
	default:
		return false
	}
	return true
}

// changeFault completes the error when it is one about what was to become of the table.
func changeFault(e *freshet.Error, err error) bool {
	switch {
	case errors.Is(err, delta.ErrUpgrade):
		e.Code, e.Fix = freshet.CodeBadValue, "--upgrade allows it; `freshet table compat` tells who can use the table now"
	case errors.Is(err, delta.ErrRetention):
		e.Fix = "give --force if nobody reads or writes the table for longer than that"
	case errors.Is(err, delta.ErrProgress):
		e.Fix = "give --progress keep or --progress rewind"
	case errors.Is(err, delta.ErrNotPartition):
		e.Fix = "name partition columns only: see `freshet table describe`"
	case errors.Is(err, delta.ErrTableExists):
		e.Msg, e.Fix = "there is a Delta table here already", "choose another folder"
	case errors.Is(err, delta.ErrDeletionVectors):
		e.Code, e.Fix = freshet.CodeUnsupported, "freshet table optimize "+e.Place+" --max-deleted 0.0000001"
	case errors.Is(err, delta.ErrConflict):
		e.Code, e.Class = freshet.CodeConflict, freshet.ClassFailure
		e.Fix = "start it again when the other writers are done; what is committed stays"
	case errors.Is(err, store.ErrAmbiguous):
		e.Code, e.Class = freshet.CodeStoreUnavailable, freshet.ClassEnvironment
		e.Fix = "it is not known whether the commit landed: look with `freshet table history`"
	default:
		return false
	}
	return true
}

// askedError takes errors that are of no kind of their own, and no trouble with files or the network, for faults of what
// the person asked for.
func askedError(name string, err error) error {
	told := tableError(name, err)
	var known *freshet.Error
	var file *fs.PathError
	var network net.Error
	if errors.As(told, &known) || errors.As(err, &file) || errors.As(err, &network) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return told
	}
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: name, Msg: err.Error()}
}
