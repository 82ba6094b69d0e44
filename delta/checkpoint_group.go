package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

const (
	// rowsAtOnce is how many rows of a checkpoint are decoded before they are handed on. Texts of files share
	// the memory of so many: whoever keeps one keeps the others.
	rowsAtOnce = 64
	// addsAtOnce is how many add actions are made at once; whoever keeps one keeps the others.
	addsAtOnce = 16
)

// readCheckpointFile yields the actions of the wanted kinds of one Parquet file, in its order, whatever its
// columns are called beyond those we know. Only the columns of wanted kinds are read, and of them only row
// groups that hold some. A sieve, if there is one, leaves out adds; row groups with other wanted actions are
// read whole. Memory: one row group's wanted columns, at most spanBytes. Errors: ErrCorrupt.
func readCheckpointFile(ctx context.Context, st store.Store, key string, size int64, want kinds, sieve *statsSieve,
) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		f, err := openParquet(ctx, st, key, size, &spares{})
		if errors.Is(err, ErrUnsupportedFeature) { // older checkpoints and commits may do without it
			err = corrupt("%s cannot be used: %v", key, err)
		}
		if err != nil {
			yield(Action{}, err)
			return
		}
		if names := unknownColumns(f.Reader); want&refuseUnknown != 0 && len(names) > 0 {
			yield(Action{}, fmt.Errorf("%s has columns that are not known and would be lost: %s", key,
				strings.Join(names, ", ")))
			return
		}
		rows := make([]Action, 0, rowsAtOnce)
		for i := range f.NumRowGroups() {
			var g *groupReader
			err := guard(key, func() (err error) {
				g, err = openGroup(f, i, want, sieve)
				return err
			})
			for err == nil && g != nil && g.left > 0 {
				err = guard(key, func() (err error) {
					rows, err = g.read(rows[:0])
					return err
				})
				for j := range rows {
					if err == nil && !yield(rows[j], nil) {
						return
					}
				}
			}
			if err != nil {
				yield(Action{}, err)
				return
			}
			if err := ctx.Err(); err != nil {
				yield(Action{}, err)
				return
			}
		}
	}
}

// groupReader reads one row group.
type groupReader struct {
	left    int64
	leaves  []*leaf
	readers []*parquet.ColumnReader // of leaves
	reads   []fieldRead
	pass    []bool // those of the rows to come that a sieve lets pass; nil: all
	room    *parquet.Room
}

// openGroup opens the columns of a row group that are wanted and not empty; nil when there are none.
func openGroup(f *parquetFile, i int, want kinds, sieve *statsSieve) (*groupReader, error) {
	rows := f.RowGroup(i)
	meta := rows.MetaData()
	columns := f.MetaData().Schema
	if meta.NumColumns() != columns.NumColumns() {
		return nil, fmt.Errorf("row group %d has %d columns, wanted %d", i, meta.NumColumns(), columns.NumColumns())
	}
	chosen, present := choose(f, meta, want)
	if len(chosen) == 0 || meta.NumRows() == 0 {
		return nil, nil
	}
	g := &groupReader{left: meta.NumRows(), room: f.src.room()}
	var err error
	if sieve != nil && present == kindAdd {
		var some bool
		if g.pass, some, err = sieve.sieveGroup(f, i); err != nil || !some {
			return nil, err
		}
	}
	if g.leaves, err = openLeaves(f, i, chosen, g.room); err != nil {
		return nil, err
	}
	g.readers, g.reads = readersOf(g.leaves), plan(g.leaves)
	return g, nil
}

// choose returns the columns to read, and the wanted kinds that there may be some of.
func choose(f *parquetFile, meta *metadata.RowGroupMetaData, want kinds) (chosen []int, present kinds) {
	columns := f.MetaData().Schema
	json := false
	for i := range columns.NumColumns() {
		path := columns.Column(i).Path()
		kind := kindOf(topOf(path))
		if path == openers[kind] && want&kind != 0 && !allNull(meta, i) {
			present |= kind
		}
		json = json || path == statsColumn && !allNull(meta, i)
	}
	for i := range columns.NumColumns() {
		path := columns.Column(i).Path()
		kind := kindOf(topOf(path))
		switch {
		case kind&present == 0 || strings.HasPrefix(path, parsedPartitions):
		case path == statsColumn && (!json || want&kindStats == 0):
		case strings.HasPrefix(path, parsedStats) && (json || want&kindStats == 0):
		case path != openers[kind] && allNull(meta, i) && !follows(columns, chosen, i):
		default:
			chosen = append(chosen, i)
		}
	}
	return chosen, present
}

// follows reports whether a column is the second of a map, whose first one is the last that was chosen.
func follows(columns *schema.Schema, chosen []int, i int) bool {
	if len(chosen) == 0 || columns.Column(i).MaxRepetitionLevel() == 0 {
		return false
	}
	entry := func(i int) string {
		path := columns.Column(i).Path()
		return path[:strings.LastIndexByte(path, '.')+1]
	}
	return entry(i) == entry(chosen[len(chosen)-1])
}

// topOf is the action that a column belongs to.
func topOf(path string) string {
	top, _, _ := strings.Cut(path, ".")
	return top
}

// allNull reports whether the footer says that a column holds only nulls in the row group.
func allNull(meta *metadata.RowGroupMetaData, column int) bool {
	c, err := meta.ColumnChunk(column)
	if err != nil {
		return false
	}
	if set, err := c.StatsSet(); err != nil || !set {
		return false
	}
	s, err := c.Statistics()
	return err == nil && s != nil && s.HasNullCount() && s.NullCount() == c.NumValues()
}

// chunkSpan is where a column chunk lies; it must lie within the file.
func chunkSpan(f *parquetFile, meta *metadata.RowGroupMetaData, column int) (span, error) {
	c, err := meta.ColumnChunk(column)
	if err != nil && f.MetaData().IsSetEncryptionAlgorithm() {
		return span{}, encrypted(f.src.key, "the encrypted column "+f.MetaData().Schema.Column(column).Path())
	}
	if err != nil {
		return span{}, err
	}
	from, n := c.DataPageOffset(), c.TotalCompressedSize()
	if d := c.DictionaryPageOffset(); c.HasDictionaryPage() && d > 0 && d < from {
		from = d
	}
	if from < 0 || n < 0 || n > f.src.size || from > f.src.size-n {
		return span{}, fmt.Errorf("column %d claims bytes %d to %d of a file of %d",
			column, from, from+n, f.src.size)
	}
	return span{from: from, to: from + n}, nil
}

// read decodes the next rows, column by column, and returns in rows those that hold a wanted action.
func (g *groupReader) read(rows []Action) ([]Action, error) {
	var passing []expr.Span
	n, err := fewer(int(min(g.left, rowsAtOnce)), g.room, g.readers, func(n int) error {
		passing = []expr.Span{{From: 0, To: n}}
		if g.pass != nil {
			passing = trueRanges(g.pass[:n])
		}
		return loadAll(g.leaves, n, passing)
	})
	if err != nil {
		return nil, err
	}
	g.left -= int64(n)
	if g.pass != nil {
		g.pass = g.pass[n:]
	}
	rows = rows[:0]
	for _, r := range passing {
		rows = rows[:len(rows)+r.To-r.From]
	}
	clear(rows)
	for _, read := range g.reads {
		if err := read(rows); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(rows, func(a Action) bool { return a.kinds() == 0 }), nil
}

// trueRanges are the places that are true.
func trueRanges(pass []bool) (ranges []expr.Span) {
	for i, ok := range pass {
		switch n := len(ranges); {
		case !ok:
		case n > 0 && ranges[n-1].To == i:
			ranges[n-1].To++
		default:
			ranges = append(ranges, expr.Span{From: i, To: i + 1})
		}
	}
	return ranges
}

// plan orders the columns so that openers come first, and pairs the columns of maps. Unknown columns are left
// out.
func plan(leaves []*leaf) []fieldRead {
	slices.SortStableFunc(leaves, func(a, b *leaf) int { return a.rank() - b.rank() })
	var reads []fieldRead
	var stats []*leaf
	for i, l := range leaves {
		path := l.column.Path()
		if strings.HasPrefix(path, parsedStats) {
			stats = append(stats, l)
			continue
		}
		if l.maxRep == 0 {
			if r := l.scalar(path); r != nil {
				reads = append(reads, r)
			}
			continue
		}
		parent := l.parent()
		if set, ok := listFields[parent]; ok && l.maxRep == 1 {
			reads = append(reads, l.list(parent, set))
		}
		paired := l.maxRep == 1 && i+1 < len(leaves) && leaves[i+1].parent() == parent
		if set, ok := mapFields[parent]; ok && paired {
			reads = append(reads, mapOf(parent, l, leaves[i+1], set))
		}
	}
	if len(stats) > 0 {
		reads = append(reads, statsFromColumns(stats))
	}
	return reads
}

// rank is lower for columns that open something that others fill in.
func (l *leaf) rank() int {
	path := l.column.Path()
	switch path {
	case openers[kindOf(topOf(path))]:
		return 0
	case addVectorOpen, removeVectorOpen:
		return 1
	}
	return 2
}

// parent is the path of the list or map that a repeated column is the element, key or value of.
func (l *leaf) parent() string {
	if len(l.path) == 0 || l.maxRep == 0 {
		return ""
	}
	for name := range mapFields {
		if strings.HasPrefix(l.column.Path(), name+".") {
			return name
		}
	}
	for name := range listFields {
		if strings.HasPrefix(l.column.Path(), name+".") {
			return name
		}
	}
	return ""
}

// unknownColumns are the columns with values that this package would drop if it rewrote the file.
func unknownColumns(f *file.Reader) (unknown []string) {
	columns := f.MetaData().Schema
	for i := range columns.NumColumns() {
		path := columns.Column(i).Path()
		l := newLeaf(columns.Column(i))
		switch {
		case topOf(path) == "commitInfo" || topOf(path) == "cdc": // what early versions left there has no meaning
		case strings.HasPrefix(path, parsedStats), strings.HasPrefix(path, parsedPartitions):
		case l.maxRep == 0 && l.scalar(path) != nil, l.maxRep == 1 && l.parent() != "":
		default:
			for g := range f.NumRowGroups() {
				if !allNull(f.RowGroup(g).MetaData(), i) {
					unknown = append(unknown, path)
					break
				}
			}
		}
	}
	return unknown
}
