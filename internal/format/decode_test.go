package format_test

import (
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

var (
	timestampType = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	ntzType       = &arrow.TimestampType{Unit: arrow.Microsecond}
)

func decimalType(precision, scale int32) arrow.DataType {
	return &arrow.Decimal128Type{Precision: precision, Scale: scale}
}

func nullable(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

func required(name string, t arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: t} }

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

func listOf(element arrow.DataType) arrow.DataType {
	return arrow.ListOfField(nullable("element", element))
}

func mapOf(key, value arrow.DataType) arrow.DataType {
	return arrow.MapOfFields(required("key", key), nullable("value", value))
}

func decoder(t testing.TB, o *format.Options, schema *arrow.Schema) freshet.Decoder {
	t.Helper()
	f, err := format.NewJSON(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rows returns the rows of a batch: the values as Arrow prints them, by column, null as "(null)".
func rows(batch arrow.RecordBatch) []string {
	defer batch.Release()
	out := make([]string, batch.NumRows())
	for i := range out {
		var values []string
		for _, c := range batch.Columns() {
			values = append(values, c.ValueStr(i))
		}
		out[i] = strings.Join(values, " | ")
	}
	return out
}

// decodeOne decodes one record into the one column v of the type.
func decodeOne(t *testing.T, o *format.Options, column arrow.Field, payload string) (string, error) {
	t.Helper()
	d := decoder(t, o, schemaOf(column))
	defer d.Release()
	n, err := d.Append(freshet.Payload{Value: []byte(payload)})
	if err != nil {
		if n != 0 || d.Len() != 0 {
			t.Errorf("%s: after a reject got %d rows, Len %d, want none", payload, n, d.Len())
		}
		return "", err
	}
	if n != 1 || d.Len() != 1 {
		t.Errorf("%s: got %d rows, Len %d, want 1", payload, n, d.Len())
	}
	return rows(d.Flush().Rows)[0], nil
}

var person = arrow.StructOf(nullable("name", arrow.BinaryTypes.String),
	nullable("age", arrow.PrimitiveTypes.Int32))

// fitting are values with what becomes of them in a column of the type.
var fitting = []struct {
	column      arrow.DataType
	value, want string
}{
	{arrow.FixedWidthTypes.Boolean, `true`, `true`},
	{arrow.FixedWidthTypes.Boolean, `"False"`, `false`},
	{arrow.FixedWidthTypes.Boolean, `1`, `true`},
	{arrow.FixedWidthTypes.Boolean, `null`, `(null)`},
	{arrow.PrimitiveTypes.Int8, `-128`, `-128`},
	{arrow.PrimitiveTypes.Int16, `"32767"`, `32767`},
	{arrow.PrimitiveTypes.Int32, `-2147483648`, `-2147483648`},
	{arrow.PrimitiveTypes.Int64, `9007199254740993`, `9007199254740993`},
	{arrow.PrimitiveTypes.Int64, `9223372036854775807`, `9223372036854775807`},
	{arrow.PrimitiveTypes.Int64, `-9223372036854775808`, `-9223372036854775808`},
	{arrow.PrimitiveTypes.Int64, `5.0`, `5`},
	{arrow.PrimitiveTypes.Int64, `5e2`, `500`},
	{arrow.PrimitiveTypes.Int64, `1500e-2`, `15`},
	{arrow.PrimitiveTypes.Int64, `" +12 "`, `12`},
	{arrow.PrimitiveTypes.Int64, `-0`, `0`},
	{arrow.PrimitiveTypes.Float64, `0.1`, `0.1`},
	{arrow.PrimitiveTypes.Float64, `-2.5e-3`, `-0.0025`},
	{arrow.PrimitiveTypes.Float64, `9007199254740992`, `9.007199254740992e+15`},
	{arrow.PrimitiveTypes.Float64, `123456789012345680000`, `1.2345678901234568e+20`},
	{arrow.PrimitiveTypes.Float64, `1152921504606846976`, `1.152921504606847e+18`},
	{arrow.PrimitiveTypes.Float64, `"NaN"`, `NaN`},
	{arrow.PrimitiveTypes.Float64, `"-Infinity"`, `-Inf`},
	{arrow.PrimitiveTypes.Float64, `"1.5"`, `1.5`},
	{arrow.PrimitiveTypes.Float32, `16777216`, `1.6777216e+07`},
	{decimalType(10, 2), `379.94`, `379.94`},
	{decimalType(10, 2), `"-1.5"`, `-1.5`},
	{decimalType(10, 2), `1.500`, `1.5`},
	{decimalType(10, 2), `1e3`, `1000`},
	{decimalType(38, 0), `99999999999999999999999999999999999999`, `99999999999999999999999999999999999999`},
	{decimalType(38, 0), `-99999999999999999999999999999999999999`, `-99999999999999999999999999999999999999`},
	{decimalType(38, 38), `0.00000000000000000000000000000000000001`, `1e-38`},
	{arrow.BinaryTypes.String, `"a\u00e9\ud83d\ude00\n\"\\\/"`, "aé😀\n\"\\/"},
	{arrow.BinaryTypes.String, `"Zürich"`, `Zürich`},
	{arrow.BinaryTypes.String, `1.50`, `1.50`},
	{arrow.BinaryTypes.String, `true`, `true`},
	{arrow.BinaryTypes.String, `{"a": [1, 2.0]}`, `{"a": [1, 2.0]}`},
	{arrow.BinaryTypes.Binary, `"AP8="`, `AP8=`},
	{arrow.BinaryTypes.Binary, `"AP8"`, `AP8=`},
	{arrow.BinaryTypes.Binary, `"_-8="`, `/+8=`},
	{arrow.FixedWidthTypes.Date32, `"2024-02-29"`, `2024-02-29`},
	{arrow.FixedWidthTypes.Date32, `"0001-01-01"`, `0001-01-01`},
	{arrow.FixedWidthTypes.Date32, `"2024/2/9"`, `2024-02-09`},
	{arrow.FixedWidthTypes.Date32, `"2024-02-29T00:00:00Z"`, `2024-02-29`},
	{timestampType, `"2024-02-29T12:34:56.789012Z"`, `2024-02-29T12:34:56.789012Z`},
	{timestampType, `"2024-02-29T12:34:56Z"`, `2024-02-29T12:34:56Z`},
	{timestampType, `"2024-02-29 12:34:56,5+02:00"`, `2024-02-29T10:34:56.5Z`},
	{timestampType, `"2024-02-29T12:34:56.789-0530"`, `2024-02-29T18:04:56.789Z`},
	{timestampType, `"2024-02-29 12:34"`, `2024-02-29T12:34:00Z`},
	{timestampType, `"2024-02-29"`, `2024-02-29T00:00:00Z`},
	{timestampType, `"2024-02-29T12:34:56.7890129Z"`, `2024-02-29T12:34:56.789012Z`},
	{timestampType, `"1969-12-31T23:59:59.9999999Z"`, `1969-12-31T23:59:59.999999Z`},
	{timestampType, `"2024-02-29 12:34:56 UTC"`, `2024-02-29T12:34:56Z`},
	{ntzType, `"2024-02-29T12:34:56.5"`, `2024-02-29T12:34:56.5`},
	{person, `{"age":3,"name":"x"}`, `{"age":3,"name":"x"}`},
	{person, `{}`, `{"age":null,"name":null}`},
	{person, `null`, `(null)`},
	{listOf(arrow.PrimitiveTypes.Int64), `[1,null,3]`, `[1,null,3]`},
	{listOf(arrow.PrimitiveTypes.Int64), `[]`, `[]`},
	{listOf(listOf(person)), `[[{"age":1}],[],null]`, `[[{"age":1,"name":null}],[],null]`},
	{mapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `{"a":1,"b":null}`,
		`[{"key":"a","value":1},{"key":"b","value":null}]`},
	{mapOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), `{"7":"x"}`, `[{"key":7,"value":"x"}]`},
	{arrow.Null, `null`, `(null)`},
}

func TestDecode_ValueThatFits_LandsAsItIs(t *testing.T) {
	for _, c := range fitting {
		got, err := decodeOne(t, nil, nullable("v", c.column), `{"v":`+c.value+`}`)
		if err != nil {
			t.Errorf("%s as %s: %v", c.value, c.column, err)
		} else if got != c.want {
			t.Errorf("%s as %s: got %s, want %s", c.value, c.column, got, c.want)
		}
	}
}

func TestDecode_JSONTextColumn_KeepsTheTextOfAnyValue(t *testing.T) {
	for _, value := range []string{`"a\u0062"`, `{ "x" : [1.0] }`, `12`, `true`} {
		got, err := decodeOne(t, nil, format.JSONText("v", true), `{"v": `+value+` }`)
		if err != nil || got != value {
			t.Errorf("got %s, %v, want %s", got, err, value)
		}
	}
}

func TestDecode_EpochNumbers_AreWhatTheUnitSays(t *testing.T) {
	for _, c := range []struct {
		unit        format.EpochUnit
		value, want string
	}{
		{format.Seconds, `1700000000`, `2023-11-14T22:13:20Z`},
		{format.Seconds, `1700000000.1234567`, `2023-11-14T22:13:20.123456Z`},
		{format.Millis, `1700000000123`, `2023-11-14T22:13:20.123Z`},
		{format.Millis, `"1700000000123"`, `2023-11-14T22:13:20.123Z`},
		{format.Micros, `-1`, `1969-12-31T23:59:59.999999Z`},
		{format.Millis, `-0.0001`, `1969-12-31T23:59:59.999999Z`},
	} {
		o := &format.Options{EpochUnit: c.unit}
		got, err := decodeOne(t, o, nullable("v", timestampType), `{"v":`+c.value+`}`)
		if err != nil || got != c.want {
			t.Errorf("%s in %s: got %s, %v, want %s", c.value, c.unit, got, err, c.want)
		}
	}
}

func TestDecode_Keys_MatchExactlyOrIgnoringCase(t *testing.T) {
	d := decoder(t, nil, schemaOf(nullable("Größe", arrow.PrimitiveTypes.Int64),
		nullable("a", arrow.PrimitiveTypes.Int64), nullable(`quo"te`, arrow.PrimitiveTypes.Int64)))
	for _, payload := range []string{`{"Größe":1,"a":2,"quo\"te":3}`,
		` { "a" : 2 , "GRÖSSE" : null, "GRÖßE": 1 } `, `{"\u0041":2}`} {
		if _, err := d.Append(freshet.Payload{Value: []byte(payload)}); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	got := strings.Join(rows(d.Flush().Rows), "; ")
	if want := "1 | 2 | 3; 1 | 2 | (null); (null) | 2 | (null)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDecode_RecordThatFails_LeavesNoTrace(t *testing.T) {
	item := arrow.StructOf(nullable("s", arrow.BinaryTypes.String), nullable("n", arrow.PrimitiveTypes.Int64),
		nullable("b", arrow.FixedWidthTypes.Boolean))
	d := decoder(t, &format.Options{NewFields: format.Rescue}, schemaOf(
		nullable("id", arrow.PrimitiveTypes.Int64), nullable("items", listOf(item)),
		nullable("tags", mapOf(arrow.BinaryTypes.String, listOf(arrow.BinaryTypes.String))),
		nullable("d", decimalType(5, 1)), nullable("_rescued", arrow.BinaryTypes.String),
		nullable("end", arrow.BinaryTypes.String)))
	good := []string{
		`{"id":1,"items":[{"s":"x","n":1,"b":true},null],"tags":{"k":["v",null]},"d":1.5,"end":"e1"}`,
		`{"id":2,"tags":null,"more":{"x":1}}`,
		`{"id":3,"items":[],"tags":{},"end":"e3"}`,
	}
	bad := []string{
		`{"id":9,"items":[{"s":"y","n":1,"b":true},{"s":"z","n":"q"}]}`,
		`{"more":1,"tags":{"k":["v"],"l":["w","\ud800"]}}`,
		`{"id":9,"tags":{"k":null},"end":"truncat`,
		`{"end":"x","d":123456}`,
	}
	for i := range 5 {
		for j, g := range good {
			if _, err := d.Append(freshet.Payload{Value: []byte(bad[(i+j)%len(bad)])}); err == nil {
				t.Fatalf("%s: got no error", bad[(i+j)%len(bad)])
			}
			if _, err := d.Append(freshet.Payload{Value: []byte(g)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := rows(d.Flush().Rows)
	want := []string{
		`1 | [{"b":true,"n":1,"s":"x"},null] | [{"key":"k","value":["v",null]}] | 1.5 | (null) | e1`,
		`2 | (null) | (null) | (null) | {"more":{"x":1}} | (null)`,
		`3 | [] | [] | (null) | (null) | e3`,
	}
	if len(got) != 15 {
		t.Fatalf("got %d rows, want 15", len(got))
	}
	for i := range got {
		if got[i] != want[i%3] {
			t.Errorf("row %d: got %s, want %s", i, got[i], want[i%3])
		}
	}
}

func TestDecode_BatchFlushed_IsTheCallers(t *testing.T) {
	d := decoder(t, nil, schemaOf(nullable("s", arrow.BinaryTypes.String),
		nullable("b", arrow.FixedWidthTypes.Boolean)))
	appendAll := func(payloads ...string) {
		for _, p := range payloads {
			if _, err := d.Append(freshet.Payload{Value: []byte(p)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendAll(`{"s":"one","b":true}`, `{"s":null}`)
	first := d.Flush().Rows
	appendAll(`{"s":"two","b":false}`, `{"s":"three"}`, `{"b":true}`)
	second := d.Flush().Rows
	empty := d.Flush().Rows
	if n := empty.NumRows(); n != 0 {
		t.Errorf("got %d rows of an empty flush, want 0", n)
	}
	if got := strings.Join(rows(first), "; "); got != "one | true; (null) | (null)" {
		t.Errorf("first: got %s", got)
	}
	if got := strings.Join(rows(second), "; "); got != "two | false; three | (null); (null) | true" {
		t.Errorf("second: got %s", got)
	}
}

func TestDecode_SteadyState_AllocatesLessThanOnceInAHundredRows(t *testing.T) {
	payloads := narrowEvents(20_000)
	f, _ := format.NewJSON(nil)
	schema, err := f.Infer(asPayloads(payloads), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(3, func() {
		for _, p := range payloads {
			if _, err := d.Append(freshet.Payload{Value: p}); err != nil {
				t.Fatal(err)
			}
		}
		d.Flush().Rows.Release()
	})
	if allocs > float64(len(payloads))/100 && !raceEnabled() {
		t.Errorf("got %g allocations for %d rows", allocs, len(payloads))
	}
}

// raceEnabled reports whether the test was built with -race, which allocates for its own ends.
func raceEnabled() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A field that is required in a struct that is null holds some value, which no reader sees, and no null.
func TestDecode_NullStruct_HasNoNullsInRequiredFields(t *testing.T) {
	d := decoder(t, nil, schemaOf(nullable("s", arrow.StructOf(required("n", arrow.PrimitiveTypes.Int64),
		required("l", listOf(arrow.BinaryTypes.String)), nullable("o", arrow.BinaryTypes.String)))))
	for _, payload := range []string{`{"s":null}`, `{}`, `{"s":{"n":1,"l":[]}}`} {
		if _, err := d.Append(freshet.Payload{Value: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	batch := d.Flush().Rows
	defer batch.Release()
	s := batch.Column(0).(*array.Struct)
	if s.NullN() != 2 || s.Field(0).NullN() != 0 || s.Field(1).NullN() != 0 || s.Field(2).NullN() != 3 {
		t.Errorf("got %d, %d, %d, %d nulls, want 2, 0, 0, 3", s.NullN(), s.Field(0).NullN(), s.Field(1).NullN(),
			s.Field(2).NullN())
	}
	if got, want := s.ValueStr(2), `{"l":[],"n":1,"o":null}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDecode_NewFields_FollowThePolicy(t *testing.T) {
	inner := arrow.StructOf(nullable("b", arrow.PrimitiveTypes.Int64))
	fields := []arrow.Field{nullable("a", inner), nullable("l", listOf(inner)),
		nullable("m", mapOf(arrow.BinaryTypes.String, inner))}
	rescued := schemaOf(append(fields, nullable("_rescued", arrow.BinaryTypes.String))...)
	for _, c := range []struct{ name, payload, rescued string }{
		{"null", `{"x":null,"a":{"y":null}}`, `(null)`},
		{"scalar", `{"x":1.50,"a":{"b":1}}`, `{"x":1.50}`},
		{"nested", `{"a":{"b":1,"y":[1, 2],"z":"s"},"x":{}}`, `{"a":{"y":[1, 2],"z":"s"},"x":{}}`},
		{"in lists", `{"l":[{"b":1},{"y":1},{},{"y":2,"z":3}]}`, `{"l":[null,{"y":1},null,{"y":2,"z":3}]}`},
		{"in maps", `{"m":{"k\"1":{"b":2},"k2":{"y":1}},"x":1}`, `{"m":{"k2":{"y":1}},"x":1}`},
		{"its own name", `{"_rescued":5}`, `{"_rescued":5}`},
		{"escaped", `{"q\"\u0001":1}`, `{"q\"\u0001":1}`},
	} {
		d := decoder(t, &format.Options{NewFields: format.Rescue}, rescued)
		if _, err := d.Append(freshet.Payload{Value: []byte(c.payload)}); err != nil {
			t.Errorf("rescue %s: %v", c.name, err)
			continue
		}
		batch := d.Flush().Rows
		if got := batch.Column(3).ValueStr(0); got != c.rescued {
			t.Errorf("rescue %s: got %s, want %s", c.name, got, c.rescued)
		}
		ignore, fail := &format.Options{NewFields: format.Ignore}, &format.Options{NewFields: format.Fail}
		_, err := decoder(t, ignore, schemaOf(fields...)).Append(freshet.Payload{Value: []byte(c.payload)})
		if err != nil {
			t.Errorf("ignore %s: %v", c.name, err)
		}
		_, err = decoder(t, fail, schemaOf(fields...)).Append(freshet.Payload{Value: []byte(c.payload)})
		var r *freshet.RejectError
		if (c.name != "null") != (errors.As(err, &r) && r.Code == freshet.CodeNewField) {
			t.Errorf("fail %s: got %v", c.name, err)
		}
		_, err = decoder(t, nil, schemaOf(fields...)).Append(freshet.Payload{Value: []byte(c.payload)})
		if c.name == "escaped" {
			continue
		}
		if (c.name != "null") != errors.Is(err, freshet.ErrNewFields) {
			t.Errorf("add %s: got %v", c.name, err)
		}
	}
}

func TestNewDecoder_UnusableSchema_Fails(t *testing.T) {
	rescue, _ := format.NewJSON(&format.Options{NewFields: format.Rescue})
	add, _ := format.NewJSON(nil)
	for name, try := range map[string]func() (freshet.Decoder, error){
		"no _rescued": func() (freshet.Decoder, error) {
			return rescue.NewDecoder(schemaOf(nullable("a", arrow.PrimitiveTypes.Int64)))
		},
		"unsigned": func() (freshet.Decoder, error) {
			return add.NewDecoder(schemaOf(nullable("a", listOf(arrow.PrimitiveTypes.Uint64))))
		},
		"nanoseconds": func() (freshet.Decoder, error) {
			return add.NewDecoder(schemaOf(nullable("a", &arrow.TimestampType{Unit: arrow.Nanosecond})))
		},
		"names that differ in case": func() (freshet.Decoder, error) {
			return add.NewDecoder(schemaOf(nullable("a", arrow.BinaryTypes.String),
				nullable("A", arrow.BinaryTypes.String)))
		},
		"map with struct keys": func() (freshet.Decoder, error) {
			return add.NewDecoder(schemaOf(nullable("a", mapOf(arrow.StructOf(), arrow.BinaryTypes.String))))
		},
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
