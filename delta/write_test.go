package delta_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// disturbed are the rows of a source; when they are read for the first time, another writer comes first.
func disturbed(ctx context.Context, source delta.RowSource, other func()) iter.Seq2[arrow.RecordBatch, error] {
	first := true
	return func(yield func(arrow.RecordBatch, error) bool) {
		if first {
			other()
		}
		first = false
		source.Rows(ctx)(yield)
	}
}

func TestWrite_TableBecomesAnother_WrittenAnewOrAConflict(t *testing.T) {
	ctx := context.Background()
	source := sourceWith(t, keyed(), `[{"id":2,"n":5}]`)
	for name, change := range map[string]func(*delta.Table) error{
		"NOT NULL": func(table *delta.Table) error {
			never := false
			_, err := table.ChangeColumn(ctx, "n", delta.ColumnChange{Nullable: &never}, nil)
			return err
		},
		"a constraint": func(table *delta.Table) error {
			_, err := table.AddConstraint(ctx, "c", "n < 10", upgrade)
			return err
		},
	} {
		for _, mode := range []delta.WriteMode{delta.WriteAppend, delta.WriteOverwrite} {
			table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
			other := func() {
				if err := change(table); err != nil {
					t.Fatal(err)
				}
			}
			before := len(scanSorted(t, table))
			_, err := table.Write(ctx, disturbed(ctx, source, other), source.Schema, &delta.WriteOptions{Mode: mode})
			var conflict *delta.ConflictError
			if !errors.As(err, &conflict) || conflict.Kind != delta.ConflictMetadata ||
				!strings.Contains(err.Error(), "write them again") {
				t.Errorf("%s, %s: got %v, want a conflict over metadata", name, mode, err)
			}
			if got := len(scanSorted(t, table)); got != before {
				t.Errorf("%s, %s: %d rows, want %d", name, mode, got, before)
			}
			table = tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
			r, err := table.Write(ctx, disturbed(ctx, source, other), source.Schema,
				&delta.WriteOptions{Mode: mode, Repeatable: true})
			if err != nil || !r.Committed || r.Retries == 0 {
				t.Fatalf("%s, %s: got %+v, %v, want it written anew", name, mode, r, err)
			}
			rows := scanSorted(t, table)
			if want := 2; mode == delta.WriteAppend && len(rows) != want || !strings.Contains(rows[len(rows)-1], `"n":5`) {
				t.Errorf("%s, %s: got %v", name, mode, rows)
			}
			if n := objects(t, table.Store()); n != 4+2 { // commits, and the files of the first rows and of these
				t.Errorf("%s, %s: %d objects, files of the first try are left", name, mode, n)
			}
		}
	}
}

// The new constraint holds for rows that were written before it was known.
func TestWrite_ConstraintAddedMeanwhile_IsKept(t *testing.T) {
	ctx := context.Background()
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	source := sourceWith(t, keyed(), `[{"id":2,"n":50}]`)
	other := func() {
		_, err := table.AddConstraint(ctx, "c", "n < 10", upgrade)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := table.Write(ctx, disturbed(ctx, source, other), source.Schema, &delta.WriteOptions{Repeatable: true})
	var broken *delta.ConstraintError
	if !errors.As(err, &broken) {
		t.Errorf("got %v, want the new constraint broken", err)
	}
	wantRows(t, table, `{"id":1,"n":0}`)
}

func TestWrite_ChangeThatFilesDoNotMind_FilesStay(t *testing.T) {
	ctx := context.Background()
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	source := sourceWith(t, keyed(), `[{"id":2,"n":5}]`)
	other := func() {
		_, err := table.SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "true", "owner": "x"}, upgrade)
		if err == nil {
			z := delta.Field{Name: "z", Type: delta.Long, Nullable: true}
			_, err = table.AddColumns(ctx, []delta.NewColumn{{Field: z}}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := table.Write(ctx, disturbed(ctx, source, other), source.Schema, &delta.WriteOptions{Mode: delta.WriteOverwrite})
	if err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":2,"n":5,"z":null}`)
}

func TestWrite_IdentityValuesOfAnotherWriter_NoneGivenTwice(t *testing.T) {
	ctx := context.Background()
	table := definedTable(t, "false")
	n := fields("n", delta.Long)
	source := sourceWith(t, n, `[{"n":10},{"n":11}]`)
	other := func() { write(t, table, n, `[{"n":20}]`, nil) }
	_, err := table.Write(ctx, disturbed(ctx, source, other), source.Schema, &delta.WriteOptions{Repeatable: true})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, row := range scanSorted(t, table) {
		keys = append(keys, row[:strings.Index(row, ",")])
	}
	if want := []string{`{"key":1`, `{"key":2`, `{"key":3`, `{"key":4`, `{"key":5`, `{"key":6`}; !slices.Equal(keys, want) {
		t.Errorf("got %v, want %v", keys, want)
	}
}

func TestWrite_ReplacedSchemaWithoutAClusteringColumn_IsRefused(t *testing.T) {
	ctx := context.Background()
	table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: keyed(), ClusterBy: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	source := sourceWith(t, fields("id", delta.Long), `[{"id":1}]`)
	opts := &delta.WriteOptions{Mode: delta.WriteOverwrite, ReplaceSchema: true}
	_, err = table.Write(ctx, source.Rows(ctx), source.Schema, opts)
	refused(t, err, "the table is clustered by n, change that first")
	source = sourceWith(t, fields("n", delta.Long, "x", delta.Date), `[{"n":1,"x":"2024-01-01"}]`)
	if _, err = table.Write(ctx, source.Rows(ctx), source.Schema, opts); err != nil {
		t.Fatal(err)
	}
}
