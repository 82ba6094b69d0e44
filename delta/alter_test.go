package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

var upgrade = &delta.AlterOptions{Upgrade: true}

// done fails the test unless the change was made.
func done(t *testing.T, r delta.CommitResult, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails the test unless the error has the words.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want an error with %q", err, words)
	}
}

func TestAlter_ColumnsOfMappedTable_FilesStayAsTheyAre(t *testing.T) {
	ctx := context.Background()
	s := fields("id", delta.Long, "s", &delta.Struct{Fields: fields("x", delta.Long, "y", delta.Long).Fields})
	table := made(t, s, nil)
	appendJSON(t, table, `[{"id":1,"s":{"x":10,"y":100}}]`)
	_, err := table.RenameColumn(ctx, "id", "key", nil)
	refused(t, err, "does not map its columns")
	_, err = table.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, nil)
	refused(t, err, "columnMapping")
	r, err := table.SetProperties(ctx, map[string]string{"delta.columnMapping.mode": "name"}, upgrade)
	done(t, r, err)
	r, err = table.AddColumns(ctx, []delta.NewColumn{
		{Field: delta.Field{Name: "new col", Type: delta.String, Nullable: true}, First: true},
		{Parent: "s", Field: delta.Field{Name: "z", Type: delta.Date, Nullable: true}, After: "x"}}, nil)
	done(t, r, err)
	r, err = table.RenameColumn(ctx, "s.x", "ex", nil)
	done(t, r, err)
	r, err = table.RenameColumn(ctx, "id", "key", nil)
	done(t, r, err)
	r, err = table.DropColumns(ctx, []string{"s.y"}, nil)
	done(t, r, err)
	after := fields("new col", delta.String, "key", delta.Long,
		"s", &delta.Struct{Fields: fields("ex", delta.Long, "z", delta.Date).Fields})
	rows := `{"new col":"n","key":2,"s":{"ex":20,"z":"2024-01-01"}}`
	appendJSON(t, table, "["+rows+"]")
	checkRows(t, table, after, `[{"new col":null,"key":1,"s":{"ex":10,"z":null}},`+rows+`]`)
	r, err = table.AddColumns(ctx, []delta.NewColumn{
		{Parent: "s", Field: delta.Field{Name: "y", Type: delta.Long, Nullable: true}}}, nil)
	done(t, r, err)
	for _, line := range scanLines(t, snapshot(t, table), nil) {
		if strings.Contains(line, "100") {
			t.Errorf("got %s: a dropped column has come back", line)
		}
	}
	if got := snapshot(t, table).Property("delta.columnMapping.maxColumnId"); got != "7" {
		t.Errorf("got maxColumnId %s, want 7", got)
	}
}

func TestAlter_ColumnThatARuleReads_IsRefused(t *testing.T) {
	ctx := context.Background()
	s := fields("ts", delta.Timestamp, "n", delta.Long, "day", delta.Date)
	with(s, `{"delta.generationExpression":"CAST(ts AS DATE)"}`)
	table := made(t, s, map[string]string{"delta.columnMapping.mode": "name", "delta.constraints.c": "n > 0"})
	_, err := table.RenameColumn(ctx, "ts", "at", nil)
	refused(t, err, `generated column "day"`)
	_, err = table.DropColumns(ctx, []string{"n"}, nil)
	refused(t, err, `CHECK constraint "c"`)
	r, err := table.DropConstraint(ctx, "c", false, nil)
	done(t, r, err)
	r, err = table.DropColumns(ctx, []string{"n"}, nil)
	done(t, r, err)
}

func TestAddConstraint_RowsThatAreThere_AreChecked(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long, "note", delta.String), nil)
	appendJSON(t, table, `[{"id":1},{"id":2},{"id":-7,"note":"the seventh"}]`)
	_, err := table.AddConstraint(ctx, "positive", "id > 0", nil)
	refused(t, err, "checkConstraints")
	_, err = table.AddConstraint(ctx, "positive", "id > 0", upgrade)
	var broken *delta.ConstraintError
	if !errors.As(err, &broken) || !strings.HasPrefix(err.Error(), "add the constraint \"positive\": row 2 of part-") ||
		!strings.HasSuffix(err.Error(), "found id = -7; the row has note = the seventh") {
		t.Errorf("got %v, want a ConstraintError with the row and where it lies", err)
	}
	r, err := table.AddConstraint(ctx, "Large", "id > -10", upgrade)
	done(t, r, err)
	snap := snapshot(t, table)
	if p := snap.Protocol(); p.MinWriterVersion != 3 || snap.Property("delta.constraints.large") != "id > -10" {
		t.Errorf("got writer version %d and %v", p.MinWriterVersion, snap.Metadata().Configuration)
	}
	for e, err := range table.History(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Info.Operation != "ADD CONSTRAINT" || e.Info.OperationParameters["expr"] != "id > -10" {
			t.Errorf("got %s %v", e.Info.Operation, e.Info.OperationParameters)
		}
	}
}

func TestChangeColumn_WiderTypes_OldFilesAreRead(t *testing.T) {
	ctx := context.Background()
	s := fields("a", delta.Byte, "b", delta.Float, "c", delta.Decimal{Precision: 5, Scale: 2}, "d", delta.Date,
		"l", &delta.Array{Element: delta.Integer, ContainsNull: true}, "p", delta.Short)
	table := made(t, s, nil)
	appendJSON(t, table, `[{"a":1,"b":1.5,"c":"1.25","d":"2024-01-01","l":[1],"p":7}]`)
	_, err := table.ChangeColumn(ctx, "a", delta.ColumnChange{Type: delta.Integer}, upgrade)
	refused(t, err, "delta.enableTypeWidening")
	r, err := table.SetProperties(ctx, map[string]string{"delta.enableTypeWidening": "true"}, upgrade)
	done(t, r, err)
	for _, c := range []struct {
		path string
		to   delta.Type
	}{{"a", delta.Short}, {"a", delta.Integer}, {"a", delta.Double}, {"b", delta.Double},
		{"c", delta.Decimal{Precision: 8, Scale: 4}}, {"l.element", delta.Long}, {"p", delta.Decimal{Precision: 10}}} {
		r, err := table.ChangeColumn(ctx, c.path, delta.ColumnChange{Type: c.to}, nil)
		done(t, r, err)
	}
	r, err = table.ChangeColumn(ctx, "d", delta.ColumnChange{Type: delta.TimestampNTZ}, upgrade)
	done(t, r, err)
	_, err = table.ChangeColumn(ctx, "b", delta.ColumnChange{Type: delta.Float}, nil)
	refused(t, err, "no wider one")
	after := fields("a", delta.Double, "b", delta.Double, "c", delta.Decimal{Precision: 8, Scale: 4}, "d", delta.TimestampNTZ,
		"l", &delta.Array{Element: delta.Long, ContainsNull: true}, "p", delta.Decimal{Precision: 10})
	row := `{"a":1.5,"b":1e300,"c":"1234.5678","d":"2024-01-01 10:00:00","l":[5000000000],"p":"70000"}`
	appendJSON(t, table, "["+row+"]")
	checkRows(t, table, after, `[{"a":1,"b":1.5,"c":"1.2500","d":"2024-01-01 00:00:00","l":[1],"p":"7"},`+row+`]`)
	text := snapshot(t, table).Metadata().SchemaString
	for _, want := range []string{`"delta.typeChanges":[{"fromType":"byte","toType":"short"},` +
		`{"fromType":"short","toType":"integer"},{"fromType":"integer","toType":"double"}]`,
		`{"fromType":"integer","toType":"long","fieldPath":"element"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("got the schema %s, want %s in it", text, want)
		}
	}
}

func TestChangeColumn_NotNull_OnlyWhereNoRowHasNull(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long, "v", delta.Long), nil)
	appendJSON(t, table, `[{"id":1,"v":null}]`)
	no, comment := false, "the key"
	_, err := table.ChangeColumn(ctx, "v", delta.ColumnChange{Nullable: &no}, nil)
	refused(t, err, "v = null")
	r, err := table.ChangeColumn(ctx, "id", delta.ColumnChange{Nullable: &no, Comment: &comment}, nil)
	done(t, r, err)
	if f, _ := snapshot(t, table).Schema().Lookup("id"); f.Nullable || string(f.Metadata) != `{"comment":"the key"}` {
		t.Errorf("got %+v", f)
	}
}

func TestChangeColumn_Default_OnlyWhereItIsOfUse(t *testing.T) {
	ctx := context.Background()
	table := made(t, definedColumns(), nil)
	text, none, wrong := "'x'", "", "no_such_function(1)"
	_, err := table.ChangeColumn(ctx, "twice", delta.ColumnChange{Default: &text}, upgrade)
	refused(t, err, "the table computes the column")
	_, err = table.ChangeColumn(ctx, "kind", delta.ColumnChange{Default: &wrong}, upgrade)
	refused(t, err, "no_such_function")
	r, err := table.ChangeColumn(ctx, "kind", delta.ColumnChange{Default: &text}, upgrade)
	done(t, r, err)
	n := fields("n", delta.Long)
	write(t, table, n, `[{"n":1}]`, nil)
	r, err = table.ChangeColumn(ctx, "kind", delta.ColumnChange{Default: &none}, nil)
	done(t, r, err)
	write(t, table, n, `[{"n":2}]`, nil)
	wantRows(t, table, `{"key":1,"kind":"x","n":1,"twice":2}`, `{"key":2,"kind":null,"n":2,"twice":4}`)
}

func TestDropFeature_HistoryRule(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.constraints.c": "id > 0"})
	appendJSON(t, table, `[{"id":1}]`)
	_, err := table.DropFeature(ctx, "checkConstraints", nil)
	refused(t, err, "uses it")
	r, err := table.DropConstraint(ctx, "c", false, nil)
	done(t, r, err)
	r, err = table.DropFeature(ctx, "checkConstraints", nil)
	done(t, r, err)
	_, err = table.DropFeature(ctx, "deletionVectors", upgrade)
	refused(t, err, "uses it")
	r, err = table.UnsetProperties(ctx, []string{"delta.enableDeletionVectors"}, false, nil)
	done(t, r, err)
	_, err = table.DropFeature(ctx, "deletionVectors", nil)
	refused(t, err, "checkpointProtection")
	r, err = table.DropFeature(ctx, "deletionVectors", upgrade)
	done(t, r, err)
	snap := snapshot(t, table)
	p := snap.Protocol()
	if p.MinReaderVersion != 1 || slices.Contains(p.WriterFeatures, "deletionVectors") ||
		!p.Supports("checkpointProtection") {
		t.Errorf("got protocol %+v", p)
	}
	if snap.CheckpointVersion() != snap.Version() {
		t.Errorf("got the checkpoint %d, want one of version %d", snap.CheckpointVersion(), snap.Version())
	}
	checkRows(t, table, fields("id", delta.Long), `[{"id":1}]`)
}

func TestSetProperties_RowTracking_GivesIDsToTheRowsThatAreThere(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long), nil)
	appendJSON(t, table, `[{"id":1},{"id":2}]`)
	properties := map[string]string{"delta.enableRowTracking": "true", "owner": "x"}
	_, err := table.SetProperties(ctx, properties, nil)
	if !errors.Is(err, delta.ErrUpgrade) || !strings.Contains(err.Error(), "rowTracking") {
		t.Errorf("got %v, want the feature refused", err)
	}
	r, err := table.SetProperties(ctx, properties, upgrade)
	done(t, r, err)
	if got := snapshot(t, table).Property("owner"); got != "x" || len(properties) != 2 {
		t.Errorf("got owner %q, %v", got, properties)
	}
	for i, line := range scanLines(t, snapshot(t, table), &delta.ScanOptions{RowIDs: true}) {
		if !strings.Contains(line, fmt.Sprintf(`"_row_id":%d`, i)) {
			t.Errorf("got %s, want the id %d", line, i)
		}
	}
}

func TestDropFeature_InUse_SaysWhatUsesIt(t *testing.T) {
	ctx := context.Background()
	s := with(fields("id", delta.Long, "at", delta.TimestampNTZ, "v", delta.Long), `{"CURRENT_DEFAULT":"1"}`)
	table := made(t, s, map[string]string{"delta.constraints.c": "id > 0", "delta.enableChangeDataFeed": "true",
		"delta.columnMapping.mode": "name", "delta.checkpointPolicy": "v2"})
	for feature, cause := range map[string]string{"allowColumnDefaults": `column "v" has CURRENT_DEFAULT`,
		"checkConstraints": `the constraint "c"`, "changeDataFeed": "delta.enableChangeDataFeed is true",
		"timestampNtz": "a column is timestamp_ntz",
		"v2Checkpoint": "delta.checkpointPolicy is v2"} {
		_, err := table.DropFeature(ctx, feature, upgrade)
		refused(t, err, cause)
	}
}

// checkpointProtection goes once the log no longer has the versions that it was for.
func TestDropFeature_CheckpointProtection_OnlyWithoutTheOldVersions(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long), map[string]string{"delta.feature.deletionVectors": "supported"})
	r, err := table.DropFeature(ctx, "deletionVectors", upgrade)
	done(t, r, err)
	_, err = table.DropFeature(ctx, "checkpointProtection", nil)
	refused(t, err, "the versions from 0 to")
	for v := range snapshot(t, table).Version() {
		if err := table.Store().Delete(ctx, fmt.Sprintf("_delta_log/%020d.json", v)); err != nil {
			t.Fatal(err)
		}
	}
	table = open(t, table.Store())
	r, err = table.DropFeature(ctx, "checkpointProtection", nil)
	done(t, r, err)
	if p := snapshot(t, table).Protocol(); p.MinWriterVersion != 2 || p.WriterFeatures != nil {
		t.Errorf("got protocol %+v, want (1, 2)", p)
	}
}

func TestClusterBy_DomainAndFeatures(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("id", delta.Long, "b", delta.Boolean), map[string]string{"delta.columnMapping.mode": "name"})
	_, err := table.ClusterBy(ctx, []string{"b"}, upgrade)
	refused(t, err, "no statistics")
	_, err = table.ClusterBy(ctx, []string{"id"}, nil)
	refused(t, err, "clustering")
	r, err := table.ClusterBy(ctx, []string{"id"}, upgrade)
	done(t, r, err)
	snap := snapshot(t, table)
	if d := snap.DomainMetadata()["delta.clustering"].Configuration; !strings.HasPrefix(d, `{"clusteringColumns":[["col-`) {
		t.Errorf("got the domain %s, want the physical name", d)
	}
	if p := snap.Protocol(); !p.Supports("clustering") || !p.Supports("domainMetadata") || p.MinReaderVersion != 2 {
		t.Errorf("got protocol %+v", p)
	}
}

// The float nearest to 3.4 is a little more than that, and its statistics say 3.4.
func TestScan_FloatWidenedToDouble_BoundsAreThoseOfTheFloat(t *testing.T) {
	ctx := context.Background()
	table := made(t, fields("x", delta.Float), map[string]string{"delta.enableTypeWidening": "true"})
	appendJSON(t, table, `[{"x":3.4}]`)
	appendJSON(t, table, `[{"x":-3.4}]`)
	r, err := table.ChangeColumn(ctx, "x", delta.ColumnChange{Type: delta.Double}, upgrade)
	done(t, r, err)
	for _, text := range []string{"x > 3.4", "x < -3.4"} {
		where, err := expr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var rows int64
		for batch, err := range r.Snapshot.Scan(ctx, &delta.ScanOptions{Where: where}) {
			if err != nil {
				t.Fatal(err)
			}
			rows += batch.NumRows()
			batch.Release()
		}
		if rows != 1 {
			t.Errorf("%s: got %d rows, want 1", text, rows)
		}
	}
}

// The preview of the feature wants each change of a type dated by the version of its commit, which a lost race moves.
func TestChangeColumn_PreviewOfTypeWidening_ChangeIsDated(t *testing.T) {
	ctx := context.Background()
	st := store.NewMem()
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: fields("a", delta.Byte, "b", delta.Byte),
		Properties: map[string]string{"delta.feature.typeWidening-preview": "supported"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.SetProperties(ctx, map[string]string{"delta.enableTypeWidening": "true"}, nil)
	done(t, r, err)
	r, err = table.ChangeColumn(ctx, "a", delta.ColumnChange{Type: delta.Short}, nil)
	done(t, r, err)
	other := open(t, st)
	snapshot(t, other)
	raced := false
	racing := storetest.NewFaulty(st, func(op storetest.Op, key string, _ int) storetest.Fault {
		if op == storetest.OpPutIfAbsent && strings.HasSuffix(key, ".json") && !raced {
			raced = true
			tx := other.Begin(snapshot(t, other), nil)
			tx.AddTxn("app", 1)
			if _, err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		}
		return storetest.Fault{}
	})
	r, err = open(t, racing).ChangeColumn(ctx, "b", delta.ColumnChange{Type: delta.Long}, nil)
	done(t, r, err)
	text := snapshot(t, open(t, st)).Metadata().SchemaString
	for _, want := range []string{`{"fromType":"byte","toType":"short","tableVersion":2}`,
		`{"fromType":"byte","toType":"long","tableVersion":4}`} {
		if !strings.Contains(text, want) {
			t.Errorf("got the schema %s, want %s in it", text, want)
		}
	}
}
