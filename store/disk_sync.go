package store

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
)

const (
	// maxDurable bounds the folders a Disk remembers; beyond it forgets all, which costs some syncs and
	// nothing else.
	maxDurable = 1 << 16
	// maxUnsure bounds the folders of uploads that wait for a sync.
	maxUnsure = 1 << 10
	// maxAhead bounds the files of uploads that wait, open, for a sync, and maxAheadBytes their sizes: of larger ones the
	// disk had better begin to write.
	maxAhead      = 64
	maxAheadBytes = 4 << 20
	// syncsAtOnce is how many folders and files are synced side by side.
	syncsAtOnce = 8
)

// owes notes that a folder is to be synced, and returns how many there are.
func (d *Disk) owes(dir string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsure[dir] = true
	return len(d.unsure)
}

// maySyncLater reports whether one more file may wait for a sync.
func (d *Disk) maySyncLater() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ahead) < maxAhead
}

// owesFile notes that a file, which has this path, is to be synced and then closed.
func (d *Disk) owesFile(path string, f *os.File) {
	d.release(path) // of which it may have taken the place
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead[path] = f
}

// release gives up what is owed to a file that is there no more.
func (d *Disk) release(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lost, path)
	if f := d.ahead[path]; f != nil {
		_ = f.Close()
		delete(d.ahead, path)
	}
}

// syncUploads brings finished uploads and their names to the disk. A folder that could not be synced is tried again the
// next time. A file is not: the system may have given up its bytes, and says so once.
func (d *Disk) syncUploads() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.mu.Lock()
	dirs, files := slices.Sorted(maps.Keys(d.unsure)), d.ahead
	d.unsure, d.ahead = map[string]bool{}, map[string]*os.File{}
	d.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	for path, f := range files {
		group.Go(func() error {
			if err := d.finish(f, nil); err != nil {
				d.lose(path, err)
			}
			return nil
		})
	}
	for _, dir := range dirs {
		group.Go(func() error {
			err := d.syncDir(dir)
			if err == nil || missing(err) { // nobody can rely on what lay in a folder that somebody has removed
				return nil
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.unsure[dir] = true
			return fmt.Errorf("sync the folder of uploads %s: %w", dir, err)
		})
	}
	err := group.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, cause := range d.lost {
		return fmt.Errorf("%w: the bytes of the upload %s did not reach the disk (%v): delete it and write it again",
			ErrUnavailable, path, cause)
	}
	return err
}

// lose notes that a file's bytes did not reach the disk, unless it is there no more: nothing may be put that could name it.
func (d *Disk) lose(path string, cause error) {
	d.mu.Lock()
	d.lost[path] = cause
	d.mu.Unlock()
	if _, err := os.Lstat(path); missing(err) { // who deletes it later releases it later
		d.release(path)
	}
}

// makeDurable makes the folder, where missing, and syncs it and all above it up to the root's parent, once: a
// folder made by another process may not have reached the disk yet.
func (d *Disk) makeDurable(dir string) error {
	d.mu.Lock()
	known := d.durable[dir]
	d.mu.Unlock()
	if known {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	top := filepath.Dir(d.root)
	for at := dir; at != top && at != filepath.Dir(at); {
		at = filepath.Dir(at)
		// Above the root we may write and not read; whoever made those folders answers for them.
		if err := d.syncDir(at); err != nil && (at != top || !errors.Is(err, os.ErrPermission)) {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.durable) >= maxDurable {
		clear(d.durable)
	}
	d.durable[dir] = true
	return nil
}

func (d *Disk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.durable)
}

// syncDir brings the names in a folder to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) { // a file system that cannot sync folders has nothing to sync
		err = nil
	}
	return errors.Join(err, f.Close())
}
