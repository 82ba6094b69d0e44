package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// tableOf creates a table and appends the batches, one commit each.
func tableOf(t testing.TB, st store.Store, s *delta.Schema, parts []string, batches ...arrow.RecordBatch) *delta.Snapshot {
	t.Helper()
	ctx := context.Background()
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s, PartitionBy: parts})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range batches {
		tx := table.Begin(snap, nil)
		tx.Add(writeAll(t, st, s, parts, nil, rec)...)
		tx.BlindAppend(true)
		r, err := tx.Commit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		snap = r.Snapshot
	}
	return snap
}

// scanLines returns the canonical rows of a scan, in its order.
func scanLines(t testing.TB, snap *delta.Snapshot, opts *delta.ScanOptions) (lines []string) {
	t.Helper()
	for rec, err := range snap.Scan(context.Background(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		enc := canonical.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			line, err := enc.AppendRow(nil, rec, i)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		rec.Release()
	}
	return lines
}

func where(t testing.TB, text string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// allTypes is a schema of every type that can be written, and rows with values at the edges.
func allTypes() (*delta.Schema, string) {
	inner := &delta.Struct{Fields: []delta.Field{
		{Name: "x", Type: delta.Integer, Nullable: true},
		{Name: "y", Type: &delta.Array{Element: delta.String, ContainsNull: true}, Nullable: true},
	}}
	s := fields("bool", delta.Boolean, "i8", delta.Byte, "i16", delta.Short, "i32", delta.Integer, "i64", delta.Long,
		"f32", delta.Float, "f64", delta.Double, "d5", delta.Decimal{Precision: 5, Scale: 2},
		"d18", delta.Decimal{Precision: 18, Scale: 6}, "d38", delta.Decimal{Precision: 38, Scale: 10},
		"str", delta.String, "bin", delta.Binary, "date", delta.Date, "ts", delta.Timestamp,
		"st", inner, "arr", &delta.Array{Element: inner, ContainsNull: true},
		"map", &delta.Map{Key: delta.String, Value: delta.Long, ValueContainsNull: true})
	rows := `[
	{"bool":true,"i8":127,"i16":32767,"i32":2147483647,"i64":9223372036854775807,"f32":3.4e38,"f64":1.7e308,
	 "d5":"999.99","d18":"999999999999.999999","d38":"9999999999999999999999999999.9999999999",
	 "str":"Zürich \"q\" \\ \u2028 😀","bin":"AAH/","date":"9999-12-31","ts":"9999-12-31T23:59:59.999999Z",
	 "st":{"x":1,"y":["a",null,""]},"arr":[{"x":1,"y":[]},null,{"x":null,"y":null}],
	 "map":[{"key":"b","value":1},{"key":"a","value":null}]},
	{"bool":false,"i8":-128,"i16":-32768,"i32":-2147483648,"i64":-9223372036854775808,"f32":-1.5,"f64":5e-324,
	 "d5":"-999.99","d18":"-0.000001","d38":"-0.0000000001","str":"","bin":"","date":"1582-10-15",
	 "ts":"1600-01-01T00:00:00.000001Z","st":{"x":null,"y":null},"arr":[],"map":[]},
	{"bool":null,"i8":null,"i16":null,"i32":null,"i64":null,"f32":null,"f64":null,"d5":null,"d18":null,"d38":null,
	 "str":null,"bin":null,"date":null,"ts":null,"st":null,"arr":null,"map":null}]`
	return s, rows
}

func TestScan_EveryType_ComesBack(t *testing.T) {
	s, rows := allTypes()
	rec := batchOf(t, s, rows)
	snap := tableOf(t, store.NewMem(), s, nil, rec)
	enc := canonical.NewEncoder(rec.Schema())
	var want []string
	for i := range int(rec.NumRows()) {
		line, err := enc.AppendRow(nil, rec, i)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(line))
	}
	if got := scanLines(t, snap, nil); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestScan_PartitionOfEachType_ComesBackWithItsType(t *testing.T) {
	s, rows := allTypes()
	rec := batchOf(t, s, rows)
	for _, f := range s.Fields[:14] {
		if f.Type == delta.Binary {
			continue // arbitrary bytes are no JSON text
		}
		t.Run(f.Type.String(), func(t *testing.T) {
			snap := tableOf(t, store.NewMem(), s, []string{f.Name}, rec)
			plain := tableOf(t, store.NewMem(), s, nil, rec)
			opts := &delta.ScanOptions{Columns: []string{f.Name, "i64"}}
			got, want := scanLines(t, snap, opts), scanLines(t, plain, opts)
			wanted := strings.ReplaceAll(strings.Join(want, "\n"), `"str":""`, `"str":null`) // "" is null there
			for _, line := range got {
				if !strings.Contains(wanted, line) {
					t.Errorf("got %s, wanted one of\n%s", line, wanted)
				}
			}
			if len(got) != 3 {
				t.Errorf("got %d rows, want 3", len(got))
			}
		})
	}
}

func TestScan_SpecialCharactersInPartition_ComeBack(t *testing.T) {
	s := fields("p", delta.String, "v", delta.Long)
	values := []string{"a b", "a/b", "a=b", "a%20b", "a:b", "é漢😀", `a"b\c`, "{x}[y]^", "#?*'", "a+b&c;d,e", "~!@$()<>|`",
		"\u00a0 \u2003", "\x01\x1f\x7f", "..", ".", "null"}
	var rows []string
	for i, v := range values {
		rows = append(rows, fmt.Sprintf(`{"p":%s,"v":%d}`, quoteJSON(v), i))
	}
	snap := tableOf(t, store.NewMem(), s, []string{"p"}, batchOf(t, s, "["+strings.Join(rows, ",")+"]"))
	for _, line := range scanLines(t, snap, nil) {
		var row struct {
			P string
			V int
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.P != values[row.V] {
			t.Errorf("got %s, want %q (%v)", line, values[row.V], err)
		}
	}
	for i, v := range values {
		e := where(t, "p = '"+strings.ReplaceAll(v, "'", "''")+"'")
		lines := scanLines(t, snap, &delta.ScanOptions{Where: e, Columns: []string{"v"}})
		if want := fmt.Sprintf(`{"v":%d}`, i); len(lines) != 1 || lines[0] != want {
			t.Errorf("p = %q: got %q, want %s", v, lines, want)
		}
	}
}

func quoteJSON(s string) string {
	text, _ := json.Marshal(s) // cannot fail; may escape more than needed, which reads the same
	return string(text)
}

func TestScan_Columns_InTheOrderAskedFor(t *testing.T) {
	s := fields("p", delta.String, "a", delta.Long, "b", delta.Long)
	snap := tableOf(t, store.NewMem(), s, []string{"p"}, batchOf(t, s, `[{"p":"x","a":1,"b":2}]`))
	for rec, err := range snap.Scan(context.Background(), &delta.ScanOptions{Columns: []string{"B", "p"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(rec.ColumnName(0), rec.ColumnName(1), rec.NumCols()); got != "bp2" {
			t.Errorf("got columns %s", got)
		}
	}
	if got := scanLines(t, snap, &delta.ScanOptions{Columns: []string{}}); len(got) != 1 || got[0] != "{}" {
		t.Errorf("no columns: got %q", got)
	}
	for _, err := range snap.Scan(context.Background(), &delta.ScanOptions{Columns: []string{"c"}}) {
		if err == nil || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("got %v", err)
		}
	}
}

func TestScan_ColumnAddedLater_IsNullInOldFiles(t *testing.T) {
	st := store.NewMem()
	old := fields("a", delta.Long, "s", &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long, Nullable: true}}})
	snap := tableOf(t, st, old, nil, batchOf(t, old, `[{"a":1,"s":{"x":1}}]`))
	newer := fields("b", delta.String, "s", &delta.Struct{Fields: []delta.Field{{Name: "y", Type: delta.Date, Nullable: true}}})
	merged, _, err := snap.Schema().Merge(newer)
	if err != nil {
		t.Fatal(err)
	}
	meta := *snap.Metadata()
	meta.SchemaString = merged.String()
	tx := snap.Table().Begin(snap, nil)
	tx.SetMetadata(&meta)
	tx.Add(writeAll(t, st, merged, nil, nil, batchOf(t, newer, `[{"b":"z","s":{"y":"2024-01-01"}}]`))...)
	r, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(scanLines(t, r.Snapshot, nil), "\n")
	for _, want := range []string{`{"a":1,"b":null,"s":{"x":1,"y":null}}`, `{"a":null,"b":"z","s":{"x":null,"y":"2024-01-01"}}`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s in it", got, want)
		}
	}
}

func TestScan_LimitAndEarlyStop_EndCleanly(t *testing.T) {
	s := fields("v", delta.Long)
	var batches []arrow.RecordBatch
	for i := range 10 {
		batches = append(batches, batchOf(t, s, fmt.Sprintf(`[{"v":%d},{"v":%d},{"v":%d}]`, i, i, i)))
	}
	snap := tableOf(t, store.NewMem(), s, nil, batches...)
	if got := scanLines(t, snap, &delta.ScanOptions{Limit: 7}); len(got) != 7 {
		t.Errorf("got %d rows, want 7", len(got))
	}
	for rec, err := range snap.Scan(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		rec.Release()
		break
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range snap.Scan(ctx, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

// readCounter counts the data files that are read.
type readCounter struct {
	store.Store
	reads chan string
}

func (c *readCounter) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if strings.HasSuffix(key, ".parquet") {
		c.reads <- key
	}
	return c.Store.ReadRange(ctx, key, offset, length)
}

func TestScan_Where_ReadsOnlyFilesThatMayMatch(t *testing.T) {
	s := fields("p", delta.Date, "v", delta.Long, "t", delta.Timestamp, "s", delta.String)
	long := strings.Repeat("k", 40)
	var batches []arrow.RecordBatch
	for i := range 5 {
		batches = append(batches, batchOf(t, s, fmt.Sprintf(
			`[{"p":"2024-01-0%d","v":%d,"t":"2024-01-01T00:00:0%d.0005Z","s":"%s%d"},{"p":"2024-01-0%d","v":null,"t":null,"s":null}]`,
			i+1, i*10, i, long, i, i+1)))
	}
	c := &readCounter{Store: store.NewMem(), reads: make(chan string, 1000)}
	snap := tableOf(t, c, s, []string{"p"}, batches...)
	for _, q := range []struct {
		where       string
		rows, files int
	}{
		{"p = DATE '2024-01-03'", 2, 1},
		{"p > DATE '2024-01-03' AND v IS NOT NULL", 2, 2},
		{"v = 20", 1, 1},
		{"v >= 20 AND v < 40", 2, 2},
		{"t >= TIMESTAMP '2024-01-01T00:00:04.0005Z'", 1, 1},
		{"t > TIMESTAMP '2024-01-01T00:00:04.0005Z'", 0, 1},
		{"s = '" + long + "4'", 1, 5},
		{"s = 'z'", 0, 0},
		{"v = 1000", 0, 0},
		{"v IS NULL", 5, 5},
	} {
		got := scanLines(t, snap, &delta.ScanOptions{Where: where(t, q.where)})
		files := make(map[string]bool)
		for len(c.reads) > 0 {
			files[<-c.reads] = true
		}
		if len(got) != q.rows || len(files) != q.files {
			t.Errorf("%s: got %d rows of %d files, want %d of %d", q.where, len(got), len(files), q.rows, q.files)
		}
	}
}

// TestScan_RandomConditions_PruningLosesNoRow compares scans with a filter over everything.
func TestScan_RandomConditions_PruningLosesNoRow(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, seed))
	s := fields("p", delta.Integer, "a", delta.Long, "f", delta.Double, "s", delta.String)
	value := func() string { return fmt.Sprint(r.IntN(12) - 6) }
	orNull := func(v string) string {
		if r.IntN(4) == 0 {
			return "null"
		}
		return v
	}
	var batches []arrow.RecordBatch
	for range 12 {
		var rows []string
		for range 1 + r.IntN(4) {
			rows = append(rows, fmt.Sprintf(`{"p":%s,"a":%s,"f":%s,"s":%s}`, orNull(fmt.Sprint(r.IntN(3))), orNull(value()),
				orNull(value()+".5"), orNull(`"`+strings.Repeat("x", 30+r.IntN(4))+value()+`"`)))
		}
		batches = append(batches, batchOf(t, s, "["+strings.Join(rows, ",")+"]"))
	}
	snap := tableOf(t, store.NewMem(), s, []string{"p"}, batches...)
	ops := []string{"=", "<", "<=", ">", ">=", "<>", "<=>"}
	term := func() string {
		op := ops[r.IntN(len(ops))]
		switch r.IntN(6) {
		case 0:
			return fmt.Sprintf("p %s %d", op, r.IntN(3))
		case 1:
			return fmt.Sprintf("f %s %s", op, value())
		case 2:
			return fmt.Sprintf("s %s '%s%s'", op, strings.Repeat("x", 30+r.IntN(4)), value())
		case 3:
			return []string{"a", "p", "s", "f"}[r.IntN(4)] + []string{" IS NULL", " IS NOT NULL"}[r.IntN(2)]
		}
		return fmt.Sprintf("a %s %s", op, value())
	}
	for range 100 {
		text := term()
		for range r.IntN(3) {
			text = fmt.Sprintf("(%s %s %s)", text, []string{"AND", "OR"}[r.IntN(2)], term())
		}
		if r.IntN(4) == 0 {
			text = "NOT " + text
		}
		got := scanLines(t, snap, &delta.ScanOptions{Where: where(t, text)})
		if want := filterAll(t, snap, text); len(got) != want {
			t.Errorf("seed %d: %s: got %d rows, want %d", seed, text, len(got), want)
		}
	}
}

func filterAll(t *testing.T, snap *delta.Snapshot, text string) (rows int) {
	for rec, err := range snap.Scan(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		bound, err := where(t, text).BindCondition(rec.Schema())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := bound.Filter(context.Background(), rec)
		if err != nil {
			t.Fatal(err)
		}
		rows += int(kept.NumRows())
	}
	return rows
}

func TestScan_DamagedFile_IsAnErrorNotAPanic(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	s, rows := allTypes()
	st := store.NewMem()
	snap := tableOf(t, st, s, nil, batchOf(t, s, rows))
	var key string
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		key, _ = url.PathUnescape(a.Path)
	}
	whole, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		broken := append([]byte(nil), whole...)
		for range 1 + r.IntN(4) {
			broken[r.IntN(len(broken))] ^= byte(1 << r.IntN(8))
		}
		if err := st.Put(context.Background(), key, broken); err != nil {
			t.Fatal(err)
		}
		for rec, err := range snap.Scan(context.Background(), nil) {
			if err != nil && !errors.Is(err, delta.ErrCorrupt) && !errors.Is(err, delta.ErrUnsupportedFeature) {
				t.Errorf("seed %d: got %v, want ErrCorrupt", seed, err)
			}
			if rec != nil {
				rec.Release()
			}
		}
	}
}
