package delta

import (
	"context"
	"errors"
	"time"
)

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
