package transform

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// Column is a column that an expression makes.
type Column struct {
	Name string
	Expr *expr.Expr
}

// Derive adds columns at the end, in their order; later ones see earlier ones. One that has the name of a
// column that is there, ignoring case, takes its place.
type Derive struct {
	columns []Column
	plans   plans[*derivation]
}

// derivation is Derive for one input schema: each expression bound to the columns that those before it leave.
type derivation struct {
	steps []derived
	out   *arrow.Schema
}

type derived struct {
	bound  *expr.Bound
	reads  []int // its columns
	at     int   // the column it becomes
	schema *arrow.Schema
}

// NewDerive makes the step.
func NewDerive(columns []Column) *Derive { return &Derive{columns: columns} }

// Name is "derive".
func (d *Derive) Name() string { return "derive" }

// Plan returns the input's columns with the derived ones. Errors: *freshet.Error with a *Fault.
func (d *Derive) Plan(in *arrow.Schema) (*arrow.Schema, error) {
	p, err := d.plans.of(in, d.derivation)
	if err != nil {
		return nil, err
	}
	return p.out, nil
}

// Origin follows derived columns that are nothing but another column.
func (d *Derive) Origin(out string) (in string, ok bool) {
	in = out
	for i := len(d.columns) - 1; i >= 0; i-- {
		if !strings.EqualFold(d.columns[i].Name, in) {
			continue
		}
		if in, ok = d.columns[i].Expr.Column(); !ok {
			return "", false
		}
	}
	return in, true
}

func (d *Derive) derivation(in *arrow.Schema) (*derivation, error) {
	p := &derivation{out: in}
	for i, c := range d.columns {
		in := p.out
		bound, err := c.Expr.Bind(in)
		if err != nil {
			return nil, fault(d.Name(), i, c.Name, err)
		}
		f, err := field(c.Name, bound, in)
		if err != nil {
			return nil, fault(d.Name(), i, c.Name, err)
		}
		fields := append([]arrow.Field(nil), in.Fields()...)
		at := indexOf(fields, c.Name)
		if at == len(fields) {
			fields = append(fields, f)
		} else {
			fields[at] = f
		}
		meta := in.Metadata()
		p.out = arrow.NewSchema(fields, &meta)
		p.steps = append(p.steps, derived{bound, reads(c.Expr, in), at, p.out})
	}
	return p, nil
}

// indexOf is the field of that name, ignoring case; the number of fields when there is none.
func indexOf(fields []arrow.Field, name string) int {
	for i, f := range fields {
		if strings.EqualFold(f.Name, name) {
			return i
		}
	}
	return len(fields)
}

// Apply computes the columns. Rows on which one fails become rejects.
func (d *Derive) Apply(ctx context.Context, b *freshet.Batch) error {
	if b.Rows == nil {
		return nil
	}
	p, err := d.plans.of(b.Rows.Schema(), d.derivation)
	if err != nil {
		return err
	}
	ctx = withClock(ctx, b)
	var bad badRows
	for i, s := range p.steps {
		values, err := s.bound.Eval(ctx, b.Rows)
		faults, err := rowFaults(err)
		if err != nil {
			return fmt.Errorf("derive column %q: %w", d.columns[i].Name, err)
		}
		bad.add(faults, d.columns[i].Name)
		b.Unsent = unsentOut(b.Unsent, b.NumRows(), s.sources())
		b.Rows = withColumn(b.Rows, s, values)
		values.Release()
	}
	reject(b, d.Name(), bad)
	return nil
}

// sources are, for each column that goes out, those that it is made of.
func (s derived) sources() [][]int {
	from := make([][]int, s.schema.NumFields())
	for i := range from {
		from[i] = []int{i}
	}
	from[s.at] = s.reads
	return from
}

// withColumn replaces or adds a column and releases the batch it was given.
func withColumn(rec arrow.RecordBatch, s derived, values arrow.Array) arrow.RecordBatch {
	columns := make([]arrow.Array, s.schema.NumFields())
	copy(columns, rec.Columns())
	columns[s.at] = values
	out := array.NewRecordBatch(s.schema, columns, rec.NumRows())
	rec.Release()
	return out
}
