package delta_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// oddBatch is id 1, 2 with text in dictionaries, views, large arrays and runs, as other libraries hand them over.
func oddBatch(t *testing.T) arrow.RecordBatch {
	t.Helper()
	mem := memory.DefaultAllocator
	ids := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8,
		ValueType: arrow.PrimitiveTypes.Int64}).(*array.Int64DictionaryBuilder)
	names := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16,
		ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	notes := array.NewStringViewBuilder(mem)
	lists := array.NewLargeListBuilder(mem, arrow.BinaryTypes.LargeString)
	for i, name := range []string{"x", "a text of more than twelve bytes"} {
		if err := ids.Append(int64(i + 1)); err != nil {
			t.Fatal(err)
		}
		if err := names.AppendString(name); err != nil {
			t.Fatal(err)
		}
		notes.Append(name)
		lists.Append(true)
		lists.ValueBuilder().(*array.LargeStringBuilder).Append(name)
	}
	columns := []arrow.Array{ids.NewArray(), names.NewArray(), notes.NewArray(), lists.NewArray()}
	var schema []arrow.Field
	for i, name := range []string{"id", "p", "note", "l"} {
		schema = append(schema, arrow.Field{Name: name, Type: columns[i].DataType(), Nullable: true})
	}
	return array.NewRecordBatch(arrow.NewSchema(schema, nil), columns, 2)
}

var oddRows = []string{
	`{"id":1,"l":["x"],"note":"x","p":"x"}`,
	`{"id":2,"l":["a text of more than twelve bytes"],"note":"a text of more than twelve bytes",` +
		`"p":"a text of more than twelve bytes"}`,
}

func TestWrite_ArraysOfEveryLayout_RowsComeBack(t *testing.T) {
	ctx := context.Background()
	rec := oddBatch(t)
	schema, err := delta.SchemaFromArrow(rec.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range [][]string{nil, {"p"}} {
		table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: schema, PartitionBy: parts,
			Properties: map[string]string{"delta.constraints.c": "length(p) < 100 AND note IS NOT NULL"}})
		if err != nil {
			t.Fatal(err)
		}
		source := delta.SourceOf(rec.Schema(), rec)
		if _, err := table.Write(ctx, source.Rows(ctx), source.Schema, nil); err != nil {
			t.Fatal(err)
		}
		wantRows(t, table, oddRows...)
		m := &delta.Merge{On: parse(t, "t.p = s.p AND s.note <> 'y'"), Matched: []delta.MatchedClause{{All: true}},
			NotMatched: []delta.InsertClause{{All: true}}}
		if r, err := table.Merge(ctx, source, m, nil); err != nil || r.Updated != 2 || r.Inserted != 0 {
			t.Fatalf("got %+v, %v, want two rows updated", r, err)
		}
		wantRows(t, table, oddRows...)
	}
}
