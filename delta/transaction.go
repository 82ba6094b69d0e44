package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
)

// Transaction gathers the actions of one commit. It is used by one goroutine and committed at most once.
//
// Nothing is read or written before Commit. What a commit that lost the race needs to know of the winners, it
// learns by reading only their commits, never the table's files: an append costs the same however large the
// table is.
type Transaction struct {
	table *Table
	base  *Snapshot
	opts  TransactionOptions
	id    string // commitInfo.txnId, which tells whether a put of unknown result landed

	adds     []Add
	removes  []Remove
	changes  []CDC
	marks    []*mark          // files that lose rows
	marked   map[string]*mark // the same by canonical path
	rewrites []*rewrite
	again    []Add // files that are there, committed anew with row ids
	// stream yields files that are added besides, the same whenever it is asked, so that they need not be held; nil: none.
	stream  iter.Seq2[*Add, error]
	txns    []Txn
	domains []DomainMetadata
	meta    *Metadata
	proto   *Protocol
	expects map[string]expectation
	reads   readSet
	// rowIDsKept is what the caller says of the rows that were moved; nil: nothing.
	rowIDsKept *bool
	info       CommitInfo
	plan       *filePlan // what becomes of marks and rewrites in the version that is built upon; nil: not known yet
	done       bool
}

// expectation is the progress that an application must have in the version that is built upon.
type expectation struct {
	version int64
	present bool
	settle  func(version int64, present bool) bool // asked of another; may be nil
}

// CommitResult tells where a transaction landed.
type CommitResult struct {
	Version  int64
	Retries  int       // versions that other writers took before
	Moved    int       // files whose rows to be deleted had come into others by a compaction, and were found there
	Snapshot *Snapshot // the table at Version
}

// TransactionOptions tune a Transaction. The zero value of each field means its default.
type TransactionOptions struct {
	// Deadline bounds how long Commit tries against lost races and an unavailable store. Default 5 minutes.
	Deadline time.Duration
}

// Begin starts a transaction on the state that snap shows.
func (t *Table) Begin(snap *Snapshot, opts *TransactionOptions) *Transaction {
	tx := &Transaction{table: t, base: snap, id: uuid.NewString(), expects: map[string]expectation{}}
	if opts != nil {
		tx.opts = *opts
	}
	if tx.opts.Deadline <= 0 {
		tx.opts.Deadline = 5 * time.Minute
	}
	tx.info.Operation = "WRITE"
	return tx
}

// Add adds data files to the table.
func (tx *Transaction) Add(files ...Add) { tx.adds = append(tx.adds, files...) }

// Remove takes data files out of the table. DeletionTimestamp is set if it is nil.
func (tx *Transaction) Remove(files ...Remove) { tx.removes = append(tx.removes, files...) }

// AddCDC adds files of row changes, which readers of the change feed take instead of the data files of the commit.
// Spec: "Add CDC File".
func (tx *Transaction) AddCDC(files ...CDC) { tx.changes = append(tx.changes, files...) }

// SetMetadata replaces the table's metadata. The schema's features must be in the protocol.
func (tx *Transaction) SetMetadata(m *Metadata) { tx.meta = m }

// SetProtocol replaces the table's protocol.
func (tx *Transaction) SetProtocol(p *Protocol) { tx.proto = p }

// SetDomainMetadata replaces the configuration of a domain, or drops it.
func (tx *Transaction) SetDomainMetadata(d DomainMetadata) { tx.domains = append(tx.domains, d) }

// AddTxn records the progress of an application, in the place of what was said of it before. Without an expectation of it, a
// winner that records progress of the same application is a conflict.
func (tx *Transaction) AddTxn(appID string, version int64) {
	for i := range tx.txns {
		if tx.txns[i].AppID == appID {
			tx.txns[i].Version = version
			return
		}
	}
	tx.txns = append(tx.txns, Txn{AppID: appID, Version: version})
}

// ExpectTxn makes the commit a compare-and-set: in the version it is built upon, on the first try and after
// every lost race, the progress of appID must equal version, or be absent when present is false; otherwise
// Commit fails with a *ConflictError of kind ConflictTxn and nothing is written.
func (tx *Transaction) ExpectTxn(appID string, version int64, present bool) {
	tx.expects[appID] = expectation{version: version, present: present}
}

// ExpectTxnOr is ExpectTxn, but of another progress that it finds it asks settle, which may change what AddTxn has said:
// true takes it. It is asked by the goroutine that commits, anew of each version that the commit is built upon.
func (tx *Transaction) ExpectTxnOr(appID string, version int64, present bool, settle func(version int64, present bool) bool) {
	tx.expects[appID] = expectation{version, present, settle}
}

// Operation names what the commit does, in Spark's words: "WRITE", "STREAMING UPDATE", …; values of params
// are written as JSON strings; one that is a list or an object, as of partitionBy, is given as its JSON text.
func (tx *Transaction) Operation(name string, params, metrics map[string]string) {
	tx.info.Operation, tx.info.OperationParameters, tx.info.OperationMetrics = name, params, metrics
}

// BlindAppend says whether the transaction only adds files and did so without looking at the table's rows or
// files. Other writers trust it.
func (tx *Transaction) BlindAppend(blind bool) { tx.info.IsBlindAppend = &blind }

// UserMetadata sets commitInfo.userMetadata.
func (tx *Transaction) UserMetadata(text string) { tx.info.UserMetadata = text }

// Commit writes the transaction as the table's next version. When others win the race it is built upon them,
// if their commits and this one have nothing to do with each other. When the answer to a put is lost, the
// same bytes are put again at the same version until it is known who has it.
//
// Errors: *ConflictError, and then nothing was written; *UnsupportedError; store.ErrAmbiguous when ctx or the
// deadline ended it before the fate of a put was known: the commit may have landed or may yet land, so that
// its files must not be deleted.
func (tx *Transaction) Commit(ctx context.Context) (CommitResult, error) {
	if tx.done {
		return CommitResult{}, errors.New("commit: the transaction was committed before")
	}
	tx.done = true
	if err := tx.validate(); err != nil {
		return CommitResult{}, fmt.Errorf("commit: %w", err)
	}
	if err := tx.check(tx.base); err != nil {
		return CommitResult{}, err
	}
	for _, r := range tx.rewrites {
		r.note = r.Rewrite.note()
	}
	c := &committer{tx: tx, base: tx.base.counted(ctx), deadline: time.Now().Add(tx.opts.Deadline)}
	result, err := c.run(ctx)
	if err != nil {
		if !errors.Is(err, store.ErrAmbiguous) {
			c.replan(ctx)
		}
		return CommitResult{}, err
	}
	result.Snapshot.writeChecksum(ctx, tx.id)
	if newest := tx.table.remember(result.Snapshot); newest.checkpoint != nil {
		result.Snapshot = result.Snapshot.from(newest.checkpoint)
	}
	return result, nil
}

// committer is one run of Commit.
type committer struct {
	tx       *Transaction
	base     *Snapshot // what the next attempt is built upon
	deadline time.Time
	retries  int
	waits    int   // since the last progress
	pending  bool  // a put of this attempt may have landed
	behind   int64 // how many versions a listing has found after the base
	moved    int   // marks that were taken to the files of a winner

	matchers []*scanPlan     // of what the transaction read; nil: not made yet
	known    map[string]*Add // files of the base that winners have removed, by path; nil values: not there
	looked   map[int64]bool  // versions whose removed files have been looked up
	exact    int             // files that have been read to settle what a winner deleted
}

func (c *committer) run(ctx context.Context) (CommitResult, error) {
	for {
		if err := c.resolve(ctx); err != nil {
			return CommitResult{}, fmt.Errorf("commit: %w", err)
		}
		next, body, err := c.tx.build(ctx, c.base)
		if err != nil {
			return CommitResult{}, err
		}
		won, err := c.put(ctx, next.version, body)
		if err != nil {
			return CommitResult{}, c.fail(next.version, err)
		}
		if won {
			return c.landed(next), nil
		}
		ours, err := c.rebase(ctx)
		if err != nil {
			return CommitResult{}, c.fail(next.version, err)
		}
		if ours {
			return c.landed(next), nil
		}
		c.pending = false
		if c.retries++; c.retries > 1 {
			if err := c.wait(ctx, 10*time.Millisecond, nil); err != nil {
				return CommitResult{}, err
			}
		}
	}
}

func (c *committer) landed(at *Snapshot) CommitResult {
	return CommitResult{Version: at.version, Retries: c.retries, Moved: c.moved, Snapshot: at}
}

// put puts the commit until it is known whether the version is taken: by this commit (true) or by anyone,
// perhaps this one (false).
func (c *committer) put(ctx context.Context, version int64, body []byte) (won bool, err error) {
	c.waits = 0
	for {
		taken, err := c.confirm(ctx)
		if taken || err != nil && !store.Retryable(err) {
			return false, err
		}
		if err == nil {
			err = c.tx.table.st.PutIfAbsent(ctx, commitKey(version), body)
		}
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, store.ErrExists):
			return false, nil
		case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrFull):
		case errors.Is(err, store.ErrPermission):
			return false, err
		default: // ErrAmbiguous, and whatever a store says when a call is cut short
			c.pending = true
			if !errors.Is(err, store.ErrAmbiguous) {
				return false, err
			}
		}
		if err := c.wait(ctx, 50*time.Millisecond, err); err != nil {
			return false, err
		}
	}
}

// confirm makes sure by a listing that a base which is no longer fresh is still the newest version: the slot
// after it may have been taken, and then emptied by log cleanup. It reports whether the slot is, or was,
// taken.
func (c *committer) confirm(ctx context.Context) (taken bool, err error) {
	if c.base.version < 0 || !c.base.stale() {
		return false, nil
	}
	verified := time.Now()
	seg, err := c.tx.table.list(ctx, c.base.version+1, latest, nil)
	if err != nil {
		return false, err
	}
	if seg.last > c.base.version {
		c.behind = seg.last - c.base.version
		return true, nil
	}
	fresh := *c.base
	fresh.verified = verified
	c.base = &fresh
	return false, nil
}

// fail is the error of an attempt that ends without an answer. A conflict is an answer.
func (c *committer) fail(version int64, err error) error {
	if errors.Is(err, ErrConflict) {
		return err
	}
	if c.pending && !errors.Is(err, store.ErrAmbiguous) {
		return fmt.Errorf("commit version %d: %w: %w", version, store.ErrAmbiguous, err)
	}
	return fmt.Errorf("commit version %d: %w", version, err)
}

// wait backs off, longer each time and never twice alike; it fails with cause, or with what ends the waiting.
func (c *committer) wait(ctx context.Context, unit time.Duration, cause error) error {
	longest := min(unit<<min(c.waits, 10), 5*time.Second)
	c.waits++
	pause := longest/2 + rand.N(longest/2+1)
	if time.Now().Add(pause).After(c.deadline) {
		if cause == nil {
			cause = fmt.Errorf("lost the race for %d versions within %v", c.retries, c.tx.opts.Deadline)
		}
		return cause
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), cause)
	case <-timer.C:
		return nil
	}
}

// retry runs a read until it succeeds, the store refuses it for good, or time is up.
func (c *committer) retry(ctx context.Context, read func() error) error {
	c.waits = 0
	for {
		err := read()
		if err == nil || !store.Retryable(err) {
			return err
		}
		if err := c.wait(ctx, 50*time.Millisecond, err); err != nil {
			return err
		}
	}
}
