package interop_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
)

// settings are those in which Spark leaves different traces of the same history, with the methods by which we find it in them.
var settings = []struct {
	name       string
	properties string
	methods    []delta.ChangeMethod
}{
	{"feed", "'delta.enableChangeDataFeed' = 'true'",
		[]delta.ChangeMethod{delta.MethodFeed, delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}},
	{"vectors", "'delta.enableDeletionVectors' = 'true'",
		[]delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}},
	{"row tracking", "'delta.enableRowTracking' = 'true'",
		[]delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodRowTracking, delta.MethodDiff}},
	{"plain", "'delta.appendOnly' = 'false'",
		[]delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}},
}

// TestChanges_RandomHistoryBySpark_AllMethodsAgree has Spark write one random history in each setting, and reads its changes by
// every method; Spark reads the feed, too.
func TestChanges_RandomHistoryBySpark_AllMethodsAgree(t *testing.T) {
	t.Parallel()
	needReaders(t)
	history := randomHistory(seeded(t), rounds(t, 6))
	var want []string // of the feed, which is the first
	for _, setting := range settings {
		path := filepath.Join(t.TempDir(), "t")
		spark.must(t, request{Do: "sql", Statements: []string{fmt.Sprintf(`CREATE TABLE delta.%s (id BIGINT, part STRING,
			name STRING, amount DECIMAL(9,2), o STRUCT<x: DOUBLE, l: ARRAY<INT>>) USING delta PARTITIONED BY (part)
			TBLPROPERTIES (%s)`, "`"+path+"`", setting.properties)}})
		m := openTable(t, path)
		statement := map[int64]int{} // by version; settings differ in what makes a commit
		for n, text := range history {
			spark.must(t, request{Do: "sql", Statements: []string{strings.ReplaceAll(text, "{t}", "delta.`"+path+"`")}})
			for v := m.feedFrom; v <= m.snapshot().Version(); v++ {
				if _, known := statement[v]; !known {
					statement[v] = n
				}
			}
		}
		for _, method := range setting.methods {
			got := m.keyedChanges(method, statement)
			if want == nil {
				want = got
				t.Logf("%d changes of %d statements", len(want), len(history))
				m.feedFrom = 1
				if a := spark.must(t, request{Do: "changes", Table: path, From: &m.feedFrom}); a.SHA256 != m.feedDigest() {
					t.Errorf("Spark reads %d changes of the feed, digest %s; we read %s", a.Rows, a.SHA256, m.feedDigest())
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %s: got %d changes, the feed has %d; the first that differs:\n%s", setting.name,
					cmp.Or(string(method), "auto"), len(got), len(want), firstDifference(got, want))
			}
		}
	}
	if len(want) < 20 {
		t.Errorf("the history has %d changes only", len(want))
	}
	for n, text := range history {
		t.Logf("%d: %s", n, text)
	}
}

// randomHistory is statements for a table {t}. Its ids occur once.
func randomHistory(random *rand.Rand, n int) []string {
	next := 0
	insert := func(from, count int) string {
		return fmt.Sprintf(`SELECT /*+ COALESCE(1) */ id, CASE WHEN id %% 5 = 0 THEN NULL ELSE concat('p', id %% 2) END part,
			concat('row ', id, ' %d') name, CAST(id * 1.25 AS DECIMAL(9,2)) amount,
			CASE WHEN id %% 4 = 0 THEN NULL ELSE named_struct('x', CASE id %% 3 WHEN 0 THEN double('NaN') ELSE -0.0D END,
			'l', array(int(id), NULL)) END o FROM range(%d, %d)`, random.IntN(1000), from, from+count)
	}
	fresh := func() string {
		from := next
		next += 30
		return "INSERT INTO {t} " + insert(from, 30)
	}
	all := []string{fresh(), fresh()}
	for len(all) < n {
		from := random.IntN(next)
		among := fmt.Sprintf("id BETWEEN %d AND %d", from, from+random.IntN(15))
		all = append(all, []func() string{
			fresh,
			func() string { return "DELETE FROM {t} WHERE " + among },
			func() string { return "DELETE FROM {t} WHERE part = 'p1' AND " + among },
			func() string { return "UPDATE {t} SET name = concat(name, '+'), amount = amount + 1 WHERE " + among },
			func() string { return "UPDATE {t} SET name = name WHERE " + among },
			func() string { return "UPDATE {t} SET part = 'p9' WHERE " + among },
			func() string {
				return "MERGE INTO {t} USING (" + insert(from, 20) + `) s ON {t}.id = s.id WHEN MATCHED AND s.id % 6 = 1 THEN DELETE
					WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *`
			},
			func() string { return "OPTIMIZE {t}" },
		}[random.IntN(8)]())
	}
	return all
}

// keyedChanges are the changes since version 0, paired by id, with the statement each is of, in order.
func (m *made) keyedChanges(method delta.ChangeMethod, statement map[int64]int) (all []string) {
	m.t.Helper()
	o := &delta.ChangesOptions{Method: method, Key: []string{"id"}}
	for c, err := range m.table.Changes(context.Background(), 0, -1, o) {
		if err != nil {
			m.t.Fatalf("%s by %s: %v", m.path, method, err)
		}
		schema := c.Batch.Schema()
		kinds := c.Batch.Column(schema.FieldIndices(delta.ChangeTypeColumn)[0]).(*array.String)
		n := schema.FieldIndices(delta.ChangeTypeColumn)[0] // the table's columns come before it
		rows := array.NewRecordBatch(arrow.NewSchema(schema.Fields()[:n], nil), c.Batch.Columns()[:n], c.Batch.NumRows())
		e := canonical.NewEncoder(rows.Schema())
		for i := range int(rows.NumRows()) {
			line, err := e.AppendRow(nil, rows, i)
			if err != nil {
				m.t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%03d %s %s", statement[c.Version], line, kinds.Value(i)))
		}
		rows.Release()
		c.Batch.Release()
	}
	slices.Sort(all)
	return all
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("got  %s\nwant %s", got[i], want[i])
		}
	}
	return "one has more at its end"
}
