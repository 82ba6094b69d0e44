package expr_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/expr"
)

// caseExpressions are the expressions of testdata.
func caseExpressions(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n")[2:] {
			if line != "" && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "-- ") {
				out = append(out, line)
			}
		}
	}
	return out
}

func TestString_OfEveryCase_ParsesToTheSame(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	for _, src := range caseExpressions(t) {
		e, err := expr.Parse(src)
		if err != nil {
			continue
		}
		again, err := expr.Parse(e.String())
		if err != nil {
			t.Errorf("%s prints as %s: %v", src, e, err)
			continue
		}
		if again.String() != e.String() {
			t.Errorf("%s prints as %s, and that as %s", src, e, again)
		}
		strip := func(s string) string {
			if strings.Contains(s, "error ") || strings.Contains(s, "!") {
				return "fault"
			}
			return s
		}
		if got, want := strip(evaluate(t, e.String(), rec)), strip(evaluate(t, src, rec)); got != want {
			t.Errorf("%s gives %s, its print %s gives %s", src, want, e, got)
		}
	}
}

func TestString_Canonical(t *testing.T) {
	for src, want := range map[string]string{
		"a!=1 and not b  or c":                 "a <> 1 AND NOT b OR c",
		"(a and b) and c":                      "(a AND b) AND c",
		"a and (b or c)":                       "a AND (b OR c)",
		"not (a = b)":                          "NOT a = b",
		"(not a) = b":                          "(NOT a) = b",
		"a - (b - c) - d":                      "a - (b - c) - d",
		"-(a + b) * - 3":                       "-(a + b) * -3",
		"- - a":                                "-(-a)",
		"+a":                                   "a",
		"x::INT::varchar":                      "CAST(CAST(x AS int) AS string)",
		"try_cast(x as NUMERIC(10, 2))":        "TRY_CAST(x AS decimal(10, 2))",
		"\"a b\".c[1].`d\"e`":                  `"a b".c[1]."d""e"`,
		"LOWER ( x )":                          "lower(x)",
		"a is not distinct from b":             "a <=> b",
		"a is distinct from b":                 "NOT a <=> b",
		"case a when 1 then 'x' else null end": "CASE a WHEN 1 THEN 'x' ELSE NULL END",
		"a between 1 and 2 and b not in (1,2)": "a BETWEEN 1 AND 2 AND b NOT IN (1, 2)",
		"a not ilike 'x%' escape '!'":          "a NOT ILIKE 'x%' ESCAPE '!'",
		"date'2024-01-01' + interval 2 days":   "DATE '2024-01-01' + INTERVAL '2' DAY",
		"extract(year from ts)":                "date_part('year', ts)",
		"date + timestamp":                     "date + timestamp",
		"\"case\" || interval":                 `"case" || interval`,
		"(a || b) || c":                        "(a || b) || c",
		"a = b = c":                            "(a = b) = c",
		"(a < b) is null":                      "(a < b) IS NULL",
		"a.b + f(x).c":                         "a.b + f(x).c",
		"- 5 + -x[1]":                          "-5 + -x[1]",
		"a /* c */ div 2 -- rest":              "a // 2",
		"straße = 'x'":                         "straße = 'x'",
	} {
		e, err := expr.Parse(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if e.String() != want {
			t.Errorf("%s prints as\n %s\nwant\n %s", src, e, want)
		}
	}
}

func TestParse_HostileText_IsRefusedNotCrashed(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	for name, src := range map[string]string{
		"parentheses": strings.Repeat("(", 60_000),
		"nested":      strings.Repeat("(", 600) + "1" + strings.Repeat(")", 600),
		"not":         strings.Repeat("NOT ", 10_000) + "b",
		"minus":       strings.Repeat("- ", 30_000) + "1",
		"case":        strings.Repeat("CASE WHEN b THEN ", 3_000) + "1",
		"calls":       strings.Repeat("lower(", 10_000) + "s",
		"left deep":   "1" + strings.Repeat(" + 1", 15_000),
		"casts":       "i8" + strings.Repeat("::int", 10_000),
		"indexes":     "arr" + strings.Repeat("[1]", 20_000),
		"is":          "b" + strings.Repeat(" IS NULL", 8_000),
		"long":        strings.Repeat(" ", 70_000) + "1",
		"bytes":       "a\xff",
		"nul":         "a\x00",
		"empty":       "",
		"types":       "CAST(1 AS decimal(99999999999999999999, 1))",
	} {
		e, err := expr.Parse(src)
		var fault *expr.Error
		if !errors.As(err, &fault) || fault.Kind != expr.Syntax {
			t.Errorf("%s: got %v, want a syntax error", name, err)
		}
		if e != nil {
			t.Errorf("%s: an expression came with the error", name)
		}
	}
	for name, src := range map[string]string{
		"or":       "b" + strings.Repeat(" OR b", 10_000),
		"and":      "b" + strings.Repeat(" AND b", 10_000),
		"concat":   "s" + strings.Repeat(" || s", 10_000),
		"in":       "i8 IN (1" + strings.Repeat(", 1", 20_000) + ")",
		"coalesce": "coalesce(i8" + strings.Repeat(", i8", 10_000) + ")",
		"when":     "CASE" + strings.Repeat(" WHEN b THEN 1", 4_000) + " END",
		"names":    "st" + strings.Repeat(".x", 30_000),
		"depth":    "1" + strings.Repeat(" + 1", 400),
	} {
		if _, err := expr.Parse(src); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		evaluate(t, src, rec)
	}
}

func TestParseNamed_Names(t *testing.T) {
	for src, want := range map[string]string{
		"a": "a", "a.b": "b", `a AS "x y"`: "x y", "a + 1 AS c": "c", "a + 1": "", "lower(a)": "", "a as select": "select",
	} {
		if _, name, err := expr.ParseNamed(src); err != nil || name != want {
			t.Errorf("%s: got %q, %v, want %q", src, name, err, want)
		}
	}
	for _, src := range []string{"a AS", "a b", "a AS b c", "a AS 1"} {
		if _, _, err := expr.ParseNamed(src); err == nil {
			t.Errorf("%s: no error", src)
		}
	}
}

func TestError_At_MovesIntoTheFile(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	cases := []struct {
		src               string
		line, col, indent int
		wantLine, wantCol int
		kind              expr.Kind
		length            int
	}{
		{"i8 + missing", 12, 15, 0, 12, 20, expr.UnknownColumn, 7},
		{"i8 +\n  missing", 12, 15, 6, 13, 9, expr.UnknownColumn, 7},
		{"'ä' + 1", 1, 1, 0, 1, 5, expr.BadType, 1},
		{"i8 +", 3, 9, 0, 3, 13, expr.Syntax, 1},
	}
	for _, c := range cases {
		e, err := expr.Parse(c.src)
		if err == nil {
			_, err = e.Bind(rec.Schema())
		}
		var fault *expr.Error
		if !errors.As(err, &fault) {
			t.Errorf("%q: got %v", c.src, err)
			continue
		}
		got := fault.At(c.line, c.col, c.indent)
		if got.Line != c.wantLine || got.Col != c.wantCol || got.Kind != c.kind || got.Len != c.length {
			t.Errorf("%q: got %d:%d kind %d length %d, want %d:%d kind %d length %d", c.src, got.Line, got.Col, got.Kind,
				got.Len, c.wantLine, c.wantCol, c.kind, c.length)
		}
	}
}

func TestColumns_NamesOnce_InSchemaOrder(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	e, err := expr.Parse("st.x + I64 > i8 OR i8 IS NULL OR current_date = d")
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Bind(rec.Schema())
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(b.Columns(), " "); got != "i8 i64 d st" {
		t.Errorf("got %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, src := range caseExpressions(f) {
		f.Add(src)
	}
	rec := testBatch(f)
	f.Add("1 .C")
	f.Fuzz(func(t *testing.T, src string) {
		e, err := expr.Parse(src)
		if err != nil {
			return
		}
		printed := e.String()
		again, err := expr.Parse(printed)
		if err != nil {
			if len(printed) > expr.MaxLength || strings.Contains(err.Error(), "deeper") {
				return
			}
			t.Fatalf("%q prints as %q: %v", src, printed, err)
		}
		if again.String() != printed {
			t.Fatalf("%q prints as %q, and that as %q", src, printed, again)
		}
		if len(src) < 1000 {
			evaluate(t, src, rec)
		}
	})
}
