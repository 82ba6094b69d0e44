package lake

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
	"github.com/freshet-io/freshet/store"
)

// The index of a table without a key. Rows are alike when the columns that the source has are the same in them. Those that are alike
// are numbered in the index, and nowhere else: of n rows of one content it has n entries, those of the numbers 0 to n−1, in whatever
// order the rows came:
//
//	content ─┬─ 0 ▶ file, row        a row that comes takes the number n
//	         ├─ 1 ▶ file, row        one that goes is that of the number n−1
//	         └─ n−1 ▶ file, row      n is found by looking up 0, 1, 3, 7, … and then between
//
// As there are never gaps, a content has no more than that to be kept. Where others move or delete rows, those of the highest
// numbers take the place of those that are gone. That takes several changes of the index; until the last of them it
// says that it is unfinished, and is made anew if it is found so.

// rowColumn stands, in the identity of such an index, for the columns: which they are is in its note, since they change.
var rowColumn = keyindex.Column{Name: "*", Type: "row"}

// unfinished is the note of an index whose rows are being numbered.
const unfinished = ""

// numberedBytes is about what a row takes of memory while it is numbered.
const numberedBytes = 256

// contentColumn is a column that tells rows apart.
type contentColumn struct{ Name, Type string }

// contents are the columns that tell rows of the snapshot apart: of those that the source has, the ones that the table has already.
// In rows that are stored a new one is null, and counts for nothing.
func (r *rowIndex) contents(snap *delta.Snapshot) (all []contentColumn) {
	for i := range snap.Schema().Fields {
		f := &snap.Schema().Fields[i]
		if containsFold(r.given, f.Name) && !f.Generated() {
			all = append(all, contentColumn{f.Name, f.Type.String()})
		}
	}
	return all
}

// noteOf is the note of an index that shows the snapshot.
func (r *rowIndex) noteOf(snap *delta.Snapshot) string {
	text, _ := json.Marshal(r.contents(snap))
	return string(text)
}

// known has the index tell rows apart as it did, where no rows of the source have come that say what it has.
func (r *rowIndex) known(snap *delta.Snapshot) {
	if r.given != nil {
		return
	}
	var noted []contentColumn
	if r.x != nil && json.Unmarshal([]byte(r.x.Note()), &noted) == nil && len(noted) > 0 {
		for _, c := range noted {
			r.given = append(r.given, c.Name)
		}
		return
	}
	for i := range snap.Schema().Fields {
		f := &snap.Schema().Fields[i]
		if _, ours := fillNamed(r.t.fills, f.Name); !ours && f.Name != DeletedAtColumn {
			r.given = append(r.given, f.Name)
		}
	}
}

// suitsRows reports whether the index tells rows apart as the source does now, or does so once columns count that came to the table since,
// and are null in all rows of the index.
func (r *rowIndex) suitsRows(ctx context.Context, snap *delta.Snapshot) bool {
	var noted []contentColumn
	if json.Unmarshal([]byte(r.x.Note()), &noted) != nil || len(noted) == 0 {
		return false
	}
	wanted := r.contents(snap)
	if slices.ContainsFunc(noted, func(c contentColumn) bool { return !slices.Contains(wanted, c) }) {
		return false
	}
	if len(noted) == len(wanted) {
		return true
	}
	then, err := snap.Table().SnapshotAt(ctx, r.x.Version())
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(wanted, func(c contentColumn) bool {
		was, _ := then.Schema().Lookup(c.Name)
		return was != nil && !slices.Contains(noted, c)
	})
}

// names are those columns, which are read of the table.
func names(columns []contentColumn) []string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.Name
	}
	return all
}

// placed is a row of a file, by its content.
type placed struct {
	content keyindex.Fingerprint
	path    string
	row     int64
}

// read hands over the rows of files, in the sets, or all of them; each with what tells it from others.
func (r *rowIndex) read(ctx context.Context, snap *delta.Snapshot, files []delta.Add, sets []*delta.RowSet,
	take func(placed) error) error {
	if len(files) == 0 {
		return nil
	}
	columns := names(r.contents(snap))
	for rows, err := range snap.ScanFiles(ctx, files, &delta.ScanOptions{Columns: columns, Rows: sets}) {
		if err != nil {
			return err
		}
		found, err := r.x.Hasher().AppendRows(nil, columns, rows.Batch.Columns())
		rows.Batch.Release()
		if err != nil {
			return err
		}
		for i, content := range found {
			if err := take(placed{content, files[rows.File].Path, rows.Rows[i]}); err != nil {
				return err
			}
		}
		if r.progress != nil {
			r.progress(int64(len(found)))
		}
	}
	return nil
}

// numbering numbers rows that are handed over one by one, many at once.
type numbering struct {
	r       *rowIndex
	version int64 // that the index says meanwhile to be of
	gone    bool  // the rows are no more in the table; else they are new in it
	rows    []placed
}

func (n *numbering) take(ctx context.Context, row placed) error {
	most := cmp.Or(n.r.t.opts.MemoryBytes, gatheredBytes) / numberedBytes
	if n.rows = append(n.rows, row); int64(len(n.rows)) < most {
		return nil
	}
	return n.flush(ctx)
}

func (n *numbering) flush(ctx context.Context) error {
	if len(n.rows) == 0 {
		return nil
	}
	number := n.r.enter
	if n.gone {
		number = n.r.leave
	}
	err := n.r.step(ctx, n.version, unfinished, func(c *keyindex.Change) error { return number(c, n.rows) })
	n.rows = n.rows[:0]
	return err
}

// step makes one change of the index.
func (r *rowIndex) step(ctx context.Context, version int64, note string, fill func(c *keyindex.Change) error) error {
	c, err := r.x.Begin(version)
	if err != nil {
		return err
	}
	if err := fill(c); err != nil {
		_ = c.Discard()
		return err
	}
	c.Note(note)
	return r.commit(ctx, c)
}

// enter gives rows that are new in the table the next numbers of their contents.
func (r *rowIndex) enter(c *keyindex.Change, rows []placed) error {
	next, err := r.countEach(rows)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].path == rows[0].path {
			n++
		}
		keys, at := make([]keyindex.Fingerprint, n), make([]int64, n)
		for i, row := range rows[:n] {
			keys[i], at[i] = row.content.Numbered(next[row.content]), row.row
			next[row.content]++
		}
		if err := c.Add(rows[0].path, keys, at, nil); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// countEach is how many rows of each of the contents the index has.
func (r *rowIndex) countEach(rows []placed) (map[keyindex.Fingerprint]int64, error) {
	of := map[keyindex.Fingerprint]int64{}
	var contents []keyindex.Fingerprint
	for _, row := range rows {
		if _, known := of[row.content]; !known {
			of[row.content] = 0
			contents = append(contents, row.content)
		}
	}
	counts, err := r.count(contents)
	for i, content := range contents {
		of[content] = counts[i]
	}
	return of, err
}

// count is how many rows of each content the index has: the least number that it has no row of.
func (r *rowIndex) count(contents []keyindex.Fingerprint) ([]int64, error) {
	const unknown = -1
	low, high := make([]int64, len(contents)), make([]int64, len(contents)) // it has those below low, and not that of high
	open := make([]int, len(contents))
	for i := range contents {
		high[i], open[i] = unknown, i
	}
	for len(open) > 0 {
		keys, asked := make([]keyindex.Fingerprint, len(open)), make([]int64, len(open))
		for n, i := range open {
			if asked[n] = (low[i] + high[i]) / 2; high[i] == unknown {
				asked[n] = max(0, 2*low[i]-1)
			}
			keys[n] = contents[i].Numbered(asked[n])
		}
		at := make([]keyindex.Position, len(keys))
		if err := r.x.Lookup(keys, at, nil); err != nil {
			return nil, err
		}
		left := open[:0]
		for n, i := range open {
			if at[n].File == 0 {
				high[i] = asked[n]
			} else {
				low[i] = asked[n] + 1
			}
			if low[i] != high[i] {
				left = append(left, i)
			}
		}
		open = left
	}
	return low, nil
}

// rowPlace is where a row lies.
type rowPlace struct {
	path string
	row  int64
}

// all are the entries of a content that has so many, and where their rows lie.
func (r *rowIndex) all(content keyindex.Fingerprint, n int64) ([]keyindex.Fingerprint, []keyindex.Position, error) {
	keys, at := make([]keyindex.Fingerprint, n), make([]keyindex.Position, n)
	for i := range keys {
		keys[i] = content.Numbered(int64(i))
	}
	return keys, at, r.x.Lookup(keys, at, nil)
}

// leave takes rows out of the index that are no more in the table, as far as it has them there; those of the highest numbers take the place of others.
func (r *rowIndex) leave(c *keyindex.Change, rows []placed) error {
	gone := map[rowPlace]bool{}
	counts, err := r.countEach(rows)
	if err != nil {
		return err
	}
	for _, row := range rows {
		gone[rowPlace{row.path, row.row}] = true
	}
	for content, n := range counts {
		keys, at, err := r.all(content, n)
		if err != nil {
			return err
		}
		is := func(i int) bool {
			path, _ := r.x.Path(at[i].File)
			return gone[rowPlace{path, at[i].Row}]
		}
		end := len(at)
		for i := 0; i < end; i++ {
			if !is(i) {
				continue
			}
			for end--; end > i && is(end); end-- {
			}
			if end == i {
				break
			}
			path, _ := r.x.Path(at[end].File)
			if err := c.Add(path, keys[i:i+1], []int64{at[end].Row}, nil); err != nil {
				return err
			}
		}
		if err := c.Delete(keys[end:]); err != nil {
			return err
		}
	}
	return nil
}

// number numbers the rows of all files of the snapshot, in an index that is empty.
func (r *rowIndex) number(ctx context.Context, snap *delta.Snapshot) error {
	n := &numbering{r: r, version: snap.Version()}
	var files []delta.Add
	flush := func() error {
		err := r.read(ctx, snap, files, nil, func(row placed) error { return n.take(ctx, row) })
		files = files[:0]
		return err
	}
	for add, err := range snap.Files(ctx, nil) {
		if err != nil {
			return err
		}
		if files = append(files, *add); len(files) < rebuildFiles {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if err := n.flush(ctx); err != nil {
		return err
	}
	return r.step(ctx, snap.Version(), r.noteOf(snap), func(*keyindex.Change) error { return nil })
}

// renumber brings the index to a version, the snapshot's or one below, by the commits between. Errors: those of forward.
func (r *rowIndex) renumber(ctx context.Context, snap *delta.Snapshot, version int64) error {
	from := r.x.Version() + 1
	if from == 0 || from > version+1 {
		return fmt.Errorf("bring the index of rows to version %d: %w", version, store.ErrNotFound)
	}
	touched, err := touchedFiles(ctx, snap, from, version)
	if err != nil {
		return err
	}
	has := map[string]bool{}
	for _, path := range r.x.Files() {
		has[path] = true
	}
	moves, err := r.movesOf(ctx, snap, touched, has)
	if err != nil {
		return err
	}
	for _, m := range moves {
		n := &numbering{r: r, version: r.x.Version(), gone: m.gone}
		if err := r.read(ctx, snap, m.files, m.rows, func(row placed) error { return n.take(ctx, row) }); err != nil {
			return err
		}
		if err := n.flush(ctx); err != nil {
			return err
		}
	}
	return r.step(ctx, version, r.noteOf(snap), func(c *keyindex.Change) error {
		for path, f := range touched {
			if f.add == nil {
				c.Remove(path)
			}
		}
		return nil
	})
}

// fileMoves are files of which rows went, or came. A set of rows that is nil is all that are there.
type fileMoves struct {
	gone  bool
	files []delta.Add
	rows  []*delta.RowSet
}

func (m *fileMoves) add(file delta.Add, rows *delta.RowSet) {
	if rows != nil && rows.IsEmpty() {
		return
	}
	m.files, m.rows = append(m.files, file), append(m.rows, rows)
}

// movesOf are what commits did to rows, those that went first: rows in files that went, in those that lost some, in those that got
// some back, and in new ones. has are the files of the index.
func (r *rowIndex) movesOf(ctx context.Context, snap *delta.Snapshot, touched map[string]*touchedFile, has map[string]bool) (
	moves []*fileMoves, err error) {
	lost, some := &fileMoves{gone: true}, &fileMoves{gone: true}
	back, fresh := &fileMoves{}, &fileMoves{}
	for path, f := range touched {
		r.files.drop(path)
		switch {
		case f.add == nil && !has[path]:
		case f.add == nil:
			if f.gone == nil {
				return nil, fmt.Errorf("bring the index of rows past a file that does not say what it was: %w", store.ErrNotFound)
			}
			lost.add(*f.gone, nil)
		case !has[path]:
			fresh.add(*f.add, nil)
		default:
			now, err := deletedRows(ctx, snap, f.add.DeletionVector)
			if err != nil {
				return nil, err
			}
			before, err := deletedRows(ctx, snap, f.was)
			if err != nil {
				return nil, err
			}
			again := before.Clone()
			again.AndNot(now)
			now.AndNot(before)
			some.add(*f.add, now)
			back.add(*f.add, again)
		}
	}
	return []*fileMoves{lost, some, back, fresh}, nil
}

// numbers reports whether the index is one of a table without a key.
func (r *rowIndex) numbers() bool { return slices.Contains(r.identity.Columns, rowColumn) }

// numbered compares the index of a table without a key with its rows: as many of each content, and all where they are.
func (c *indexCheck) numbered(ctx context.Context) error {
	r := c.index
	if r.known(c.snap); !r.suitsRows(ctx, c.snap) {
		return fmt.Errorf("%w: it was being made, or tells rows apart by other columns", keyindex.ErrForeign)
	}
	var rows []placed
	flush := func() error {
		err := c.whereNumbered(rows)
		rows = rows[:0]
		return err
	}
	var files []delta.Add
	for add, err := range c.snap.Files(ctx, nil) {
		if err != nil {
			return err
		}
		files = append(files, *add)
	}
	r.progress = c.told
	err := r.read(ctx, c.snap, files, nil, func(row placed) error {
		c.report.Rows++
		if rows = append(rows, row); len(rows) < gatheredBytes/numberedBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil || c.report.More {
		return err
	}
	return r.x.Entries(ctx, func(_ keyindex.Fingerprint, at keyindex.Position, _ []byte) error {
		c.report.Keys++
		if set := c.right[at.File]; (set == nil || !set.Contains(uint64(at.Row))) && !c.report.More {
			path, _ := r.x.Path(at.File)
			c.add(IndexFault{Kind: IndexExtra, File: path, Row: at.Row, Text: "no row of the table is there that is as the index says"})
		}
		return nil
	})
}

// whereNumbered looks for the place of each of the rows among those of its content.
func (c *indexCheck) whereNumbered(rows []placed) error {
	counts, err := c.index.countEach(rows)
	if err != nil {
		return err
	}
	has := map[rowPlace]bool{}
	for content, n := range counts {
		_, at, err := c.index.all(content, n)
		if err != nil {
			return err
		}
		for _, p := range at {
			path, _ := c.index.x.Path(p.File)
			has[rowPlace{path, p.Row}] = true
			if c.right[p.File] == nil {
				c.right[p.File] = delta.NewRowSet()
			}
		}
	}
	ids := map[string]keyindex.FileID{}
	for id, path := range c.index.x.Files() {
		ids[path] = id
	}
	for _, row := range rows {
		if has[rowPlace{row.path, row.row}] {
			c.right[ids[row.path]].Add(uint64(row.row))
		} else if !c.report.More {
			c.add(IndexFault{Kind: IndexMissing, File: row.path, Row: row.row, Text: "the index does not have this row"})
		}
	}
	return nil
}
