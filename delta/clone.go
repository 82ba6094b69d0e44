package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// copyBytes is how much of a file a copy holds in memory.
const copyBytes = 8 << 20

// CloneOptions tune Clone. The zero value of each field means its default.
type CloneOptions struct {
	// Snapshot is the version to clone. Default: the newest.
	Snapshot *Snapshot
	// Shallow makes a table that names the files of this one by absolute paths, instead of copying them. A
	// vacuum of this table breaks it. Readers must be able to reach both places. Default: all files are
	// copied.
	Shallow bool
	// Progress takes the progress of applications (txn actions) along. Default: the clone has none, so that
	// whoever writes the one table is not taken for having written the other.
	Progress bool
	// Properties are set in the clone beside those of the table.
	Properties map[string]string
	// EngineInfo names the writer in the clone's commits. Default DefaultEngineInfo.
	EngineInfo string
	// Outside is OpenOptions.Outside of the clone. A shallow clone cannot be read without it.
	Outside func(ctx context.Context, url string) (store.Store, error)
	// Concurrency is how many files are copied at once. Default: four times the number of processors.
	Concurrency int
	// Report is told of each file that was copied or found there, by one goroutine at a time; of those of a
	// shallow clone at once. Default: nobody.
	Report func(CloneProgress)
}

// CloneProgress tells how far a clone is.
type CloneProgress struct {
	Files, Bytes         int64 // of the table
	FilesDone, BytesDone int64
	Copied               int64 // files that had to be copied; the others were there from an earlier try
}

// Clone makes a table at the root of dst that holds what this one holds at a version, with a history of its
// own. A deep clone that was broken off goes on where it was when it is called again: files that are there in
// full are not copied again. Memory: the text of one commit that names all files, and the names of the files
// of deletion vectors. Errors: ErrTableExists, *UnsupportedError, ErrMissingFiles when a vacuum has taken
// files of the version.
func (t *Table) Clone(ctx context.Context, dst store.Store, opts *CloneOptions) (*Table, error) {
	c := &clone{from: t, dst: dst}
	if opts != nil {
		c.opts = *opts
	}
	table, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("clone %s to %s: %w", t.st.URL(), dst.URL(), err)
	}
	return table, nil
}

// clone is one run of Clone.
type clone struct {
	from *Table
	dst  store.Store
	opts CloneOptions
	snap *Snapshot

	mu   sync.Mutex
	done CloneProgress
}

func (c *clone) run(ctx context.Context) (*Table, error) {
	to := newTable(c.dst, &OpenOptions{EngineInfo: c.opts.EngineInfo, Outside: c.opts.Outside})
	if _, err := to.load(ctx, latest); err == nil {
		return nil, ErrTableExists
	} else if !errors.Is(err, ErrNoTable) {
		return nil, err
	}
	if c.snap = c.opts.Snapshot; c.snap == nil {
		snap, err := c.from.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		c.snap = snap
	}
	if err := c.snap.CheckWrite(); err != nil {
		return nil, err
	}
	if c.opts.Shallow && !strings.Contains(c.from.st.URL(), "://") {
		return nil, fmt.Errorf("a shallow clone names files by their URL, and %s has none", c.from.st.URL())
	}
	for a, err := range c.snap.Files(ctx, nil) {
		if err != nil {
			return nil, err
		}
		c.done.Files, c.done.Bytes = c.done.Files+1, c.done.Bytes+a.Size
	}
	if c.opts.Shallow {
		c.done.FilesDone, c.done.BytesDone = c.done.Files, c.done.Bytes
		c.report()
	} else if err := c.copyAll(ctx); err != nil {
		return nil, err
	}
	return to, c.commit(ctx, to)
}

// files yields the files of the table as the clone names them.
func (c *clone) files(ctx context.Context) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		for a, err := range c.snap.Files(ctx, &FilesOptions{Stats: true}) {
			switch {
			case err != nil:
			case c.opts.Shallow:
				err = c.pointTo(a)
			default:
				_, err = c.move(a)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			a.DataChange = true
			if !yield(a, nil) {
				return
			}
		}
	}
}

// pointTo makes the paths of the file absolute.
func (c *clone) pointTo(a *Add) error {
	a.Path = c.from.urlOf(a.Path)
	if v := a.DeletionVector; v != nil && v.StorageType == "u" {
		name, err := vectorName(v)
		if err != nil {
			return fmt.Errorf("deletion vector %s: %w", v.id(), err)
		}
		absolute := *v
		absolute.StorageType, absolute.PathOrInlineDv = "p", c.from.urlOf(encodePath(name))
		a.DeletionVector = &absolute
	}
	return nil
}

// urlOf is a path of the log made absolute, and encoded as paths of the log are.
func (t *Table) urlOf(path string) string {
	key, inside := t.within(path)
	if inside {
		key = rootOf(t.st.URL()) + "/" + key
	}
	scheme, rest, _ := strings.Cut(key, "://")
	return scheme + "://" + encodePath(rest)
}

// copying is a file to copy.
type copying struct {
	from string // as the log names it
	to   string // key
	size int64  // bytes that there must be; -1 when the log does not tell
}

// copyAll copies the files, several at once, and the files of deletion vectors, which several data files may
// share.
func (c *clone) copyAll(ctx context.Context) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(max(c.opts.Concurrency, 0), 4*runtime.GOMAXPROCS(0)))
	vectors := map[string]bool{}
	list := func() error {
		for a, err := range c.snap.Files(gctx, nil) {
			if err != nil {
				return err
			}
			copies, err := c.move(a)
			if err != nil {
				return err
			}
			for _, f := range copies {
				if f.size < 0 {
					if vectors[f.to] {
						continue
					}
					vectors[f.to] = true
				}
				group.Go(func() error { return c.place(gctx, f) })
			}
		}
		return nil
	}
	err := list()
	return cmp.Or(group.Wait(), err) // what stopped the copying stopped the listing
}

// place copies a file unless it is there, and tells.
func (c *clone) place(ctx context.Context, f copying) error {
	fresh, err := c.copyFile(ctx, f)
	if err == nil && f.size >= 0 {
		c.count(f.size, fresh)
	}
	return err
}

// move names the file as the clone has it, and returns what is to be copied: the file, and the one of its
// deletion vector. What lies outside of the table gets a name that follows from its own.
func (c *clone) move(a *Add) ([]copying, error) {
	from := a.Path
	key, inside := c.from.within(from)
	if !inside {
		key = fmt.Sprintf("part-%s-%s", uuid.NewSHA1(uuid.NameSpaceURL, []byte(key)), key[strings.LastIndexByte(key, '/')+1:])
	}
	a.Path = encodePath(key)
	copies := []copying{{from, key, a.Size}}
	v := a.DeletionVector
	if v == nil || v.StorageType == "i" {
		return copies, nil
	}
	name, err := vectorName(v)
	if err != nil {
		return nil, fmt.Errorf("deletion vector %s: %w", v.id(), err)
	}
	key, inside = c.from.within(name)
	if v.StorageType == "p" || !inside {
		id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(key))
		key = vectorFileName(id)
		here := *v
		here.StorageType, here.PathOrInlineDv = "u", encodeZ85(id[:])
		a.DeletionVector = &here
	}
	return append(copies, copying{name, key, -1}), nil
}

// copyFile copies a file, unless it is there in full; fresh tells that it was not. Files never change, so
// that one of the same size is the same.
func (c *clone) copyFile(ctx context.Context, f copying) (fresh bool, err error) {
	src, err := c.snap.locate(ctx, f.from)
	if err != nil {
		return false, err
	}
	was, err := src.st.Stat(ctx, src.key)
	if errors.Is(err, store.ErrNotFound) {
		return false, fmt.Errorf("%w: %s", ErrMissingFiles, f.from)
	}
	if err != nil {
		return false, err
	}
	if f.size >= 0 && was.Size != f.size {
		return false, corrupt("the file %s has %d bytes, by the log it should have %d", f.from, was.Size, f.size)
	}
	if is, err := c.dst.Stat(ctx, f.to); err == nil && is.Size == was.Size {
		return false, nil
	} else if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	u, err := c.dst.Create(ctx, f.to)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, u.Abort()) }() // does nothing after Close
	for at := int64(0); at < was.Size; {
		data, err := src.st.ReadRange(ctx, src.key, at, copyBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if len(data) == 0 {
			return false, fmt.Errorf("copy %s: it ended after %d of %d bytes", f.from, at, was.Size)
		}
		if _, err := u.Write(data); err != nil {
			return false, err
		}
		at += int64(len(data))
	}
	return true, u.Close()
}

func (c *clone) count(size int64, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.FilesDone++
	c.done.BytesDone += size
	if fresh {
		c.done.Copied++
	}
	c.report()
}

func (c *clone) report() {
	if c.opts.Report != nil {
		c.opts.Report(c.done)
	}
}

// commit makes version 0 of the clone.
func (c *clone) commit(ctx context.Context, to *Table) error {
	meta, now := c.snap.state.meta.Clone(), time.Now().UnixMilli()
	meta.ID, meta.CreatedTime = uuid.NewString(), &now
	maps.Copy(meta.Configuration, c.opts.Properties)
	delete(meta.Configuration, propICTVersion) // all commits of the clone carry timestamps, or none
	delete(meta.Configuration, propICTTimestamp)
	proto := *c.snap.state.proto
	for _, f := range needs(c.snap.schema, meta.Configuration) {
		if !proto.Supports(f) {
			return fmt.Errorf("the properties need the table feature %s, which %s does not have", f, c.from.st.URL())
		}
	}
	if err := checkWrite(&proto); err != nil {
		return err
	}
	empty := &Snapshot{table: to, version: -1, schema: c.snap.schema, state: tableState{proto: &proto, meta: meta}}
	tx := to.Begin(empty, nil)
	tx.proto, tx.meta = &proto, meta
	tx.stream = c.files(ctx)
	for _, name := range sortedNames(c.snap.state.domains) {
		tx.SetDomainMetadata(c.snap.state.domains[name])
	}
	if c.opts.Progress {
		for _, app := range sortedNames(c.snap.state.txns) {
			tx.AddTxn(app, c.snap.state.txns[app].Version)
		}
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	files, bytes := text(c.done.Files), text(c.done.Bytes)
	copied, copiedBytes := files, bytes
	if c.opts.Shallow {
		copied, copiedBytes = "0", "0"
	}
	tx.RowIDsKept(true)
	tx.Operation("CLONE", map[string]string{"source": c.from.st.URL(), "sourceVersion": text(c.snap.version),
		"isShallow": strconv.FormatBool(c.opts.Shallow)}, map[string]string{"sourceTableSize": bytes,
		"sourceNumOfFiles": files, "numRemovedFiles": "0", "numCopiedFiles": copied, "removedFilesSize": "0",
		"copiedFilesSize": copiedBytes})
	if err := tx.validate(); err != nil {
		return err
	}
	return (&committer{tx: tx, deadline: time.Now().Add(tx.opts.Deadline)}).create(ctx)
}
