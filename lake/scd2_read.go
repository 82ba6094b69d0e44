package lake

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// storedPeriods are rows of a history as they are before the commit.
type storedPeriods struct {
	rows    arrow.RecordBatch // nil: none was needed
	spots   []spot            // of each of rows
	files   []delta.Add       // of spots
	periods map[keyindex.Fingerprint][]period
}

// spot is where a row lies: in a file, and there.
type spot struct {
	file int
	row  int64
	key  keyindex.Fingerprint
}

// readPeriods reads the newest row of each key, and all rows of those that something came late of.
func (h *history) readPeriods(ctx context.Context, late map[keyindex.Fingerprint]int) (*storedPeriods, error) {
	s := &storedPeriods{periods: map[keyindex.Fingerprint][]period{}}
	files := map[string]int{}
	number := func(add delta.Add) int {
		n, ok := files[add.Path]
		if !ok {
			n = len(s.files)
			files[add.Path], s.files = n, append(s.files, add)
		}
		return n
	}
	wanted := map[keyindex.FileID]bool{}
	for i, key := range h.ids {
		if _, all := late[key]; !all && h.there(i) {
			wanted[h.at[i].File] = true
		}
	}
	var err error
	if h.files, err = h.index.find(ctx, h.snap, wanted); err != nil {
		return nil, err
	}
	for i, key := range h.ids {
		if _, all := late[key]; !all && h.there(i) {
			s.spots = append(s.spots, spot{number(h.files[h.at[i].File]), h.at[i].Row, key})
		}
	}
	if len(late) > 0 {
		if err := h.seek(ctx, late, func(add delta.Add, row int64, key keyindex.Fingerprint) {
			s.spots = append(s.spots, spot{number(add), row, key})
		}); err != nil {
			return nil, err
		}
	}
	if len(s.spots) == 0 {
		return s, nil
	}
	slices.SortFunc(s.spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.row, b.row))
	})
	if err := s.read(ctx, h.snap); err != nil {
		return nil, err
	}
	return s, s.gather(h.index.sequence, h.t.opts.Periods)
}

// seekFiles is how many files are looked through at once.
const seekFiles = 256

// seek finds all rows of these keys: of the files whose statistics do not rule them out it reads the key columns.
func (h *history) seek(ctx context.Context, late map[keyindex.Fingerprint]int,
	found func(delta.Add, int64, keyindex.Fingerprint)) error {
	var files []delta.Add
	look := func() error {
		opts := &delta.ScanOptions{Columns: h.index.columns[:h.index.keys]}
		for rows, err := range h.snap.ScanFiles(ctx, files, opts) {
			if err != nil {
				return err
			}
			keys, err := h.index.x.Hasher().Append(nil, rows.Batch.Columns())
			rows.Batch.Release()
			if err != nil {
				return err
			}
			for n, key := range keys {
				if _, ok := late[key]; ok {
					found(files[rows.File], rows.Rows[n], key)
				}
			}
		}
		files = files[:0]
		return nil
	}
	for add, err := range h.snap.Matching(ctx, h.lateKeys(late)) {
		if err != nil {
			return err
		}
		if files = append(files, *add); len(files) == seekFiles {
			if err := look(); err != nil {
				return err
			}
		}
	}
	return look()
}

// mostSought is up to how many late keys are sought by themselves; more, by the least and the greatest of them.
const mostSought = 100

// lateKeys is a condition that the rows of these keys meet.
func (h *history) lateKeys(late map[keyindex.Fingerprint]int) *expr.Expr {
	key := h.rows.named(h.t.key())
	var rows []int32
	for _, i := range late {
		rows = append(rows, h.said[i][0].by)
	}
	if len(rows) > mostSought {
		return h.between(rows)
	}
	var any []*expr.Expr
	for _, row := range rows {
		var all []*expr.Expr
		for i, c := range key {
			if value, ok := expr.Literal(c, int(row)); ok {
				all = append(all, expr.Compare("=", expr.Name(h.index.columns[i]), value))
			}
		}
		if len(all) == 0 {
			return nil
		}
		any = append(any, expr.And(all...))
	}
	return expr.Or(any...)
}

// between is the condition that key columns are between the least and the greatest of these rows.
func (h *history) between(rows []int32) *expr.Expr {
	var all []*expr.Expr
	for i, c := range h.rows.named(h.t.key()) {
		some := expr.Take(c, expr.SpansOf(slices.Sorted(slices.Values(rows))))
		if low, high, ok := bounds(some); ok {
			lo, okLo := expr.Literal(some, low)
			hi, okHi := expr.Literal(some, high)
			if column := expr.Name(h.index.columns[i]); okLo && okHi {
				all = append(all, expr.Compare(">=", column, lo), expr.Compare("<=", column, hi))
			}
		}
		some.Release()
	}
	if len(all) == 0 {
		return nil
	}
	return expr.And(all...)
}

// read reads the rows at the spots.
func (s *storedPeriods) read(ctx context.Context, snap *delta.Snapshot) error {
	rows := make([]*delta.RowSet, len(s.files))
	for i := range rows {
		rows[i] = delta.NewRowSet()
	}
	for _, at := range s.spots {
		rows[at.file].Add(uint64(at.row))
	}
	var parts []arrow.RecordBatch
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	n := 0
	for got, err := range snap.ScanFiles(ctx, s.files, &delta.ScanOptions{Rows: rows}) {
		if err != nil {
			return err
		}
		parts, n = append(parts, got.Batch), n+len(got.Rows)
	}
	if n != len(s.spots) {
		return fmt.Errorf("%w: wanted %d rows that the key index names, found %d", keyindex.ErrCorrupt, len(s.spots), n)
	}
	var err error
	s.rows, err = expr.ConcatBatches(parts)
	return err
}

// gather makes periods of the rows, those of each key in their order.
func (s *storedPeriods) gather(order *sequencer, names PeriodOptions) error {
	from, err := s.texts(order, names.From)
	if err != nil {
		return err
	}
	to, err := s.texts(order, names.To)
	if err != nil {
		return err
	}
	last, err := s.texts(order, LastSaidColumn)
	if err != nil {
		return err
	}
	lists, ok := s.rows.Column(columnNamed(s.rows.Schema(), AlsoSaidColumn)).(*array.List)
	if !ok {
		return fmt.Errorf("column %s: found %s, wanted an array", AlsoSaidColumn, s.rows.Schema())
	}
	also := order.texts(lists.ListValues())
	for i, at := range s.spots {
		p := period{from: from[i], to: to[i], last: last[i], by: noRow, row: values{stored: int32(i)}}
		if lists.IsValid(i) {
			first, end := lists.ValueOffsets(i)
			p.also = also[first:end:end]
		}
		s.periods[at.key] = append(s.periods[at.key], p)
	}
	for _, all := range s.periods {
		slices.SortFunc(all, func(a, b period) int { return cmp.Compare(a.from, b.from) })
	}
	return nil
}

// texts are the values of a column; "" for null.
func (s *storedPeriods) texts(order *sequencer, name string) ([]string, error) {
	at := columnNamed(s.rows.Schema(), name)
	if at < 0 {
		return nil, fmt.Errorf("the table has no column %s: it is no history that this target made", name)
	}
	return order.texts(s.rows.Column(at)), nil
}

func (s *storedPeriods) release() {
	if s != nil && s.rows != nil {
		s.rows.Release()
	}
}

// texts are the values of a column as texts that compare as they do; "" for null.
func (s *sequencer) texts(column arrow.Array) []string {
	all := s.append(nil, []arrow.Array{column}, column.Len())
	out := make([]string, column.Len())
	for i := range out {
		if column.IsValid(i) {
			out[i] = string(all[i*s.width : (i+1)*s.width])
		}
	}
	return out
}
