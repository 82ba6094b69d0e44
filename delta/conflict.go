package delta

import (
	"context"
	"fmt"
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

// winner is a commit that took the version this transaction wanted.
type winner struct {
	version int64
	info    CommitInfo
	actions []Action    // with statistics where the transaction looks at files
	before  *tableState // of the version that the winner was built upon

	files map[string]*fileChange // by canonical path; nil: not gathered
	order []string               // the paths in their order
	notes map[string]noted       // what it tells of files that it rewrote, by their paths; nil: not looked at
}

// fileChange is what a winner did to one path: an add and a remove are a new deletion vector.
type fileChange struct {
	add    *Add
	remove *Remove
}

// changes gathers the file actions by path.
func (w *winner) changes() map[string]*fileChange {
	if w.files != nil {
		return w.files
	}
	w.files = map[string]*fileChange{}
	of := func(path string) *fileChange {
		key := canonicalPath(path)
		if w.files[key] == nil {
			w.files[key] = &fileChange{}
			w.order = append(w.order, key)
		}
		return w.files[key]
	}
	for i := range w.actions {
		switch a := &w.actions[i]; {
		case a.Add != nil:
			of(a.Add.Path).add = a.Add
		case a.Remove != nil:
			of(a.Remove.Path).remove = a.Remove
		}
	}
	return w.files
}

// conflictRules are asked in order about each winner; the first that objects aborts. Each knows one kind of
// action, and makes good what can be made good: the transaction is then built anew upon the winner. The protocol
// leaves these rules to writers; they are those of Spark's ConflictChecker, with five differences that let more
// commits pass and lose no row:
//
//   - Files that hold rows which were there before (dataChange false) are no news to readers.
//   - Two deletion vectors of one file are united if they name different rows.
//   - A rewrite hides in its new files the rows that a winner has deleted from the old ones.
//   - Rows to be deleted of files that a winner packed together are found again in its new ones.
//   - Statistics decide, and not only partition values, whether a winner's file concerns a reader; of deleted rows
//     the rows themselves.
//
// A blind append has read nothing and removes nothing, so that no adds or removes of a winner concern it.
var conflictRules = []func(context.Context, *committer, *winner) error{
	protocolRule, metadataRule, domainRule, txnRule, appendRule, deletedReadRule, deletedTwiceRule,
	backfillRule,
}

// conflict asks the rules. Errors: *ConflictError; of the store, when a rule has to look at files.
func (c *committer) conflict(ctx context.Context, w *winner) error {
	for _, rule := range conflictRules {
		if err := rule(ctx, c, w); err != nil {
			return err
		}
	}
	return nil
}

func (w *winner) conflict(kind ConflictKind, format string, args ...any) error {
	return &ConflictError{Kind: kind, Version: w.version, Detail: fmt.Sprintf(format, args...)}
}

// domainRule: the high-water mark of row ids is no matter of dispute, build goes on from the winner's.
func domainRule(_ context.Context, c *committer, w *winner) error {
	for _, a := range w.actions {
		for _, d := range c.tx.domains {
			if a.DomainMetadata != nil && a.DomainMetadata.Domain == d.Domain && d.Domain != rowTrackingDomain {
				return w.conflict(ConflictDomain, "both change the domain %q", d.Domain)
			}
		}
	}
	return nil
}

// txnRule concerns progress that is written without an expectation; the expected is compared as a value, in
// check.
func txnRule(_ context.Context, c *committer, w *winner) error {
	for _, a := range w.actions {
		for _, t := range c.tx.txns {
			_, expected := c.tx.expects[t.AppID]
			if a.Txn != nil && a.Txn.AppID == t.AppID && !expected {
				return w.conflict(ConflictTxn, "both record progress of %q: found %d", t.AppID, a.Txn.Version)
			}
		}
	}
	return nil
}

// check tests what the transaction expects of the version it is built upon.
func (tx *Transaction) check(s *Snapshot) error {
	for _, app := range sortedNames(tx.expects) {
		want := tx.expects[app]
		got, ok := s.Txn(app)
		differs := ok != want.present || ok && got != want.version
		if differs && (want.settle == nil || !want.settle(got, ok)) {
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
