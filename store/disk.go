package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tempDir is the folder below the root where objects are written before they get their names. No listing
// shows it, and engines that read Delta tables pass over names that begin with a dot.
const tempDir = ".tmp-freshet"

// tempAge is how long a file of tempDir must have lain still before it counts as the leftover of a crash.
const tempAge = 24 * time.Hour

// Disk is a Store of plain files below a root folder: the key is the path. It is safe for concurrent use,
// also by several processes.
//
// An object is written to a temporary file, synced, and then given its name by rename(2), or by link(2) where
// the key must be free; then the folder is synced. So it is there whole or not at all, also after a loss of
// power, and of any number of processes exactly one creates a key. That needs a file system with hard links
// and everything below the root on the one file system. Symbolic links are followed. A deleted object may
// come back after a loss of power.
//
// The folders of uploads are synced together, by the next Put or PutIfAbsent of the same Disk, before what it
// writes gets its name: an upload that nothing was put after may be missing after a loss of power, and what
// names it is never there without it. So are the bytes of small uploads by CreateAhead.
//
// A key cannot be both an object and the folder of another ("a" and "a/b"), nor have a part longer than the
// file system's names.
type Disk struct {
	root     string
	syncDir  func(dir string) error
	syncFile func(f *os.File) error

	mu      sync.Mutex
	durable map[string]bool     // folders known to be on the disk for good, with all above them
	unsure  map[string]bool     // folders of uploads whose names may not be on the disk yet
	ahead   map[string]*os.File // uploads, by their paths, whose bytes may not be there yet
	lost    map[string]error    // uploads whose bytes did not get there

	syncing sync.Mutex // of unsure and ahead: whoever finds none there knows that they are on the disk
}

// NewDisk returns the store of the files below root, which is made with the first write if it is not there.
// It removes temporary files of processes that died more than a day ago. It fails if root is a file or cannot
// be read.
func NewDisk(root string) (*Disk, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open folder %s: %w", root, err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, diskError("open folder", abs, err)
	case !info.IsDir():
		return nil, fmt.Errorf("open folder %s: it is a file; name the folder that holds the objects", abs)
	default:
		removeLeftovers(filepath.Join(abs, tempDir), time.Now().Add(-tempAge))
	}
	return &Disk{root: abs, syncDir: syncDir, syncFile: (*os.File).Sync, durable: map[string]bool{},
		unsure: map[string]bool{}, ahead: map[string]*os.File{}, lost: map[string]error{}}, nil
}

// removeLeftovers deletes what it can of the temporary files last written before a time. What it cannot
// delete only takes room.
func removeLeftovers(dir string, before time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// URL is "file://" and the absolute path of the root, not encoded.
func (d *Disk) URL() string { return "file://" + filepath.ToSlash(d.root) }

// Get returns the whole object. See Store.
func (d *Disk) Get(ctx context.Context, key string) ([]byte, error) {
	return d.GetInto(ctx, key, nil)
}

// GetInto reads the object into the buffer. See GetInto of the package.
func (d *Disk) GetInto(ctx context.Context, key string, buffer []byte) ([]byte, error) {
	f, info, err := d.open(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(info.Size())
	data := slices.Grow(buffer[:0], size)[:size]
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, diskError("get", key, err)
	}
	return data, nil
}

// Near is true. See Near of the package.
func (d *Disk) Near() bool { return true }

// ReadRange returns a part of the object. See Store.
func (d *Disk) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	return d.ReadRangeInto(ctx, key, offset, length, nil)
}

// ReadRangeInto reads a part of the object into the buffer. See ReadRangeInto of the package.
func (d *Disk) ReadRangeInto(ctx context.Context, key string, offset, length int64, buffer []byte) ([]byte, error) {
	f, info, err := d.open(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from, to, err := Span(info.Size(), offset, length)
	if err != nil {
		return nil, wrap("read", key, err)
	}
	data := slices.Grow(buffer[:0], int(to-from))[:to-from]
	if _, err := io.ReadFull(io.NewSectionReader(f, from, to-from), data); err != nil {
		return nil, diskError("read", key, err)
	}
	return data, nil
}

// Stat returns size and time of the object; the time is when its last byte was written. See Store.
func (d *Disk) Stat(ctx context.Context, key string) (Object, error) {
	path, err := d.path(ctx, "stat", key)
	if err != nil {
		return Object{}, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		return Object{}, diskError("stat", key, err)
	}
	return Object{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Delete removes the object and leaves its folder, even if empty. See Store.
func (d *Disk) Delete(ctx context.Context, key string) error {
	path, err := d.path(ctx, "delete", key)
	if err != nil {
		return err
	}
	err = syscall.Unlink(path) // os.Remove would take an empty folder too
	if err == nil || missing(err) {
		d.release(path)
		return nil
	}
	if info, lookErr := os.Lstat(path); lookErr == nil && info.IsDir() {
		return nil
	}
	return diskError("delete", key, err)
}

// open opens an object for reading. Something that is not a regular file is not an object.
func (d *Disk) open(ctx context.Context, verb, key string) (*os.File, os.FileInfo, error) {
	path, err := d.path(ctx, verb, key)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, diskError(verb, key, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, diskError(verb, key, err)
	}
	return f, info, nil
}

// path is the check that every call on a key begins with, and the file of the key.
func (d *Disk) path(ctx context.Context, verb, key string) (string, error) {
	if err := admit(ctx, verb, key); err != nil {
		return "", err
	}
	if key == tempDir || strings.HasPrefix(key, tempDir+"/") {
		return "", badKey(key, "is in the folder of temporary files")
	}
	return filepath.Join(d.root, filepath.FromSlash(key)), nil
}

// missing reports whether an error says that there is no such file, also since a part of its path is a file.
func missing(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}

// diskError wraps an error of the operating system with the key and the sentinel that callers branch on. It
// is for calls after which it is certain that nothing was written.
func diskError(verb, key string, err error) error {
	var is error
	switch {
	case missing(err):
		is = ErrNotFound
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		is = ErrFull
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		is = ErrPermission
	case temporary(err):
		is = ErrUnavailable
	default:
		return wrap(verb, key, err)
	}
	return fmt.Errorf("%s %s: %w: %w", verb, key, is, err)
}

// temporary reports whether the machine is short of something, or a file system on the network does not
// answer.
func temporary(err error) bool {
	for _, code := range []error{
		syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EBUSY,
		syscall.ENOLCK, syscall.ESTALE, syscall.ETIMEDOUT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
		syscall.ENOTCONN, syscall.ENODEV,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return errors.Is(err, io.ErrUnexpectedEOF) // cut short by another program while it was read
}
