package delta

import (
	"context"
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
	for _, seed := range hostileStats(4 << 10) {
		f.Add(string(seed))
	}
	goldenAdds(f, func(a *Add) { f.Add(a.Stats) })
	condition := sieveOf(f)
	f.Fuzz(func(t *testing.T, stats string) {
		spend(t, len(stats), func() { fuzzStatistics(t, stats, condition) })
	})
}

// sieveOf looks at statistics for someCondition, as scans do.
func sieveOf(f *testing.F) func(*Add) bool {
	table, err := Open(context.Background(), hostileTable(f, []byte("{}")), nil)
	if err != nil {
		f.Fatal(err)
	}
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	p, err := newScanPlan(snap, &ScanOptions{Columns: []string{}, Where: someCondition})
	if err != nil {
		f.Fatal(err)
	}
	return func(a *Add) bool { return !p.sieve.rejects([]byte(a.Stats)) && p.mayMatch(a) }
}

func fuzzStatistics(t *testing.T, stats string, condition func(*Add) bool) {
	_ = condition(&Add{Path: "a", Stats: stats})
	if rows, ok := recordCount(stats); ok && rows < 0 {
		t.Errorf("%q counts %d rows", stats, rows)
	}
	if wide := wideStats(stats, 3); !json.Valid([]byte(wide)) {
		t.Errorf("%q becomes %q, which is no JSON", stats, wide)
	}
	s := tableState{domains: map[string]DomainMetadata{rowTrackingDomain: {Configuration: stats}}}
	_, _ = s.rowIDHighWater()
	_, _ = schemaWithout(stats, func(string) bool { return true })
}
