package delta

import (
	"encoding/json"
	"testing"
)

func TestWideStats_AnyStatistics_KeepBoundsAndCountRows(t *testing.T) {
	for stats, want := range map[string]string{
		"":     `{"numRecords":7,"tightBounds":false}`,
		"null": `{"numRecords":7,"tightBounds":false}`,
		`{"minValues":{"a":1.10},"numRecords":3,"tightBounds":true}`: `{"numRecords":7,"minValues":{"a":1.10},` +
			`"tightBounds":false}`,
		`{"numRecords":7,"maxValues":{"a":"<é>"},"nullCount":{"a":0}}`: `{"numRecords":7,"maxValues":{"a":"<é>"},` +
			`"nullCount":{"a":0},"tightBounds":false}`,
	} {
		if got := wideStats(stats, 7); got != want {
			t.Errorf("%s: got %s, want %s", stats, got, want)
		}
	}
}

// FuzzStatistics reads hostile statistics: they count no rows, or not fewer than none, and come out as JSON.
func FuzzStatistics(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"numRecords":12}`, `{"numRecords":-1}`, `{"numRecords":null,"minValues":{}}`,
		`{"numRecords":1e3}`, `{"numRecords":5,"maxValues":[`, `{"minValues":{"a":{"b":[1,2,{"c":null}]}}}`, "[[[[",
		`{"numRecords":9223372036854775808}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stats string) {
		if rows, ok := recordCount(stats); ok && rows < 0 {
			t.Errorf("%q counts %d rows", stats, rows)
		}
		if wide := wideStats(stats, 3); !json.Valid([]byte(wide)) {
			t.Errorf("%q becomes %q, which is no JSON", stats, wide)
		}
		s := tableState{domains: map[string]DomainMetadata{rowTrackingDomain: {Configuration: stats}}}
		_, _ = s.rowIDHighWater()
		_, _ = schemaWithout(stats, func(string) bool { return true })
	})
}
