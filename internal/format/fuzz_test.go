package format_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

const depthLimit = 16

// oracle says by encoding/json and rules of its own whether a payload is a record that must be taken.
func oracle(payload []byte) (members map[string]json.RawMessage, ok bool) {
	if !json.Valid(payload) || !utf8.Valid(payload) || loneSurrogate(payload) {
		return nil, false
	}
	if !uniqueKeys(json.NewDecoder(bytes.NewReader(payload)), 0) {
		return nil, false
	}
	if err := json.Unmarshal(payload, &members); err != nil || members == nil {
		return nil, false
	}
	return members, true
}

// uniqueKeys reads one value and reports whether no object in it has a key twice and none is nested too deep.
func uniqueKeys(d *json.Decoder, depth int) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	open, nested := token.(json.Delim)
	if !nested {
		return true
	}
	if depth == depthLimit {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil || seen[key.(string)] {
				return false
			}
			seen[key.(string)] = true
		}
		if !uniqueKeys(d, depth+1) {
			return false
		}
	}
	_, err = d.Token()
	return err == nil
}

// loneSurrogate reports whether valid JSON escapes half a surrogate pair.
func loneSurrogate(b []byte) bool {
	code := func(i int) uint64 {
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return 0
		}
		v, _ := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
		return v
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		switch c := code(i); {
		case c>>10 == 0xd800>>10 && code(i+6)>>10 == 0xdc00>>10:
			i += 11
		case c>>11 == 0xd800>>11:
			return true
		default:
			i++
		}
	}
	return false
}

// FuzzDecode checks which payloads are taken, and text and JSON text columns, against encoding/json.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"s":"a","j":[1,{"x":null}],"k":"\u00e9\ud83d\ude00"}`, ` {} `,
		`{"s":"\ud800","s":1}`, `{"j":{"a":1,"\u0061":2}}`, "{\"s\":\"\xff\"}",
		`{"x":1e5,"y":-0.0,"z":[[[[]]]]}`, `{"s":{"a" : 1},"j": 12 }`,
		`{"s":"0123456\n89abcdef"}`, `{"j":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}`, `null`,
		`{"S":1,"s":2}`, `{"s":"é"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := decoder(t, &format.Options{NewFields: format.Ignore, MaxDepth: depthLimit},
			schemaOf(nullable("s", arrow.BinaryTypes.String), format.JSONText("j", true)))
		defer d.Release()
		// Two records, one of them bad, leave room in the columns, so that the quick ways are taken.
		long := strings.Repeat("x", 500)
		if _, err := d.Append(freshet.Payload{Value: []byte(`{"s":"` + long + `","j":"` + long + `"}`)}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Append(freshet.Payload{Value: []byte(`{"s":"` + long + `",`)}); err == nil {
			t.Fatal("half a record: got no error")
		}
		members, want := oracle(payload)
		want = want && !clash(members, "s") && !clash(members, "j")
		_, err := d.Append(freshet.Payload{Value: payload})
		if (err == nil) != want {
			t.Fatalf("%q: got %v, want it taken: %t", payload, err, want)
		}
		if err != nil {
			return
		}
		batch := d.Flush().Rows
		defer batch.Release()
		checkText(t, batch.Column(0).(*array.String), textOf(find(members, "s")))
		raw := find(members, "j")
		if string(raw) == "null" {
			raw = nil
		}
		checkText(t, batch.Column(1).(*array.String), raw)
	})
}

// clash reports whether two keys are the same column.
func clash(members map[string]json.RawMessage, name string) bool {
	n := 0
	for key := range members {
		if strings.ToLower(key) == name {
			n++
		}
	}
	return n > 1
}

func find(members map[string]json.RawMessage, name string) []byte {
	for key, value := range members {
		if strings.ToLower(key) == name {
			return value
		}
	}
	return nil
}

// textOf returns what a string column holds of the value; nil for null.
func textOf(value []byte) []byte {
	if len(value) == 0 || value[0] == 'n' {
		return nil
	}
	if value[0] != '"' {
		return value
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		panic(err)
	}
	return append([]byte{}, s...)
}

func checkText(t *testing.T, column *array.String, want []byte) {
	t.Helper()
	if column.IsNull(1) != (want == nil) || column.IsValid(1) && column.Value(1) != string(want) {
		t.Fatalf("got %q (null: %t), want %q", column.ValueStr(1), column.IsNull(1), want)
	}
}

// FuzzDecodeTypes feeds all types, in fields and in lists, between two good records, which must come out
// unharmed.
func FuzzDecodeTypes(f *testing.F) {
	for _, seed := range []string{`1`, `"x"`, `null`, `-1.5e3`, `"2024-01-01T00:00:00Z"`, `[[]]`,
		`{"a":[1,2],"b":{"c":"d"}}`,
		`"2024-1-1 1:2"`, `"AAAA=="`, `{"k":{"k":null}}`, `true`, `"1e-400"`} {
		f.Add([]byte(seed), uint8(0))
	}
	inner := []arrow.DataType{arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8,
		arrow.PrimitiveTypes.Int32,
		arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, decimalType(10, 3),
		arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.FixedWidthTypes.Date32, timestampType, ntzType}
	fields := arrow.StructOf(nullable("a", listOf(arrow.PrimitiveTypes.Int64)),
		nullable("b", mapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)))
	types := append(inner, fields, listOf(fields), mapOf(arrow.PrimitiveTypes.Int32, fields))
	f.Fuzz(func(t *testing.T, value []byte, which uint8) {
		column := types[int(which)%len(types)]
		d := decoder(t, &format.Options{NewFields: format.Rescue, EpochUnit: format.Millis}, schemaOf(
			nullable("v", column), nullable("l", listOf(column)), nullable("_rescued", arrow.BinaryTypes.String)))
		defer d.Release()
		good := []byte(`{"l":[null],"x":[1]}`)
		middle := append(append(append(append([]byte(`{"v":`), value...), `,"l":[`...), value...), "]}"...)
		n := 0
		for _, payload := range [][]byte{good, middle, good} {
			took, err := d.Append(freshet.Payload{Value: payload})
			if r := (*freshet.RejectError)(nil); err != nil && !errors.As(err, &r) {
				t.Fatal(err)
			}
			n += took
		}
		batch := d.Flush().Rows
		defer batch.Release()
		if _, err := batch.MarshalJSON(); err != nil && !strings.Contains(err.Error(), "unsupported value") {
			t.Fatal(err)
		}
		for _, i := range []int{0, n - 1} {
			if got := batch.Column(1).ValueStr(i) + batch.Column(2).ValueStr(i); got != `[null]{"x":[1]}` {
				t.Fatalf("%q: the record beside it became %s", value, got)
			}
		}
		if n == 3 && batch.Column(2).IsValid(1) && !json.Valid([]byte(batch.Column(2).ValueStr(1))) {
			t.Fatalf("%q: rescued %s", value, batch.Column(2).ValueStr(1))
		}
	})
}

// FuzzNumber checks numbers in long, double and decimal columns against math/big and strconv.
func FuzzNumber(f *testing.F) {
	for _, seed := range []string{"0", "-0", "1.5", "9007199254740993", "9223372036854775808", "1e18",
		"-1e-19", "0.1e1", "99999999999999999999999999999.999999999", "123456789012345678", "0.000000000000000001",
		"4.9e-324", "1e308"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.TrimSpace(text)
		if len(text) > 60 || !json.Valid([]byte(text)) || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
			return
		}
		if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 5 {
			return // too large for math/big
		}
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		checkLong(t, text, exact)
		checkDouble(t, text, exact)
		checkDecimal(t, text, exact)
	})
}

func takeNumber(t *testing.T, column arrow.DataType, text string) (arrow.Array, error) {
	d := decoder(t, nil, schemaOf(nullable("v", column)))
	if _, err := d.Append(freshet.Payload{Value: []byte(`{"v":` + text + `}`)}); err != nil {
		return nil, err
	}
	return d.Flush().Rows.Column(0), nil
}

func checkLong(t *testing.T, text string, exact *big.Rat) {
	got, err := takeNumber(t, arrow.PrimitiveTypes.Int64, text)
	want := exact.IsInt() && exact.Num().IsInt64()
	if (err == nil) != want {
		t.Fatalf("%s as long: got %v, want it taken: %t", text, err, want)
	}
	if want && got.(*array.Int64).Value(0) != exact.Num().Int64() {
		t.Fatalf("%s as long: got %s", text, got)
	}
}

func checkDouble(t *testing.T, text string, exact *big.Rat) {
	got, err := takeNumber(t, arrow.PrimitiveTypes.Float64, text)
	want, rangeErr := strconv.ParseFloat(text, 64)
	taken := rangeErr == nil
	if taken && !strings.ContainsAny(text, ".eE") {
		shortest, _ := new(big.Rat).SetString(strconv.FormatFloat(want, 'e', -1, 64))
		taken = new(big.Rat).SetFloat64(want).Cmp(exact) == 0 || shortest.Cmp(exact) == 0
	}
	if (err == nil) != taken {
		t.Fatalf("%s as double: got %v, want it taken: %t", text, err, taken)
	}
	if taken && math.Float64bits(got.(*array.Float64).Value(0)) != math.Float64bits(want) {
		t.Fatalf("%s as double: got %s, want %v", text, got, want)
	}
}

func checkDecimal(t *testing.T, text string, exact *big.Rat) {
	const precision, scale = 38, 9
	got, err := takeNumber(t, decimalType(precision, scale), text)
	unscaled := new(big.Rat).Mul(exact, new(big.Rat).SetInt64(1e9))
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(precision), nil)
	want := unscaled.IsInt() && new(big.Int).Abs(unscaled.Num()).Cmp(limit) < 0
	if (err == nil) != want {
		t.Fatalf("%s as decimal: got %v, want it taken: %t", text, err, want)
	}
	if want && got.(*array.Decimal128).Value(0).BigInt().Cmp(unscaled.Num()) != 0 {
		t.Fatalf("%s as decimal: got %s", text, got)
	}
}

// FuzzTimestamp checks RFC 3339 against package time.
func FuzzTimestamp(f *testing.F) {
	for _, seed := range []string{"2024-02-29T23:59:59.999999Z", "2023-02-29T00:00:00Z",
		"2024-01-01T00:00:00,5Z",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.0000009-00:30",
		"1900-02-28T00:00:00.5+23:59"} {
		f.Add(seed)
	}
	// The decoder remembers dates; the second record of a pair takes another path through it.
	f.Fuzz(func(t *testing.T, text string) {
		want, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || want.UTC().Year() < 1 || want.UTC().Year() > 9999 || want.Year() < 1 {
			return
		}
		if len(text) < 20 || text[10] != 'T' || text[13] != ':' || text[0] < '0' || text[0] > '9' {
			return // package time is laxer than the standard
		}
		if end := text[len(text)-5:]; text[len(text)-1] != 'Z' && (end[:2] > "23" || end[3:] > "59") {
			return // here, too
		}
		d := decoder(t, nil, schemaOf(nullable("v", timestampType)))
		for range 2 {
			if _, err := d.Append(freshet.Payload{Value: []byte(`{"v":"` + text + `"}`)}); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		column := d.Flush().Rows.Column(0).(*array.Timestamp)
		for i := range 2 {
			if got := int64(column.Value(i)); got != want.UnixMicro() {
				t.Fatalf("%s: got %d µs, want %d", text, got, want.UnixMicro())
			}
		}
	})
}

// FuzzInfer checks that inference takes all bytes, and that what it infers takes the record it is from.
func FuzzInfer(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1.5},{"b":"2024-01-01"}],"c":{"d e":{}}}`))
	f.Add([]byte(`{"a":[1,"\u0022"],"\u0061b":{"\u0063":"\u0064"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		j, err := format.NewJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := j.Infer(asPayloads([][]byte{payload, payload}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if schema != nil {
			checkFits(t, j, schema, [][]byte{payload})
		}
	})
}
