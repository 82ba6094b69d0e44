package expr_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

func parsed(t *testing.T, text string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestBuild_Parts_CanonicalText(t *testing.T) {
	a, b := parsed(t, "a = 1 AND b = 2"), parsed(t, "c OR d")
	for _, c := range []struct{ got, want string }{
		{expr.And(a, nil, b).String(), "a = 1 AND b = 2 AND (c OR d)"},
		{expr.Or(b, a).String(), "c OR d OR a = 1 AND b = 2"},
		{expr.Not(a).String(), "NOT (a = 1 AND b = 2)"},
		{expr.IsNull(expr.Name("x", "y")).String(), "x.y IS NULL"},
		{expr.Compare("<=", expr.Name("odd name"), expr.Name("x")).String(), parsed(t, "`odd name` <= x").String()},
		{expr.Name("x").Cast(arrow.PrimitiveTypes.Int64).String(), parsed(t, "CAST(x AS BIGINT)").String()},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
		if again := parsed(t, c.got).String(); again != c.got {
			t.Errorf("%s parses as %s", c.got, again)
		}
	}
	if expr.And() != nil || expr.Or(nil) != nil {
		t.Error("of none there is none")
	}
}

func TestConjuncts_Nested_OneLevelOfAnd(t *testing.T) {
	list := parsed(t, "a = b AND (c OR d) AND e <=> f").Conjuncts()
	if len(list) != 3 {
		t.Fatalf("got %d conjuncts, want 3", len(list))
	}
	if x, y, nulls, ok := list[0].Equality(); !ok || nulls || x.String() != "a" || y.String() != "b" {
		t.Errorf("got %v = %v, %v, %v", x, y, nulls, ok)
	}
	if _, _, _, ok := list[1].Equality(); ok {
		t.Error("OR is no equality")
	}
	if _, _, nulls, ok := list[2].Equality(); !ok || !nulls {
		t.Error("<=> is an equality of nulls too")
	}
}

// everyForm has each kind of node that the parser makes.
const everyForm = "CASE x WHEN y THEN -z ELSE w['k'] END = 1 AND NOT (a.b LIKE c ESCAPE '!' OR d BETWEEN e AND f) " +
	"AND g IN (h, 'i') AND j IS NULL AND CAST(k AS BIGINT) + abs(l) > current_date - INTERVAL '1 day' " +
	"AND upper(m).n = DATE '2024-01-01'"

func TestRename_EveryForm_EveryName(t *testing.T) {
	got, err := parsed(t, everyForm).Rename(func(parts []string) ([]string, error) {
		return append([]string{"t"}, parts...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range got.Names() {
		names = append(names, strings.Join(n, "."))
	}
	want := "t.x t.y t.z t.w t.a.b t.c t.d t.e t.f t.g t.h t.j t.k t.l current_date t.m"
	if all := strings.Join(names, " "); all != want {
		t.Errorf("got %s, want %s", all, want)
	}
	if again := parsed(t, everyForm).String(); strings.Contains(again, "t.x") {
		t.Error("the expression itself has changed")
	}
}

func TestRename_Refused_ErrorAtTheName(t *testing.T) {
	_, err := parsed(t, "a = 1 AND bb = 2").Rename(func(parts []string) ([]string, error) {
		if parts[0] == "bb" {
			return nil, errors.New("no bb here")
		}
		return parts, nil
	})
	var fault *expr.Error
	if !errors.As(err, &fault) || fault.Kind != expr.UnknownColumn || fault.Col != 11 {
		t.Errorf("got %v, want an unknown column at 11", err)
	}
}

func TestLiteral_EveryType_EqualsItself(t *testing.T) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean}, {Name: "i8", Type: arrow.PrimitiveTypes.Int8},
		{Name: "i64", Type: arrow.PrimitiveTypes.Int64}, {Name: "f", Type: arrow.PrimitiveTypes.Float32},
		{Name: "d", Type: arrow.PrimitiveTypes.Float64}, {Name: "s", Type: arrow.BinaryTypes.String},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32},
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
		{Name: "ntz", Type: &arrow.TimestampType{Unit: arrow.Microsecond}},
		{Name: "dec", Type: &arrow.Decimal128Type{Precision: 20, Scale: 3}},
	}, nil))
	b.Field(0).(*array.BooleanBuilder).AppendValues([]bool{true, false}, nil)
	b.Field(1).(*array.Int8Builder).AppendValues([]int8{-128, 127}, nil)
	b.Field(2).(*array.Int64Builder).AppendValues([]int64{math.MinInt64, math.MaxInt64}, nil)
	b.Field(3).(*array.Float32Builder).AppendValues([]float32{-1.1, 3e38}, nil)
	b.Field(4).(*array.Float64Builder).AppendValues([]float64{5e-324, math.Copysign(0, -1)}, nil)
	b.Field(5).(*array.StringBuilder).AppendValues([]string{"it's", "\n\\ü"}, nil)
	b.Field(6).(*array.Date32Builder).AppendValues([]arrow.Date32{-700000, 19000}, nil)
	b.Field(7).(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{-1, 1700000000123456}, nil)
	b.Field(8).(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{0, 1700000000000001}, nil)
	b.Field(9).(*array.Decimal128Builder).AppendValues([]decimal128.Num{
		decimal128.FromI64(-1), decimal128.FromI64(9007199254740993)}, nil)
	rec := b.NewRecordBatch()
	for c, f := range rec.Schema().Fields() {
		for i := range 2 {
			l, ok := expr.Literal(rec.Column(c), i)
			if !ok {
				t.Errorf("%s: row %d has no literal", f.Name, i)
				continue
			}
			same := expr.Compare("=", expr.Name(f.Name), parsed(t, l.String()))
			bound, err := same.BindCondition(rec.Schema())
			if err != nil {
				t.Errorf("%s: %v", same, err)
				continue
			}
			rows, err := bound.Rows(t.Context(), rec)
			if err != nil || len(rows) != 1 || rows[0] != (expr.Span{From: i, To: i + 1}) {
				t.Errorf("%s: got rows %v, %v, want row %d", same, rows, err, i)
			}
		}
	}
}
