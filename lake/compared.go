package lake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// Compared is a table of a mirror, read to be compared with its source. One goroutine uses it.
type Compared struct {
	name    string
	app     string
	lane    freshet.Lane // the source's log
	table   *delta.Table
	cuts    *cutLog // nil: none are recorded
	key     []string
	columns []string
	live    *expr.Expr // of rows that no soft delete has marked; nil: all are
	files   map[string]uint64
	leftOut []string
}

// LeftOut are the columns that are not compared.
func (c *Compared) LeftOut() []string { return c.leftOut }

// ComparedOptions say how a table is read.
type ComparedOptions struct {
	App  string       // whose progress counts
	Lane freshet.Lane // the source's log
	Cuts string       // the cuts table, as Opener takes names; "": none
	// History is the lane of the rows that were there before; the table is refused until it is at its end, Whole.
	History freshet.Lane
	Whole   int64
	Key     []string // the columns of the key; none: the table has none, and all columns tell rows apart
	Columns []string // those that are compared
	// Others are lanes of the table whose progress says which of the columns cannot be compared yet, as LeftOut tells. Default: all can.
	Others  []freshet.Lane
	LeftOut func(others freshet.Progress) []string
}

// ComparedSchema is the schema of the table, for those who read its source.
func ComparedSchema(ctx context.Context, st store.Store) (*arrow.Schema, error) {
	snap, err := openTable(ctx, st, "")
	if err != nil {
		return nil, err
	}
	return snap.Schema().Arrow(), nil
}

// OpenCompared opens a table. Errors: *freshet.Error with CodeNoTable; CodeUnavailable for one that is still being loaded, or whose
// rows from before were never loaded.
func OpenCompared(ctx context.Context, name string, open Opener, o *ComparedOptions) (*Compared, error) {
	st, err := open(name)
	if err != nil {
		return nil, err
	}
	d, err := delta.Open(ctx, st, nil)
	if err != nil {
		return nil, explain(name, err)
	}
	c := &Compared{name: name, app: o.App, lane: o.Lane, table: d, key: o.Key, columns: slices.Clone(o.Columns), files: map[string]uint64{}}
	if len(c.key) == 0 {
		c.key = c.columns
	}
	if o.Cuts != "" {
		at, err := open(o.Cuts)
		if err != nil {
			return nil, err
		}
		c.cuts = newCutLog(o.App, o.Cuts, at, "")
	}
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return nil, explain(name, err)
	}
	if marked, _ := snap.Schema().Lookup(DeletedAtColumn); marked != nil {
		if c.live, err = expr.Parse(DeletedAtColumn + " IS NULL"); err != nil {
			return nil, err
		}
	}
	p, err := c.progress(ctx, snap, append(o.Others, o.History))
	if err != nil {
		return nil, explain(name, err)
	}
	if o.LeftOut != nil {
		c.leftOut = o.LeftOut(p)
		c.columns = slices.DeleteFunc(c.columns, func(name string) bool { return slices.Contains(c.leftOut, name) })
	}
	done, known := p[o.History]
	switch {
	case !known:
		return nil, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: name,
			Msg: "the table does not say that the rows were loaded that its source had before", Fix: "compare tables of pipelines with history: {load: all}"}
	case done < o.Whole:
		return nil, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: name,
			Msg: "the table is still being loaded", Fix: "compare it when that is done"}
	}
	return c, nil
}

// lookAgain is how long one waits between two looks at a table that does not hold yet what is wanted.
const lookAgain = 100 * time.Millisecond

// Read hands over the rows whose keys are wanted, of the newest version that holds everything of the source's log up to least, with what
// marks each row (its file and its place there), and when it was written. It returns the version, and up to where it holds
// everything. See quality.Table.
func (c *Compared) Read(ctx context.Context, least int64, wanted func(keys arrow.RecordBatch) ([]bool, error),
	each func(rows arrow.RecordBatch, marks []uint64, times []int64) error) (version, position int64, err error) {
	snap, position, err := c.await(ctx, least)
	if err != nil {
		return 0, 0, explain(c.name, err)
	}
	var files []delta.Add
	for add, err := range snap.Files(ctx, nil) {
		if err != nil {
			return 0, 0, explain(c.name, err)
		}
		files = append(files, *add)
		if _, known := c.files[add.Path]; !known {
			c.files[add.Path] = uint64(len(c.files))
		}
	}
	opts := &delta.ScanOptions{Columns: c.columns, Where: c.live}
	if wanted != nil {
		if files, opts.Rows, err = c.choose(ctx, snap, files, wanted); err != nil {
			return 0, 0, explain(c.name, err)
		}
	}
	if len(files) > 0 {
		err = c.scan(ctx, snap, files, opts, each)
	}
	return snap.Version(), position, explain(c.name, err)
}

// takeAtOnce is how many keys TakeOut takes out in one commit.
const takeAtOnce = 200

// TakeOut deletes all rows of these keys: of a key that has several, which the app's pipeline does not know of, since it knows one row
// a key. It then finds that the key has none.
func (c *Compared) TakeOut(ctx context.Context, keys [][]string) error {
	snap, err := c.table.Snapshot(ctx)
	if err != nil {
		return explain(c.name, err)
	}
	for part := range slices.Chunk(keys, takeAtOnce) {
		values := make([][]TracedValue, len(part))
		for i, key := range part {
			for k := range key {
				values[i] = append(values[i], TracedValue{Column: c.key[k], Value: &key[k]})
			}
		}
		where, err := keysCondition(snap.Schema().Arrow(), values...)
		if err != nil {
			return err
		}
		if _, err := c.table.Delete(ctx, where, nil); err != nil {
			return explain(c.name, err)
		}
	}
	return nil
}

// scan hands over the rows of files.
func (c *Compared) scan(ctx context.Context, snap *delta.Snapshot, files []delta.Add, opts *delta.ScanOptions,
	each func(rows arrow.RecordBatch, marks []uint64, times []int64) error) error {
	for rows, err := range snap.ScanFiles(ctx, files, opts) {
		if err != nil {
			return err
		}
		file := &files[rows.File]
		marks, times := make([]uint64, len(rows.Rows)), make([]int64, len(rows.Rows))
		for i, row := range rows.Rows {
			marks[i], times[i] = c.files[file.Path]<<40|uint64(row), file.ModificationTime*1000
		}
		err = each(rows.Batch, marks, times)
		rows.Batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// choose reads the keys alone, and returns the files that have wanted ones, and the rows.
func (c *Compared) choose(ctx context.Context, snap *delta.Snapshot, files []delta.Add,
	wanted func(keys arrow.RecordBatch) ([]bool, error)) (some []delta.Add, rows []*delta.RowSet, err error) {
	sets := make([]*delta.RowSet, len(files))
	for found, err := range snap.ScanFiles(ctx, files, &delta.ScanOptions{Columns: c.key}) {
		if err != nil {
			return nil, nil, err
		}
		are, err := wanted(found.Batch)
		found.Batch.Release()
		if err != nil {
			return nil, nil, err
		}
		for i, is := range are {
			if !is {
				continue
			}
			if sets[found.File] == nil {
				sets[found.File] = delta.NewRowSet()
			}
			sets[found.File].Add(uint64(found.Rows[i]))
		}
	}
	for i, set := range sets {
		if set != nil {
			some, rows = append(some, files[i]), append(rows, set)
		}
	}
	return some, rows, nil
}

// await waits for a version that holds everything up to least, and returns it with up to where it does.
func (c *Compared) await(ctx context.Context, least int64) (*delta.Snapshot, int64, error) {
	for {
		snap, err := c.table.Snapshot(ctx)
		if err != nil {
			return nil, 0, err
		}
		at, err := c.position(ctx, snap)
		if err != nil {
			return nil, 0, err
		}
		if at >= least {
			return snap, at, nil
		}
		t := time.NewTimer(lookAgain)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, 0, fmt.Errorf("%w: it holds everything up to %s, wanted %s", context.Cause(ctx), c.lane.Position(at),
				c.lane.Position(least))
		}
	}
}

// position is up to where the snapshot holds everything of the log.
func (c *Compared) position(ctx context.Context, snap *delta.Snapshot) (int64, error) {
	if err := c.form(snap).checkIdentity(c.name, snap, c.lane); err != nil {
		return 0, err
	}
	p, err := c.progress(ctx, snap, []freshet.Lane{c.lane})
	at, known := p[c.lane]
	if err == nil && !known {
		err = &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: c.name,
			Msg: fmt.Sprintf("the table holds no progress of %s in the log of %s", c.app, c.lane.Origin),
			Fix: "name a table of the pipeline, which has run"}
	}
	return at, err
}

// progress is what the snapshot holds of the lanes, as it says itself or the newest cut that shows it, of those that it knows.
func (c *Compared) progress(ctx context.Context, snap *delta.Snapshot, lanes []freshet.Lane) (freshet.Progress, error) {
	f := c.form(snap)
	p := f.progress(snap, lanes)
	if c.cuts == nil || len(p) == 0 {
		return p, nil
	}
	shows, err := c.cuts.shows(ctx, snap)
	if shows == nil || err != nil {
		return p, err
	}
	more, err := shows.beyond(ctx, snap, f, p)
	maps.Copy(p, more)
	return p, err
}

// form is that of the app's progress in the snapshot.
func (c *Compared) form(snap *delta.Snapshot) form {
	f := form{app: c.app}
	number, _ := f.found(snap)
	f.many = number == formMany
	return f
}
