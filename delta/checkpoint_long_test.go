package delta_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// TestCheckpoint_VeryLongStatistics_Survive has files whose statistics hold texts of megabytes, as tables get whose
// delta.dataSkippingStringPrefixLength is large, between many with short ones: as JSON and as columns, in classic
// checkpoints and in sidecars.
func TestCheckpoint_VeryLongStatistics_Survive(t *testing.T) {
	for _, policy := range []string{"classic", "v2"} {
		for _, asJSON := range []string{"true", "false"} {
			t.Run(policy+", writeStatsAsJson="+asJSON, func(t *testing.T) {
				ctx, st := context.Background(), store.NewMem()
				table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: fields("s", delta.String, "n", delta.Long),
					Properties: map[string]string{"delta.checkpointPolicy": policy, "delta.checkpoint.writeStatsAsJson": asJSON}})
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]string{}
				tx := table.Begin(snapshot(t, table), nil)
				for i := range 300 {
					text := fmt.Sprint("s", i)
					if i%100 == 50 {
						text = strings.Repeat("ü\"\\\n", 100_000) + text
					}
					bound, err := json.Marshal(text)
					if err != nil {
						t.Fatal(err)
					}
					a := delta.Add{Path: fmt.Sprint("f", i), Size: 1, DataChange: true, Stats: fmt.Sprintf(
						`{"numRecords":1,"minValues":{"s":%s,"n":%d},"maxValues":{"s":%[1]s,"n":%[2]d},"nullCount":{"s":0,"n":0}}`, bound, i)}
					want[a.Path] = a.Stats
					tx.Add(a)
				}
				if _, err := tx.Commit(ctx); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second is made of the first
					checkpoint(t, table)
					fresh := snapshot(t, open(t, st))
					if fresh.CheckpointVersion() != fresh.Version() {
						t.Fatalf("got the checkpoint %d of version %d", fresh.CheckpointVersion(), fresh.Version())
					}
					sameStats(t, fresh, want)
					a := delta.Add{Path: fmt.Sprint("late", len(want)), Size: 1, DataChange: true, Stats: `{"numRecords":1}`}
					want[a.Path] = a.Stats
					tx := table.Begin(snapshot(t, table), nil)
					tx.Add(a)
					if _, err := tx.Commit(ctx); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

func sameStats(t *testing.T, snap *delta.Snapshot, want map[string]string) {
	t.Helper()
	found := 0
	for a, err := range snap.Files(context.Background(), &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		found++
		if a.Stats != want[a.Path] && !sameJSON(t, a.Stats, want[a.Path]) {
			t.Errorf("%s: got statistics of %d bytes, want %d: %.200s", a.Path, len(a.Stats), len(want[a.Path]), a.Stats)
		}
	}
	if found != len(want) {
		t.Errorf("got %d files, want %d", found, len(want))
	}
	for a, err := range snap.Matching(context.Background(), where(t, "n = 150")) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Path != "f150" && !strings.HasPrefix(a.Path, "late") {
			t.Errorf("%s may match, want f150 only", a.Path)
		}
	}
}
