package delta_test

import (
	"context"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// unsignedRows are rows of unsigned integers for a table whose columns are signed.
func unsignedRows(t *testing.T, rows string) delta.RowSource {
	t.Helper()
	as := arrow.NewSchema([]arrow.Field{column("id", arrow.PrimitiveTypes.Uint16), column("n", arrow.PrimitiveTypes.Uint64)}, nil)
	return delta.SourceOf(as, arrowRows(t, as, rows))
}

func TestMerge_UnsignedSource_MatchesAndKeepsValues(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":65535,"n":2}]`, nil)
	source := unsignedRows(t, `[{"id":65535,"n":9223372036854775807},{"id":3,"n":7}]`)
	if _, err := table.Merge(context.Background(), source, upsert(t), nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"n":1}`, `{"id":3,"n":7}`, `{"id":65535,"n":9223372036854775807}`)
}

func TestMerge_UnsignedValueTooLarge_RefusedAndNothingChanged(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1}]`, nil)
	_, err := table.Merge(context.Background(), unsignedRows(t, `[{"id":1,"n":9223372036854775808}]`), upsert(t), nil)
	var value *delta.ValueError
	if !errors.As(err, &value) {
		t.Errorf("got %v, want a *ValueError", err)
	}
	wantRows(t, table, `{"id":1,"n":1}`)
}

func TestWrite_ReplaceWhereUnsignedRows_OnlyTheMatchingRowsReplaced(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":2,"n":2}]`, nil)
	source, o := unsignedRows(t, `[{"id":2,"n":18},{"id":2,"n":19}]`),
		&delta.WriteOptions{Mode: delta.WriteReplaceWhere, Where: parse(t, "id = 2")}
	if _, err := table.Write(context.Background(), source.Rows(context.Background()), source.Schema, o); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"n":1}`, `{"id":2,"n":18}`, `{"id":2,"n":19}`)
}
