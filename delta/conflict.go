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

// ConflictKind says what two commits disagreed about.
type ConflictKind string

// The kinds of conflicts.
const (
	ConflictProtocol ConflictKind = "protocol" // the winner changed the table's protocol
	ConflictMetadata ConflictKind = "metadata" // the winner changed schema, partitioning or properties
	ConflictTxn      ConflictKind = "txn"      // the progress of an application is not what was expected
	ConflictDomain   ConflictKind = "domain"   // both changed the same domain metadata
	ConflictAppend   ConflictKind = "append"   // the winner added rows that this transaction should have read
	ConflictDelete   ConflictKind = "delete"   // the winner removed a file that this transaction read or removes
	ConflictGone     ConflictKind = "gone"     // log cleanup has taken the winners, so that nobody can tell
)

// ConflictError says why a transaction cannot be built upon the commits that won against it. Nothing was
// written.
type ConflictError struct {
	Kind    ConflictKind
	Version int64  // the version that the transaction conflicts with
	Detail  string // what was found and what was wanted
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict over %s with version %d: %s", e.Kind, e.Version, e.Detail)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// farBehind is how many winners are read one by one by a transaction that need not know what they did to
// files.
const farBehind = 1000

// winner is a commit that took the version this transaction wanted.
type winner struct {
	version int64
	txnID   string
	actions []Action // without statistics
}

// conflictRules are asked in order about each winner; the first that objects aborts. Each knows one kind of
// action. Rules of operations that read rows look at what the transaction says it read; a blind append read
// nothing, so that no adds or removes of a winner concern it. The protocol leaves these rules to writers; they
// are those of Spark's ConflictChecker, except that rewritten rows (dataChange false) disturb no appender.
var conflictRules = []func(*Transaction, *winner) *ConflictError{
	protocolRule, metadataRule, domainRule, txnRule, appendRule, deleteRule,
}

func (tx *Transaction) conflict(w *winner) error {
	for _, rule := range conflictRules {
		if c := rule(tx, w); c != nil {
			c.Version = w.version
			return c
		}
	}
	return nil
}

func protocolRule(_ *Transaction, w *winner) *ConflictError {
	for _, a := range w.actions {
		if a.Protocol != nil {
			return &ConflictError{Kind: ConflictProtocol, Detail: "it changed the protocol; open the table again"}
		}
	}
	return nil
}

func metadataRule(_ *Transaction, w *winner) *ConflictError {
	for _, a := range w.actions {
		if a.Metadata != nil {
			return &ConflictError{Kind: ConflictMetadata,
				Detail: "it changed schema, partitioning or properties; build the commit on the new ones"}
		}
	}
	return nil
}

func domainRule(tx *Transaction, w *winner) *ConflictError {
	for _, a := range w.actions {
		for _, d := range tx.domains {
			if a.DomainMetadata != nil && a.DomainMetadata.Domain == d.Domain {
				return &ConflictError{Kind: ConflictDomain, Detail: fmt.Sprintf("both change the domain %q", d.Domain)}
			}
		}
	}
	return nil
}

// txnRule concerns progress that is written without an expectation; the expected is compared as a value, in
// check.
func txnRule(tx *Transaction, w *winner) *ConflictError {
	for _, a := range w.actions {
		for _, t := range tx.txns {
			_, expected := tx.expects[t.AppID]
			if a.Txn != nil && a.Txn.AppID == t.AppID && !expected {
				return &ConflictError{Kind: ConflictTxn,
					Detail: fmt.Sprintf("both record progress of %q: found %d", t.AppID, a.Txn.Version)}
			}
		}
	}
	return nil
}

// appendRule: rows that appear under a transaction that read the table are rows it should have seen.
// Rewritten ones (dataChange false) are not.
func appendRule(tx *Transaction, w *winner) *ConflictError {
	if tx.reads.empty() {
		return nil
	}
	for _, a := range w.actions {
		if a.Add != nil && a.Add.DataChange {
			return &ConflictError{Kind: ConflictAppend, Detail: "it added rows that were not read: " + a.Add.Path}
		}
	}
	return nil
}

// deleteRule compares paths and not deletion vectors: two changes of one file must conflict.
func deleteRule(tx *Transaction, w *winner) *ConflictError {
	if tx.blindToFiles() {
		return nil
	}
	ours := map[string]bool{}
	for _, r := range tx.allRemoves() {
		ours[canonicalPath(r.Path)] = true
	}
	for _, a := range w.actions {
		switch {
		case a.Remove == nil:
		case ours[canonicalPath(a.Remove.Path)]:
			return &ConflictError{Kind: ConflictDelete, Detail: "both remove the file " + a.Remove.Path}
		case !tx.reads.empty() && a.Remove.DataChange:
			return &ConflictError{Kind: ConflictDelete, Detail: "it removed rows that were read: " + a.Remove.Path}
		}
	}
	return nil
}

// check tests what the transaction expects of the version it is built upon.
func (tx *Transaction) check(s *Snapshot) error {
	for _, app := range sortedNames(tx.expects) {
		want := tx.expects[app]
		got, ok := s.Txn(app)
		if ok != want.present || ok && got != want.version {
			return &ConflictError{Kind: ConflictTxn, Version: s.version,
				Detail: fmt.Sprintf("progress of %q: found %s, wanted %s", app,
					progressText(got, ok), progressText(want.version, want.present))}
		}
	}
	return nil
}

func progressText(version int64, present bool) string {
	if !present {
		return "none"
	}
	return fmt.Sprint(version)
}

// rebase moves the base over all versions that others have taken, and reports whether the first of them
// turned out to be this very transaction, whose put had landed after all.
func (c *committer) rebase(ctx context.Context) (ours bool, err error) {
	behind := c.behind
	if c.behind = 0; behind > farBehind && !c.pending && c.tx.blind() {
		return false, c.refresh(ctx)
	}
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
		if w.txnID == c.tx.id {
			return true, nil
		}
		if err := c.tx.conflict(w); err != nil {
			return false, err
		}
		b.inCommit = nil
		for i := range w.actions {
			b.take(&w.actions[i])
		}
		b.close(w.version, len(data))
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
	want := kindState | kindCommitInfo | kindAdd | kindRemove
	for a, err := range parseLog(commitKey(version), data, want) {
		if err != nil {
			return nil, nil, err
		}
		if a.CommitInfo != nil {
			w.txnID = a.CommitInfo.TxnID
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
	case !sameProtocol(old.proto, fresh.state.proto):
		return gone(ConflictProtocol, "the protocol has changed; open the table again")
	case !sameMetadata(old.meta, fresh.state.meta):
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
	return tx.reads.empty() && len(tx.removes) == 0 && len(tx.marks) == 0 && len(tx.rewrites) == 0
}

func sameProtocol(a, b *Protocol) bool {
	return a.MinReaderVersion == b.MinReaderVersion && a.MinWriterVersion == b.MinWriterVersion &&
		slices.Equal(a.ReaderFeatures, b.ReaderFeatures) && slices.Equal(a.WriterFeatures, b.WriterFeatures)
}

func sameMetadata(a, b *Metadata) bool {
	return a.ID == b.ID && a.SchemaString == b.SchemaString &&
		slices.Equal(a.PartitionColumns, b.PartitionColumns) && maps.Equal(a.Configuration, b.Configuration)
}
