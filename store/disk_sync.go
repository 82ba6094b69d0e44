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
	// syncsAtOnce is how many folders are synced side by side.
	syncsAtOnce = 8
)

// owes notes that a folder is to be synced, and returns how many there are.
func (d *Disk) owes(dir string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsure[dir] = true
	return len(d.unsure)
}

// syncUploads brings the names of finished uploads to the disk. What could not be synced is tried again the
// next time.
func (d *Disk) syncUploads() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.mu.Lock()
	dirs := slices.Sorted(maps.Keys(d.unsure))
	clear(d.unsure)
	d.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
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
	return group.Wait()
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
