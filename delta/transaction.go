package delta

import (
	"context"
	"errors"
	"time"
)

// Transaction gathers the actions of one commit. It is used by one goroutine and committed at most once.
type Transaction struct {
	table *Table
	base  *Snapshot
}

// CommitResult tells where a transaction landed.
type CommitResult struct {
	Version  int64
	Retries  int       // versions that other writers took before
	Snapshot *Snapshot // the table at Version
}

// TransactionOptions tune a Transaction. The zero value of each field means its default.
type TransactionOptions struct {
	// Deadline bounds how long Commit tries against lost races and an unavailable store. Default 5 minutes.
	Deadline time.Duration
}

// Begin starts a transaction on the state that snap shows.
func (t *Table) Begin(snap *Snapshot, opts *TransactionOptions) *Transaction {
	return &Transaction{table: t, base: snap}
}

// Add adds data files to the table.
func (tx *Transaction) Add(files ...Add) {}

// Remove takes data files out of the table.
func (tx *Transaction) Remove(files ...Remove) {}

// SetMetadata replaces the table's metadata.
func (tx *Transaction) SetMetadata(m *Metadata) {}

// SetProtocol replaces the table's protocol.
func (tx *Transaction) SetProtocol(p *Protocol) {}

// AddTxn records the progress of an application.
func (tx *Transaction) AddTxn(appID string, version int64) {}

// ExpectTxn makes the commit a compare-and-set: in the version it is built upon, on the first try and after every lost
// race, the progress of appID must equal version, or be absent when present is false; otherwise Commit fails with a
// *ConflictError of kind ConflictTxn and nothing is written.
func (tx *Transaction) ExpectTxn(appID string, version int64, present bool) {}

// Operation names what the commit does, in Spark's words: "WRITE", "STREAMING UPDATE", … Values of params are written
// as JSON strings; a value that is itself JSON, as of partitionBy, is given as its text.
func (tx *Transaction) Operation(name string, params, metrics map[string]string) {}

// BlindAppend says whether the transaction only adds files and did so without looking at the table's rows or files.
// Other writers trust it.
func (tx *Transaction) BlindAppend(blind bool) {}

// UserMetadata sets commitInfo.userMetadata.
func (tx *Transaction) UserMetadata(text string) {}

// Commit writes the transaction as the table's next version.
func (tx *Transaction) Commit(ctx context.Context) (CommitResult, error) {
	return CommitResult{}, errors.ErrUnsupported
}
