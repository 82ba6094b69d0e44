package delta

import "fmt"

// ConflictKind says what two commits disagreed about.
type ConflictKind string

// The kinds of conflicts.
const (
	ConflictProtocol ConflictKind = "protocol" // the winner changed the table's protocol
	ConflictMetadata ConflictKind = "metadata" // the winner changed schema, partitioning or properties
	ConflictTxn      ConflictKind = "txn"      // the progress of an application is not what was expected
	ConflictDomain   ConflictKind = "domain"   // both changed the same domain metadata
	ConflictAppend   ConflictKind = "append"   // the winner added files that this transaction would have had to read
	ConflictDelete   ConflictKind = "delete"   // the winner removed a file that this transaction read or removes
)

// ConflictError says why a transaction cannot be built upon the commits that won against it. Nothing was written.
type ConflictError struct {
	Kind    ConflictKind
	Version int64  // the version that the transaction conflicts with
	Detail  string // what was found and what was wanted
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict over %s with version %d: %s", e.Kind, e.Version, e.Detail)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }
