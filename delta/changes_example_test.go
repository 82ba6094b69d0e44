package delta_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// paid is a table of two orders, of which the second was paid in version 2. It has no change data feed.
func paid(ctx context.Context) (*delta.Table, error) {
	schema := &delta.Schema{Fields: []delta.Field{
		{Name: "id", Type: delta.Long, Nullable: true}, {Name: "state", Type: delta.String, Nullable: true}}}
	table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: schema})
	if err != nil {
		return nil, err
	}
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema.Arrow(),
		strings.NewReader(`[{"id":1,"state":"new"},{"id":2,"state":"new"}]`))
	if err != nil {
		return nil, err
	}
	source := delta.SourceOf(rows.Schema(), rows)
	if _, err := table.Write(ctx, source.Rows(ctx), source.Schema, nil); err != nil {
		return nil, err
	}
	second, err := expr.Parse("id = 2")
	if err != nil {
		return nil, err
	}
	state, err := expr.Parse("'paid'")
	if err != nil {
		return nil, err
	}
	_, err = table.Update(ctx, []delta.Assignment{{Column: "state", Value: state}}, second, nil)
	return table, err
}

// What did each version change? The table needs no change data feed for the answer.
func ExampleTable_Changes() {
	ctx := context.Background()
	table, err := paid(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for c, err := range table.Changes(ctx, 1, -1, &delta.ChangesOptions{Key: []string{"id"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		ids, states, kinds := c.Batch.Column(0).(*array.Int64), c.Batch.Column(1).(*array.String),
			c.Batch.Column(2).(*array.String)
		for i := range int(c.Batch.NumRows()) {
			fmt.Println(c.Version, c.Method, kinds.Value(i), ids.Value(i), states.Value(i))
		}
		c.Batch.Release()
	}
	// Output:
	// 1 vectors insert 1 new
	// 1 vectors insert 2 new
	// 2 diff update_preimage 2 new
	// 2 diff update_postimage 2 paid
}
