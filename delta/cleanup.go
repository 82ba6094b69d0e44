package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// deletesAtOnce is how many files are deleted side by side.
const deletesAtOnce = 16

// sidecarAge is how old a sidecar must be before it counts as left over: younger ones may belong to a
// checkpoint that is being written.
const sidecarAge = 24 * time.Hour

// CleanOptions tune CleanLog. The zero value of each field means its default.
type CleanOptions struct {
	// Now is the time from which the retention counts. Default time.Now().
	Now time.Time
	// KeepFrom is the lowest version that must stay readable besides what the retention keeps; nil for none.
	KeepFrom *int64
	// KeepVersions must stay readable, too, but not what lies between them: the checkpoint and the commit of each are
	// left. From one on that has no checkpoint, all stays.
	KeepVersions []int64
	// DryRun finds what can go and leaves it.
	DryRun bool
}

// CleanLog deletes the part of the log that is older than delta.logRetentionDuration and returns how many
// files those were. What stays begins with a checkpoint that was read to the end before anything was deleted,
// and with the commit of its version. When there is no such checkpoint nothing is deleted. Files go oldest
// first; where checkpointProtection guards features that were dropped, commits go before checkpoints, which hide from
// old readers what they cannot read, and all is kept from the first of KeepVersions on that the protection is for. Spec:
// "Metadata Cleanup"; "Writer Requirements for Checkpoint Protection", exception a: no checkpoint is made here, and none
// is deleted behind the version that the log then begins with.
func (t *Table) CleanLog(ctx context.Context, opts *CleanOptions) (int, error) {
	if opts == nil {
		opts = &CleanOptions{}
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if err := snap.CheckWrite(); err != nil {
		return 0, err
	}
	retention, err := snap.state.meta.duration(propLogRetention, defaultLogRetention)
	if err != nil {
		return 0, fmt.Errorf("clean the log: %w", err)
	}
	now := opts.Now
	if now.IsZero() {
		now = time.Now()
	}
	cutoff := now.Add(-retention).UTC().Truncate(24 * time.Hour)
	limit, guarded := min(keepFrom(opts), snap.version), snap.state.proto.Supports("checkpointProtection")
	if before, _ := snap.state.meta.int(propProtection); guarded {
		for _, v := range opts.KeepVersions {
			if v < before {
				limit = min(limit, v)
			}
		}
	}
	keys, err := t.expired(ctx, cutoff, limit, opts.KeepVersions)
	if err != nil {
		return 0, fmt.Errorf("clean the log: %w", err)
	}
	if opts.DryRun || len(keys) == 0 {
		return len(keys), nil
	}
	if guarded {
		err = t.deleteInTurn(ctx, keys)
	} else {
		err = t.deleteAll(ctx, keys)
	}
	if err != nil {
		return 0, fmt.Errorf("clean the log: %w", err)
	}
	return len(keys), nil
}

// deleteInTurn deletes what is no checkpoint, then checkpoints.
func (t *Table) deleteInTurn(ctx context.Context, keys []string) error {
	var first, last []string
	for _, key := range keys {
		if strings.HasPrefix(key, sidecarDir) || parseLogKey(key).kind == logCheckpoint {
			last = append(last, key)
		} else {
			first = append(first, key)
		}
	}
	if err := t.deleteAll(ctx, first); err != nil {
		return err
	}
	return t.deleteAll(ctx, last)
}

func keepFrom(opts *CleanOptions) int64 {
	if opts.KeepFrom == nil {
		return latest
	}
	return *opts.KeepFrom
}

// expired lists what lies before the newest usable checkpoint that is not newer than the cut-off and the
// version limit. The listing stops at the first commit that stays, so that it costs what there is to delete.
func (t *Table) expired(ctx context.Context, cutoff time.Time, limit int64, keep []int64) ([]string, error) {
	old, err := t.oldPart(ctx, cutoff, limit)
	if err != nil {
		return nil, err
	}
	islands, limit, err := t.islands(ctx, old, keep, limit)
	if err != nil {
		return nil, err
	}
	for i := len(old.checkpoints) - 1; i >= 0; i-- {
		c := old.checkpoints[i]
		if c.version > limit {
			continue
		}
		err := t.loadable(ctx, c)
		if err != nil && !unusable(err) {
			return nil, err
		}
		if err != nil {
			continue
		}
		var keys []string
		for _, f := range old.files {
			if f.version < c.version && !slices.Contains(islands, f.version) {
				keys = append(keys, f.key)
			}
		}
		sidecars, err := t.strandedSidecars(ctx, min(c.version, slices.Min(append(islands, c.version))), cutoff)
		return append(keys, sidecars...), err
	}
	return nil, nil
}

// islands are those of the versions to keep that stand on a checkpoint of their own, and the version from which on all must
// stay, since one of them does not.
func (t *Table) islands(ctx context.Context, old *oldPart, keep []int64, limit int64) ([]int64, int64, error) {
	var islands []int64
	for _, v := range keep {
		i := slices.IndexFunc(old.checkpoints, func(c *checkpointFile) bool { return c.version == v })
		if i < 0 {
			limit = min(limit, v)
			continue
		}
		err := t.loadable(ctx, old.checkpoints[i])
		switch {
		case err == nil:
			islands = append(islands, v)
		case unusable(err):
			limit = min(limit, v)
		default:
			return nil, 0, err
		}
	}
	return islands, limit, nil
}

// oldPart is the part of the log that is older than the retention.
type oldPart struct {
	files []struct {
		version int64
		key     string
	}
	checkpoints []*checkpointFile // those that may become the beginning of the log
}

func (t *Table) oldPart(ctx context.Context, cutoff time.Time, limit int64) (*oldPart, error) {
	old := &oldPart{}
	var found candidates
	var clock commitClock
	for o, err := range t.st.List(ctx, logDir, logDir) {
		if err != nil {
			return nil, err
		}
		if o.Key[len(logDir)] > '9' {
			break
		}
		f := parseLogKey(o.Key)
		if f.kind == logOther {
			continue
		}
		if f.version > limit {
			break
		}
		old.files = append(old.files, struct {
			version int64
			key     string
		}{f.version, o.Key})
		if f.version != found.version {
			found = candidates{version: f.version}
		}
		if f.kind == logCheckpoint {
			found.add(f, o)
		}
		if f.kind != logCommit {
			continue
		}
		at, moved := clock.next(o.Modified)
		if at.After(cutoff) {
			break
		}
		// A commit whose time leans on the one before cannot become the first: its time would change.
		if c := found.best(nil); c != nil && !moved {
			old.checkpoints = append(old.checkpoints, c)
		}
	}
	return old, nil
}

// loadable reads a checkpoint to its end.
func (t *Table) loadable(ctx context.Context, c *checkpointFile) error {
	if err := (&builder{table: t}).fromCheckpoint(ctx, c); err != nil {
		return err
	}
	for _, err := range t.readCheckpoint(ctx, c, kindFiles, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// strandedSidecars are the sidecars that no checkpoint from the version on names.
func (t *Table) strandedSidecars(ctx context.Context, from int64, cutoff time.Time) ([]string, error) {
	var stranded []string
	for o, err := range t.st.List(ctx, sidecarDir, "") {
		if err != nil {
			return nil, err
		}
		if o.Modified.Before(cutoff.Add(-sidecarAge)) {
			stranded = append(stranded, o.Key)
		}
	}
	if len(stranded) == 0 {
		return nil, nil
	}
	used, err := t.usedSidecars(ctx, from)
	if errors.Is(err, ErrCorrupt) {
		return nil, nil // where it cannot be told which are used, none are deleted
	}
	if err != nil {
		return nil, err
	}
	kept := stranded[:0]
	for _, key := range stranded {
		if !used[key] && strings.HasSuffix(key, ".parquet") {
			kept = append(kept, key)
		}
	}
	return kept, nil
}

// usedSidecars are the sidecars that checkpoints from the version on name.
func (t *Table) usedSidecars(ctx context.Context, from int64) (map[string]bool, error) {
	used := map[string]bool{}
	for o, err := range t.st.List(ctx, logDir, versionPrefix(from)) {
		if err != nil {
			return nil, err
		}
		if o.Key[len(logDir)] > '9' {
			break
		}
		f := parseLogKey(o.Key)
		if f.kind != logCheckpoint {
			continue
		}
		c := &checkpointFile{version: f.version, files: []store.Object{o}, json: f.json}
		for a, err := range t.readTop(ctx, c, kindSidecar, nil) {
			if err != nil {
				return nil, err
			}
			key, err := a.Sidecar.key()
			if err != nil {
				return nil, err
			}
			used[key] = true
		}
	}
	return used, nil
}

// deleteAll deletes the files, in their order as far as a few go side by side.
func (t *Table) deleteAll(ctx context.Context, keys []string) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(deletesAtOnce)
	for _, key := range keys {
		group.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			return t.st.Delete(gctx, key)
		})
	}
	return group.Wait()
}
