package keyindex

import (
	"errors"
	"fmt"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrRebuild is what ErrNone, ErrForeign and ErrCorrupt have in common: Create the index anew and load it.
	ErrRebuild = errors.New("the key index must be rebuilt")
	// ErrNone says that the folder holds no index.
	ErrNone = fmt.Errorf("there is no key index: %w", ErrRebuild)
	// ErrForeign says that the index is of another table, other key columns, or another form of this package.
	ErrForeign = fmt.Errorf("the key index is of something else: %w", ErrRebuild)
	// ErrCorrupt says that a file of the index is missing, cut short, altered, or cannot be read.
	ErrCorrupt = fmt.Errorf("the key index is damaged: %w", ErrRebuild)
	// ErrLocked says that another process, or another Index of this one, has the index open.
	ErrLocked = errors.New("the key index is in use")
	// ErrNullKey says that a key column is null where the index does not take nulls; it is a *NullKeyError.
	ErrNullKey = errors.New("a key is null")
	// ErrDone says that the Index was closed, or that the Change was committed or discarded.
	ErrDone = errors.New("the key index is closed")
)

// NullKeyError tells the first row whose key is null.
type NullKeyError struct {
	Column int // of the key, from 0
	Row    int // of the batch, from 0
}

func (e *NullKeyError) Error() string {
	return fmt.Sprintf("key column %d is null in row %d of the batch; keys must not be null", e.Column, e.Row)
}

// Unwrap makes errors.Is(err, ErrNullKey) true.
func (e *NullKeyError) Unwrap() error { return ErrNullKey }
