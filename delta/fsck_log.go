package delta

import (
	"context"
	"errors"
	"fmt"
)

// What helps against damage of the log: where a commit cannot be read, and where it is not as it was written.
const (
	putBack    = "put it back from a backup"
	putBackToo = putBack + ": what it says may be wrong, also where it can be read"
)

// olderTried is how many versions before the newest are tried when that cannot be read.
const olderTried = 100

// unopened tells of a table whose newest version cannot be read, and which is the newest that can.
func (c *check) unopened(ctx context.Context, cause error) error {
	c.report.Version = -1
	for f, err := range c.table.commitFiles(ctx, 0) {
		if err != nil {
			return err
		}
		c.report.Version = f.version
	}
	remedy := "no version before it can be read either"
	for v := c.report.Version - 1; v >= max(c.report.Version-olderTried, 0); v-- {
		if _, err := c.table.load(ctx, v); err == nil {
			remedy = fmt.Sprintf("version %d is the newest that can be read", v)
			break
		} else if !unusable(err) && !errors.Is(err, ErrVersionNotFound) {
			return err
		}
	}
	c.found(Finding{Severity: SeverityError, Kind: FindingCommit, Version: c.report.Version, Detail: cause.Error(),
		Remedy: putBack + "; " + remedy})
	return nil
}

// checkLog makes sure that no version is missing between the first and the newest, and that the checkpoints can be read
// and say what the commits say.
func (c *check) checkLog(ctx context.Context) error {
	var checkpoints []*checkpointFile
	var found candidates
	previous, summed := int64(-1), int64(-1)
	for o, err := range c.table.st.List(ctx, logDir, logDir) {
		if err != nil {
			return err
		}
		if o.Key[len(logDir)] > '9' {
			break
		}
		f := parseLogKey(o.Key)
		if f.version > c.snap.version {
			summed = lateChecksum(summed, f)
			continue
		}
		switch f.kind {
		case logCheckpoint:
			if f.version != found.version {
				checkpoints = appendCheckpoint(checkpoints, &found)
				found = candidates{version: f.version}
			}
			found.add(f, o)
		case logCommit:
			if previous >= 0 && f.version != previous+1 {
				c.gap(previous+1, f.version-1)
			}
			previous = f.version
		}
	}
	checkpoints = appendCheckpoint(checkpoints, &found)
	if summed >= 0 && c.opts.Snapshot == nil {
		c.found(Finding{Severity: SeverityWarning, Kind: FindingGap, Path: checksumKey(summed), Version: c.snap.version + 1,
			Detail: fmt.Sprintf("there is a checksum of version %d, and no commit after version %d: perhaps the last ones "+
				"were lost", summed, c.snap.version), Remedy: "put them back from a backup before anybody writes; else delete it"})
	}
	if previous >= 0 && previous < c.snap.version {
		c.gap(previous+1, c.snap.version)
	}
	if err := c.checkHint(ctx, checkpoints); err != nil {
		return err
	}
	return c.checkCheckpoints(ctx, checkpoints)
}

// lateChecksum is the version of the last checksum behind the version that is checked; -1 when that version has been
// committed, which is then only newer.
func lateChecksum(last int64, f logFile) int64 {
	switch {
	case f.kind == logChecksum:
		return f.version
	case f.kind == logCommit && f.version >= last:
		return -1
	}
	return last
}

func appendCheckpoint(list []*checkpointFile, found *candidates) []*checkpointFile {
	if c := found.best(nil); c != nil {
		return append(list, c)
	}
	return list
}

func (c *check) gap(from, to int64) {
	c.found(Finding{Severity: SeverityWarning, Kind: FindingGap, Version: from,
		Detail: fmt.Sprintf("the commits of versions %d to %d are not there, although older ones are: these versions "+
			"cannot be read, nor the changes across them", from, to)})
}

// checkHint looks at _last_checkpoint, which only saves time.
func (c *check) checkHint(ctx context.Context, checkpoints []*checkpointFile) error {
	hint, ok, err := c.table.readLastCheckpoint(ctx)
	if err != nil || !ok {
		return err
	}
	for _, k := range checkpoints {
		if k.version == hint.Version {
			return nil
		}
	}
	if hint.Version <= c.snap.version {
		c.astray = true
		c.found(Finding{Severity: SeverityWarning, Kind: FindingCheckpointHint, Path: lastCheckpointKey, Version: hint.Version,
			Detail: fmt.Sprintf("it names the checkpoint of version %d, which is not there", hint.Version),
			Remedy: "write a checkpoint"})
	}
	return nil
}

// checkCheckpoints reads each checkpoint to its end; a deep check also compares the newest one with what the commits
// before it say.
func (c *check) checkCheckpoints(ctx context.Context, checkpoints []*checkpointFile) error {
	for _, k := range checkpoints {
		err := c.table.loadable(ctx, k)
		if err == nil {
			continue
		}
		if !unusable(err) {
			return err
		}
		c.broken = append(c.broken, k)
		c.found(Finding{Severity: SeverityWarning, Kind: FindingCheckpoint, Path: k.files[0].Key, Version: k.version,
			Detail: err.Error(), Remedy: "have the check fix it: it is written again, if the commits before it are there"})
	}
	if c.opts.Deep && len(checkpoints) > 0 {
		return c.compareCheckpoint(ctx, checkpoints[len(checkpoints)-1])
	}
	return nil
}

// compareCheckpoint compares the files of a checkpoint with those of an older one, or of none, and the commits since.
func (c *check) compareCheckpoint(ctx context.Context, k *checkpointFile) error {
	with, err := c.table.SnapshotAt(ctx, k.version)
	if err != nil || with.checkpoint == nil || with.checkpoint.version != k.version {
		return nil // it was found broken, or the version cannot be read from it: nothing to compare
	}
	broken := map[string]bool{}
	for _, f := range k.files {
		broken[f.Key] = true
	}
	seg, err := c.table.segmentFor(ctx, k.version, broken)
	if err != nil {
		return err
	}
	without, err := c.table.replay(ctx, seg, k.version)
	if err != nil {
		return nil // log cleanup has taken what came before
	}
	a, err := with.fileKeys(ctx)
	if errors.Is(err, ErrCorrupt) {
		c.found(Finding{Severity: SeverityWarning, Kind: FindingCheckpoint, Path: k.files[0].Key, Version: k.version,
			Detail: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	b, err := without.fileKeys(ctx)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	differs := 0
	for key := range a {
		if _, ok := b[key]; !ok {
			differs++
		}
		delete(b, key)
	}
	if differs+len(b) > 0 {
		c.found(Finding{Severity: SeverityError, Kind: FindingCheckpoint, Path: k.files[0].Key, Version: k.version,
			Detail: fmt.Sprintf("it has %d files that by the commits are none, and lacks %d", differs, len(b)),
			Remedy: "find out which is right; readers follow the commits once the checkpoint is deleted"})
	}
	return nil
}
