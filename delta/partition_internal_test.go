package delta

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func TestParseMicros_FormsThatWritersUse(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"1970-01-01 00:00:00", 0},
		{"1970-01-01", 0},
		{"1970-01-01T00:00:00.000001Z", 1},
		{"1970-01-01 00:00:00.5", 500_000},
		{"1970-01-01 02:00:00+02:00", 0},
		{"1969-12-31T19:00:00.000-05:00", 0},
		{"1970-01-01T00:00:00.123456789Z", 123_456},
		{"-0001-01-01 00:00:00", -62198755200000000},
		{"294247-01-10T04:00:54.775807Z", math.MaxInt64},
	} {
		if got, err := parseMicros(c.text); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v; want %d", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "x", "1970-13-01", "1970-02-30", "1970-01-01T25:00:00Z", "1970-01-01T00:00:00+25:99",
		"70-01-01", "1970-01-01 ", "1970-1-1", "99999999-01-01"} {
		if got, err := parseMicros(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestEncodePath_AsJavaNetURI(t *testing.T) {
	for _, c := range [][2]string{
		{"p=a%3Ab/part-0.parquet", "p=a%253Ab/part-0.parquet"},
		{"a b", "a%20b"}, {"é漢", "é漢"}, {"a+b&c;d,e@f$g!h~i'j(k)", "a+b&c;d,e@f$g!h~i'j(k)"},
		{"<>|`}", "%3C%3E%7C%60%7D"}, {"\u00a0\u2003", "%C2%A0%E2%80%83"}, {"\xff", "\xff"},
	} {
		if got := encodePath(c[0]); got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
	}
}

func TestDecodeZ85_VectorsOfTheSpecification(t *testing.T) {
	if got, err := decodeZ85("HelloWorld"); err != nil || string(got) != "\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b" {
		t.Errorf("got %x, %v", got, err)
	}
	for _, text := range []string{"Hell", "Hell~", "#####"} {
		if got, err := decodeZ85(text); err == nil {
			t.Errorf("%q is taken as %x", text, got)
		}
	}
}

// FuzzPartitionValue checks that whatever a log says is a value or an error, and that values print and parse alike.
func FuzzPartitionValue(f *testing.F) {
	types := []Type{Boolean, Byte, Short, Integer, Long, Float, Double, Decimal{38, 10}, Decimal{5, 2}, String, Binary,
		Date, Timestamp, TimestampNTZ}
	for i, s := range []string{"true", "-1", "7", "2147483647", "-0", "NaN", "1.0E10", "12.5", "-0.05", "", "\xff",
		"2024-02-29", "2024-02-29T01:02:03.5-08:00", "2024-02-29 01:02:03"} {
		f.Add(uint8(i), s)
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		typ := types[int(kind)%len(types)]
		var arr arrow.Array
		var err error
		spend(t, len(text), func() { arr, err = partitionArray(typ, &text, 3) })
		if err != nil {
			return
		}
		printed := formatPartition(typ, arr, 0)
		again, err := partitionArray(typ, printed, 3)
		if err != nil {
			t.Fatalf("%s %q prints as %q, which does not parse: %v", typ, text, *printed, err)
		}
		if !array.Equal(array.NewSlice(arr, 0, 3), array.NewSlice(again, 0, 3)) && !isNaN(arr) {
			t.Errorf("%s %q prints as %q, which is another value", typ, text, *printed)
		}
	})
}

// FuzzPartitionPath checks that whatever stands in a log or a folder's name is a path, and that names and values come back
// from the path that is made of them.
func FuzzPartitionPath(f *testing.F) {
	f.Add("p", "a:b", "file:///x%2")
	f.Add("a=b/c", "%41 \x00\x7f\xffü{}^", "p=a%253Ab/part-0.parquet")
	f.Add("day", "__HIVE_DEFAULT_PARTITION__", "file:/x")
	f.Add("p", strings.Repeat("%25", 2000), strings.Repeat("/%2F", 2000))
	goldenAdds(f, func(a *Add) {
		for name, value := range a.PartitionValues {
			if value != nil {
				f.Add(name, *value, a.Path)
			}
		}
	})
	f.Fuzz(func(t *testing.T, name, value, text string) {
		spend(t, len(name)+len(value)+len(text), func() { fuzzPartitionPath(t, name, value, text) })
	})
}

func fuzzPartitionPath(t *testing.T, name, value, text string) {
	if key := decodePath(text); decodePath(encodePath(key)) != key {
		t.Errorf("the key %q is encoded as %q, which decodes to %q", key, encodePath(key), decodePath(encodePath(key)))
	}
	if path := canonicalPath(text); strings.HasPrefix(path, "/") && canonicalPath("file://"+encodePath(path)) !=
		"/"+strings.TrimLeft(path, "/") {
		t.Errorf("%q and its URI are not the same file", path)
	}
	folder := partitionFolder([]string{name}, []*string{&value})
	column, escaped, _ := strings.Cut(folder, "=")
	if strings.Contains(folder, "/") || unescapeHive(column) != name ||
		value != "" && unescapeHive(escaped) != value || value == "" && escaped != nullPartition {
		t.Errorf("%q = %q becomes the folder %q", name, value, folder)
	}
	if stored := decodePath(encodePath(folder)); stored != folder {
		t.Errorf("the folder %q is found at %q", folder, stored)
	}
}

func isNaN(arr arrow.Array) bool {
	switch a := arr.(type) {
	case *array.Float32:
		return a.Value(0) != a.Value(0)
	case *array.Float64:
		return a.Value(0) != a.Value(0)
	}
	return false
}

func TestSplit_ManyColumns_EveryRowInTheGroupOfItsValues(t *testing.T) {
	n := 1000
	text, number := array.NewStringBuilder(memory.DefaultAllocator), array.NewInt16Builder(memory.DefaultAllocator)
	for i := range n {
		if i%7 == 0 {
			text.AppendNull()
		} else {
			text.Append(strings.Repeat("x", i%5))
		}
		number.Append(int16(i / 300))
	}
	columns := []arrow.Array{text.NewArray(), number.NewArray(), nil}
	s := splitter{types: []Type{String, Short, Long}}
	seen := make([]bool, n)
	for _, p := range s.split(columns, n) {
		last := int32(-1)
		for _, row := range p.rows {
			if row <= last {
				t.Fatalf("row %d comes after %d", row, last)
			}
			last, seen[row] = row, true
			for i, c := range columns {
				if got := formatPartition(s.types[i], c, int(row)); !same(got, p.values[i]) {
					t.Fatalf("row %d is in a group of another value of column %d", row, i)
				}
			}
		}
	}
	for row, ok := range seen {
		if !ok {
			t.Errorf("row %d is in no group", row)
		}
	}
}

func same(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
