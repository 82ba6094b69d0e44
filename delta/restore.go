package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// RestoreProgress says what becomes of the progress of applications (txn actions) when a table goes back.
type RestoreProgress string

// What becomes of progress.
const (
	// ProgressKeep leaves it: what applications have written since does not come again.
	ProgressKeep RestoreProgress = "keep"
	// ProgressRewind sets it back: applications write again what they have written since. One that began after the
	// version goes back to the first progress that it ever recorded.
	ProgressRewind RestoreProgress = "rewind"
)

// RestoreOptions tune Restore. The zero value of each field means its default.
type RestoreOptions struct {
	// Progress says what becomes of the progress of applications. It must be given if any has moved on since the
	// version.
	Progress RestoreProgress
	// IgnoreMissing restores what is left when a vacuum has deleted files of the version.
	IgnoreMissing bool
	// DryRun finds what would be done and does nothing.
	DryRun bool
	// Deadline bounds for how long it begins anew after losing against other writers. Default 5 minutes.
	Deadline time.Duration
	// UserMetadata is commitInfo.userMetadata of the commit.
	UserMetadata string
}

// RestoreResult is what Restore did, or would do in a dry run.
type RestoreResult struct {
	Version       int64 // of the commit, or the newest when there was nothing to do
	RestoredFiles int64
	RestoredBytes int64
	RemovedFiles  int64
	RemovedBytes  int64
	MissingFiles  int64 // that IgnoreMissing passed over
	Files, Bytes  int64 // of the table afterwards
	Rewound       []Txn // progress that is set back
}

// ErrProgress says that a table holds progress which has moved on since the version to restore, and that nobody has
// said what becomes of it.
var ErrProgress = errors.New("progress of applications has moved on")

// ErrMissingFiles says that files of a version, which its log names, are there no more, as after a vacuum.
var ErrMissingFiles = errors.New("files are missing")

// Restore makes the table what it was at an older version: its files, schema, properties and domains, in a commit of its
// own, which can be restored from again. Protocol features that came since stay. Rows that are taken out or come back
// are changes like others: the change feed shows them. Errors: ErrProgress, ErrMissingFiles, ErrVersionNotFound,
// *UnsupportedError, ErrConflict after the deadline.
func (t *Table) Restore(ctx context.Context, version int64, opts *RestoreOptions) (*RestoreResult, error) {
	r := &restore{table: t, to: version}
	if opts != nil {
		r.opts = *opts
	}
	deadline := time.Now().Add(cmp.Or(max(r.opts.Deadline, 0), 5*time.Minute))
	for {
		err := r.run(ctx)
		if err == nil {
			return &r.result, nil
		}
		if !errors.Is(err, ErrConflict) || time.Now().After(deadline) {
			return nil, fmt.Errorf("restore %s to version %d: %w", t.st.URL(), version, err)
		}
	}
}

// restore is one run of Restore.
type restore struct {
	table   *Table
	to      int64
	opts    RestoreOptions
	now     *Snapshot
	then    *Snapshot
	adds    []Add
	removes []Remove
	result  RestoreResult
}

func (r *restore) run(ctx context.Context) (err error) {
	r.result, r.adds, r.removes = RestoreResult{}, nil, nil
	if r.now, err = r.table.Snapshot(ctx); err != nil {
		return err
	}
	if err := r.now.CheckWrite(); err != nil {
		return err
	}
	if r.then, err = r.table.SnapshotAt(ctx, r.to); err != nil {
		return err
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	if err := r.findMissing(ctx); err != nil {
		return err
	}
	rewound, err := r.progress(ctx)
	if err != nil {
		return err
	}
	r.count()
	r.result.Version, r.result.Rewound = r.now.version, rewound
	if r.opts.DryRun {
		return nil
	}
	tx, err := r.transaction(rewound)
	if err != nil || tx == nil {
		return err
	}
	result, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	r.result.Version = result.Version
	return nil
}

// compare finds the files to add and those to remove. A file that has another deletion vector is both.
func (r *restore) compare(ctx context.Context) error {
	now, err := r.now.fileKeys(ctx)
	if err != nil {
		return err
	}
	for a, err := range r.then.Files(ctx, &FilesOptions{Stats: true}) {
		if err != nil {
			return err
		}
		r.result.Files++
		r.result.Bytes += a.Size
		if _, same := now[a.key()]; same {
			delete(now, a.key())
			continue
		}
		a.DataChange = true
		r.adds = append(r.adds, *a)
	}
	if len(now) == 0 {
		return nil
	}
	for a, err := range r.now.Files(ctx, nil) {
		if err != nil {
			return err
		}
		if _, gone := now[a.key()]; gone {
			remove := a.Remove()
			remove.DataChange = true
			r.removes = append(r.removes, remove)
		}
	}
	return nil
}

func (s *Snapshot) fileKeys(ctx context.Context) (map[fileKey]struct{}, error) {
	keys := map[fileKey]struct{}{}
	for a, err := range s.Files(ctx, nil) {
		if err != nil {
			return nil, err
		}
		keys[a.key()] = struct{}{}
	}
	return keys, nil
}

// findMissing makes sure that the files to add are there, with their deletion vectors.
func (r *restore) findMissing(ctx context.Context) error {
	var mu sync.Mutex
	missing := map[int]bool{}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(deletesAtOnce)
	for i := range r.adds {
		group.Go(func() error {
			there, err := r.then.hasFile(gctx, &r.adds[i])
			if err == nil && !there {
				mu.Lock()
				missing[i] = true
				mu.Unlock()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(missing) == 0 {
		return nil
	}
	if !r.opts.IgnoreMissing {
		return fmt.Errorf("%w: %d of %d, the first %s: a vacuum has deleted them; restore a younger version, or what is "+
			"left of this one by ignoring them", ErrMissingFiles, len(missing), len(r.adds),
			r.adds[sortedInts(missing)[0]].Path)
	}
	kept := r.adds[:0]
	for i := range r.adds {
		if !missing[i] {
			kept = append(kept, r.adds[i])
			continue
		}
		r.result.MissingFiles++
		r.result.Files--
		r.result.Bytes -= r.adds[i].Size
	}
	r.adds = kept
	return nil
}

// hasFile reports whether a data file and its deletion vector's file are there. Of what lies outside of the table's
// folder, where no way leads, nobody can tell: it counts as there.
func (s *Snapshot) hasFile(ctx context.Context, a *Add) (bool, error) {
	names := []string{a.Path}
	if v := a.DeletionVector; v != nil && v.StorageType != "i" {
		name, err := vectorName(v)
		if err != nil {
			return false, err
		}
		names = append(names, name)
	}
	for _, name := range names {
		at, err := s.locate(ctx, name)
		if errors.Is(err, ErrUnsupportedFeature) {
			continue
		}
		if err != nil {
			return false, err
		}
		if _, err := at.st.Stat(ctx, at.key); errors.Is(err, store.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *restore) count() {
	for i := range r.adds {
		r.result.RestoredFiles++
		r.result.RestoredBytes += r.adds[i].Size
	}
	for i := range r.removes {
		r.result.RemovedFiles++
		r.result.RemovedBytes += deref(r.removes[i].Size)
	}
}

// progress is what is set back, when that is wanted.
func (r *restore) progress(ctx context.Context) ([]Txn, error) {
	var moved []string
	for _, app := range sortedNames(r.now.state.txns) {
		if then, ok := r.then.state.txns[app]; !ok || then.Version != r.now.state.txns[app].Version {
			moved = append(moved, app)
		}
	}
	switch {
	case len(moved) == 0 || r.opts.Progress == ProgressKeep:
		return nil, nil
	case r.opts.Progress == "":
		return nil, fmt.Errorf("%w since version %d: %s; say whether it is kept, so that what they wrote since does not "+
			"come again, or rewound, so that they write it again", ErrProgress, r.to, strings.Join(moved, ", "))
	case r.opts.Progress != ProgressRewind:
		return nil, fmt.Errorf("progress: found %q, wanted %q or %q", r.opts.Progress, ProgressKeep, ProgressRewind)
	}
	var back []Txn
	var late []string
	for _, app := range moved {
		if then, ok := r.then.state.txns[app]; ok {
			back = append(back, then)
		} else {
			late = append(late, app)
		}
	}
	first, err := r.firstProgress(ctx, late)
	return append(back, first...), err
}

// firstProgress is what applications recorded first after the version.
func (r *restore) firstProgress(ctx context.Context, apps []string) (first []Txn, err error) {
	if len(apps) == 0 {
		return nil, nil
	}
	for c, err := range r.table.fetchCommits(ctx, r.to+1, r.now.version) {
		if err != nil {
			return nil, fmt.Errorf("find the first progress of %s: %w", strings.Join(apps, ", "), err)
		}
		for a, err := range parseLog(commitKey(c.version), c.data, kindTxn) {
			if err != nil {
				return nil, err
			}
			if a.Txn == nil {
				continue
			}
			if i := slices.Index(apps, a.Txn.AppID); i >= 0 {
				first = append(first, *a.Txn)
				apps = slices.Delete(slices.Clone(apps), i, i+1)
			}
		}
		if len(apps) == 0 {
			return first, nil
		}
	}
	return nil, corrupt("progress of %s is in the table, and no commit after version %d recorded it",
		strings.Join(apps, ", "), r.to)
}

// transaction is the commit to make; nil when nothing is different.
func (r *restore) transaction(rewound []Txn) (*Transaction, error) {
	tx := r.table.Begin(r.now, &TransactionOptions{Deadline: r.opts.Deadline})
	tx.ReadTable()
	tx.Add(r.adds...)
	tx.Remove(r.removes...)
	for _, t := range rewound {
		tx.ExpectTxn(t.AppID, r.now.state.txns[t.AppID].Version, true)
		tx.AddTxn(t.AppID, t.Version)
	}
	changed := len(r.adds)+len(r.removes)+len(rewound) > 0
	meta, err := r.metadata()
	if err != nil {
		return nil, err
	}
	if !sameMetadata(meta, r.now.state.meta) {
		tx.SetMetadata(meta)
		changed = true
	}
	if p := mergeProtocols(r.now.state.proto, r.then.state.proto); !sameProtocol(p, r.now.state.proto) {
		tx.SetProtocol(p)
		changed = true
	}
	for _, d := range r.domains() {
		tx.SetDomainMetadata(d)
		changed = true
	}
	if !changed {
		return nil, nil
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	n := &r.result
	tx.Operation("RESTORE", map[string]string{"version": text(r.to)}, map[string]string{
		"tableSizeAfterRestore": text(n.Bytes), "numOfFilesAfterRestore": text(n.Files),
		"numRemovedFiles": text(n.RemovedFiles), "numRestoredFiles": text(n.RestoredFiles),
		"removedFilesSize": text(n.RemovedBytes), "restoredFilesSize": text(n.RestoredBytes)})
	tx.RowIDsKept(true)
	tx.UserMetadata(r.opts.UserMetadata)
	return tx, nil
}
