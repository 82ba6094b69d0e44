package freshet_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

func TestChange_AsHeaders_ComesBack(t *testing.T) {
	for _, c := range []freshet.Change{
		{Kind: freshet.Insert, Stamp: freshet.Stamp{Ordinal: -1}},
		{Kind: freshet.UpdatePostimage, Stamp: freshet.Stamp{Tx: "77", Ordinal: 0, Committed: 1}, Unsent: []string{"a,b", "c"}},
		{Kind: freshet.Delete, Stamp: freshet.Stamp{Ordinal: 5}, Behind: &freshet.Place{Lane: freshet.Lane{Name: "0"}, Seq: 1 << 40}},
	} {
		got, ok := freshet.ChangeOf(c.Headers())
		if !ok || !reflect.DeepEqual(got, c) {
			t.Errorf("got %+v, %v, want %+v", got, ok, c)
		}
	}
	for _, headers := range [][]freshet.Header{nil, {{Key: "trace", Value: []byte("x")}}, {{Key: "_change_type", Value: []byte("none")}}} {
		if got, ok := freshet.ChangeOf(headers); ok {
			t.Errorf("got %+v of %v, want none", got, headers)
		}
	}
}

func TestRowsOfJSON_WhatRowJSONMade_AndWhatItDidNot(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, {Name: "d", Type: &arrow.Decimal128Type{Precision: 20, Scale: 2}, Nullable: true},
		{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
		{Name: "b", Type: arrow.BinaryTypes.Binary, Nullable: true}, {Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true}}, nil)
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"id": 9007199254740993, "f": "NaN", "d": "123456789012345678.90",
"at": "2024-02-29T12:34:56.789012Z", "b": "AP8=", "l": ["a", null, "\\ud83d\\ude00"]}, {"id": null, "l": []}]`))
	if err != nil {
		t.Fatal(err)
	}
	texts := [][]byte{freshet.RowJSON(rows, 0), []byte("was emptied"), freshet.RowJSON(rows, 1), []byte(`{"id": "x"}`), []byte(`{"id": 3, "gone": {"a": [1]}}`),
		[]byte(`{"id": 4}, {"id": 5}`), nil, []byte(`[{"id": 6}]`)}
	got, of, faults := freshet.RowsOfJSON(schema, texts)
	if !slices.Equal(of, []int{0, 2, 4}) || len(faults) != 5 {
		t.Fatalf("got rows of %v and the faults %v, want rows of 0, 2 and 4", of, faults)
	}
	for i := range 2 {
		if a, b := string(freshet.RowJSON(got, i)), string(texts[of[i]]); a != b {
			t.Errorf("got %s, want %s", a, b)
		}
	}
	if none, _, _ := freshet.RowsOfJSON(schema, nil); none != nil {
		t.Error("got rows of nothing")
	}
}
