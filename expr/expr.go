// Package expr parses, checks and runs SQL expressions over Arrow record batches, a column at a time, and
// tells from a file's statistics whether an expression can be true of any of its rows.
//
//	e, err := expr.Parse("CAST(ts AS DATE) >= DATE '2024-05-01' AND host NOT LIKE '%.internal'")
//	b, err := e.Bind(schema)              // types are checked here, before anything runs
//	kept, err := b.Filter(ctx, batch)     // the rows where it is true
//
// The dialect is a small SQL close to DuckDB's, with Delta's type names: three-valued logic, exact decimals,
// checked integers, and no implicit cast from string to anything, literals apart. All times are in UTC. A row
// on which an expression fails (a cast, an overflow, a division by zero) does not stop the others: it is null
// in the result and named in a *RowErrors, so that the caller can put the row aside. A branch that is not
// taken (CASE, COALESCE, the right side of AND and OR) does not fail.
//
// Non-goals: aggregates, subqueries, user functions, collations, session time zones.
package expr

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Limits on what Parse takes, so that hostile text costs neither stack nor memory.
const (
	MaxLength = 64 << 10 // bytes of an expression
	MaxDepth  = 500      // levels of nesting; chains of AND, OR and || are one level
)

// Expr is a parsed expression: its grammar is right, its names and types are not yet looked at. It does not
// change and is safe for concurrent use.
type Expr struct {
	root syntax
}

// Bound is an expression whose columns and types are settled for one schema. It does not change and is safe
// for concurrent use.
type Bound struct {
	expr    *Expr
	root    node
	columns []int
	schema  *arrow.Schema
	shared  int
}

// String returns the expression as canonical SQL: Parse of it gives the same expression again.
//
// One in Spark's SQL is given as it was written.
func (e *Expr) String() string {
	if s, ok := e.root.(*sparkOf); ok {
		return s.text
	}
	return printed(e.root)
}

// String returns the expression as canonical SQL.
func (b *Bound) String() string { return b.expr.String() }

// Type is the type of the result. A bare NULL has arrow.Null.
func (b *Bound) Type() arrow.DataType { return b.root.typ() }

// Nullable tells whether the result can hold nulls, as far as the schema tells. Rows that fail are null
// regardless.
func (b *Bound) Nullable() bool { return b.root.nullable() }

// Columns returns the top-level columns that the expression reads, in the order of the schema.
func (b *Bound) Columns() []string {
	names := make([]string, len(b.columns))
	for i, c := range b.columns {
		names[i] = b.schema.Field(c).Name
	}
	return names
}

// Column returns the column that the expression consists of, when it is nothing but a top-level column.
func (b *Bound) Column() (name string, ok bool) {
	c, ok := b.root.(*columnNode)
	if !ok {
		return "", false
	}
	return b.schema.Field(c.index).Name, true
}

type clockKey struct{}

// WithClock returns a context under which current_timestamp is t, so that all expressions run on one batch agree.
// Without it each Eval takes the time at which it begins. Either way rows that are read again get another time: of all
// expressions only those with current_timestamp or current_date give something else on a replay.
func WithClock(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, t)
}

// Column returns the name that the expression consists of, when it is nothing but the name of a top-level
// column.
func (e *Expr) Column() (name string, ok bool) {
	return columnName(e.root)
}
