package transform

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// Filter keeps the rows for which a condition is true; those for which it is false or null are dropped for
// good.
type Filter struct {
	cond  *expr.Expr
	plans plans[*expr.Bound]
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

func (f *Filter) bind(in *arrow.Schema) (*expr.Bound, error) {
	b, err := f.cond.BindCondition(in)
	if err != nil {
		return nil, fault(f.Name(), 0, "", err)
	}
	return b, nil
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
	keep(b, spans)
	return nil
}
