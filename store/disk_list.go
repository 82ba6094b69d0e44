package store

import (
	"context"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// List yields objects in key order. See Store. It reads a folder when it comes to it, whole, and only folders
// that can hold keys asked for; files that vanish meanwhile are passed over, as are names that are no valid
// keys.
func (d *Disk) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if dir != "" && CheckKey(strings.TrimSuffix(dir, "/")) != nil || outOfReach(prefix, after) {
			return // such keys do not exist
		}
		w := diskWalk{ctx: ctx, root: d.root, prefix: prefix, after: after, yield: yield}
		w.folder(dir)
	}
}

type diskWalk struct {
	ctx           context.Context
	root          string
	prefix, after string
	yield         func(Object, error) bool
}

// diskEntry is a file or a folder; the key of a folder ends with a slash, which is what gives the order of
// keys: a folder "a" comes behind a file "a-b" and before a file "a0".
type diskEntry struct {
	key    string
	folder bool
}

// folder yields what lies in the folder of keys that begin with dir: "" or ending with a slash. It reports
// whether to go on.
func (w *diskWalk) folder(dir string) bool {
	if err := w.ctx.Err(); err != nil {
		return w.fail(dir, err)
	}
	found, err := os.Open(w.path(dir))
	var names []fs.DirEntry
	if err == nil {
		names, err = found.ReadDir(-1)
		_ = found.Close()
	}
	if err != nil && !missing(err) {
		return w.fail(dir, err)
	}
	for _, e := range w.entries(dir, names) {
		if e.folder {
			if !w.folder(e.key) {
				return false
			}
			continue
		}
		if !w.file(e.key) {
			return false
		}
	}
	return true
}

// entries returns those of the names that are, or may hold, keys asked for, in key order.
func (w *diskWalk) entries(dir string, names []fs.DirEntry) []diskEntry {
	entries := make([]diskEntry, 0, len(names))
	for _, name := range names {
		e := diskEntry{key: dir + name.Name(), folder: name.IsDir()}
		if name.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(w.path(e.key))
			e.folder = err == nil && info.IsDir()
		}
		if e.folder {
			e.key += "/"
		}
		if e.key != tempDir+"/" && w.wanted(e) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b diskEntry) int { return strings.Compare(a.key, b.key) })
	return entries
}

func (w *diskWalk) wanted(e diskEntry) bool {
	if !e.folder {
		return e.key > w.after && strings.HasPrefix(e.key, w.prefix) && CheckKey(e.key) == nil
	}
	inPrefix := strings.HasPrefix(e.key, w.prefix) || strings.HasPrefix(w.prefix, e.key)
	return inPrefix && !outOfReach(e.key, w.after)
}

// file yields one object, unless it has vanished or is no regular file.
func (w *diskWalk) file(key string) bool {
	info, err := os.Stat(w.path(key))
	switch {
	case err != nil && missing(err):
		return true
	case err != nil:
		return w.fail(key, err)
	case !info.Mode().IsRegular():
		return true
	}
	return w.yield(Object{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil)
}

func (w *diskWalk) path(key string) string {
	return filepath.Join(w.root, filepath.FromSlash(key))
}

// fail ends the listing with an error.
func (w *diskWalk) fail(key string, err error) bool {
	w.yield(Object{}, diskError("list", key, err))
	return false
}
