package delta

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/freshet-io/freshet/store"
)

// OpenOptions tune Open. The zero value of each field means its default.
type OpenOptions struct{}

// Table is a Delta table at the root of a store. It remembers the newest snapshot it has seen, so that looking again
// costs the new commits only. It is safe for concurrent use.
type Table struct {
	st store.Store
}

// Open finds the table at the root of st. Errors: ErrNoTable, ErrCorrupt, ErrUnsupportedFeature.
func Open(ctx context.Context, st store.Store, opts *OpenOptions) (*Table, error) {
	return nil, errors.ErrUnsupported
}

// Store is where the table lies.
func (t *Table) Store() store.Store { return t.st }

// Snapshot returns the newest version.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) { return nil, errors.ErrUnsupported }

// SnapshotAt returns the given version. Errors: ErrVersionNotFound.
func (t *Table) SnapshotAt(ctx context.Context, version int64) (*Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// SnapshotAsOf returns the newest version that was committed not later than at. Errors: ErrVersionNotFound.
func (t *Table) SnapshotAsOf(ctx context.Context, at time.Time) (*Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// HistoryEntry is one commit as its writer described it.
type HistoryEntry struct {
	Version   int64
	Timestamp time.Time
	Info      CommitInfo // zero when the writer left none
}

// History yields the newest commits first, at most limit of them; 0 means all that are left.
func (t *Table) History(ctx context.Context, limit int) iter.Seq2[HistoryEntry, error] {
	return func(yield func(HistoryEntry, error) bool) { yield(HistoryEntry{}, errors.ErrUnsupported) }
}

// CheckpointPolicy decides when a checkpoint is due. The zero value of each field means its default.
type CheckpointPolicy struct{}

// Checkpoint writes a checkpoint of the snapshot unless there is one.
func (t *Table) Checkpoint(ctx context.Context, snap *Snapshot) error { return errors.ErrUnsupported }

// MaybeCheckpoint writes a checkpoint if the policy says that one is due, and then cleans the log. It reports whether
// it wrote one. Call it off the commit path.
func (t *Table) MaybeCheckpoint(ctx context.Context, snap *Snapshot, p *CheckpointPolicy) (bool, error) {
	return false, errors.ErrUnsupported
}

// CleanOptions tune CleanLog. The zero value of each field means its default.
type CleanOptions struct {
	// Now is the time from which the retention counts. Default time.Now().
	Now time.Time
	// KeepFrom is the lowest version that must stay readable besides what the retention keeps; nil for none.
	KeepFrom *int64
	// DryRun finds what can go and leaves it.
	DryRun bool
}

// CleanLog deletes the part of the log that the table's retention no longer asks for, and returns how many files.
func (t *Table) CleanLog(ctx context.Context, opts *CleanOptions) (int, error) {
	return 0, errors.ErrUnsupported
}

// CreateOptions describe a new table. The zero value of each field means its default.
type CreateOptions struct {
	Schema      *Schema // required
	PartitionBy []string
	// Properties are the table's properties. "delta.feature.X" = "supported" asks for a table feature.
	Properties  map[string]string
	Name        string
	Description string
	EngineInfo  string // default "Freshet"
	Txns        []Txn  // recorded in the first commit
}

// Create makes a table at the root of st. Errors: ErrTableExists also when another creator won the race.
func Create(ctx context.Context, st store.Store, opts *CreateOptions) (*Table, error) {
	return nil, errors.ErrUnsupported
}
