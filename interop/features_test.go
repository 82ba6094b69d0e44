package interop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/delta"
)

// feature is a line of the matrix in README.md: a table that has something that other engines must know.
type feature struct {
	name   string
	schema *delta.Schema // default idAndS
	create delta.CreateOptions
	fill   func(*made) // writes the table; it may put another in its place
	// unforeseen is the engine that compat cannot know to stumble, since it looks at protocol and schema only.
	unforeseen *engine
}

// TestReaders_EachFeature_AsTheMatrixSays has Spark, delta-rs, delta-kernel and DuckDB read what we write with every feature
// of tables, and append to it. Where a table has a change feed, they read that, too.
func TestReaders_EachFeature_AsTheMatrixSays(t *testing.T) {
	t.Parallel()
	needReaders(t)
	wantMatrix(t, "features", writtenFeatures(), true)
}

// property is CreateOptions with these properties, given as names each followed by its value; "delta." is left out.
func property(of ...string) delta.CreateOptions {
	all := map[string]string{}
	for i := 0; i < len(of); i += 2 {
		all["delta."+of[i]] = of[i+1]
	}
	return delta.CreateOptions{Properties: all}
}

// described is the field that columns takes: its metadata, and whether it takes nulls.
func described(metadata string, nullable bool) delta.Field {
	return delta.Field{Metadata: []byte(metadata), Nullable: nullable}
}

var upgrade = &delta.AlterOptions{Upgrade: true}

func writtenFeatures() []feature {
	return []feature{
		{name: "every primitive type but timestamp_ntz; nested types", schema: everyColumn(), fill: fillEveryType},
		{name: "timestamp_ntz", schema: columns("id", delta.Long, "n", delta.TimestampNTZ, "p", delta.TimestampNTZ),
			create: delta.CreateOptions{PartitionBy: []string{"p"}}, fill: func(m *made) {
				m.insert(`{"id":1,"n":"2024-02-29 12:34:56.789012","p":"2024-10-27 02:30:00.5"},{"id":2,"n":null,"p":null}`)
			}},
		{name: "partitions of every type", schema: columns("dt", delta.Date, "i", delta.Integer, "b", delta.Boolean, "d",
			delta.Decimal{Precision: 9, Scale: 2}, "ts", delta.Timestamp, "s", delta.String, "v", delta.String),
			create: delta.CreateOptions{PartitionBy: []string{"dt", "i", "b", "d", "ts", "s"}}, fill: fillPartitions},
		{name: "overwrite, replaceWhere, dynamic overwrite; feed", schema: columns("id", delta.Long, "s", delta.String, "p", delta.String),
			create: feedByP(), fill: overwriteInEachWay},
		{name: "columns added by writes", fill: evolve},
		{name: "NOT NULL, invariants and CHECK", schema: columns("id", delta.Long, described(`{}`, false),
			"s", delta.String, described(`{"delta.invariants":"{\"expression\":{\"expression\":\"length(s) < 9\"}}"}`, true)),
			create: property("constraints.positive", "id > 0"),
			fill:   func(m *made) { m.insert(`{"id":1,"s":"a"},{"id":2,"s":"b"}`) }},
		{name: "generated columns", schema: columns("at", delta.Timestamp, "n", delta.Integer,
			"day", delta.Date, described(`{"delta.generationExpression":"CAST(at AS DATE)"}`, true),
			"twice", delta.Integer, described(`{"delta.generationExpression":"n * 2"}`, true)),
			create: delta.CreateOptions{PartitionBy: []string{"day"}}, fill: func(m *made) {
				m.write(m.source(columns("at", delta.Timestamp, "n", delta.Integer),
					`{"at":"2024-02-29T23:59:59Z","n":1},{"at":"2024-03-01T00:00:00Z","n":null}`), nil)
			}},
		{name: "identity columns", schema: columns("id", delta.Long, described(`{"delta.identity.start":100,`+
			`"delta.identity.step":10,"delta.identity.allowExplicitInsert":true}`, true), "s", delta.String),
			fill: func(m *made) {
				m.write(m.source(columns("s", delta.String), `{"s":"a"},{"s":"b"}`), nil)
				m.write(m.source(columns("s", delta.String), `{"s":"c"}`), nil)
			}},
		{name: "column defaults", schema: columns("id", delta.Long, "s", delta.String,
			described(`{"CURRENT_DEFAULT":"'none'"}`, true)), fill: func(m *made) {
			m.write(m.source(columns("id", delta.Long), `{"id":1}`), nil)
			m.insert(`{"id":2,"s":null}`)
		}},
		{name: "append-only", create: property("appendOnly", "true"), fill: func(m *made) { m.numbered(0, 10) }},
		{name: "column mapping by name: renamed, dropped, nested; feed", schema: nestedColumns(),
			create: mapped("name"), fill: renameAndDrop},
		{name: "column mapping by id: renamed, dropped, nested; feed", schema: nestedColumns(),
			create: mapped("id"), fill: renameAndDrop},
		{name: "column mapping turned on later", fill: func(m *made) {
			m.numbered(0, 10)
			m.done(m.table.SetProperties(context.Background(), map[string]string{"delta.columnMapping.mode": "name"}, upgrade))
			m.done(m.table.RenameColumn(context.Background(), "s", "text with spaces", nil))
			m.insert(`{"id":10,"text with spaces":"after"}`)
		}},
		{name: "types widened: integers, floats", schema: columns("a", delta.Byte, "b", delta.Float, "c", delta.Short,
			"l", &delta.Array{Element: delta.Integer, ContainsNull: true}), create: property("enableTypeWidening", "true"),
			fill: func(m *made) {
				m.insert(`{"a":1,"b":1.5,"c":2,"l":[1]}`)
				m.widen("a", delta.Short, "a", delta.Long, "b", delta.Double, "c", delta.Integer, "l.element", delta.Long)
				m.insert(`{"a":5000000000,"b":1e300,"c":70000,"l":[5000000000,null]}`)
			}},
		{name: "types widened: decimals", schema: columns("d", delta.Decimal{Precision: 5, Scale: 2}, "i", delta.Integer),
			create: property("enableTypeWidening", "true"), fill: func(m *made) {
				m.insert(`{"d":"1.25","i":7}`)
				m.widen("d", delta.Decimal{Precision: 12, Scale: 4}, "i", delta.Decimal{Precision: 12, Scale: 1})
				m.insert(`{"d":"12345678.1234","i":"10000000000.5"}`)
			}},
		{name: "types widened: integer to double", schema: columns("i", delta.Integer),
			create: property("enableTypeWidening", "true"), fill: func(m *made) {
				m.insert(`{"i":7}`)
				m.widen("i", delta.Double)
				m.insert(`{"i":0.5}`)
			}},
		{name: "types widened: date to timestamp_ntz", schema: columns("d", delta.Date),
			create: property("enableTypeWidening", "true"), fill: func(m *made) {
				m.insert(`{"d":"2024-02-29"}`)
				m.widen("d", delta.TimestampNTZ)
				m.insert(`{"d":"2024-02-29 10:00:00"}`)
			}},
		{name: "deletion vectors, added to and remapped by a compaction", create: property("enableDeletionVectors", "true"),
			fill: compactUnderDeletes},
		{name: "row tracking, in-commit timestamps, deletion vectors", create: property("enableDeletionVectors", "true",
			"enableRowTracking", "true", "enableInCommitTimestamps", "true"), fill: deleteSome},
		{name: "row tracking turned on later", fill: func(m *made) {
			m.numbered(0, 100)
			if _, err := m.table.EnableRowTracking(context.Background(), nil); err != nil {
				m.t.Fatal(err)
			}
			m.numbered(100, 200)
			m.checkpoint()
		}},
		{name: "in-commit timestamps turned on later", fill: func(m *made) {
			m.numbered(0, 10)
			m.done(m.table.SetProperties(context.Background(), map[string]string{"delta.enableInCommitTimestamps": "true"}, upgrade))
			m.numbered(10, 20)
		}},
		{name: "classic checkpoint, statistics as columns", create: property("checkpoint.writeStatsAsStruct", "true",
			"checkpoint.writeStatsAsJson", "false"), fill: checkpointBetween},
		{name: "V2 checkpoint, deletion vectors", create: property("checkpointPolicy", "v2", "enableDeletionVectors", "true"),
			fill: func(m *made) {
				m.numbered(0, 10)
				m.delete("id % 5 = 0")
				checkpointBetween(m)
			}},
		{name: "clustering", schema: columns("id", delta.Long, "s", delta.String), create: delta.CreateOptions{
			ClusterBy: []string{"id", "s"}}, fill: func(m *made) { m.numbered(0, 50); m.numbered(50, 100) }},
		{name: "domain metadata", create: property("feature.domainMetadata", "supported"), fill: func(m *made) {
			m.numbered(0, 10)
			m.commit(func(tx *delta.Transaction) {
				tx.SetDomainMetadata(delta.DomainMetadata{Domain: "freshet.test", Configuration: `{"a":"ü"}`})
			})
		}},
		{name: "progress of applications (txn)", fill: func(m *made) {
			m.numbered(0, 10)
			m.commit(func(tx *delta.Transaction) { tx.AddTxn("app-0", 41) })
			m.checkpoint()
		}},
		{name: "a feature dropped (checkpoint protection)", create: property("enableDeletionVectors", "true"),
			fill: dropVectors},
		{name: "column mapping dropped", create: property("columnMapping.mode", "name"), fill: func(m *made) {
			m.numbered(0, 10)
			m.done(m.table.RenameColumn(context.Background(), "id", "key", nil))
			m.done(m.table.DropFeature(context.Background(), "columnMapping", upgrade))
		}},
		{name: "vacuum protocol check", create: property("feature.vacuumProtocolCheck", "supported"),
			fill: func(m *made) { m.numbered(0, 10) }},
	}
}

// widen gives columns wider types: paths, each followed by its type.
func (m *made) widen(of ...any) {
	m.t.Helper()
	for i := 0; i < len(of); i += 2 {
		to := delta.ColumnChange{Type: of[i+1].(delta.Type)}
		m.done(m.table.ChangeColumn(context.Background(), of[i].(string), to, upgrade))
	}
}

func everyColumn() *delta.Schema {
	return columns("b", delta.Boolean, "i8", delta.Byte, "i16", delta.Short, "i32", delta.Integer, "i64", delta.Long,
		"f", delta.Float, "d", delta.Double, "d9", delta.Decimal{Precision: 9, Scale: 2}, "d18", delta.Decimal{Precision: 18, Scale: 4},
		"d38", delta.Decimal{Precision: 38, Scale: 10}, "s", delta.String, "bin", delta.Binary, "dt", delta.Date,
		"ts", delta.Timestamp, "st", structOf("a", delta.Integer, "c", structOf("x", delta.Double)),
		"arr", &delta.Array{Element: delta.Integer, ContainsNull: true},
		"arrs", &delta.Array{Element: structOf("k", delta.String, "v", delta.Long), ContainsNull: true},
		"m", &delta.Map{Key: delta.String, Value: delta.Integer, ValueContainsNull: true})
}

func fillEveryType(m *made) {
	m.insert(`{"b":true,"i8":-128,"i16":-32768,"i32":-2147483648,"i64":-9223372036854775808,"f":1.5,"d":2.2250738585072014e-308,` +
		`"d9":"-1234567.89","d18":"0.0001","d38":"1234567890123456789012345678.0123456789","s":"a","bin":"AAEC/w==",` +
		`"dt":"0001-01-01","ts":"1969-12-31T23:59:59.000001Z","st":{"a":1,"c":{"x":-0.0}},"arr":[1,null,3],` +
		`"arrs":[{"k":"a","v":9007199254740993},{"k":null,"v":null}],"m":[{"key":"one","value":1},{"key":"null","value":null}]},` +
		`{"b":false,"i8":127,"i16":32767,"i32":2147483647,"i64":9223372036854775807,"f":"NaN","d":"Inf","d9":"0",` +
		`"d18":"99999999999999.9999","d38":"-1","s":"Zürich \"quoted\" \\ \u2028 \ud83c\udf0a","bin":"","dt":"9999-12-31",` +
		`"ts":"2024-02-29T12:34:56.789012Z","st":{"a":null,"c":null},"arr":[],"arrs":[],"m":[]},` +
		`{"s":"` + strings.Repeat("長い文字列", 20) + `","d":"-Inf","f":3.4028235e38},{"s":null}`)
}

func fillPartitions(m *made) {
	m.insert(`{"dt":"2024-02-29","i":-5,"b":true,"d":"1.50","ts":"2024-02-29T12:34:56.789012Z","s":"plain","v":"one"},` +
		`{"dt":"1969-12-31","i":0,"b":false,"d":"0.05","ts":"1969-12-31T23:59:59Z","s":"a b/c%20=d","v":"two"},{"v":"nulls"}`)
	for _, s := range specialValues() {
		m.insert(fmt.Sprintf(`{"s":"%s","v":"special"}`, s))
	}
}

func feedByP() delta.CreateOptions {
	o := property("enableChangeDataFeed", "true")
	o.PartitionBy = []string{"p"}
	return o
}

func overwriteInEachWay(m *made) {
	rows := func(p string, from, to int) string {
		var all []string
		for id := from; id < to; id++ {
			all = append(all, fmt.Sprintf(`{"id":%d,"s":"of %s","p":%q}`, id, p, p))
		}
		return strings.Join(all, ",")
	}
	m.insert(rows("a", 0, 10) + "," + rows("b", 10, 20) + "," + rows("c", 20, 30))
	m.write(m.source(nil, rows("d", 30, 40)+","+rows("e", 40, 50)+","+rows("f", 50, 60)), &delta.WriteOptions{Mode: delta.WriteOverwrite})
	m.write(m.source(nil, rows("d", 60, 65)), &delta.WriteOptions{Mode: delta.WriteReplaceWhere, Where: m.expr("p = 'd'")})
	m.write(m.source(nil, rows("e", 70, 73)+","+rows("g", 73, 75)), &delta.WriteOptions{Mode: delta.WriteDynamic})
}

func evolve(m *made) {
	m.numbered(0, 10)
	wider := columns("id", delta.Long, "extra", structOf("x", delta.Integer))
	m.write(m.source(wider, `{"id":10,"extra":{"x":1}}`), &delta.WriteOptions{EvolveSchema: true})
	deeper := columns("id", delta.Long, "extra", structOf("x", delta.Integer, "y", delta.String))
	m.write(m.source(deeper, `{"id":11,"extra":{"x":null,"y":"deep"}}`), &delta.WriteOptions{EvolveSchema: true})
}

func nestedColumns() *delta.Schema {
	return columns("id", delta.Long, "a b,;{}()=", delta.String, "gone", delta.Integer,
		"st", structOf("x", delta.Integer, "y", delta.String), "p", delta.String)
}

func mapped(mode string) delta.CreateOptions {
	o := property("columnMapping.mode", mode, "enableChangeDataFeed", "true", "enableDeletionVectors", "true")
	o.PartitionBy = []string{"p"}
	return o
}

func renameAndDrop(m *made) {
	ctx := context.Background()
	m.done(m.table.RenameColumn(ctx, "a b,;{}()=", "renamed", nil))
	m.insert(`{"id":1,"renamed":"one","gone":10,"st":{"x":100,"y":"i"},"p":"p 1"}`)
	m.done(m.table.RenameColumn(ctx, "st.x", "ex", nil))
	m.done(m.table.RenameColumn(ctx, "p", "part", nil))
	m.done(m.table.DropColumns(ctx, []string{"gone"}, nil))
	m.insert(`{"id":2,"renamed":"two","st":{"ex":200,"y":"ii"},"part":null}`)
	gone := delta.Field{Name: "gone", Type: delta.String, Nullable: true}
	m.done(m.table.AddColumns(ctx, []delta.NewColumn{{Field: gone}}, nil))
	m.feedFrom = m.snapshot().Version() + 1
	m.insert(`{"id":3,"renamed":"three","st":null,"part":"p3","gone":"back"}`)
	m.update("renamed", "'changed'", "id = 1")
	m.delete("id = 2")
}

func compactUnderDeletes(m *made) {
	m.numbered(0, 100)
	m.numbered(100, 200)
	m.delete("id % 10 = 3")
	m.delete("id > 150 AND id < 160 OR id = 1")
	files := m.files()
	compaction := m.table.Begin(m.snapshot(), nil)
	rewritten := m.copyOf(files)
	m.delete("id % 10 = 4")
	compaction.Rewrite(rewritten)
	compaction.Operation("OPTIMIZE", nil, nil)
	if _, err := compaction.Commit(context.Background()); err != nil {
		m.t.Fatal(err)
	}
	if left := m.files(); len(left) != 1 || left[0].DeletionVector == nil {
		m.t.Fatalf("got %+v, want one file that hides rows", left)
	}
}

// copyOf writes the rows of the files into one.
func (m *made) copyOf(files []delta.Add) delta.Rewrite {
	m.t.Helper()
	ctx := context.Background()
	snap := m.snapshot()
	w, err := delta.NewWriter(m.st, snap.Metadata(), snap.Protocol(), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	var origins []delta.Origin
	for r, err := range snap.ScanFiles(ctx, files, nil) {
		if err == nil {
			err = w.Write(ctx, r.Batch)
		}
		if err != nil {
			m.t.Fatal(err)
		}
		for _, row := range r.Rows {
			origins = append(origins, delta.Origin{File: r.File, First: row, Rows: 1})
		}
		r.Batch.Release()
	}
	added, err := w.Close(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	return delta.Rewrite{Removed: files, Added: added, Origins: [][]delta.Origin{origins}}
}

func deleteSome(m *made) {
	m.numbered(0, 100)
	m.numbered(100, 200)
	m.commit(func(tx *delta.Transaction) {
		for _, a := range m.files() {
			gone := roaring64.New()
			gone.AddRange(0, 50)
			tx.DeleteRows(a, gone)
		}
		tx.Operation("DELETE", nil, nil)
	})
	m.update("s", "'new'", "id = 77")
}

func checkpointBetween(m *made) {
	for id := 100; id < 220; id += 10 {
		m.numbered(id, id+10)
	}
	m.delete("id = 105")
	m.checkpoint()
	m.numbered(220, 230)
}

func dropVectors(m *made) {
	ctx := context.Background()
	m.numbered(0, 10)
	m.done(m.table.UnsetProperties(ctx, []string{"delta.enableDeletionVectors"}, false, nil))
	m.done(m.table.DropFeature(ctx, "deletionVectors", upgrade))
	m.numbered(10, 20)
}
