package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/freshet-io/freshet/store"
)

// farBehind is how many winners are read one by one by a transaction that need not know what they did to
// files.
const farBehind = 1000

// rebase moves the base over all versions that others have taken, and reports whether the first of them
// turned out to be this very transaction, whose put had landed after all.
func (c *committer) rebase(ctx context.Context) (ours bool, err error) {
	behind := c.behind
	if c.behind = 0; behind > farBehind && !c.pending && c.tx.blind() {
		return false, c.refresh(ctx)
	}
	c.known, c.looked = map[string]*Add{}, map[int64]bool{}
	b := c.base.extend()
	var verified time.Time
	for {
		verified = time.Now()
		w, data, err := c.winner(ctx, b.version+1)
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return false, fmt.Errorf("rebase on version %d: %w", b.version+1, err)
		}
		if w.info.TxnID == c.tx.id {
			return true, nil
		}
		before := b.state.share()
		w.before = &before
		if err := c.conflict(ctx, w); err != nil {
			if !errors.Is(err, ErrConflict) {
				err = fmt.Errorf("rebase on version %d: %w", w.version, err)
			}
			return false, err
		}
		b.inCommit = nil
		for i := range w.actions {
			b.take(&w.actions[i])
		}
		b.close(w.version, data)
	}
	if b.version == c.base.version { // taken, and not there: cleaned away meanwhile
		if c.pending {
			return false, fmt.Errorf("version %d was cleaned away before it could be seen whose it was", b.version+1)
		}
		return false, c.refresh(ctx)
	}
	base, err := b.finish(c.base, verified)
	if err != nil {
		return false, err
	}
	c.base = base
	c.tx.table.remember(base)
	return false, c.tx.check(base)
}

// winner reads a commit.
func (c *committer) winner(ctx context.Context, version int64) (w *winner, data []byte, err error) {
	err = c.retry(ctx, func() (err error) {
		data, err = c.tx.table.getCommit(ctx, version)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	w = &winner{version: version}
	want := kindState | kindCommitInfo
	if !c.tx.blindToFiles() {
		want |= kindFiles | kindStats
	} else if c.base.files != nil {
		want |= kindFiles
	}
	for a, err := range parseLog(commitKey(version), data, want) {
		if err != nil {
			return nil, nil, err
		}
		if a.CommitInfo != nil {
			w.info = *a.CommitInfo
		}
		w.actions = append(w.actions, a)
	}
	return w, data, nil
}

// refresh builds on the newest version without reading the commits between, because they are gone or too many.
// What they did to files cannot be told then, so that only transactions which files do not concern go on.
func (c *committer) refresh(ctx context.Context) error {
	var fresh *Snapshot
	err := c.retry(ctx, func() (err error) {
		fresh, err = c.tx.table.load(ctx, latest)
		return err
	})
	if err != nil {
		return fmt.Errorf("refresh version %d: %w", c.base.version, err)
	}
	gone := func(kind ConflictKind, detail string) error {
		return &ConflictError{Kind: kind, Version: fresh.version, Detail: detail}
	}
	old := c.base.state
	switch {
	case fresh.version < c.base.version:
		return gone(ConflictGone, "the table was deleted and made anew; open it again")
	case !adoptable(old.proto, fresh.state.proto):
		return gone(ConflictProtocol, "the protocol has changed; open the table again")
	case !harmless(old.meta, fresh.state.meta):
		return gone(ConflictMetadata, "schema, partitioning or properties have changed; build on the new ones")
	case fresh.version > c.base.version && !c.tx.blind():
		return gone(ConflictGone, "the commits since have been cleaned away; open the table again")
	}
	c.base = fresh
	c.tx.table.remember(fresh)
	return c.tx.check(fresh)
}

// blind reports whether nothing that others do to files can concern the transaction, and its progress is
// expected by value or not recorded at all.
func (tx *Transaction) blind() bool {
	for _, t := range tx.txns {
		if _, expected := tx.expects[t.AppID]; !expected {
			return false
		}
	}
	return tx.blindToFiles() && len(tx.domains) == 0
}

// blindToFiles reports whether nothing that others do to files can concern the transaction.
func (tx *Transaction) blindToFiles() bool {
	return tx.reads.empty() && len(tx.removes) == 0 && len(tx.marks) == 0 && len(tx.rewrites) == 0 &&
		len(tx.again) == 0
}

// sameProtocol reports whether they ask for the same, in whichever order they name features.
func sameProtocol(a, b *Protocol) bool {
	same := func(a, b []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	return a.MinReaderVersion == b.MinReaderVersion && a.MinWriterVersion == b.MinWriterVersion &&
		same(a.ReaderFeatures, b.ReaderFeatures) && same(a.WriterFeatures, b.WriterFeatures)
}

func sameMetadata(a, b *Metadata) bool {
	return a.ID == b.ID && a.SchemaString == b.SchemaString &&
		slices.Equal(a.PartitionColumns, b.PartitionColumns) && maps.Equal(a.Configuration, b.Configuration)
}
