package interop_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// garbage are payloads that the columns of pipeline cannot take, one of every kind.
func garbage(n int) []byte {
	kinds := []string{
		`{"id":%d,"part":1,"s":"cut`,
		`{"id":"twelve","part":%d}`,
		`{"id":%d,"part":{"no":"number"}}`,
		`{"id":%d,"amount":NaN}`,
		`{"id":%d,"id":7}`,
		"{\"id\":%d,\"s\":\"\xff\xfe\"}",
		`{"id":%d,"s":"` + `\ud800"}`,
		`{"id":%d}{"id":8}`,
		`[%d]`,
		`{"s":"no id","part":%d}`,
		`{"id":%d,"amount":"12345678901234567890.123"}`,
		`{"id":%d,"part":4294967296}`,
		`{"id":%d,"deep":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`%d ` + "",
	}
	return fmt.Appendf(nil, kinds[n%len(kinds)], n)
}

// TestGarbage_OnePercentOfEveryKind_GoodRowsLandBadAreInQuarantine kills the process meanwhile, so that quarantine too must hold
// each offset once.
func TestGarbage_OnePercentOfEveryKind_GoodRowsLandBadAreInQuarantine(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	random := seeded(t)
	topic, table := b.topic(4, nil), filepath.Join(t.TempDir(), "t")
	good, bad := map[string][]int64{}, map[string][]int64{}
	var records []*kgo.Record
	for n := range 40_000 {
		r := event(topic, int32(n%4), n)
		into := good
		if random.IntN(100) == 0 {
			r.Value, into = garbage(n), bad
		}
		lane := fmt.Sprint(n % 4)
		into[lane] = append(into[lane], int64(n/4))
		records = append(records, r)
	}
	b.produce(records...)
	file := pipeline(t, b, topic, table, "    instance_id: fire-garbage")
	for range rounds(t, 8) {
		p := start(t, nil, "run", file, "--progress", "off")
		pause(time.Duration(80+random.IntN(400))*time.Millisecond, p.done)
		p.kill()
	}
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantOffsets(t, "table", good, reader(t, "once.py", table, "--list"))
	wantOffsets(t, "quarantine", bad, reader(t, "once.py", table+"_quarantine", "--list", "--partition", "lane", "--offset", "seq"))
}

// wantOffsets compares the offsets of each lane, each once, with lines "lane offset".
func wantOffsets(t *testing.T, what string, want map[string][]int64, listed []byte) {
	t.Helper()
	got := map[string][]int64{}
	for line := range strings.Lines(string(listed)) {
		var lane string
		var offset int64
		if _, err := fmt.Sscan(line, &lane, &offset); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[lane] = append(got[lane], offset)
	}
	total := 0
	for lane, offsets := range want {
		slices.Sort(got[lane])
		if !slices.Equal(got[lane], offsets) {
			t.Errorf("%s: lane %s has %d offsets, want %d, each once", what, lane, len(got[lane]), len(offsets))
		}
		total += len(offsets)
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d lanes, want %d", what, len(got), len(want))
	}
	t.Logf("%s: %d records", what, total)
}
