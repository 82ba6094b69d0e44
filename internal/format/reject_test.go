package format_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

var deep = strings.Repeat("[", 70)

// unfit are records with why and where they are rejected.
var unfit = []struct {
	payload string
	code    freshet.Code
	path    string
	offset  int
}{
	{``, freshet.CodeEmptyPayload, "", -1},
	{" \n\t", freshet.CodeEmptyPayload, "", -1},
	{`null`, freshet.CodeWrongType, "", 0},
	{` [1]`, freshet.CodeWrongType, "", 1},
	{`"x`, freshet.CodeMalformed, "", 2},
	{`{`, freshet.CodeMalformed, "", 1},
	{`{"n"`, freshet.CodeMalformed, "", 4},
	{`{"n":`, freshet.CodeMalformed, "n", 5},
	{`{"n":1`, freshet.CodeMalformed, "", 6},
	{`{"n":1,`, freshet.CodeMalformed, "", 7},
	{`{"n":1,}`, freshet.CodeMalformed, "", 7},
	{`{"n":1}x`, freshet.CodeMalformed, "", 7},
	{`{"n":1}{"n":2}`, freshet.CodeMalformed, "", 7},
	{`{n:1}`, freshet.CodeMalformed, "", 1},
	{`{"n":01}`, freshet.CodeMalformed, "n", 5},
	{`{"n":+1}`, freshet.CodeMalformed, "n", 5},
	{`{"n":-}`, freshet.CodeMalformed, "n", 6},
	{`{"f":1.}`, freshet.CodeMalformed, "f", 7},
	{`{"f":1e}`, freshet.CodeMalformed, "f", 7},
	{`{"f":NaN}`, freshet.CodeMalformed, "f", 5},
	{`{"f":-Infinity}`, freshet.CodeMalformed, "f", 6},
	{`{"ok":tru}`, freshet.CodeMalformed, "ok", 6},
	{`{"s":"a` + "\n" + `"}`, freshet.CodeMalformed, "s", 7},
	{`{"s":"\x"}`, freshet.CodeMalformed, "s", 7},
	{`{"s":"\u12g4"}`, freshet.CodeMalformed, "s", 6},
	{"\x00\x00\x00\x00\x01{}", freshet.CodeMalformed, "", 0},
	{"{\"s\":\"a\xffb\"}", freshet.CodeBadUTF8, "s", 7},
	{"{\"zz\":\"a\xc0\x80\"}", freshet.CodeBadUTF8, "zz", 8},
	{"{\"k\xff\":1}", freshet.CodeBadUTF8, "", 3},
	{`{"s":"\ud800"}`, freshet.CodeBadUTF8, "s", 6},
	{`{"s":"\ud800\u0041"}`, freshet.CodeBadUTF8, "s", 6},
	{`{"s":"x\udc00"}`, freshet.CodeBadUTF8, "s", 7},
	{`{"n":"abc"}`, freshet.CodeWrongType, "n", 5},
	{`{"n":""}`, freshet.CodeWrongType, "n", 5},
	{`{"n":true}`, freshet.CodeWrongType, "n", 5},
	{`{"n":{}}`, freshet.CodeWrongType, "n", 5},
	{`{"n":5.5}`, freshet.CodeOutOfRange, "n", 5},
	{`{"n":9223372036854775808}`, freshet.CodeOutOfRange, "n", 5},
	{`{"n":-9223372036854775809}`, freshet.CodeOutOfRange, "n", 5},
	{`{"n":1e400}`, freshet.CodeOutOfRange, "n", 5},
	{`{"b":128}`, freshet.CodeOutOfRange, "b", 5},
	{`{"f":1e400}`, freshet.CodeOutOfRange, "f", 5},
	{`{"f":9007199254740993}`, freshet.CodeOutOfRange, "f", 5},
	{`{"f":"0x10"}`, freshet.CodeWrongType, "f", 5},
	{`{"f":"1_0"}`, freshet.CodeWrongType, "f", 5},
	{`{"g":1e39}`, freshet.CodeOutOfRange, "g", 5},
	{`{"g":16777217}`, freshet.CodeOutOfRange, "g", 5},
	{`{"t":"` + strings.Repeat("\x00", 10) + `T00:00:00Z"}`, freshet.CodeMalformed, "t", 6},
	{`{"t":1700000000}`, freshet.CodeWrongType, "t", 5},
	{`{"t":"yesterday"}`, freshet.CodeWrongType, "t", 5},
	{`{"t":"2023-02-29T00:00:00Z"}`, freshet.CodeWrongType, "t", 5},
	{`{"t":"2024-02-29T24:00:00Z"}`, freshet.CodeWrongType, "t", 5},
	{`{"t":"0000-01-01T00:00:00Z"}`, freshet.CodeWrongType, "t", 5},
	{`{"w":"2024-02-29T12:34:56+02:00"}`, freshet.CodeWrongType, "w", 5},
	{`{"day":"2024-13-01"}`, freshet.CodeWrongType, "day", 7},
	{`{"day":"2024-02-29T12:00:00Z"}`, freshet.CodeWrongType, "day", 7},
	{`{"day":19000}`, freshet.CodeWrongType, "day", 7},
	{`{"raw":"a?b"}`, freshet.CodeWrongType, "raw", 7},
	{`{"raw":12}`, freshet.CodeWrongType, "raw", 7},
	{`{"ok":2}`, freshet.CodeWrongType, "ok", 6},
	{`{"ok":"maybe"}`, freshet.CodeWrongType, "ok", 6},
	{`{"items":{"price":1}}`, freshet.CodeWrongType, "items", 9},
	{`{"items":[{"sku":"a"},{"sku":"b","price":12345}]}`, freshet.CodeOutOfRange, "items[1].price", 41},
	{`{"items":[{"sku":"a","price":1.005}]}`, freshet.CodeOutOfRange, "items[0].price", 29},
	{`{"items":[{"sku":null}]}`, freshet.CodeNull, "items[0].sku", 17},
	{`{"items":[{"price":1}]}`, freshet.CodeNull, "items[0].sku", 20},
	{`{"m":{"x":1,"y":"z"}}`, freshet.CodeWrongType, "m.y", 16},
	{`{"m":{"x":1,"x":2}}`, freshet.CodeDuplicateKey, "m.x", 12},
	{`{"km":{"x":"y"}}`, freshet.CodeWrongType, "km.x", 7},
	{`{"a.b":"x"}`, freshet.CodeWrongType, "`a.b`", 7},
	{`{"n":1,"n":2}`, freshet.CodeDuplicateKey, "n", 7},
	{`{"n":1,"\u006e":1}`, freshet.CodeDuplicateKey, "n", 7},
	{`{"n":1,"N":1}`, freshet.CodeDuplicateKey, "n", 7},
	{`{"zz":{"a":[{"b":1,"b":2}]}}`, freshet.CodeDuplicateKey, "zz.a[0].b", 19},
	{`{"zz":1,"zz":1}`, freshet.CodeDuplicateKey, "zz", 8},
	{`{"zz":` + deep + `}`, freshet.CodeTooDeep, "zz" + strings.Repeat("[0]", 63), 6 + 63},
}

func TestDecode_RecordThatDoesNotFit_IsRejectedWithCodePathAndByte(t *testing.T) {
	item := arrow.StructOf(nullable("price", decimalType(6, 2)), required("sku", arrow.BinaryTypes.String))
	schema := schemaOf(
		nullable("n", arrow.PrimitiveTypes.Int64), nullable("b", arrow.PrimitiveTypes.Int8),
		nullable("f", arrow.PrimitiveTypes.Float64),
		nullable("g", arrow.PrimitiveTypes.Float32), nullable("t", timestampType), nullable("w", ntzType),
		nullable("day", arrow.FixedWidthTypes.Date32), nullable("s", arrow.BinaryTypes.String),
		nullable("raw", arrow.BinaryTypes.Binary), nullable("ok", arrow.FixedWidthTypes.Boolean),
		nullable("items", listOf(item)),
		nullable("m", mapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)),
		nullable("km", mapOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)),
		nullable("a.b", arrow.PrimitiveTypes.Int64))
	for _, c := range unfit {
		d := decoder(t, &format.Options{NewFields: format.Ignore}, schema)
		n, err := d.Append(freshet.Payload{Value: []byte(c.payload)})
		var r *freshet.RejectError
		if !errors.As(err, &r) {
			t.Errorf("%s: got %v, want %s", c.payload, err, c.code)
			continue
		}
		if r.Code != c.code || r.Path != c.path || r.Offset != c.offset {
			t.Errorf("%s: got %s %s at %d (%s)\nwant %s %s at %d", c.payload,
				r.Code, r.Path, r.Offset, r.Message, c.code, c.path, c.offset)
		}
		if n != 0 || d.Len() != 0 || !strings.Contains(r.Message, "wanted") {
			t.Errorf("%s: got %d rows, Len %d, message %q", c.payload, n, d.Len(), r.Message)
		}
	}
}

func TestDecode_ColumnNotNullable_RejectsNullAndNothing(t *testing.T) {
	d := decoder(t, nil, schemaOf(required("id", arrow.PrimitiveTypes.Int64)))
	for _, payload := range []string{`{}`, `{"id":null}`} {
		_, err := d.Append(freshet.Payload{Value: []byte(payload)})
		if r := (*freshet.RejectError)(nil); !errors.As(err, &r) || r.Code != freshet.CodeNull || r.Path != "id" {
			t.Errorf("%s: got %v", payload, err)
		}
	}
}

func TestDecode_ManyKeys_DuplicateIsFound(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"a0":0`)
	for i := range 1000 {
		b.WriteString(`,"k` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + `":1`)
	}
	ignore := &format.Options{NewFields: format.Ignore}
	d := decoder(t, ignore, schemaOf(nullable("v", arrow.PrimitiveTypes.Int64)))
	if _, err := d.Append(freshet.Payload{Value: []byte(b.String() + `}`)}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Append(freshet.Payload{Value: []byte(b.String() + `,"a0":1}`)})
	if r := (*freshet.RejectError)(nil); !errors.As(err, &r) || r.Code != freshet.CodeDuplicateKey {
		t.Errorf("got %v, want a duplicate key", err)
	}
}

func TestDecode_Gzip_UnpacksWithinTheLimit(t *testing.T) {
	pack := func(s string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	opts := &format.Options{Gzip: true, MaxBytes: 1000}
	d := decoder(t, opts, schemaOf(nullable("s", arrow.BinaryTypes.String)))
	fitting := `{"s":"` + strings.Repeat("a", 1000-8) + `"}`
	for _, payload := range [][]byte{pack(`{"s":"x"}`), []byte(`{"s":"plain"}`), pack(fitting)} {
		if _, err := d.Append(freshet.Payload{Value: payload}); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		payload []byte
		code    freshet.Code
	}{
		{pack(fitting + " "), freshet.CodeTooLarge},
		{pack(strings.Repeat(" ", 8<<20)), freshet.CodeTooLarge},
		{[]byte(fitting + " "), freshet.CodeTooLarge},
		{pack(`{"s":"x"}`)[:20], freshet.CodeCompression},
		{append(pack(`{"s":"x"}`), 1), freshet.CodeCompression},
		{[]byte{0x1f, 0x8b}, freshet.CodeCompression},
	} {
		_, err := d.Append(freshet.Payload{Value: c.payload})
		if r := (*freshet.RejectError)(nil); !errors.As(err, &r) || r.Code != c.code {
			t.Errorf("got %v, want %s", err, c.code)
		}
	}
	if _, err := d.Append(freshet.Payload{Value: pack(`{"s":"again"}`)}); err != nil {
		t.Error(err)
	}
	if got := rows(d.Flush().Rows); len(got) != 4 || got[3] != "again" {
		t.Errorf("got %d rows", len(got))
	}
}

func TestRaw_AnyBytes_LandAsTheyCame(t *testing.T) {
	schema, err := format.Raw{}.Infer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := format.Raw{}.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range [][]byte{{0xff, 0}, {}, nil, []byte("{}")} {
		if n, err := d.Append(freshet.Payload{Value: payload}); n != 1 || err != nil {
			t.Errorf("%x: got %d, %v", payload, n, err)
		}
	}
	if got := strings.Join(rows(d.Flush().Rows), "; "); got != "/wA=; ; (null); e30=" {
		t.Errorf("got %s", got)
	}
	known := schemaOf(nullable("other", arrow.BinaryTypes.String))
	if only, _ := (format.Raw{}).Infer(nil, known); only.NumFields() != 1 {
		t.Errorf("got %s, want the one column, whatever else the table has", only)
	}
	if _, err := (format.Raw{}).NewDecoder(known); err == nil {
		t.Error("a schema without the column: got no error")
	}
}

func TestOptions_SeveralFaults_AreAllReported(t *testing.T) {
	o := &format.Options{NewFields: "drop", EpochUnit: "h", MaxDepth: -1, MaxBytes: 1 << 40}
	err := o.Validate()
	for _, part := range []string{"drop", `"h"`, "-1", "1099511627776"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to name %s", err, part)
		}
	}
	if _, err := format.NewJSON(o); err == nil {
		t.Error("NewJSON: got no error")
	}
}
