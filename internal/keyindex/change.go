package keyindex

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Change brings an index to another version of its table: files that went, and entries that came. It is the
// way of one commit of a few rows as well as of the whole table. Its methods are safe for concurrent use, so
// that several goroutines may read files and Add at once.
type Change struct {
	x       *Index
	base    *manifest // whose files are those that the change starts from
	version int64

	mu      sync.Mutex
	done    bool
	failed  error // of an Add; the entries are not whole
	sorter  *sorter
	removed map[FileID]bool
	note    *string // nil: as it is
	added   []file
	fresh   map[string]FileID // of added
	next    FileID
}

// Committed tells what a Change has brought.
type Committed struct {
	Entries    uint64   // keys that got a position
	Deleted    uint64   // keys that were deleted
	Buried     uint64   // keys that got a tombstone
	Duplicates uint64   // positions that gave way to another one of the same key in the same Change
	Some       []string // up to ten duplicates, as "path row 7 and path row 9"
}

const someDuplicates = 10

// Begin opens a change to a version that is not below that of the index: to the same one where something else
// than the table has changed, of which the note tells. One change can be open at a time. Errors: ErrDone; a
// version that is below, or None; a change that is open.
func (x *Index) Begin(version int64) (*Change, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return nil, ErrDone
	case version < x.state.version || version == None:
		return nil, fmt.Errorf("change key index %s: found version %d, wanted one from %d on",
			x.dir, version, max(x.state.version, None+1))
	case x.change != nil:
		return nil, fmt.Errorf("change key index %s: the change to version %d is still open",
			x.dir, x.change.version)
	}
	if x.paths == nil {
		x.paths = make(map[string]FileID, len(x.state.files))
		for _, f := range x.state.files {
			x.paths[f.path] = f.id
		}
	}
	x.change = &Change{
		x: x, base: x.state.manifest, version: version, next: x.state.nextFile,
		removed: map[FileID]bool{}, fresh: map[string]FileID{},
		sorter: newSorter(filepath.Join(x.dir, "change"+tmpSuffix), x.identity.SequenceBytes),
	}
	return x.change, nil
}

// Remove takes a file out of the table: keys that lie in it have no position from then on, unless the change
// gives them one. A path that is not in the index is left alone. A path that is removed and added in one
// change is a new file.
func (c *Change) Remove(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return
	}
	if id, ok := c.x.paths[path]; ok {
		c.removed[id] = true
	}
}

// Has reports whether the file is one of the index, as the change found it.
func (c *Change) Has(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.x.paths[path]
	return ok && !c.done
}

// Add gives keys their position in a file: keys[i] lies in row rows[i] (0 to 2⁴⁰-1), or in row i when rows is
// nil. seqs holds SequenceBytes for each key. An older position of a key is superseded. Two positions of one
// key in one change are a fault of the table: the one in the later file, then the later row stays, and Commit
// counts the other. A file may be added in pieces, and a file without rows with no keys. Errors: of the disk,
// after which only Discard is left; ErrDone; arguments that do not fit together, after which nothing was
// added.
func (c *Change) Add(path string, keys []Fingerprint, rows []int64, seqs []byte) error {
	if err := c.fits(len(keys), rows, seqs); err != nil {
		return fmt.Errorf("add %d keys of %s to the key index: %w", len(keys), path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	id, err := c.fileID(path)
	if err != nil {
		return err
	}
	return c.put(id, keys, rows, seqs)
}

func (c *Change) fits(keys int, rows []int64, seqs []byte) error {
	if rows != nil && len(rows) != keys || len(seqs) != keys*c.x.identity.SequenceBytes {
		return fmt.Errorf("found %d rows and %d bytes of sequences of %d",
			len(rows), len(seqs), c.x.identity.SequenceBytes)
	}
	for _, r := range rows {
		if r < 0 || r > maxRow {
			return fmt.Errorf("found row %d, wanted 0 to %d", r, int64(maxRow))
		}
	}
	return nil
}

func (c *Change) usable() error {
	if c.done {
		return ErrDone
	}
	return c.failed
}

// fileID finds the id of a path or takes a new one.
func (c *Change) fileID(path string) (FileID, error) {
	if id, ok := c.fresh[path]; ok {
		return id, nil
	}
	if id, ok := c.x.paths[path]; ok && !c.removed[id] {
		return id, nil
	}
	id := c.next
	if id == Tombstone {
		return 0, errors.New("the key index has no ids left for files; rebuild it")
	}
	c.next++
	path = strings.Clone(path) // which may be a piece of a large text
	c.fresh[path] = id
	c.added = append(c.added, file{id, path})
	return id, nil
}

func (c *Change) put(id FileID, keys []Fingerprint, rows []int64, seqs []byte) error {
	if err := c.sorter.add(id, keys, rows, seqs); err != nil {
		c.failed = fmt.Errorf("write entries of the key index: %w", err)
	}
	return c.failed
}

// Delete says that keys are in the table no more. Where the same change adds a key, it stays, in whatever
// order. Errors: as Add.
func (c *Change) Delete(keys []Fingerprint) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	return c.put(0, keys, make([]int64, len(keys)), make([]byte, len(keys)*c.x.identity.SequenceBytes))
}

// Bury says that keys are in the table no more, and keeps the sequence of the end of each: look-ups answer with
// a Position in Tombstone. Where the same change adds a key, it stays; where it deletes one, the tombstone counts;
// of several tombstones, the one with the greatest sequence. Errors: as Add.
func (c *Change) Bury(keys []Fingerprint, seqs []byte) error {
	if err := c.fits(len(keys), nil, seqs); err != nil {
		return fmt.Errorf("bury %d keys in the key index: %w", len(keys), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	return c.put(Tombstone, keys, make([]int64, len(keys)), seqs)
}

// Note changes the note of the index, which is the caller's, with this change.
func (c *Change) Note(note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note = &note
}

// Discard gives the change up. After Commit it does nothing.
func (c *Change) Discard() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil
	}
	return c.finish()
}

// finish lets the next change begin.
func (c *Change) finish() error {
	c.done = true
	err := c.sorter.close() // first, as the next change has a file of the same name
	c.x.mu.Lock()
	c.x.change = nil
	c.x.mu.Unlock()
	return err
}

// Commit makes the change and its version what look-ups see, durably, and ends it. When it fails the index is
// as it was, and the change is over all the same. Errors: of the disk; of the context; more entries than a
// run can hold; ErrDone.
func (c *Change) Commit(ctx context.Context) (Committed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return Committed{}, err
	}
	done, err := c.commit(ctx)
	if err := errors.Join(err, c.finish()); err != nil {
		return Committed{}, fmt.Errorf("commit version %d to the key index %s: %w", c.version, c.x.dir, err)
	}
	c.x.wakeMerger()
	return done, nil
}

func (c *Change) commit(ctx context.Context) (Committed, error) {
	info, done, err := c.writeRun(ctx)
	if err != nil {
		return done, err
	}
	x := c.x
	x.commit.Lock()
	defer x.commit.Unlock()
	x.mu.Lock()
	old := x.state
	x.mu.Unlock()
	next := *old.manifest
	next.version, next.nextFile = c.version, c.next
	if c.note != nil {
		next.note = *c.note
	}
	if len(c.added)+len(c.removed) > 0 {
		live := slices.DeleteFunc(slices.Clone(old.files), func(f file) bool { return c.removed[f.id] })
		next.files = append(live, c.added...)
	}
	runs := old.runs
	if info.entries > 0 {
		r, err := openRun(x.dir, next.index, info)
		if err != nil {
			return done, err
		}
		next.runs = slices.Insert(slices.Clone(next.runs), 0, info)
		runs = slices.Insert(slices.Clone(runs), 0, r)
	}
	if err := x.install(&next, runs); err != nil {
		return done, err
	}
	for id := range c.removed {
		path, _ := c.base.path(id)
		delete(x.paths, path)
	}
	for _, f := range c.added {
		x.paths[f.path] = f.id
	}
	return done, nil
}

// writeRun writes the entries as a run; one of no entries when there is nothing to write.
func (c *Change) writeRun(ctx context.Context) (runInfo, Committed, error) {
	var done Committed
	if c.sorter.count == 0 {
		return runInfo{}, done, nil
	}
	x := c.x
	w, err := newRunWriter(x.dir, c.base.index, x.takeRunID(), c.sorter.count, newPlace(c.sorter.file, c.sorter.row),
		x.identity.SequenceBytes)
	if err != nil {
		return runInfo{}, done, err
	}
	u := &unique{change: c, done: &done, take: w.add}
	err = c.sorter.each(ctx, u.add)
	if err == nil {
		err = u.flush()
	}
	if err != nil {
		return runInfo{}, done, errors.Join(err, w.discard())
	}
	info, err := w.finish()
	return info, done, err
}

// unique passes on the last of the entries that have one fingerprint, and counts.
type unique struct {
	change *Change
	done   *Committed
	take   func(fp Fingerprint, at Position, seq []byte) error

	any bool
	fp  Fingerprint
	at  Position
	seq []byte
}

func (u *unique) add(fp Fingerprint, at Position, seq []byte) error {
	if u.any && fp == u.fp {
		u.duplicate(at)
	} else if err := u.flush(); err != nil {
		return err
	}
	u.any, u.fp, u.at, u.seq = true, fp, at, append(u.seq[:0], seq...)
	return nil
}

// duplicate notes that a position gives way to another one of its key.
func (u *unique) duplicate(at Position) {
	if u.at.File == 0 || u.at.File == Tombstone || u.at == at {
		return
	}
	u.done.Duplicates++
	if len(u.done.Some) < someDuplicates {
		u.done.Some = append(u.done.Some, fmt.Sprintf("%s row %d and %s row %d",
			u.change.pathOf(u.at.File), u.at.Row, u.change.pathOf(at.File), at.Row))
	}
}

func (u *unique) flush() error {
	switch {
	case !u.any:
		return nil
	case u.at.File == 0:
		u.done.Deleted++
	case u.at.File == Tombstone:
		u.done.Buried++
	default:
		u.done.Entries++
	}
	return u.take(u.fp, u.at, u.seq)
}

func (c *Change) pathOf(id FileID) string {
	for _, f := range c.added {
		if f.id == id {
			return f.path
		}
	}
	path, _ := c.base.path(id)
	return path
}
