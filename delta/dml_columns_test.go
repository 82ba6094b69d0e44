package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// definedColumns is a schema whose columns are an identity, a plain one, one with a default and a generated one.
func definedColumns() *delta.Schema {
	s := fields("key", delta.Long, "n", delta.Long, "kind", delta.String, "twice", delta.Long)
	for i, m := range map[int]string{
		0: `{"delta.identity.start":1,"delta.identity.step":1,"delta.identity.allowExplicitInsert":false}`,
		2: `{"CURRENT_DEFAULT":"'new'"}`,
		3: `{"delta.generationExpression":"n * 2"}`,
	} {
		s.Fields[i].Metadata = json.RawMessage(m)
	}
	return s
}

func definedTable(t *testing.T, vectors string) *delta.Table {
	t.Helper()
	table := made(t, definedColumns(), map[string]string{"delta.feature.allowColumnDefaults": "supported",
		"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true",
		"delta.constraints.small": "n < 100"})
	write(t, table, fields("n", delta.Long), `[{"n":1},{"n":2},{"n":3}]`, nil)
	return table
}

func TestDML_DefinedColumns_KeptComputedAndChecked(t *testing.T) {
	ctx := context.Background()
	for _, vectors := range []string{"true", "false"} {
		table := definedTable(t, vectors)
		if _, err := table.Update(ctx, set(t, "n", "n + 10", "kind", "'old'"), parse(t, "n = 2"), nil); err != nil {
			t.Fatal(err)
		}
		source := sourceWith(t, fields("n", delta.Long), `[{"n":3},{"n":50}]`)
		m := &delta.Merge{On: parse(t, "t.n = s.n"), Matched: []delta.MatchedClause{{Set: set(t, "n", "t.n + 20")}},
			NotMatched: []delta.InsertClause{{All: true}}}
		if _, err := table.Merge(ctx, source, m, nil); err != nil {
			t.Fatal(err)
		}
		wantRows(t, table, `{"key":1,"kind":"new","n":1,"twice":2}`, `{"key":2,"kind":"old","n":12,"twice":24}`,
			`{"key":3,"kind":"new","n":23,"twice":46}`, `{"key":4,"kind":"new","n":50,"twice":100}`)
		var after []string
		snap := snapshot(t, table)
		opts := &delta.ScanOptions{Columns: []string{"twice"}, ChangeType: true}
		for r, err := range snap.ScanFiles(ctx, changeFiles(t, table, snap.Version()), opts) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range int(r.Batch.NumRows()) {
				after = append(after, r.Batch.Column(1).ValueStr(i)+" "+r.Batch.Column(0).ValueStr(i))
			}
		}
		if got := strings.Join(after, ", "); got != "update_preimage 6, update_postimage 46, insert 100" {
			t.Errorf("change data tells of %s", got)
		}
	}
}

func TestDML_DefinedColumns_ViolationsRefused(t *testing.T) {
	ctx := context.Background()
	table := definedTable(t, "true")
	before := objects(t, table.Store())
	var violated *delta.ConstraintError
	if _, err := table.Update(ctx, set(t, "n", "n * 50"), nil, nil); !errors.As(err, &violated) {
		t.Errorf("update: got %v, want the constraint that it violates", err)
	}
	if _, err := table.Update(ctx, set(t, "twice", "n"), parse(t, "n = 1"), nil); !errors.As(err, &violated) {
		t.Errorf("generated: got %v, want the wrong value refused", err)
	}
	if _, err := table.Update(ctx, set(t, "key", "n"), nil, nil); err == nil || !strings.Contains(err.Error(), "identity") {
		t.Errorf("identity: got %v, want a refusal", err)
	}
	m := &delta.Merge{On: parse(t, "t.n = s.n"), NotMatched: []delta.InsertClause{{Values: set(t, "key", "s.n", "n", "s.n")}}}
	_, err := table.Merge(ctx, sourceWith(t, fields("n", delta.Long), `[{"n":3},{"n":50}]`), m, nil)
	if err == nil || !strings.Contains(err.Error(), "gives out the values") {
		t.Errorf("insert of an identity: got %v, want a refusal", err)
	}
	if n := objects(t, table.Store()); n != before {
		t.Errorf("%d objects are there, want %d", n, before)
	}
}

func TestDML_MappedColumns_ChangedAndEvolved(t *testing.T) {
	ctx := context.Background()
	for _, mode := range []string{"name", "id"} {
		table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{
			Schema: fields("the id", delta.Long, "p", delta.String, "n", delta.Long), PartitionBy: []string{"p"},
			Properties: map[string]string{"delta.columnMapping.mode": mode, "delta.enableDeletionVectors": "true",
				"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}})
		if err != nil {
			t.Fatal(err)
		}
		s := fields("the id", delta.Long, "p", delta.String, "n", delta.Long)
		write(t, table, s, `[{"the id":1,"p":"a","n":1},{"the id":2,"p":"b","n":2},{"the id":3,"p":"b","n":3}]`, nil)
		if _, err := table.Update(ctx, set(t, "n", "n + `the id`"), parse(t, "p = 'b'"), nil); err != nil {
			t.Fatal(err)
		}
		wide := fields("the id", delta.Long, "p", delta.String, "n", delta.Long, "more", delta.String)
		m := &delta.Merge{On: parse(t, "t.`the id` = s.`the id`"), EvolveSchema: true,
			Matched: []delta.MatchedClause{{All: true}}, NotMatched: []delta.InsertClause{{All: true}}}
		source := sourceWith(t, wide, `[{"the id":3,"p":"c","n":0,"more":"x"},{"the id":4,"p":"a","n":9,"more":"y"}]`)
		if _, err := table.Merge(ctx, source, m, nil); err != nil {
			t.Fatal(err)
		}
		write(t, table, s, `[{"the id":7,"p":"a","n":7}]`, &delta.WriteOptions{Mode: delta.WriteDynamic})
		if _, err := table.Delete(ctx, parse(t, "n = 4"), nil); err != nil {
			t.Fatal(err)
		}
		wantRows(t, table, `{"more":"x","n":0,"p":"c","the id":3}`, `{"more":null,"n":7,"p":"a","the id":7}`)
	}
}

// Inserted rows take defaults, and values that an identity column BY DEFAULT gives out where the source has none; what
// the source gives stays, null where it says so, and moves no mark.
func TestMerge_IdentityByDefaultAndDefaults_OnlyWhereNothingIsGiven(t *testing.T) {
	ctx := context.Background()
	s := definedColumns()
	s.Fields[0].Metadata = json.RawMessage(
		`{"delta.identity.start":10,"delta.identity.step":5,"delta.identity.allowExplicitInsert":true}`)
	for _, vectors := range []string{"true", "false"} {
		table := made(t, s, map[string]string{"delta.enableDeletionVectors": vectors})
		on := parse(t, "t.n = s.n")
		insert := func(columns *delta.Schema, rows string, clause delta.InsertClause) {
			t.Helper()
			m := &delta.Merge{On: on, Matched: []delta.MatchedClause{{Set: set(t, "kind", "'met'")}},
				NotMatched: []delta.InsertClause{clause}}
			if _, err := table.Merge(ctx, sourceWith(t, columns, rows), m, nil); err != nil {
				t.Fatal(err)
			}
		}
		insert(fields("n", delta.Long), `[{"n":1},{"n":2}]`, delta.InsertClause{All: true})
		given := fields("key", delta.Long, "n", delta.Long, "kind", delta.String)
		insert(given, `[{"key":100,"n":3,"kind":null},{"key":null,"n":4,"kind":"x"},{"key":1,"n":1,"kind":"y"}]`,
			delta.InsertClause{Values: set(t, "key", "s.key", "n", "s.n", "kind", "s.kind")})
		insert(fields("n", delta.Long), `[{"n":5}]`, delta.InsertClause{Values: set(t, "n", "s.n")})
		wantRows(t, table, `{"key":10,"kind":"met","n":1,"twice":2}`, `{"key":100,"kind":null,"n":3,"twice":6}`,
			`{"key":15,"kind":"new","n":2,"twice":4}`, `{"key":20,"kind":"x","n":4,"twice":8}`,
			`{"key":25,"kind":"new","n":5,"twice":10}`)
		f, _ := snapshot(t, table).Schema().Lookup("key")
		if !strings.Contains(string(f.Metadata), `"delta.identity.highWaterMark":25`) {
			t.Errorf("vectors %s: got %s, want the mark 25", vectors, f.Metadata)
		}
	}
}

func TestUpdate_DefaultInPlaceOfAValue_AsAnInsertWouldHaveIt(t *testing.T) {
	ctx := context.Background()
	s := with(fields("id", delta.Long, "kind", delta.String, "twice", delta.Long), `{"delta.generationExpression":"id * 2"}`)
	table := made(t, s, map[string]string{"delta.enableChangeDataFeed": "true"})
	text := "concat('x', 'y')"
	r, err := table.ChangeColumn(ctx, "kind", delta.ColumnChange{Default: &text}, upgrade)
	done(t, r, err)
	write(t, table, fields("id", delta.Long, "kind", delta.String), `[{"id":1,"kind":"a"},{"id":2,"kind":"b"}]`, nil)
	byDefault := []delta.Assignment{{Column: "kind", Default: true}, {Column: "twice", Default: true}}
	if _, err := table.Update(ctx, byDefault, where(t, "id = 2"), nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"kind":"a","twice":2}`, `{"id":2,"kind":"xy","twice":4}`)
	src := delta.SourceOf(s.Arrow(), batchOf(t, s, `[{"id":1,"kind":"s","twice":0},{"id":3,"kind":"s","twice":0}]`))
	m := &delta.Merge{On: where(t, "t.id = s.id"),
		Matched: []delta.MatchedClause{{Set: byDefault[:1]}},
		NotMatched: []delta.InsertClause{{Values: []delta.Assignment{{Column: "id", Value: where(t, "s.id")},
			{Column: "kind", Default: true}}}}}
	if _, err := table.Merge(ctx, src, m, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"kind":"xy","twice":2}`, `{"id":2,"kind":"xy","twice":4}`, `{"id":3,"kind":"xy","twice":6}`)
	if _, err := table.Update(ctx, []delta.Assignment{{Column: "id", Default: true}}, where(t, "id = 3"), nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"kind":"xy","twice":2}`, `{"id":2,"kind":"xy","twice":4}`, `{"id":null,"kind":"xy","twice":null}`)
	for _, bad := range [][]delta.Assignment{{{Column: "kind"}}, {{Column: "kind", Default: true}, {Column: "KIND", Default: true}},
		{{Column: "kind", Default: true, Value: where(t, "'a'")}}} {
		if _, err := table.Update(ctx, bad, nil, nil); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}
