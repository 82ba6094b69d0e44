package keyindex

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Index is an open key index. It owns a goroutine that merges runs; Close ends it. All methods are safe for
// concurrent use; see Begin for who may change it.
type Index struct {
	dir      string
	identity Identity
	hasher   *Hasher
	lock     *os.File
	scratch  sync.Pool // of *scratch

	commit sync.Mutex // held by whoever replaces the manifest; before mu
	merges sync.Mutex // held by whoever merges; before commit

	mu       sync.Mutex // guards what follows; never held while a file is read or written
	state    *state
	nextRun  uint64
	change   *Change           // the open one
	paths    map[string]FileID // of the live files; only the open Change looks into it; nil before the first
	mergeErr error             // of the last merge in the background
	closed   bool

	wake   chan struct{} // tells the merger to look; holds one
	cancel context.CancelFunc
	done   chan struct{} // closed by the merger when it ends
}

// Create makes an empty index at version None in the folder, in the place of whatever index is there, and
// opens it. The folder is made when it is missing and should hold nothing else. Errors: ErrLocked; an
// identity that is not valid.
func Create(dir string, id Identity) (*Index, error) {
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("create key index %s: %w", dir, err)
	}
	x, err := create(dir, id)
	if err != nil {
		return nil, fmt.Errorf("create key index %s: %w", dir, err)
	}
	return x, nil
}

func create(dir string, id Identity) (*Index, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	m := &manifest{identity: id, index: randomWord(), secret: newSecret(), version: None, nextFile: 1}
	if err := writeManifest(dir, m); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return start(dir, lock, m)
}

// Open opens the index of a folder. It reads the manifest and the ends of the runs; the first look-ups read the
// filters, and each what it needs. Errors: ErrNone, ErrForeign, ErrCorrupt (all three are ErrRebuild), ErrLocked.
func Open(dir string, want Identity) (*Index, error) {
	x, err := open(dir, want)
	if err != nil {
		return nil, fmt.Errorf("open key index: %w", err)
	}
	return x, nil
}

func open(dir string, want Identity) (*Index, error) {
	if _, err := os.Stat(filepath.Join(dir, manifestName)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	lock, err := takeLock(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m, err := readManifest(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if diff := m.identity.differs(want); diff != "" {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", dir, ErrForeign, diff), lock.Close())
	}
	return start(dir, lock, m)
}

func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// start opens the runs of the manifest, removes what is left of changes and merges that did not end, and
// starts the merger.
func start(dir string, lock *os.File, m *manifest) (*Index, error) {
	var runs []*run
	for _, info := range m.runs {
		r, err := openRun(dir, m.index, info)
		if err != nil {
			return nil, errors.Join(err, unmapAll(runs), lock.Close())
		}
		runs = append(runs, r)
	}
	if err := removeOrphans(dir, m); err != nil {
		return nil, errors.Join(err, unmapAll(runs), lock.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &Index{
		dir: dir, identity: m.identity, lock: lock, state: newState(m, runs), nextRun: m.nextRun,
		hasher: &Hasher{secret: m.secret, columns: len(m.identity.Columns), nulls: m.identity.NullKeys},
		wake:   make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}),
	}
	go x.mergeInBackground(ctx)
	x.wakeMerger()
	return x, nil
}

func unmapAll(runs []*run) (err error) {
	for _, r := range runs {
		err = errors.Join(err, r.unmap())
	}
	return err
}

// removeOrphans removes runs that the manifest does not name, and files that were not finished.
func removeOrphans(dir string, m *manifest) error {
	named := map[string]bool{}
	for _, r := range m.runs {
		named[runName(r.id)] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, tmpSuffix) || strings.HasSuffix(name, runSuffix) && !named[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close discards the open Change, ends the merge under way without its result, and closes the index. Look-ups
// that have begun end well; later ones are ErrDone.
func (x *Index) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	change := x.change
	x.mu.Unlock()
	x.cancel()
	<-x.done
	var err error
	if change != nil {
		err = change.Discard()
	}
	x.merges.Lock() // a Merge that has begun ends first
	defer x.merges.Unlock()
	x.release(x.state) // which nobody replaces any more
	return errors.Join(err, x.lock.Close())
}

// acquire takes the state of now, until release.
func (x *Index) acquire() (*state, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrDone
	}
	x.state.uses++
	return x.state, nil
}

// release gives a state back.
func (x *Index) release(s *state) {
	x.mu.Lock()
	s.uses--
	last := s.uses == 0
	x.mu.Unlock()
	if !last {
		return
	}
	for _, r := range s.runs {
		if r.uses.Add(-1) == 0 {
			_ = r.unmap() // fails only for what is not a mapping
		}
	}
}

// install makes the manifest the one on disk, and the state of it the one that look-ups see. Runs that it no
// longer names are removed. The caller holds commit.
func (x *Index) install(m *manifest, runs []*run) error {
	x.mu.Lock()
	m.nextRun = x.nextRun
	old := x.state
	x.mu.Unlock()
	if err := writeManifest(x.dir, m); err != nil {
		fresh := slices.DeleteFunc(slices.Clone(runs), func(r *run) bool { return slices.Contains(old.runs, r) })
		return errors.Join(err, unmapAll(fresh))
	}
	next := newState(m, runs)
	x.mu.Lock()
	x.state = next
	x.mu.Unlock()
	for _, r := range old.runs {
		if !slices.Contains(runs, r) {
			_ = os.Remove(r.path) // what stays is removed when the index is opened next
		}
	}
	x.release(old)
	return nil
}

// takeRunID returns an id that no run has had.
func (x *Index) takeRunID() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.nextRun++
	return x.nextRun - 1
}

// Version is that of the table which the index reflects; None when nothing was committed yet.
func (x *Index) Version() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state.version
}

// Note is what the last Change that had a note said; "" before.
func (x *Index) Note() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state.note
}

// Hasher makes the fingerprints of this index.
func (x *Index) Hasher() *Hasher { return x.hasher }

// Path is the path of a live file, as it was given to Add; ok is false for a file that has been removed.
func (x *Index) Path(id FileID) (path string, ok bool) {
	x.mu.Lock()
	m := x.state.manifest
	x.mu.Unlock()
	return m.path(id)
}

// Files yields the live files of now by ascending id.
func (x *Index) Files() iter.Seq2[FileID, string] {
	x.mu.Lock()
	m := x.state.manifest
	x.mu.Unlock()
	return func(yield func(FileID, string) bool) {
		for _, f := range m.files {
			if !yield(f.id, f.path) {
				return
			}
		}
	}
}
