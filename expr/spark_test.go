package expr_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// sparkCells are the results of an expression in Spark's SQL, one a row; ! stands for a row that failed.
func sparkCells(t testing.TB, src string, rec arrow.RecordBatch) (string, error) {
	t.Helper()
	e, err := expr.ParseSpark(src)
	if err != nil {
		return "", err
	}
	b, err := e.Bind(rec.Schema())
	if err != nil {
		return "", err
	}
	out, err := b.Eval(context.Background(), rec)
	var rows *expr.RowErrors
	if err != nil && !errors.As(err, &rows) {
		return "", err
	}
	defer out.Release()
	cells := make([]string, out.Len())
	for i := range cells {
		cells[i] = out.ValueStr(i)
	}
	if rows != nil {
		for _, r := range rows.Rows {
			cells[r.Row] = "!"
		}
	}
	return strings.Join(cells, " | "), nil
}

func TestParseSpark_MeansWhatSparkMeans(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	for _, c := range []struct{ src, want string }{
		{`"a\tb" = 'a	b'`, "true | true | true"},
		{`i8 + 1`, "-4 | (null) | 128"},
		{`i64 + 1`, "9007199254740994 | (null) | -9223372036854775807"},
		{`CAST(f64 AS INT)`, "-2 | (null) | !"},
		{`CAST(dec AS INT)`, "123 | (null) | 0"},
		{`-7 DIV 2`, "-3 | -3 | -3"},
		{`-7 % 4`, "-3 | -3 | -3"},
		{`pmod(-7, 4)`, "1 | 1 | 1"},
		{`7 / 2`, "3.5 | 3.5 | 3.5"},
		{`f32 > 0.1`, "true | (null) | true"},
		{`concat(s, num)`, "Hällo, Wörld42 | (null) | x"},
		{`arr[0]`, "10 | (null) | !"},
		{`element_at(arr, -1)`, "30 | (null) | !"},
		{`m['k']`, "1 | (null) | (null)"},
		{`st.x = 1`, "true | (null) | (null)"},
		{`substring(s, -5, 2)`, "Wö | (null) | "},
		{`left(s, -1)`, " | (null) | "},
		{`s LIKE 'H%\\_'`, "false | (null) | false"},
		{`s RLIKE '^H.*d$'`, "true | (null) | false"},
		{`NOT s RLIKE 'W'`, "false | (null) | true"},
		{`size(arr) > 0 AND array_contains(arr, 20)`, "true | (null) | false"},
		{`year(d) * 100 + month(d)`, "202402 | (null) | 197001"},
		{`date_trunc('HOUR', ts)`, "2024-05-01T10:00:00Z | (null) | 1970-01-01T00:00:00Z"},
		{`trunc(d, 'MM')`, "2024-02-01 | (null) | 1970-01-01"},
		{`date_format(ts, 'yyyy-MM-dd HH')`, "2024-05-01 10 | (null) | 1970-01-01 00"},
		{`CAST(i32 AS TIMESTAMP)`, "1970-01-01T19:26:40Z | (null) | 1970-01-01T00:00:00Z"},
		{`d > '2000-01-01'`, "true | (null) | false"},
		{`dayofweek(d)`, "5 | (null) | 5"},
		{`CASE WHEN b THEN 'x' ELSE 'y' END`, "x | y | y"},
		{`! b`, "false | (null) | true"},
		{`d + INTERVAL 1 MONTH 2 DAYS`, "2024-03-31 | (null) | 1970-02-03"},
		{`10L > 5S AND 1.5D > 1BD`, "true | true | true"},
		{`hash('Spark')`, "228093765 | 228093765 | 228093765"},
		{`hash(1)`, "-559580957 | -559580957 | -559580957"},
	} {
		got, err := sparkCells(t, c.src, rec)
		if err != nil || got != c.want {
			t.Errorf("%s: got %s (%v), want %s", c.src, got, err, c.want)
		}
	}
}

func TestParseSpark_WhatMayMeanSomethingElse_IsRefusedWithItsPlace(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	for _, src := range []string{
		`'a''b'`, `round(f64, 1)`, `f32 + i64`, `s RLIKE '(?=x)'`, `s RLIKE '\\bx'`, `date_format(ts, 'w')`,
		`CAST(bin AS STRING)`, `soundex(s)`, `rand()`, `strftime(ts, '%Y')`, `d - d`, `dec * dec * dec * dec`,
		`transform(arr, x -> x + 1)`, `arr[0`, `s COLLATE UNICODE`, `ltrim('x', s)`,
	} {
		got, err := sparkCells(t, src, rec)
		var fault *expr.Error
		if !errors.As(err, &fault) || fault.Line < 1 {
			t.Errorf("%s: got %s (%v), want an Error with a place", src, got, err)
		}
	}
}

func TestParseSpark_LettersWithAnotherLengthInUpperCase_FailTheRow(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	if got, err := sparkCells(t, `upper('straße')`, rec); err != nil || got != "! | ! | !" {
		t.Errorf("got %s (%v), want every row to fail", got, err)
	}
	if got, err := sparkCells(t, `upper(s)`, rec); err != nil || got != "HÄLLO, WÖRLD | (null) | " {
		t.Errorf("got %s (%v)", got, err)
	}
}

// FuzzParseSpark checks that no text makes parsing, binding or running panic, and that a text that parses is given back.
func FuzzParseSpark(f *testing.F) {
	for _, src := range []string{`a > 0`, `CAST(ts AS DATE)`, `s RLIKE '^a+$' AND NOT size(arr) > 1L`, `"x\n" || r'\d'`,
		`date_trunc('day', ts) + INTERVAL -1 DAY 2 HOURS`, `hash(s, i64, f64, dec, d)`, `xxhash64(s, bin)`, `arr[0] DIV 2`,
		`CASE i8 WHEN 1 THEN 'a' ELSE s END`, `element_at(m, 'k') BETWEEN 1 AND 2`, `st.deep.z <=> 2.5`,
		`substring(s, -3, 2) LIKE '%\\%'`} {
		f.Add(src)
	}
	rec := testBatch(f)
	f.Fuzz(func(t *testing.T, src string) {
		e, err := expr.ParseSpark(src)
		if err != nil {
			return
		}
		if e.String() != src {
			t.Errorf("got %q, want %q", e.String(), src)
		}
		b, err := e.Bind(rec.Schema())
		if err != nil {
			return
		}
		out, err := b.Eval(context.Background(), rec)
		var rows *expr.RowErrors
		if err != nil && !errors.As(err, &rows) {
			return
		}
		out.Release()
	})
}
