package delta_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// mapped is a table with mapped columns, of which some were renamed and dropped since, and with rows that were deleted.
func mapped(t *testing.T, o delta.CreateOptions) *delta.Table {
	t.Helper()
	ctx := context.Background()
	o.Schema = fields("id", delta.Long, "day", delta.String, "gone", delta.Long,
		"s", &delta.Struct{Fields: fields("x", delta.Long).Fields})
	o.Properties = map[string]string{"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true",
		"delta.enableRowTracking": "true"}
	table, err := delta.Create(ctx, store.NewMem(), &o)
	if err != nil {
		t.Fatal(err)
	}
	write(t, table, o.Schema, `[{"id":1,"day":"a","gone":7,"s":{"x":1}},{"id":2,"day":"b/ c","gone":7,"s":null},
		{"id":3,"day":"a","gone":7,"s":{"x":3}}]`, nil)
	if _, err := table.Delete(ctx, where(t, "id = 1"), nil); err != nil {
		t.Fatal(err)
	}
	r, err := table.RenameColumn(ctx, "id", "key", nil)
	done(t, r, err)
	r, err = table.RenameColumn(ctx, "s.x", "ex", nil)
	done(t, r, err)
	r, err = table.DropColumns(ctx, []string{"gone"}, nil)
	done(t, r, err)
	return table
}

func TestDropFeature_ColumnMapping_FilesHaveTheNamesOfColumns(t *testing.T) {
	ctx := context.Background()
	for name, o := range map[string]delta.CreateOptions{"plain": {}, "partitions": {PartitionBy: []string{"day"}},
		"clustered": {ClusterBy: []string{"id"}}} {
		t.Run(name, func(t *testing.T) {
			table := mapped(t, o)
			was := scanLines(t, snapshot(t, table), &delta.ScanOptions{RowIDs: true})
			before := snapshot(t, table).Version()
			r, err := table.DropFeature(ctx, "columnMapping", upgrade)
			done(t, r, err)
			snap := snapshot(t, table)
			if text := snap.Metadata().SchemaString; r.Version != before+1 || snap.Property("delta.columnMapping.mode") != "" ||
				snap.Protocol().Supports("columnMapping") || strings.Contains(text, "columnMapping") {
				t.Errorf("version %d after %d: schema %s, properties %v, protocol %+v", r.Version, before, text,
					snap.Metadata().Configuration, snap.Protocol())
			}
			now := scanLines(t, snap, &delta.ScanOptions{RowIDs: true})
			slices.Sort(was)
			slices.Sort(now)
			if !slices.Equal(was, now) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(now, "\n"), strings.Join(was, "\n"))
			}
			if columns, err := snap.ClusteringColumns(); err != nil || len(o.ClusterBy) > 0 != slices.Equal(columns, []string{"key"}) {
				t.Errorf("clustered by %q, %v", columns, err)
			}
			r, err = table.AddColumns(ctx, []delta.NewColumn{{Field: delta.Field{Name: "gone", Type: delta.Long, Nullable: true}}}, nil)
			done(t, r, err)
			for _, line := range scanLines(t, snapshot(t, table), nil) {
				if !strings.Contains(line, `"gone":null`) {
					t.Errorf("a dropped column came back: %s", line)
				}
			}
			if r := check(t, table, &delta.CheckOptions{Deep: true}); r.Errors > 0 {
				t.Errorf("%+v", r.Findings)
			}
		})
	}
}

func TestDropFeature_ColumnMappingWithNamesThatFilesCannotHave_WritesNothing(t *testing.T) {
	ctx := context.Background()
	table := mapped(t, delta.CreateOptions{})
	r, err := table.RenameColumn(ctx, "key", "a key", nil)
	done(t, r, err)
	before := keysOf(t, table.Store())
	_, err = table.DropFeature(ctx, "columnMapping", upgrade)
	refused(t, err, `"a key"`)
	_, err = table.DropFeature(ctx, "columnMapping", nil)
	refused(t, err, "checkpointProtection")
	if after := keysOf(t, table.Store()); !slices.Equal(before, after) {
		t.Errorf("got the objects %q, want %q", after, before)
	}
}

func keysOf(t *testing.T, st store.Store) (keys []string) {
	t.Helper()
	for o, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func TestDropFeature_TypeWidening_RewritesFilesOfEarlierTypes(t *testing.T) {
	ctx := context.Background()
	s := fields("id", delta.Integer, "s", &delta.Struct{Fields: fields("d", delta.Date).Fields},
		"l", &delta.Array{Element: delta.Float, ContainsNull: true})
	table := made(t, s, map[string]string{"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true"})
	write(t, table, s, `[{"id":1,"s":{"d":"2024-01-01"},"l":[1.5,null]},{"id":2,"s":null,"l":null},
		{"id":3,"s":null,"l":[]}]`, nil)
	if _, err := table.Delete(ctx, where(t, "id = 3"), nil); err != nil {
		t.Fatal(err)
	}
	for path, to := range map[string]delta.Type{"id": delta.Long, "l.element": delta.Double} {
		r, err := table.ChangeColumn(ctx, path, delta.ColumnChange{Type: to}, upgrade)
		done(t, r, err)
	}
	now := fields("id", delta.Long, "s", s.Fields[1].Type, "l", &delta.Array{Element: delta.Double, ContainsNull: true})
	write(t, table, now, `[{"id":5000000000,"s":null,"l":[0.1]}]`, nil)
	old := map[string]bool{}
	for _, a := range filesOf(t, snapshot(t, table)) {
		old[a.Path] = true
	}
	was := scanLines(t, snapshot(t, table), nil)
	r, err := table.DropFeature(ctx, "typeWidening", upgrade)
	done(t, r, err)
	snap := snapshot(t, table)
	if snap.Protocol().Supports("typeWidening") || strings.Contains(snap.Metadata().SchemaString, "typeChanges") ||
		snap.Property("delta.enableTypeWidening") != "" {
		t.Errorf("protocol %+v, schema %s", snap.Protocol(), snap.Metadata().SchemaString)
	}
	same := 0
	for _, a := range filesOf(t, snap) {
		if old[a.Path] {
			same++
		}
	}
	if same != 1 {
		t.Errorf("%d files are as they were, want 1", same)
	}
	slices.Sort(was)
	wantRows(t, table, was...)
	if _, err := table.ChangeColumn(ctx, "id", delta.ColumnChange{Type: delta.Decimal{Precision: 20}}, nil); err == nil {
		t.Error("the column can be widened still")
	}
}

// Another writer's rows come between the look at the files and the commit.
func TestDropFeature_AppendMeanwhile_IsWrittenAgainToo(t *testing.T) {
	ctx := context.Background()
	table := mapped(t, delta.CreateOptions{})
	st := &blocking{Store: table.Store(), before: func() {
		write(t, table, fields("key", delta.Long, "day", delta.String), `[{"key":9,"day":"z"}]`, nil)
	}}
	other, err := delta.Open(ctx, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := other.DropFeature(ctx, "columnMapping", upgrade)
	done(t, r, err)
	wantRows(t, table, `{"day":"a","key":3,"s":{"ex":3}}`, `{"day":"b/ c","key":2,"s":null}`, `{"day":"z","key":9,"s":null}`)
	live := map[string]bool{}
	for _, a := range filesOf(t, snapshot(t, table)) {
		live[a.Path] = true
	}
	if len(live) != 1 {
		t.Errorf("got %d files, want one", len(live))
	}
}
