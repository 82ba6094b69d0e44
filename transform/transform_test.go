package transform_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/transform"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "host", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "n", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// batch has four rows; the last two are of one record.
func batch(t *testing.T) *freshet.Batch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[
		{"id": 1, "host": "a.example", "n": "10"},
		{"id": 2, "host": "b.internal", "n": "x"},
		{"id": 3, "host": null, "n": "30"},
		{"id": 4, "host": "c.example", "n": "y"}]`))
	if err != nil {
		t.Fatal(err)
	}
	b := &freshet.Batch{
		Lane: freshet.Lane{Origin: "clicks", Name: "0"}, After: 9, Last: 20, Rows: rec,
		Kinds:   []freshet.Kind{freshet.Insert, freshet.Delete, freshet.Insert, freshet.UpdatePostimage},
		Seqs:    []int64{10, 11, 12, 12},
		Records: records("p1", "p2", "p34", "p34"),
		Rejects: []freshet.Reject{{Seq: 15, Step: "decode"}},
		ReadAt:  time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC),
	}
	t.Cleanup(b.Release)
	return b
}

// records are records of these payloads, each with its key and a header.
func records(payloads ...string) []freshet.RecordRef {
	refs := make([]freshet.RecordRef, len(payloads))
	for i, p := range payloads {
		refs[i] = &freshet.Record{Raw: []byte(p), Key: []byte("key " + p), Time: time.Unix(int64(i), 0),
			Headers: []freshet.Header{{Key: "of", Value: []byte(p)}}}
	}
	return refs
}

func parse(t *testing.T, src string) *expr.Expr { return must(t, src) }

func must(t testing.TB, src string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func derive(t *testing.T, pairs ...string) *transform.Derive {
	t.Helper()
	var columns []transform.Column
	for i := 0; i < len(pairs); i += 2 {
		columns = append(columns, transform.Column{Name: pairs[i], Expr: parse(t, pairs[i+1])})
	}
	return transform.NewDerive(columns)
}

func apply(t *testing.T, b *freshet.Batch, step freshet.Step) {
	t.Helper()
	var planned *arrow.Schema
	if b.Rows != nil {
		var err error
		if planned, err = step.Plan(b.Rows.Schema()); err != nil {
			t.Fatal(err)
		}
	}
	if err := step.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if b.Rows != nil && !b.Rows.Schema().Equal(planned) {
		t.Errorf("Apply gave %v, Plan said %v", b.Rows.Schema(), planned)
	}
	for what, n := range map[string]int{"seqs": len(b.Seqs), "kinds": len(b.Kinds), "records": len(b.Records)} {
		if n != b.NumRows() {
			t.Errorf("%d %s for %d rows", n, what, b.NumRows())
		}
	}
}

// rows is the batch's rows as text.
func rows(b *freshet.Batch) string {
	if b.Rows == nil {
		return "none"
	}
	var out []string
	for i := range b.NumRows() {
		var cells []string
		for c, col := range b.Rows.Columns() {
			cells = append(cells, b.Rows.ColumnName(c)+"="+col.ValueStr(i))
		}
		out = append(out, fmt.Sprintf("%s@%d %s", strings.Join(cells, " "), b.Seqs[i], b.Kinds[i]))
	}
	return strings.Join(out, "\n")
}

func rejects(b *freshet.Batch) string {
	var out []string
	for _, r := range b.Rejects {
		out = append(out, fmt.Sprintf("%d/%d %s %s %q %s", r.Seq, r.Row, r.Step, r.Code, r.Raw, r.Message))
	}
	return strings.Join(out, "\n")
}

func expect(t *testing.T, what, got string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("%s:\n got %s\nwant %s", what, got, w)
	}
}

func TestDerive_LaterSeesEarlierAndReplaces_ColumnsInOrder(t *testing.T) {
	b := batch(t)
	apply(t, b, derive(t, "up", "upper(host)", "HOST", "up || '!'", "t", "year(current_timestamp)"))
	expect(t, "rows", rows(b),
		"id=1 HOST=A.EXAMPLE! n=10 up=A.EXAMPLE t=2024@10 insert",
		"id=2 HOST=B.INTERNAL! n=x up=B.INTERNAL t=2024@11 delete",
		"id=3 HOST=(null) n=30 up=(null) t=2024@12 insert",
		"id=4 HOST=C.EXAMPLE! n=y up=C.EXAMPLE t=2024@12 update_postimage")
}

func TestDerive_RowsThatFail_BecomeRejectsWithPayload(t *testing.T) {
	b := batch(t)
	apply(t, b, derive(t, "v", "CAST(n AS int)", "w", "10 / (v - 10)"))
	expect(t, "rows", rows(b), "id=3 host=(null) n=30 v=30 w=0.5@12 insert")
	expect(t, "rejects", rejects(b),
		`10/0 derive FRE-3101 "p1" column "w": 1:4: division by zero`,
		`11/0 derive FRE-3101 "p2" column "v": 1:1: cannot cast 'x' to int: not a number`,
		`12/1 derive FRE-3101 "p34" column "v": 1:1: cannot cast 'y' to int: not a number`,
		`15/0 decode  "" `)
}

func TestFilter_NullAndFalse_AreDropped(t *testing.T) {
	b := batch(t)
	apply(t, b, transform.NewFilter(parse(t, "host NOT LIKE '%.internal'")))
	expect(t, "rows", rows(b), "id=1 host=a.example n=10@10 insert", "id=4 host=c.example n=y@12 update_postimage")
	expect(t, "rejects", rejects(b), `15/0 decode  "" `)
	if b.Last != 20 {
		t.Errorf("Last moved to %d", b.Last)
	}
}

func TestFilter_RowsThatFail_BecomeRejects(t *testing.T) {
	b := batch(t)
	apply(t, b, transform.NewFilter(parse(t, "CAST(n AS int) > 20")))
	expect(t, "rows", rows(b), "id=3 host=(null) n=30@12 insert")
	expect(t, "rejects", rejects(b),
		`11/0 filter FRE-3101 "p2" 1:1: cannot cast 'x' to int: not a number`,
		`12/1 filter FRE-3101 "p34" 1:1: cannot cast 'y' to int: not a number`,
		`15/0 decode  "" `)
}

func TestReject_RecordsKept_RejectHasACopy(t *testing.T) {
	b := batch(t)
	lent := b.Records[1].(*freshet.Record)
	apply(t, b, derive(t, "v", "CAST(n AS int)"))
	want := lent.Clone()
	clear(lent.Key)
	clear(lent.Headers[0].Value)
	if got := b.Rejects[0].Record; !reflect.DeepEqual(got, want) {
		t.Errorf("got the record %+v, want %+v", got, want)
	}
}

func TestFilter_AllTrue_BatchIsLeftAlone(t *testing.T) {
	b := batch(t)
	before := b.Rows
	apply(t, b, transform.NewFilter(parse(t, "id > 0")))
	if b.Rows != before {
		t.Error("the rows were copied")
	}
}

func TestFilter_NoneTrue_BatchStillHasProgress(t *testing.T) {
	b := batch(t)
	b.Kinds = nil
	apply(t, b, transform.NewFilter(parse(t, "NULL")))
	expect(t, "rows", rows(b), "none")
	apply(t, b, derive(t, "x", "1"))
	if b.After != 9 || b.Last != 20 || b.NumRows() != 0 {
		t.Errorf("got %d rows of (%d, %d]", b.NumRows(), b.After, b.Last)
	}
}

func TestReject_RecordsRowsInSeveralSteps_NumbersDiffer(t *testing.T) {
	b := batch(t)
	apply(t, b, transform.NewFilter(parse(t, "CASE WHEN id = 3 THEN 1 // 0 = 1 ELSE TRUE END")))
	apply(t, b, derive(t, "v", "CAST(n AS int)"))
	expect(t, "rejects", rejects(b),
		`11/0 derive FRE-3101 "p2" column "v": 1:1: cannot cast 'x' to int: not a number`,
		`12/0 filter FRE-3101 "p34" 1:25: division by zero`,
		`12/1 derive FRE-3101 "p34" column "v": 1:1: cannot cast 'y' to int: not a number`,
		`15/0 decode  "" `)
}

func TestSelect_ColumnsAndExpressions_OnlyThese(t *testing.T) {
	b := batch(t)
	var columns []transform.Column
	for _, src := range []string{"n", "id * 2 AS double_id", `host AS "Host name"`} {
		c, err := transform.ParseColumn(src)
		if err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	s, err := transform.NewSelect(columns)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, b, s)
	expect(t, "rows", rows(b),
		"n=10 double_id=2 Host name=a.example@10 insert", "n=x double_id=4 Host name=b.internal@11 delete",
		"n=30 double_id=6 Host name=(null)@12 insert", "n=y double_id=8 Host name=c.example@12 update_postimage")
	for out, want := range map[string]string{"n": "n", "Host name": "host", "double_id": "", "id": ""} {
		if in, _ := s.Origin(out); in != want {
			t.Errorf("Origin(%q) = %q, want %q", out, in, want)
		}
	}
}

func TestNewSelect_BadLists_AreRefused(t *testing.T) {
	for want, list := range map[string][]string{
		"is empty": {}, "has no name; write id + 1 AS name": {"id + 1"}, `both named "ID"`: {"id", "n AS ID"},
	} {
		var columns []transform.Column
		for _, src := range list {
			c, err := transform.ParseColumn(src)
			if err != nil {
				t.Fatal(err)
			}
			columns = append(columns, c)
		}
		if _, err := transform.NewSelect(columns); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewSelect(%q) = %v, want %q", list, err, want)
		}
	}
}

func TestPlan_Faults_NameStepColumnAndPlace(t *testing.T) {
	cases := []struct {
		step freshet.Step
		code freshet.Code
		want transform.Fault
		text string
	}{
		{derive(t, "a", "1", "b", "id + hots"), freshet.CodeUnknownColumn, transform.Fault{Step: "derive", Index: 1, Column: "b"},
			`FRE-1204 the expression does not fit its input: derive: column "b": 1:6: unknown column "hots"; did you mean "host"?`},
		{derive(t, "a", "NULL"), freshet.CodeExprType, transform.Fault{Step: "derive", Index: 0, Column: "a"},
			`FRE-1202 the expression does not fit its input: derive: column "a": 1:1: the expression is always null and ` +
				`has no type; CAST(NULL AS string) has one`},
		{transform.NewFilter(parse(t, "id")), freshet.CodeExprType, transform.Fault{Step: "filter"},
			`FRE-1202 the expression does not fit its input: filter: 1:1: a condition is true or false: found bigint, wanted boolean`},
	}
	for _, c := range cases {
		_, err := c.step.Plan(schema)
		var typed *freshet.Error
		var fault *transform.Fault
		if !errors.As(err, &typed) || !errors.As(err, &fault) {
			t.Errorf("%v is no *freshet.Error with a *Fault", err)
			continue
		}
		expect(t, "message", err.Error(), c.text)
		got := *fault
		got.Err = nil
		if typed.Code != c.code || typed.Class != freshet.ClassInput || !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %s class %d %+v, want %s %+v", typed.Code, typed.Class, got, c.code, c.want)
		}
	}
}

func TestDerive_Origin_FollowsRenames(t *testing.T) {
	d := derive(t, "a", "id", "b", "a", "host", "upper(host)", "n", "host", "now", "current_timestamp")
	for out, want := range map[string]string{"id": "id", "a": "id", "B": "id", "host": "", "n": "", "now": "", "other": "other"} {
		if in, _ := d.Origin(out); in != want {
			t.Errorf("Origin(%q) = %q, want %q", out, in, want)
		}
	}
}

func TestDerive_ManySchemas_EachPlannedOnItsOwn(t *testing.T) {
	d := derive(t, "x", "id + 1")
	for i := range 200 {
		idType := arrow.PrimitiveTypes.Int64
		if i%2 == 0 {
			idType = arrow.PrimitiveTypes.Float64
		}
		in := arrow.NewSchema([]arrow.Field{{Name: fmt.Sprint("c", i%100), Type: idType}, {Name: "id", Type: idType}}, nil)
		out, err := d.Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Field(2).Type; !arrow.TypeEqual(got, idType) {
			t.Fatalf("schema %d: x is %s, want %s", i, got, idType)
		}
	}
}
