// Package transform has the stock steps of a pipeline: Derive adds columns, Filter drops rows, Select chooses
// columns. They run SQL expressions (package expr) over the columns of a batch.
//
//	cond, err := expr.Parse("host NOT LIKE '%.internal'")
//	step := transform.NewFilter(cond)
//	out, err := step.Plan(schema)    // types are checked here
//	err = step.Apply(ctx, batch)
//
// A row on which an expression fails becomes a reject of the batch, with its record; it never reaches the
// table with a null in place of the value. current_timestamp is when the batch's first record was received,
// the same for all steps; it is another one when the batch is read again.
//
// Non-goals: joins, aggregates, steps with state.
package transform

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// Fault says which expression of a step is wrong. It is the cause of the *freshet.Error that Plan returns.
type Fault struct {
	Step   string // "derive"
	Index  int    // which of the step's expressions, from 0
	Column string // the column that the expression makes; "" for a condition
	Err    *expr.Error
}

// Error names step, column, place and fault on one line.
func (f *Fault) Error() string {
	if f.Column == "" {
		return fmt.Sprintf("%s: %v", f.Step, f.Err)
	}
	return fmt.Sprintf("%s: column %q: %v", f.Step, f.Column, f.Err)
}

// Unwrap returns the fault in the expression.
func (f *Fault) Unwrap() error { return f.Err }

// fault makes the error that Plan returns.
func fault(step string, index int, column string, err error) error {
	var cause *expr.Error
	if !errors.As(err, &cause) {
		return err
	}
	codes := map[expr.Kind]freshet.Code{
		expr.Syntax:        freshet.CodeExpression,
		expr.BadType:       freshet.CodeExprType,
		expr.UnknownColumn: freshet.CodeUnknownColumn}
	return &freshet.Error{
		Code: codes[cause.Kind], Class: freshet.ClassInput, Msg: "the expression does not fit its input",
		Err: &Fault{Step: step, Index: index, Column: column, Err: cause}}
}

// maxPlans bounds how many input schemas a step remembers: one a table that passes it, and the former ones.
const maxPlans = 64

// plans remembers what was worked out for each input schema.
type plans[P any] struct {
	made []planned[P]
}

type planned[P any] struct {
	in   *arrow.Schema
	plan P
}

// of returns the plan for the schema, made by make when it is new.
func (c *plans[P]) of(in *arrow.Schema, make func(*arrow.Schema) (P, error)) (P, error) {
	for _, p := range c.made {
		if p.in == in {
			return p.plan, nil
		}
	}
	for i, p := range c.made {
		if p.in.Equal(in) {
			c.made[i].in = in
			return p.plan, nil
		}
	}
	plan, err := make(in)
	if err != nil {
		return plan, err
	}
	if len(c.made) == maxPlans {
		c.made = append(c.made[:0], c.made[1:]...)
	}
	c.made = append(c.made, planned[P]{in, plan})
	return plan, nil
}

// withClock gives all expressions of a batch one time.
func withClock(ctx context.Context, b *freshet.Batch) context.Context {
	now := b.ReadAt
	if now.IsZero() {
		now = time.Now()
	}
	return expr.WithClock(ctx, now)
}

// rowFaults takes the faults of rows out of an evaluation's error; other errors are returned.
func rowFaults(err error) ([]expr.RowError, error) {
	var rows *expr.RowErrors
	if errors.As(err, &rows) {
		return rows.Rows, nil
	}
	return nil, err
}

// field is the column that an expression makes. Errors: *expr.Error when it has no type.
func field(name string, b *expr.Bound, in *arrow.Schema) (arrow.Field, error) {
	f := arrow.Field{Name: name, Type: b.Type(), Nullable: b.Nullable()}
	if column, ok := b.Column(); ok {
		if i := in.FieldIndices(column); len(i) > 0 {
			f.Metadata = in.Field(i[0]).Metadata
		}
		return f, nil
	}
	if f.Type.ID() == arrow.NULL {
		return f, &expr.Error{Kind: expr.BadType, Line: 1, Col: 1, Len: 1,
			Msg: "the expression is always null and has no type", Hint: "CAST(NULL AS string) has one"}
	}
	return f, nil
}
