package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// versionReader reads the changes of one commit.
type versionReader struct {
	*changeReader
	commit *changeCommit
	method ChangeMethod
	pieces []changePiece
	feed   bool // the pieces are cdc files, whose rows say what they are
	fill   *changeFill
}

// version yields the changes of a commit.
func (r *changeReader) version(ctx context.Context, c *changeCommit, yield func(Changes, error) bool) error {
	v := &versionReader{changeReader: r, commit: c, method: r.method(c), fill: newChangeFill(c)}
	v.feed = v.method == MethodFeed && len(c.cdc) > 0
	err := v.choose(ctx)
	if err == nil {
		err = v.match(ctx)
	}
	if err == nil {
		err = v.emit(ctx, yield)
	}
	if err == nil || errors.Is(err, errStop) {
		return err
	}
	if err := r.gone(ctx, c.version, err); err != nil {
		return fmt.Errorf("version %d: %w", c.version, err)
	}
	return nil
}

func (v *versionReader) choose(ctx context.Context) (err error) {
	switch {
	case v.feed:
		v.pieces = cdcPieces(v.commit.cdc)
	case v.method == MethodFeed && v.commit.nothing():
	default:
		v.pieces, err = v.changeReader.pieces(ctx, v.commit)
	}
	return err
}

// match finds the rows that were carried over, and the updates, where the method or a key ask for it.
func (v *versionReader) match(ctx context.Context) error {
	if !v.feed && (len(v.pieces) == 0 || v.pieces[0].side != deleted || v.pieces[len(v.pieces)-1].side != inserted) {
		return nil // there is nothing to compare with
	}
	if v.method == MethodRowTracking {
		if !tracksRows(v.commit.meta) {
			return &MethodError{v.commit.version, v.method, propRowTracking + " is not true"}
		}
		if err := v.stage(ctx, &ScanOptions{Columns: []string{}, RowIDs: true}, v.matchIDs); err != nil {
			return err
		}
	}
	if v.method != MethodDiff && len(v.opts.Key) == 0 {
		return nil
	}
	var key, content []int
	for _, name := range v.opts.Key {
		_, i := v.last.schema.Lookup(name)
		key = append(key, i)
	}
	for i, f := range v.last.schema.Fields {
		if !containsFold(v.opts.Ignore, f.Name) {
			content = append(content, i)
		}
	}
	h := newRowHasher()
	return v.stage(ctx, &ScanOptions{ChangeType: v.feed}, func(m *rowMatcher, rows FileRows) error {
		return v.matchValues(m, h, key, content, rows)
	})
}

// stage reads the rows of the pieces for a matcher, and keeps what that finds.
func (v *versionReader) stage(ctx context.Context, opts *ScanOptions, add func(*rowMatcher, FileRows) error) error {
	m := newRowMatcher(v.opts.MemoryBytes, v.opts.TempDir)
	defer m.close()
	for rows, err := range v.scan(ctx, opts) {
		if err != nil {
			return err
		}
		err := add(m, rows)
		rows.Batch.Release()
		if err != nil {
			return err
		}
	}
	for i := range v.pieces {
		v.pieces[i].alone, v.pieces[i].paired = roaring64.New(), roaring64.New()
	}
	return m.finish(func(place uint64, paired bool) {
		_, piece, row := placeParts(place)
		v.pieces[piece].tell(row, paired)
	})
}

// scan reads the rows of the pieces that are of interest. File is the index of the piece.
func (v *versionReader) scan(ctx context.Context, opts *ScanOptions) func(func(FileRows, error) bool) {
	opts.Concurrency, opts.BatchRows = v.opts.Concurrency, v.opts.BatchRows
	var files []Add
	var index []int
	for i := range v.pieces {
		rows := v.pieces[i].found()
		if rows != nil && rows.IsEmpty() {
			continue
		}
		files, index, opts.Rows = append(files, v.pieces[i].file), append(index, i), append(opts.Rows, rows)
	}
	return func(yield func(FileRows, error) bool) {
		for rows, err := range v.last.ScanFiles(ctx, files, opts) {
			if err == nil {
				rows.File = index[rows.File]
			}
			if !yield(rows, err) || err != nil {
				return
			}
		}
	}
}

// matchIDs adds rows by their row ids; rows of one commit version are alike.
func (v *versionReader) matchIDs(m *rowMatcher, rows FileRows) error {
	ids, versions := rows.Batch.Column(0).(*array.Int64), rows.Batch.Column(1).(*array.Int64)
	if ids.NullN() > 0 || versions.NullN() > 0 {
		return &MethodError{v.commit.version, v.method,
			fmt.Sprintf("the file %s has rows without an id", v.pieces[rows.File].file.Path)}
	}
	s := v.pieces[rows.File].side
	for i, row := range rows.Rows {
		id := uint64(ids.Value(i))
		err := m.add(matchRow{fingerprint{id, id}, uint64(versions.Value(i)), placeOf(s, rows.File, row)})
		if err != nil {
			return err
		}
	}
	return nil
}

// matchValues adds rows by the values of their key, or by their content; those of one content are alike.
func (v *versionReader) matchValues(m *rowMatcher, h *rowHasher, key, content []int, rows FileRows) error {
	n := int(rows.Batch.NumRows())
	columns := rows.Batch.Columns()
	var kinds *array.String
	if v.feed {
		columns = columns[:len(columns)-1]
		var err error
		if kinds, err = v.stored(rows); err != nil {
			return err
		}
	}
	whole := h.rows(pick(columns, content), n)
	keys := whole
	if key != nil {
		keys = h.rows(pick(columns, key), n)
	}
	s := v.pieces[rows.File].side
	for i, row := range rows.Rows {
		if kinds != nil {
			var ok bool
			if s, ok = sideOf(kinds.Value(i)); !ok {
				return corrupt("%s: column %s holds %q, wanted insert, delete, update_preimage or update_postimage",
					v.pieces[rows.File].file.Path, ChangeTypeColumn, kinds.Value(i))
			}
		}
		if err := m.add(matchRow{keys[i], whole[i].lo, placeOf(s, rows.File, row)}); err != nil {
			return err
		}
	}
	return nil
}

// sideOf is the side of a row of a cdc file; ok is false when its change type is none of the four.
func sideOf(kind string) (s side, ok bool) {
	switch kind {
	case ChangeInsert, ChangePostimage:
		return inserted, true
	case ChangeDelete, ChangePreimage:
		return deleted, true
	}
	return deleted, false
}

// stored are the change types of the rows of a cdc file, as the file has them.
func (v *versionReader) stored(rows FileRows) (*array.String, error) {
	kinds := rows.Batch.Column(int(rows.Batch.NumCols()) - 1).(*array.String)
	if kinds.NullN() > 0 {
		return nil, corrupt("%s: it has rows without a value in the column %s", v.pieces[rows.File].file.Path,
			ChangeTypeColumn)
	}
	return kinds, nil
}

// emit yields what is left of the pieces.
func (v *versionReader) emit(ctx context.Context, yield func(Changes, error) bool) error {
	opts := &ScanOptions{Columns: v.shape.columns, ChangeType: v.feed}
	early := v.shape.onRows // a row fails the condition before it is known what it is, or after
	if early {
		opts.Where = v.opts.Where
	}
	for rows, err := range v.scan(ctx, opts) {
		if err != nil {
			return err
		}
		batch, err := v.batch(ctx, rows, early)
		rows.Batch.Release()
		if err != nil {
			return err
		}
		if batch != nil && !yield(Changes{v.commit.version, v.commit.at.UTC(), v.method, batch}, nil) {
			return errStop
		}
	}
	return nil
}

// batch gives rows the columns of changes; nil when the condition leaves none.
func (v *versionReader) batch(ctx context.Context, rows FileRows, filtered bool) (arrow.RecordBatch, error) {
	n := int(rows.Batch.NumRows())
	columns := rows.Batch.Columns()[:len(v.shape.columns)]
	kinds, err := v.kinds(rows)
	if err != nil {
		return nil, err
	}
	defer kinds.Release()
	version, at := v.fill.commit(n)
	defer version.Release()
	defer at.Release()
	full := array.NewRecordBatch(v.shape.full, append(columns[:len(columns):len(columns)], kinds, version, at), int64(n))
	defer full.Release()
	kept := full
	if v.shape.where != nil && !filtered {
		spans, err := v.shape.where.Rows(ctx, full)
		if err != nil {
			return nil, err
		}
		kept = expr.TakeBatch(full, spans)
		defer kept.Release()
	}
	if kept.NumRows() == 0 {
		return nil, nil
	}
	return array.NewRecordBatch(v.shape.result, pick(kept.Columns(), v.shape.out), kept.NumRows()), nil
}

// kinds are the change types of rows.
func (v *versionReader) kinds(rows FileRows) (arrow.Array, error) {
	p := &v.pieces[rows.File]
	n := int(rows.Batch.NumRows())
	if !v.feed && (p.paired == nil || p.paired.IsEmpty()) {
		return v.fill.kind(kindName(p.side, false), n), nil
	}
	var stored *array.String
	if v.feed {
		var err error
		if stored, err = v.stored(rows); err != nil {
			return nil, err
		}
		if p.paired == nil {
			stored.Retain()
			return stored, nil
		}
	}
	b := newKindBuilder(n)
	defer b.Release()
	s := p.side
	for i, row := range rows.Rows {
		if stored != nil {
			s, _ = sideOf(stored.Value(i)) // matching has seen it
		}
		b.Append(kindName(s, p.paired.Contains(uint64(row))))
	}
	return b.NewArray(), nil
}

func kindName(s side, paired bool) string {
	switch {
	case s == deleted && paired:
		return ChangePreimage
	case s == deleted:
		return ChangeDelete
	case paired:
		return ChangePostimage
	}
	return ChangeInsert
}

func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
