package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/expr"
)

// ConstraintError says that a row breaks a rule of the table. The whole batch is refused.
type ConstraintError struct {
	Constraint string        // what it is, for people: `CHECK constraint "positive"`, `generated column "day"`
	Expression string        // as the table has it
	File       string        // of a row that the table holds: its data file; else ""
	Row        int           // of the file, or of the batch that was to be written, from 0
	Values     []ColumnValue // that the expression reads
	Others     []ColumnValue // of the row, as far as they are at hand; the first dozen
	Err        error         // why the expression could not be computed; nil when it is false or null
}

// ColumnValue is what a column holds in one row, as text.
type ColumnValue struct {
	Column, Value string
}

func (e *ConstraintError) Error() string {
	where := ""
	if e.File != "" {
		where = " of " + e.File
	}
	return fmt.Sprintf("row %d%s: %s%s", e.Row, where, e.Reason(), rowText(e.Others))
}

// tells reports whether the error has the column's value already.
func (e *ConstraintError) tells(column string) bool {
	return slices.ContainsFunc(e.Values, func(v ColumnValue) bool { return v.Column == column })
}

// Reason is the error without the row, but for the values that the expression reads.
func (e *ConstraintError) Reason() string {
	found := ""
	if len(e.Values) > 0 {
		found = ": found " + valueList(e.Values)
	}
	if e.Err != nil {
		return fmt.Sprintf("%s (%s) is broken%s: %v", e.Constraint, e.Expression, found, e.Err)
	}
	return fmt.Sprintf("%s (%s) does not hold%s", e.Constraint, e.Expression, found)
}

// Unwrap is the reason why the expression could not be computed.
func (e *ConstraintError) Unwrap() error { return e.Err }

// rule is an expression of the table over its own columns.
type rule struct {
	what   string // for people
	text   string // of the expression
	fields []Field
	places []int         // of fields in the schema
	schema *arrow.Schema // of fields
	bound  *expr.Bound
}

// newRule settles an expression that is in the table's metadata, in Spark's SQL. to is the type of the column that it
// is for; nil for a condition. Errors: *UnsupportedError with the place of what is not known.
func newRule(schema *Schema, what, text string, to Type) (*rule, error) {
	r := &rule{what: what, text: text}
	e, err := expr.ParseSpark(text)
	if err == nil {
		err = r.bind(schema, e, to)
	}
	if err != nil {
		return nil, &UnsupportedError{Feature: fmt.Sprintf("the %s (%s), at %v", what, text, err), Write: true, cause: err}
	}
	return r, nil
}

// bind binds the expression to the columns that it reads.
func (r *rule) bind(schema *Schema, e *expr.Expr, to Type) (err error) {
	settle := func(s *arrow.Schema) (*expr.Bound, error) {
		if to == nil {
			return e.BindCondition(s)
		}
		return e.BindAs(s, ArrowType(to))
	}
	whole, err := settle(schema.Arrow())
	if err != nil {
		return err
	}
	for _, name := range whole.Columns() {
		f, i := schema.Lookup(name)
		r.fields, r.places = append(r.fields, *f), append(r.places, i)
	}
	r.schema = (&Schema{Fields: r.fields}).Arrow()
	r.bound, err = settle(r.schema)
	return err
}

// input makes a batch of the columns that the rule reads. It is the caller's.
func (r *rule) input(arrays []arrow.Array, n int) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, 0, len(r.fields))
	defer func() { releaseArrays(columns) }()
	for i := range r.fields {
		c, err := conformInput(&r.fields[i], arrays[r.places[i]], n)
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return array.NewRecordBatch(r.schema, columns, int64(n)), nil
}

// Conform gives an array of values for this column exactly the column's type, as a Writer would: integers widen, texts
// of any Arrow kind become strings, fields of structs are matched by name. The result is the caller's. Errors: a type
// whose values the column cannot take.
func (f *Field) Conform(arr arrow.Array) (arrow.Array, error) { return conformInput(f, arr, arr.Len()) }

// conformInput gives an array of a batch exactly the column's type. The result is the caller's.
func conformInput(f *Field, arr arrow.Array, n int) (arrow.Array, error) {
	want := ArrowType(f.Type)
	switch {
	case arr == nil:
		return nullArray(want, n), nil
	case arrow.TypeEqual(arr.DataType(), want):
		arr.Retain()
		return arr, nil
	}
	dense, err := expr.Dense(arr)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", f.Name, err)
	}
	defer dense.Release()
	return byName.conform(f, dense, f.Name)
}

// compute evaluates the rule for every row. The array is the caller's. Errors: *ConstraintError.
func (r *rule) compute(ctx context.Context, arrays []arrow.Array, n int) (arrow.Array, error) {
	in, err := r.input(arrays, n)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	out, err := r.bound.Eval(ctx, in)
	if err != nil {
		if out != nil {
			out.Release()
		}
		return nil, r.failed(err, in)
	}
	return out, nil
}

// check makes sure that a condition is true in every row: one for which it is false or null is refused. Errors:
// *ConstraintError.
func (r *rule) check(ctx context.Context, arrays []arrow.Array, n int) error {
	in, err := r.input(arrays, n)
	if err != nil {
		return err
	}
	defer in.Release()
	rows, err := r.bound.Rows(ctx, in)
	if err != nil {
		return r.failed(err, in)
	}
	next := 0
	for _, span := range rows {
		if span.From > next {
			break
		}
		next = span.To
	}
	if next == n {
		return nil
	}
	return r.fault(in, next, nil)
}

// failed makes the error of the first row on which the rule failed.
func (r *rule) failed(err error, in arrow.RecordBatch) error {
	var rows *expr.RowErrors
	if !errors.As(err, &rows) {
		return fmt.Errorf("%s: %w", r.what, err)
	}
	return r.fault(in, rows.Rows[0].Row, rows.Rows[0].Err)
}

func (r *rule) fault(in arrow.RecordBatch, row int, err error) *ConstraintError {
	e := &ConstraintError{Constraint: r.what, Expression: r.text, Row: row, Err: err}
	for i := range r.fields {
		e.Values = append(e.Values, valueOf(r.fields[i].Name, in.Column(i), row, shownValue))
	}
	return e
}

// constraints are the table's CHECK constraints and invariants. Spec: "CHECK Constraints", "Column Invariants".
func constraints(m *Metadata, p *Protocol, schema *Schema) (all []*rule, err error) {
	if p.Supports("checkConstraints") {
		for _, key := range sortedNames(m.Configuration) {
			name, ok := strings.CutPrefix(key, propConstraint)
			if !ok {
				continue
			}
			r, err := newRule(schema, fmt.Sprintf("CHECK constraint %q", name), m.Configuration[key], nil)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	if !p.Supports("invariants") || columnWith(schema.Fields, "", metaInvariants) == "" {
		return all, nil
	}
	err = eachField(cloneFields(schema.Fields), nil, func(path []string, f *Field) error {
		text, ok, err := invariantOf(f)
		if err != nil || !ok {
			return err
		}
		r, err := newRule(schema, fmt.Sprintf("invariant of column %q", strings.Join(path, ".")), text, nil)
		all = append(all, r)
		return err
	})
	return all, err
}

// invariantOf is the condition in a field's metadata: {"expression":{"expression":"x > 3"}}, as a text.
func invariantOf(f *Field) (text string, ok bool, err error) {
	if !hasKey(f.Metadata, metaInvariants) {
		return "", false, nil
	}
	raw, ok := f.metaText(metaInvariants)
	if !ok {
		return "", false, nil
	}
	var v struct {
		Expression struct {
			Expression string `json:"expression"`
		} `json:"expression"`
	}
	if err := json.Unmarshal([]byte(raw), &v); err != nil || v.Expression.Expression == "" {
		return "", false, &UnsupportedError{Write: true,
			Feature: fmt.Sprintf("the invariant of column %q, which holds no expression: %s", f.Name, raw)}
	}
	return v.Expression.Expression, true, nil
}
