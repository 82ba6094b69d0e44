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

// Select makes the columns of a list and leaves out all others. Each expression sees the columns that come
// in.
type Select struct {
	columns []Column
	plans   plans[*selection]
}

// selection is Select for one input schema.
type selection struct {
	bound []*expr.Bound
	reads [][]int // of each column, those that it is made of
	out   *arrow.Schema
}

// NewSelect makes the step. Every column has a name, and no two the same, ignoring case.
func NewSelect(columns []Column) (*Select, error) {
	names := map[string]int{}
	for i, c := range columns {
		folded := strings.ToLower(c.Name)
		if c.Name == "" {
			return nil, fmt.Errorf("select: expression %d, %s, has no name; write %s AS name",
				i+1, c.Expr, c.Expr)
		}
		if first, twice := names[folded]; twice {
			return nil, fmt.Errorf("select: expressions %d and %d are both named %q; "+
				"write AS and another name", first+1, i+1, c.Name)
		}
		names[folded] = i
	}
	if len(columns) == 0 {
		return nil, fmt.Errorf("select: the list is empty")
	}
	return &Select{columns: columns}, nil
}

// ParseColumn reads `expression` or `expression AS name`; the name is "" for an expression that is no column
// and has no AS. Errors: *expr.Error.
func ParseColumn(src string) (Column, error) {
	e, name, err := expr.ParseNamed(src)
	return Column{Name: name, Expr: e}, err
}

// Name is "select".
func (s *Select) Name() string { return "select" }

// Plan returns the columns of the list. Errors: *freshet.Error with a *Fault.
func (s *Select) Plan(in *arrow.Schema) (*arrow.Schema, error) {
	p, err := s.plans.of(in, s.selection)
	if err != nil {
		return nil, err
	}
	return p.out, nil
}

// Origin is the column that the list has under the name.
func (s *Select) Origin(out string) (in string, ok bool) {
	for _, c := range s.columns {
		if strings.EqualFold(c.Name, out) {
			return c.Expr.Column()
		}
	}
	return "", false
}

func (s *Select) selection(in *arrow.Schema) (*selection, error) {
	p := &selection{}
	fields := make([]arrow.Field, len(s.columns))
	for i, c := range s.columns {
		bound, err := c.Expr.Bind(in)
		if err != nil {
			return nil, fault(s.Name(), i, c.Name, err)
		}
		if fields[i], err = field(c.Name, bound, in); err != nil {
			return nil, fault(s.Name(), i, c.Name, err)
		}
		p.bound = append(p.bound, bound)
		p.reads = append(p.reads, reads(c.Expr, in))
	}
	meta := in.Metadata()
	p.out = arrow.NewSchema(fields, &meta)
	return p, nil
}

// Apply computes the columns. Rows on which one fails become rejects.
func (s *Select) Apply(ctx context.Context, b *freshet.Batch) error {
	if b.Rows == nil {
		return nil
	}
	p, err := s.plans.of(b.Rows.Schema(), s.selection)
	if err != nil {
		return err
	}
	ctx = withClock(ctx, b)
	var bad badRows
	columns := make([]arrow.Array, 0, len(p.bound))
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, bound := range p.bound {
		values, err := bound.Eval(ctx, b.Rows)
		faults, err := rowFaults(err)
		if err != nil {
			return fmt.Errorf("select column %q: %w", s.columns[i].Name, err)
		}
		bad.add(faults, s.columns[i].Name)
		columns = append(columns, values)
	}
	out := array.NewRecordBatch(p.out, columns, b.Rows.NumRows())
	b.Rows.Release()
	b.Unsent = unsentOut(b.Unsent, b.NumRows(), p.reads)
	b.Rows = out
	reject(b, s.Name(), bad)
	return nil
}
