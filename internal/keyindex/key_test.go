package keyindex_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// newHasher is the hasher of a fresh index whose key has so many columns.
func newHasher(t *testing.T, columns int, nulls bool) *keyindex.Hasher {
	t.Helper()
	id := keyindex.Identity{Table: "t", NullKeys: nulls}
	for i := range columns {
		id.Columns = append(id.Columns, keyindex.Column{Name: fmt.Sprint("c", i), Type: "any"})
	}
	return create(t, t.TempDir(), id).Hasher()
}

func create(t testing.TB, dir string, id keyindex.Identity) *keyindex.Index {
	t.Helper()
	x, err := keyindex.Create(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// column builds an array of a type; nil is null.
func column(t *testing.T, typ arrow.DataType, values ...any) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	for _, v := range values {
		switch b := b.(type) {
		case *array.Float32Builder:
			if v != nil {
				b.Append(v.(float32))
				continue
			}
		case *array.Float64Builder:
			if v != nil {
				b.Append(v.(float64))
				continue
			}
		case *array.Decimal128Builder:
			if v != nil {
				b.Append(decimal128.FromI64(v.(int64)))
				continue
			}
		}
		if v == nil {
			b.AppendNull()
		} else if err := b.AppendValueFromString(fmt.Sprint(v)); err != nil {
			t.Fatal(err)
		}
	}
	return b.NewArray()
}

func hash(t *testing.T, h *keyindex.Hasher, columns ...arrow.Array) []keyindex.Fingerprint {
	t.Helper()
	keys, err := h.Append(nil, columns)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

var (
	micros  = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	ntz     = &arrow.TimestampType{Unit: arrow.Microsecond}
	decimal = &arrow.Decimal128Type{Precision: 10, Scale: 2}
)

func TestHasher_ValuesThatDiffer_FingerprintsThatDiffer(t *testing.T) {
	h := newHasher(t, 1, true)
	text, blob := arrow.BinaryTypes.String, arrow.BinaryTypes.Binary
	columns := []arrow.Array{
		column(t, arrow.FixedWidthTypes.Boolean, true, false, nil),
		column(t, arrow.PrimitiveTypes.Int8, -1, 0, 1, 127),
		column(t, arrow.PrimitiveTypes.Int16, -1, 0, 1, 127),
		column(t, arrow.PrimitiveTypes.Int32, -1, 0, 1, 127),
		column(t, arrow.PrimitiveTypes.Int64, -1, 0, 1, 127, int64(math.MaxInt64), int64(math.MinInt64), 1<<56),
		column(t, arrow.PrimitiveTypes.Float32, float32(0), float32(1), float32(math.Inf(1)), float32(math.NaN())),
		column(t, arrow.PrimitiveTypes.Float64, 0.0, 1.0, math.Inf(1), math.Inf(-1), math.NaN(), 0.1),
		column(t, decimal, int64(-1), int64(0), int64(1)),
		column(t, &arrow.Decimal128Type{Precision: 10, Scale: 3}, int64(0), int64(1)),
		column(t, text, "", "\x00", "a", "ab", "1", nil),
		column(t, blob, "", "YQ==", "YWI="),
		column(t, arrow.FixedWidthTypes.Date32, "1970-01-01", "1970-01-02"),
		column(t, micros, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z"),
		column(t, ntz, "1970-01-01T00:00:00", "1970-01-01T00:00:00.000001"),
	}
	seen := map[keyindex.Fingerprint]string{}
	for _, col := range columns {
		for i, k := range hash(t, h, col) {
			name := fmt.Sprintf("%s %s", col.DataType(), col.ValueStr(i))
			if other, ok := seen[k]; ok {
				t.Errorf("%s and %s: got one fingerprint, want two", name, other)
			}
			seen[k] = name
		}
	}
}

func TestHasher_WhatSparkCallsEqual_OneFingerprint(t *testing.T) {
	h := newHasher(t, 1, true)
	negative := math.Copysign(0, -1)
	odd := math.Float64frombits(0xfff8000000000123)
	text, float := arrow.BinaryTypes, arrow.PrimitiveTypes.Float32
	for _, pair := range [][2]arrow.Array{
		{column(t, arrow.PrimitiveTypes.Float64, 0.0), column(t, arrow.PrimitiveTypes.Float64, negative)},
		{column(t, arrow.PrimitiveTypes.Float64, math.NaN()), column(t, arrow.PrimitiveTypes.Float64, odd)},
		{column(t, float, float32(0)), column(t, float, float32(negative))},
		{column(t, float, float32(math.NaN())), column(t, float, math.Float32frombits(0xffc00123))},
		{column(t, text.String, "äb"), column(t, text.LargeString, "äb")},
		{column(t, text.Binary, "YQ=="), column(t, text.LargeBinary, "YQ==")},
		{column(t, decimal, int64(5)), column(t, &arrow.Decimal128Type{Precision: 38, Scale: 2}, int64(5))},
		{column(t, arrow.PrimitiveTypes.Int64, nil), column(t, arrow.PrimitiveTypes.Int64, nil)},
	} {
		if a, b := hash(t, h, pair[0])[0], hash(t, h, pair[1])[0]; a != b {
			t.Errorf("%v of %s and of %s: got %x and %x, want one fingerprint", pair[0], pair[0].DataType(),
				pair[1].DataType(), a, b)
		}
	}
}

func TestHasher_SeveralColumns_CutsMatter(t *testing.T) {
	h := newHasher(t, 2, true)
	text := arrow.BinaryTypes.String
	keys := hash(t, h, column(t, text, "a", "ab", "", "abc", nil, "x", nil),
		column(t, text, "bc", "c", "abc", "", "x", nil, nil))
	seen := map[keyindex.Fingerprint]bool{}
	for _, k := range keys {
		seen[k] = true
	}
	if len(seen) != len(keys) {
		t.Errorf("got %d fingerprints of %d keys", len(seen), len(keys))
	}
}

// The way of one column of integers without nulls is another than that of all others.
func TestHasher_Longs_BothWaysAgree(t *testing.T) {
	h := newHasher(t, 1, true)
	values := []any{0, 1, -1, 255, 1 << 55, 1 << 56, int64(math.MaxInt64), int64(math.MinInt64)}
	fast := hash(t, h, column(t, arrow.PrimitiveTypes.Int64, values...))
	slow := hash(t, h, column(t, arrow.PrimitiveTypes.Int64, append(values, nil)...))
	sliced := array.NewSlice(column(t, arrow.PrimitiveTypes.Int64, values...), 2, 4)
	for i, k := range hash(t, h, sliced) {
		if k != fast[2+i] {
			t.Errorf("slice, row %d: got %x, want %x", i, k, fast[2+i])
		}
	}
	for i := range fast {
		if fast[i] != slow[i] {
			t.Errorf("%v: got %x and %x", values[i], fast[i], slow[i])
		}
	}
}

func TestHasher_NullThatIsRefused_NamesColumnAndRow(t *testing.T) {
	h := newHasher(t, 2, false)
	text := arrow.BinaryTypes.String
	keys := make([]keyindex.Fingerprint, 1)
	got, err := h.Append(keys, []arrow.Array{column(t, text, "a", "b"), column(t, text, "a", nil)})
	var null *keyindex.NullKeyError
	if !errors.As(err, &null) || !errors.Is(err, keyindex.ErrNullKey) || len(got) != 1 ||
		*null != (keyindex.NullKeyError{Column: 1, Row: 1}) {
		t.Errorf("got %d keys, %v; want column 1, row 1", len(got), err)
	}
}

func TestHasher_WhatCannotBeAKey_IsRefused(t *testing.T) {
	h := newHasher(t, 1, false)
	for _, typ := range []arrow.DataType{arrow.ListOf(arrow.PrimitiveTypes.Int8), arrow.PrimitiveTypes.Uint8,
		&arrow.TimestampType{Unit: arrow.Nanosecond}, &arrow.FixedSizeBinaryType{ByteWidth: 2}} {
		none := array.NewBuilder(memory.DefaultAllocator, typ).NewArray()
		if _, err := h.Append(nil, []arrow.Array{none}); err == nil {
			t.Errorf("%s: got no error", typ)
		}
	}
	long := column(t, arrow.PrimitiveTypes.Int64, 1)
	if _, err := h.Append(nil, []arrow.Array{long, long}); err == nil {
		t.Error("two columns: got no error")
	}
	two := newHasher(t, 2, false)
	if _, err := two.Append(nil, []arrow.Array{long, column(t, arrow.PrimitiveTypes.Int64, 1, 2)}); err == nil {
		t.Error("columns of different length: got no error")
	}
}

// Two indexes have two secrets.
func TestHasher_AnotherIndex_OtherFingerprints(t *testing.T) {
	long := column(t, arrow.PrimitiveTypes.Int64, 1)
	if a, b := hash(t, newHasher(t, 1, false), long)[0], hash(t, newHasher(t, 1, false), long)[0]; a == b {
		t.Errorf("got %x twice", a)
	}
}

// sipVectors are OpenSSL's: of the bytes 0, 1, 2 … under the key 0, 1 … 15.
var sipVectors = map[int]string{
	0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45",
	7: "a1f1ebbed8dbc153c0b84aa61ff08239", 8: "3b62a9ba6258f5610f83e264f31497b4",
	9: "264499060ad9baabc47f8b02bb6d71ed", 15: "5493e99933b0a8117e08ec0f97cfc3d9",
	16: "6ee2a4ca67b054bbfd3315bf85230577", 17: "473d06e8738db89854c066c47ae47740",
	40: "df6a301e95c95dad97ae0cc8c6913bd8",
}

func TestSipHash_KnownAnswers_AreGiven(t *testing.T) {
	for n, want := range sipVectors {
		message := make([]byte, n)
		for i := range message {
			message[i] = byte(i)
		}
		if got := hex.EncodeToString(keyindex.SipHash(message)); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}
