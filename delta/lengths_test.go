package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
)

// sizedColumns are columns as Spark's SQL declares them with CHAR and VARCHAR.
func sizedColumns() *delta.Schema {
	pair := &delta.Struct{Fields: fields("a", delta.String, "b", delta.String).Fields}
	s := fields("c", delta.String, "v", delta.String,
		"n", &delta.Array{Element: pair, ContainsNull: true},
		"m", &delta.Map{Key: delta.String, Value: delta.String, ValueContainsNull: true})
	for i, text := range []string{"char(3)", "varchar(3)", "array<struct<a:varchar(2),b:string>>",
		"map<char(2),decimal(10,2)>"} {
		s.Fields[i].Metadata = json.RawMessage(`{"__CHAR_VARCHAR_TYPE_STRING":"` + text + `"}`)
	}
	return s
}

// Every engine reads what Spark makes of the same rows.
func TestWriter_CharAndVarchar_AsSparkReadsThem(t *testing.T) {
	table := made(t, sizedColumns(), nil)
	appendJSON(t, table, `[{"c":"ab","v":"ab"},{"c":"ab ","v":"ab "},{"c":"äöü","v":"äöü"},{"c":null,"v":null},
		{"c":"","v":"","n":[{"a":"ab","b":"long enough"},null],"m":[{"key":"k","value":"v"}]}]`)
	checkRows(t, table, sizedColumns(), `[{"c":"ab ","v":"ab"},{"c":"ab ","v":"ab "},{"c":"äöü","v":"äöü"},
		{"c":null,"v":null},
		{"c":"   ","v":"","n":[{"a":"ab","b":"long enough"},null],"m":[{"key":"k ","value":"v"}]}]`)
}

func TestWriter_TooLongForItsColumn_RefusedWithTheRow(t *testing.T) {
	table := made(t, sizedColumns(), nil)
	for rows, want := range map[string]string{
		`[{"c":"abc","v":"x"},{"c":"abcd","v":"y"}]`: `row 1: column "c" (CHAR(3)) is broken: found c = abcd: ` +
			`the text has more characters; the row has v = y`,
		`[{"v":"abc"},{"v":"äöüß"}]`:                   `row 1: column "v" (VARCHAR(3)) is broken: found v = äöüß`,
		`[{"v":"ab "},{"v":"ab  "}]`:                   `row 1: column "v" (VARCHAR(3)) is broken: found v = ab  `,
		`[{"c":"ab    "}]`:                             `row 0: column "c" (CHAR(3)) is broken: found c = ab    `,
		`[{"n":[]},{"n":[{"a":"ab"},{"a":"abc"}]}]`:    `row 1: column "n" (ARRAY<STRUCT<A:VARCHAR(2),B:STRING>>)`,
		`[{"m":[]},{"m":[{"key":"abc","value":"x"}]}]`: `row 1: column "m" (MAP<CHAR(2),DECIMAL(10,2)>)`,
	} {
		_, err := writeJSON(t, table, sizedColumns(), rows)
		var broken *delta.ConstraintError
		if !errors.As(err, &broken) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", rows, err, want)
		}
	}
}

func TestDML_CharAndVarchar_AreKept(t *testing.T) {
	ctx := context.Background()
	table := made(t, sizedColumns(), nil)
	appendJSON(t, table, `[{"c":"a","v":"a"},{"c":"b","v":"b"}]`)
	if _, err := table.Update(ctx, set(t, "c", "'z'", "v", "'z  '"), parse(t, "v = 'a'"), nil); err != nil {
		t.Fatal(err)
	}
	m := &delta.Merge{On: parse(t, "t.v = s.v"), Matched: []delta.MatchedClause{{Set: set(t, "v", "s.w")}}}
	source := fields("v", delta.String, "w", delta.String)
	if _, err := table.Merge(ctx, sourceWith(t, source, `[{"v":"b","w":"new"}]`), m, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"c":"b  ","m":null,"n":null,"v":"new"}`, `{"c":"z  ","m":null,"n":null,"v":"z  "}`)
	_, err := table.Merge(ctx, sourceWith(t, source, `[{"v":"new","w":"four"}]`), m, nil)
	refused(t, err, "found v = four")
}

func TestNewWriter_LengthThatIsNotUnderstood_IsRefused(t *testing.T) {
	for _, text := range []string{"char()", "varchar(x)", "varchar(0)", "array<char(2)", "struct<a>", "map<char(1)>>", "",
		"char(3) x"} {
		s := with(fields("c", delta.String), `{"__CHAR_VARCHAR_TYPE_STRING":"`+text+`"}`)
		_, err := delta.NewWriter(nil, describe(s, nil, nil), oldest, nil)
		if !errors.Is(err, delta.ErrUnsupportedFeature) || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("%q: got %v, want it refused with the column's name", text, err)
		}
	}
}

func TestRenameColumn_FieldWithALength_IsRefused(t *testing.T) {
	ctx := context.Background()
	s := with(fields("s", &delta.Struct{Fields: fields("a", delta.String, "b", delta.String).Fields}),
		`{"__CHAR_VARCHAR_TYPE_STRING":"struct<a:char(2),b:string>"}`)
	table := made(t, s, map[string]string{"delta.columnMapping.mode": "name"})
	_, err := table.RenameColumn(ctx, "s.a", "x", nil)
	refused(t, err, "struct<a:char(2),b:string>")
	r, err := table.RenameColumn(ctx, "s", "t", nil)
	done(t, r, err)
}

// FuzzLengths reads hostile types: the writer refuses them or keeps to them, and never panics.
func FuzzLengths(f *testing.F) {
	for _, seed := range []string{"char(3)", "struct<`a``b`:varchar(2),c:map<string,char(1)>>", "decimal(10,2)",
		"array<array<array<char(9223372036854775807)>>>", "struct<", "string collate UTF8_LCASE"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		meta, err := json.Marshal(map[string]string{"__CHAR_VARCHAR_TYPE_STRING": text})
		if err != nil {
			t.Skip()
		}
		w, err := delta.NewWriter(nil, describe(with(fields("c", delta.String), string(meta)), nil, nil), oldest, nil)
		if err != nil {
			return
		}
		rec := batchOf(t, fields("c", delta.String), `[{"c":"a"},{"c":null}]`)
		defer rec.Release()
		if out, err := w.Prepare(context.Background(), rec); err == nil {
			out.Release()
		}
	})
}
