package expr_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// TestParseSpark_SameAsSpark compares with what Spark gave for the same rows: no result differs. A row that fails here
// and not there is allowed, and so is an expression that is refused, if it is among those named.
func TestParseSpark_SameAsSpark(t *testing.T) {
	data, err := os.ReadFile("testdata/spark.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	var cases [][]string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if row, ok := strings.CutPrefix(line, "row\t"); ok {
			rows = append(rows, row)
		} else if line[0] != '#' {
			cases = append(cases, strings.Split(line, "\t"))
		}
	}
	rec := sparkRows(t, rows)
	defer rec.Release()
	refused := map[string]bool{"CAST(f64 AS STRING)": true, "CAST(f32 AS STRING)": true, "trunc(d, 'Q') IS NULL": true}
	for _, c := range cases {
		got, err := sparkTexts(t, c[0], rec)
		if err != nil != refused[c[0]] {
			t.Errorf("%s: got %v, refused: want %t", c[0], err, refused[c[0]])
		}
		if err != nil {
			continue
		}
		for i, want := range c[1:] {
			if got[i] != want && got[i] != "!" && !sameFloat(got[i], want) {
				t.Errorf("%s: row %d: got %s, want %s", c[0], i, got[i], want)
			}
		}
	}
}

func sparkRows(t *testing.T, rows []string) arrow.RecordBatch {
	t.Helper()
	p := arrow.PrimitiveTypes
	var fields []arrow.Field
	for _, f := range []arrow.Field{{Name: "id", Type: p.Int32}, {Name: "i8", Type: p.Int8}, {Name: "i32", Type: p.Int32},
		{Name: "i64", Type: p.Int64}, {Name: "f32", Type: p.Float32}, {Name: "f64", Type: p.Float64},
		{Name: "dec", Type: &arrow.Decimal128Type{Precision: 10, Scale: 2}},
		{Name: "big", Type: &arrow.Decimal128Type{Precision: 20, Scale: 5}},
		{Name: "s", Type: arrow.BinaryTypes.String}, {Name: "d", Type: p.Date32},
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
		{Name: "arr", Type: arrow.ListOf(p.Int32)}, {Name: "b", Type: arrow.FixedWidthTypes.Boolean}} {
		f.Nullable = true
		fields = append(fields, f)
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil),
		strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// sparkTexts are the results as CAST to string gives them; those that are floats as digits.
func sparkTexts(t *testing.T, src string, rec arrow.RecordBatch) ([]string, error) {
	t.Helper()
	e, err := expr.ParseSpark(src)
	if err != nil {
		return nil, err
	}
	b, err := e.Bind(rec.Schema())
	if err != nil {
		return nil, err
	}
	if id := b.Type().ID(); id != arrow.FLOAT32 && id != arrow.FLOAT64 {
		src = "CAST((" + src + ") AS STRING)"
	}
	text, err := sparkCells(t, src, rec)
	cells := strings.Split(text, " | ")
	for i, c := range cells {
		if c == "(null)" {
			cells[i] = "null"
		}
		cells[i] = strings.ReplaceAll(cells[i], "\t", `\t`)
	}
	return cells, err
}

func sameFloat(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	single := float32(x) == float32(y)
	return err1 == nil && err2 == nil && (x == y || x != x && y != y || single && len(a) < 16)
}
