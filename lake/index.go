package lake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/store"
)

// rowIndex is the key index of one table: where the row of each key lies. It is brought forward by the commits of
// others, of which it reads the key columns of what they added and took out, and by our own, whose rows it is told of.
// It is used by one goroutine.
type rowIndex struct {
	t        *table
	dir      string
	identity keyindex.Identity
	columns  []string       // key, then sequence
	given    []string       // of a table without a key: the columns that the source has, as far as is known
	fields   []*delta.Field // of columns, as the table has them
	keys     int            // how many of columns are the key
	sequence *sequencer
	x        *keyindex.Index  // nil: to be opened
	progress func(rows int64) // told of rows whose keys were added; may be nil
	files    fileCache
	window   *window          // nil: each key has one row
	tombs    *delta.Snapshot  // of the tombstones that it is to show; nil: there are none
	tails    map[string]order // of rows in files that we wrote and that are read: what their orders have behind the sequence
}

// newRowIndex is the index for the table as the snapshot has it. Errors: key or sequence columns that are not there, or
// whose types will not do.
func newRowIndex(t *table, snap *delta.Snapshot) (*rowIndex, error) {
	o := t.opts.Key
	key, order := t.key(), t.opts.orderColumns(snap.Schema())
	r := &rowIndex{t: t, keys: len(key), identity: keyindex.Identity{Table: snap.Metadata().ID}}
	var err error
	if r.dir, err = t.a.indexDir(snap.Metadata().ID); err != nil {
		return nil, err
	}
	if t.opts.multiset(t.name) {
		r.identity.Columns = []keyindex.Column{rowColumn}
		return r, nil
	}
	var types []arrow.DataType
	for i, name := range slices.Concat(key, order) {
		f, _ := snap.Schema().Lookup(name)
		if f == nil {
			return nil, &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: t.name,
				Msg: fmt.Sprintf("key or sequence column %q: found the columns %s", name, columnNames(snap.Schema()))}
		}
		r.columns, r.fields = append(r.columns, f.Name), append(r.fields, f)
		if i < r.keys {
			r.identity.Columns = append(r.identity.Columns, keyindex.Column{Name: f.Name, Type: f.Type.String()})
			continue
		}
		types = append(types, delta.ArrowType(f.Type))
	}
	if r.sequence, err = newSequencer(types); err != nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.name,
			Msg: "sequence_by", Err: err}
	}
	if r.sequence != nil {
		if err := o.Tombstones.check(types[0]); err != nil {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.name,
				Msg: "tombstones", Err: err}
		}
		r.identity.SequenceBytes = r.sequence.width + orderTail
	}
	if d := t.opts.Dedupe; d != nil {
		if err := r.watch(d); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// suits reports whether the columns of the index have the types that the table has: a wider one is another key.
func (r *rowIndex) suits(snap *delta.Snapshot) bool {
	return !slices.ContainsFunc(r.fields, func(f *delta.Field) bool {
		now, _ := snap.Schema().Lookup(f.Name)
		return now == nil || now.Type.String() != f.Type.String()
	})
}

// indexDir is the folder of a table's index. Two apps that write one table on one machine have one each.
func (a *Target) indexDir(table string) (string, error) {
	all, err := a.indexesOf(table)
	return filepath.Join(all, safeName(a.app)), err
}

// indexesOf is the folder of all indexes of a table.
func (a *Target) indexesOf(table string) (string, error) {
	root, err := a.indexRoot()
	return filepath.Join(root, safeName(table)), err
}

// indexRoot is the folder of the indexes of all tables.
func (a *Target) indexRoot() (string, error) {
	if a.opts.Key.IndexDir != "" {
		return a.opts.Key.IndexDir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
			Msg: "there is no cache folder for the key index", Err: err, Fix: "name a folder for it: index_dir"}
	}
	return filepath.Join(cache, "freshet", "index"), nil
}

// safeName is a name that is one folder on every system.
func safeName(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			out = append(out, c)
		default:
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

func (r *rowIndex) close() error {
	if r.x == nil {
		return nil
	}
	err := r.x.Close()
	r.x = nil
	return err
}

// bring makes the index show the snapshot: it is opened, brought forward, or made anew when it cannot be. Errors: of the
// store; *freshet.Error for another process that holds it, or a folder in which even a new index cannot be made.
func (r *rowIndex) bring(ctx context.Context, snap *delta.Snapshot) error {
	if err := r.open(); err != nil {
		if errors.Is(err, keyindex.ErrCorrupt) {
			return r.rebuild(ctx, snap)
		}
		return err
	}
	if r.window != nil && r.window.worn() {
		return r.rebuild(ctx, snap)
	}
	if r.numbers() {
		if r.known(snap); !r.suitsRows(ctx, snap) {
			return r.rebuild(ctx, snap)
		}
	}
	if r.x.Version() == snap.Version() && r.showsTombstones() {
		return nil
	}
	err := r.forward(ctx, snap, snap.Version())
	if err == nil || !errors.Is(err, keyindex.ErrRebuild) && !errors.Is(err, store.ErrNotFound) && !r.inFolder(err) {
		return err
	}
	r.complain(err)
	return r.rebuild(ctx, snap)
}

// complain tells of an index that is damaged, or whose folder has lost it or is full, before it is made anew. It concerns
// nobody else, but a disk that does it again.
func (r *rowIndex) complain(err error) {
	if errors.Is(err, keyindex.ErrCorrupt) || r.inFolder(err) {
		r.t.opts.Retry("key index of "+r.t.name, err)
		r.t.opts.Recovered("key index of " + r.t.name)
	}
}

// open opens the index if it is not. Errors: keyindex.ErrCorrupt when it is and must be made anew; *freshet.Error for another
// process that holds it.
func (r *rowIndex) open() error {
	if r.x != nil {
		return nil
	}
	x, err := keyindex.Open(r.dir, r.identity)
	r.complain(err)
	if errors.Is(err, keyindex.ErrRebuild) {
		x, err = keyindex.Create(r.dir, r.identity)
	}
	if err != nil {
		return r.held(err)
	}
	if r.x = x; r.window != nil && x.Version() != keyindex.None {
		return r.window.read(x.Note())
	}
	return nil
}

// claim opens the index of a keyed table before there is anything to commit, so that a second copy of the app on this machine
// is told at once. Whatever else is wrong with the index shows when it is needed.
func (t *table) claim(snap *delta.Snapshot) error {
	if !t.opts.gathers() {
		return nil
	}
	select {
	case t.turn <- struct{}{}:
		defer t.endTurn()
	default:
		return nil // whoever commits has it
	}
	if t.index == nil {
		index, err := newRowIndex(t, snap)
		if err != nil {
			return nil
		}
		t.index = index
	}
	if err := t.index.open(); errors.Is(err, keyindex.ErrLocked) {
		return err
	}
	return nil
}

// inFolder reports whether the error is the disk's, about a file of the index: there is no room, or it is gone.
func (r *rowIndex) inFolder(err error) bool {
	var file *fs.PathError
	var names *os.LinkError
	switch {
	case errors.As(err, &file):
		return within(file.Path, r.dir) || file.Op == "mkdir" && within(r.dir, file.Path)
	case errors.As(err, &names):
		return within(names.New, r.dir)
	}
	return false
}

// within reports whether the path is the folder, or below it.
func within(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// held says of an index that another process has it, or that its folder will not do.
func (r *rowIndex) held(err error) error {
	switch {
	case errors.Is(err, keyindex.ErrLocked):
	case r.inFolder(err):
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassEnvironment, Place: r.t.name, Err: err,
			Msg: "the folder of the key index cannot be used",
			Fix: "make it a folder with room that we may write, or name another: index_dir; the index is a cache, and nothing " +
				"is lost"}
	default:
		return err
	}
	return &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassEnvironment, Place: r.t.name, Err: err,
		Msg: "another process has the key index " + r.dir + " open: a pipeline that runs, or a second copy of it, on this " +
			"machine",
		Fix: "stop it, or name another folder for this one: index_dir"}
}

// rebuild makes the index anew from the key columns of all rows. Errors: those of bring.
func (r *rowIndex) rebuild(ctx context.Context, snap *delta.Snapshot) error {
	return r.held(r.load(ctx, snap))
}

func (r *rowIndex) load(ctx context.Context, snap *delta.Snapshot) error {
	if r.numbers() {
		r.known(snap)
	}
	if err := r.close(); err != nil && !r.inFolder(err) {
		return err
	}
	x, err := keyindex.Create(r.dir, r.identity)
	if err != nil {
		return err
	}
	r.x = x
	if r.window != nil {
		r.window = newWindow(r.t.opts.Dedupe.Within)
	}
	r.files.clear()
	if r.numbers() {
		return r.number(ctx, snap)
	}
	c, err := r.begin(snap.Version())
	if err != nil {
		return err
	}
	err = r.addAll(ctx, snap, c)
	if err == nil {
		err = r.bury(ctx, c)
	}
	if r.window != nil {
		r.window.began()
	}
	if err != nil {
		return errors.Join(err, c.Discard())
	}
	return r.commit(ctx, c.Change)
}

// rebuildFiles is how many files are listed, then read, before more are.
const rebuildFiles = 4096

// addAll adds the keys of all files of the snapshot, or of those that reach into the window.
func (r *rowIndex) addAll(ctx context.Context, snap *delta.Snapshot, c *indexChange) error {
	var files []delta.Add
	all := snap.Files(ctx, nil)
	where, err := r.inWindow(ctx, snap)
	if err != nil {
		return err
	}
	if where != nil {
		all = snap.Matching(ctx, where)
	}
	for add, err := range all {
		if err != nil {
			return err
		}
		if files = append(files, *add); len(files) < rebuildFiles {
			continue
		}
		if err := r.addFiles(ctx, snap, c, files); err != nil {
			return err
		}
		files = files[:0]
	}
	return r.addFiles(ctx, snap, c, files)
}

// addFiles adds the keys of whole files.
func (r *rowIndex) addFiles(ctx context.Context, snap *delta.Snapshot, c *indexChange, files []delta.Add) error {
	slices.SortFunc(files, func(a, b delta.Add) int { return int(a.ModificationTime - b.ModificationTime) })
	for rows, err := range snap.ScanFiles(ctx, files, &delta.ScanOptions{Columns: r.columns}) {
		if err != nil {
			return err
		}
		err = r.addRows(c, files[rows.File].Path, rows)
		rows.Batch.Release()
		if err != nil {
			return err
		}
		if r.progress != nil {
			r.progress(int64(len(rows.Rows)))
		}
	}
	return nil
}

func (r *rowIndex) addRows(c *indexChange, path string, rows delta.FileRows) error {
	rows = r.newest(rows)
	defer rows.Batch.Release()
	keys, err := r.hash(rows.Batch.Columns())
	if err != nil {
		return &freshet.Error{Code: freshet.CodeNull, Class: freshet.ClassInput, Place: r.t.name,
			Msg: "a row of the table has no key, in " + path, Err: err,
			Fix: "delete the row or give it a key; the columns of a key must not be null"}
	}
	orders, err := r.orders(c, keys, rows.Batch.Columns()[r.keys:], r.tails[path])
	if err != nil {
		return err
	}
	if len(c.keys) > 0 {
		for _, key := range keys {
			delete(c.keys, key)
		}
	}
	if r.window != nil {
		r.window.saw(rows.Batch.Column(r.keys).(*array.Timestamp))
	}
	return c.Add(path, keys, rows.Rows, orders)
}

// commit commits a change, and tells of keys that the table has twice.
func (r *rowIndex) commit(ctx context.Context, c *keyindex.Change) error {
	if w := r.window; w != nil {
		if w.oldest == math.MinInt64 {
			w.began()
		}
		c.Note(w.note())
	}
	done, err := c.Commit(ctx)
	if err != nil {
		return err
	}
	if done.Duplicates > 0 && r.window == nil {
		return &freshet.Error{Code: freshet.CodeConstraint, Class: freshet.ClassInput, Place: r.t.name,
			Msg: fmt.Sprintf("found %d keys that more than one row has, as %v: another writer has put them there",
				done.Duplicates, done.Some),
			Fix: "delete the rows that are too many; a table with a key has one row for each"}
	}
	return nil
}
