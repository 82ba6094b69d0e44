package expr_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

func TestRanges_Conditions_WhatMustHold(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "i", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "l", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "d", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "n", Type: arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true})},
	}, nil)
	for _, c := range []struct{ text, want string }{
		{"l = 5", "[l] 5..5"},
		{"5 > l", "[l] <nil>..5"},
		{"i >= 3 AND s < 'x'", "[i] 3..<nil>; [s] <nil>..x"},
		{"i = 3 OR l = 4", ""},
		{"NOT l = 4", ""},
		{"l <> 4", ""},
		{"l IN (7, 3, 9)", "[l] 3..9"},
		{"l IN (7, NULL)", "[l] 7..7"},
		{"s IN ('b', 'a')", "[s] a..b"},
		{"d > 1.5", ""},
		{"day = DATE '1970-01-03'", "[day] 2..2"},
		{"l BETWEEN 1 AND 2", "[l] 1..<nil>; [l] <nil>..2"},
		{"n.a < 3", "[n a] <nil>..3"},
		{"l = NULL", ""},
		{"l + 1 = 3", ""},
		{"(l = 1) IS TRUE", ""},
	} {
		e, err := expr.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.BindCondition(schema)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i, r := range b.Ranges() {
			if i > 0 {
				got += "; "
			}
			got += fmt.Sprintf("%v %v..%v", r.Column, r.Lo, r.Hi)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
}
