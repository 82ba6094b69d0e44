package transform

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// Filter keeps the rows for which a condition is true; those for which it is false or null are dropped for
// good. Two kinds of changes stay nevertheless: one that did not send a column of the condition, since what its row is
// cannot be told; and an update to a row for which the condition is not true, which becomes a delete, since the row as it
// was before may have passed.
type Filter struct {
	cond  *expr.Expr
	plans plans[*condition]
}

// condition is Filter for one input schema.
type condition struct {
	*expr.Bound
	reads []int // its columns
}

// NewFilter makes the step.
func NewFilter(cond *expr.Expr) *Filter { return &Filter{cond: cond} }

// Name is "filter".
func (f *Filter) Name() string { return "filter" }

// Plan checks the condition and returns the columns as they come. Errors: *freshet.Error with a *Fault.
func (f *Filter) Plan(in *arrow.Schema) (*arrow.Schema, error) {
	if _, err := f.plans.of(in, f.bind); err != nil {
		return nil, err
	}
	return in, nil
}

// Origin is the column itself.
func (f *Filter) Origin(out string) (in string, ok bool) { return out, true }

func (f *Filter) bind(in *arrow.Schema) (*condition, error) {
	b, err := f.cond.BindCondition(in)
	if err != nil {
		return nil, fault(f.Name(), 0, "", err)
	}
	return &condition{b, reads(f.cond, in)}, nil
}

// Apply drops rows. Rows on which the condition fails become rejects.
func (f *Filter) Apply(ctx context.Context, b *freshet.Batch) error {
	if b.Rows == nil {
		return nil
	}
	bound, err := f.plans.of(b.Rows.Schema(), f.bind)
	if err != nil {
		return err
	}
	spans, err := bound.Rows(withClock(ctx, b), b.Rows)
	faults, err := rowFaults(err)
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	var bad badRows
	bad.add(faults, "")
	addRejects(b, f.Name(), bad)
	if b.Kinds != nil {
		spans = bound.changes(b, spans, bad)
	}
	keep(b, spans)
	return nil
}

// changes adds the changes that stay to the rows that pass.
func (c *condition) changes(b *freshet.Batch, passed []expr.Span, bad badRows) []expr.Span {
	stays := make([]bool, b.NumRows())
	for _, s := range passed {
		for row := s.From; row < s.To; row++ {
			stays[row] = true
		}
	}
	for row, is := range stays {
		if _, faulty := bad.faults[row]; is || faulty {
			continue
		}
		switch {
		case anyUnsent(b.Unsent, row, c.reads), b.Kinds[row] == freshet.Truncate:
			stays[row] = true
		case b.Kinds[row] == freshet.UpdatePostimage:
			stays[row], b.Kinds[row] = true, freshet.Delete
		}
	}
	var spans []expr.Span
	for row, is := range stays {
		switch last := len(spans) - 1; {
		case !is:
		case last >= 0 && spans[last].To == row:
			spans[last].To++
		default:
			spans = append(spans, expr.Span{From: row, To: row + 1})
		}
	}
	return spans
}
