package lake

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/store"
)

// IndexOptions say which key index of a table is meant. The zero value of each field means its default.
type IndexOptions struct {
	// App is the app whose pipeline uses the index. Default: the only one that has an index of the table, or else the only
	// one that has progress in it.
	App string
	// Dir is the folder below which key indexes lie, as in KeyOptions.
	Dir string
	// Key are the columns of the key. Default: those that the index says it has.
	Key []string
	// SequenceBy are the columns that order the changes of a key. The index knows how many bytes they take, and not which
	// they are.
	SequenceBy []string
	// Progress is told how many rows of the table have been read. May be nil.
	Progress func(rows int64)
}

// IndexInfo is what there is to know of a key index without reading it.
type IndexInfo struct {
	App           string
	Dir           string         // where it lies
	Table         string         // the id of its table
	Key           []string       // its columns
	Rows          bool           // the table has no key: entries are of rows that may be alike
	Window        *DedupeOptions // of a table that takes no record twice; nil: of a keyed one
	SequenceBytes int            // that each entry keeps; 0: the table has no sequence_by
	Version       int64          // of the table that it shows; -1: it is being made
	TableVersion  int64          // of the table now
	Files         int
	Entries       uint64 // keys, and superseded entries that wait for a merge
	SizeBytes     uint64
	Runs          []IndexRun // from the newest to the oldest
	Fault         string     // why it will be made anew when it is opened; "": it will not
}

// IndexRun is one file of an index.
type IndexRun struct {
	Name      string
	Entries   uint64
	SizeBytes uint64
}

// indexTool works on the key indexes of one table, without a pipeline.
type indexTool struct {
	t    *table
	snap *delta.Snapshot
	o    IndexOptions
}

func newIndexTool(ctx context.Context, st store.Store, name string, o *IndexOptions) (*indexTool, error) {
	tool := &indexTool{}
	if o != nil {
		tool.o = *o
	}
	snap, err := openTable(ctx, st, "")
	if err != nil {
		return nil, err
	}
	a := NewTarget(func(string) (store.Store, error) { return st, nil }, tool.o.App, &TargetOptions{Mode: Upsert,
		Key: KeyOptions{Columns: tool.o.Key, SequenceBy: tool.o.SequenceBy, IndexDir: tool.o.Dir}})
	tool.t, tool.snap = &table{a: a, opts: a.opts, name: name, st: st, snap: snap}, snap
	return tool, nil
}

// apps are those that have an index of the table on this machine.
func (i *indexTool) apps() ([]string, error) {
	dir, err := i.t.a.indexesOf(i.snap.Metadata().ID)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var apps []string
	for _, e := range entries {
		app, err := url.PathUnescape(e.Name())
		if err == nil && e.IsDir() && safeName(app) == e.Name() && !strings.HasSuffix(app, replayIndex) {
			apps = append(apps, app)
		}
	}
	return apps, nil
}

// choose settles on one app.
func (i *indexTool) choose(ctx context.Context) error {
	if i.o.App != "" {
		return nil
	}
	apps, err := i.apps()
	if err != nil {
		return err
	}
	if len(apps) == 0 {
		all, err := ReadProgress(ctx, i.t.st)
		if err != nil {
			return err
		}
		for _, p := range all {
			if !p.Foreign {
				apps = append(apps, p.App)
			}
		}
	}
	if len(apps) != 1 {
		fix := "name the app whose pipeline uses it"
		if len(apps) > 1 {
			fix = "name one of them: " + strings.Join(apps, ", ")
		}
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: i.t.name, Fix: fix,
			Msg: fmt.Sprintf("found %d apps that may have a key index of the table, wanted one", len(apps))}
	}
	i.t.a.app = apps[0]
	return nil
}

// index is the index of the chosen app, not opened, and what its manifest says. Without one Info is nil.
func (i *indexTool) index() (*rowIndex, *keyindex.Info, error) {
	dir, err := i.t.a.indexDir(i.snap.Metadata().ID)
	if err != nil {
		return nil, nil, err
	}
	info, err := keyindex.Inspect(dir)
	there := err == nil
	if err != nil && !errors.Is(err, keyindex.ErrRebuild) {
		return nil, nil, err
	}
	key := &i.t.opts.Key
	if d := windowOf(info.Identity); there && d != nil {
		i.t.opts.Mode, i.t.opts.Dedupe = Append, d
		*key = KeyOptions{Columns: d.Key, IndexDir: key.IndexDir}
	}
	if there && slices.Contains(info.Columns, rowColumn) {
		i.t.opts.Mode = Mirror
		key.Deletes, key.Of = HardDeletes, func(string) []string { return []string{} }
		r, err := newRowIndex(i.t, i.snap)
		return r, &info, err
	}
	if there && len(key.Columns) == 0 {
		for _, c := range info.Columns {
			key.Columns = append(key.Columns, c.Name)
		}
	}
	if len(key.Columns) == 0 {
		return nil, nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: i.t.name, Err: err,
			Msg: "there is no key index in " + dir + " that says which columns are the key",
			Fix: "name the columns of the key, as the pipeline has them"}
	}
	r, err := newRowIndex(i.t, i.snap)
	if err != nil {
		return nil, nil, err
	}
	if !there {
		return r, nil, nil
	}
	return r, &info, nil
}

// DescribeIndexes tells of the key indexes of the table at the root of st that lie on this machine: of one app, or of all.
// They may be in use. None is no error.
func DescribeIndexes(ctx context.Context, st store.Store, name string, o *IndexOptions) ([]IndexInfo, error) {
	i, err := newIndexTool(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	apps := []string{i.o.App}
	if i.o.App == "" {
		if apps, err = i.apps(); err != nil {
			return nil, err
		}
	}
	var all []IndexInfo
	for _, app := range apps {
		i.t.a.app = app
		info, err := i.describe()
		if err != nil {
			return nil, err
		}
		if info != nil {
			all = append(all, *info)
		}
	}
	return all, nil
}

// describe tells of one index; nil when there is none.
func (i *indexTool) describe() (*IndexInfo, error) {
	dir, err := i.t.a.indexDir(i.snap.Metadata().ID)
	if err != nil {
		return nil, err
	}
	d := &IndexInfo{App: i.t.a.app, Dir: dir, Table: i.snap.Metadata().ID, TableVersion: i.snap.Version(), Version: -1}
	info, err := keyindex.Inspect(dir)
	switch {
	case errors.Is(err, keyindex.ErrNone):
		return nil, nil
	case errors.Is(err, keyindex.ErrRebuild):
		d.Fault = err.Error()
		return d, nil
	case err != nil:
		return nil, err
	}
	d.SequenceBytes, d.Window = max(info.SequenceBytes-orderTail, 0), windowOf(info.Identity)
	d.Version, d.Files, d.Entries, d.SizeBytes = info.Version, info.Files, info.Entries, info.SizeBytes
	if d.Window != nil {
		info.Columns = info.Columns[:len(d.Window.Key)]
	}
	for _, c := range info.Columns {
		if c == rowColumn {
			d.Rows = true
			continue
		}
		d.Key = append(d.Key, c.Name)
		if f, _ := i.snap.Schema().Lookup(c.Name); f == nil || f.Type.String() != c.Type {
			d.Fault = fmt.Sprintf("its key column %s is of type %s, and the table has no such column", c.Name, c.Type)
		}
	}
	for _, r := range info.Runs {
		d.Runs = append(d.Runs, IndexRun{r.Name, r.Entries, r.SizeBytes})
	}
	switch {
	case info.Version == keyindex.None:
		d.Fault = "it was begun and has nothing in it"
	case info.Version > i.snap.Version():
		d.Fault = fmt.Sprintf("it shows version %d, and the table is at %d", info.Version, i.snap.Version())
	}
	return d, nil
}

// RebuildIndex makes the key index anew from the table at the root of st as it is now. Errors: *freshet.Error with
// CodeConflict when a process has the index open, with CodeBadValue when the columns are not known, with CodeConstraint
// when the table has a key twice.
func RebuildIndex(ctx context.Context, st store.Store, name string, o *IndexOptions) (*IndexInfo, error) {
	i, err := newIndexTool(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	if err := i.choose(ctx); err != nil {
		return nil, err
	}
	r, info, err := i.index()
	if err != nil {
		return nil, err
	}
	if info != nil && info.SequenceBytes > 0 && r.sequence == nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: name,
			Msg: fmt.Sprintf("the index keeps a sequence of %d bytes with each key, and does not say of which columns",
				info.SequenceBytes-orderTail),
			Fix: "name the columns that order the changes of a key, as the pipeline has them in sequence_by"}
	}
	r.progress = i.follow()
	err = r.rebuild(ctx, i.snap)
	if closed := r.close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, explain(name, err)
	}
	return i.describe()
}

// follow returns what tells Progress of rows that were read.
func (i *indexTool) follow() func(rows int64) {
	done := int64(0)
	return func(rows int64) {
		done += rows
		if i.o.Progress != nil {
			i.o.Progress(done)
		}
	}
}
