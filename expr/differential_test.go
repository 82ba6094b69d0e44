package expr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
)

// newRand prints its seed, so that a failure can be run again.
func newRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// cells is the result of each row: the value, null, or the fault.
func cells(t *testing.T, src string, rec arrow.RecordBatch) []string {
	t.Helper()
	parts := strings.Split(evaluate(t, src, rec), " | ")
	return parts[1:]
}

// TestEval_AnyRowsOfABatch_SameAsEachRowAlone checks that no row's result depends on which rows stand beside
// it, nor on where a batch begins in the memory of its columns.
func TestEval_AnyRowsOfABatch_SameAsEachRowAlone(t *testing.T) {
	r := newRand(t)
	rec := testBatch(t)
	defer rec.Release()
	var spans []expr.Span
	order := make([]int, 300)
	for i := range order {
		order[i] = r.IntN(3)
		spans = append(spans, expr.Span{From: order[i], To: order[i] + 1})
	}
	many := expr.TakeBatch(rec, spans)
	defer many.Release()
	from := 1 + r.IntN(100)
	part := many.NewSlice(int64(from), 290)
	defer part.Release()
	empty := rec.NewSlice(1, 1)
	defer empty.Release()
	for _, src := range caseExpressions(t) {
		if strings.HasPrefix(evaluate(t, src, rec), "error") {
			continue
		}
		alone := make([]string, 3)
		for i := range alone {
			row := rec.NewSlice(int64(i), int64(i+1))
			alone[i] = cells(t, src, row)[0]
			row.Release()
		}
		for i, got := range cells(t, src, part) {
			if want := alone[order[from+i]]; got != want {
				t.Fatalf("%s: row %d of the slice is %s, alone it is %s", src, i, got, want)
			}
		}
		if got := cells(t, src, empty); len(got) != 0 {
			t.Fatalf("%s: %d rows for none", src, len(got))
		}
	}
}

// value is what the oracle computes with: an int64, a bool, nil for null, or fault.
type value any

type oracleFault struct{}

// term is a random expression with its own evaluation of one row.
type term struct {
	src  string
	eval func(row map[string]value) value
}

// oracle makes random terms over the columns a, b, c (bigint) and p, q (boolean).
type oracle struct{ r *rand.Rand }

func (o oracle) number(depth int) term {
	if depth == 0 {
		if o.r.IntN(3) == 0 {
			n := int64(o.r.IntN(7) - 3)
			return term{fmt.Sprintf("CAST(%d AS bigint)", n), func(map[string]value) value { return n }}
		}
		name := string(rune('a' + o.r.IntN(3)))
		return term{name, func(row map[string]value) value { return row[name] }}
	}
	x, y := o.number(depth-1), o.number(o.r.IntN(depth))
	switch o.r.IntN(6) {
	case 0:
		c := o.truth(depth - 1)
		src := fmt.Sprintf("CASE WHEN %s THEN %s ELSE %s END", c.src, x.src, y.src)
		return term{src, func(row map[string]value) value {
			switch v := c.eval(row); v {
			case oracleFault{}:
				return v
			case true:
				return x.eval(row)
			}
			return y.eval(row)
		}}
	case 1:
		return term{fmt.Sprintf("coalesce(%s, %s)", x.src, y.src), func(row map[string]value) value {
			if v := x.eval(row); v != nil {
				return v
			}
			return y.eval(row)
		}}
	}
	op := []string{"+", "-", "*", "//", "%"}[o.r.IntN(5)]
	return term{fmt.Sprintf("(%s %s %s)", x.src, op, y.src), func(row map[string]value) value {
		return both(x.eval(row), y.eval(row), func(a, b value) value {
			return arithmetic(op, a.(int64), b.(int64))
		})
	}}
}

func both(a, b value, f func(a, b value) value) value {
	switch {
	case a == oracleFault{} || b == oracleFault{}:
		return oracleFault{}
	case a == nil || b == nil:
		return nil
	}
	return f(a, b)
}

func arithmetic(op string, a, b int64) value {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	if b == 0 {
		return oracleFault{}
	}
	if op == "%" {
		return a % b
	}
	return a / b
}

func (o oracle) truth(depth int) term {
	if depth == 0 {
		name := string(rune('p' + o.r.IntN(2)))
		return term{name, func(row map[string]value) value { return row[name] }}
	}
	switch o.r.IntN(6) {
	case 0:
		x := o.truth(depth - 1)
		return term{"NOT (" + x.src + ")", func(row map[string]value) value {
			v := x.eval(row)
			if b, ok := v.(bool); ok {
				return !b
			}
			return v
		}}
	case 1:
		x := o.number(depth - 1)
		return term{"(" + x.src + ") IS NULL", func(row map[string]value) value {
			v := x.eval(row)
			if v == (oracleFault{}) {
				return v
			}
			return v == nil
		}}
	case 2, 3:
		return o.connective(depth)
	case 4:
		x, low, high := o.number(depth-1), int64(o.r.IntN(5)-3), int64(o.r.IntN(5))
		src := fmt.Sprintf("(%s) BETWEEN %d AND %d", x.src, low, high)
		return term{src, func(row map[string]value) value {
			return both(x.eval(row), true, func(a, _ value) value {
				return a.(int64) >= low && a.(int64) <= high
			})
		}}
	}
	x, y := o.number(depth-1), o.number(depth-1)
	op := []string{"=", "<>", "<", "<=", ">", ">="}[o.r.IntN(6)]
	return term{fmt.Sprintf("%s %s %s", x.src, op, y.src), func(row map[string]value) value {
		return both(x.eval(row), y.eval(row), func(a, b value) value {
			return compare(op, a.(int64), b.(int64))
		})
	}}
}

func (o oracle) connective(depth int) term {
	x, y := o.truth(depth-1), o.truth(depth-1)
	word, decides := "AND", false
	if o.r.IntN(2) == 0 {
		word, decides = "OR", true
	}
	return term{fmt.Sprintf("(%s %s %s)", x.src, word, y.src), func(row map[string]value) value {
		a := x.eval(row)
		if a == (oracleFault{}) || a == decides {
			return a
		}
		b := y.eval(row)
		switch {
		case b == oracleFault{} || b == decides:
			return b
		case a == nil || b == nil:
			return nil
		}
		return !decides
	}}
}

func compare(op string, a, b int64) bool {
	switch op {
	case "=":
		return a == b
	case "<>":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

// randomRows has small numbers, so that zeros and equals are frequent, and every third value null.
func randomRows(r *rand.Rand, rows int) (arrow.RecordBatch, []map[string]value) {
	var fields []arrow.Field
	for _, name := range []string{"a", "b", "c"} {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	}
	for _, name := range []string{"p", "q"} {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Boolean, Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	out := make([]map[string]value, rows)
	for i := range out {
		out[i] = map[string]value{}
		for c, f := range fields {
			if r.IntN(3) == 0 {
				out[i][f.Name] = nil
				b.Field(c).AppendNull()
				continue
			}
			if bools, ok := b.Field(c).(*array.BooleanBuilder); ok {
				v := r.IntN(2) == 0
				bools.Append(v)
				out[i][f.Name] = v
				continue
			}
			v := int64(r.IntN(7) - 3)
			b.Field(c).(*array.Int64Builder).Append(v)
			out[i][f.Name] = v
		}
	}
	return b.NewRecordBatch(), out
}

func TestEval_RandomExpressions_AgreeWithRowByRowOracle(t *testing.T) {
	r := newRand(t)
	rec, rows := randomRows(r, 200)
	defer rec.Release()
	for range 2000 {
		x := oracle{r}.truth(1 + r.IntN(5))
		if r.IntN(3) == 0 {
			x = oracle{r}.number(1 + r.IntN(5))
		}
		e, err := expr.Parse(x.src)
		if err != nil {
			t.Fatal(x.src, err)
		}
		b, err := e.Bind(rec.Schema())
		if err != nil {
			// A constant that divides by zero may be found at once.
			continue
		}
		arr, err := b.Eval(context.Background(), rec)
		var faults *expr.RowErrors
		if err != nil && !errors.As(err, &faults) {
			t.Fatal(x.src, err)
		}
		failed := map[int]bool{}
		if faults != nil {
			for _, f := range faults.Rows {
				failed[f.Row] = true
			}
		}
		for i, row := range rows {
			want := x.eval(row)
			if got := cell(arr, i, failed[i]); got != want {
				t.Fatalf("%s\nrow %v: got %v, want %v", x.src, row, got, want)
			}
		}
		arr.Release()
	}
}

func cell(arr arrow.Array, i int, failed bool) value {
	switch {
	case failed:
		return oracleFault{}
	case arr.IsNull(i):
		return nil
	}
	switch a := arr.(type) {
	case *array.Boolean:
		return a.Value(i)
	case *array.Int64:
		return a.Value(i)
	}
	return arr.ValueStr(i)
}
