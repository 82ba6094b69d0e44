package delta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// SnapshotAt returns the given version. Errors: ErrVersionNotFound, with the versions that there are.
func (t *Table) SnapshotAt(ctx context.Context, version int64) (*Snapshot, error) {
	if version < 0 || version == latest {
		return nil, t.versionError(ctx, version)
	}
	if s := t.remembered(); s != nil && s.version == version {
		return s, nil
	}
	return t.load(ctx, version)
}

// SnapshotAsOf returns the newest version that was committed not later than at. Errors: ErrVersionNotFound
// when at is before the first version that can be read or after the last one. Spec: "In-Commit Timestamps",
// recommendations for readers.
func (t *Table) SnapshotAsOf(ctx context.Context, at time.Time) (*Snapshot, error) {
	version, err := t.versionAsOf(ctx, at)
	if err != nil {
		return nil, err
	}
	return t.SnapshotAt(ctx, version)
}

// VersionAsOf returns the newest version that was committed not later than at. Errors: as SnapshotAsOf.
func (t *Table) VersionAsOf(ctx context.Context, at time.Time) (int64, error) {
	return t.versionAsOf(ctx, at)
}

// VersionSince returns the first version that was committed not before at: the first one that can be read when at is
// before all of them. Errors: ErrVersionNotFound when at is after the last version.
func (t *Table) VersionSince(ctx context.Context, at time.Time) (int64, error) {
	at = at.Add(time.Millisecond - 1).Truncate(time.Millisecond) // commits are timed in whole ms
	before, err := t.versionAsOf(ctx, at.Add(-time.Millisecond))
	var none *VersionError
	switch {
	case errors.As(err, &none) && at.After(none.LastAt):
		return 0, none.since(at)
	case errors.As(err, &none):
		return none.First, nil
	case err != nil:
		return 0, err
	}
	newest, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if before >= newest.version {
		end, err := newest.Timestamp(ctx)
		if err != nil {
			return 0, err
		}
		return 0, (&VersionError{First: before, Last: newest.version, LastAt: end}).since(at)
	}
	return before + 1, nil
}

func (e *VersionError) since(at time.Time) error {
	late := *e
	late.Wanted = "a version since " + at.UTC().Format(time.RFC3339Nano)
	return &late
}

func (t *Table) versionAsOf(ctx context.Context, at time.Time) (int64, error) {
	newest, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	first, err := t.firstVersion(ctx)
	if err != nil {
		return 0, err
	}
	end, err := newest.Timestamp(ctx)
	if err != nil {
		return 0, err
	}
	wrong := &VersionError{Wanted: "a version as of " + at.UTC().Format(time.RFC3339Nano), First: first,
		Last: newest.version, LastAt: end}
	if at.UnixMilli() > end.UnixMilli() {
		return 0, wrong
	}
	from, to, byFile := first, newest.version, true
	if inCommitTimestamps(newest.state.proto, newest.state.meta) {
		enabled, since := newest.enablement()
		if byFile = enabled > 0 && at.UnixMilli() < since; byFile {
			to = enabled - 1
		} else {
			from = max(from, enabled)
		}
	}
	if byFile {
		return t.searchFiles(ctx, at, from, to, wrong)
	}
	return t.searchCommits(ctx, at, from, to, wrong)
}

// enablement is the version from which commits carry timestamps, and its timestamp; 0 when all do.
func (s *Snapshot) enablement() (version, ms int64) {
	version, err := strconv.ParseInt(s.state.meta.Configuration[propICTVersion], 10, 64)
	if err != nil {
		return 0, math.MinInt64
	}
	ms, err = strconv.ParseInt(s.state.meta.Configuration[propICTTimestamp], 10, 64)
	if err != nil {
		return 0, math.MinInt64
	}
	return version, ms
}

// searchFiles finds the version by the times of the log's files.
func (t *Table) searchFiles(ctx context.Context, at time.Time, from, to int64, wrong *VersionError,
) (int64, error) {
	found := int64(-1)
	for c, err := range t.commitFiles(ctx, from) {
		if err != nil {
			return 0, err
		}
		if c.version > to {
			break
		}
		if c.version == from {
			wrong.FirstAt = c.at.UTC()
		}
		if c.at.After(at) {
			if found >= 0 && c.version > found+1 {
				return 0, wrong // the version of that time was cleaned away between two that were kept
			}
			break
		}
		found = c.version
	}
	if found < 0 {
		return 0, wrong
	}
	return found, nil
}

// searchCommits finds the version by halving, since in-commit timestamps increase.
func (t *Table) searchCommits(ctx context.Context, at time.Time, from, to int64, wrong *VersionError,
) (int64, error) {
	first, low := from, from-1 // low is known to be early enough, but for the beginning
	for high := to; low < high; {
		middle := low + (high-low+1)/2
		info, _, err := t.commitInfo(ctx, middle)
		if err != nil {
			return 0, err
		}
		if info.InCommitTimestamp == nil {
			return 0, corrupt("version %d has no in-commit timestamp, which the table's properties promise", middle)
		}
		if middle == first {
			wrong.FirstAt = time.UnixMilli(*info.InCommitTimestamp).UTC()
		}
		if *info.InCommitTimestamp <= at.UnixMilli() {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low < first {
		return 0, wrong
	}
	return low, nil
}

// firstVersion is the oldest version that can be read: 0, or that of the oldest checkpoint.
func (t *Table) firstVersion(ctx context.Context) (int64, error) {
	var found candidates
	for o, err := range t.st.List(ctx, logDir, logDir) {
		if err != nil {
			return 0, fmt.Errorf("list the log: %w", err)
		}
		if o.Key[len(logDir)] > '9' {
			break
		}
		f := parseLogKey(o.Key)
		if f.kind == logCommit && f.version == 0 {
			return 0, nil
		}
		if f.kind != logCheckpoint {
			continue
		}
		if f.version != found.version {
			found = candidates{version: f.version}
		}
		found.add(f, o)
		if found.best(nil) != nil {
			return f.version, nil
		}
	}
	return 0, corrupt("the log of %s has neither version 0 nor a checkpoint", t.st.URL())
}

// versionError tells which versions there are instead of a wanted one.
func (t *Table) versionError(ctx context.Context, version int64) error {
	newest, err := t.Snapshot(ctx)
	if err != nil {
		return err
	}
	first, err := t.firstVersion(ctx)
	if err != nil {
		return err
	}
	return &VersionError{Wanted: fmt.Sprintf("version %d", version), First: first, Last: newest.version}
}
