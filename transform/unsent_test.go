package transform_test

import (
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/transform"
)

// changes is a batch of the columns id and n; a row {id, n, false} did not send n.
func changes(t *testing.T, kinds []freshet.Kind, rows ...[3]any) *freshet.Batch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	batch := &freshet.Batch{Kinds: kinds}
	for i, r := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(r[0].(int)))
		if r[2].(bool) {
			b.Field(1).(*array.Int64Builder).Append(int64(r[1].(int)))
		} else {
			b.Field(1).AppendNull()
			if batch.Unsent == nil {
				batch.Unsent = freshet.NewMask(2)
			}
			batch.Unsent.Mark(i, 1)
		}
		batch.Seqs = append(batch.Seqs, int64(i))
	}
	batch.Rows = b.NewRecordBatch()
	return batch
}

func condition(t *testing.T, src string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestFilter_Changes_ThoseThatMayConcernTheRowStay(t *testing.T) {
	b := changes(t, []freshet.Kind{freshet.Insert, freshet.Insert, freshet.UpdatePostimage, freshet.UpdatePostimage,
		freshet.Delete, freshet.UpdatePostimage},
		[3]any{1, 9, true},  // passes
		[3]any{2, 1, true},  // never was there
		[3]any{3, 1, true},  // may have been there
		[3]any{4, 0, false}, // cannot be told
		[3]any{5, 0, false}, // likewise
		[3]any{6, 9, true})
	defer b.Release()
	if err := transform.NewFilter(condition(t, "n > 5")).Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	ids := b.Rows.Column(0).(*array.Int64).Int64Values()
	if want := []int64{1, 3, 4, 5, 6}; !slices.Equal(ids, want) {
		t.Errorf("got the rows %v, want %v", ids, want)
	}
	want := []freshet.Kind{freshet.Insert, freshet.Delete, freshet.UpdatePostimage, freshet.Delete,
		freshet.UpdatePostimage}
	if !slices.Equal(b.Kinds, want) {
		t.Errorf("got the kinds %v, want %v", b.Kinds, want)
	}
	for row, unsent := range []bool{false, false, true, true, false} {
		if b.Unsent.Has(row, 1) != unsent || b.Unsent.Has(row, 0) {
			t.Errorf("row %d: got n unsent %v, want %v, and id sent", row, b.Unsent.Has(row, 1), unsent)
		}
	}
}

func TestSelect_Unsent_WhatIsMadeOfItIsUnsentToo(t *testing.T) {
	b := changes(t, []freshet.Kind{freshet.UpdatePostimage, freshet.UpdatePostimage}, [3]any{1, 0, false},
		[3]any{2, 7, true})
	defer b.Release()
	var columns []transform.Column
	for _, src := range []string{"n + id AS total", "id AS id", "n AS n"} {
		c, err := transform.ParseColumn(src)
		if err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	s, err := transform.NewSelect(columns)
	if err != nil {
		t.Fatal(err)
	}
	d := transform.NewDerive([]transform.Column{{Name: "twice", Expr: condition(t, "total * 2")}})
	for _, step := range []freshet.Step{s, d} {
		if err := step.Apply(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	for column, unsent := range []bool{true, false, true, true} {
		if b.Unsent.Has(0, column) != unsent || b.Unsent.Has(1, column) {
			t.Errorf("column %d: got unsent %v and %v, want %v and false", column, b.Unsent.Has(0, column),
				b.Unsent.Has(1, column), unsent)
		}
	}
}
