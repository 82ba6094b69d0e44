package lake

import (
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// errUndivided says that changes of one key depend on those of another: all rows must be looked at together.
var errUndivided = errors.New("rows that depend on each other")

// divider divides changes by their keys, each with all that its share needs to know of it.
type divider struct {
	schema   *delta.Schema  // of the table, as it was asked last
	key      []*delta.Field // as the first rows had it
	sequence []string       // the columns that order changes
	ignores  bool           // deletes say nothing
	follows  bool           // what a row leaves out that came under another key is as the row of that key had it
	contents []string       // of a table without a key: the columns of the rows so far, which are divided by all of them; nil: by the key
	parts    []string       // columns that the table is partitioned by
	hasher   *keyindex.Hasher
}

func (t *table) newDivider() *divider {
	o := &t.opts
	d := &divider{schema: t.schema, sequence: o.Key.SequenceBy, ignores: o.Key.Deletes == IgnoreDeletes,
		follows: len(o.Key.SequenceBy) == 0 && o.Mode != SCD2}
	if t.opts.multiset(t.name) {
		d.contents, d.parts, d.follows, d.hasher = []string{}, t.meta.PartitionColumns, false, keyindex.NewHasher(1)
		for i := range t.schema.Fields {
			d.key = append(d.key, &t.schema.Fields[i])
		}
		return d
	}
	for _, name := range t.key() {
		f, _ := t.schema.Lookup(name)
		d.key = append(d.key, f)
	}
	d.hasher = keyindex.NewHasher(len(d.key))
	return d
}

// fits reports whether keys of a table with this schema hash as those before. A wider type makes another key.
func (d *divider) fits(schema *delta.Schema) bool {
	if schema != d.schema {
		for _, f := range d.key {
			if now, _ := schema.Lookup(f.Name); now == nil || now.Type.String() != f.Type.String() {
				return false
			}
		}
		d.schema = schema
	}
	return true
}

// division is a batch divided.
type division struct {
	rows   arrow.RecordBatch // of the batch, to be released
	kinds  []freshet.Kind    // of its rows
	shares [][]int32         // of each share, rows
}

// divide divides a batch into as many shares as bits of the hash tell apart. What a commit skips is left out: rows without a key, which
// are rejects, and old images of updates that left the key as it was. Those of other updates, which say that the old key was gone
// when the new one came, become deletes at the sequence of the row behind them. Without a key an update that changes nothing is left out
// whole. Errors: errUndivided.
func (d *divider) divide(b *freshet.Batch, bits int) (*division, error) {
	if d.contents != nil && !d.holds(b.Rows.Schema()) {
		return nil, errUndivided
	}
	keys, err := d.hash(b.Rows)
	if err != nil {
		return nil, err
	}
	sequence := make([]arrow.Array, len(d.sequence))
	for i, name := range d.sequence {
		sequence[i] = b.Rows.Column(columnNamed(b.Rows.Schema(), name))
	}
	ordered := func(row int32) bool {
		return !slices.ContainsFunc(sequence, func(c arrow.Array) bool { return c.IsNull(int(row)) })
	}
	out := &division{kinds: slices.Clone(b.Kinds), shares: make([][]int32, 1<<bits)}
	var moved []int32
	idle := int32(-1)
	for row := range int32(b.NumRows()) {
		if keys[row] == nullKey || row == idle {
			continue
		}
		switch next := row + 1; {
		case b.Kinds == nil:
		case b.Kinds[row] == freshet.Delete && d.ignores:
			continue
		case b.Kinds[row] != freshet.UpdatePreimage:
		case int(next) < len(keys) && d.contents != nil && keys[next] == keys[row]:
			idle = next
			continue
		case int(next) == len(keys), keys[next] == keys[row], !ordered(row):
			continue
		case d.follows && keys[next] != nullKey && b.Unsent.Any(int(next)):
			return nil, errUndivided
		default:
			if out.kinds[row] = freshet.Delete; len(sequence) > 0 && ordered(next) {
				moved = append(moved, row)
			}
		}
		at := keys[row].Hi >> (64 - bits)
		out.shares[at] = append(out.shares[at], row)
	}
	out.rows = d.reorder(b.Rows, moved)
	return out, nil
}

// holds reports whether rows of a table without a key can be divided as those before them: one that has a column less may be like one from
// before that has it. A column more is null in those.
func (d *divider) holds(rows *arrow.Schema) bool {
	var now []string
	for _, f := range rows.Fields() {
		now = append(now, f.Name)
	}
	before := d.contents
	d.contents = now
	return !slices.ContainsFunc(before, func(name string) bool { return !containsFold(now, name) })
}

// heard are the rows of a batch that say something: deletes may be ignored.
func (d *divider) heard(b *freshet.Batch) (rows []int32) {
	for row := range int32(b.NumRows()) {
		if !d.ignores || b.Kinds == nil || b.Kinds[row] != freshet.Delete {
			rows = append(rows, row)
		}
	}
	return rows
}

// reorder gives these rows the sequence of those behind them. It retains what it returns.
func (d *divider) reorder(rows arrow.RecordBatch, moved []int32) arrow.RecordBatch {
	if len(moved) == 0 {
		rows.Retain()
		return rows
	}
	from := make([]int32, rows.NumRows())
	for i := range from {
		from[i] = int32(i)
	}
	for _, row := range moved {
		from[row]++
	}
	columns := slices.Clone(rows.Columns())
	for _, name := range d.sequence {
		at := columnNamed(rows.Schema(), name)
		columns[at] = expr.Take(columns[at], expr.SpansOf(from))
		defer columns[at].Release()
	}
	return array.NewRecordBatch(rows.Schema(), columns, rows.NumRows())
}

// nullKey stands for a key that lacks a value.
var nullKey keyindex.Fingerprint

// hashContents hashes whole rows.
func (d *divider) hashContents(rows arrow.RecordBatch) ([]keyindex.Fingerprint, error) {
	var names []string
	var columns []arrow.Array
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, field := range rows.Schema().Fields() {
		f, _ := d.schema.Lookup(field.Name)
		if f == nil || f.Generated() {
			continue
		}
		c, err := f.Conform(rows.Column(i))
		if err != nil {
			return nil, err
		}
		if containsFold(d.parts, f.Name) {
			c = emptyAsNull(c)
		}
		names, columns = append(names, f.Name), append(columns, c)
	}
	return d.hasher.AppendRows(nil, names, columns)
}

// hash hashes the keys of rows.
func (d *divider) hash(rows arrow.RecordBatch) ([]keyindex.Fingerprint, error) {
	if d.contents != nil {
		return d.hashContents(rows)
	}
	columns := make([]arrow.Array, len(d.key))
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i, f := range d.key {
		var err error
		if columns[i], err = f.Conform(rows.Column(columnNamed(rows.Schema(), f.Name))); err != nil {
			return nil, err
		}
	}
	keys, err := d.hasher.Append(nil, columns)
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		for row := 0; row < c.Len() && c.NullN() > 0; row++ {
			if c.IsNull(row) {
				keys[row] = nullKey
			}
		}
	}
	return keys, nil
}

// within leaves of a part the rows of some shares, of as many as bits tell apart. It takes the part over; nil: there are none.
func (d *divider) within(b *freshet.Batch, bits int, of share) (*freshet.Batch, error) {
	defer b.Release()
	keys, err := d.hash(b.Rows)
	if err != nil {
		return nil, err
	}
	var rows []int32
	for row, key := range keys {
		if at := uint32(key.Hi >> (64 - bits)); at >= of.from && at < of.to {
			rows = append(rows, int32(row))
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return rowsOfBatch(b, b.Rows, b.Kinds, rows), nil
}

// rowsOfBatch are some rows of a batch, in their order, with these values and kinds.
func rowsOfBatch(b *freshet.Batch, values arrow.RecordBatch, kinds []freshet.Kind, rows []int32) *freshet.Batch {
	return &freshet.Batch{Lane: b.Lane, Behind: b.Behind, ReadAt: b.ReadAt, Kinds: these(kinds, rows),
		Rows: expr.TakeBatch(values, expr.SpansOf(rows)), Unsent: b.Unsent.Pick(rows),
		Seqs: these(b.Seqs, rows), Stamps: these(b.Stamps, rows), Places: these(b.Places, rows), Records: these(b.Records, rows)}
}

func these[T any](all []T, rows []int32) []T {
	if all == nil {
		return nil
	}
	some := make([]T, len(rows))
	for n, row := range rows {
		some[n] = all[row]
	}
	return some
}
