package delta

import (
	"context"
	"fmt"
)

// checkLog makes sure that no version is missing between the first and the newest, and that the checkpoints can be read
// and say what the commits say.
func (c *check) checkLog(ctx context.Context) error {
	var checkpoints []*checkpointFile
	var found candidates
	previous := int64(-1)
	for o, err := range c.table.st.List(ctx, logDir, logDir) {
		if err != nil {
			return err
		}
		if o.Key[len(logDir)] > '9' {
			break
		}
		f := parseLogKey(o.Key)
		if f.version > c.snap.version {
			break
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
	if previous >= 0 && previous < c.snap.version {
		c.gap(previous+1, c.snap.version)
	}
	if err := c.checkHint(ctx, checkpoints); err != nil {
		return err
	}
	return c.checkCheckpoints(ctx, checkpoints)
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
