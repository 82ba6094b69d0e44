package delta

import (
	"cmp"
	"context"
)

// CheckpointPolicy decides when a checkpoint is due. The zero value of each field means its default.
//
// A table whose property delta.checkpointInterval is set gets a checkpoint every so many commits. Otherwise
// they are spaced by the size of the log: rewriting a checkpoint costs what the last one was large, so each
// commit is given a credit, its own bytes and BytesPerCommit, and a checkpoint is due when the credit since
// the last one has reached the last one's size. A table of ten files gets one every ten commits, one of a
// hundred thousand files about every hundred, and what a commit pays for checkpoints stays the same while the
// table grows, up to MaxCommits, which bounds how many commits a reader has to fetch.
type CheckpointPolicy struct {
	MinCommits     int64 // never sooner; default 10
	MaxCommits     int64 // never later; default 1000
	BytesPerCommit int64 // default 64 KiB
	// Clean says how the log is cleaned after a checkpoint; an error leaves it as it is. Default: the options' defaults.
	Clean func(ctx context.Context) (*CleanOptions, error)
}

// Due reports whether a checkpoint of the snapshot is due.
func (p *CheckpointPolicy) Due(s *Snapshot) bool {
	if p == nil {
		p = &CheckpointPolicy{}
	}
	commits := s.version - s.CheckpointVersion()
	if every, ok := s.state.meta.int(propCheckpointInterval); ok {
		return commits >= every
	}
	switch {
	case commits < cmp.Or(p.MinCommits, 10):
		return false
	case commits >= cmp.Or(p.MaxCommits, 1000) || s.checkpoint == nil:
		return true
	}
	credit := max(s.logBytes-s.checkpoint.logBytes, 0) + commits*cmp.Or(p.BytesPerCommit, 64<<10)
	return credit >= s.checkpoint.bytes
}

// MaybeCheckpoint writes a checkpoint if the policy says that one is due and nobody else has written one
// lately, and then cleans the log if the table's properties allow it. It reports whether it wrote one. Call
// it off the commit path. A failure harms nothing: the log stands as it was.
func (t *Table) MaybeCheckpoint(ctx context.Context, snap *Snapshot, p *CheckpointPolicy) (bool, error) {
	if !p.Due(snap) {
		return false, nil
	}
	hint, ok, err := t.readLastCheckpoint(ctx)
	if err != nil {
		return false, err
	}
	if ok && hint.Version > snap.CheckpointVersion() {
		if snap, err = t.load(ctx, latest); err != nil {
			return false, err
		}
		if t.remember(snap); !p.Due(snap) {
			return false, nil
		}
	}
	if err := t.Checkpoint(ctx, snap); err != nil {
		return false, err
	}
	if !snap.state.meta.boolean(propCleanup, true) {
		return true, nil
	}
	var opts *CleanOptions
	if p != nil && p.Clean != nil {
		if opts, err = p.Clean(ctx); err != nil {
			return true, err
		}
	}
	_, err = t.CleanLog(ctx, opts)
	return true, err
}
