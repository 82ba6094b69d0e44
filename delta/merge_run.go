package delta

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// pairChunk is how many pairs of rows are looked at at once.
const pairChunk = 64 << 10

// mergeRun is one attempt of a merge.
type mergeRun struct {
	plan  *mergePlan
	edit  *rowEdit
	input *mergeInput
	part  *mergePart
	pass  uint64
	read  *expr.Expr // the rows of the table that the merge depends on; nil: all
	pairs pairs
	tried int64 // pairs, in a merge without keys

	matchedUpdated, matchedDeleted, bySourceUpdated, bySourceDeleted int64
}

// run does the merge: it reads the source, then goes over the table once a part of it.
func (r *mergeRun) run(ctx context.Context) error {
	r.input = newMergeInput(r.plan)
	part, err := r.input.first(ctx)
	if err != nil {
		return err
	}
	if err := r.find(ctx); err != nil {
		part.release()
		return err
	}
	for r.pass = range r.input.parts {
		if part == nil {
			if part, err = r.input.load(ctx, r.pass); err != nil {
				return err
			}
		}
		r.part = part
		err := r.onePass(ctx)
		part.release()
		part = nil
		if err != nil {
			return err
		}
	}
	return r.dropNeedless(ctx)
}

// find notes the files that the merge has to look at.
func (r *mergeRun) find(ctx context.Context) error {
	r.read = r.input.where()
	for _, a := range r.plan.bySource {
		if a.when == nil {
			r.read = nil
		}
		if r.read != nil {
			r.read = expr.Or(r.read, ofTable(a.when))
		}
	}
	if r.input.rows == 0 && len(r.plan.bySource) == 0 {
		return nil
	}
	return r.edit.find(ctx, r.read)
}

// reads says what the merge depends on: rows of the table that may match decide whether rows are inserted.
func (r *mergeRun) reads(tx *Transaction) {
	if r.input.rows > 0 || len(r.plan.bySource) > 0 {
		tx.ReadWhere(r.read)
	}
}

// dropNeedless takes back change data that tells of inserts alone: readers see those without.
func (r *mergeRun) dropNeedless(ctx context.Context) error {
	if r.edit.changes == nil || r.edit.updated+r.edit.deleted > 0 {
		return nil
	}
	err := r.edit.changes.Abort(ctx)
	r.edit.changes = nil
	return err
}

// onePass goes over the table for one part of the source, and inserts what nothing matched.
func (r *mergeRun) onePass(ctx context.Context) error {
	opts := ScanOptions{Columns: tableColumns(r.plan.target), RowIDs: true}
	which := r.edit.allFiles()
	if r.worthProbing() {
		rows, err := r.probeFiles(ctx)
		if err != nil {
			return err
		}
		which = nil
		for n, b := range rows {
			if b != nil {
				which, opts.Rows = append(which, n), append(opts.Rows, b)
			}
		}
	}
	if err := r.edit.scan(ctx, "change", which, opts, func(rows FileRows) error { return r.merge(ctx, rows) }); err != nil {
		return err
	}
	return r.insert(ctx)
}

// tableColumns are the table's columns under their own names.
func tableColumns(s *arrow.Schema) []string {
	names := make([]string, s.NumFields())
	for i, f := range s.Fields() {
		names[i] = strings.TrimPrefix(f.Name, "t.")
	}
	return names
}

// keyColumns are the places in target of the columns that keys are computed from.
func (p *mergePlan) keyColumns() (places []int) {
	for i, f := range p.target.Fields() {
		if slices.ContainsFunc(p.keys, func(k mergeKey) bool { return slices.Contains(k.boundTarget.Columns(), f.Name) }) {
			places = append(places, i)
		}
	}
	return places
}

// worthProbing reports whether it pays to look at the keys alone first, so that other columns are read of the rows
// that match only.
func (r *mergeRun) worthProbing() bool {
	return len(r.plan.keys) > 0 && len(r.plan.bySource) == 0 && len(r.plan.keyColumns()) < r.plan.target.NumFields()
}

// probeFiles returns the rows of each file whose keys the source has; nil for files without any.
func (r *mergeRun) probeFiles(ctx context.Context) ([]*roaring64.Bitmap, error) {
	places := r.plan.keyColumns()
	fields := make([]arrow.Field, len(places))
	for i, at := range places {
		fields[i] = r.plan.target.Field(at)
	}
	schema := arrow.NewSchema(fields, nil)
	bounds := make([]*expr.Bound, len(r.plan.keys))
	for i, k := range r.plan.keys {
		var err error
		if bounds[i], err = k.target.Bind(schema); err != nil {
			return nil, err
		}
	}
	found := make([]*roaring64.Bitmap, len(r.edit.files))
	opts := ScanOptions{Columns: tableColumns(schema)}
	err := r.edit.scan(ctx, "find", r.edit.allFiles(), opts, func(rows FileRows) error {
		batch := array.NewRecordBatch(schema, rows.Batch.Columns()[:len(places)], rows.Batch.NumRows())
		defer batch.Release()
		keys, err := evalAll(ctx, bounds, batch)
		defer releaseArrays(keys)
		if err != nil {
			return err
		}
		r.pairs.target, r.pairs.source = r.pairs.target[:0], r.pairs.source[:0]
		r.part.index.probe(keys, int(batch.NumRows()), &r.pairs)
		if len(r.pairs.target) == 0 {
			return nil
		}
		if found[rows.File] == nil {
			found[rows.File] = roaring64.New()
		}
		for _, i := range r.pairs.target {
			found[rows.File].Add(uint64(rows.Rows[i]))
		}
		return nil
	})
	return found, err
}

// merge matches a batch of the table with the part of the source, and lets the clauses act.
func (r *mergeRun) merge(ctx context.Context, rows FileRows) error {
	n := int(rows.Batch.NumRows())
	columns := r.plan.target.NumFields()
	target := array.NewRecordBatch(r.plan.target, rows.Batch.Columns()[:columns], int64(n))
	defer target.Release()
	if len(r.plan.keys) == 0 {
		return r.mergeAll(ctx, rows, target)
	}
	bounds := make([]*expr.Bound, len(r.plan.keys))
	for i := range bounds {
		bounds[i] = r.plan.keys[i].boundTarget
	}
	keys, err := evalAll(ctx, bounds, target)
	defer releaseArrays(keys)
	if err != nil {
		return err
	}
	r.pairs.target, r.pairs.source = r.pairs.target[:0], r.pairs.source[:0]
	r.part.index.probe(keys, n, &r.pairs)
	matched, err := r.act(ctx, rows, target, r.pairs)
	if err != nil || len(r.plan.bySource) == 0 {
		return err
	}
	return r.actBySource(ctx, rows, target, r.unmatched(keys, n, matched))
}

// unmatched are the rows of the batch that this pass is for and that match nothing.
func (r *mergeRun) unmatched(keys []arrow.Array, n int, matched []bool) (spans []expr.Span) {
	add := func(i int, h uint64, ok bool) {
		if (matched == nil || !matched[i]) && r.input.partOf(h, ok) == r.pass {
			spans = append(spans, expr.Span{From: i, To: i + 1})
		}
	}
	if r.input.parts > 1 {
		r.input.coder.hashes(keys, n, add)
		return spans
	}
	for i := range n {
		add(i, 0, true)
	}
	return spans
}

// mergeAll matches a batch with every row of the source.
func (r *mergeRun) mergeAll(ctx context.Context, rows FileRows, target arrow.RecordBatch) error {
	n, m := int(target.NumRows()), int(r.part.rows.NumRows())
	if r.tried += int64(n) * int64(m); r.tried > r.plan.opts.MaxPairs {
		return fmt.Errorf("the condition %s has no equality between source and table, so that all pairs of their rows "+
			"must be tried: found more than %d; add an equality, or raise MaxPairs", r.plan.merge.On,
			r.plan.opts.MaxPairs)
	}
	var found pairs
	if m > 0 {
		step := max(pairChunk/m, 1)
		for from := 0; from < n; from += step {
			var p pairs
			for i := from; i < min(from+step, n); i++ {
				for j := range m {
					p.add(i, int32(j))
				}
			}
			p, err := r.narrowPairs(ctx, target, p)
			if err != nil {
				return err
			}
			found.target, found.source = append(found.target, p.target...), append(found.source, p.source...)
		}
	}
	matched, err := r.actOn(ctx, rows, target, found)
	if err != nil || len(r.plan.bySource) == 0 {
		return err
	}
	return r.actBySource(ctx, rows, target, r.unmatched(nil, n, matched))
}

// narrowPairs keeps the pairs for which the rest of the condition is true.
func (r *mergeRun) narrowPairs(ctx context.Context, target arrow.RecordBatch, p pairs) (pairs, error) {
	if r.plan.residual == nil || len(p.target) == 0 {
		return p, nil
	}
	batch := r.pairBatch(target, p)
	defer batch.Release()
	spans, err := r.plan.residual.Rows(ctx, batch)
	if err != nil {
		return p, err
	}
	return p.take(spans), nil
}

// take keeps the pairs of the spans.
func (p pairs) take(spans []expr.Span) (out pairs) {
	for _, s := range spans {
		out.target = append(out.target, p.target[s.From:s.To]...)
		out.source = append(out.source, p.source[s.From:s.To]...)
	}
	return out
}

// pairBatch puts the two rows of each pair side by side.
func (r *mergeRun) pairBatch(target arrow.RecordBatch, p pairs) arrow.RecordBatch {
	t := expr.TakeBatch(target, expr.SpansOf(p.target))
	defer t.Release()
	s := expr.TakeBatch(r.part.rows, expr.SpansOf(p.source))
	defer s.Release()
	return array.NewRecordBatch(r.plan.pair, append(slices.Clone(t.Columns()), s.Columns()...), int64(len(p.target)))
}

// act narrows the pairs down and lets the clauses of matched rows act on them. It tells which rows of the table match;
// nil: none.
func (r *mergeRun) act(ctx context.Context, rows FileRows, target arrow.RecordBatch, p pairs) ([]bool, error) {
	p, err := r.narrowPairs(ctx, target, p)
	if err != nil {
		return nil, err
	}
	return r.actOn(ctx, rows, target, p)
}

func (r *mergeRun) actOn(ctx context.Context, rows FileRows, target arrow.RecordBatch, p pairs) ([]bool, error) {
	if len(p.target) == 0 {
		return nil, nil
	}
	matched := make([]bool, target.NumRows())
	for i, t := range p.target {
		matched[t] = true
		r.part.matched[p.source[i]] = true
	}
	if len(r.plan.matched) == 0 {
		return matched, nil
	}
	batch := r.pairBatch(target, p)
	defer batch.Release()
	chosen, err := chooseRows(ctx, r.plan.matched, batch)
	if err != nil {
		return nil, err
	}
	if err := r.refuseTwice(rows, target, p, chosen); err != nil {
		return nil, err
	}
	for i := range r.plan.matched {
		if err := r.change(ctx, &r.plan.matched[i], rows, batch, p.target, chosen[i], false); err != nil {
			return nil, err
		}
	}
	return matched, nil
}

// chooseRows returns for each clause the rows that it acts on: those that none before took and its condition is true of.
func chooseRows(ctx context.Context, actions []mergeAction, batch arrow.RecordBatch) ([][]int32, error) {
	chosen := make([][]int32, len(actions))
	taken := make([]bool, batch.NumRows())
	for i, a := range actions {
		spans := []expr.Span{{From: 0, To: int(batch.NumRows())}}
		if a.cond != nil {
			var err error
			if spans, err = rowsLeft(ctx, a.cond, batch, taken); err != nil {
				return nil, err
			}
		}
		for _, s := range spans {
			for row := s.From; row < s.To; row++ {
				if !taken[row] {
					taken[row] = true
					chosen[i] = append(chosen[i], int32(row))
				}
			}
		}
	}
	return chosen, nil
}

// rowsLeft returns the rows that the condition is true of. It may fail only on a row that is not taken yet.
func rowsLeft(ctx context.Context, cond *expr.Bound, batch arrow.RecordBatch, taken []bool) ([]expr.Span, error) {
	if !slices.Contains(taken, true) {
		return cond.Rows(ctx, batch)
	}
	var left []int32
	for i, t := range taken {
		if !t {
			left = append(left, int32(i))
		}
	}
	rest := expr.TakeBatch(batch, expr.SpansOf(left))
	defer rest.Release()
	spans, err := cond.Rows(ctx, rest)
	if err != nil {
		return nil, err
	}
	var out []expr.Span
	for _, s := range spans {
		for i := s.From; i < s.To; i++ {
			out = append(out, expr.Span{From: int(left[i]), To: int(left[i]) + 1})
		}
	}
	return out, nil
}

// refuseTwice refuses pairs that would change one row of the table twice, and lets the first of them be the only one
// where a row can only be deleted.
func (r *mergeRun) refuseTwice(rows FileRows, target arrow.RecordBatch, p pairs, chosen [][]int32) error {
	acts := make([]bool, len(p.target))
	for _, list := range chosen {
		for _, i := range list {
			acts[i] = true
		}
	}
	harmless := len(r.plan.matched) == 1 && r.plan.matched[0].remove && r.plan.matched[0].cond == nil
	last := int32(-1)
	for i, t := range p.target {
		if !acts[i] {
			continue
		}
		if t == last && !harmless {
			return &AmbiguousMergeError{Row: r.describe(target, int(t)), File: r.edit.files[rows.File].Path}
		}
		last = t
	}
	if harmless {
		chosen[0] = slices.CompactFunc(chosen[0], func(a, b int32) bool { return p.target[a] == p.target[b] })
	}
	return nil
}

// describe names a row by the values that the condition compares.
func (r *mergeRun) describe(target arrow.RecordBatch, row int) string {
	var parts []string
	for i, f := range r.plan.target.Fields() {
		named := slices.ContainsFunc(r.plan.keys, func(k mergeKey) bool {
			return slices.Contains(k.boundTarget.Columns(), f.Name)
		})
		if named || len(r.plan.keys) == 0 && len(parts) < 4 {
			parts = append(parts, strings.TrimPrefix(f.Name, "t.")+" = "+target.Column(i).ValueStr(row))
		}
	}
	return strings.Join(parts, ", ")
}

// change lets one clause act on some rows of a batch: of pairs, or of the table's own rows. target tells for each row
// of the batch which row of the scanned ones it is.
func (r *mergeRun) change(ctx context.Context, a *mergeAction, rows FileRows, batch arrow.RecordBatch, target []int32,
	chosen []int32, bySource bool,
) error {
	if len(chosen) == 0 {
		return nil
	}
	picked := expr.TakeBatch(batch, expr.SpansOf(chosen))
	defer picked.Release()
	places := make([]int32, len(chosen))
	positions := make([]int64, len(chosen))
	for i, c := range chosen {
		places[i] = target[c]
		positions[i] = rows.Rows[target[c]]
	}
	var before arrow.RecordBatch
	if r.edit.feed {
		before = r.plan.own(picked)
		defer before.Release()
	}
	n := int64(len(chosen))
	if a.remove {
		if bySource {
			r.bySourceDeleted += n
		} else {
			r.matchedDeleted += n
		}
		return r.edit.deleteRows(ctx, rows.File, positions, before)
	}
	if bySource {
		r.bySourceUpdated += n
	} else {
		r.matchedUpdated += n
	}
	extra, values := r.edit.rowIDs(rows.Batch)
	ids := make([]arrow.Array, len(values))
	for i, v := range values {
		ids[i] = expr.Take(v, expr.SpansOf(places))
		v.Release()
	}
	after, err := a.make.apply(ctx, picked, extra, ids)
	releaseArrays(ids)
	if err != nil {
		return err
	}
	defer after.Release()
	return r.edit.updateRows(ctx, rows.File, positions, before, after)
}

// own is the part of a batch that is rows of the table, under the table's names.
func (p *mergePlan) own(batch arrow.RecordBatch) arrow.RecordBatch {
	n := p.target.NumFields()
	fields := make([]arrow.Field, n)
	for i, f := range p.target.Fields() {
		f.Name = strings.TrimPrefix(f.Name, "t.")
		fields[i] = f
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), batch.Columns()[:n], batch.NumRows())
}

// actBySource lets the clauses of rows that nothing in the source matches act.
func (r *mergeRun) actBySource(ctx context.Context, rows FileRows, target arrow.RecordBatch, spans []expr.Span) error {
	if len(spans) == 0 {
		return nil
	}
	batch := expr.TakeBatch(target, spans)
	defer batch.Release()
	var places []int32
	for _, s := range spans {
		for i := s.From; i < s.To; i++ {
			places = append(places, int32(i))
		}
	}
	chosen, err := chooseRows(ctx, r.plan.bySource, batch)
	if err != nil {
		return err
	}
	for i := range r.plan.bySource {
		if err := r.change(ctx, &r.plan.bySource[i], rows, batch, places, chosen[i], true); err != nil {
			return err
		}
	}
	return nil
}

// insert lets the clauses act on the rows of the part that nothing in the table matched.
func (r *mergeRun) insert(ctx context.Context) error {
	if len(r.plan.notMatched) == 0 {
		return nil
	}
	var left []int32
	for i, m := range r.part.matched {
		if !m {
			left = append(left, int32(i))
		}
	}
	tell := r.edit.feed && len(r.plan.matched)+len(r.plan.bySource) > 0
	for from := 0; from < len(left); from += pairChunk {
		some := left[from:min(from+pairChunk, len(left))]
		if err := r.insertRows(ctx, some, tell); err != nil {
			return err
		}
	}
	return nil
}

func (r *mergeRun) insertRows(ctx context.Context, some []int32, tell bool) error {
	batch := expr.TakeBatch(r.part.rows, expr.SpansOf(some))
	defer batch.Release()
	chosen, err := chooseRows(ctx, r.plan.notMatched, batch)
	if err != nil {
		return err
	}
	for i, list := range chosen {
		if len(list) == 0 {
			continue
		}
		picked := expr.TakeBatch(batch, expr.SpansOf(list))
		rows, err := r.plan.notMatched[i].make.apply(ctx, picked, nil, nil)
		picked.Release()
		if err != nil {
			return err
		}
		err = r.edit.insertRows(ctx, rows, tell)
		rows.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// metrics are what commits tell of a merge. Spark's change feed passes over commits that say they changed no row, so
// these are true.
func (r *mergeRun) metrics(d *DMLResult, m map[string]string) {
	m["numSourceRows"] = count(r.input.rows)
	m["numTargetRowsInserted"], m["numTargetRowsUpdated"] = count(d.Inserted), count(d.Updated)
	m["numTargetRowsDeleted"], m["numTargetRowsCopied"] = count(d.Deleted), count(d.Copied)
	m["numTargetRowsMatchedUpdated"] = count(r.matchedUpdated)
	m["numTargetRowsMatchedDeleted"] = count(r.matchedDeleted)
	m["numTargetRowsNotMatchedBySourceUpdated"] = count(r.bySourceUpdated)
	m["numTargetRowsNotMatchedBySourceDeleted"] = count(r.bySourceDeleted)
	m["numOutputRows"] = count(d.Inserted + d.Updated + d.Copied)
	m["numTargetFilesAdded"], m["numTargetFilesRemoved"] = count(d.FilesAdded), count(d.FilesRemoved)
	m["numTargetBytesAdded"], m["numTargetBytesRemoved"] = count(d.BytesAdded), count(d.BytesRemoved)
	m["numTargetChangeFilesAdded"] = count(d.ChangeFiles)
	m["numTargetDeletionVectorsAdded"] = count(d.FilesMarked)
}
