package delta

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/freshet-io/freshet/store"
)

// HistoryEntry is one commit as its writer described it.
type HistoryEntry struct {
	Version   int64
	Timestamp time.Time
	Info      CommitInfo // zero when the writer left none
}

// History yields the newest commits first, at most limit of them; 0 means all that are left. Timestamps are
// as Snapshot.Timestamp has them, and increase with the version: where the times of files do not, a commit is
// 1 ms later than the one before. Commits are read as they are asked for.
func (t *Table) History(ctx context.Context, limit int) iter.Seq2[HistoryEntry, error] {
	return func(yield func(HistoryEntry, error) bool) {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			yield(HistoryEntry{}, err)
			return
		}
		first := int64(0)
		if limit > 0 {
			first = max(0, snap.version-int64(limit)+1)
		}
		times, err := t.commitTimes(ctx, first, snap.version)
		if err != nil {
			yield(HistoryEntry{}, err)
			return
		}
		if len(times) == 0 {
			return
		}
		first = max(first, snap.version-int64(len(times))+1)
		for c, err := range t.fetchCommits(ctx, snap.version, first) {
			if err != nil {
				yield(HistoryEntry{}, err)
				return
			}
			info, _, err := findCommitInfo(c)
			e := HistoryEntry{Version: c.version, Timestamp: times[c.version-first].UTC(), Info: info}
			if info.InCommitTimestamp != nil {
				e.Timestamp = time.UnixMilli(*info.InCommitTimestamp).UTC()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// commitTimes returns the times of the commits' files from one version to another, made to increase. When
// commits are missing, the list begins after the last gap.
func (t *Table) commitTimes(ctx context.Context, from, to int64) ([]time.Time, error) {
	var times []time.Time
	next := from
	for c, err := range t.commitFiles(ctx, from) {
		if err != nil {
			return nil, err
		}
		if c.version > to {
			break
		}
		if c.version != next {
			times = nil
		}
		next = c.version + 1
		times = append(times, c.at)
	}
	if next != to+1 { // the listing lags behind
		return nil, fmt.Errorf("list the log: it does not show version %d yet: %w", to, store.ErrUnavailable)
	}
	return times, nil
}

// commitFile is a commit with the time of its file, made to increase.
type commitFile struct {
	version int64
	at      time.Time
}

// commitClock makes the times of commits' files increase: one that is not later than the commit before counts
// as 1 ms later. The zero value is ready for the first commit.
type commitClock struct{ last time.Time }

// next returns the time of the next commit, and whether it had to be moved.
func (c *commitClock) next(modified time.Time) (at time.Time, moved bool) {
	at = modified.Truncate(time.Millisecond)
	if moved = !c.last.IsZero() && !at.After(c.last); moved {
		at = c.last.Add(time.Millisecond)
	}
	c.last = at
	return at, moved
}

// commitFiles yields the commits from a version on, as the log's listing has them.
func (t *Table) commitFiles(ctx context.Context, from int64) iter.Seq2[commitFile, error] {
	return func(yield func(commitFile, error) bool) {
		after := logDir
		if from > 0 {
			after = versionPrefix(from)
		}
		var clock commitClock
		for o, err := range t.st.List(ctx, logDir, after) {
			if err != nil {
				yield(commitFile{}, fmt.Errorf("list the log: %w", err))
				return
			}
			if o.Key[len(logDir)] > '9' {
				return
			}
			f := parseLogKey(o.Key)
			if f.kind != logCommit {
				continue
			}
			at, _ := clock.next(o.Modified)
			if !yield(commitFile{f.version, at}, nil) {
				return
			}
		}
	}
}

// commitInfo reads what the writer of a version said; ok is false when it said nothing.
func (t *Table) commitInfo(ctx context.Context, version int64) (info CommitInfo, ok bool, err error) {
	data, err := t.getCommit(ctx, version)
	if err != nil {
		return info, false, err
	}
	return findCommitInfo(commitData{version, data})
}

func findCommitInfo(c commitData) (info CommitInfo, ok bool, err error) {
	for a, err := range parseLog(commitKey(c.version), c.data, kindCommitInfo) {
		if err != nil {
			return info, false, err
		}
		return *a.CommitInfo, true, nil
	}
	return info, false, nil
}
