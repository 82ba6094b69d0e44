package store

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// writeBufferBytes is what an upload gathers before it calls the operating system; larger writes pass
// through.
const writeBufferBytes = 64 << 10

// Put writes the object and replaces one that is there. See Store.
func (d *Disk) Put(ctx context.Context, key string, data []byte) error {
	return d.write(ctx, key, data, os.Rename)
}

// PutIfAbsent writes the object if the key is free. See Store. It is ambiguous only if the folder cannot be
// synced, or if a file system on the network loses its answer. After ErrExists what is there is on the disk for good.
func (d *Disk) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return d.write(ctx, key, data, linkNew)
}

// PutHint is PutIfAbsent without the syncs. See store.PutHint.
func (d *Disk) PutHint(ctx context.Context, key string, data []byte) error {
	path, err := d.path(ctx, "put", key)
	if err != nil {
		return err
	}
	f, err := d.temp()
	if err != nil {
		return diskError("put", key, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return diskError("put", key, err)
	}
	if err := linkNew(f.Name(), path); err != nil {
		return nameError("put", key, path, err)
	}
	return nil
}

// Create begins a streaming upload into a temporary file. See Store.
func (d *Disk) Create(ctx context.Context, key string) (Upload, error) {
	return d.upload(ctx, key, false)
}

// CreateAhead is Create of what a put will name. See CreateAhead of the package.
func (d *Disk) CreateAhead(ctx context.Context, key string) (Upload, error) {
	return d.upload(ctx, key, true)
}

func (d *Disk) upload(ctx context.Context, key string, ahead bool) (Upload, error) {
	path, err := d.path(ctx, "create", key)
	if err != nil {
		return nil, err
	}
	f, err := d.temp()
	if err != nil {
		return nil, diskError("create", key, err)
	}
	buf := bufio.NewWriterSize(f, writeBufferBytes)
	return &diskUpload{ctx: ctx, disk: d, key: key, path: path, file: f, buf: buf, ahead: ahead}, nil
}

func (d *Disk) write(ctx context.Context, key string, data []byte, name func(from, to string) error) error {
	path, err := d.path(ctx, "put", key)
	if err != nil {
		return err
	}
	f, err := d.temp()
	if err != nil {
		return diskError("put", key, err)
	}
	defer os.Remove(f.Name()) // gone already after a rename
	uploads := make(chan error, 1)
	go func() { uploads <- d.syncUploads() }() // beside the file: the disk flushes for both at once
	_, err = f.Write(data)
	if err = errors.Join(d.finish(f, err), <-uploads); err != nil {
		return diskError("put", key, err)
	}
	if err := ctx.Err(); err != nil {
		return wrap("put", key, err)
	}
	return d.publish("put", key, f.Name(), path, name)
}

// temp opens a new temporary file.
func (d *Disk) temp() (*os.File, error) {
	path := filepath.Join(d.root, tempDir, rand.Text())
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// finish brings a written file to the disk and closes it; err is what went wrong before.
func (d *Disk) finish(f *os.File, err error) error {
	if err == nil {
		err = d.syncFile(f)
	}
	return errors.Join(err, f.Close())
}

// publish gives a finished temporary file its name and makes the name durable. Once name has succeeded, or
// has failed in a way that may hide a success, an error says ErrAmbiguous.
func (d *Disk) publish(verb, key, temp, path string, name func(from, to string) error) error {
	taken, err := d.give(verb, key, temp, path, name)
	if err != nil && !taken {
		return err
	}
	if syncErr := d.syncDir(filepath.Dir(path)); syncErr != nil {
		return fmt.Errorf("%s %s: %w: sync the folder: %w", verb, key, ErrAmbiguous, syncErr)
	}
	return err
}

// give gives a finished temporary file its name. A name that is taken may be our own, of an attempt whose sync failed:
// whoever hears that it is there must be able to rely on it.
func (d *Disk) give(verb, key, temp, path string, name func(from, to string) error) (taken bool, err error) {
	dir := filepath.Dir(path)
	if err := d.makeDurable(dir); err != nil {
		return false, nameError(verb, key, path, err)
	}
	err = name(temp, path)
	if errors.Is(err, syscall.ENOENT) { // someone has removed the folder since
		d.forget()
		if err := d.makeDurable(dir); err != nil {
			return false, diskError(verb, key, err)
		}
		err = name(temp, path)
	}
	if err != nil {
		return errors.Is(err, syscall.EEXIST), nameError(verb, key, path, err)
	}
	return false, nil
}

// linkNew gives a file a second name that must be free.
//
// A file system on the network may lose the answer of a link that it made, try again by itself, and then say
// "exists". Who won is seen from the number of names that our file has.
func linkNew(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		return nil
	}
	var stat syscall.Stat_t
	if syscall.Stat(from, &stat) == nil && uint64(stat.Nlink) > 1 {
		return nil
	}
	return err
}

// nameError explains why a temporary file could not be given its name, which was path.
func nameError(verb, key, path string, err error) error {
	info, lookErr := os.Stat(path)
	switch {
	case lookErr == nil && info.IsDir():
		return fmt.Errorf("%s %s: a folder has this name, so that no object can: %w", verb, key, err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s %s: a part of the key is an object and no folder: %v", verb, key, err)
	case errors.Is(err, syscall.EEXIST):
		return wrap(verb, key, ErrExists)
	case errors.Is(err, syscall.EXDEV):
		return fmt.Errorf("%s %s: its folder is on another file system than the store's root: "+
			"open the store there: %w", verb, key, err)
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("%s %s: the file system has no hard links, without which two writers could "+
			"overwrite each other: use another one: %w", verb, key, err)
	case temporary(err):
		return fmt.Errorf("%s %s: %w: %w", verb, key, ErrAmbiguous, err)
	}
	return diskError(verb, key, err)
}

type diskUpload struct {
	ctx   context.Context
	disk  *Disk
	key   string
	path  string // where the object will be
	file  *os.File
	buf   *bufio.Writer
	size  int64
	ahead bool // its bytes may be synced by the next put
	done  bool
}

func (u *diskUpload) Write(p []byte) (int, error) {
	if err := writable(u.ctx, u.done, u.key); err != nil {
		return 0, err
	}
	n, err := u.buf.Write(p)
	u.size += int64(n)
	if err != nil {
		return n, diskError("upload", u.key, err)
	}
	return n, nil
}

func (u *diskUpload) Close() error {
	if err := writable(u.ctx, u.done, u.key); err != nil {
		return errors.Join(err, u.Abort())
	}
	u.done = true
	defer os.Remove(u.file.Name()) // gone already after a rename
	ahead := u.ahead && u.size <= maxAheadBytes && u.disk.maySyncLater()
	err := u.buf.Flush()
	if !ahead || err != nil {
		err = u.disk.finish(u.file, err)
	}
	if err != nil {
		return diskError("upload", u.key, err)
	}
	if _, err := u.disk.give("upload", u.key, u.file.Name(), u.path, os.Rename); err != nil {
		_ = u.file.Close() // unless it was before
		return err
	}
	if ahead {
		u.disk.owesFile(u.path, u.file)
	}
	if u.disk.owes(filepath.Dir(u.path)) < maxUnsure {
		return nil
	}
	if err := u.disk.syncUploads(); err != nil {
		return fmt.Errorf("upload %s: %w: %w", u.key, ErrAmbiguous, err)
	}
	return nil
}

func (u *diskUpload) Abort() error {
	if u.done {
		return nil
	}
	u.done = true
	if err := errors.Join(u.file.Close(), os.Remove(u.file.Name())); err != nil {
		return diskError("abort", u.key, err)
	}
	return nil
}
