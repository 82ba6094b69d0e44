package delta

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// rowRules are what the table asks of the values of rows, but for NOT NULL. The zero value asks nothing.
type rowRules struct {
	defaults   []*defaultColumn
	lengths    []*lengthRule
	identities []*identityColumn
	generated  []*generatedColumn
	checks     []*rule
}

// newRowRules gathers the rules of the table. Errors: *UnsupportedError for one that cannot be kept.
func newRowRules(m *Metadata, p *Protocol, schema *Schema) (r rowRules, err error) {
	if r.defaults, err = defaultColumns(p, schema); err != nil {
		return r, err
	}
	if r.lengths, err = lengthRules(schema); err != nil {
		return r, err
	}
	if r.identities, err = identityColumns(p, schema); err != nil {
		return r, err
	}
	if r.generated, err = generatedColumns(p, schema); err != nil {
		return r, err
	}
	r.checks, err = constraints(m, p, schema)
	return r, err
}

func (r *rowRules) none() bool {
	return len(r.defaults)+len(r.lengths)+len(r.identities)+len(r.generated)+len(r.checks) == 0
}

// completion is a batch on its way into the table.
type completion struct {
	arrays []arrow.Array // in the order of the schema and of the extras; nil for columns that it lacks
	n      int
	made   []arrow.Array // of arrays, those that were computed
	taken  []func()      // to be called once the batch is accepted
}

func (c *completion) release() { releaseArrays(c.made) }

func (c *completion) accept() {
	for _, f := range c.taken {
		f()
	}
}

func (c *completion) set(column int, arr arrow.Array) {
	if arr != nil {
		c.arrays[column] = arr
		c.made = append(c.made, arr)
	}
}

// complete fills in what the batch lacks: defaults, then identity values, then generated columns, which may follow
// from these. Strings are brought to their lengths before anything is computed from them. Errors: *ConstraintError.
func (r *rowRules) complete(ctx context.Context, c *completion, keepIdentity bool) error {
	for _, d := range r.defaults {
		if c.arrays[d.column] != nil {
			continue
		}
		arr, err := d.compute(ctx, c.arrays, c.n)
		if err != nil {
			return err
		}
		c.set(d.column, arr)
	}
	if err := r.keepLengths(c, func(*lengthRule) bool { return true }); err != nil {
		return err
	}
	for _, i := range r.identities {
		arr, taken, err := i.complete(c.arrays[i.column], c.n, keepIdentity)
		if err != nil {
			return err
		}
		c.set(i.column, arr)
		c.taken = append(c.taken, taken)
	}
	made := map[int]bool{}
	for _, g := range r.generated {
		arr, err := g.complete(ctx, c.arrays, c.n)
		if err != nil {
			return err
		}
		c.set(g.column, arr)
		made[g.column] = arr != nil
	}
	return r.keepLengths(c, func(l *lengthRule) bool { return made[l.column] })
}

// keepLengths brings the strings of some columns that are there to their lengths.
func (r *rowRules) keepLengths(c *completion, which func(*lengthRule) bool) error {
	for _, l := range r.lengths {
		if c.arrays[l.column] == nil || !which(l) {
			continue
		}
		arr, err := l.keep(c.arrays[l.column], c.n)
		if err != nil {
			return err
		}
		c.set(l.column, arr)
	}
	return nil
}

// check makes sure that every row keeps to the constraints. Errors: *ConstraintError.
func (r *rowRules) check(ctx context.Context, c *completion) error {
	for _, check := range r.checks {
		if err := check.check(ctx, c.arrays, c.n); err != nil {
			return err
		}
	}
	return nil
}

// prepare matches, completes and checks a batch. What it returns is to be released.
func (w *Writer) prepare(ctx context.Context, rec arrow.RecordBatch) (*completion, error) {
	c, err := w.matcher.match(w.layout.schema, rec)
	if err != nil {
		return nil, err
	}
	if !w.rules.none() {
		ctx = expr.WithClock(ctx, time.Now())
		if err := w.rules.complete(ctx, c, w.opts.KeepIdentity); err != nil {
			defer c.release()
			return nil, w.showRow(c, err)
		}
	}
	if err = w.layout.checkColumns(c.arrays, c.n); err == nil && len(w.rules.checks) > 0 {
		err = w.rules.check(ctx, c)
	}
	if err != nil {
		defer c.release()
		return nil, w.showRow(c, err)
	}
	return c, nil
}

// Prepare returns the batch as the table will have it: with all columns of the table, what is missing filled in by
// default, identity and generation expression, NOT NULL and constraints checked; columns that the options allow beside
// those of the table follow if rec has them. Write does the same; it is for who needs the rows. Identity values
// that it gives out are used up. The result is the caller's, and goes to WritePrepared. Errors: as Write.
func (w *Writer) Prepare(ctx context.Context, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	if w.failed != nil {
		return nil, w.failed
	}
	c, err := w.prepare(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer c.release()
	schema := w.layout.schema
	fields := schema.Arrow().Fields()
	columns := make([]arrow.Array, 0, len(c.arrays))
	defer func() { releaseArrays(columns) }()
	for i := range schema.Fields {
		arr, err := conformInput(&schema.Fields[i], c.arrays[i], c.n)
		if err != nil {
			return nil, err
		}
		columns = append(columns, arr)
	}
	for i, name := range w.layout.extras {
		if arr := c.arrays[len(schema.Fields)+i]; arr != nil {
			arr.Retain()
			columns = append(columns, arr)
			fields = append(fields, arrow.Field{Name: name, Type: arr.DataType(), Nullable: true})
		}
	}
	out := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(c.n))
	c.accept()
	return out, nil
}

// Check returns the error that Write would have for the rows, and writes nothing.
func (w *Writer) Check(ctx context.Context, rec arrow.RecordBatch) error {
	if w.failed != nil {
		return w.failed
	}
	c, err := w.prepare(ctx, rec)
	if err == nil {
		c.release()
	}
	return err
}

// WritePrepared is Write for rows that come out of Prepare, or out of this table: nothing is filled in, and constraints
// are not checked again.
func (w *Writer) WritePrepared(ctx context.Context, rec arrow.RecordBatch) error {
	if w.failed != nil {
		return w.failed
	}
	c, err := w.matcher.match(w.layout.schema, rec)
	if err != nil {
		return err
	}
	defer c.release()
	if err := w.layout.checkColumns(c.arrays, c.n); err != nil {
		return w.showRow(c, err)
	}
	return w.put(ctx, c.arrays, c.n)
}
