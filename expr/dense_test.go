package expr_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// layouts are arrays of null, "a", "", "long enough to lie outside of a view", "a" in every layout that Arrow has for text.
func layouts(t *testing.T) map[string]arrow.Array {
	t.Helper()
	texts := []string{"", "a", "", "long enough to lie outside of a view", "a"}
	valid := []bool{false, true, true, true, true}
	mem := memory.DefaultAllocator
	out := map[string]arrow.Array{}
	fill := func(name string, b array.Builder, add func(string)) {
		defer b.Release()
		for i, text := range texts {
			if !valid[i] {
				b.AppendNull()
			} else {
				add(text)
			}
		}
		out[name] = b.NewArray()
	}
	plain := array.NewStringBuilder(mem)
	fill("string", plain, plain.Append)
	large := array.NewLargeStringBuilder(mem)
	fill("large_string", large, large.Append)
	view := array.NewStringViewBuilder(mem)
	fill("string_view", view, view.Append)
	for _, index := range []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint32} {
		b := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: index,
			ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
		fill("dictionary of "+index.Name(), b, func(s string) {
			if err := b.AppendString(s); err != nil {
				t.Fatal(err)
			}
		})
	}
	runs := array.NewRunEndEncodedBuilder(mem, arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)
	values := runs.ValueBuilder().(*array.StringBuilder)
	fill("runs", runs, func(s string) {
		runs.Append(1)
		values.Append(s)
	})
	return out
}

func TestDense_EveryLayoutOfText_SameValues(t *testing.T) {
	for name, arr := range layouts(t) {
		for from := range arr.Len() {
			part := array.NewSlice(arr, int64(from), int64(arr.Len()))
			want := array.NewSlice(layouts(t)["string"], int64(from), int64(arr.Len()))
			got, err := expr.Dense(part)
			if err != nil || !array.Equal(got, want) {
				t.Errorf("%s from %d: got %v, %v, want %v", name, from, got, err, want)
			}
		}
	}
}

func TestDense_NestedAndNarrow_SameValues(t *testing.T) {
	mem := memory.DefaultAllocator
	fixed := array.NewFixedSizeListBuilder(mem, 2, arrow.BinaryTypes.LargeString)
	view := array.NewListViewBuilder(mem, arrow.BinaryTypes.StringView)
	large := array.NewLargeListBuilder(mem, arrow.PrimitiveTypes.Int32)
	for i := range 3 {
		fixed.Append(true)
		view.AppendWithSize(true, 2)
		large.Append(true)
		for j := range 2 {
			text := fmt.Sprint(i, j)
			fixed.ValueBuilder().(*array.LargeStringBuilder).Append(text)
			view.ValueBuilder().(*array.StringViewBuilder).Append(text)
			large.ValueBuilder().(*array.Int32Builder).Append(int32(10*i + j))
		}
	}
	fixed.AppendNull()
	view.AppendNull()
	large.AppendNull()
	binary := array.NewFixedSizeBinaryBuilder(mem, &arrow.FixedSizeBinaryType{ByteWidth: 2})
	binary.Append([]byte("ab"))
	binary.AppendNull()
	small := array.NewDecimal32Builder(mem, &arrow.Decimal32Type{Precision: 5, Scale: 2})
	small.Append(decimal.Decimal32(-150))
	small.AppendNull()
	for _, c := range []struct {
		arr  arrow.Array
		typ  string
		want string
	}{
		{fixed.NewArray(), "list<item: utf8, nullable>", `["0 0","0 1"] ["1 0","1 1"] ["2 0","2 1"] (null)`},
		{view.NewArray(), "list<item: utf8, nullable>", `["0 0","0 1"] ["1 0","1 1"] ["2 0","2 1"] (null)`},
		{large.NewArray(), "list<item: int32, nullable>", `[0,1] [10,11] [20,21] (null)`},
		{binary.NewArray(), "binary", `YWI= (null)`},
		{small.NewArray(), "decimal(5, 2)", `-1.5 (null)`},
	} {
		got, err := expr.Dense(c.arr)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for i := range got.Len() {
			if i > 0 {
				text += " "
			}
			text += got.ValueStr(i)
		}
		if text != c.want || got.DataType().String() != c.typ {
			t.Errorf("%s: got %s of %s, want %s of %s", c.arr.DataType(), text, got.DataType(), c.want, c.typ)
		}
	}
}

func TestEval_EveryLayoutOfText_SameResult(t *testing.T) {
	e, err := expr.Parse("upper(s) = 'A' AND s IN ('a', 'b')")
	if err != nil {
		t.Fatal(err)
	}
	for name, arr := range layouts(t) {
		schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arr.DataType(), Nullable: true}}, nil)
		rec := array.NewRecordBatch(schema, []arrow.Array{arr}, int64(arr.Len()))
		bound, err := e.BindCondition(schema)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rows, err := bound.Rows(context.Background(), rec)
		if want := []expr.Span{{From: 1, To: 2}, {From: 4, To: 5}}; err != nil || fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, %v, want %v", name, rows, err, want)
		}
	}
}

func TestTake_Views_KeepTheirType(t *testing.T) {
	arr := layouts(t)["string_view"]
	got := expr.Take(arr, []expr.Span{{From: 3, To: 5}, {From: 0, To: 1}})
	want := `["long enough to lie outside of a view" "a" (null)]`
	if text := fmt.Sprint(got); text != want || got.DataType().ID() != arrow.STRING_VIEW {
		t.Errorf("got %s of %s, want %s", text, got.DataType(), want)
	}
}
