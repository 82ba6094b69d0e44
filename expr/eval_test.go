package expr_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the cases give into testdata")

var testClock = time.Date(2024, 5, 1, 10, 30, 15, 123456000, time.UTC)

// testBatch has a column of every type; its second row is null throughout.
func testBatch(t testing.TB) arrow.RecordBatch {
	t.Helper()
	const rows = `[
 {"b":true, "i8":-5, "i16":300, "i32":70000, "i64":9007199254740993, "f32":1.5, "f64":-2.25, "dec":"123.45",
  "s":"Hällo, Wörld", "bin":"AQL/", "d":"2024-02-29", "ts":"2024-05-01T10:30:15.123456Z",
  "ntz":"1969-12-31 23:59:59.999999", "j":"{\"a\":{\"b\":[1,\"x\\u00e9\",null]},\"n\":12.50}",
  "st":{"x":1,"y":"in","deep":{"z":2.5}}, "arr":[10,20,30], "m":[{"key":"k","value":1},{"key":"l","value":null}],
  "zero":0, "num":"42", "odd name":7},
 {},
 {"b":false, "i8":127, "i16":-1, "i32":0, "i64":-9223372036854775808, "f32":0.1, "f64":1e300, "dec":"-0.01",
  "s":"", "bin":"", "d":"1970-01-01", "ts":"1970-01-01T00:00:00Z", "ntz":"2000-01-01 00:00:00", "j":"not json",
  "st":{"x":null,"y":null,"deep":null}, "arr":[], "m":[], "zero":1, "num":"x", "odd name":8}
]`
	opt := func(name string, dt arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: dt, Nullable: true}
	}
	p := arrow.PrimitiveTypes
	schema := arrow.NewSchema([]arrow.Field{
		opt("b", arrow.FixedWidthTypes.Boolean), opt("i8", p.Int8), opt("i16", p.Int16), opt("i32", p.Int32),
		opt("i64", p.Int64), opt("f32", p.Float32), opt("f64", p.Float64),
		opt("dec", &arrow.Decimal128Type{Precision: 10, Scale: 2}),
		opt("s", arrow.BinaryTypes.String), opt("bin", arrow.BinaryTypes.Binary), opt("d", p.Date32),
		opt("ts", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}),
		opt("ntz", &arrow.TimestampType{Unit: arrow.Microsecond}), opt("j", arrow.BinaryTypes.String),
		opt("st", arrow.StructOf(opt("x", p.Int64), opt("y", arrow.BinaryTypes.String),
			opt("deep", arrow.StructOf(opt("z", p.Float64))))),
		opt("arr", arrow.ListOf(p.Int64)), opt("m", arrow.MapOf(arrow.BinaryTypes.String, p.Int64)),
		opt("zero", p.Int32), opt("num", arrow.BinaryTypes.String), opt("odd name", p.Int64),
	}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// show is the array's type and values on one line, with the faults of its rows.
func show(arr arrow.Array, err error) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s:", arr.DataType())
	faults := map[int]string{}
	var rows *expr.RowErrors
	if errors.As(err, &rows) {
		for _, r := range rows.Rows {
			faults[r.Row] = r.Err.Error()
		}
	} else if err != nil {
		return "error " + err.Error()
	}
	for i := range arr.Len() {
		value := arr.ValueStr(i)
		if s, ok := arr.(*array.String); ok && s.IsValid(i) {
			value = "'" + strings.ReplaceAll(value, "\n", `\n`) + "'"
		}
		if value == "" {
			value = "empty"
		}
		if arr.IsNull(i) {
			value = "null"
		}
		if fault, ok := faults[i]; ok {
			value = "!" + fault
			if arr.IsValid(i) {
				value = "!NOT NULL! " + value
			}
		}
		out.WriteString(" | " + value)
	}
	return out.String()
}

func evaluate(t testing.TB, src string, rec arrow.RecordBatch) string {
	t.Helper()
	e, err := expr.Parse(src)
	if err != nil {
		return "error " + err.Error()
	}
	b, err := e.Bind(rec.Schema())
	if err != nil {
		return "error " + err.Error()
	}
	arr, err := b.Eval(expr.WithClock(context.Background(), testClock), rec)
	if arr == nil {
		return "error " + err.Error()
	}
	defer arr.Release()
	if !arrow.TypeEqual(arr.DataType(), b.Type()) {
		t.Errorf("%s: array is %s, Type says %s", src, arr.DataType(), b.Type())
	}
	if arr.NullN() > 0 && !b.Nullable() && err == nil {
		t.Errorf("%s: nulls where Nullable says none", src)
	}
	return show(arr, err)
}

// TestEval_Cases runs the expressions of testdata: each line is an expression, the next, indented, what it
// gives.
func TestEval_Cases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	rec := testBatch(t)
	defer rec.Release()
	for _, path := range files {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range archive.Files {
			t.Run(f.Name, func(t *testing.T) {
				archive.Files[i].Data = []byte(runCases(t, string(f.Data), rec))
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func runCases(t *testing.T, text string, rec arrow.RecordBatch) string {
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, src := range lines {
		if strings.HasPrefix(src, "    ") {
			continue
		}
		out.WriteString(src + "\n")
		if src == "" || strings.HasPrefix(src, "#") {
			continue
		}
		got := evaluate(t, src, rec)
		out.WriteString("    " + got + "\n")
		want := ""
		if i+1 < len(lines) {
			want = strings.TrimPrefix(lines[i+1], "    ")
		}
		if !*update && got != want {
			t.Errorf("%s\n got %s\nwant %s", src, got, want)
		}
	}
	return out.String()
}

// TestEval_Cases_EveryFunction keeps the cases complete.
func TestEval_Cases_EveryFunction(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	missing := slices.DeleteFunc(expr.Functions(), func(name string) bool {
		return strings.Contains(all.String(), name+"(")
	})
	if len(missing) > 0 {
		t.Errorf("functions without a case: %v", missing)
	}
}
