package delta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/store"
)

// loadAttempts bounds how often a load begins anew because log cleanup moved the log under it.
const loadAttempts = 4

// load builds the snapshot of a version, or of the latest, from nothing. A broken or missing checkpoint is
// passed over in favour of an older one or the commits; if these do not reach, its error is returned. Errors:
// ErrNoTable, ErrCorrupt, ErrUnsupportedFeature, ErrVersionNotFound.
func (t *Table) load(ctx context.Context, version int64) (*Snapshot, error) {
	return t.loadWithout(ctx, version, nil)
}

// loadWithout is load that does not look at one of the checkpoints, if there is one that is known to be broken.
func (t *Table) loadWithout(ctx context.Context, version int64, c *checkpointFile) (*Snapshot, error) {
	broken := map[string]bool{}
	if c != nil {
		broken[c.files[0].Key] = true
	}
	var firstBad error
	for attempt := 1; ; {
		verified := time.Now()
		seg, err := t.segmentFor(ctx, version, broken)
		if err != nil {
			return nil, err
		}
		snap, err := t.replay(ctx, seg, version)
		var bad *badCheckpointError
		switch {
		case errors.As(err, &bad):
			broken[bad.file.files[0].Key] = true
			if firstBad == nil {
				firstBad = bad
			}
			continue
		case errors.Is(err, store.ErrNotFound):
			if attempt++; attempt <= loadAttempts {
				continue
			}
			return nil, corrupt("%v, although the log goes on to version %d", err, seg.last)
		case err != nil && firstBad != nil && !errors.Is(err, ErrUnsupportedFeature):
			return nil, fmt.Errorf("%w; no older checkpoint and commits could make up for it", firstBad)
		case err != nil:
			return nil, err
		}
		snap.verified = verified
		return snap, nil
	}
}

// replay builds a snapshot from a segment.
func (t *Table) replay(ctx context.Context, seg *segment, version int64) (*Snapshot, error) {
	switch {
	case seg.last < 0 && version != latest:
		return nil, t.versionError(ctx, version)
	case seg.last < 0:
		return nil, fmt.Errorf("%w at %s", ErrNoTable, t.st.URL())
	case version != latest && seg.last != version:
		return nil, t.versionError(ctx, version)
	case seg.checkpoint == nil && seg.first != 0 && version != latest:
		return nil, t.versionError(ctx, version)
	case seg.checkpoint == nil && seg.first != 0:
		return nil, corrupt("the log of %s begins with version %d and has no checkpoint: older commits were "+
			"deleted", t.st.URL(), seg.first)
	}
	b := &builder{table: t, version: -1}
	if seg.checkpoint != nil {
		if err := b.fromCheckpoint(ctx, seg.checkpoint); err != nil {
			return nil, err
		}
	}
	if b.version < seg.last {
		if err := b.replay(ctx, seg); err != nil {
			return nil, err
		}
	}
	b.modified, b.summed = seg.modified, seg.checksum != nil && seg.summed == b.version
	return b.snapshot(nil)
}

// replay takes the versions after the checkpoint: by the newest version's checksum, if that saves much, else one by one.
func (b *builder) replay(ctx context.Context, seg *segment) error {
	b.compacted = seg.compacted
	if ok, err := b.fromChecksum(ctx, seg); ok || err != nil {
		return err
	}
	pieces, bytes := logPieces(b.version+1, seg.last, seg.compacted), int64(0)
	for _, o := range seg.commits {
		bytes += o.Size
	}
	for c, err := range b.table.fetchPieces(ctx, pieces, bytes, false) {
		if err != nil {
			return err
		}
		if err := b.commit(c.last, c.key, c.data); err != nil {
			return err
		}
		if c.compacted { // these are not the bytes of a commit
			b.commits = commitSums{}
		}
	}
	return nil
}

// builder makes a snapshot by taking versions one after another.
type builder struct {
	table      *Table
	version    int64
	state      tableState
	checkpoint *checkpointFile
	logBytes   int64
	modified   time.Time
	inCommit   *int64
	compacted  []compactedFile
	files      *fileTotals // nil: not known
	tally      fileTally   // of the next version
	summed     bool        // the version has a .crc
	txnID      string      // of the version's commit
	commits    commitSums  // of the newest commits
}

// extend begins a builder that goes on from a snapshot.
func (s *Snapshot) extend() *builder {
	b := &builder{table: s.table, version: s.version, state: s.state.share(), checkpoint: s.checkpoint,
		logBytes: s.logBytes, modified: s.modified, inCommit: s.inCommit, compacted: s.compacted, files: s.files,
		txnID: s.txnID, commits: s.commits}
	if s.version < 0 {
		b.files = &fileTotals{}
	}
	return b
}

func (b *builder) fromCheckpoint(ctx context.Context, c *checkpointFile) error {
	bytes := int64(0)
	for _, o := range c.files {
		bytes += o.Size
	}
	for a, err := range b.table.readTop(ctx, c, kindState|kindSidecar, nil) {
		if err != nil && !unusable(err) {
			return fmt.Errorf("read the checkpoint of version %d: %w", c.version, err)
		}
		if err != nil {
			return &badCheckpointError{c, err}
		}
		if a.Sidecar != nil {
			bytes += a.Sidecar.SizeInBytes
		}
		b.state.apply(&a)
	}
	if b.state.proto == nil || b.state.meta == nil {
		return &badCheckpointError{c, corrupt("it has no protocol or no metadata")}
	}
	c.bytes = bytes
	b.version, b.checkpoint = c.version, c
	return nil
}

// commit takes the next version, or several up to it, from a file of the log.
func (b *builder) commit(version int64, key string, data []byte) error {
	b.inCommit, b.txnID = nil, ""
	want := kindState | kindCommitInfo
	if b.files != nil {
		want |= kindFiles
	}
	for a, err := range parseLog(key, data, want) {
		if err != nil {
			return err
		}
		b.take(&a)
	}
	b.close(version, data)
	return nil
}

// take takes one action of the next version.
func (b *builder) take(a *Action) {
	if a.CommitInfo != nil {
		b.txnID = a.CommitInfo.TxnID
		if a.CommitInfo.InCommitTimestamp != nil {
			b.inCommit = a.CommitInfo.InCommitTimestamp
		}
	}
	b.state.apply(a)
	b.tally.take(a)
}

// close ends the next version, given the bytes of its commit.
func (b *builder) close(version int64, commit []byte) {
	b.version, b.modified, b.summed = version, time.Time{}, false
	b.files, b.tally = b.tally.after(b.files), fileTally{}
	b.logBytes += int64(len(commit))
	b.commits = b.commits.with(version, commit)
}

// snapshot finishes; before is the snapshot that was extended, whose parsed schema is used again if it still
// holds.
func (b *builder) snapshot(before *Snapshot) (*Snapshot, error) {
	s := &Snapshot{table: b.table, version: b.version, state: b.state.share(), checkpoint: b.checkpoint,
		logBytes: b.logBytes, modified: b.modified, inCommit: b.inCommit, compacted: b.compacted,
		files: b.files, summed: b.summed, txnID: b.txnID, commits: b.commits}
	if s.state.proto == nil {
		return nil, corrupt("version %d of %s has no protocol", b.version, b.table.st.URL())
	}
	if err := s.state.proto.checkRead(); err != nil && !b.table.unread {
		return nil, err
	}
	if s.state.meta == nil {
		return nil, corrupt("version %d of %s has no metadata", b.version, b.table.st.URL())
	}
	if before != nil && before.state.meta.SchemaString == s.state.meta.SchemaString {
		s.schema = before.schema
		return s, nil
	}
	if s.state.meta.SchemaString == "" { // a table without columns
		s.schema = &Schema{}
		return s, nil
	}
	schema, err := ParseSchema(s.state.meta.SchemaString)
	if err != nil && b.table.unread {
		schema, err = &Schema{}, nil // it has types that are not known
	}
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", b.version, err)
	}
	s.schema = schema
	return s, nil
}
