package postgres

import (
	"slices"
	"testing"

	"github.com/freshet-io/freshet"
)

// What quarantine keeps of rows becomes rows again, whatever else lies there.
func TestRetake_TextsOfQuarantine_RowsOrReasons(t *testing.T) {
	types := testTypes(Types{Beyond: BeyondReject})
	table := &catalogTable{Table: Table{Schema: "public", Name: "t", Columns: []Column{{Name: "id", Type: 23, Modifier: -1, Unique: true},
		{Name: "d", Type: 1082, Modifier: -1}, {Name: "two words", Type: 25, Modifier: -1}}}}
	schema, err := types.schema(&table.Table)
	if err != nil {
		t.Fatal(err)
	}
	r := &Original{of: &Originals{types: types}, table: table, schema: schema}
	texts := [][]byte{[]byte(`{"id": "1", "d": "2024-01-01", "two words": "é"}`), []byte(`{"id": "2", "d": "infinity"}`), []byte(`{"id": "3"}`), []byte(`{"id": 4}`),
		[]byte("public.t was emptied by TRUNCATE"), nil, []byte("{}"), []byte(`{"id": "5", "d": null, "two words": null, "gone": "x"}`), []byte(`{"id": "x"}`)}
	taken, err := r.Retake(texts)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(taken.Of, []int{0, 2, 7}) || taken.Rows.NumRows() != 3 {
		t.Fatalf("got %v, want the rows 0, 2 and 7", taken.Of)
	}
	if taken.Unsent.Any(0) || !taken.Unsent.Has(1, 1) || !taken.Unsent.Has(1, 2) || taken.Unsent.Any(2) {
		t.Error("got other cells that were not sent than two of the second row")
	}
	if v := taken.Rows.Column(2).ValueStr(0); v != "é" {
		t.Errorf("got %q, want é", v)
	}
	for i, code := range map[int]freshet.Code{1: freshet.CodeOutOfRange, 3: freshet.CodeMalformed, 4: freshet.CodeMalformed, 5: freshet.CodeMalformed,
		6: freshet.CodeMalformed, 8: freshet.CodeWrongType} {
		if why := taken.Refused[i]; why == nil || why.Code != code {
			t.Errorf("%s: got %v, want %s", texts[i], why, code)
		}
	}
}
