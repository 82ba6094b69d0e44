package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// changedTable is a table in a folder whose rows are changed by every operation that there is.
type changedTable struct {
	t      *testing.T
	path   string
	table  *delta.Table
	schema *delta.Schema
}

func makeChanged(t *testing.T, path string, properties map[string]string, parts ...string) *changedTable {
	t.Helper()
	st, err := store.NewDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	o := &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Double, Nullable: true},
		{Name: "y", Type: delta.Timestamp, Nullable: true}}}
	schema := &delta.Schema{Fields: []delta.Field{{Name: "id", Type: delta.Long, Nullable: true},
		{Name: "p", Type: delta.String, Nullable: true}, {Name: "n", Type: delta.Integer, Nullable: true},
		{Name: "d", Type: delta.Decimal{Precision: 10, Scale: 2}, Nullable: true}, {Name: "o", Type: o, Nullable: true}}}
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: schema, PartitionBy: parts,
		Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return &changedTable{t: t, path: path, table: table, schema: schema}
}

// source is rows whose ids run in a range; each is made from its id and a salt.
func (c *changedTable) source(from, to, salt int) delta.RowSource {
	c.t.Helper()
	var rows []string
	for id := from; id < to; id++ {
		n, o := fmt.Sprint((id*7+salt)%50), fmt.Sprintf(`{"x":%d.5,"y":"2024-02-29T12:00:00.%06dZ"}`, id+salt, id)
		if id%11 == 3 {
			n, o = "null", "null"
		}
		rows = append(rows, fmt.Sprintf(`{"id":%d,"p":%s,"n":%s,"d":"%d.%02d","o":%s}`, id,
			[]string{`"a"`, `"b c"`, `"ü/%"`, "null"}[id%4], n, id, salt%100, o))
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, c.schema.Arrow(),
		strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		c.t.Fatal(err)
	}
	return delta.SourceOf(c.schema.Arrow(), rec)
}

func (c *changedTable) expr(text string) *expr.Expr {
	c.t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

func (c *changedTable) set(column, value string) delta.Assignment {
	return delta.Assignment{Column: column, Value: c.expr(value)}
}

func (c *changedTable) must(r *delta.DMLResult, err error) {
	c.t.Helper()
	if err != nil || !r.Committed {
		c.t.Fatalf("%s: got %+v, %v", c.path, r, err)
	}
}

func (c *changedTable) write(rows delta.RowSource, o *delta.WriteOptions) {
	c.t.Helper()
	c.must(c.table.Write(context.Background(), rows.Rows(context.Background()), rows.Schema, o))
}

// changeAll runs every operation.
func (c *changedTable) changeAll() {
	c.t.Helper()
	ctx := context.Background()
	c.write(c.source(0, 400, 1), nil)
	c.write(c.source(400, 800, 2), nil)
	c.must(c.table.Delete(ctx, c.expr("n < 5"), nil))
	c.must(c.table.Update(ctx, []delta.Assignment{c.set("n", "n + 1"), c.set("o.x", "o.x * 2"), c.set("d", "d - 1")},
		c.expr("id % 10 = 4"), nil))
	c.must(c.table.Merge(ctx, c.source(700, 900, 3), &delta.Merge{On: c.expr("t.id = s.id AND (t.n <> 9 OR t.n IS NULL)"),
		Matched: []delta.MatchedClause{{When: c.expr("s.n IS NULL"), Delete: true},
			{When: c.expr("t.n > 30"), Set: []delta.Assignment{c.set("p", "s.p"), c.set("n", "t.n + s.n")}}, {All: true}},
		NotMatched:         []delta.InsertClause{{When: c.expr("s.id % 3 > 0"), All: true}},
		NotMatchedBySource: []delta.MatchedClause{{When: c.expr("t.id < 20"), Delete: true}},
	}, nil))
	c.write(c.source(0, 40, 4), &delta.WriteOptions{Mode: delta.WriteReplaceWhere, Where: c.expr("id < 40")})
	c.must(c.table.Delete(ctx, c.expr("p = 'b c' AND id > 850"), nil))
	c.must(c.table.Merge(ctx, c.source(890, 950, 5), &delta.Merge{On: c.expr("t.id = s.id"),
		NotMatched: []delta.InsertClause{{All: true}}}, nil))
	c.must(c.table.Delete(ctx, c.expr("p = 'a'"), nil))
}

// feedDigest is that of the rows of the change feed from version 1 on, as read.py makes it.
func (c *changedTable) feedDigest() string {
	c.t.Helper()
	var d canonical.Digest
	defer d.Close()
	for ch, err := range c.table.Changes(context.Background(), 1, -1, nil) {
		if err != nil {
			c.t.Fatal(err)
		}
		n := int(ch.Batch.NumCols()) - 1
		if ch.Batch.ColumnName(n) != delta.CommitTimestampColumn {
			c.t.Fatalf("the last column is %s", ch.Batch.ColumnName(n))
		}
		plain := array.NewRecordBatch(arrow.NewSchema(ch.Batch.Schema().Fields()[:n], nil), ch.Batch.Columns()[:n],
			ch.Batch.NumRows())
		e := canonical.NewEncoder(plain.Schema())
		for i := range int(plain.NumRows()) {
			line, err := e.AppendRow(nil, plain, i)
			if err == nil {
				err = d.Add(line)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
		plain.Release()
		ch.Batch.Release()
	}
	sum, _, err := d.Sum()
	if err != nil {
		c.t.Fatal(err)
	}
	return sum
}

// TestReaders_RowsWeChanged_EqualRowsAndFeeds changes tables in each setting that readers must mind, and has the other
// engines read their rows and their change feeds.
func TestReaders_RowsWeChanged_EqualRowsAndFeeds(t *testing.T) {
	needReaders(t)
	home := t.TempDir()
	feeds := map[string]*changedTable{}
	var tables []string
	for i := range 8 {
		properties := map[string]string{}
		name := "rewritten"
		if i&1 != 0 {
			name, properties["delta.enableDeletionVectors"] = "vectors", "true"
		}
		if i&2 != 0 {
			name, properties["delta.enableChangeDataFeed"] = name+"-feed", "true"
		}
		var parts []string
		if i&4 != 0 {
			name, parts = name+"-parts", []string{"p"}
		}
		if i == 3 || i == 4 || i == 6 {
			name, properties["delta.enableRowTracking"] = name+"-tracked", "true"
		}
		c := makeChanged(t, filepath.Join(home, name), properties, parts...)
		c.changeAll()
		tables = append(tables, c.path)
		if i&2 != 0 {
			feeds[c.path] = c
		}
	}
	if refused := compareEngines(t, tables); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
	compareFeeds(t, feeds)
}

// compareFeeds has the engines that can read change feeds read these. delta-rs does not decode the paths of change files,
// so that it reads those of tables without partitions only.
func compareFeeds(t *testing.T, feeds map[string]*changedTable) {
	t.Helper()
	want := map[string]string{}
	var all, plain []string
	for path, c := range feeds {
		want[path] = c.feedDigest()
		all = append(all, path)
		if !strings.HasSuffix(path, "parts") && !strings.HasSuffix(path, "parts-tracked") {
			plain = append(plain, path)
		}
	}
	for engine, args := range map[string][]string{"spark": all, "kernel": all, "delta-rs": plain} {
		out := reader(t, "read.py", append([]string{"--engine", engine, "--summary", "--changes", "1", "--"}, args...)...)
		for line := range strings.Lines(string(out)) {
			var s struct {
				Table, SHA256, Error string
				Rows                 int64
			}
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			if s.Error != "" || s.SHA256 != want[s.Table] {
				t.Errorf("%s reads of the feed of %s %d rows, %s %s; want %s", engine, filepath.Base(s.Table), s.Rows, s.SHA256,
					s.Error, want[s.Table])
			}
		}
	}
}
