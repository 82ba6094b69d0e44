package canonical_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/internal/canonical"
)

func encode(t *testing.T, arr arrow.Array) string {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{arr}, int64(arr.Len()))
	var lines []string
	for i := range arr.Len() {
		line, err := canonical.NewEncoder(schema).AppendRow(nil, rec, i)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(string(line), `{"c":`), "}"))
	}
	return strings.Join(lines, " ")
}

func parse(t *testing.T, typ arrow.DataType, values string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, typ, strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	return arr
}

func TestAppendRow_EachType_AsSpecified(t *testing.T) {
	us := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	ntz := &arrow.TimestampType{Unit: arrow.Microsecond}
	entry := arrow.StructOf(arrow.Field{Name: "key", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	pair := arrow.StructOf(arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
		arrow.Field{Name: "B", Type: arrow.PrimitiveTypes.Int8, Nullable: true})
	for _, c := range []struct {
		typ          arrow.DataType
		values, want string
	}{
		{arrow.FixedWidthTypes.Boolean, `[true, null, false]`, `true null false`},
		{arrow.PrimitiveTypes.Int64, `[9223372036854775807, -1]`, `9223372036854775807 -1`},
		{arrow.PrimitiveTypes.Float64, `[1, 0.1, 1e-7, 1e21, 1e20]`, `1 0.1 1e-7 1e+21 100000000000000000000`},
		{arrow.PrimitiveTypes.Float32, `[0.1, 3.4028235e38]`, `0.1 3.4028235e+38`},
		{&arrow.Decimal128Type{Precision: 10, Scale: 2}, `["-1.5", "0"]`, `"-1.50" "0.00"`},
		{&arrow.Decimal128Type{Precision: 38, Scale: 0}, `["12345678901234567890123456789012345678"]`,
			`"12345678901234567890123456789012345678"`},
		{arrow.BinaryTypes.String, `["a\"\\\n\u0001<\u2028é\ud83d\ude00"]`, `"a\"\\\n\u0001<\u2028é😀"`},
		{arrow.BinaryTypes.Binary, `["AAH/"]`, `"AAH/"`},
		{arrow.FixedWidthTypes.Date32, `["2024-02-29", "0001-01-01"]`, `"2024-02-29" "0001-01-01"`},
		{us, `["2024-02-29T12:34:56.789012Z"]`, `"2024-02-29T12:34:56.789012Z"`},
		{ntz, `["2024-02-29T12:34:56"]`, `"2024-02-29T12:34:56.000000"`},
		{arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1, null], [], null]`, `[1,null] [] null`},
		{pair, `[{"b": 1, "B": 2}]`, `{"B":2,"b":1}`},
		{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64),
			`[[{"key": "z", "value": 1}, {"key": "a", "value": null}]]`,
			`[{"key":"a","value":null},{"key":"z","value":1}]`},
		{arrow.ListOf(entry), `[[{"key": "z", "value": 1}, {"key": "a", "value": 2}]]`,
			`[{"key":"a","value":2},{"key":"z","value":1}]`},
		{arrow.Null, `[null]`, `null`},
	} {
		if got := encode(t, parse(t, c.typ, c.values)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.typ, got, c.want)
		}
	}
}

func TestAppendRow_FloatsAndStrings_AsEncodingJSON(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	doubles := array.NewFloat64Builder(memory.DefaultAllocator)
	floats := array.NewFloat32Builder(memory.DefaultAllocator)
	texts := array.NewStringBuilder(memory.DefaultAllocator)
	var want [3][]string
	note := func(i int, v any) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		want[i] = append(want[i], strings.TrimSpace(b.String()))
	}
	for range 2000 {
		d := math.Float64frombits(r.Uint64())
		f := math.Float32frombits(r.Uint32())
		if d-d != 0 || f-f != 0 {
			continue
		}
		s := string([]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
		doubles.Append(d)
		floats.Append(f)
		texts.Append(s)
		note(0, d)
		note(1, f)
		note(2, s)
	}
	for i, arr := range []arrow.Array{doubles.NewArray(), floats.NewArray()} {
		if got := encode(t, arr); got != strings.Join(want[i], " ") {
			t.Errorf("seed %d: floats differ from encoding/json", seed)
		}
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.BinaryTypes.String}}, nil)
	arr := texts.NewArray()
	rec := array.NewRecordBatch(schema, []arrow.Array{arr}, int64(arr.Len()))
	for i := range arr.Len() {
		line, err := canonical.NewEncoder(schema).AppendRow(nil, rec, i)
		if err != nil || string(line) != `{"c":`+want[2][i]+`}` {
			t.Errorf("seed %d: got %s, want %s (%v)", seed, line, want[2][i], err)
		}
	}
}

func TestAppendRow_NotFinite_AsStrings(t *testing.T) {
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}, nil)
	if got, want := encode(t, b.NewArray()), `"NaN" "Infinity" "-Infinity" -0`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDigest_NoRows_IsThatOfNothing(t *testing.T) {
	var d canonical.Digest
	sum, rows, err := d.Sum()
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; sum != want || rows != 0 || err != nil {
		t.Errorf("got %s, %d rows, %v", sum, rows, err)
	}
}

func TestDigest_MoreThanMemoryHolds_SameAsSortedAtOnce(t *testing.T) {
	d := canonical.Digest{Dir: t.TempDir(), MemoryBytes: 10_000}
	var lines []string
	for i := range 5000 {
		line := fmt.Sprintf("%06dx", (i*7919)%5000)
		lines = append(lines, line)
		if err := d.Add([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line + "\n"))
	}
	sum, rows, err := d.Sum()
	if want := hex.EncodeToString(h.Sum(nil)); sum != want || rows != 5000 || err != nil {
		t.Errorf("got %s, %d rows, %v; want %s", sum, rows, err, want)
	}
}
