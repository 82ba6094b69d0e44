package lake

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/store"
)

// What is wrong with an entry of a key index.
const (
	IndexMissing   = "missing"   // a row of the table whose key the index does not have
	IndexExtra     = "extra"     // a key that no row of the table has
	IndexPlace     = "place"     // a key whose row lies elsewhere
	IndexSequence  = "sequence"  // a key whose sequence is not that of its row
	IndexDuplicate = "duplicate" // a key that more than one row of the table has: the table is at fault
	IndexDamaged   = "damaged"   // the index cannot be read
)

// maxIndexFaults is how many entries may be wrong until a check ends: such an index is to be made anew.
const maxIndexFaults = 100_000

// IndexFault is one thing that is wrong.
type IndexFault struct {
	Kind string
	File string // of the row, or where the index says it is; "" when there is none
	Row  int64  // its place in the file, from 0
	Text string // for a person
}

// IndexReport is what a check of a key index has found.
type IndexReport struct {
	IndexInfo
	Rows      int64 // of the table at the index's version
	Keys      int64 // that the index has a position for
	Sequences bool  // whether those were compared
	Faults    []IndexFault
	More      bool // it ended at so many faults that the rest was not looked at
}

// CheckIndex compares every entry of the key index with the table at the root of st at the version that the index shows,
// and every row of that with the index. Errors: as RebuildIndex; CodeNoVersion when the table no longer has that version.
func CheckIndex(ctx context.Context, st store.Store, name string, o *IndexOptions) (*IndexReport, error) {
	i, err := newIndexTool(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	if err := i.choose(ctx); err != nil {
		return nil, err
	}
	about, err := i.describe()
	if err != nil {
		return nil, err
	}
	if about == nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: name,
			Msg: "there is no key index of app " + i.t.a.app + " here",
			Fix: "name the app and the folder that the pipeline uses; a pipeline makes one with its first commit"}
	}
	c := &indexCheck{report: &IndexReport{IndexInfo: *about}, right: map[keyindex.FileID]*delta.RowSet{},
		wrong: map[keyindex.Fingerprint]IndexFault{}, live: map[string]bool{}}
	if about.Fault != "" {
		c.add(IndexFault{Kind: IndexDamaged, Text: about.Fault})
		return c.report, nil
	}
	err = c.run(ctx, i)
	if errors.Is(err, keyindex.ErrRebuild) {
		c.add(IndexFault{Kind: IndexDamaged, Text: err.Error()})
		err = nil
	}
	return c.report, explain(name, err)
}

// indexCheck is one check. Memory is a bit a row, and the faults.
type indexCheck struct {
	report *IndexReport
	index  *rowIndex
	snap   *delta.Snapshot                     // at the index's version
	right  map[keyindex.FileID]*delta.RowSet   // rows that lie where the index says
	wrong  map[keyindex.Fingerprint]IndexFault // keys of rows that the index says to be elsewhere
	live   map[string]bool                     // paths of the files of snap
	told   func(rows int64)
}

func (c *indexCheck) add(f IndexFault) {
	c.report.Faults = append(c.report.Faults, f)
	c.report.More = len(c.report.Faults)+len(c.wrong) >= maxIndexFaults
}

func (c *indexCheck) run(ctx context.Context, i *indexTool) (err error) {
	r, info, err := i.index()
	if err != nil {
		return err
	}
	c.index, c.told, c.report.Sequences = r, i.follow(), r.sequence != nil
	r.identity.SequenceBytes = info.SequenceBytes // also when nobody says of which columns
	if r.sequence != nil && r.sequence.width+orderTail != info.SequenceBytes {
		return fmt.Errorf("%w: it keeps sequences of %d bytes, and those columns make %d", keyindex.ErrForeign,
			info.SequenceBytes-orderTail, r.sequence.width)
	}
	if r.x, err = keyindex.Open(r.dir, r.identity); err != nil {
		return r.held(err)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if r.window != nil {
		if err := r.window.read(r.x.Note()); err != nil {
			return err
		}
	}
	if c.snap, err = i.snap.Table().SnapshotAt(ctx, r.x.Version()); err != nil {
		return err
	}
	if _, err := r.x.Check(ctx); err != nil {
		return err
	}
	if r.numbers() {
		return c.numbered(ctx)
	}
	if err := c.rows(ctx); err != nil || c.report.More {
		return err
	}
	return c.entries(ctx)
}

// rows looks up the key of every row of the table.
func (c *indexCheck) rows(ctx context.Context) error {
	var files []delta.Add
	for add, err := range c.snap.Files(ctx, nil) {
		if err != nil {
			return err
		}
		files = append(files, *add)
		c.live[add.Path] = true
	}
	for rows, err := range c.snap.ScanFiles(ctx, files, &delta.ScanOptions{Columns: c.index.columns}) {
		if err != nil {
			return err
		}
		err = c.compare(files[rows.File].Path, rows)
		rows.Batch.Release()
		if err != nil || c.report.More {
			return err
		}
		c.told(int64(len(rows.Rows)))
	}
	return nil
}

// compare compares rows of one file with what the index says of their keys.
func (c *indexCheck) compare(path string, rows delta.FileRows) error {
	r := c.index
	rows = r.newest(rows)
	defer rows.Batch.Release()
	keys, err := r.hash(rows.Batch.Columns())
	if err != nil {
		return fmt.Errorf("rows of %s: %w", path, err)
	}
	at := make([]keyindex.Position, len(keys))
	orders := make([]byte, len(keys)*r.identity.SequenceBytes)
	if err := r.x.Lookup(keys, at, orders); err != nil {
		return err
	}
	var sequences []byte
	if r.sequence != nil {
		sequences = r.sequence.append(nil, rows.Batch.Columns()[r.keys:], len(keys))
	}
	c.report.Rows += int64(len(keys))
	for n, key := range keys {
		f := IndexFault{File: path, Row: rows.Rows[n]}
		where, _ := r.x.Path(at[n].File)
		lies := where == path && at[n].Row == f.Row
		switch {
		case !lies && !r.must(rows.Batch, n):
			continue
		case at[n].File == 0, at[n].File == keyindex.Tombstone:
			f.Kind, f.Text = IndexMissing, "the index does not have the key of this row"
			c.add(f)
		case !lies:
			f.Kind = IndexPlace
			f.Text = fmt.Sprintf("the index says that the row of this key is row %d of %s", at[n].Row, where)
			c.wrong[key] = f
		case sequences != nil && !c.sameSequence(orders, sequences, n):
			f.Kind, f.Text = IndexSequence, "the index keeps another sequence than the row has"
			c.add(f)
		}
		if f.Kind == "" || f.Kind == IndexSequence {
			if c.right[at[n].File] == nil {
				c.right[at[n].File] = delta.NewRowSet()
			}
			c.right[at[n].File].Add(uint64(f.Row))
		}
	}
	c.report.More = len(c.report.Faults)+len(c.wrong) >= maxIndexFaults
	return nil
}

// must reports whether the index has to have the row: that of a window has no need of rows before it.
func (r *rowIndex) must(rows arrow.RecordBatch, n int) bool {
	if r.window == nil {
		return true
	}
	times, ok := rows.Column(r.keys).(*array.Timestamp)
	return ok && times.IsValid(n) && int64(times.Value(n)) >= r.window.horizon()
}

func (c *indexCheck) sameSequence(orders, sequences []byte, n int) bool {
	w := c.index.sequence.width
	return bytes.Equal(c.index.orderOf(orders, n)[:w], sequences[n*w:(n+1)*w])
}

// said are, by file, rows and the keys that the index says they have.
type said map[keyindex.FileID]map[int64]keyindex.Fingerprint

// entries looks for the row of every key of the index.
func (c *indexCheck) entries(ctx context.Context) error {
	wrong := said{}
	err := c.index.x.Entries(ctx, func(key keyindex.Fingerprint, at keyindex.Position, _ []byte) error {
		c.report.Keys++
		_, is := c.wrong[key]
		set := c.right[at.File]
		switch {
		case is:
			if wrong[at.File] == nil {
				wrong[at.File] = map[int64]keyindex.Fingerprint{}
			}
			wrong[at.File][at.Row] = key
		case (set == nil || !set.Contains(uint64(at.Row))) && !c.report.More:
			path, _ := c.index.x.Path(at.File)
			c.add(IndexFault{Kind: IndexExtra, File: path, Row: at.Row, Text: "no row of the table has this key"})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.duplicates(ctx, wrong); err != nil {
		return err
	}
	for _, f := range c.wrong {
		c.add(f)
	}
	return nil
}

// duplicates finds out which wrong keys lie where the index says all the same: then another row has the key too, which is
// a fault of the table.
func (c *indexCheck) duplicates(ctx context.Context, wrong said) error {
	ids := map[keyindex.FileID]bool{}
	for id := range wrong {
		if path, _ := c.index.x.Path(id); c.live[path] {
			ids[id] = true
		}
	}
	files, err := c.index.find(ctx, c.snap, ids)
	if err != nil {
		return err
	}
	for id, add := range files {
		if err := c.duplicatesIn(ctx, add, wrong[id]); err != nil {
			return err
		}
	}
	return nil
}

func (c *indexCheck) duplicatesIn(ctx context.Context, add delta.Add, wrong map[int64]keyindex.Fingerprint) error {
	rows := delta.NewRowSet()
	for row := range wrong {
		rows.Add(uint64(row))
	}
	opts := &delta.ScanOptions{Columns: c.index.columns, Rows: []*delta.RowSet{rows}}
	for got, err := range c.snap.ScanFiles(ctx, []delta.Add{add}, opts) {
		if err != nil {
			return err
		}
		keys, err := c.index.hash(got.Batch.Columns())
		got.Batch.Release()
		if err != nil {
			return err
		}
		for n, key := range keys {
			if f, is := c.wrong[key]; is && wrong[got.Rows[n]] == key {
				delete(c.wrong, key)
				if c.index.window != nil {
					continue // what others append may come twice
				}
				f.Kind = IndexDuplicate
				f.Text = fmt.Sprintf("row %d of %s has the same key; the table is to be mended", got.Rows[n], add.Path)
				c.add(f)
			}
		}
	}
	return nil
}
