package lake

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// readNeeded reads the stored rows that the changes need, as far as they need them.
func (u *upsert) readNeeded(ctx context.Context, moves []move) (err error) {
	var wanted []int
	need := &storedNeed{u: u, whole: u.feed, unsent: make([]bool, u.rows.schema.NumFields()), kept: u.keptColumns()}
	moved := map[int]bool{}
	for _, m := range moves {
		moved[m.key] = u.there(m.key)
	}
	for i := range u.keys {
		need.whole = need.whole || moved[i]
		if needed := u.touches(i) && need.of(i); needed || moved[i] {
			wanted = append(wanted, i)
		}
	}
	if len(wanted) > 0 {
		u.stored, err = u.readStored(ctx, wanted, need.columns())
	}
	return err
}

// storedNeed gathers what is needed of the rows that are stored.
type storedNeed struct {
	u      *upsert
	whole  bool     // all columns
	unsent []bool   // of each column of the source: a change of a row that is needed has not sent it
	kept   []string // columns that the source does not have: an update leaves them as they are
}

// of adds what the changes of a key need, and reports whether that is anything.
func (n *storedNeed) of(i int) (needed bool) {
	u := n.u
	deletes := u.t.deleted != nil || u.t.opts.Key.Deletes == SoftDeletes
	needed = u.feed
	for _, c := range u.keys[i].changes {
		switch {
		case u.rows.removes(c.row):
			n.whole = n.whole || deletes
			needed = needed || deletes
			continue
		case u.mayTie(i, c.row):
			n.whole = true
			needed = true
		}
		needed = needed || len(n.kept) > 0
		if u.rows.unsent.Any(int(c.row)) {
			needed = true
			for column := range n.unsent {
				n.unsent[column] = n.unsent[column] || u.rows.unsent.Has(int(c.row), column)
			}
		}
	}
	return needed
}

// columns are those that are to be read, nil for all. One that comes with this commit is null in every stored row.
func (n *storedNeed) columns() (names []string) {
	if n.whole {
		return nil
	}
	soft := n.u.t.opts.Key.Deletes == SoftDeletes
	for _, f := range n.u.snap.Schema().Fields {
		at := columnNamed(n.u.rows.schema, f.Name)
		if at >= 0 && n.unsent[at] || slices.Contains(n.kept, f.Name) || soft && f.Name == DeletedAtColumn {
			names = append(names, f.Name)
		}
	}
	return names
}

// mayTie reports whether nothing but its content may tell a change from the row that is stored.
func (u *upsert) mayTie(i int, row int32) bool {
	return u.index.sequence != nil && u.order(row).compare(u.index.orderOf(u.known, i)) == unknown
}

// keptColumns are the columns of the table that the source does not have, but for those that we fill in.
func (u *upsert) keptColumns() (names []string) {
	for i := range u.schema.Fields {
		f := &u.schema.Fields[i]
		_, ours := fillNamed(u.t.fills, f.Name)
		ours = ours || f.Name == DeletedAtColumn // of rows that were marked under another policy
		if columnNamed(u.rows.schema, f.Name) < 0 && !ours && !f.Generated() {
			names = append(names, f.Name)
		}
	}
	return names
}

// storedRows are rows of the table as they are before the commit.
type storedRows struct {
	rows arrow.RecordBatch
	of   map[int]int32 // by key: the row
}

// column is the column of this name, nil where there is none.
func (s *storedRows) column(name string) arrow.Array {
	if s == nil {
		return nil
	}
	if c := columnNamed(s.rows.Schema(), name); c >= 0 {
		return s.rows.Column(c)
	}
	return nil
}

func (s *storedRows) release() {
	if s != nil {
		s.rows.Release()
	}
}

// readStored reads these columns, nil for all, of the rows that lie under these keys.
func (u *upsert) readStored(ctx context.Context, keys []int, columns []string) (*storedRows, error) {
	slices.SortFunc(keys, func(a, b int) int {
		x, y := u.at[a], u.at[b]
		if x.File != y.File {
			return int(int64(x.File) - int64(y.File))
		}
		return int(x.Row - y.Row)
	})
	var files []delta.Add
	var rows []*delta.RowSet
	for i, k := range keys {
		if i == 0 || u.at[keys[i-1]].File != u.at[k].File {
			files, rows = append(files, u.files[u.at[k].File]), append(rows, delta.NewRowSet())
		}
		rows[len(rows)-1].Add(uint64(u.at[k].Row))
	}
	s := &storedRows{of: make(map[int]int32, len(keys))}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	n := 0
	for got, err := range u.snap.ScanFiles(ctx, files, &delta.ScanOptions{Columns: columns, Rows: rows}) {
		if err != nil {
			return nil, err
		}
		parts = append(parts, got.Batch)
		n += len(got.Rows)
	}
	if n != len(keys) {
		return nil, fmt.Errorf("%w: wanted %d rows that the key index names, found %d", keyindex.ErrCorrupt, len(keys), n)
	}
	for i, k := range keys {
		s.of[k] = int32(i)
	}
	var err error
	s.rows, err = expr.ConcatBatches(parts)
	return s, err
}
