package format_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// infer returns the schema as "name:type name:type".
func infer(t testing.TB, o *format.Options, known *arrow.Schema, payloads ...string) string {
	t.Helper()
	f, err := format.NewJSON(o)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([][]byte, len(payloads))
	for i, p := range payloads {
		raw[i] = []byte(p)
	}
	s, err := f.Infer(asPayloads(raw), known)
	if err != nil {
		t.Fatal(err)
	}
	return describe(s)
}

func describe(s *arrow.Schema) string {
	if s == nil {
		return "nil"
	}
	var fields []string
	for _, f := range s.Fields() {
		fields = append(fields, f.Name+":"+typeString(f.Type))
		if !f.Nullable {
			fields[len(fields)-1] += "!"
		}
	}
	return strings.Join(fields, " ")
}

func typeString(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.StructType:
		return "<" + describe(arrow.NewSchema(t.Fields(), nil)) + ">"
	case *arrow.ListType:
		return "[" + typeString(t.Elem()) + "]"
	case *arrow.MapType:
		return "map(" + typeString(t.KeyType()) + "," + typeString(t.ItemType()) + ")"
	case *arrow.Decimal128Type:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case *arrow.TimestampType:
		return "timestamp"
	case *arrow.StringType:
		return "string"
	}
	return t.Name()
}

func TestInfer_ValuesOfOneField_GetTheLeastType(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{`null`, `nil`},
		{`{}`, `nil`},
		{`{"x":null}`, `nil`},
		{`null;true`, `v:bool`},
		{`1;-2;9223372036854775807`, `v:int64`},
		{`1;9223372036854775808`, `v:decimal(38,0)`},
		{`99999999999999999999999999999999999999`, `v:decimal(38,0)`},
		{`199999999999999999999999999999999999999`, `v:string`},
		{`1;1.5;2e3;1.50`, `v:float64`},
		{`1.5;9007199254740993`, `v:decimal(38,1)`},
		{`1.5;9007199254740992`, `v:float64`},
		{`0.1234567890123456789`, `v:decimal(38,19)`},
		{`0.1234567890123456789;12345678901234567890`, `v:string`},
		{`1e400`, `v:string`},
		{`1;"1"`, `v:string`},
		{`1;true`, `v:string`},
		{`"2024-01-01T00:00:00Z";"2024-01-01T00:00:00.123456+02:00"`, `v:timestamp`},
		{`"2024-01-01T00:00:00.1234567Z"`, `v:string`},
		{`"2024-01-01T00:00:00"`, `v:string`},
		{`"2024-01-01 00:00:00Z"`, `v:string`},
		{`"2024-02-30T00:00:00Z"`, `v:string`},
		{`"2024-01-01"`, `v:date32`},
		{`"2024-1-1"`, `v:string`},
		{`"2024-01-01";"2024-01-01T00:00:00Z"`, `v:string`},
		{`"";"2024-01-01"`, `v:string`},
		{`[]`, `v:[string]`},
		{`[];[1];[null,2.5]`, `v:[float64]`},
		{`[1];[{"a":1}]`, `v:[string]`},
		{`[1];2`, `v:string`},
		{`{"a":1};{"b":"x"};{"a":2,"b":null}`, `v:<a:int64 b:string>`},
		{`{"a":1};"x"`, `v:string`},
		{`{"a b":1}`, `v:string`},
		{`{"a":1};{"a b":null}`, `v:<a:int64>`},
		{`{"":1};{"a":1}`, `v:string`},
		{`[{"a":{"b":[[]]}}]`, `v:[<a:<b:[[string]]>>]`},
		{`{"A":1};{"a":2};{"a":1}`, `v:<a:int64>`},
	} {
		var payloads []string
		for _, v := range strings.Split(c.values, ";") {
			payloads = append(payloads, `{"v":`+v+`}`)
		}
		if got := infer(t, nil, nil, payloads...); got != c.want {
			t.Errorf("%s: got %s, want %s", c.values, got, c.want)
		}
	}
}

func TestInfer_Order_IsThatOfTheFirstPlaceThenTheName(t *testing.T) {
	got := infer(t, nil, nil, `{"b":1,"d":1}`, `{"a":1,"b":1,"c":1}`)
	if want := "a:int64 b:int64 d:int64 c:int64"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInfer_UnreadablePayloads_ArePassedOver(t *testing.T) {
	got := infer(t, nil, nil, ``, `[1]`, `{"a":1`, `{"a":"x"}x`, `{"a":"x","a":"x"}`, "{\"a\":\"\xff\"}",
		`{"a":1}`,
		strings.Repeat(`{"a":`, 70)+`1`+strings.Repeat(`}`, 70))
	if want := "a:int64"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInfer_Known_KeepsTypesAndGrowsWithin(t *testing.T) {
	inner := arrow.StructOf(required("x", arrow.PrimitiveTypes.Int32))
	known := schemaOf(required("id", arrow.PrimitiveTypes.Int16), nullable("s", inner),
		nullable("l", listOf(inner)), nullable("m", mapOf(arrow.BinaryTypes.String, inner)),
		nullable("t", arrow.BinaryTypes.String))
	got := infer(t, nil, known, `{"ID":"text","new":1,"s":{"x":1.5,"y":2},"l":[{"z":true}],`+
		`"m":{"k":{},"l":{"w":"2024-01-01"}},"t":{"u":1},"bad name":1}`)
	want := "id:int16! s:<x:int32! y:int64> l:[<x:int32! z:bool>] m:map(string,<x:int32! w:date32>) " +
		"t:string new:int64"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f, _ := format.NewJSON(nil)
	if same, _ := f.Infer(asPayloads([][]byte{[]byte(`{"id":1,"s":{},"t":1,"n":null}`)}), known); same != known {
		t.Errorf("nothing new: got %s, want known itself", same)
	}
}

func TestInfer_NewFieldsNotAdded_LeavesKnownAlone(t *testing.T) {
	fields := []arrow.Field{nullable("a", arrow.PrimitiveTypes.Int64),
		nullable("s", arrow.StructOf(nullable("x", arrow.PrimitiveTypes.Int64)))}
	for more, want := range map[string]string{
		"":     "a:int64 s:<x:int64>",
		"q\nB": "a:int64 s:<x:int64> b:int64",
		"*":    "a:int64 s:<x:int64> b:int64 c:bool",
	} {
		meta := arrow.NewMetadata([]string{freshet.MoreColumns}, []string{more})
		for _, policy := range []format.NewFields{format.Ignore, format.Fail} {
			got := infer(t, &format.Options{NewFields: policy}, arrow.NewSchema(fields, &meta),
				`{"b":1,"c":true,"s":{"y":1}}`)
			if got != want {
				t.Errorf("%s, more %q: got %s, want %s", policy, more, got, want)
			}
		}
	}
	ignore := &format.Options{NewFields: format.Ignore}
	if got, want := infer(t, ignore, schemaOf(fields[0]), `{"b":1}`), "a:int64"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInfer_Rescue_HasTheRescuedColumn(t *testing.T) {
	o := &format.Options{NewFields: format.Rescue}
	if got, want := infer(t, o, nil, `{"_rescued":1,"a":1}`), "a:int64 _rescued:string"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	known := schemaOf(nullable("a", arrow.PrimitiveTypes.Int64))
	if got, want := infer(t, o, known, `{"a":1}`), "a:int64 _rescued:string"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := infer(t, o, nil, `{}`); got != "nil" {
		t.Errorf("got %s, want nil", got)
	}
}

// randomRecord returns a record with few names and many kinds of values, so that records agree and clash.
func randomRecord(r *rand.Rand) string { return randomObject(r, 4) }

func randomObject(r *rand.Rand, depth int) string {
	names := []string{"a", "b", "c", "d", "Aa", "aA", "né", "x y"}
	var members []string
	for _, i := range r.Perm(len(names))[:r.IntN(6)] {
		members = append(members, fmt.Sprintf("%q:%s", names[i], randomValue(r, depth)))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func randomValue(r *rand.Rand, depth int) string {
	scalars := []string{"null", "true", "1", "-7", "9007199254740993", "9223372036854775808", "1.5", "1e300",
		"-0.0",
		"0.12345678901234567890123", "1e400", "123456789012345678901234567890123456789", `""`, `"x"`,
		`"2024-01-01"`,
		`"2024-01-01T01:02:03.5Z"`, `"2024-01-01T01:02:03.1234567Z"`, `"\u0032024-01-01"`, `"5"`, `"NaN"`}
	if depth > 1 {
		switch r.IntN(4) {
		case 0:
			return randomObject(r, depth-1)
		case 1:
			var elements []string
			for range r.IntN(3) {
				elements = append(elements, randomValue(r, depth-1))
			}
			return "[" + strings.Join(elements, ",") + "]"
		}
	}
	return scalars[r.IntN(len(scalars))]
}

func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestInfer_AnyOrderOfRecords_GivesOneSchema(t *testing.T) {
	r := seeded(t)
	for range 300 {
		var records []string
		for range 1 + r.IntN(8) {
			records = append(records, randomRecord(r))
		}
		want := infer(t, nil, nil, records...)
		for range 5 {
			r.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			if got := infer(t, nil, nil, records...); got != want {
				t.Fatalf("%s\ngot  %s\nwant %s", strings.Join(records, "\n"), got, want)
			}
		}
		if got := infer(t, nil, nil, append(records, records...)...); got != want {
			t.Fatalf("twice %s\ngot  %s\nwant %s", strings.Join(records, "\n"), got, want)
		}
	}
}

// Whatever a schema is inferred from fits it, but for names that no column can have and names of one record
// that differ only in case.
func TestInfer_RecordsOfTheSample_FitTheSchema(t *testing.T) {
	r := seeded(t)
	f, _ := format.NewJSON(nil)
	for range 500 {
		var records [][]byte
		for range 1 + r.IntN(8) {
			records = append(records, []byte(randomRecord(r)))
		}
		schema, err := f.Infer(asPayloads(records), nil)
		if err != nil || schema == nil {
			continue
		}
		checkFits(t, f, schema, records)
	}
}

func checkFits(t *testing.T, f *format.JSON, schema *arrow.Schema, records [][]byte) {
	t.Helper()
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		_, err := d.Append(freshet.Payload{Value: record})
		var r *freshet.RejectError
		if errors.As(err, &r) && (r.Code == freshet.CodeNewField || r.Code == freshet.CodeDuplicateKey) {
			continue
		}
		if err != nil {
			t.Fatalf("%s\ninto %s: %v", record, describe(schema), err)
		}
	}
	d.Flush().Rows.Release()
}

// A source that widens its schema when it is told so gets on, in one step.
func TestInfer_AfterErrNewFields_TheRecordFits(t *testing.T) {
	r := seeded(t)
	f, _ := format.NewJSON(nil)
	for range 300 {
		schema := schemaOf(nullable("id", arrow.PrimitiveTypes.Int64))
		for range 20 {
			record := []byte(randomRecord(r))
			d, err := f.NewDecoder(schema)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = d.Append(freshet.Payload{Value: record}); !errors.Is(err, freshet.ErrNewFields) {
				continue
			}
			wider, err := f.Infer(asPayloads([][]byte{record}), schema)
			if err != nil || wider == schema {
				t.Fatalf("%s\ninto %s: nothing to add, %v", record, describe(schema), err)
			}
			if d, err = f.NewDecoder(wider); err != nil {
				t.Fatal(err)
			}
			if _, err = d.Append(freshet.Payload{Value: record}); errors.Is(err, freshet.ErrNewFields) {
				t.Fatalf("%s\ninto %s: still new fields", record, describe(wider))
			}
			schema = wider
		}
	}
}

// asPayloads are records without keys.
func asPayloads(values [][]byte) []freshet.Payload {
	all := make([]freshet.Payload, len(values))
	for i, v := range values {
		all[i].Value = v
	}
	return all
}
