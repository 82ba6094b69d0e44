package delta

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// mergePart is the rows of the source that one pass over the table is for.
type mergePart struct {
	rows    arrow.RecordBatch // of mergePlan.held
	index   *keyIndex         // nil in a merge without keys
	matched []bool            // of each row, whether a row of the table matches it
}

func (p *mergePart) release() {
	if p != nil {
		p.rows.Release()
	}
}

// mergeInput reads the source, whole or by parts of it that are bounded in bytes: the rows whose keys have certain
// hashes. So all rows of one key are in one part.
type mergeInput struct {
	plan   *mergePlan
	coder  keyCoder
	parts  uint64 // 0: not known yet
	rows   int64  // of the whole source
	ranges []keyRange
}

func newMergeInput(p *mergePlan) *mergeInput {
	in := &mergeInput{plan: p}
	var types []arrow.DataType
	var nulls []bool
	for _, k := range p.keys {
		types, nulls = append(types, k.boundSource.Type()), append(nulls, k.nulls)
	}
	if len(types) > 0 {
		in.coder = newKeyCoder(types, nulls)
	}
	in.ranges = make([]keyRange, len(p.keys))
	return in
}

// partOf is the part that a key of this hash belongs to; keys that equal nothing are in the first.
func (in *mergeInput) partOf(h uint64, ok bool) uint64 {
	if !ok || in.parts < 2 {
		return 0
	}
	return (h >> 44) % in.parts
}

// first reads the source for the first time: the whole of it is returned if it fits in memory, else nil, and the number
// of parts is known.
func (in *mergeInput) first(ctx context.Context) (*mergePart, error) {
	var kept []arrow.RecordBatch
	var bytes int64
	limit := in.plan.opts.MemoryBytes
	defer func() { releaseAll(kept) }()
	err := in.each(ctx, func(rows arrow.RecordBatch, keys []arrow.Array) {
		in.rows += rows.NumRows()
		bytes += batchBytes(rows) + indexBytes(rows.NumRows())
		for i := range keys {
			in.ranges[i].take(keys[i])
		}
		if bytes > limit {
			releaseAll(kept)
			kept = nil
			return
		}
		rows.Retain()
		kept = append(kept, rows)
	})
	if err != nil {
		return nil, err
	}
	if bytes <= limit {
		in.parts = 1
		return in.part(ctx, kept)
	}
	if len(in.plan.keys) == 0 {
		return nil, fmt.Errorf("the source has %d bytes and the condition %s no equality between source and table by "+
			"which it could be divided: found a limit of %d bytes; add an equality, or raise MemoryBytes", bytes,
			in.plan.merge.On, limit)
	}
	in.parts = uint64(bytes/limit + 1)
	return nil, nil
}

// load reads the rows of one part.
func (in *mergeInput) load(ctx context.Context, part uint64) (*mergePart, error) {
	var kept []arrow.RecordBatch
	defer func() { releaseAll(kept) }()
	err := in.each(ctx, func(rows arrow.RecordBatch, keys []arrow.Array) {
		var spans []expr.Span
		in.coder.hashes(keys, int(rows.NumRows()), func(i int, h uint64, ok bool) {
			if in.partOf(h, ok) == part {
				spans = append(spans, expr.Span{From: i, To: i + 1})
			}
		})
		if len(spans) > 0 {
			kept = append(kept, expr.TakeBatch(rows, spans))
		}
	})
	if err != nil {
		return nil, err
	}
	return in.part(ctx, kept)
}

func releaseAll(batches []arrow.RecordBatch) {
	for _, b := range batches {
		b.Release()
	}
}

// each passes the columns that are held, and the keys, of every batch on.
func (in *mergeInput) each(ctx context.Context, take func(rows arrow.RecordBatch, keys []arrow.Array)) error {
	for batch, err := range in.plan.source.Rows(ctx) {
		if err != nil {
			return fmt.Errorf("read the source: %w", err)
		}
		columns := pick(batch.Columns(), in.plan.places)
		rows := array.NewRecordBatch(in.plan.held, columns, batch.NumRows())
		batch.Release()
		keys, err := in.keys(ctx, rows)
		if err == nil {
			take(rows, keys)
		}
		releaseArrays(keys)
		rows.Release()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func releaseArrays(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// keys computes the keys of rows of the source.
func (in *mergeInput) keys(ctx context.Context, rows arrow.RecordBatch) ([]arrow.Array, error) {
	bounds := make([]*expr.Bound, len(in.plan.keys))
	for i := range bounds {
		bounds[i] = in.plan.keys[i].boundSource
	}
	return evalAll(ctx, bounds, rows)
}

// evalAll evaluates the expressions; the arrays are the caller's, also those that come with an error.
func evalAll(ctx context.Context, bounds []*expr.Bound, rows arrow.RecordBatch) ([]arrow.Array, error) {
	var out []arrow.Array
	for _, b := range bounds {
		a, err := b.Eval(ctx, rows)
		if a != nil {
			out = append(out, a)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// part puts batches together and indexes them.
func (in *mergeInput) part(ctx context.Context, batches []arrow.RecordBatch) (*mergePart, error) {
	rows, err := concatenated(in.plan.held, batches)
	if err != nil {
		return nil, err
	}
	p := &mergePart{rows: rows, matched: make([]bool, rows.NumRows())}
	if len(in.plan.keys) == 0 {
		return p, nil
	}
	keys, err := in.keys(ctx, rows)
	if err == nil {
		coder := in.coder
		coder.scratch, coder.ints = nil, nil
		p.index = newKeyIndex(coder, keys, int(rows.NumRows()))
	}
	releaseArrays(keys)
	if err != nil {
		rows.Release()
		return nil, err
	}
	return p, nil
}

// concatenated makes one batch of many, or of none.
func concatenated(schema *arrow.Schema, batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(batches) > 0 {
		all, err := expr.ConcatBatches(batches)
		if err != nil {
			return nil, fmt.Errorf("hold the source: %w", err)
		}
		return all, nil
	}
	columns := make([]arrow.Array, schema.NumFields())
	for i, f := range schema.Fields() {
		columns[i] = nullArray(f.Type, 0)
		defer columns[i].Release()
	}
	return array.NewRecordBatch(schema, columns, 0), nil
}

// batchBytes is about the memory that copies of the batch's rows take.
func batchBytes(rows arrow.RecordBatch) (n int64) {
	for _, c := range rows.Columns() {
		n += arrayBytes(c)
	}
	return n
}

func arrayBytes(arr arrow.Array) int64 {
	rows := int64(arr.Len())
	switch a := arr.(type) {
	case *array.String:
		return rows*4 + int64(len(a.ValueBytes()))
	case *array.Binary:
		return rows*4 + int64(len(a.ValueBytes()))
	case *array.Struct:
		n := rows / 8
		for i := range a.NumField() {
			n += arrayBytes(a.Field(i))
		}
		return n
	case array.ListLike:
		if rows == 0 {
			return 0
		}
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(int(rows) - 1)
		values := array.NewSlice(a.ListValues(), from, to)
		defer values.Release()
		return rows*4 + arrayBytes(values)
	}
	if t, ok := arr.DataType().(arrow.FixedWidthDataType); ok {
		return rows*int64(t.BitWidth())/8 + rows/8
	}
	return int64(arr.Data().SizeInBytes())
}

// manyKeys is how many distinct keys files are pruned by one by one; beyond, by the least and the greatest.
const manyKeys = 64

// keyRange is what is known of the keys of a source: a few of them, or bounds.
type keyRange struct {
	some    map[string]*expr.Expr // nil: too many
	began   bool
	unknown bool // the type has no order here, or a value no literal
	lo, hi  arrow.Array
}

// take looks at the keys of a batch.
func (r *keyRange) take(arr arrow.Array) {
	if !r.began {
		r.began, r.some = true, make(map[string]*expr.Expr)
	}
	if r.unknown || arr.Len() == 0 {
		return
	}
	compare := comparer(arr)
	if compare == nil {
		r.unknown = true
		return
	}
	lo, hi := -1, -1
	for i := range arr.Len() {
		if arr.IsNull(i) {
			continue
		}
		if lo < 0 || compare(i, lo) < 0 {
			lo = i
		}
		if hi < 0 || compare(i, hi) > 0 {
			hi = i
		}
		if r.some != nil {
			r.note(arr, i)
		}
	}
	if lo < 0 {
		return
	}
	r.lo, r.hi = extreme(r.lo, arr, lo, -1), extreme(r.hi, arr, hi, 1)
}

func (r *keyRange) note(arr arrow.Array, i int) {
	text := arr.ValueStr(i)
	if r.some[text] != nil {
		return
	}
	l, ok := expr.Literal(arr, i)
	if !ok || len(r.some) == manyKeys {
		r.some = nil
		return
	}
	r.some[strings.Clone(text)] = l
}

// extreme is the one of two values that lies further in a direction, as an array of one.
func extreme(old, arr arrow.Array, i, sign int) arrow.Array {
	one := expr.Take(arr, []expr.Span{{From: i, To: i + 1}})
	if old == nil {
		return one
	}
	both, err := array.Concatenate([]arrow.Array{old, one}, memory.DefaultAllocator)
	if err != nil || comparer(both)(1, 0)*sign <= 0 {
		return old
	}
	return one
}

// comparer compares two values of an array by their numbers; nil for types that are not pruned by.
func comparer(arr arrow.Array) func(i, j int) int {
	switch a := arr.(type) {
	case *array.Int8:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int16:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int32:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Int64:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Date32:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.Timestamp:
		return func(i, j int) int { return cmp.Compare(a.Value(i), a.Value(j)) }
	case *array.String:
		return func(i, j int) int { return strings.Compare(a.Value(i), a.Value(j)) }
	case *array.Decimal128:
		return func(i, j int) int { return a.Value(i).Cmp(a.Value(j)) }
	}
	return nil
}

// where is the condition that a column holds one of the keys; nil when nothing can be said.
func (r *keyRange) where(column string) *expr.Expr {
	name := expr.Name(column)
	if r.unknown || r.lo == nil {
		return nil
	}
	if r.some != nil {
		var any []*expr.Expr
		for _, text := range sortedNames(r.some) {
			any = append(any, expr.Compare("=", name, r.some[text]))
		}
		return expr.Or(any...)
	}
	lo, okLo := expr.Literal(r.lo, 0)
	hi, okHi := expr.Literal(r.hi, 0)
	if !okLo || !okHi {
		return nil
	}
	return expr.And(expr.Compare(">=", name, lo), expr.Compare("<=", name, hi))
}

// where is what is known of the rows of the table that may match: of each key that is a column, its range.
func (in *mergeInput) where() *expr.Expr {
	var all []*expr.Expr
	for i := range in.plan.keys {
		if k := &in.plan.keys[i]; k.column != "" && !k.nulls {
			all = append(all, in.ranges[i].where(k.column))
		}
	}
	return expr.And(append(all, in.plan.prune)...)
}
