package delta

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on with errors.Is. Errors of the store (store.ErrPermission,
// store.ErrUnavailable …) pass through wrapped.
var (
	// ErrNoTable says that there is no Delta table at the root of the store.
	ErrNoTable = errors.New("no Delta table")
	// ErrTableExists says that a table was to be created where one is, or that another creator was first.
	ErrTableExists = errors.New("a Delta table exists already")
	// ErrCorrupt says that a file of the table is broken or missing, so that its state cannot be told.
	ErrCorrupt = errors.New("the Delta table is damaged")
	// ErrUnsupportedFeature says that the table uses something that this package does not know; the error is
	// an *UnsupportedError.
	ErrUnsupportedFeature = errors.New("the Delta table uses an unsupported feature")
	// ErrVersionNotFound says that a version or moment is not in the log; the error is a *VersionError.
	ErrVersionNotFound = errors.New("no such version of the Delta table")
	// ErrRowGone says that a row was to be deleted which the file has lost already.
	ErrRowGone = errors.New("the row has been deleted already")
	// ErrConflict says that another commit won and the transaction cannot be built upon it; the error is a
	// *ConflictError.
	ErrConflict = errors.New("conflict with another commit")
	// ErrUpgrade says that a change needs a table feature that the table's protocol does not have, and that was not
	// allowed: AlterOptions.Upgrade.
	ErrUpgrade = errors.New("allow the upgrade, if all who read and write the table know it")
)

// UnsupportedError names what keeps a table from being read or written.
type UnsupportedError struct {
	Feature string // "columnMapping", "reader version 4", "column default of amount" …
	Write   bool   // the table can be read, but not written
	cause   error  // of an expression that is not understood, else nil
}

func (e *UnsupportedError) Error() string {
	verb := "read"
	if e.Write {
		verb = "write"
	}
	return fmt.Sprintf("cannot %s the Delta table: it uses %s, which is not supported", verb, e.Feature)
}

// Unwrap makes errors.Is(err, ErrUnsupportedFeature) true.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupportedFeature }

// ColumnError says that a column, or a path into one, is not there.
type ColumnError struct {
	Column string
	Detail string // what there is instead
}

func (e *ColumnError) Error() string { return fmt.Sprintf("column %q: %s", e.Column, e.Detail) }

// VersionError tells which versions of a table can be opened instead.
type VersionError struct {
	Wanted          string    // "version 12", "a version as of 2026-01-31T00:00:00Z"
	First, Last     int64     // the versions that can be opened, inclusive
	FirstAt, LastAt time.Time // when they were committed; zero when it was not needed
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s of the Delta table is not available: the log holds version %d%s to version %d%s",
		e.Wanted, e.First, ofTime(e.FirstAt), e.Last, ofTime(e.LastAt))
}

func ofTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " (" + t.Format(time.RFC3339Nano) + ")"
}

// Unwrap makes errors.Is(err, ErrVersionNotFound) true.
func (e *VersionError) Unwrap() error { return ErrVersionNotFound }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
